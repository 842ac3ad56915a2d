"""`anabranch completion`: complete commands and names in a shell."""

from typing import Annotated

import typer

from anabranch.cli.command import SERVICE, Here, command, group
from anabranch.cli.completion import SHELLS, complete_choices, completion_script, install_completion
from anabranch.cli.output import Answer
from anabranch.errors import InvalidInputError
from anabranch.suggestions import suggest

__all__ = ["app"]

app = group()


@command(app, "completion", "completion bash --install", "completion zsh > _anabranch", on=SERVICE)
def completion(
    here: Here,
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            show_default=False,
            help="Shell: bash, zsh or fish.",
            autocompletion=complete_choices(SHELLS),
        ),
    ],
    install: Annotated[
        bool, typer.Option("--install", help="Write the script to your home folder, where the shell finds it.")
    ] = False,
) -> Answer | None:
    """Complete commands and names with the Tab key of a shell.

    Prints the script for a shell, or installs it. Open a new shell afterwards. Names are those of branches, tags,
    tables and columns.
    """
    if shell not in SHELLS:
        hint = suggest(shell, SHELLS, f"use one of {', '.join(SHELLS)}")
        raise InvalidInputError(f"there is no completion for the shell {shell!r}", hint=hint)
    if install:
        path = install_completion(shell)
        sentence = f"installed the completion for {shell} in {path}; open a new shell to use it"
        return Answer(document={"shell": shell, "path": path}, sentences=[sentence])
    script = completion_script(shell)
    if here.as_json:
        return Answer(document={"shell": shell, "script": script})
    typer.echo(script)  # as it is: it has several lines, for a shell
    return None
