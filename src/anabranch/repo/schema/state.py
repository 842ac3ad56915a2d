"""A schema as a value: tables with columns, keys and indices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.format.staging import IndexKind, VectorOptions
from anabranch.ids import TableKey
from anabranch.repo.schema.types import to_arrow

__all__ = ["Column", "Index", "SchemaState", "TableSchema", "satisfies"]

# Longer than any line, so that YAML does not break a type or an expression over two.
_WIDTH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `type` is in canonical spelling, `default` is an SQL expression, `was` an earlier name."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    description: str | None = None
    was: str | None = field(default=None, compare=False)

    @property
    def arrow(self) -> pa.Field:
        """The column as an Arrow field."""
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
    """One index. A setting that is None is chosen by the table. If the name is None, it is derived from the column."""

    column: str
    kind: IndexKind = IndexKind.BTREE
    name: str | None = None
    metric: str | None = None
    num_partitions: int | None = None
    num_sub_vectors: int | None = None

    @property
    def chosen_name(self) -> str:
        """The name of the index, or the one that it gets by default."""
        return self.name or f"{self.column}_idx"

    @property
    def vector(self) -> VectorOptions | None:
        """The options of a vector index. None for other kinds."""
        if not self.kind.is_vector:
            return None
        return VectorOptions(
            metric=self.metric or VectorOptions().metric,
            num_partitions=self.num_partitions,
            num_sub_vectors=self.num_sub_vectors,
        )

    @property
    def summary(self) -> str:
        """The index in one line."""
        settings = [self.kind.value]
        if self.metric is not None:
            settings.append(self.metric)
        if self.name not in {None, f"{self.column}_idx"}:
            settings.append(f"named {self.name}")
        return f"{self.column} ({', '.join(settings)})"


def satisfies(found: Index, index_spec: Index) -> bool:
    """Return whether an index has all settings of a declared one that are not None."""
    if (index_spec.column, index_spec.kind) != (found.column, found.kind):
        return False
    declared = (index_spec.name, index_spec.metric, index_spec.num_partitions, index_spec.num_sub_vectors)
    actual = (found.chosen_name, found.metric, found.num_partitions, found.num_sub_vectors)
    return all(value is None or value == other for value, other in zip(declared, actual, strict=True))


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
        """The columns as an Arrow schema."""
        return pa.schema([column.arrow for column in self.columns])

    def find_column(self, name: str) -> Column | None:
        """Return a column by its name, or None."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """All tables of some buckets. Other buckets are not part of it."""

    buckets: tuple[str, ...]
    tables: tuple[TableSchema, ...]

    @classmethod
    def of(cls, tables: Iterable[TableSchema], *, buckets: Iterable[str] = ()) -> "SchemaState":
        found = tuple(sorted(tables, key=lambda table: table.key))
        return cls(buckets=tuple(sorted({*buckets, *(table.key.bucket for table in found)})), tables=found)

    @property
    def by_key(self) -> Mapping[TableKey, TableSchema]:
        """The tables by their keys."""
        return {table.key: table for table in self.tables}

    def __getitem__(self, key: str) -> TableSchema:
        return self.by_key[TableKey.parse(key)]

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values, as `Repository.schema_plan` takes them."""
        return _to_document(self)

    def to_yaml(self) -> str:
        """Return the schema as YAML, as `Repository.schema_plan` takes it."""
        return _to_yaml(self)


def _to_yaml(state: SchemaState) -> str:
    import yaml  # only schemas need it

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Write a repeated value again instead of as an alias."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature of the base
            return True

    def in_one_line(dumper: Any, data: list[Any]) -> Any:
        is_plain = all(isinstance(item, str) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=is_plain)

    Dumper.add_representer(list, in_one_line)
    document = _to_document(state)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


def _to_document(state: SchemaState) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {bucket: {} for bucket in state.buckets}
    for table in state.tables:
        tables[table.key.bucket][table.key.table] = _table_document(table)
    return {"tables": tables}


def _table_document(table: TableSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if table.was is not None:
        found["was"] = table.was.table if table.was.bucket == table.key.bucket else str(table.was)
    if table.description is not None:
        found["description"] = table.description
    if table.primary_key:
        found["primary_key"] = list(table.primary_key)
    found["columns"] = {column.name: _column_document(column) for column in table.columns}
    if table.indices:
        found["indices"] = [_index_document(index) for index in table.indices]
    return found


def _column_document(column: Column) -> str | dict[str, Any]:
    given = {"was": column.was, "default": column.default, "description": column.description}
    more = {name: text for name, text in given.items() if text is not None}
    if not more:
        return column.type if column.nullable else f"{column.type} not null"
    return {"type": column.type, **({} if column.nullable else {"nullable": False}), **more}


def _index_document(index: Index) -> str | dict[str, Any]:
    found: dict[str, Any] = {"column": index.column, "type": index.kind.value}
    if index.chosen_name != f"{index.column}_idx":
        found["name"] = index.name
    for name in ("metric", "num_partitions", "num_sub_vectors"):
        value = getattr(index, name)
        if value is not None:
            found[name] = value
    return found
