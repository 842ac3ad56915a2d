"""Read a desired schema strictly: everything unknown raises InvalidSchemaError with its path and line."""

import os
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InvalidInputError, InvalidSchemaError, ObjectNotFoundError
from anabranch.format.arguments import listed_columns
from anabranch.format.staging import METRICS, IndexKind
from anabranch.format.staging.fields import check_column_names
from anabranch.hints import suggest
from anabranch.ids import TableKey
from anabranch.repo.log.commits import checked_text
from anabranch.repo.schema.document import Node, read_values, read_yaml
from anabranch.repo.schema.state import Column, Index, SchemaState, TableSchema, checkable
from anabranch.repo.schema.types import canonical_type
from anabranch.repo.write.homes import check_primary_key
from anabranch.storage import open_files

Desired = SchemaState | Mapping[str, Any] | str | os.PathLike[str]

_TABLE = ("columns", "primary_key", "indices", "description", "was")
_COLUMN = ("type", "nullable", "default", "description", "was")
_INDEX = ("column", "type", "name", "metric", "num_partitions", "num_sub_vectors")
_NOT_NULL = " not null"
_FILES = (".yaml", ".yml", ".json")
# The prefixes of the column types that an index supports, and their description.
_LISTS, _TEXT = ("list<", "large_list<"), ("string", "large_string")
_VECTORS = (("vector(", "fixed_size_list<"), "vectors, such as vector(128)")
_NEEDS = {
    IndexKind.LABEL_LIST: (_LISTS, "lists"),
    IndexKind.NGRAM: (_TEXT, "text"),
    IndexKind.INVERTED: ((*_TEXT, *(lists + text for lists in _LISTS for text in _TEXT)), "text, or lists of text"),
}


def read_desired(desired: Desired, *, storage_options: Mapping[str, str]) -> SchemaState:
    """Read a schema from plain values, YAML text or a file. A one-line text that ends with .yaml or .json is a path."""
    if isinstance(desired, SchemaState):
        return desired
    if isinstance(desired, os.PathLike):
        return _read(read_yaml(_read_file(os.fspath(desired), storage_options)))
    if isinstance(desired, str):
        is_file = "\n" not in desired and desired.endswith(_FILES)
        return _read(read_yaml(_read_file(desired, storage_options) if is_file else desired))
    if isinstance(desired, Mapping):
        return _read(read_values(desired))
    raise InvalidInputError(
        f"cannot read a schema from {desired!r} ({type(desired).__name__})", hint="pass YAML text, a path, or a dict"
    )


def _read_file(path: str, storage_options: Mapping[str, str]) -> str:
    folder, _, name = path.rpartition("/")
    files = open_files(folder or ("/" if path.startswith("/") else "."), storage_options)
    try:
        return files.get(name).decode()
    except ObjectNotFoundError:
        raise ObjectNotFoundError(f"there is no schema file {path!r}", hint="check the path") from None
    except UnicodeDecodeError:
        raise InvalidSchemaError(f"the schema file {path!r} is not UTF-8", hint="save it as UTF-8") from None


def _read(root: Node) -> SchemaState:
    found = root.known(("tables",))
    if "tables" not in found:
        root.fail("there are no tables", hint="start with 'tables:', then a bucket, then a table")
    buckets = found["tables"].entries(of="buckets")
    tables = [
        _read_table(bucket, name, node)
        for bucket, inside in buckets.items()
        for name, node in _tables_of(bucket, inside).items()
    ]
    _check_origins(root, [(str(table.was), str(table.key)) for table in tables if table.was is not None])
    return SchemaState.of(tables, buckets=buckets)


def _tables_of(bucket: str, node: Node) -> dict[str, Node]:
    node.checked(TableKey.parse, f"{bucket}.table")  # Check the bucket name even if there are no tables.
    return node.entries(of="tables")


def _read_table(bucket: str, name: str, node: Node) -> TableSchema:
    key = node.checked(TableKey.parse, f"{bucket}.{name}")
    found = node.known(_TABLE)
    if "columns" not in found:
        node.fail("the table has no columns", hint="add 'columns:' with at least one column")
    columns = _read_columns(found["columns"])
    primary_key = _read_primary_key(key, found["primary_key"], columns) if "primary_key" in found else ()
    was = None
    if "was" in found:
        text = found["was"].text()
        # An earlier name without a bucket is in the same bucket.
        was = found["was"].checked(TableKey.parse, text if "." in text else f"{bucket}.{text}")
        if was == key:
            found["was"].fail(f"'was' is the current name {name!r} of the table", hint="leave 'was' out")
    return TableSchema(
        key=key,
        columns=columns,
        primary_key=primary_key,
        indices=_read_indices(found["indices"], columns) if "indices" in found else (),
        description=_read_description(found),
        was=was,
    )


def _read_columns(node: Node) -> tuple[Column, ...]:
    found = node.entries(of="columns")
    # The check is of all names at once and needs no text. `checked` adds the path and line to its errors.
    node.checked(lambda _: check_column_names(list(found)), "")
    columns = tuple(_read_column(name, inside) for name, inside in found.items())
    _check_origins(node, [(column.was, column.name) for column in columns if column.was is not None])
    return columns


def _read_column(name: str, node: Node) -> Column:
    if isinstance(node.value, str):
        text = node.text()
        # The short form of a column, such as `id: int64 not null`.
        is_required = text.rstrip().endswith(_NOT_NULL)
        kind = text.rstrip().removesuffix(_NOT_NULL) if is_required else text
        return Column(name=name, type=node.checked(canonical_type, kind), nullable=not is_required)
    found = node.known(_COLUMN)
    if "type" not in found:
        node.fail("the column has no type", hint="add one, such as 'type: int64'")
    was = found["was"].text() if "was" in found else None
    if was == name:
        found["was"].fail(f"'was' is the current name {name!r} of the column", hint="leave 'was' out")
    return Column(
        name=name,
        type=found["type"].checked(canonical_type),
        nullable=found["nullable"].flag() if "nullable" in found else True,
        default=_read_default(found),
        description=_read_description(found),
        was=was,
    )


def _read_default(found: Mapping[str, Node]) -> str | None:
    node = found.get("default")
    return None if node is None or node.value is None else node.expression().strip()


def _read_description(found: Mapping[str, Node]) -> str | None:
    node = found.get("description")
    if node is None or node.value is None:
        return None
    return node.checked(lambda text: checked_text(text, "description"))


def _read_primary_key(key: TableKey, node: Node, columns: tuple[Column, ...]) -> tuple[str, ...]:
    if node.value is None:
        return ()
    names = tuple(item.text() for item in node.items())
    node.checked(lambda _: check_primary_key(key, checkable(columns), names), "")
    return names


def _read_indices(node: Node, columns: tuple[Column, ...]) -> tuple[Index, ...]:
    if node.value is None:
        return ()
    indices = tuple(_read_index(item, columns) for item in node.items())
    names = [index.chosen_name for index in indices]
    for name in names:
        # Lance identifies an index by its name.
        if names.count(name) > 1:
            node.fail(f"two indices have the name {name!r}", hint="set another 'name' for one of them")
    return indices


def _read_index(node: Node, columns: tuple[Column, ...]) -> Index:
    if isinstance(node.value, str):
        return Index(column=_known_column(node, columns).name)
    found = node.known(_INDEX)
    if "column" not in found:
        node.fail("the index has no column", hint="add one, such as 'column: id'")
    column = _known_column(found["column"], columns)
    kind = found["type"].checked(IndexKind.parse) if "type" in found else IndexKind.BTREE
    index = Index(
        column=column.name,
        kind=kind,
        name=found["name"].text() if "name" in found else None,
        metric=_read_metric(found, kind),
        num_partitions=found["num_partitions"].number() if "num_partitions" in found else None,
        num_sub_vectors=found["num_sub_vectors"].number() if "num_sub_vectors" in found else None,
    )
    _check_index(node, index, column)
    return index


def _check_index(node: Node, index: Index, column: Column) -> None:
    """Fail for an index that Lance cannot build. Without rows it is not built yet, so Lance would not report it."""
    prefixes, needed = _VECTORS if index.kind.is_vector else _NEEDS.get(index.kind, (("",), ""))
    # The storage of an extension type is not known here, so Lance decides when it builds the index.
    if not column.type.startswith((*prefixes, "extension<")):
        node.fail(
            f"an index of type {index.kind.value} needs {needed}, but column {column.name!r} is {column.type}",
            hint="use another column, or another type of index",
        )
    if not index.kind.is_vector:
        if index.num_partitions is not None or index.num_sub_vectors is not None:
            node.fail(f"an index of type {index.kind.value} has no partitions", hint="leave them out")
        return
    if index.kind.value.endswith("_pq") and None in (index.num_partitions, index.num_sub_vectors):
        node.fail(
            f"an index of type {index.kind.value} needs num_partitions and num_sub_vectors",
            hint="add both, such as 16 and 8",
        )
    if index.num_sub_vectors is not None and not column.type.startswith("extension<"):
        size = column.arrow.type.list_size
        if size % index.num_sub_vectors:
            node.fail(
                f"vectors of {size} dimensions cannot be split into {index.num_sub_vectors} sub-vectors",
                hint="use a num_sub_vectors that divides the number of dimensions",
            )


def _read_metric(found: Mapping[str, Node], kind: IndexKind) -> str | None:
    node = found.get("metric")
    if node is None:
        return None
    metric = node.text().lower()
    if not kind.is_vector or metric not in METRICS:
        node.fail(f"an index of type {kind.value} has no metric {metric!r}", hint=f"use {', '.join(METRICS)}")
    return metric


def _known_column(node: Node, columns: tuple[Column, ...]) -> Column:
    name = node.text()
    column = next((column for column in columns if column.name == name), None)
    if column is None:
        known = [column.name for column in columns]
        node.fail(f"there is no column {name!r}", hint=suggest(name, known, listed_columns(known)))
    return column


def _check_origins(node: Node, renames: list[tuple[str, str]]) -> None:
    """Fail if two tables or columns have the same earlier name."""
    taken: dict[str, str] = {}
    for was, name in renames:
        if was in taken:
            node.fail(
                f"both {taken[was]!r} and {name!r} have the earlier name {was!r}", hint="remove 'was' from one of them"
            )
        taken[was] = name
