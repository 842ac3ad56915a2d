"""Operations of a transaction as values: each can be applied to a real transaction, and to one of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.format.staging import ColumnChange
from tests.model.table import Row, Value

# All tables that there can be.
TABLES = ("s.a", "s.b", "t.c")

# All columns that a table can have. The name decides the type, so that columns of one name never differ in type.
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


class Below(str):
    """The SQL text for rows whose id is below a limit. The model calls it with a row."""

    limit: int

    def __new__(cls, limit: int) -> "Below":
        text = super().__new__(cls, f"id < {limit}")
        text.limit = limit
        return text

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.limit,)

    def __call__(self, row: Row) -> bool:
        value = row["id"]
        return isinstance(value, int) and value < self.limit


class Formula(str):
    """The SQL text of a value: a literal, or the id plus a number. The model calls it with a row."""

    literal: Value
    added_to_id: int | None

    def __new__(cls, literal: Value = None, added_to_id: int | None = None) -> "Formula":
        sql = "NULL" if literal is None else repr(literal)
        text = super().__new__(cls, sql if added_to_id is None else f"id + {added_to_id}")
        text.literal, text.added_to_id = literal, added_to_id
        return text

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.literal, self.added_to_id

    def __call__(self, row: Row) -> Value:
        if self.added_to_id is None:
            return self.literal
        value = row["id"]
        return value + self.added_to_id if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a transaction, the key of a table, and the other arguments. Data may be passed as a stream."""

    method: str
    key: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    as_stream: bool = False

    def do(self, tx: Any) -> None:
        arguments = [given.to_reader() for given in self.arguments] if self.as_stream else self.arguments
        getattr(tx, self.method)(self.key, *arguments, **self.options)

    def __repr__(self) -> str:
        texts = [repr(given.to_pylist() if isinstance(given, pa.Table) else given) for given in self.arguments]
        texts += [f"{name}={given!r}" for name, given in self.options.items()]
        return f"{self.method}({', '.join([repr(self.key), *texts])})"


def create(key: str, columns: Sequence[str], primary_key: Sequence[str]) -> Operation:
    return Operation("create_table", key, (schema_of(columns),), {"primary_key": primary_key})


def drop(key: str) -> Operation:
    return Operation("drop_table", key)


def rename(key: str, new: str) -> Operation:
    return Operation("rename_table", key, (new,))


def append(key: str, columns: Sequence[str], rows: Sequence[Row], *, as_stream: bool = False) -> Operation:
    return Operation("append", key, (to_arrow(columns, rows),), as_stream=as_stream)


def upsert(key: str, columns: Sequence[str], rows: Sequence[Row]) -> Operation:
    return Operation("upsert", key, (to_arrow(columns, rows),))


def overwrite(key: str, columns: Sequence[str], rows: Sequence[Row]) -> Operation:
    return Operation("overwrite", key, (to_arrow(columns, rows),))


def update(key: str, column: str, value: Formula, where: Below) -> Operation:
    return Operation("update", key, ({column: value},), {"where": where})


def delete(key: str, where: Below) -> Operation:
    return Operation("delete", key, (where,))


def add_column(key: str, column: str, value: Formula) -> Operation:
    """Add a computed column, or an empty one if the value is null."""
    return Operation("add_columns", key, ({column: value} if value != Formula() else schema_of([column]),))


def rename_column(key: str, column: str, new: str) -> Operation:
    return Operation("alter_columns", key, ([ColumnChange(path=column, name=new)],))


def drop_column(key: str, column: str) -> Operation:
    return Operation("drop_columns", key, ([column],))
