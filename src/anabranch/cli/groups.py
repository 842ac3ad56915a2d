"""Groups of commands: what a group does without a command, and answers for commands that do not exist here."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import typer

from anabranch.cli.exit_codes import INTERRUPTED, USAGE
from anabranch.cli.plain_values import PlainGroup

__all__ = ["INSTEAD", "CommandInterruptedError", "ListGroup", "UnknownCommandError", "WordGroup", "hint_for_option"]

# Words of git and of older versions, and what to use here.
INSTEAD: dict[str, str] = {
    "add": "there is no staging area: 'anabranch load' and 'anabranch row insert' change a table and commit at once",
    "checkout": "use 'anabranch switch BRANCH', or read an older state with --ref, such as"
    " 'anabranch cat TABLE --ref v1.0'",
    "clones": "use 'anabranch clone list' or 'anabranch clone release'",
    "commit": "every command that changes data makes its own commit, such as 'anabranch row update' or"
    " 'anabranch load'; see them with 'anabranch log'",
    "fetch": "there is no remote repository: every command reads the newest state",
    "pull": "there is no remote repository: every command reads the newest state. To take in the changes of another"
    " branch use 'anabranch merge BRANCH', or 'anabranch branch pull BRANCH TABLE' for one table",
    "push": "there is no remote repository: a commit is visible to all readers at once",
    "remote": "there is no remote repository; copy one with 'anabranch clone create SOURCE TARGET'",
    "restore": "use 'anabranch undo', 'anabranch reset REF', or 'anabranch branch restore BRANCH' for a deleted branch",
    "rm": "use 'anabranch table drop TABLE', 'anabranch branch delete BRANCH' or 'anabranch tag delete TAG'",
    "stash": "there are no uncommitted changes: create a branch with 'anabranch switch -c BRANCH' and work there",
}

# Options of git, and of other commands, and what to use here. The word after the option replaces '{}'.
_OPTION_INSTEAD: dict[tuple[str, str], str] = {
    ("branch list", "-d"): "use 'anabranch branch delete {}'",
    ("branch list", "-D"): "use 'anabranch branch delete {}'",
    ("reset", "--hard"): "there are no uncommitted changes: use 'anabranch reset {}'",
    ("reset", "--soft"): "there are no uncommitted changes: use 'anabranch reset {}'",
    ("tag list", "-d"): "use 'anabranch tag delete {}'",
}


def hint_for_option(option: str, context: Any, words: Sequence[str]) -> str | None:
    """Return what to use instead of an option that a command does not have, or None. `words` is the command line."""
    known = {each for parameter in context.command.params for each in parameter.opts}
    hint = _OPTION_INSTEAD.get((context.command_path.partition(" ")[2], option))
    if hint is None and option in ("--branch", "-b") and "--ref" in known:
        hint = "use --ref {}"
    # An option written as --branch=dev is not a word of its own.
    after = words[words.index(option) + 1 :] if option in words else []
    return hint and hint.replace("{}", shlex.quote(after[0]) if after else "NAME")


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
