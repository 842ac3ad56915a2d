"""Execute a pipeline file, and make outputs from the declarations of a file or a project. Errors name the line."""

import hashlib
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from anabranch.errors import InvalidPipelineError, ObjectNotFoundError
from anabranch.pipelines.declarations import Engine, Output, SourceLocation, WriteMode, parse_engine, parse_key
from anabranch.pipelines.parameters import RESERVED, Parameter
from anabranch.pipelines.statements import Statement, StatementError, parse_duck_statement, parse_statement
from anabranch.storage import open_files

__all__ = [
    "MODULE",
    "Options",
    "PROJECT_FILE",
    "Source",
    "execute",
    "executed_source",
    "function_output",
    "read_source",
    "sql_output",
]


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an output is written and built, as it was given."""

    write: Any = WriteMode.REBUILD
    primary_key: Any = ()
    incremental: Any = ()
    description: str = ""
    engine: Any = Engine.SPARK


def sql_output(
    key: str,
    sql: str,
    options: Options,
    *,
    parameters: Mapping[str, Parameter],
    location: SourceLocation,
    code: str | None = None,
) -> Output:
    """Read an output that one SELECT makes, in the SQL of its engine. `code` is its text if that is not the SQL."""
    engine = parse_engine(options.engine, location)
    statement = _parsed(sql, engine, location)
    for name in statement.parameters:
        if name not in parameters:
            known = f"the parameters are {', '.join(parameters)}" if parameters else "there are none"
            marker = "$" if engine is Engine.DUCKDB else ":"
            location.fail(f"the SQL names the parameter '{marker}{name}'", hint=f"declare it; {known}")
    output = Output(
        key=parse_key(key, location),
        location=location,
        inputs=statement.inputs,
        write=_mode(options.write, options.primary_key, location),
        primary_key=_names(options.primary_key, "primary key", location),
        incremental=_names(options.incremental, "list of incremental inputs", location),
        description=options.description,
        engine=engine,
        code=sql if code is None else code,
        statement=statement,
    )
    return _checked_incremental(output)


def function_output(  # noqa: PLR0913 - by their names
    key: str,
    function: Callable[..., Any],
    inputs: Any,
    options: Options,
    *,
    parameters: Mapping[str, Parameter],
    location: SourceLocation,
    code: str | None = None,
) -> Output:
    """Read an output that a function of its inputs makes. `code` is its text if that is more than the function."""
    names = tuple(parse_key(name, location) for name in _names(inputs, "list of inputs", location))
    engine = parse_engine(options.engine, location)
    taken = _check_signature(function, inputs=names, parameters=parameters, location=location)
    if engine is Engine.DUCKDB and RESERVED in taken:
        location.fail(
            f"{function.__name__}() takes {RESERVED!r}, and its engine is DuckDB", hint="use the engine spark"
        )
    output = Output(
        key=parse_key(key, location),
        location=location,
        inputs=names,
        write=_mode(options.write, options.primary_key, location),
        primary_key=_names(options.primary_key, "primary key", location),
        incremental=_names(options.incremental, "list of incremental inputs", location),
        description=options.description or (function.__doc__ or "").strip(),
        engine=engine,
        code=_text_of(function) if code is None else code,
        function=function,
        options=taken,
    )
    return _checked_incremental(output)


def _checked_incremental(output: Output) -> Output:
    if output.incremental and output.write is WriteMode.REBUILD:
        output.location.fail(
            f"'{output.key}' is rebuilt, and would lose the rows that are not new in its incremental inputs",
            hint="write it by 'append' or 'upsert'",
        )
    for name in output.incremental:
        if name not in output.inputs:
            output.location.fail(
                f"'{name}' is called incremental, and is not an input of '{output.key}'",
                hint=f"its inputs are {', '.join(output.inputs) or 'none'}",
            )
    return output


def _text_of(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # a callable object, or typed in somewhere without a file
        return repr(getattr(function, "__qualname__", type(function).__qualname__))


def _parsed(sql: str, engine: Engine, location: SourceLocation) -> Statement:
    if not isinstance(sql, str):
        location.fail(f"{sql!r} is not SQL", hint="give a SELECT as text")
    try:
        return parse_duck_statement(sql) if engine is Engine.DUCKDB else parse_statement(sql)
    except StatementError as err:
        location.inside(sql, err.line).fail(err.problem, hint=err.hint)


def _mode(write: Any, primary_key: Sequence[str], location: SourceLocation) -> WriteMode:
    if write not in list(WriteMode):
        location.fail(f"an output cannot be written by {write!r}", hint=f"use {', '.join(WriteMode)}")
    if write == WriteMode.UPSERT and not primary_key:
        location.fail("an upsert needs a primary key", hint="name the columns of its primary key, which identify a row")
    return WriteMode(write)


def _names(given: Any, what: str, location: SourceLocation) -> tuple[str, ...]:
    # A text is a sequence too, and its characters would be taken for names.
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        location.fail(f"the {what} is {given!r}", hint="give a list of names")
    if len(set(given)) < len(given):
        location.fail(f"the {what} names one twice: {', '.join(given)}", hint="leave one out")
    return tuple(given)


def _check_signature(
    function: Callable[..., Any], *, inputs: Sequence[str], parameters: Collection[str], location: SourceLocation
) -> tuple[str, ...]:
    """Return the options of a function besides its inputs. Refuse one that takes something else than it gets."""
    name = getattr(function, "__name__", repr(function))
    taken = inspect.signature(function).parameters.values()
    frames = [each for each in taken if each.kind in _POSITIONAL]
    is_open = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in taken)
    needed = sum(each.default is inspect.Parameter.empty for each in frames)
    if len(inputs) < needed or (len(inputs) > len(frames) and not is_open):
        shown = ", ".join(each.name for each in frames) or "none"
        location.fail(
            f"{name}() takes {len(frames)} inputs ({shown}), and {len(inputs)} are declared"
            f" ({', '.join(inputs) or 'none'})",
            hint="let it take one DataFrame for each input, in their order; parameters come after a '*'",
        )
    # Inputs are passed by position. A parameter that is keyword-only cannot be taken for one of them.
    options = tuple(each.name for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY)
    for option in options:
        if option not in parameters and option != RESERVED:
            known = ", ".join(parameters) or "none"
            location.fail(
                f"{name}() takes {option!r}, which is not a parameter of the pipeline",
                hint=f"declare it; the parameters are {known}",
            )
    return options


# How the names of the modules begin that pipeline files are executed as.
MODULE = "anabranch_pipeline_"
# What makes a folder a project.
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


def executed_source(file: str) -> Source:
    """What Python knows of the text of a file, or of a cell of a notebook, that it has executed."""
    return Source(file=file, content="".join(linecache.getlines(file)).encode())


def execute(source: Source) -> ModuleType:
    """Execute a file as a module of its own."""
    # Named by its content, so that two files of one name, or two versions of a file, have different modules.
    module = ModuleType(f"{MODULE}{source.hash[:16]}")
    module.__file__ = source.file
    # Where classes look for the names in their annotations, and tracebacks for lines.
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
        # The innermost line of the file itself: deeper frames are those of libraries.
        lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == source.file]
        problem = f"{SourceLocation(file=source.file, line=(lines or [1])[-1] or 1)}: {type(err).__name__}: {err}"
        raise InvalidPipelineError(problem, hint="a pipeline file declares outputs, and does nothing else") from err
    return module
