"""`anabranch doctor`: whether everything in a repository can be read, and what to do if not."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions, parse_pairs
from anabranch.cli.health import show_health
from anabranch.cli.output import output_for
from anabranch.config import load_settings

__all__ = ["doctor"]


def doctor(
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what can be rebuilt; nothing that was published is removed.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Read every row too, and make sure that primary keys are unique and set.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", show_default=False, help="Only this table. May be repeated."),
    ] = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Check everything that branches, tags and commits can reach.

    It works on a damaged repository too. The exit code is 1 if something is wrong and stays so.
    """
    from anabranch.bootstrap import open_damaged_repository

    options = parse_pairs(storage_option, option="--storage-option")
    settings = load_settings(repository=repo, branch=None, actor=actor)
    repository = open_damaged_repository(settings.repository, storage_options=options, actor=settings.actor)
    output = output_for(as_json=as_json)
    with output.progress("checking") as progress:
        report = repository.doctor(repair=repair, tables=table or None, rows=rows, progress=progress)
    show_health(output, report)
