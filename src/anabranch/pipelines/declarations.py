"""The declarations of a pipeline file, as values with their lines: settings, parameters, outputs and checks."""

import hashlib
import json
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from math import isfinite
from typing import Any, NoReturn

from anabranch.errors import AnabranchError, InvalidPipelineError
from anabranch.hints import suggest
from anabranch.ids import TableKey
from anabranch.json_values import json_value
from anabranch.pipelines.statements import Statement
from anabranch.repo.io.prepared_table import LoadMode
from anabranch.repo.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A line of a source file, for error messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def inside(self, text: str, line: int) -> "SourceLocation":
        """Return the location of a line of a text that begins here, or this one if the text is not in the file."""
        # A text with escapes, or of an f-string, is not in the file in this form.
        before, found, _ = "".join(linecache.getlines(self.file)[self.line - 1 :]).partition(text or "\0")
        return replace(self, line=self.line + before.count("\n") + line - 1) if found else self

    def fail(self, problem: str, *, hint: str) -> NoReturn:
        raise InvalidPipelineError(f"{self}: {problem}", hint=hint)


class WriteMode(StrEnum):
    """The way in which a write of an output changes the existing rows of its table."""

    REBUILD = "rebuild"
    APPEND = "append"
    UPSERT = "upsert"

    @property
    def load_mode(self) -> LoadMode:
        """The mode of the write."""
        return LoadMode.OVERWRITE if self is WriteMode.REBUILD else LoadMode(self.value)


class Engine(StrEnum):
    """The engine of an output: Spark, or DuckDB in this process."""

    SPARK = "spark"
    DUCKDB = "duckdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A table that the pipeline makes: by a statement, or else by a function of its inputs.

    Of `incremental` inputs it reads only the rows that are new since its last publish. `code` is the text that computes
    it.
    """

    key: str
    location: SourceLocation
    inputs: tuple[str, ...]
    write: WriteMode
    primary_key: tuple[str, ...]
    incremental: tuple[str, ...]
    description: str
    engine: Engine = Engine.SPARK
    code: str = ""
    statement: Statement | None = None
    function: Callable[..., Any] | None = None
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "python" if self.statement is None else "sql"

    @property
    def about(self) -> str:
        """A short description of the code that makes the table."""
        return f"{self.kind}, {self.write.value}, {self.engine.value}"

    @property
    def code_hash(self) -> str:
        """A hash of the definition of the output, without the rows of its inputs and the values of the parameters."""
        # Without the description and the checks: if only they change, the table need not be built again.
        options = [self.kind, self.engine, self.write, self.inputs, self.primary_key, self.incremental, self.code]
        return hashlib.sha256(json.dumps(options).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCheck:
    """A check that must pass before a publish. SQL names the tables that it reads, a function does not.

    `owner` is the table that a ready-made check belongs to. The result of a check that `depends_on_time` may change
    although the data does not.
    """

    name: str
    location: SourceLocation
    check: str | Callable[[Snapshot], object]
    tables: tuple[str, ...] = ()
    owner: str | None = None
    depends_on_time: bool = False


def calling_location() -> SourceLocation:
    """Return the line that called the caller."""
    frame = sys._getframe(2)
    return SourceLocation(file=frame.f_code.co_filename, line=frame.f_lineno)


def parse_key(text: Any, location: SourceLocation) -> str:
    try:
        return str(TableKey.parse(text))
    except AnabranchError as err:
        location.fail(err.problem, hint=err.hint)


def parse_engine(text: Any, location: SourceLocation) -> Engine:
    if text not in list(Engine):
        location.fail(f"the engine is {text!r}", hint=f"use {' or '.join(Engine)}")
    return Engine(text)


# The name of the parameter by which a function gets the session.
RESERVED = "spark"

_FLAGS = {"true": True, "false": False}
_CONVERSIONS: dict[type, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    bool: lambda text: _FLAGS[text.lower()],
    date: date.fromisoformat,
}
_KINDS = ", ".join(kind.__name__ for kind in _CONVERSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    kind: type
    default: Any = None
    is_required: bool = False


def declare_parameters(given: Mapping[str, Any], location: SourceLocation) -> dict[str, Parameter]:
    """Read the declared parameters of a pipeline: a default, or a type for those that must be given."""
    return {name: _declare(name, value, location) for name, value in given.items()}


def _declare(name: object, value: Any, location: SourceLocation) -> Parameter:
    # Functions get parameters as keyword arguments, so a name must be an identifier, and the session has one of them.
    if not isinstance(name, str) or not name.isidentifier() or name == RESERVED:
        location.fail(f"a parameter cannot be called {name!r}", hint="use a name such as 'since'")
    is_required = isinstance(value, type)
    kind = value if is_required else type(value)
    if kind not in _CONVERSIONS or not _is_finite(value):
        location.fail(f"the parameter {name!r} is {value!r}", hint=f"use a value or a type of {_KINDS}")
    return Parameter(name=name, kind=kind, default=None if is_required else value, is_required=is_required)


def bind_parameters(
    declared: Mapping[str, Parameter], given: Mapping[str, Any], location: SourceLocation
) -> dict[str, Any]:
    """Return the value of each parameter. Refuse unknown parameters, missing values, and values of another type."""
    for name in given:
        if name not in declared:
            known = f"the parameters are {', '.join(declared)}" if declared else "it takes none"
            location.fail(f"the pipeline has no parameter {name!r}", hint=known)
    for parameter in declared.values():
        if parameter.is_required and parameter.name not in given:
            location.fail(
                f"the parameter {parameter.name!r} has no value", hint=f"give it, such as {parameter.name}=VALUE"
            )
    return {
        name: _converted(parameter, given[name], location) if name in given else parameter.default
        for name, parameter in declared.items()
    }


def _converted(parameter: Parameter, value: Any, location: SourceLocation) -> Any:
    kind = parameter.kind
    # Not `isinstance`: a bool is also an int, and a datetime is also a date.
    if type(value) is kind and _is_finite(value):
        return value
    # A whole number is often written without a point, and it is the same value.
    is_whole = kind is float and type(value) is int
    try:
        found = _CONVERSIONS[kind](value) if is_whole or isinstance(value, str) else None
    except (ValueError, KeyError, OverflowError):
        found = None
    if found is None or not _is_finite(found):
        location.fail(f"the parameter {parameter.name!r} is {value!r}", hint=f"give a {kind.__name__}")
    return found


def _is_finite(value: Any) -> bool:
    """Return whether a value can be recorded: JSON has no infinity and no NaN."""
    return not isinstance(value, float) or isfinite(value)


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON values, from which the types of their parameters restore them."""
    return {name: json_value(value) for name, value in values.items()}


# Projects may come from others. YAML can repeat a part by its name, and the parts in it again.
_LONGEST = 262_144
_MOST_PARTS = 10_000
_DEEPEST = 12
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and the line where it is written."""

    value: "dict[str, Setting] | tuple[Setting, ...] | Any"
    location: SourceLocation

    @classmethod
    def of(cls, value: Any, location: SourceLocation, *, depth: int = 0) -> "Setting":
        """Wrap Python values that were all given at one location."""
        # A list or dict of Python may contain itself.
        if depth > _DEEPEST:
            location.fail("the settings are nested too deeply", hint="write them flat")
        if isinstance(value, Mapping):
            inner = {str(name): cls.of(item, location, depth=depth + 1) for name, item in value.items()}
            return cls(value=inner, location=location)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return cls(value=tuple(cls.of(item, location, depth=depth + 1) for item in value), location=location)
        return cls(value=value, location=location)

    def fail(self, problem: str, *, hint: str) -> NoReturn:
        self.location.fail(problem, hint=hint)

    def entries(self, what: str) -> "dict[str, Setting]":
        if not isinstance(self.value, dict):
            self.fail(f"{what} is {self.shown()}", hint="give a mapping, with lines such as 'name: value'")
        return self.value

    def known(self, what: str, names: Sequence[str], *, hints: Mapping[str, str] | None = None) -> "dict[str, Setting]":
        """Return the entries of a mapping; refuse other names than these, with a hint for those that others use."""
        found = self.entries(what)
        for name, setting in found.items():
            if name not in names:
                usual = suggest(name, names, f"use {', '.join(names)}")
                setting.fail(f"{what} has no setting {name!r}", hint=(hints or {}).get(name, usual))
        return found

    def items(self, what: str) -> "tuple[Setting, ...]":
        if not isinstance(self.value, tuple):
            self.fail(f"{what} is {self.shown()}", hint="give a list")
        return self.value

    def text(self, what: str) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"{what} is {self.shown()}", hint="give a text")
        return self.value.strip()

    def names(self, what: str) -> tuple[str, ...]:
        """Return a list of names; one name alone is a list of one."""
        settings = self.value if isinstance(self.value, tuple) else (self,)
        found = tuple(setting.text(what) for setting in settings)
        if not found or len(set(found)) < len(found):
            self.fail(f"{what} is {self.shown()}", hint="give one or more names, each once")
        return found

    def plain(self) -> Any:
        """Return the value without its locations."""
        if isinstance(self.value, dict):
            return {name: setting.plain() for name, setting in self.value.items()}
        return [setting.plain() for setting in self.value] if isinstance(self.value, tuple) else self.value

    def shown(self) -> str:
        return "empty" if self.value in (None, ()) else repr(self.plain())


def read_settings(text: str, *, file: str, first_line: int = 1) -> Setting:
    """Read YAML without running anything in it; the text begins at a line of a file."""
    import yaml  # only projects need it

    start = SourceLocation(file=file, line=first_line)
    if len(text) > _LONGEST:
        start.fail(f"the YAML has {len(text):,} characters", hint=f"use at most {_LONGEST:,}")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return Setting(value={}, location=start) if root is None else _Reader(loader, start).read(root, depth=0)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        location = start if mark is None else SourceLocation(file=file, line=first_line + mark.line)
        problem = getattr(err, "problem", None) or " ".join(str(err).split())
        location.fail(f"the YAML does not parse: {problem}", hint="correct it")
    # PyYAML reads nested parts by recursion, before the depth can be checked here.
    except RecursionError:
        start.fail("the settings are nested too deeply", hint="write them flat")


class _Reader:
    def __init__(self, loader: Any, start: SourceLocation) -> None:
        self._loader = loader
        self._start = start
        self._parts = 0

    def read(self, node: Any, *, depth: int) -> Setting:
        location = self._location(node)
        self._parts += 1
        # YAML aliases can repeat parts exponentially, so a small file may have a very large number of parts.
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            location.fail("the YAML has too many parts", hint=f"use at most {_MOST_PARTS:,}, at most {_DEEPEST} deep")
        if node.id == "scalar":
            try:
                return Setting(value=self._loader.construct_object(node), location=location)
            # YAML reads a text such as 2026-02-30 as a date, which does not exist.
            except (ValueError, OverflowError) as err:
                location.fail(f"{node.value!r} is not a value: {err}", hint="put it in quotes if it is a text")
        # A tag asks for another type, such as a set or an object of Python.
        if node.tag not in _PLAIN_TAGS:
            location.fail(f"the YAML has the tag {node.tag!r}", hint="use plain mappings, lists and values")
        if node.id == "sequence":
            return Setting(value=tuple(self.read(item, depth=depth + 1) for item in node.value), location=location)
        return Setting(value=self._mapping(node, depth=depth), location=location)

    def _mapping(self, node: Any, *, depth: int) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for key, item in node.value:
            location = self._location(key)
            if key.id != "scalar" or key.value == "<<":
                location.fail("a name is not a text", hint="write 'name: value'")
            # PyYAML keeps the last of two equal names without an error.
            if key.value in found:
                location.fail(f"{key.value!r} is given twice", hint="keep one of them")
            # The line of the name: a long value begins below it.
            found[key.value] = Setting(value=self.read(item, depth=depth + 1).value, location=location)
        return found

    def _location(self, node: Any) -> SourceLocation:
        return SourceLocation(file=self._start.file, line=self._start.line + node.start_mark.line)
