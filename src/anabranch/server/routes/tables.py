"""Tables, their columns and keys."""

from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import InvalidInputError
from anabranch.format.staging import ColumnChange
from anabranch.ids import TableKey
from anabranch.server.reading import snapshot_at
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
from anabranch.server.tables import TableDetail, TableInfo, checked_type

__all__ = ["NewColumn", "router"]

router = make_router("tables", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables")

_Name = Annotated[str, Field(min_length=1, max_length=256, examples=["amount"])]
_Type = Annotated[str, Field(min_length=1, max_length=1000, examples=["int64", "string", "decimal(10, 2)"])]


class NewColumn(Body):
    name: _Name
    type: _Type
    nullable: bool = True

    def to_arrow(self) -> pa.Field:
        return pa.field(self.name, checked_type(self.type), nullable=self.nullable)


class NewTable(Body):
    """A table to be made, without rows."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "orders",
                    "columns": [{"name": "id", "type": "int64"}, {"name": "amount", "type": "decimal(10, 2)"}],
                    "primary_key": ["id"],
                }
            ]
        }
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=128, examples=["orders"])]
    columns: Annotated[list[NewColumn], Field(min_length=1, max_length=2000)]
    primary_key: Annotated[list[_Name], Field(max_length=32, default_factory=list)]


class TableList(BaseModel):
    tables: list[TableInfo]


class NewColumns(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"columns": [{"name": "note", "type": "string"}]}]})

    columns: Annotated[list[NewColumn], Field(min_length=1, max_length=2000)]


class ColumnEdit(Body):
    """What becomes of a column; what is left out stays."""

    name: _Name | None = None
    type: _Type | None = None
    nullable: bool | None = None


class PrimaryKey(Body):
    """The columns of the key; none of them for no key."""

    columns: Annotated[list[_Name], Field(max_length=32, examples=[["id"]])]


@router.post("", status_code=201)
def create_table(call: BranchToChange, bucket: BucketName, body: NewTable) -> TableDetail:
    """Make an empty table; on a dev branch, only there."""
    schema = pa.schema([column.to_arrow() for column in body.columns])
    key = TableKey(bucket, body.name)
    return call.service.tables.create(call.open(), key, schema, primary_key=body.primary_key)


@router.get("")
def list_tables(call: BranchToRead, bucket: BucketName, ref: RefQuery = None) -> TableList:
    """The tables of a bucket, each with its source: main, live, or the branch."""
    branch = call.open()
    return TableList(tables=call.service.tables.list_all(branch, bucket, snapshot_at(branch, ref)))


@router.get("/{table}")
def get_table(call: BranchToRead, bucket: BucketName, table: TableName, ref: RefQuery = None) -> TableDetail:
    """A table with its columns."""
    branch = call.open()
    return call.service.tables.get(branch, TableKey(bucket, table), snapshot_at(branch, ref))


@router.delete("/{table}", status_code=204)
def drop_table(call: BranchToChange, bucket: BucketName, table: TableName) -> None:
    """Drop a table; on a dev branch main's is hidden, and nothing else."""
    call.service.tables.drop(call.open(), TableKey(bucket, table))


@router.post("/{table}/columns", status_code=201)
def add_columns(call: BranchToChange, bucket: BucketName, table: TableName, body: NewColumns) -> TableDetail:
    """Add columns without values."""
    branch, key = call.open(), TableKey(bucket, table)
    call.service.tables.add_columns(branch, key, pa.schema([column.to_arrow() for column in body.columns]))
    return call.service.tables.get(branch, key, snapshot_at(branch, None))


@router.patch("/{table}/columns/{column}")
def alter_column(
    call: BranchToChange, bucket: BucketName, table: TableName, column: ColumnName, body: ColumnEdit
) -> TableDetail:
    """Rename a column, change its type, or whether it may be null."""
    if body == ColumnEdit():
        raise InvalidInputError(f"nothing is said about column {column!r}", hint="give a name, type or nullable")
    branch, key = call.open(), TableKey(bucket, table)
    kind = None if body.type is None else checked_type(body.type)
    change = ColumnChange(path=column, name=body.name, type=kind, nullable=body.nullable)
    call.service.tables.alter_column(branch, key, change)
    return call.service.tables.get(branch, key, snapshot_at(branch, None))


@router.delete("/{table}/columns/{column}", status_code=204)
def drop_column(call: BranchToChange, bucket: BucketName, table: TableName, column: ColumnName) -> None:
    """Drop a column and its values."""
    call.service.tables.drop_column(call.open(), TableKey(bucket, table), column)


@router.put("/{table}/primary-key")
def set_primary_key(call: BranchToChange, bucket: BucketName, table: TableName, body: PrimaryKey) -> TableDetail:
    """Make columns the primary key; refused where rows have nulls in them, or repeat one."""
    branch, key = call.open(), TableKey(bucket, table)
    call.service.tables.set_primary_key(branch, key, body.columns)
    return call.service.tables.get(branch, key, snapshot_at(branch, None))
