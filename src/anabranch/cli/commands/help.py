"""`anabranch help` and `anabranch version`."""

from typing import Annotated

import typer

from anabranch.cli.command import SERVICE, Here, command, group
from anabranch.cli.exit_codes import MEANINGS
from anabranch.cli.output import Answer, Table

__all__ = ["app"]

app = group()


@command(app, "help", "help merge", "help branch create", "help exit-codes", on=SERVICE)
def show_help(
    here: Here,  # noqa: ARG001 - every command gets it
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...", show_default=False, help="Command, such as merge or branch create, or exit-codes."
        ),
    ] = None,
) -> Answer | None:
    """Explain a command, or the exit codes."""
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
