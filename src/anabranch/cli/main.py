"""The command `anabranch`: it finds the command of a command line, and handles all errors."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

import anabranch
from anabranch.cli.command import CommandInterruptedError, PlainGroup, UnknownCommandError, hide_storage_options
from anabranch.cli.completion import prepare_completion
from anabranch.cli.options import flag
from anabranch.cli.output import INTERRUPTED, ErrorView, Output, exit_code
from anabranch.display import printable
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.hints import Door, shell_text, words_at
from anabranch.warnings import collect_warnings

# The sections of the help.
PANELS: dict[str, str] = {
    "Start": "init demo status config clone ui serve completion",
    "Branches": "branch switch merge conflicts decisions rebase",
    "History": "log show diff changes blame lineage merge-base tag reflog",
    "Undo and redo": "undo redo revert cherry-pick reset",
    "Tables": "table row cat sql load export schema index compact",
    "Pipelines": "pipeline run",
    "Maintenance": "doctor gc storage relocate",
    "One Lance dataset": "dataset",
    "Help": "help version",
}
# The commands of each module in anabranch.cli.commands. A module is loaded with its first command: a command line waits
# for one module, not for all.
_MODULES: dict[str, str] = {
    "branch": "branch switch tag",
    "config": "config completion help version",
    "dataset": "dataset",
    "diff": "diff changes",
    "files": "load export",
    "history": "log show merge-base reflog undo redo reset",
    "maintenance": "doctor gc storage index compact",
    "merge": "merge conflicts decisions rebase revert cherry-pick",
    "pipeline": "pipeline run",
    "repository": "init demo status clone relocate",
    "row": "row cat sql blame",
    "server": "ui serve",
    "table": "table lineage schema",
}

# Commands of git and of older versions, and their replacements.
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

# Options of git, of older versions and of other commands, and their replacements. The value of the option replaces
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


def _hint_for_extra(message: str, context: Any) -> str | None:
    """Return the option to use for an extra argument, or None. `message` is the error about it."""
    found = _EXTRA.search(message)
    option = _OPTION_FOR_EXTRA.get(context.command_path.partition(" ")[2])
    return None if found is None or option is None else f"use {option} {shell_text(found[1])}"


def _hint_for_option(option: str, context: Any, words: Sequence[str]) -> str | None:
    """Return the hint for an option that a command does not have, or None. `words` is the command line."""
    if context.parent is None:
        return _hint_for_early_options(context, words)
    takes_ref = any("--ref" in parameter.opts for parameter in context.command.params)
    otherwise = "use --ref {value}" if takes_ref and option in ("--branch", "-b") else None
    hint = _OPTION_INSTEAD.get((context.command_path.partition(" ")[2], option), otherwise)
    if hint is None:
        return None
    value, rest = _split_option(option, words)
    arguments = [word for word in rest if not word.startswith("-")][len(context.command_path.split()) - 1 :]
    return hint.format(value=shell_text(value or "NAME"), argument=shell_text(next(iter(arguments), "BRANCH")))


def _hint_for_early_options(context: Any, words: Sequence[str]) -> str | None:
    """Return the hint to write options after the command, or None if there are none before it."""
    first = next((at for at, word in enumerate(words) if word in context.command.commands), 0)
    typed = " ".join(map(shell_text, hide_storage_options([*words[first:], *words[:first]])))
    return f"options come after the command: 'anabranch {typed}'" if first else None


def _split_option(option: str, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of an option, also of one that is written as --to=dev, and the other words."""
    for at, word in enumerate(words):
        if word == option:
            return next(iter(words[at + 1 :]), None), [*words[:at], *words[at + 2 :]]
        if word.startswith(f"{option}="):
            return word.partition("=")[2], [*words[:at], *words[at + 1 :]]
    return None, list(words)


class _Commands(Mapping[str, Any]):
    """All commands by name. Each is loaded when it is read."""

    def __init__(self) -> None:
        modules = {name: module for module, names in _MODULES.items() for name in names.split()}
        self._modules = {name: modules[name] for names in PANELS.values() for name in names.split()}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = import_module(f"anabranch.cli.commands.{self._modules[name]}")
            self._loaded |= typer.main.get_group(module.app).commands
        return self._loaded[name]

    # The method of Mapping would read the item, and so import the module of the command.
    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class _App(PlainGroup):
    """The root of the commands. Every error below becomes a message and an exit code here."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]
        prepare_completion()
        given = list(sys.argv[1:] if args is None else args)
        # Set for errors in the arguments, too, before a command has read them.
        output = Output(as_json="--json" in given)
        try:
            with collect_warnings() as warnings, _showing(warnings):
                # In its standalone mode Typer would handle errors by itself.
                code = super().main(given, prog_name or "anabranch", **more | {"standalone_mode": False})
            if code == INTERRUPTED:  # before the command began
                raise CommandInterruptedError("interrupted; nothing was committed")
        except AnabranchError as error:
            output.fail(_view_of(error))
            code = exit_code(type(error))
        except CommandInterruptedError as error:
            output.stop(error.message)
            code = error.exit_code
        except typer.TyperException as error:
            output.fail(_view_of_usage(error, given))
            code = error.exit_code
        # Without the standalone mode Typer returns the value of the command, which is None after success.
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        # Not while a shell completes: an error would appear in the line that is being typed.
        if word in INSTEAD and word not in self.commands and not ctx.resilient_parsing:
            raise UnknownCommandError(f"there is no command '{word}'", hint=INSTEAD[word])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer's signature
        """Show the commands in their panels, without loading rich as Typer would."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names.split()])


@contextmanager
def _showing(warnings: list[str]) -> Iterator[None]:
    """Show the warnings of a command on stderr, whether it succeeds or fails."""
    try:
        yield
    finally:
        for warning in warnings:
            typer.echo(f"warning: {printable(words_at(Door.COMMAND_LINE, warning))}", err=True)


def _view_of(error: AnabranchError) -> ErrorView:
    hint = words_at(Door.COMMAND_LINE, error.hint)
    view = ErrorView(code=error.code, message=error.problem, hint=hint, retryable=error.retryable)
    if not isinstance(error, MergeConflictError):
        return view
    # Only a refused merge needs it, and every command line loads this module.
    from anabranch.cli.merging import with_conflicts

    return with_conflicts(view, error)


def _view_of_usage(error: typer.TyperException, words: Sequence[str]) -> ErrorView:
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    command = "anabranch" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    instead = _hint_for_option(option, context, words) if context is not None and option is not None else None
    if instead is not None:
        message = f"there is no option {option}"
    elif context is not None:
        instead = _hint_for_extra(message, context)
    hint = error.hint if isinstance(error, UnknownCommandError) else instead or f"see '{command} --help'"
    return ErrorView(code="usage", message=message[:1].lower() + message[1:], hint=hint, retryable=False)


def create_app() -> typer.Typer:
    app = typer.Typer(
        cls=_App,
        name="anabranch",
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        epilog="'anabranch help COMMAND' explains a command. 'anabranch help refs' explains the names of older"
        " states, such as main~3. 'anabranch help exit-codes' lists the exit codes.",
        # Its tracebacks would show local variables, storage options among them.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anabranch {anabranch.__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = flag(  # noqa: ARG001 - its callback does the work
        "--version", "Show the version and exit.", is_eager=True, callback=_show_version
    ),
) -> None:
    """Git-style branches, commits, diffs and merges for a whole lake of Lance tables."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line, the process's own by default, and exit with its code."""
    create_app()(args=args)


if __name__ == "__main__":
    main()
