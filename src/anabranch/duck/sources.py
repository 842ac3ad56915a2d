"""The rows of the tables that a statement names: tables of the repository, and system tables about it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from anabranch.duck.statement import SYSTEM_BUCKET, Statement, TableUse
from anabranch.errors import CommitNotFoundError, InvalidExpressionError, TableNotFoundError
from anabranch.files.formats import format_of_name
from anabranch.format.arguments import unknown_table
from anabranch.format.scan import ArrowDataset
from anabranch.ids import Ref
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot

_TEXTS, _TIME = pa.list_(pa.string()), pa.timestamp("us", tz="UTC")
# The columns of system tables that are not texts.
_TYPES = {
    "created_at": _TIME,
    "expires_at": _TIME,
    "metadata": pa.map_(pa.string(), pa.string()),
    "primary_key": _TEXTS,
    "row_count": pa.int64(),
    "tables": _TEXTS,
    "version": pa.int64(),
}


def _schema(names: str) -> pa.Schema:
    return pa.schema([(name, _TYPES.get(name, pa.string())) for name in names.split()])


_BRANCHES = _schema(
    "name mode parent parent_commit_id head_commit_id version created_at created_by description expires_at"
)
_TABLES = _schema("table_key bucket name row_count primary_key dataset home lance_version")
_BRANCH_TABLES = pa.schema([("branch", pa.string()), *_TABLES])
_COMMITS = _schema(
    "commit_id branch version parent_commit_id merged_parent_commit_id actor created_at message kind metadata tables"
)
_TAGS = _schema("name commit_id created_at created_by description")
_REFS = _schema("name kind commit_id")


def _branches(repository: Repository, _: Snapshot) -> pa.Table:
    """Return the branches without internal ones."""
    return _table_of(_BRANCHES, repository.branch_list())


def _tables(_: Repository, snapshot: Snapshot) -> pa.Table:
    """Return the tables of the ref."""
    return pa.Table.from_pylist(_rows_of(snapshot), _TABLES)


def _branch_tables(repository: Repository, _: Snapshot) -> pa.Table:
    """Return the tables that a branch has created or changed, so that it has its own state of them."""
    rows: list[dict[str, Any]] = []
    for info in repository.branch_list():
        known, written = _rows_of(repository.snapshot_of(info.name)), EngineAccess(repository).list_written(info.name)
        rows += ({"branch": info.name, **row} for row in known if row["table_key"] in written)
    return pa.Table.from_pylist(rows, _BRANCH_TABLES)


def _rows_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "table_key": str(key),
            "bucket": key.bucket,
            "name": key.table,
            "row_count": entry.rows,
            "primary_key": entry.primary_key,
            "dataset": entry.dataset,
            "home": entry.home,
            "lance_version": str(entry.version),
        }
        for key, entry in sorted(snapshot.entries.items())
    ]


def _commits(_: Repository, snapshot: Snapshot) -> pa.Table:
    """Return the commits in the history of the ref, newest first."""
    return _table_of(_COMMITS, snapshot.iter_commits(), commit_id="id", version="manifest_version", actor="actor_id")


def _tags(repository: Repository, _: Snapshot) -> pa.Table:
    return _table_of(_TAGS, repository.tag_list())


def _refs(repository: Repository, _: Snapshot) -> pa.Table:
    """Return branches and tags."""
    heads = [(info.name, "branch", info.head_commit_id) for info in repository.branch_list()]
    marks = [(info.name, "tag", info.commit_id) for info in repository.tag_list()]
    return pa.Table.from_pylist([dict(zip(_REFS.names, row, strict=True)) for row in [*heads, *marks]], _REFS)


def _table_of(schema: pa.Schema, values: Iterable[object], **attributes: str) -> pa.Table:
    """Return a row for each value. A column is the attribute of its name, or of the name given for it."""
    rows = [{name: getattr(value, attributes.get(name, name)) for name in schema.names} for value in values]
    for row in rows:
        # Arrow makes a map only from pairs.
        row.update({name: [*found.items()] for name, found in row.items() if isinstance(found, Mapping)})
    return pa.Table.from_pylist(rows, schema)


SYSTEM_TABLES: Mapping[str, Callable[[Repository, Snapshot], pa.Table]] = MappingProxyType(
    {
        "branch_tables": _branch_tables,
        "branches": _branches,
        "commits": _commits,
        "refs": _refs,
        "tables": _tables,
        "tags": _tags,
    }
)


# The suffixes of a table name for the commits that changed its rows or cells. No table key has a '$'.
_BLAME, _BLAME_CELLS = "$blame", "$blame_cells"
# Schemas that DuckDB reserves.
_RESERVED = frozenset({"information_schema", "pg_catalog"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The position of a view, and its rows. The ref is that of the table itself, if the query names one."""

    ref: str | None
    schema: str
    table: str
    rows: ArrowDataset | pa.Table = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table of a name: of the repository, or a system table."""

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
    """Return the source of each use of a table, in order. Uses of the same table have the same source.

    A table without a ref of its own that is in `replaced` shows those rows instead of its own.
    A branch is read once per query, even if the query names it several times in different forms.
    """
    snapshots = _Snapshots(repository, {} if snapshot is None else {str(Ref.parse(ref)): snapshot})
    found: dict[tuple[str | None, _Target], Source] = {}
    taken: set[tuple[str | None, str, str]] = set()
    sources: list[Source] = []
    for use in statement.tables:
        asked = ref if use.ref is None else use.ref
        target = _identify(use, snapshots.get(asked), asked)
        if (use.ref, target) not in found:
            schema = _unused_schema(use.ref, target, taken)
            taken.add((use.ref, schema.lower(), target.table.lower()))
            # Only the plain name of a table is replaced. Its state at another ref and its history are not.
            is_own = use.ref is None and not target.is_system and not target.is_blame
            other = replaced.get(target.key) if is_own else None
            rows = _rows(target, repository, snapshots.get(asked), asked) if other is None else other
            found[use.ref, target] = Source(ref=use.ref, schema=schema, table=target.table, rows=rows)
        sources.append(found[use.ref, target])
    return sources


def _unused_schema(ref: str | None, target: _Target, taken: Collection[tuple[str | None, str, str]]) -> str:
    """Return a schema for a view, in which no other view has its name. SQL ignores case, table keys do not."""
    schema = target.bucket
    while schema.lower() in _RESERVED or (ref, schema.lower(), target.table.lower()) in taken:
        schema += " "
    return schema


class _Snapshots:
    """The snapshots of the refs that a query names. Each ref is read once."""

    def __init__(self, repository: Repository, known: dict[str, Snapshot]) -> None:
        self._repository = repository
        self._known = known

    def get(self, ref: str) -> Snapshot:
        parsed = Ref.parse(ref)
        name = str(parsed)
        if name not in self._known:
            self._known[name] = (
                self._look_back(parsed) if parsed.steps else EngineAccess(self._repository).published_snapshot_of(name)
            )
        return self._known[name]

    def _look_back(self, ref: Ref) -> Snapshot:
        """Count from the head that the query has read: the branch may have moved since."""
        start = replace(ref, name=self.get(ref.name).id)
        try:
            return self._repository.snapshot_of(str(start))
        except CommitNotFoundError as err:
            raise CommitNotFoundError(err.problem.replace(str(start), str(ref)), hint=err.hint) from None


def _identify(use: TableUse, snapshot: Snapshot, ref: str) -> _Target:
    """Return the table of a name, or of its history."""
    name, dollar, suffix = use.table.partition("$")
    if dollar + suffix.lower() in (_BLAME, _BLAME_CELLS):
        blamed = _identify(replace(use, table=name), snapshot, ref)
        if not blamed.is_system:
            return replace(blamed, table=blamed.table + dollar + suffix.lower())
    system = _Target(SYSTEM_BUCKET, use.table.lower(), is_system=True)
    # A name without a bucket can only be a system table, because tables have two parts.
    if use.bucket is None:
        if system.table in SYSTEM_TABLES:
            return system
        raise _not_found(use.table, snapshot, ref)
    wanted = f"{use.bucket}.{use.table}"
    key = _find_key(wanted, snapshot)
    if key is not None:
        bucket, _, table = key.partition(".")
        return _Target(bucket, table)
    if use.bucket.lower() == SYSTEM_BUCKET and system.table in SYSTEM_TABLES:
        return system
    raise _not_found(wanted, snapshot, ref)


def _find_key(wanted: str, snapshot: Snapshot) -> str | None:
    """Return the key of a table. Case matters only if several tables differ in case alone."""
    # The exact name has precedence, so that tables whose names differ only in case can both be read.
    if wanted in snapshot:
        return wanted
    like = [key for key in snapshot if key.lower() == wanted.lower()]
    if len(like) > 1:
        raise InvalidExpressionError(f"table '{wanted}' may be {' or '.join(like)}", hint="write it in the right case")
    return like[0] if like else None


def _not_found(wanted: str, snapshot: Snapshot, ref: str) -> TableNotFoundError:
    if "/" in wanted or format_of_name(wanted)[0] is not None:
        hint = "SQL reads only tables of the repository: load the file into one with `load()`"
        return unknown_table(wanted, f"in '{ref}'", (), hint)
    known = [*snapshot, *SYSTEM_TABLES]
    return unknown_table(wanted, f"in '{ref}'", known, "SELECT * FROM tables lists those that exist")


def _rows(target: _Target, repository: Repository, snapshot: Snapshot, ref: str) -> ArrowDataset | pa.Table:
    if target.is_system:
        return SYSTEM_TABLES[target.table](repository, snapshot)
    if target.is_blame:
        # A commit of a live branch does not show the tables of main that the branch shows now.
        at = ref if snapshot.main_commit_id is not None else snapshot.id
        return repository.blame(target.key, ref=at, cells=target.table.endswith(_BLAME_CELLS))
    return ArrowDataset(snapshot[target.key].version_ref, sorts_nan=True)
