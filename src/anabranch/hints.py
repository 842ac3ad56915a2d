"""Hints in the words of the door at which a user reads them: an argument in Python, an option on the command line.

The library writes the code of a hint in Python, between backticks: `overwrite=True` is an argument, `undo()` a method.
That is how a Python program shows it. The command line and the HTTP service translate it with `words_at`.
"""

import ast
import re
import shlex
from collections.abc import Mapping
from enum import StrEnum

__all__ = ["COMMANDS", "Door", "code_in", "words_at"]


class Door(StrEnum):
    """Where a user reads a hint, besides Python."""

    COMMAND_LINE = "command_line"
    HTTP = "http"


# The command for each method that a hint may name.
COMMANDS: Mapping[str, str] = {
    "Dataset.doctor": "dataset doctor",
    "adopt": "table adopt",
    "alter_columns": "schema apply",
    "annotate": "schema apply",
    "append": "row insert",
    "branch_create": "branch create",
    "branch_list": "branch list",
    "clone_drop": "dataset clone drop",
    "clone_release": "dataset clone release",
    "compact": "compact",
    "conflicts": "conflicts",
    "delete": "row delete",
    "diff": "diff",
    "doctor": "doctor",
    "gc": "gc",
    "index": "index",
    "iter_graph": "log --graph",
    "load": "load",
    "merge": "merge",
    "redo": "redo",
    "reflog": "reflog",
    "relocate": "relocate",
    "reset": "reset",
    "run_get": "run show",
    "schema_apply": "schema apply",
    "schema_show": "schema show",
    "set_primary_key": "schema apply",
    "settle": "table settle",
    "sync_branch": "log",
    "to_arrow": "cat",
    "undo": "undo",
    "update": "row update",
    "upsert": "row insert --upsert",
}
# The route for each method that the HTTP service has, too.
_ROUTES: Mapping[str, str] = {
    "alter_columns": "PATCH .../columns/{column}",
    "append": "POST .../rows",
    "delete": "DELETE .../rows",
    "diff": "GET .../diff",
    "load": "POST .../import",
    "set_primary_key": "PUT .../primary-key",
    "sync_branch": "GET .../commits",
    "upsert": "PUT .../rows",
}
# Options whose name is not that of the argument.
_OPTIONS: Mapping[str, str] = {
    "header": "--no-header",
    "resolvers": "--resolve WHAT=HOW",
    "resolutions": "--resolutions FILE",
    "schema": "--type COLUMN=TYPE",
}
_CSV = re.compile(r"CsvOptions\(([a-z]+)=(.*)\)")
_CODE = re.compile(r"`([A-Za-z_.]+)(?:=([^`]*)|\(([^`]*)\))?`")


def code_in(hint: str) -> list[str]:
    """List the code of a hint, without its backticks."""
    return [found[0][1:-1] for found in _CODE.finditer(hint)]


def words_at(door: Door, hint: str) -> str:
    """Return a hint with its code in the words of a door."""
    return _CODE.sub(lambda found: _translate(door, found), hint)


def _translate(door: Door, found: re.Match[str]) -> str:
    name, value, arguments = found.groups()
    if name == "csv" and (inner := _CSV.fullmatch(value or "")):
        name, value = inner.groups()  # the fields of CsvOptions are options and fields of their own
    if arguments is None:
        return _option(name, value) if door is Door.COMMAND_LINE else _field(name, value)
    if door is Door.HTTP and name in _ROUTES:
        return _ROUTES[name]
    # A method without a route is for the operator of the service, so the hint names the command and where to run it.
    command = f"'{' '.join(['anabranch', COMMANDS[name], *_typed(arguments)])}'"
    return command if door is Door.COMMAND_LINE else f"{command} where the service runs"


def _option(name: str, value: str | None) -> str:
    if name in _OPTIONS:
        return _OPTIONS[name]
    option = f"--{'from' if name == 'source' else name.replace('_', '-')}"
    if value in (None, "True"):
        return option
    return f"{option} {name.upper() if value == '...' else _shell_text(_value_of(value or ''))}"


def _field(name: str, value: str | None) -> str:
    if value in (None, "..."):
        return f"'{name}'"
    given = _value_of(value or "")
    return f"{name}={str(given).lower() if isinstance(given, bool) else given}"


def _typed(arguments: str) -> list[str]:
    """Return the arguments of a call as words and options of a command."""
    # Parsed as Python, because an argument may contain commas and parentheses itself.
    call = ast.parse(f"call({arguments})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise TypeError(f"{arguments!r} are not the arguments of a call")
    words = [_shell_text(_value_of(ast.unparse(argument))) for argument in call.args]
    return words + [_option(one.arg, ast.unparse(one.value)) for one in call.keywords if one.arg is not None]


def _value_of(code: str) -> object:
    """Return the value of a literal, or the code itself if it is not one."""
    try:
        return ast.literal_eval(code)
    except (SyntaxError, ValueError):
        return code


def _shell_text(value: object) -> str:
    """Return a value as a word of a command; of a list or dict only the first, because the option is repeatable."""
    if isinstance(value, dict):
        return "=".join(map(str, next(iter(value.items()))))
    shown = value[0] if isinstance(value, list) else value
    return shlex.quote(str(shown)) if re.search(r"[\s'\";|&<>*?$]", str(shown)) else str(shown)
