"""Tables of a branch: what is there, made, dropped, and changed in its columns and key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.schema.types import show_type, to_arrow
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.write.homes import owns
from anabranch.server.branches import OpenBranch
from anabranch.server.buckets import Buckets
from anabranch.server.changing import Changed, Changing
from anabranch.suggestions import suggest

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.format.staging import ColumnChange

__all__ = ["ColumnInfo", "TableDetail", "TableInfo", "Tables", "checked_type", "column_infos", "find_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table as a branch has it: `source` says whether it is main's, or the branch's own."""

    bucket: str
    name: str
    source: str
    row_count: int
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDetail:
    """A table with its columns, at a commit."""

    bucket: str
    name: str
    source: str
    row_count: int
    primary_key: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    commit_id: str


class Tables:
    def __init__(self, buckets: Buckets, changing: Changing) -> None:
        self._buckets = buckets
        self._changing = changing

    def list_all(self, branch: OpenBranch, bucket: str, snapshot: Snapshot) -> list[TableInfo]:
        self._buckets.get(branch, bucket, snapshot)
        return [
            TableInfo(
                bucket=key.bucket,
                name=key.table,
                source=_source(branch, entry.home),
                row_count=entry.rows,
                primary_key=entry.primary_key,
            )
            for key, entry in sorted(snapshot.entries.items())
            if key.bucket == bucket
        ]

    def get(self, branch: OpenBranch, key: TableKey, snapshot: Snapshot) -> TableDetail:
        table = find_table(snapshot, key)
        return TableDetail(
            bucket=key.bucket,
            name=key.table,
            source=_source(branch, table.entry.home),
            row_count=table.count_rows(),
            primary_key=table.primary_key,
            columns=column_infos(table.schema),
            commit_id=snapshot.id,
        )

    def create(
        self, branch: OpenBranch, key: TableKey, schema: "pa.Schema", *, primary_key: Sequence[str]
    ) -> TableDetail:
        """Make an empty table in a bucket that is there."""
        self._buckets.get(branch, key.bucket, branch.repository.snapshot_of(branch.name))
        self._changing.apply(
            branch, lambda tx: tx.create_table(str(key), schema, primary_key=primary_key), message=f"Create {key}"
        )
        return self.get(branch, key, branch.repository.snapshot_of(branch.name))

    def drop(self, branch: OpenBranch, key: TableKey) -> None:
        """Drop a table; on a dev branch that hides main's, and nothing else."""
        self._changing.apply(branch, lambda tx: tx.drop_table(str(key)), message=f"Drop {key}")

    def add_columns(self, branch: OpenBranch, key: TableKey, columns: "pa.Schema") -> Changed[None]:
        names = ", ".join(columns.names)
        return self._changing.apply(
            branch, lambda tx: tx.add_columns(str(key), columns), message=f"Add {names} to {key}"
        )

    def alter_column(self, branch: OpenBranch, key: TableKey, change: "ColumnChange") -> Changed[None]:
        return self._changing.apply(
            branch, lambda tx: tx.alter_columns(str(key), [change]), message=f"Alter {change.path} of {key}"
        )

    def drop_column(self, branch: OpenBranch, key: TableKey, column: str) -> Changed[None]:
        return self._changing.apply(
            branch, lambda tx: tx.drop_columns(str(key), [column]), message=f"Drop {column} of {key}"
        )

    def set_primary_key(self, branch: OpenBranch, key: TableKey, columns: Sequence[str]) -> Changed[None]:
        return self._changing.apply(
            branch, lambda tx: tx.set_primary_key(str(key), columns), message=f"Set the primary key of {key}"
        )


def checked_type(text: str) -> "pa.DataType":
    """A type as people write it, whose values can be shown: in a time zone that is one."""
    import pyarrow as pa

    found = to_arrow(text)
    todo = [found]
    while todo:
        kind = todo.pop()
        todo += [kind.field(number).type for number in range(kind.num_fields)]
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            try:
                pa.scalar(0, kind).as_py()
            except (LookupError, ValueError):
                raise InvalidInputError(f"there is no time zone {kind.tz!r}", hint="use 'UTC'") from None
    return found


def find_table(snapshot: Snapshot, key: TableKey) -> Table:
    """A table of a snapshot, in words that fit a request."""
    if str(key) not in snapshot:
        hint = suggest(str(key), snapshot, "list the tables to see which exist")
        raise TableNotFoundError(f"there is no table '{key}' on this branch", hint=hint)
    return snapshot[str(key)]


def column_infos(schema: "pa.Schema") -> tuple[ColumnInfo, ...]:
    return tuple(ColumnInfo(name=field.name, type=show_type(field.type), nullable=field.nullable) for field in schema)


def _source(branch: OpenBranch, home: str | None) -> str:
    return "branch" if not branch.is_main and owns(BranchName(branch.name), home) else "main"
