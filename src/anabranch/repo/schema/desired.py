"""Read a desired schema, YAML or plain Python values, strictly.

It is parsed into nodes that know their path and line. Everything unknown raises InvalidSchemaError with both.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from typing import Any, NoReturn, TypeVar

from anabranch.column_types import canonical_type
from anabranch.errors import InvalidInputError, InvalidSchemaError, ObjectNotFoundError
from anabranch.format.arguments import listed_columns
from anabranch.format.staging import METRICS, IndexKind
from anabranch.format.staging.fields import check_column_names
from anabranch.hints import suggest
from anabranch.ids import TableKey, checked_text
from anabranch.repo.schema.state import Column, Index, SchemaState, TableSchema, check_index, checkable
from anabranch.repo.write.homes import check_primary_key
from anabranch.storage import open_files

Desired = SchemaState | Mapping[str, Any] | str | os.PathLike[str]

_TABLE = ("columns", "primary_key", "indices", "description", "was")
_COLUMN = ("type", "nullable", "default", "description", "was")
_INDEX = ("column", "type", "name", "metric", "num_partitions", "num_sub_vectors")
_NOT_NULL = " not null"
_FILES = (".yaml", ".yml", ".json")
_Made = TypeVar("_Made")
# Nodes are read by recursion, for which Python has a limit. No real schema is nested this deeply.
_MAX_DEPTH = 40
_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_DATE = re.compile(r"\s*\d{4}-\d\d?-\d\d?")
# YAML aliases can repeat parts exponentially. No real schema has this number of nodes.
_MAX_NODES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value with its path and line, such as `tables.in_c_sales.orders` in line 7.

    Scalars are the text as written, so that `1.10` is not changed and a column may have the name `no`.
    """

    path: str
    line: int | None
    value: "dict[str, Node] | tuple[Node, ...] | str | bool | None"

    def fail(self, problem: str, *, hint: str) -> NoReturn:
        """Raise InvalidSchemaError with the path and line of this node."""
        line = "" if self.line is None else f" (line {self.line})"
        raise InvalidSchemaError(f"{self.path or 'the schema'}{line}: {problem}", hint=hint)

    def checked(self, make: Callable[[str], _Made], text: str | None = None) -> _Made:
        """Return the result of a function for the text of this node. Its errors get the path and line of the node."""
        given = self.text() if text is None else text
        try:
            return make(given)
        except InvalidInputError as err:
            self.fail(err.problem, hint=err.hint)

    def entries(self, *, of: str) -> "dict[str, Node]":
        """Return the entries of a mapping. An empty node is an empty mapping."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.fail(f"expected a mapping, got {_shown(self.value)}", hint=f"write {of}, each in a line 'name: value'")
        return self.value

    def known(self, names: Sequence[str]) -> "dict[str, Node]":
        """Return the entries of a mapping. Fail if it has a name that is not in `names`."""
        found = self.entries(of=f"one or more of {', '.join(names)}")
        for name, node in found.items():
            if name not in names:
                node.fail(f"{name!r} is not known here", hint=suggest(name, names, f"use {', '.join(names)}"))
        return found

    def items(self) -> "tuple[Node, ...]":
        """Return the items of a list. A single text is a list of one item."""
        if isinstance(self.value, str):
            return (self,)
        if not isinstance(self.value, tuple):
            self.fail(f"expected a list, got {_shown(self.value)}", hint="write a list such as [a, b]")
        return self.value

    def text(self) -> str:
        """Return the text of this node. Fail if it is empty or not a text."""
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"expected a text, got {_shown(self.value)}", hint="write a text")
        return self.value

    def expression(self) -> str:
        """Return a text, number or boolean as an SQL expression."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        text = self.text()
        if _DATE.match(text):
            hint = "write \"date '2026-01-31'\", or \"timestamp '2026-01-31 12:00:00'\""
            self.fail(f"{text!r} is a subtraction in SQL, not a date", hint=hint)
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, got {_shown(self.value)}", hint="write true or false")
        return self.value

    def number(self) -> int:
        if not isinstance(self.value, str) or not re.fullmatch("0*[1-9][0-9]{0,8}", self.value):
            hint = "write a number such as 16"
            self.fail(f"expected an integer from 1 to 999999999, got {_shown(self.value)}", hint=hint)
        return int(self.value)


def read_desired(desired: Desired, *, storage_options: Mapping[str, str]) -> SchemaState:
    """Read a schema from plain values, YAML text or a file. A one-line text that ends with .yaml or .json is a path."""
    if isinstance(desired, SchemaState):
        return desired
    if isinstance(desired, str | os.PathLike):
        text = os.fspath(desired)
        is_file = isinstance(desired, os.PathLike) or ("\n" not in text and text.endswith(_FILES))
        return _read(_parse_yaml(_read_file(text, storage_options) if is_file else text))
    if isinstance(desired, Mapping):
        return _read(_parse_values(desired))
    hint = "pass YAML text, a path, or a dict"
    raise InvalidInputError(f"cannot read a schema from {desired!r} ({type(desired).__name__})", hint=hint)


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
    tables: list[TableSchema] = []
    for bucket, inside in buckets.items():
        inside.checked(TableKey.parse, f"{bucket}.table")  # Check the bucket name even if there are no tables.
        tables += [_read_table(bucket, name, node) for name, node in inside.entries(of="tables").items()]
    _check_origins(root, [(str(table.was), str(table.key)) for table in tables if table.was is not None])
    return SchemaState.of(tables, buckets=buckets)


def _read_table(bucket: str, name: str, node: Node) -> TableSchema:
    key = node.checked(TableKey.parse, f"{bucket}.{name}")
    found = node.known(_TABLE)
    if "columns" not in found:
        node.fail("the table has no columns", hint="add 'columns:' with at least one column")
    columns = _read_columns(found["columns"])
    was = None
    if "was" in found:
        text = found["was"].text()
        # An earlier name without a bucket is in the same bucket.
        was = found["was"].checked(TableKey.parse, text if "." in text else f"{bucket}.{text}")
        if was == key:
            found["was"].fail(f"'was' is the current name {name!r} of the table", hint="leave 'was' out")
    primary_key: tuple[str, ...] = ()
    if (keys := _find(found, "primary_key")) is not None:
        names = primary_key = tuple(item.text() for item in keys.items())
        keys.checked(lambda _: check_primary_key(key, checkable(columns), names), "")
    return TableSchema(
        key=key,
        columns=columns,
        primary_key=primary_key,
        indices=_read_indices(_find(found, "indices"), columns),
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
        # The short form of a column, such as `id: int64 not null`.
        text = node.text().rstrip()
        kind = node.checked(canonical_type, text.removesuffix(_NOT_NULL))
        return Column(name=name, type=kind, nullable=not text.endswith(_NOT_NULL))
    found = node.known(_COLUMN)
    if "type" not in found:
        node.fail("the column has no type", hint="add one, such as 'type: int64'")
    default, was = _find(found, "default"), found["was"].text() if "was" in found else None
    if was == name:
        found["was"].fail(f"'was' is the current name {name!r} of the column", hint="leave 'was' out")
    return Column(
        name=name,
        type=found["type"].checked(canonical_type),
        nullable=found["nullable"].flag() if "nullable" in found else True,
        default=None if default is None else default.expression().strip(),
        description=_read_description(found),
        was=was,
    )


def _find(found: Mapping[str, Node], name: str) -> Node | None:
    """Return the value of an optional name, None if it is left out or null."""
    node = found.get(name)
    return None if node is None or node.value is None else node


def _read_description(found: Mapping[str, Node]) -> str | None:
    node = _find(found, "description")
    return None if node is None else node.checked(lambda text: checked_text(text, "description"))


def _read_indices(node: Node | None, columns: tuple[Column, ...]) -> tuple[Index, ...]:
    if node is None:
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
        metric=_read_metric(found["metric"], kind) if "metric" in found else None,
        name=found["name"].text() if "name" in found else None,
        **{name: found[name].number() for name in ("num_partitions", "num_sub_vectors") if name in found},
    )
    node.checked(lambda _: check_index(index, column), "")
    return index


def _read_metric(node: Node, kind: IndexKind) -> str:
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
            hint = "remove 'was' from one of them"
            node.fail(f"both {taken[was]!r} and {name!r} have the earlier name {was!r}", hint=hint)
        taken[was] = name


def _parse_yaml(text: str) -> Node:
    """Parse YAML into nodes with line numbers. Raise InvalidSchemaError if a name is given twice."""
    import yaml  # only schemas need it

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        problem = getattr(err, "problem", None) or " ".join(str(err).split())
        raise InvalidSchemaError(f"the schema is not YAML{where}: {problem}", hint="correct the YAML syntax") from None
    # PyYAML reads nested parts by recursion, before the depth can be checked here.
    except RecursionError:
        raise InvalidSchemaError("the schema is nested too deeply", hint="use fewer levels") from None
    if root is None:
        hint = "start with 'tables:', or print a schema with `schema_show()`"
        raise InvalidSchemaError("the schema is empty", hint=hint)
    return _read_yaml(root, count(1))


def _read_yaml(node: Any, numbers: Iterator[int], *, path: str = "", depth: int = 0) -> Node:
    _check_depth(depth)
    if next(numbers) > _MAX_NODES:
        raise InvalidSchemaError(f"the schema has more than {_MAX_NODES} parts", hint="repeat fewer parts")
    value: dict[str, Node] | tuple[Node, ...] | str | bool | None
    match node.id:
        case "mapping":
            value = _read_mapping(node, numbers, path=path, depth=depth)
        case "sequence":
            items = enumerate(node.value)
            value = tuple(_read_yaml(item, numbers, path=f"{path}[{n}]", depth=depth + 1) for n, item in items)
        case _ if node.tag == "tag:yaml.org,2002:null":
            value = None
        case _:
            text = str(node.value)
            # A value with the tag `!!bool` may be any text.
            is_boolean = node.tag == "tag:yaml.org,2002:bool" and text.lower() in _BOOLEANS
            value = _BOOLEANS[text.lower()] if is_boolean else text
    return Node(path=path, line=node.start_mark.line + 1, value=value)


def _read_mapping(node: Any, numbers: Iterator[int], *, path: str, depth: int) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for key, item in node.value:
        here = Node(path=path, line=key.start_mark.line + 1, value=None)
        if key.id != "scalar":
            here.fail("a name must be a text", hint="use text for names")
        # It would be read as a table or column with the name '<<'.
        if key.tag == "tag:yaml.org,2002:merge":
            here.fail("the merge key '<<' is not supported", hint="write the entries out")
        # PyYAML silently keeps the last of two equal names. The plan would then drop what only the first declares.
        if key.value in found:
            here.fail(f"{key.value!r} is given twice", hint="keep one of them")
        # Use the line of the name: a long value may start on a later line.
        inside = _read_yaml(item, numbers, path=_join(path, key.value), depth=depth + 1)
        found[key.value] = replace(inside, line=here.line)
    return found


def _parse_values(value: Any, *, path: str = "", depth: int = 0) -> Node:
    """Convert plain Python values into nodes: dicts, lists, text, numbers."""
    _check_depth(depth)
    here = Node(path=path, line=None, value=None)
    match value:
        case None | bool() | str():
            return Node(path=path, line=None, value=value)
        case int() | float() | Decimal():
            return Node(path=path, line=None, value=str(value))
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    here.fail(f"a name must be a text, got {key!r}", hint="use text for names")
            entries = {key: _parse_values(value[key], path=_join(path, key), depth=depth + 1) for key in value}
            return Node(path=path, line=None, value=entries)
        # For Python, bytes are a sequence of integers.
        case Sequence() if not isinstance(value, bytes | bytearray):
            items = (_parse_values(item, path=f"{path}[{n}]", depth=depth + 1) for n, item in enumerate(value))
            return Node(path=path, line=None, value=tuple(items))
    hint = "pass dicts, lists, text, numbers, True or False"
    return here.fail(f"unsupported value of type {type(value).__name__}", hint=hint)


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidSchemaError("the schema is nested too deeply", hint="use fewer levels")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: "dict[str, Node] | tuple[Node, ...] | str | bool | None") -> str:
    if isinstance(value, dict | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value) if isinstance(value, str) else {None: "nothing", True: "true", False: "false"}[value]
