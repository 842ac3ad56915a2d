"""The rows behind the tables that a statement names."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.duck.statement import Statement, TableUse
from anabranch.duck.system_tables import SYSTEM_TABLES
from anabranch.duck.travel import SYSTEM_BUCKET
from anabranch.errors import CommitNotFoundError, InvalidExpressionError, TableNotFoundError
from anabranch.format.arrow_dataset import ArrowDataset
from anabranch.ids import Ref
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot
from anabranch.suggestions import suggest

__all__ = ["Source", "find_sources"]

# What follows the name of a table for the commits that changed its rows, or its cells. No table key has a '$'.
_BLAME, _BLAME_CELLS = "$blame", "$blame_cells"
# DuckDB keeps these schemas for itself.
_RESERVED = frozenset({"information_schema", "pg_catalog"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a view is made, and the rows it shows. The ref is that of the table itself, if the query gives one."""

    ref: str | None
    schema: str
    table: str
    rows: ArrowDataset | pa.Table = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table meant by a name: one of the repository, or one about it."""

    bucket: str
    table: str
    is_system: bool = False

    @property
    def key(self) -> str:
        return f"{self.bucket}.{self.table.partition('$')[0]}"

    @property
    def is_blame(self) -> bool:
        return self.table.endswith((_BLAME, _BLAME_CELLS))


def find_sources(
    statement: Statement,
    repository: Repository,
    ref: str,
    snapshot: Snapshot | None = None,
    *,
    replaced: Mapping[str, pa.Table],
) -> list[Source]:
    """Return the source of each use of a table, in order; the same one for each use of the same table.

    A table without a ref of its own that is in `replaced` shows those rows instead of its own.
    A branch is looked up once per query, however often and in whichever form the query names it.
    """
    snapshots = _Snapshots(repository)
    if snapshot is not None:
        snapshots.know(ref, snapshot)
    found: dict[tuple[str | None, _Target], Source] = {}
    taken: set[tuple[str | None, str, str]] = set()
    sources: list[Source] = []
    for use in statement.tables:
        asked = ref if use.ref is None else use.ref
        target = _identify(use, snapshots.get(asked), asked)
        if (use.ref, target) not in found:
            schema = target.bucket
            while schema.lower() in _RESERVED or (use.ref, schema.lower(), target.table.lower()) in taken:
                schema += " "  # SQL ignores case, table keys do not
            taken.add((use.ref, schema.lower(), target.table.lower()))
            is_own = use.ref is None and not target.is_system and not target.is_blame
            other = replaced.get(target.key) if is_own else None
            rows = _rows(target, repository, snapshots.get(asked), asked) if other is None else other
            found[use.ref, target] = Source(ref=use.ref, schema=schema, table=target.table, rows=rows)
        sources.append(found[use.ref, target])
    return sources


class _Snapshots:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._known: dict[str, Snapshot] = {}

    def know(self, ref: str, snapshot: Snapshot) -> None:
        self._known[str(Ref.parse(ref))] = snapshot

    def get(self, ref: str) -> Snapshot:
        parsed = Ref.parse(ref)
        name = str(parsed)
        if name not in self._known:
            self._known[name] = (
                self._look_back(parsed) if parsed.steps else EngineAccess(self._repository).published_snapshot_of(name)
            )
        return self._known[name]

    def _look_back(self, ref: Ref) -> Snapshot:
        """Count from the head that the query has seen: the branch may have moved since."""
        start = replace(ref, name=self.get(ref.name).id)
        try:
            return self._repository.snapshot_of(str(start))
        except CommitNotFoundError as err:
            raise CommitNotFoundError(err.problem.replace(str(start), str(ref)), hint=err.hint) from None


def _identify(use: TableUse, snapshot: Snapshot, ref: str) -> _Target:
    """The table meant; the case need not be right if there is only one it can be."""
    system = _Target(SYSTEM_BUCKET, use.table.lower(), is_system=True)
    if use.bucket is None and system.table in SYSTEM_TABLES:
        return system
    name, dollar, suffix = use.table.partition("$")
    if dollar and f"${suffix.lower()}" in (_BLAME, _BLAME_CELLS):
        blamed = _identify(replace(use, table=name), snapshot, ref)
        if not blamed.is_system:
            return replace(blamed, table=f"{blamed.table}${suffix.lower()}")
    wanted = use.table if use.bucket is None else f"{use.bucket}.{use.table}"
    like = [wanted] if wanted in snapshot else [key for key in snapshot if key.lower() == wanted.lower()]
    if len(like) > 1:
        raise InvalidExpressionError(f"table '{wanted}' may be {' or '.join(like)}", hint="write it in the right case")
    if like:
        bucket, _, table = like[0].partition(".")
        return _Target(bucket, table)
    if use.bucket is not None and use.bucket.lower() == SYSTEM_BUCKET and system.table in SYSTEM_TABLES:
        return system
    raise _not_found(wanted, snapshot, ref)


def _not_found(wanted: str, snapshot: Snapshot, ref: str) -> TableNotFoundError:
    hint = suggest(wanted, [*snapshot, *SYSTEM_TABLES], "SELECT * FROM tables lists those that exist")
    return TableNotFoundError(f"there is no table '{wanted}' in '{ref}'", hint=hint)


def _rows(target: _Target, repository: Repository, snapshot: Snapshot, ref: str) -> ArrowDataset | pa.Table:
    if target.is_system:
        return SYSTEM_TABLES[target.table](repository, snapshot)
    if target.is_blame:
        # A commit of a live branch does not show the tables of main that the branch shows now.
        at = ref if snapshot.main_commit_id is not None else snapshot.id
        return repository.blame(target.key, ref=at, cells=target.table.endswith(_BLAME_CELLS))
    return ArrowDataset(snapshot[target.key].version_ref, sorts_nan=True)
