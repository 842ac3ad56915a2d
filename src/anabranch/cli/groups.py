"""Groups of commands: what a group does without a command, answers for commands that do not exist here, and values.

Typer converts each value of an argument or option by pydantic, whose import takes longer than the work of a short
command. Text, whole numbers and lists of text need no such help. Any other value, and any wrong one, is left to Typer,
so that errors are the same.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from anabranch.cli.output import INTERRUPTED, USAGE
from anabranch.hints import shell_text

_OTHER = object()


class PlainCommand(TyperCommand):
    """A command that converts plain values without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands that converts plain values without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))


def _with_plain_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # Where Typer keeps its own conversion, once it has made one.
        if getattr(parameter, "_runtime_param", _OTHER) is None:
            parameter._runtime_param = _PlainValues(parameter)
    return parameters


class _PlainValues:
    """Stands in for Typer's conversion of one parameter until there is a value that is not plain."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        found = _convert(value, self._parameter)
        if found is not _OTHER:
            return found
        # Typer makes its own conversion only while this is None.
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _convert(value: Any, parameter: Any) -> Any:
    """Return a value as Typer would, or `_OTHER` if it is not plain."""
    described = parameter.type_descriptor
    if value is None:
        return () if parameter.nargs == -1 or getattr(parameter, "multiple", False) else None
    if described.annotation is str and isinstance(value, str):
        return value
    if described.annotation == list[str] and isinstance(value, list | tuple):
        return list(value) if all(isinstance(item, str) for item in value) else _OTHER
    if described.annotation is int:
        return _number(value, described.parameter_info)
    return _OTHER


def _number(value: Any, limits: Any) -> Any:
    # Only plain digits: int() also accepts spaces, underscores and digits of other scripts, which are left to Typer.
    if not isinstance(value, int | str) or not re.fullmatch("-?[0-9]{1,18}", str(value)):
        return _OTHER
    number = int(value)
    is_low = limits.min is not None and number < limits.min
    is_high = limits.max is not None and number > limits.max
    return _OTHER if is_low or is_high or limits.clamp else number


# Words of git and of older versions, and what to use here.
INSTEAD: dict[str, str] = {
    "add": "there is no staging area: 'anabranch load' and 'anabranch row insert' change a table and commit at once",
    "checkout": "use 'anabranch switch BRANCH', or read an older state with --ref, such as"
    " 'anabranch cat TABLE --ref v1.0'",
    "branches": "use 'anabranch branch list'",
    "clones": "use 'anabranch clone list' or 'anabranch clone release'",
    "commit": "every command that changes data makes its own commit, such as 'anabranch row update' or"
    " 'anabranch load'; see them with 'anabranch log'",
    "drop": "use 'anabranch table drop TABLE'",
    "fetch": "there is no remote repository: every command reads the newest state",
    "head": "use 'anabranch cat TABLE', which shows the first rows",
    "import": "use 'anabranch load TABLE FILE'",
    "insert": "use 'anabranch row insert TABLE JSON', or 'anabranch load TABLE FILE' for a file",
    "ls": "use 'anabranch table list', 'anabranch branch list' or 'anabranch tag list'",
    "pull": "there is no remote repository: every command reads the newest state. To take in the changes of another"
    " branch use 'anabranch merge BRANCH', or 'anabranch branch pull BRANCH TABLE' for one table",
    "push": "there is no remote repository: a commit is visible to all readers at once",
    "query": "use 'anabranch sql STATEMENT'",
    "remote": "there is no remote repository; copy one with 'anabranch clone create SOURCE TARGET'",
    "restore": "use 'anabranch undo', 'anabranch reset REF', or 'anabranch branch restore BRANCH' for a deleted branch",
    "rm": "use 'anabranch table drop TABLE', 'anabranch branch delete BRANCH' or 'anabranch tag delete TAG'",
    "select": "use 'anabranch sql STATEMENT'",
    "stash": "there are no uncommitted changes: create a branch with 'anabranch switch -c BRANCH' and work there",
    "tables": "use 'anabranch table list'",
    "tags": "use 'anabranch tag list'",
    "update": "use 'anabranch row update TABLE'",
}

# Options of git, of older versions and of other commands, and what to use here. The value of the option replaces
# {value}, and the argument of the command {argument}.
_OPTION_INSTEAD: dict[tuple[str, str], str] = {
    ("branch list", "-d"): "use 'anabranch branch delete {value}'",
    ("branch list", "-D"): "use 'anabranch branch delete {value}'",
    ("reset", "--hard"): "there are no uncommitted changes: use 'anabranch reset {value}'",
    ("rebase", "--onto"): "use 'anabranch rebase {value} --branch {argument}'",
    ("reset", "--to"): "use 'anabranch reset {value} --branch {argument}'",
    ("reset", "--soft"): "there are no uncommitted changes: use 'anabranch reset {value}'",
    ("tag list", "-d"): "use 'anabranch tag delete {value}'",
}

# The option for an argument that a command has no position for: git has `branch NAME START`.
_OPTION_FOR_EXTRA: dict[str, str] = {
    "branch create": "--from",
    "diff": "--table",
    "row delete": "--where",
    "row update": "--set",
    "switch": "--from",
    "tag create": "--ref",
}
_EXTRA = re.compile(r"unexpected extra argument\(s\) \((.+)\)")


def hint_for_extra(message: str, context: Any) -> str | None:
    """Return the option to use for an argument too many, or None. `message` is the error about it."""
    found = _EXTRA.search(message)
    option = _OPTION_FOR_EXTRA.get(context.command_path.partition(" ")[2])
    return None if found is None or option is None else f"use {option} {shell_text(found[1])}"


def hint_for_option(option: str, context: Any, words: Sequence[str]) -> str | None:
    """Return what to use instead of an option that a command does not have, or None. `words` is the command line."""
    known = {each for parameter in context.command.params for each in parameter.opts}
    hint = _OPTION_INSTEAD.get((context.command_path.partition(" ")[2], option))
    if hint is None and option in ("--branch", "-b") and "--ref" in known:
        hint = "use --ref {value}"
    if hint is None:
        return None
    value, rest = _split_option(option, words)
    arguments = [word for word in rest if not word.startswith("-")][len(context.command_path.split()) - 1 :]
    given = {"{value}": value or "NAME", "{argument}": arguments[0] if arguments else "BRANCH"}
    for place, word in given.items():
        hint = hint.replace(place, shell_text(word))
    return hint


def _split_option(option: str, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of an option, also of one that is written as --to=dev, and the other words."""
    for at, word in enumerate(words):
        if word == option:
            return next(iter(words[at + 1 :]), None), [*words[:at], *words[at + 2 :]]
        if word.startswith(f"{option}="):
            return word.partition("=")[2], [*words[:at], *words[at + 1 :]]
    return None, list(words)


class UnknownCommandError(typer.TyperException):
    """A command that does not exist, with a hint that names the one to use."""

    exit_code = USAGE

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class CommandInterruptedError(typer.TyperException):
    """A command that was stopped by Ctrl-C."""

    exit_code = INTERRUPTED


class WordGroup(PlainGroup):
    """A group that knows some words which are not its commands, and names what to use instead."""

    instead: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        # Not while a shell completes: an error would appear in the line that is being typed.
        if word in self.instead and word not in self.commands and not ctx.resilient_parsing:
            raise UnknownCommandError(f"there is no command '{word}'", hint=self.instead[word])
        return super().resolve_command(ctx, args)


class ListGroup(PlainGroup):
    """A group that lists without a command: `anabranch branch` is `anabranch branch list`."""

    # The command for those who leave it out, as with git: `branch dev`.
    otherwise: ClassVar[str | None] = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if ctx.resilient_parsing:  # a shell completes the name of the command
            is_list = False
        return super().parse_args(ctx, ["list", *args] if is_list else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as err:
            # Typer has found a command with a similar name, which is more likely than a missing command.
            if self.otherwise is None or "Did you mean" in err.format_message():
                raise
            hint = f"use '{self.otherwise} {' '.join(args)}', or see '{ctx.command_path} --help'"
            raise UnknownCommandError(err.format_message().rstrip("."), hint=hint) from err
