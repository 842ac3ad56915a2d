"""A schema as a value: tables with columns, keys, indices and notes. Read it from a snapshot or a transaction."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from anabranch.column_types import show_type, to_arrow
from anabranch.errors import CorruptError, InvalidInputError
from anabranch.format.staging import DEFAULT, DESCRIPTION, IndexKind, VectorOptions, VersionRef, list_indices
from anabranch.ids import TableKey
from anabranch.repo.snapshot import Table
from anabranch.storage.requests import in_parallel

# Longer than any line, so that YAML does not break a type or an expression over two.
_WIDTH = 10_000
# The settings of an index that a document may leave out.
_SETTINGS = ("name", "metric", "num_partitions", "num_sub_vectors")
# The prefixes of the column types that an index supports, and their description.
_LISTS, _TEXT = ("list<", "large_list<"), ("string", "large_string")
_VECTORS = (("vector(", "fixed_size_list<"), "vectors, such as vector(128)")
_NEEDS = {
    **{kind: _VECTORS for kind in IndexKind if kind.is_vector},
    IndexKind.LABEL_LIST: (_LISTS, "lists"),
    IndexKind.NGRAM: (_TEXT, "text"),
    IndexKind.INVERTED: ((*_TEXT, *(lists + text for lists in _LISTS for text in _TEXT)), "text, or lists of text"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `type` is in canonical spelling, `default` is an SQL expression, `was` an earlier name."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    description: str | None = None
    # Not compared: a rename that was done leaves `was` in the document.
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
    def given(self) -> dict[str, Any]:
        """The settings that are not None."""
        return {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}

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


def check_index(index: Index, column: Column) -> None:
    """Raise InvalidInputError for an index that Lance cannot build.

    Without rows it is not built yet, so Lance would not report it.
    """
    kind = index.kind
    prefixes, needed = _NEEDS.get(kind, (("",), ""))
    # The storage of an extension type is not known here, so Lance decides when it builds the index.
    if not column.type.startswith((*prefixes, "extension<")):
        problem = f"an index of type {kind.value} needs {needed}, but column {column.name!r} is {column.type}"
        raise InvalidInputError(problem, hint="use another column, or another type of index")
    sizes = (index.num_partitions, index.num_sub_vectors)
    if not kind.is_vector:
        if sizes != (None, None):
            raise InvalidInputError(f"an index of type {kind.value} has no partitions", hint="leave them out")
        return
    if kind.value.endswith("_pq") and None in sizes:
        hint = "add both, such as 16 and 8"
        raise InvalidInputError(f"an index of type {kind.value} needs num_partitions and num_sub_vectors", hint=hint)
    if index.num_sub_vectors is not None and not column.type.startswith("extension<"):
        size = column.arrow.type.list_size
        if size % index.num_sub_vectors:
            raise InvalidInputError(
                f"vectors of {size} dimensions cannot be split into {index.num_sub_vectors} sub-vectors",
                hint="use a num_sub_vectors that divides the number of dimensions",
            )


def checkable(columns: Iterable[Column]) -> pa.Schema:
    """Return columns for a check that needs no values.

    An extension type of another library cannot be built here, so null is used instead. It cannot be a key either.
    """
    return pa.schema([pa.field(each.name, pa.null()) if "extension<" in each.type else each.arrow for each in columns])


def satisfies(found: Index, index_spec: Index) -> bool:
    """Return whether an index has all settings of a declared one that are not None."""
    if (index_spec.column, index_spec.kind) != (found.column, found.kind):
        return False
    actual = replace(found, name=found.chosen_name)
    return all(value == getattr(actual, name) for name, value in index_spec.given.items())


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
        tables: dict[str, dict[str, Any]] = {bucket: {} for bucket in self.buckets}
        for table in self.tables:
            tables[table.key.bucket][table.key.table] = _table_document(table)
        return {"tables": tables}

    def to_yaml(self) -> str:
        """Return the schema as YAML, as `Repository.schema_plan` takes it."""
        import yaml  # only schemas need it

        class Dumper(yaml.SafeDumper):  # type: ignore[misc]
            """Write a repeated value again instead of as an alias."""

            def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature of the base
                return True

        def in_one_line(dumper: Any, data: list[Any]) -> Any:
            is_plain = all(isinstance(item, str) for item in data)
            return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=is_plain)

        Dumper.add_representer(list, in_one_line)
        return str(yaml.dump(self.to_dict(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


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


def _index_document(index: Index) -> dict[str, Any]:
    # A name is left out if it is the default, so that the document does not depend on whether it was given.
    shown = replace(index, name=None) if index.name == f"{index.column}_idx" else index
    return {"column": index.column, "type": index.kind.value, **shown.given}


def _column_document(column: Column) -> str | dict[str, Any]:
    given = {"was": column.was, "default": column.default, "description": column.description}
    more = {name: text for name, text in given.items() if text is not None}
    if not more:
        return column.type if column.nullable else f"{column.type} not null"
    return {"type": column.type, **({} if column.nullable else {"nullable": False}), **more}


_INDICES = "anabranch:indices"


def notes_of_columns(table: TableSchema) -> dict[str, dict[str, str | None]]:
    """Return all notes of each column. None removes a note."""
    found: dict[str, dict[str, str | None]] = {}
    for column in table.columns:
        # Notes have Lance's spelling of the kind, so that the note of an index that was declared before is the same.
        own = [index for index in table.indices if index.column == column.name]
        declared = [{"type": index.kind.value.upper(), **index.given} for index in own]
        indices = json.dumps(declared) if declared else None
        found[column.name] = {DESCRIPTION: column.description, DEFAULT: column.default, _INDICES: indices}
    return found


def _read_column(field: pa.Field) -> Column:
    return Column(
        name=field.name,
        type=show_type(field.type),
        nullable=field.nullable,
        default=_find(field.metadata, DEFAULT),
        description=_find(field.metadata, DESCRIPTION),
    )


def _read_declared_indices(field: pa.Field) -> list[Index]:
    """Return the declared indices of a column. Raise CorruptError if the note is not valid."""
    text, found = _find(field.metadata, _INDICES), []
    try:
        for document in () if text is None else json.loads(text):
            settings = {name: document.get(name) for name in _SETTINGS}
            found.append(Index(column=field.name, kind=IndexKind(document["type"]), **settings))
    # The note is metadata of a column, which any Lance tool can write.
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as err:
        raise CorruptError(
            f"the note about indices of column {field.name!r} cannot be read: {text!r:.200}",
            hint="write it again with `schema_apply()`, or remove it with `annotate()`",
        ) from err
    return found


def _find(metadata: Mapping[bytes, bytes] | None, name: str) -> str | None:
    found = (metadata or {}).get(name.encode())
    return None if found is None else found.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTable:
    """The current schema of a table, its rows, and the indices that could not be built before it had rows."""

    schema: TableSchema
    rows: int
    unbuilt: frozenset[str] = frozenset()


def read_current(tables: Iterable[Table]) -> dict[TableKey, CurrentTable]:
    """Read the current schema of tables, in parallel."""
    return {table.schema.key: table for table in in_parallel(_read_table, tables)}


def built_indices(version_ref: VersionRef) -> list[Index]:
    """Return the existing indices of the kinds that a schema can declare."""
    return [
        Index(column=info.columns[0], kind=IndexKind(info.kind), name=info.name, metric=info.metric)
        for info in list_indices(version_ref)
        # A schema declares indices of one column at the top level. It must not drop others, which it cannot describe.
        if info.kind in set(IndexKind) and len(info.columns) == 1 and "." not in info.columns[0]
    ]


def _read_table(table: Table) -> CurrentTable:
    arrow, rows = table.schema, table.count_rows()
    built = built_indices(table.version_ref)
    declared = [index for field in arrow for index in _read_declared_indices(field)]
    pending = _find_unbuilt(declared, built)
    indices = [*(_with_settings(index, declared) for index in built), *pending]
    return CurrentTable(
        schema=TableSchema(
            key=TableKey.parse(table.key),
            columns=tuple(map(_read_column, arrow)),
            primary_key=table.primary_key,
            indices=tuple(sorted(indices, key=lambda index: (index.column, index.chosen_name))),
            description=_find(arrow.metadata, DESCRIPTION),
        ),
        rows=rows,
        # Lance cannot build an index without rows, so nothing is missing then.
        unbuilt=frozenset(index.chosen_name for index in pending) if rows else frozenset(),
    )


def _find_unbuilt(declared: Iterable[Index], built: Sequence[Index]) -> list[Index]:
    """Return the declared indices that do not exist. One is ignored if another index has its name."""
    taken = {index.chosen_name for index in built}
    free = [index_spec for index_spec in declared if index_spec.chosen_name not in taken]
    return [index_spec for index_spec in free if not any(_is_built_as(index_spec, index) for index in built)]


def _is_built_as(index_spec: Index, built: Index) -> bool:
    """Return whether an existing index matches a declared one, in the settings that Lance reports."""
    return satisfies(built, replace(index_spec, num_partitions=None, num_sub_vectors=None))


def _with_settings(built: Index, declared: Iterable[Index]) -> Index:
    """Return an index with the settings that only the note has, because Lance does not report them."""
    index_spec = next((index_spec for index_spec in declared if _is_built_as(index_spec, built)), built)
    return replace(built, num_partitions=index_spec.num_partitions, num_sub_vectors=index_spec.num_sub_vectors)
