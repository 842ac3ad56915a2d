"""Complete branches, tags, tables and columns of the repository of a command line for a shell.

A parameter is completed by its metavar: every TABLE by the names of tables, every BRANCH by those of branches. Nothing
here loads Lance, and nothing is printed on an error, since it would appear in the line that is being typed.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository

# Variables of the script in the shell: the shell, and its request.
_COMPLETE_VARIABLE = "_ANABRANCH_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
# A longer list takes long to read, and does not help.
_MOST = 500

Complete = Callable[["Repository", Any, str], Iterable[str]]
OpenRepository = Callable[[Any], "Repository"]


def prepare_completion() -> None:
    """Prepare Typer to answer if a shell requests completions."""
    if _COMPLETE_VARIABLE in os.environ:
        _typer_completion().completion_init()


def completion_script(shell: str) -> str:
    return str(_typer_completion().get_completion_script(**_settings(shell)))


def install_script(shell: str) -> str:
    """Install the script in the configuration of the shell. Return the path of the script."""
    _, path = _typer_completion().install(**_settings(shell))
    return str(path)


def _settings(shell: str) -> dict[str, str]:
    return {"shell": shell, "prog_name": "anabranch", "complete_var": _COMPLETE_VARIABLE}


def _typer_completion() -> Any:
    return import_module("typer.completion")  # takes a while to load, and has no types


def add_completion(info: Any, open_repository: OpenRepository | None) -> None:
    """Complete an argument or option by its metavar, if that names something of a repository.

    `open_repository` opens the repository that the parameters of a command line name, None for other commands.
    """
    metavar = info.metavar or ""
    if info.autocompletion is not None or not metavar:
        return
    if "|" in metavar:
        info.autocompletion = complete_choices(metavar.split("|"))
    elif open_repository is not None and metavar in _COMPLETERS:
        info.autocompletion = _complete_from(_COMPLETERS[metavar], open_repository)


def without_open_option(words: list[str], parameters: Iterable[Any]) -> list[str]:
    """Return the words of a line that is being typed without a last option whose value is still missing.

    Typer would read none of the words before it.
    """
    names = {name for each in parameters if not getattr(each, "is_flag", False) for name in each.opts}
    return words[:-1] if words and words[-1].startswith("-") and words[-1] in names else words


def complete_choices(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _complete_from(find: Complete, open_repository: OpenRepository) -> Callable[[Any, str], list[str]]:
    def complete(ctx: Any, incomplete: str) -> list[str]:
        try:
            found = find(open_repository(ctx.params), ctx, incomplete)
            return [name for name in found if name.startswith(incomplete)]
        except (AnabranchError, OSError):
            return []

    # Typer passes parameters by their types, or else by these names.
    complete.__annotations__ = {"incomplete": str}
    return complete


def _branches(repository: "Repository", ctx: Any, incomplete: str) -> Iterable[str]:
    """Return the branches for a command. For a restore, these are the deleted ones."""
    is_deleted = ctx.info_name == "restore"
    return [branch.name for branch in repository.branch_list(prefix=incomplete, limit=_MOST, deleted=is_deleted)]


def _tags(repository: "Repository", _: Any, incomplete: str) -> Iterable[str]:
    return [tag.name for tag in repository.tag_list(prefix=incomplete, limit=_MOST)]


def _refs(repository: "Repository", ctx: Any, incomplete: str) -> Iterable[str]:
    """Return branches and tags, also after the dots of a range."""
    # From the right: 'a...b' becomes 'a.', '..' and 'b', so the range keeps its dots when they are joined again.
    before, dots, last = incomplete.rpartition("..")
    return [f"{before}{dots}{name}" for name in (*_branches(repository, ctx, last), *_tags(repository, ctx, last))]


def _tables(repository: "Repository", ctx: Any, _: str) -> Iterable[str]:
    return repository.tables(_ref_of(ctx))


def _columns(repository: "Repository", ctx: Any, incomplete: str) -> Iterable[str]:
    """Return the columns of the table that the command line names, also after the commas of a list."""
    table = next((ctx.params.get(each.name) for each in ctx.command.params if each.metavar == "TABLE"), None)
    if not isinstance(table, str):
        return []
    before, comma, _ = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in repository.table(table, _ref_of(ctx)).columns if name not in given]


def _ref_of(ctx: Any) -> str | None:
    """Return the ref of a command line, from --ref or --branch. None is the current branch."""
    found = ctx.params.get("ref") or ctx.params.get("branch")
    return found if isinstance(found, str) else None


_COMPLETERS: dict[str, Complete] = {
    "A": _refs,
    "B": _refs,
    "BRANCH": _branches,
    "COLUMN": _columns,
    "COMMIT": _refs,
    "COMMIT...": _refs,
    "NAME,...": _columns,
    "REF": _refs,
    "SOURCE": _refs,
    "TABLE": _tables,
    "[TABLE]...": _tables,
    "TAG": _tags,
}
