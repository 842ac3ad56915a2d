"""Parse a schema document, YAML or plain Python values, into nodes that know their path and line."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

from anabranch.errors import InvalidInputError, InvalidSchemaError
from anabranch.hints import suggest

_Made = TypeVar("_Made")
# Nodes are read by recursion, for which Python has a limit. No real schema is nested this deeply.
_MAX_DEPTH = 40
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
        where = self.path or "the schema"
        if self.line is not None:
            where += f" (line {self.line})"
        raise InvalidSchemaError(f"{where}: {problem}", hint=hint)

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
            self.fail(
                f"{text!r} is a subtraction in SQL, not a date",
                hint="write \"date '2026-01-31'\", or \"timestamp '2026-01-31 12:00:00'\"",
            )
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, got {_shown(self.value)}", hint="write true or false")
        return self.value

    def number(self) -> int:
        if not isinstance(self.value, str) or not re.fullmatch("0*[1-9][0-9]{0,8}", self.value):
            self.fail(
                f"expected an integer from 1 to 999999999, got {_shown(self.value)}", hint="write a number such as 16"
            )
        return int(self.value)


def read_yaml(text: str) -> Node:
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
        raise InvalidSchemaError(
            "the schema is empty", hint="start with 'tables:', or print a schema with `schema_show()`"
        )
    return _YamlReader(yaml).read(root, path="", depth=0)


def read_values(value: Any) -> Node:
    """Convert plain Python values into nodes: dicts, lists, text, numbers."""
    return _read_value(value, path="", depth=0)


class _YamlReader:
    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._boolean = yaml.SafeLoader.bool_values
        self._nodes = 0

    def read(self, node: Any, *, path: str, depth: int) -> Node:
        line = node.start_mark.line + 1
        _check_depth(depth)
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise InvalidSchemaError(f"the schema has more than {_MAX_NODES} parts", hint="repeat fewer parts")
        if isinstance(node, self._yaml.MappingNode):
            return Node(path=path, line=line, value=self._read_mapping(node, path=path, depth=depth))
        if isinstance(node, self._yaml.SequenceNode):
            items = (
                self.read(item, path=f"{path}[{number}]", depth=depth + 1) for number, item in enumerate(node.value)
            )
            return Node(path=path, line=line, value=tuple(items))
        return Node(path=path, line=line, value=self._scalar(node))

    def _read_mapping(self, node: Any, *, path: str, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key, item in node.value:
            here = Node(path=path, line=key.start_mark.line + 1, value=None)
            if not isinstance(key, self._yaml.ScalarNode):
                here.fail("a name must be a text", hint="use text for names")
            # It would be read as a table or column with the name '<<'.
            if key.tag == "tag:yaml.org,2002:merge":
                here.fail("the merge key '<<' is not supported", hint="write the entries out")
            # PyYAML keeps the last of two equal names without an error. The plan would then drop what only the first
            # one declares.
            if key.value in found:
                here.fail(f"{key.value!r} is given twice", hint="keep one of them")
            read = self.read(item, path=_join(path, key.value), depth=depth + 1)
            # Use the line of the name: a long value may start on a later line.
            found[key.value] = Node(path=read.path, line=here.line, value=read.value)
        return found

    def _scalar(self, node: Any) -> str | bool | None:
        match node.tag.rpartition(":")[2]:
            case "null":
                return None
            # A value with the tag `!!bool` may be any text.
            case "bool" if node.value.lower() in self._boolean:
                return bool(self._boolean[node.value.lower()])
            case _:
                return str(node.value)


def _read_value(value: Any, *, path: str, depth: int) -> Node:
    _check_depth(depth)
    here = Node(path=path, line=None, value=None)
    match value:
        case None:
            return here
        case bool() | str():
            return Node(path=path, line=None, value=value)
        case int() | float() | Decimal():
            return Node(path=path, line=None, value=str(value))
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    here.fail(f"a name must be a text, got {key!r}", hint="use text for names")
            pairs: Iterable[tuple[str, Any]] = value.items()
            entries = {key: _read_value(item, path=_join(path, key), depth=depth + 1) for key, item in pairs}
            return Node(path=path, line=None, value=entries)
        # For Python, bytes are a sequence of integers.
        case Sequence() if not isinstance(value, bytes | bytearray):
            items = (_read_value(item, path=f"{path}[{n}]", depth=depth + 1) for n, item in enumerate(value))
            return Node(path=path, line=None, value=tuple(items))
    return here.fail(
        f"unsupported value of type {type(value).__name__}", hint="pass dicts, lists, text, numbers, True or False"
    )


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidSchemaError("the schema is nested too deeply", hint="use fewer levels")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case tuple():
            return "a list"
        case bool():
            return "true" if value else "false"
    return repr(value)
