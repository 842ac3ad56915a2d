"""Hints in the words of the door at which a user reads them: an argument in Python, an option on the command line.

The library writes the code of a hint in Python, between backticks: `overwrite=True` is an argument, `undo()` a method.
That is how a Python program shows it. The command line, the HTTP service, the web UI and Spark SQL translate it with
`words_at`. A hint for a mistyped name asks whether the most similar known name was meant (`suggest`).
"""

import ast
import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import assert_never


class Door(StrEnum):
    """Where a user reads a hint, besides Python."""

    COMMAND_LINE = "command_line"
    HTTP = "http"
    # A page of `anabranch ui`, and a page of a service. They differ in where commands can be run.
    PAGE = "page"
    SERVICE_PAGE = "service_page"
    SPARK_SQL = "spark_sql"


@dataclass(frozen=True, slots=True)
class Words:
    """What a method of a hint is called at each door: its command, and its route, page and SQL if it has one."""

    command: str
    route: str | None = None
    page: str | None = None
    # A statement of Spark SQL, or CALL and a procedure of its catalog.
    sql: str | None = None


METHODS: Mapping[str, Words] = {
    "Dataset.doctor": Words("dataset doctor"),
    "adopt": Words("table adopt"),
    "alter_columns": Words("schema apply", route="PATCH .../columns/{column}", sql="ALTER TABLE"),
    "annotate": Words("schema apply"),
    "append": Words("row insert", route="POST .../rows", sql="INSERT INTO"),
    "branch_create": Words("branch create", page="Branches", sql="CALL create_branch"),
    "branch_list": Words("branch list", route="GET .../branches", page="Branches", sql="CALL list_branches"),
    "branch_rename": Words("branch rename", page="Branches", sql="CALL rename_branch"),
    "clone_drop": Words("dataset clone drop"),
    "clone_list": Words("clone list"),
    "clone_release": Words("dataset clone release"),
    "compact": Words("compact", sql="CALL compact"),
    "conflicts": Words("conflicts", page="Merge", sql="CALL conflicts"),
    "delete": Words("row delete", route="DELETE .../rows", sql="DELETE FROM"),
    "diff": Words("diff", route="GET .../diff", page="Compare", sql="CALL diff"),
    "doctor": Words("doctor", page="Storage"),
    "gc": Words("gc", page="Storage", sql="CALL gc"),
    "index": Words("index", sql="CALL index"),
    "init": Words("init"),
    "iter_graph": Words("log --graph", page="Graph"),
    "list_commits": Words("log", route="GET .../commits", page="Graph", sql="SELECT * FROM bucket.table.history"),
    "load": Words("load", route="POST .../import", page="Load a file", sql="CALL load"),
    "merge": Words("merge", page="Merge", sql="CALL merge"),
    "redo": Words("redo", page="Reflog", sql="CALL redo"),
    "reflog": Words("reflog", page="Reflog", sql="SELECT * FROM bucket.table.history"),
    "relocate": Words("relocate"),
    "reset": Words("reset", sql="CALL reset"),
    "run_get": Words("run show", page="Runs"),
    "run_list": Words("run list", page="Runs"),
    "schema_apply": Words("schema apply"),
    "schema_show": Words("schema show", page="Schema"),
    "set_primary_key": Words("schema apply", route="PUT .../primary-key"),
    "settle": Words("table settle"),
    "sync_branch": Words("log", route="GET .../commits", page="Graph", sql="SELECT * FROM bucket.table.history"),
    "tables": Words("table list", route="GET .../tables", page="Overview", sql="SHOW TABLES"),
    "tag_list": Words("tag list", route="GET .../tags", page="Branches", sql="SELECT * FROM bucket.table.refs"),
    "to_arrow": Words("cat", page="Table", sql="SELECT"),
    "undo": Words("undo", page="Reflog", sql="CALL undo"),
    "update": Words("row update", sql="UPDATE"),
    "upsert": Words("row insert --upsert", route="PUT .../rows", sql="MERGE INTO"),
}
# What the web UI calls an argument.
_LABELS: Mapping[str, str] = {
    "expected_head": "the plan that is shown now",
    "expected_source": "the plan that is shown now",
    "keep_last": "'Keep last commits of each branch'",
    "keep_newer_than": "'Keep days'",
    "primary_key": "'Primary key of a new table'",
    "resolutions": "decisions on single conflicts",
    "resolvers": "rules",
    "strategy": "a choice for all conflicts that are left",
    "where": "'Rows where'",
}
# Options whose name is not that of the argument.
_OPTIONS: Mapping[str, str] = {
    "header": "--no-header",
    "resolvers": "--resolve WHAT=HOW",
    "resolutions": "--resolutions FILE",
    "schema": "--type COLUMN=TYPE",
}
# Without quotes, an empty value is not seen, and these are read as a part of the sentence.
_PUNCTUATION = ("", ",", ";")
_CSV = re.compile(r"CsvOptions\(([a-z]+)=(.*)\)")
_CODE = re.compile(r"`([A-Za-z_.]+)(?:=([^`]*)|\(([^`]*)\))?`")
# Several pieces of code one after the other, such as "`undo()`, `redo()` or `reset()`".
_ENUMERATION = re.compile(r"`[^`]+`(?:(?:, | and | or )`[^`]+`)+")


def words_at(door: Door, hint: str) -> str:
    """Return a hint with its code in the words of a door."""
    return _translate_all(door, _ENUMERATION.sub(lambda found: _without_repetition(door, found[0]), hint))


def _without_repetition(door: Door, enumeration: str) -> str:
    """Translate an enumeration. Several methods may have the same page or route, which is named once."""
    words = [_translate_all(door, code) for code in re.findall(r"`[^`]+`", enumeration)]
    once = list(dict.fromkeys(words))
    if len(once) == len(words):
        return _translate_all(door, enumeration)
    last = " or " if " or " in enumeration else " and "
    return last.join(filter(None, (", ".join(once[:-1]), once[-1])))


def _translate_all(door: Door, text: str) -> str:
    def translate(found: re.Match[str]) -> str:
        name, value, arguments = found.groups()
        if name == "csv" and (inner := _CSV.fullmatch(value or "")):
            name, value = inner.groups()  # the fields of CsvOptions are options and fields of their own
        return _argument(door, name, value) if arguments is None else _method(door, name, arguments)

    return _CODE.sub(translate, text)


def _method(door: Door, name: str, arguments: str) -> str:
    method = METHODS[name]
    command = f"'{' '.join(['anabranch', method.command, *_typed(arguments)])}'"
    # A method without a route or a page is for the operator of a service, so the hint names where to run it.
    in_service = f"{command} where the service runs"
    match door:
        case Door.PAGE | Door.SERVICE_PAGE if method.page is not None:
            return f"the page {method.page}"
        case Door.COMMAND_LINE | Door.PAGE:
            return command
        case Door.HTTP:
            return method.route or in_service
        case Door.SERVICE_PAGE:
            return in_service
        case Door.SPARK_SQL:
            return f"{command} in a shell" if method.sql is None else _sql_call(method.sql, arguments)
        case other:
            assert_never(other)


def _argument(door: Door, name: str, value: str | None) -> str:
    match door:
        case Door.COMMAND_LINE:
            return _option(name, value)
        case Door.HTTP:
            return _field(name, value)
        case Door.PAGE | Door.SERVICE_PAGE:
            return _label(name, value)
        case Door.SPARK_SQL:
            return _named(name, value)
        case other:
            assert_never(other)


def _sql_call(sql: str, arguments: str) -> str:
    """Return a statement of Spark SQL. Only the call of a procedure has the arguments."""
    if not sql.startswith("CALL "):
        return sql
    call = _parse(arguments)
    given = [_sql_literal(_value_of(ast.unparse(each))) for each in call.args]
    given += [_named(each.arg, ast.unparse(each.value)) for each in call.keywords if each.arg is not None]
    return f"CALL system.{sql.removeprefix('CALL ')}({', '.join(given)})"


def _named(name: str, value: str | None) -> str:
    """Return an argument as a named argument of a procedure."""
    return f"'{name}'" if value is None else f"{name} => {_sql_literal(_value_of(value))}"


def _sql_literal(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            doubled = value.replace("'", "''")
            return f"'{doubled}'"
        case list() | tuple():
            return f"array({', '.join(map(_sql_literal, value))})"
        case dict():
            return f"map({', '.join(_sql_literal(each) for pair in value.items() for each in pair)})"
        case _:
            return "..." if value is ... else str(value)


def _option(name: str, value: str | None) -> str:
    if name == "schema" and isinstance(types := _value_of(value or ""), dict):
        return f"--type {shell_text(types)}"
    if name in _OPTIONS:
        return _OPTIONS[name]
    option = f"--{'from' if name == 'source' else name.replace('_', '-')}"
    if value in (None, "True"):
        return option
    return f"{option} {name.upper() if value == '...' else shell_text(_value_of(value or ''))}"


def _field(name: str, value: str | None) -> str:
    if value in (None, "..."):
        return f"'{name}'"
    given = _value_of(value or "")
    if given in _PUNCTUATION:
        return f"{name}={given!r}"
    return f"{name}={str(given).lower() if isinstance(given, bool) else given}"


def _label(name: str, value: str | None) -> str:
    # A form has no name for most arguments, so that only a command can do it.
    if name not in _LABELS:
        return f"{_option(name, value)} in a command"
    given = None if value in (None, "...", "True") else _value_of(value or "")
    return _LABELS[name] if given is None else f"{_LABELS[name]} {shell_text(given)}"


def _typed(arguments: str) -> list[str]:
    """Return the arguments of a call as words and options of a command."""
    call = _parse(arguments)
    words = [shell_text(_value_of(ast.unparse(argument))) for argument in call.args]
    return words + [_option(one.arg, ast.unparse(one.value)) for one in call.keywords if one.arg is not None]


def _parse(arguments: str) -> ast.Call:
    # Parsed as Python, because an argument may contain commas and parentheses itself.
    call = ast.parse(f"call({arguments})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise TypeError(f"{arguments!r} are not the arguments of a call")
    return call


def _value_of(code: str) -> object:
    """Return the value of a literal, or the code itself if it is not one."""
    try:
        return ast.literal_eval(code)
    except (SyntaxError, ValueError):
        return code


def shell_text(value: object) -> str:
    """Return a value as a word of a command; of a list or dict only the first, because the option is repeatable."""
    if isinstance(value, dict):
        return "=".join(map(str, next(iter(value.items()))))
    shown = value[0] if isinstance(value, list) else value
    if shown in _PUNCTUATION:
        return f"'{shown}'"
    return shlex.quote(str(shown)) if re.search(r"[\s'\";|&<>*?$]", str(shown)) else str(shown)


# Comparing a name with this many others takes a few tenths of a second.
_MAX_COMPARED = 10_000
# How similar two names are, from 0 to 1, to be suggested for each other.
_SIMILAR = 0.6


def suggest(name: str, known: Iterable[str], hint: str, *, by_parts: bool = False) -> str:
    """Return a hint that first asks "did you mean 'x'?" if one of the known names is like this one."""
    found = closest(name, known, n=1, by_parts=by_parts)
    return f"did you mean {found[0]!r}? {hint}" if found else hint


def closest(name: str, known: Iterable[str], *, n: int, by_parts: bool = False, cutoff: float = _SIMILAR) -> list[str]:
    """Return the known names that are most like a name, whatever their case, the most similar first.

    With `by_parts`, the parts before and after a dot must both be alike: tables of one bucket are not alike because
    their names begin with it.
    """
    by_folded = {other.casefold(): str(other) for other in islice(known, _MAX_COMPARED)}
    folded = name.casefold()
    candidates = [other for other in by_folded if not by_parts or _are_parts_alike(folded, other, cutoff)]
    return [by_folded[found] for found in difflib.get_close_matches(folded, candidates, n=n, cutoff=cutoff)]


def _are_parts_alike(name: str, other: str, cutoff: float) -> bool:
    parts, others = name.split("."), other.split(".")
    if len(parts) != len(others):
        return True
    return all(difflib.get_close_matches(part, [same], cutoff=cutoff) for part, same in zip(parts, others, strict=True))
