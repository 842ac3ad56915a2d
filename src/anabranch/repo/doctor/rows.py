"""Check the rows of tables: all must be readable, and primary keys must be unique and not null."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa

from anabranch.errors import AnabranchError, StorageDeniedError, StorageUnavailableError
from anabranch.format import staging
from anabranch.format.doctor.findings import Case, Finding, FindingKind, Placement
from anabranch.format.home import branch_folder
from anabranch.format.scan import iter_batches
from anabranch.format.staging import VersionRef
from anabranch.repo.doctor.inventory import Use
from anabranch.repo.log.config import TABLES, RepoConfig

__all__ = ["diagnose_rows"]


def diagnose_rows(config: RepoConfig, uses: Mapping[Placement, Use]) -> Iterator[Case]:
    """Read every row of the given table states. Only the key columns of one state are in memory at a time.

    The same problem in several states of a table is one finding, because the states share files.
    """
    found: dict[tuple[str, FindingKind], list[tuple[Placement, str]]] = defaultdict(list)
    for place, use in uses.items():
        for kind, problem in _check(config, place, sorted(use.keys)):
            found[place.dataset, kind].append((place, problem))
    for (_, kind), states in sorted(found.items()):
        yield _case(kind, states)


def _check(config: RepoConfig, place: Placement, keys: list[tuple[str, ...]]) -> Iterator[tuple[FindingKind, str]]:
    home = config.dataset_root(place.dataset).on(place.home)
    try:
        columns = _read(VersionRef(home=home, version=place.version), keys)
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        yield FindingKind.UNREADABLE_ROWS, f"its rows cannot be read: {err.problem}"
        return
    for key in filter(None, keys):
        yield from _check_key(key, columns.select(list(key)))


def _read(version_ref: VersionRef, keys: list[tuple[str, ...]]) -> pa.Table:
    """Read all columns, and return those of the keys."""
    schema = version_ref.schema
    names = [name for name in schema.names if any(name in key for key in keys)]
    kept = [batch.select(names) for batch in iter_batches(version_ref)]
    return pa.Table.from_batches(kept, schema=pa.schema([schema.field(name) for name in names]))


def _check_key(key: tuple[str, ...], rows: pa.Table) -> Iterator[tuple[FindingKind, str]]:
    named = ", ".join(key)
    if any(rows.column(name).null_count for name in key):
        yield FindingKind.NULL_KEYS, f"rows have no value in the primary key ({named})"
    if not staging.are_surely_unique(rows):
        repeated = len(rows) - len(rows.group_by(list(key)).aggregate([]))
        if repeated:
            yield FindingKind.DUPLICATE_KEYS, f"{repeated} rows repeat a primary key ({named})"


def _case(kind: FindingKind, states: list[tuple[Placement, str]]) -> Case:
    place, problem = states[0]
    home = "" if place.home is None else branch_folder(place.home)
    others = "" if len(states) == 1 else f"; {len(states) - 1} other states of the table have the same problem"
    finding = Finding(
        kind=kind,
        subject="/".join(filter(None, [TABLES, place.dataset, home])),
        explanation=f"version {place.version}: {problem}{others}",
        remedy=(
            "restore its files from a backup"
            if kind is FindingKind.UNREADABLE_ROWS
            else "correct the rows in a transaction, or set another primary key"
        ),
    )
    return Case(finding=finding, placements=frozenset(place for place, _ in states))
