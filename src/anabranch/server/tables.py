"""Tables of a branch, their columns and primary keys."""

from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, Field

from anabranch.column_types import show_type, to_arrow
from anabranch.errors import InvalidInputError
from anabranch.format.arguments import unknown_table
from anabranch.format.staging import ColumnChange
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.transaction import Transaction
from anabranch.server.branch_access import OpenBranch
from anabranch.server.buckets import Buckets
from anabranch.server.envelope import with_example
from anabranch.server.routing import (
    Body,
    BranchToChange,
    BranchToRead,
    BucketName,
    ColumnName,
    RefQuery,
    TableName,
    make_router,
)

router = make_router("tables", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables")

_Name = Annotated[str, Field(min_length=1, max_length=256, examples=["amount"])]
_Type = Annotated[str, Field(min_length=1, max_length=1000, examples=["int64", "string", "decimal(10, 2)"])]


class ColumnInfo(BaseModel, from_attributes=True):
    """A column, with its Arrow type."""

    name: str
    type: Annotated[str, BeforeValidator(show_type)]
    nullable: bool


class TableInfo(BaseModel):
    """A table of a branch. `source` is `main`, or `branch` if the branch has its own copy."""

    bucket: str
    name: str
    source: str
    row_count: int
    primary_key: tuple[str, ...]


class TableDetail(TableInfo):
    """A table with its columns, at a commit."""

    columns: tuple[ColumnInfo, ...]
    commit_id: str


class TableList(BaseModel):
    tables: list[TableInfo]


class NewColumn(Body):
    name: _Name
    type: _Type
    nullable: bool = True

    def to_arrow(self) -> pa.Field:
        return pa.field(self.name, _parse_type(self.type), nullable=self.nullable)


class NewTable(Body):
    """A table to create, without rows."""

    model_config = with_example(
        name="orders",
        columns=[{"name": "id", "type": "int64"}, {"name": "amount", "type": "decimal(10, 2)"}],
        primary_key=["id"],
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=128, examples=["orders"])]
    columns: Annotated[list[NewColumn], Field(min_length=1, max_length=2000)]
    primary_key: Annotated[list[_Name], Field(max_length=32, default_factory=list)]


class NewColumns(Body):
    model_config = with_example(columns=[{"name": "note", "type": "string"}])

    columns: Annotated[list[NewColumn], Field(min_length=1, max_length=2000)]


class ColumnEdit(Body):
    """Changes of a column. What is omitted stays as it is."""

    name: _Name | None = None
    type: _Type | None = None
    nullable: bool | None = None


class PrimaryKey(Body):
    """The columns of the primary key. An empty list removes the key."""

    columns: Annotated[list[_Name], Field(max_length=32, examples=[["id"]])]


@router.post("", status_code=201)
def create_table(call: BranchToChange, bucket: BucketName, body: NewTable) -> TableDetail:
    """Create an empty table. On a dev branch, it exists only there."""
    branch, key = call.open(), TableKey(bucket, body.name)
    schema = pa.schema([column.to_arrow() for column in body.columns])
    # Raises for an unknown bucket: the repository itself would create a misspelled one with the table.
    call.part(Buckets).get(branch, bucket, branch.snapshot())
    return _change(
        branch, key, lambda tx: tx.create_table(str(key), schema, primary_key=body.primary_key), message=f"Create {key}"
    )


@router.get("")
def list_tables(call: BranchToRead, bucket: BucketName, ref: RefQuery = None) -> TableList:
    """List the tables of a bucket, each with its source: main, or the branch."""
    branch = call.open()
    snapshot = branch.snapshot(ref)
    call.part(Buckets).get(branch, bucket, snapshot)
    found = [(key, entry) for key, entry in sorted(snapshot.entries.items()) if key.bucket == bucket]
    return TableList(tables=[TableInfo(**_facts(branch, key, entry)) for key, entry in found])


@router.get("/{table}")
def get_table(call: BranchToRead, bucket: BucketName, table: TableName, ref: RefQuery = None) -> TableDetail:
    """Return a table with its columns."""
    branch = call.open()
    return _detail(branch, TableKey(bucket, table), branch.snapshot(ref))


@router.delete("/{table}", status_code=204)
def drop_table(call: BranchToChange, bucket: BucketName, table: TableName) -> None:
    """Drop a table. On a dev branch, main keeps its table."""
    key = TableKey(bucket, table)
    call.open().change(lambda tx: tx.drop_table(str(key)), message=f"Drop {key}")


@router.post("/{table}/columns", status_code=201)
def add_columns(call: BranchToChange, bucket: BucketName, table: TableName, body: NewColumns) -> TableDetail:
    """Add columns without values."""
    key, columns = TableKey(bucket, table), pa.schema([column.to_arrow() for column in body.columns])
    message = f"Add {', '.join(columns.names)} to {key}"
    return _change(call.open(), key, lambda tx: tx.add_columns(str(key), columns), message=message)


@router.patch("/{table}/columns/{column}")
def alter_column(
    call: BranchToChange, bucket: BucketName, table: TableName, column: ColumnName, body: ColumnEdit
) -> TableDetail:
    """Rename a column, change its type, or change whether it may be null."""
    if body == ColumnEdit():
        raise InvalidInputError(f"the body has no change of column {column!r}", hint="give a name, a type or nullable")
    key, kind = TableKey(bucket, table), None if body.type is None else _parse_type(body.type)
    change = ColumnChange(path=column, name=body.name, type=kind, nullable=body.nullable)
    message = f"Alter {column} of {key}"
    return _change(call.open(), key, lambda tx: tx.alter_columns(str(key), [change]), message=message)


@router.delete("/{table}/columns/{column}", status_code=204)
def drop_column(call: BranchToChange, bucket: BucketName, table: TableName, column: ColumnName) -> None:
    """Drop a column and its values."""
    key = TableKey(bucket, table)
    call.open().change(lambda tx: tx.drop_columns(str(key), [column]), message=f"Drop {column} of {key}")


@router.put("/{table}/primary-key")
def set_primary_key(call: BranchToChange, bucket: BucketName, table: TableName, body: PrimaryKey) -> TableDetail:
    """Set the primary key. Refused if the columns have nulls or repeated values."""
    key = TableKey(bucket, table)
    message = f"Set the primary key of {key}"
    return _change(call.open(), key, lambda tx: tx.set_primary_key(str(key), body.columns), message=message)


def find_table(snapshot: Snapshot, key: TableKey) -> Table:
    """Return a table of a snapshot, or raise TableNotFoundError."""
    if str(key) not in snapshot:
        raise unknown_table(key, "on this branch", snapshot, "list the tables to see which exist")
    return snapshot[str(key)]


def _change(branch: OpenBranch, key: TableKey, change: Callable[[Transaction], Any], *, message: str) -> TableDetail:
    """Commit a change of a table and return the table as it is then."""
    branch.change(change, message=message)
    return _detail(branch, key, branch.snapshot())


def _detail(branch: OpenBranch, key: TableKey, snapshot: Snapshot) -> TableDetail:
    table = find_table(snapshot, key)
    return TableDetail(**_facts(branch, key, table.entry), columns=tuple(table.schema), commit_id=snapshot.id)


def _facts(branch: OpenBranch, key: TableKey, entry: TableEntry) -> dict[str, Any]:
    """Return the fields of `TableInfo`, which lists of tables and single tables have in common."""
    is_own = not branch.is_main and owns(BranchName(branch.name), entry.home)
    return {
        "bucket": key.bucket,
        "name": key.table,
        "source": "branch" if is_own else "main",
        "row_count": entry.rows,
        "primary_key": entry.primary_key,
    }


def _parse_type(text: str) -> pa.DataType:
    """Return the Arrow type with a name. Raise InvalidInputError for a time zone that does not exist.

    Arrow accepts any time zone in a type, and fails when a value is shown.
    """
    found = to_arrow(text)
    # The time zone may be that of a field inside a list or a struct.
    todo = [found]
    while todo:
        kind = todo.pop()
        todo += [kind.field(number).type for number in range(kind.num_fields)]
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            try:
                # Only the conversion to a Python value searches for the time zone.
                pa.scalar(0, kind).as_py()
            except (LookupError, ValueError):
                raise InvalidInputError(f"there is no time zone {kind.tz!r}", hint="use 'UTC'") from None
    return found
