"""Operations of a transaction as values, each of which can be done to a real transaction and to the model's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from anabranch.format.staging import ColumnChange
from anabranch.repo.transaction import Transaction
from tests.model.model import ModelTransaction, Row, Value

__all__ = [
    "TYPES",
    "AddColumn",
    "Append",
    "Below",
    "Create",
    "Delete",
    "Drop",
    "DropColumn",
    "Formula",
    "Operation",
    "Overwrite",
    "Rename",
    "RenameColumn",
    "Update",
    "Upsert",
    "to_arrow",
]

# All columns there ever are; a name says its type, so that columns can come and go without types in conflict.
TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "n": pa.int64(),
    "m": pa.int64(),
    "s": pa.string(),
    "t": pa.string(),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in columns])


def to_arrow(columns: Sequence[str], rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[name] for row in rows], TYPES[name]) for name in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


@dataclass(frozen=True, slots=True)
class Below:
    """The rows whose id is below a limit."""

    limit: int

    @property
    def sql(self) -> str:
        return f"id < {self.limit}"

    def __call__(self, row: Row) -> bool:
        value = row["id"]
        return isinstance(value, int) and value < self.limit


@dataclass(frozen=True, slots=True)
class Formula:
    """A value computed from a row: a literal, or a number added to the row's id."""

    literal: Value = None
    added_to_id: int | None = None

    @property
    def sql(self) -> str:
        if self.added_to_id is not None:
            return f"id + {self.added_to_id}"
        return "NULL" if self.literal is None else repr(self.literal)

    def __call__(self, row: Row) -> Value:
        if self.added_to_id is None:
            return self.literal
        value = row["id"]
        return value + self.added_to_id if isinstance(value, int) else None


class Operation(Protocol):
    @property
    def key(self) -> str: ...

    def do(self, tx: Transaction) -> None: ...

    def do_in_model(self, tx: ModelTransaction) -> None: ...


@dataclass(frozen=True, slots=True)
class Create:
    key: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]

    def do(self, tx: Transaction) -> None:
        tx.create_table(self.key, schema_of(self.columns), primary_key=self.primary_key)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.create_table(self.key, self.columns, self.primary_key)


@dataclass(frozen=True, slots=True)
class Drop:
    key: str

    def do(self, tx: Transaction) -> None:
        tx.drop_table(self.key)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.drop_table(self.key)


@dataclass(frozen=True, slots=True)
class Rename:
    key: str
    new: str

    def do(self, tx: Transaction) -> None:
        tx.rename_table(self.key, self.new)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.rename_table(self.key, self.new)


@dataclass(frozen=True, slots=True)
class Append:
    key: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    as_stream: bool = False

    def do(self, tx: Transaction) -> None:
        data = to_arrow(self.columns, self.rows)
        tx.append(self.key, data.to_reader() if self.as_stream else data)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.append(self.key, self.columns, self.rows)


@dataclass(frozen=True, slots=True)
class Upsert:
    key: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def do(self, tx: Transaction) -> None:
        tx.upsert(self.key, to_arrow(self.columns, self.rows))

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.upsert(self.key, self.columns, self.rows)


@dataclass(frozen=True, slots=True)
class Overwrite:
    key: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def do(self, tx: Transaction) -> None:
        tx.overwrite(self.key, to_arrow(self.columns, self.rows))

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.overwrite(self.columns, self.rows))


@dataclass(frozen=True, slots=True)
class Update:
    key: str
    column: str
    value: Formula
    where: Below

    def do(self, tx: Transaction) -> None:
        tx.update(self.key, {self.column: self.value.sql}, where=self.where.sql)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.update({self.column: self.value}, self.where))


@dataclass(frozen=True, slots=True)
class Delete:
    key: str
    where: Below

    def do(self, tx: Transaction) -> None:
        tx.delete(self.key, self.where.sql)

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.delete(self.where))


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A computed column, or an empty one where the value is None."""

    key: str
    column: str
    value: Formula

    def do(self, tx: Transaction) -> None:
        is_empty = self.value == Formula()
        tx.add_columns(self.key, schema_of([self.column]) if is_empty else {self.column: self.value.sql})

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.add_column(self.column, self.value))


@dataclass(frozen=True, slots=True)
class RenameColumn:
    key: str
    column: str
    new: str

    def do(self, tx: Transaction) -> None:
        tx.alter_columns(self.key, [ColumnChange(path=self.column, name=self.new)])

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.rename_column(self.column, self.new))


@dataclass(frozen=True, slots=True)
class DropColumn:
    key: str
    column: str

    def do(self, tx: Transaction) -> None:
        tx.drop_columns(self.key, [self.column])

    def do_in_model(self, tx: ModelTransaction) -> None:
        tx.change(self.key, lambda table: table.drop_column(self.column))
