"""`anabranch completion`: complete commands and names in a shell."""

from typing import Annotated

import typer

from anabranch.cli.command import SERVICE, Here, command, group
from anabranch.cli.completion import SHELLS, Installation, complete_choices, completion_script, install_completion
from anabranch.cli.output import Answer
from anabranch.errors import InvalidInputError
from anabranch.hints import suggest

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
    """Let the Tab key of your shell complete commands and names.

    Prints the script for a shell, or installs it. Open a new shell afterwards. Names are those of branches, tags,
    tables and columns.
    """
    if shell not in SHELLS:
        hint = suggest(shell, SHELLS, f"use one of {', '.join(SHELLS)}")
        raise InvalidInputError(f"there is no completion for the shell {shell!r}", hint=hint)
    if install:
        return _installed(shell, install_completion(shell))
    script = completion_script(shell)
    if here.as_json:
        return Answer(document={"shell": shell, "script": script})
    typer.echo(script)  # as it is: it has several lines, for a shell
    return None


def _installed(shell: str, done: Installation) -> Answer:
    document = {
        "shell": shell,
        "path": done.path,
        "startup_file": done.startup_file,
        "added_lines": list(done.added_lines),
    }
    sentences = [f"installed the completion for {shell} in {done.path}; open a new shell to use it"]
    undo = f"delete {done.path}"
    if done.startup_file is not None:
        sentences += [f"added to {done.startup_file}:", *(f"  {line}" for line in done.added_lines)]
        undo += f" and remove {'this line' if len(done.added_lines) == 1 else 'these lines'} from {done.startup_file}"
    return Answer(document=document, sentences=[*sentences, f"to undo it, {undo}"])
