"""Declare a pipeline: execute its file and check its outputs. Nothing is built."""

import hashlib
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from anabranch.errors import InvalidPipelineError, ObjectNotFoundError
from anabranch.pipelines.checks import declare_check, declare_ready_made
from anabranch.pipelines.declarations import (
    RESERVED,
    DeclaredCheck,
    Engine,
    Output,
    Parameter,
    Setting,
    SourceLocation,
    WriteMode,
    calling_location,
    declare_parameters,
    parse_engine,
    parse_key,
)
from anabranch.pipelines.statements import StatementError, parse_duck_statement, parse_statement
from anabranch.storage import open_files

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def sql_output(given: Output, sql: str, parameters: Collection[str]) -> Output:
    """Read an output that one SELECT makes, in the SQL of its engine. The settings of `given` are not checked yet."""
    engine = parse_engine(given.engine, given.location)
    if not isinstance(sql, str):
        given.location.fail(f"{sql!r} is not SQL", hint="give a SELECT as text")
    try:
        statement = parse_duck_statement(sql) if engine is Engine.DUCKDB else parse_statement(sql)
    except StatementError as err:
        given.location.inside(sql, err.line).fail(err.problem, hint=err.hint)
    for name in statement.parameters:
        if name not in parameters:
            known = f"the parameters are {', '.join(parameters)}" if parameters else "there are none"
            marker = "$" if engine is Engine.DUCKDB else ":"
            given.location.fail(f"the SQL names the parameter '{marker}{name}'", hint=f"declare it; {known}")
    return replace(_declared(given, statement.inputs, code=sql), statement=statement)


def function_output(given: Output, function: Callable[..., Any], inputs: Any, parameters: Collection[str]) -> Output:
    """Read an output that a function of its inputs makes. The settings of `given` are not checked yet."""
    location = given.location
    names = tuple(parse_key(name, location) for name in _names(inputs, "list of inputs", location))
    taken = _check_signature(function, inputs=names, parameters=parameters, location=location)
    if parse_engine(given.engine, location) is Engine.DUCKDB and RESERVED in taken:
        location.fail(
            f"{function.__name__}() takes {RESERVED!r}, and its engine is DuckDB", hint="use the engine spark"
        )
    made = _declared(given, names, code=_text_of(function))
    description = made.description or (function.__doc__ or "").strip()
    return replace(made, description=description, function=function, options=taken)


def _declared(given: Output, inputs: tuple[str, ...], *, code: str) -> Output:
    """Check the settings that outputs by SQL and by functions have in common."""
    location = given.location
    output = replace(
        given,
        key=parse_key(given.key, location),
        inputs=inputs,
        write=_mode(given.write, given.primary_key, location),
        primary_key=_names(given.primary_key, "primary key", location),
        incremental=_names(given.incremental, "list of incremental inputs", location),
        engine=parse_engine(given.engine, location),
        code=given.code or code,
    )
    if output.incremental and output.write is WriteMode.REBUILD:
        output.location.fail(
            f"'{output.key}' is rebuilt, and would lose the rows that are not new in its incremental inputs",
            hint="write it by 'append' or 'upsert'",
        )
    for name in output.incremental:
        if name not in output.inputs:
            output.location.fail(
                f"'{name}' is called incremental, and is not an input of '{output.key}'",
                hint=f"its inputs are {_listed(output.inputs)}",
            )
    return output


def _text_of(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # a callable object, or code without a file
        return repr(getattr(function, "__qualname__", type(function).__qualname__))


def _mode(write: Any, primary_key: Sequence[str], location: SourceLocation) -> WriteMode:
    if write not in list(WriteMode):
        location.fail(f"an output cannot be written by {write!r}", hint=f"use {', '.join(WriteMode)}")
    if write == WriteMode.UPSERT and not primary_key:
        location.fail("an upsert needs a primary key", hint="name the columns of its primary key, which identify a row")
    return WriteMode(write)


def _names(given: Any, what: str, location: SourceLocation) -> tuple[str, ...]:
    # A text is a sequence too, and its characters would be read as names.
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        location.fail(f"the {what} is {given!r}", hint="give a list of names")
    if len(set(given)) < len(given):
        location.fail(f"the {what} names one twice: {', '.join(given)}", hint="leave one out")
    return tuple(given)


def _check_signature(
    function: Callable[..., Any], *, inputs: Sequence[str], parameters: Collection[str], location: SourceLocation
) -> tuple[str, ...]:
    """Return the options of a function besides its inputs. Refuse a function with other parameters."""
    name = getattr(function, "__name__", repr(function))
    taken = inspect.signature(function).parameters.values()
    _check_inputs(name, taken, inputs, location)
    # Inputs are passed by position. A parameter that is keyword-only cannot be taken for one of them.
    options = tuple(each.name for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY)
    for option in options:
        if option not in parameters and option != RESERVED:
            location.fail(
                f"{name}() takes {option!r}, which is not a parameter of the pipeline",
                hint=f"declare it; the parameters are {_listed(parameters)}",
            )
    return options


def _check_inputs(
    name: str, taken: Collection[inspect.Parameter], inputs: Sequence[str], location: SourceLocation
) -> None:
    """Refuse a function that cannot take its inputs by position."""
    frames = [each for each in taken if each.kind in _POSITIONAL]
    is_open = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in taken)
    needed = sum(each.default is inspect.Parameter.empty for each in frames)
    if len(inputs) < needed or (len(inputs) > len(frames) and not is_open):
        location.fail(
            f"{name}() takes {len(frames)} inputs ({_listed(each.name for each in frames)}), and {len(inputs)} are"
            f" declared ({_listed(inputs)})",
            hint="let it take one DataFrame for each input, in their order; parameters come after a '*'",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# The prefix of the names of modules in which pipeline files are executed.
MODULE = "anabranch_pipeline_"
# The file that makes a folder a project.
PROJECT_FILE = "anabranch.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of a pipeline file, and the path it is known by; of a project, all its files as one JSON document."""

    file: str
    content: bytes

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def is_project(self) -> bool:
        return self.name == PROJECT_FILE

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def read_source(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Source:
    """Read a pipeline file, local or in an object store."""
    file = os.fspath(path)
    folder, _, name = file.rpartition("/")
    try:
        content = open_files(folder or ("/" if file.startswith("/") else "."), storage_options).get(name)
    except ObjectNotFoundError:
        raise ObjectNotFoundError(f"there is no file {file!r}", hint="name the file of a pipeline") from None
    return Source(file=file, content=content)


def execute(source: Source) -> ModuleType:
    """Execute a file as a module of its own."""
    # Named by its content, so that two files of one name, or two versions of a file, have different modules.
    module = ModuleType(f"{MODULE}{source.hash[:16]}")
    module.__file__ = source.file
    # Classes search for names of annotations here, and tracebacks for lines.
    sys.modules[module.__name__] = module
    try:
        text = source.content.decode()
        # The text may be from an object store or a commit, where Python does not find the lines for an error.
        linecache.cache[source.file] = (len(text), None, text.splitlines(keepends=True), source.file)
        exec(compile(text, source.file, "exec"), vars(module))  # noqa: S102 - the user's own file
    except UnicodeDecodeError:
        raise InvalidPipelineError(f"{source.file} is not UTF-8", hint="save it as UTF-8") from None
    # It has the location of the declaration already.
    except InvalidPipelineError:
        raise
    except SyntaxError as err:
        SourceLocation(file=err.filename or source.file, line=err.lineno or 1).fail(err.msg, hint="correct the Python")
    except Exception as err:
        problem = f"{_location_in(source.file, err)}: {type(err).__name__}: {err}"
        raise InvalidPipelineError(problem, hint="a pipeline file declares outputs, and does nothing else") from err
    return module


def _location_in(file: str, err: Exception) -> SourceLocation:
    """Return the innermost line of a file that raised an error: deeper frames are those of libraries."""
    lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == file]
    return SourceLocation(file=file, line=(lines or [1])[-1] or 1)


Function = Callable[..., Any]


class PipelineDefinition:
    """The declared outputs, checks and parameters of a pipeline, and the methods that declare them.

    A subclass must not override `__init__` or a method that declares: each records the line that called it.
    """

    def __init__(self, name: str, *, parameters: Mapping[str, Any] | None = None, engine: str = Engine.SPARK) -> None:
        self.location = calling_location()
        if not str(name).strip():
            self.location.fail(f"a pipeline cannot be called {name!r}", hint="give it a name, such as 'shop'")
        self.name = name
        self.engine = parse_engine(engine, self.location)
        self.parameters: Mapping[str, Parameter] = declare_parameters(parameters or {}, self.location)
        self.outputs: dict[str, Output] = {}
        self.checks: dict[str, DeclaredCheck] = {}
        self._source: Source | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, outputs={list(self.outputs)})"

    @property
    def source(self) -> Source:
        """The text of its file."""
        if self._source is not None:
            return self._source
        # The text of an executed file, or of a cell of a notebook, as far as Python has it.
        file = self.location.file
        return Source(file=file, content="".join(linecache.getlines(file)).encode())

    def sql(  # noqa: PLR0913 - all but the SQL by their names
        self,
        table: str,
        sql: str,
        *,
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        checks: Sequence[Mapping[str, Any]] = (),
        description: str = "",
        engine: str | None = None,
    ) -> None:
        """Declare an output by a SELECT over `bucket.table` names, in the SQL of its engine.

        A parameter is written `:name` for Spark and `$name` for DuckDB. `checks` are ready-made ones, such as
        `{"unique": "id"}`.
        """
        how = {"write": write, "primary_key": primary_key, "incremental": incremental, "description": description}
        given = self._declaration(table, calling_location(), engine, **how)
        self._add(sql_output(given, sql, self.parameters), Setting.of(checks, given.location))

    def table(  # noqa: PLR0913 - all but the table by their names
        self,
        table: str,
        *,
        inputs: Sequence[str] = (),
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        checks: Sequence[Mapping[str, Any]] = (),
        description: str = "",
        engine: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare an output by a function of its inputs in order, then the parameters that it names.

        It takes and returns DataFrames on Spark. With the engine `duckdb` it takes Arrow tables, and returns one, or a
        pandas or polars frame.
        """
        how = {"write": write, "primary_key": primary_key, "incremental": incremental, "description": description}
        given = self._declaration(table, calling_location(), engine, **how)

        def declare(function: Function) -> Function:
            self._add(function_output(given, function, inputs, self.parameters), Setting.of(checks, given.location))
            return function

        return declare

    def check(self, name: str, sql: str | None = None) -> Callable[[Function], Function]:
        """Declare what must hold before anything is published: SQL that finds no rows, or a function.

        The function gets the snapshot that is to be published, and returns False or raises if something is wrong.
        """
        location = calling_location()

        def declare(function: Function) -> Function:
            self._add_check(declare_check(name, function, location))
            return function

        if sql is not None:
            self._add_check(declare_check(name, sql, location))
        return declare

    def _declaration(self, key: str, location: SourceLocation, engine: Any, **how: Any) -> Output:
        return Output(key=key, location=location, inputs=(), engine=engine or self.engine, **how)

    def _add(self, output: Output, checks: Setting) -> None:
        known = self.outputs.get(output.key)
        if known is not None:
            output.location.fail(
                f"the output '{output.key}' is declared twice, first at {known.location}", hint="leave one out"
            )
        # Parsed before the output is added, so that a wrong check leaves the pipeline unchanged.
        declared = list(declare_ready_made(output.key, checks))
        self.outputs[output.key] = output
        for check in declared:
            self._add_check(check)

    def _add_check(self, check: DeclaredCheck) -> None:
        known = self.checks.get(check.name)
        if known is not None:
            check.location.fail(
                f"the check {check.name!r} is declared twice, first at {known.location}", hint="give one another name"
            )
        self.checks[check.name] = check
