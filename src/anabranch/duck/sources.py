"""The rows behind the tables that a statement names."""

from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import pyarrow as pa

from anabranch.duck.statement import Statement, TableUse
from anabranch.duck.system_tables import SYSTEM_TABLES
from anabranch.duck.travel import SYSTEM_BUCKET
from anabranch.errors import InvalidExpressionError, TableNotFoundError
from anabranch.format.arrow_dataset import ArrowDataset
from anabranch.ids import Ref
from anabranch.repo.repository import Repository
from anabranch.repo.snapshots import Snapshot

__all__ = ["Source", "find_sources"]

# DuckDB keeps these schemas for itself.
_RESERVED = frozenset({"information_schema", "pg_catalog"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a view is made, and the rows it shows."""

    schema: str
    table: str
    rows: ArrowDataset | pa.Table = field(repr=False)


def find_sources(statement: Statement, repository: Repository, ref: str) -> list[Source]:
    """The source of each use of a table, in order; the same one for each use of the same table.

    A branch is looked up once per query, however often and in whichever form the query names it.
    """
    snapshots = _Snapshots(repository)
    found: dict[tuple[str, str, str], Source] = {}
    taken: set[tuple[str, str]] = set()
    sources: list[Source] = []
    for use in statement.tables:
        asked = use.ref or ref
        bucket, table = _identify(use, snapshots.get(asked), asked)
        identity = (asked, bucket, table)
        if identity not in found:
            schema = bucket if use.ref is None else f"{bucket} AT {use.ref}"
            while schema.lower() in _RESERVED or (schema.lower(), table.lower()) in taken:
                schema += " "  # SQL ignores case, table keys do not
            taken.add((schema.lower(), table.lower()))
            rows = _rows(bucket, table, repository, snapshots.get(asked))
            found[identity] = Source(schema=schema, table=table, rows=rows)
        sources.append(found[identity])
    return sources


class _Snapshots:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._known: dict[str, Snapshot] = {}

    def get(self, ref: str) -> Snapshot:
        known = self._known.get(ref)
        if known is None:
            parsed = Ref.parse(ref)
            # Counted from the head that the query saw: the branch may move meanwhile.
            start = replace(parsed, name=self.get(parsed.name).id) if parsed.back else parsed
            known = self._known[ref] = self._repository.snapshot_of(str(start))
        return known


def _identify(use: TableUse, snapshot: Snapshot, ref: str) -> tuple[str, str]:
    """The bucket and table meant, whose case need not be right if only one table is meant."""
    if use.bucket is None and use.table.lower() in SYSTEM_TABLES:
        return SYSTEM_BUCKET, use.table.lower()
    wanted = use.table if use.bucket is None else f"{use.bucket}.{use.table}"
    if wanted in snapshot:
        bucket, _, table = wanted.partition(".")
        return bucket, table
    like = [key for key in snapshot if key.lower() == wanted.lower()]
    if len(like) > 1:
        raise InvalidExpressionError(f"table '{wanted}' may be {' or '.join(like)}", hint="write it in the right case")
    if like:
        bucket, _, table = like[0].partition(".")
        return bucket, table
    if use.bucket == SYSTEM_BUCKET and use.table.lower() in SYSTEM_TABLES:
        return SYSTEM_BUCKET, use.table.lower()
    raise _not_found(wanted, snapshot, ref)


def _not_found(wanted: str, snapshot: Snapshot, ref: str) -> TableNotFoundError:
    close = get_close_matches(wanted, [*snapshot, *SYSTEM_TABLES], n=1)
    hint = f"did you mean {close[0]}?" if close else "SELECT * FROM tables lists those that exist"
    return TableNotFoundError(f"there is no table '{wanted}' in '{ref}'", hint=hint)


def _rows(bucket: str, table: str, repository: Repository, snapshot: Snapshot) -> ArrowDataset | pa.Table:
    key = f"{bucket}.{table}"
    if bucket == SYSTEM_BUCKET and key not in snapshot:
        return SYSTEM_TABLES[table](repository, snapshot)
    return snapshot[key].to_dataset()
