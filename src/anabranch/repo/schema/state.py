"""A schema as a value: which tables there are to be, with which columns, keys and indices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.format.staging import IndexKind, VectorOptions
from anabranch.ids import TableKey
from anabranch.repo.schema.types import to_arrow

__all__ = ["Column", "Index", "SchemaState", "TableSchema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `type` in its one spelling. `default` is an SQL expression; `was` an earlier name."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    description: str | None = None
    was: str | None = field(default=None, compare=False)

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, to_arrow(self.type), nullable=self.nullable)

    @property
    def summary(self) -> str:
        """The column in one line."""
        parts = [self.type]
        if not self.nullable:
            parts.append("not null")
        if self.default is not None:
            parts.append(f"default {self.default}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One index. None leaves a setting to Lance, and the name to us."""

    column: str
    kind: IndexKind = IndexKind.BTREE
    name: str | None = None
    metric: str | None = None
    num_partitions: int | None = None
    num_sub_vectors: int | None = None

    @property
    def chosen_name(self) -> str:
        return self.name or f"{self.column}_idx"

    @property
    def vector(self) -> VectorOptions | None:
        if not self.kind.is_vector:
            return None
        return VectorOptions(
            metric=self.metric or VectorOptions().metric,
            num_partitions=self.num_partitions,
            num_sub_vectors=self.num_sub_vectors,
        )

    def asks_for(self, found: "Index") -> bool:
        """Whether another index is what this one asks for, in all that it says."""
        if (self.column, self.kind) != (found.column, found.kind):
            return False
        wanted = (self.name, self.metric, self.num_partitions, self.num_sub_vectors)
        there = (found.chosen_name, found.metric, found.num_partitions, found.num_sub_vectors)
        return all(value is None or value == other for value, other in zip(wanted, there, strict=True))

    @property
    def summary(self) -> str:
        """The index in one line."""
        settings = [self.kind.value]
        if self.metric is not None:
            settings.append(self.metric)
        if self.name not in {None, f"{self.column}_idx"}:
            settings.append(f"named {self.name}")
        return f"{self.column} ({', '.join(settings)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table. `was` is an earlier name."""

    key: TableKey
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indices: tuple[Index, ...] = ()
    description: str | None = None
    was: TableKey | None = field(default=None, compare=False)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([column.arrow for column in self.columns])

    @property
    def plannable(self) -> pa.Schema:
        """The columns for whoever only asks what could be done with them.

        Null stands for a type that only its own library can make.
        """
        return pa.schema([pa.field(c.name, pa.null()) if "extension<" in c.type else c.arrow for c in self.columns])

    def find_column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The tables of some buckets, all of them; other buckets are not spoken of."""

    buckets: tuple[str, ...]
    tables: tuple[TableSchema, ...]

    @classmethod
    def of(cls, tables: Iterable[TableSchema], *, buckets: Iterable[str] = ()) -> "SchemaState":
        found = tuple(sorted(tables, key=lambda table: table.key))
        return cls(buckets=tuple(sorted({*buckets, *(table.key.bucket for table in found)})), tables=found)

    @property
    def by_key(self) -> Mapping[TableKey, TableSchema]:
        return {table.key: table for table in self.tables}

    def __getitem__(self, key: str) -> TableSchema:
        return self.by_key[TableKey.parse(key)]

    def to_dict(self) -> dict[str, Any]:
        """The plain values that a schema is read from."""
        from anabranch.repo.schema.rendering import schema_document

        return schema_document(self)

    def to_yaml(self) -> str:
        """The text that a schema is read from."""
        from anabranch.repo.schema.rendering import schema_yaml

        return schema_yaml(self)
