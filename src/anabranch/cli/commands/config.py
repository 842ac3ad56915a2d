"""`anabranch config`, `completion`, `help` and `version`: settings, and the command line itself."""

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.command import SERVICE, Here, add_group, command, group
from anabranch.cli.completion import SHELLS, complete_choices, completion_script, install_script
from anabranch.cli.options import argument, flag
from anabranch.cli.output import MEANINGS, Answer
from anabranch.cli.texts import Table
from anabranch.config import Source, load_config, write_config
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.hints import suggest

app = group()
settings = add_group(app, "config", help="List, get, set and unset settings, such as your name.")

SettingName = Annotated[str, argument("NAME", "actor, repository, or storage.OPTION such as storage.aws_region.")]
OfUser = Annotated[bool, flag("--user", "Use the settings of the user, not of this folder.")]


@command(settings, "list", "config list", "config --json", on=SERVICE)
def list_settings(here: Here) -> Answer:  # noqa: ARG001 - every command gets it
    """List all settings and where they come from."""
    found = load_config()
    rows = [(name, one.value, one.source.value, str(one.file)) for name, one in found.items()]
    document = {name: {"value": one.value, "source": one.source, "file": str(one.file)} for name, one in found.items()}
    return Answer({"settings": document}, tables=[Table(("setting", "value", "of", "file"), rows, empty="no settings")])


@command(settings, "get", "config get actor", on=SERVICE)
def get_setting(here: Here, name: SettingName) -> Answer:  # noqa: ARG001 - every command gets it
    """Print the value of a setting."""
    found = load_config().get(name)
    if found is None:
        raise NotFoundError(f"{name!r} is not set", hint="list the settings with 'anabranch config'")
    return Answer({"name": name, "value": found.value, "source": found.source}, found.value)


@command(settings, "set", "config set actor ada --user", "config set storage.aws_region us-east-1", on=SERVICE)
def set_setting(
    here: Here,  # noqa: ARG001 - every command gets it
    name: SettingName,
    value: str = argument("VALUE", "The new value."),
    user: OfUser = False,
) -> Answer:
    """Set a setting of this folder, or of the user."""
    file = write_config(name, value, source=Source.USER if user else Source.FOLDER)
    return Answer({"name": name, "value": value, "file": str(file)}, f"set {name} to {value} in {file}")


@command(settings, "unset", "config unset actor --user", on=SERVICE)
def unset_setting(here: Here, name: SettingName, user: OfUser = False) -> Answer:  # noqa: ARG001 - every command gets it
    """Remove a setting of this folder, or of the user."""
    file = write_config(name, None, source=Source.USER if user else Source.FOLDER)
    return Answer({"name": name, "file": str(file)}, f"removed {name} from {file}")


# The text of `anabranch help refs`.
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
    words: list[str] | None = argument(
        "[COMMAND]...", "Command, such as merge or branch create. Or a subject: refs or exit-codes.", default=None
    ),
) -> Answer | None:
    """Explain a command, the refs or the exit codes."""
    if words == ["refs"]:
        return Answer(_REFS, tables=[Table(("ref", "meaning"), tuple(_REFS.items()))])
    if words == ["exit-codes"]:
        codes = {str(code): meaning for code, meaning in MEANINGS.items()}
        return Answer(codes, tables=[Table(("code", "meaning"), tuple(codes.items()))])
    from anabranch.cli.main import main  # it imports this module

    main([*(words or []), "--help"])
    return None


@command(app, "version", "version", "version --json", on=SERVICE)
def version(here: Here) -> Answer:  # noqa: ARG001 - every command gets it
    """Show the version of Anabranch and of Python."""
    import platform

    import anabranch

    found = {"anabranch": anabranch.__version__, "python": platform.python_version()}
    return Answer(found, *[f"{name} {number}" for name, number in found.items()])


@command(app, "completion", "completion bash --install", "completion zsh > _anabranch", on=SERVICE)
def completion(
    here: Here,
    shell: str = argument("SHELL", "Shell: bash, zsh or fish.", autocompletion=complete_choices(SHELLS)),
    install: bool = flag("--install", "Write the script to your home folder, where the shell finds it."),
) -> Answer | None:
    """Let the Tab key of your shell complete commands and names.

    Prints the script for a shell, or installs it. Open a new shell afterwards. Names are those of branches, tags,
    tables and columns.
    """
    if shell not in SHELLS:
        hint = suggest(shell, SHELLS, f"use one of {', '.join(SHELLS)}")
        raise InvalidInputError(f"there is no completion for the shell {shell!r}", hint=hint)
    if install:
        return _install(shell)
    script = completion_script(shell)
    if here.as_json:
        return Answer({"shell": shell, "script": script})
    typer.echo(script)  # unchanged: it has several lines, for a shell
    return None


# The file that each shell reads when it starts, and that an installation adds lines to. Fish needs none.
_STARTUP_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}


def _install(shell: str) -> Answer:
    startup = Path.home() / _STARTUP_FILES[shell] if shell in _STARTUP_FILES else None
    before = _read_lines(startup)
    path = install_script(shell)
    added = [line for line in _read_lines(startup) if line.strip() and line not in before]
    document = {"shell": shell, "path": path, "startup_file": str(startup) if added else None, "added_lines": added}
    sentences = [f"installed the completion for {shell} in {path}; open a new shell to use it"]
    undo = f"delete {path}"
    if added:
        sentences += [f"added to {startup}:", *(f"  {line}" for line in added)]
        undo += f" and remove {'this line' if len(added) == 1 else 'these lines'} from {startup}"
    return Answer(document, *sentences, f"to undo it, {undo}")


def _read_lines(file: Path | None) -> list[str]:
    return file.read_text().splitlines() if file is not None and file.is_file() else []
