"""`anabranch help` and `anabranch version`."""

from typing import Annotated

import typer

from anabranch.cli.command import SERVICE, Here, command, group
from anabranch.cli.output import MEANINGS, Answer, Table

__all__ = ["app"]

app = group()


# What `anabranch help refs` shows.
_REFS = {
    "dev": "the newest state of the branch dev",
    "v1.0": "the commit of the tag v1.0",
    "01M7GM3AP": "a commit, by its id or the start of its id",
    "main~3": "three commits before the newest commit of main",
    "main^2": "the second parent of a merge: the merged branch",
    "main@v7": "main after change 7 of 'anabranch reflog'",
    "main@{2026-11-15T10:00:00Z}": "main at a time",
}


@command(app, "help", "help merge", "help branch create", "help refs", "help exit-codes", on=SERVICE)
def show_help(
    here: Here,  # noqa: ARG001 - every command gets it
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            show_default=False,
            help="Command, such as merge or branch create. Or a subject: refs or exit-codes.",
        ),
    ] = None,
) -> Answer | None:
    """Explain a command, the refs or the exit codes."""
    if words == ["refs"]:
        return Answer(document=_REFS, tables=[Table(columns=("ref", "meaning"), rows=tuple(_REFS.items()))])
    if words == ["exit-codes"]:
        codes = {str(code): meaning for code, meaning in MEANINGS.items()}
        return Answer(document=codes, tables=[Table(columns=("code", "meaning"), rows=tuple(codes.items()))])
    from anabranch.cli.main import main  # it loads this module

    main([*(words or []), "--help"])
    return None


@command(app, "version", "version", "version --json", on=SERVICE)
def version(here: Here) -> Answer:  # noqa: ARG001 - every command gets it
    """Show the version of Anabranch and of Python."""
    import platform

    import anabranch

    found = {"anabranch": anabranch.__version__, "python": platform.python_version()}
    return Answer(document=found, sentences=[f"{name} {number}" for name, number in found.items()])
