"""`anabranch relocate`: after a repository was moved or copied."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, StorageOptions, parse_pairs
from anabranch.cli.exit_codes import GENERAL
from anabranch.cli.output import Answer, Table, count, output_for

__all__ = ["relocate"]


def relocate(
    uri: Annotated[
        str,
        typer.Argument(metavar="URI", show_default=False, help="Where the repository is now: a folder or an address."),
    ],
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--mapping",
            metavar="OLD=NEW",
            show_default=False,
            help="Another location that moved, with its new path, such as the source of a clone. Can be repeated.",
        ),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make a moved or copied repository read its new location only.

    After an interruption run it again. The exit code is 1 if a table still reads an unknown location.
    """
    import anabranch

    output = output_for(as_json=as_json)
    with output.progress("relocating") as progress:
        report = anabranch.relocate(
            uri,
            mapping=parse_pairs(mapping, option="--mapping"),
            storage_options=parse_pairs(storage_option, option="--storage-option"),
            progress=progress,
        )
    document = {
        "root": report.root,
        "former_root": report.former_root,
        "datasets": report.datasets,
        "rewritten": report.rewritten,
        "is_complete": report.is_complete,
        "unexplained": [
            {"dataset": found.dataset, "home": found.home, "path": found.path} for found in report.unexplained
        ],
    }
    came = "" if report.former_root == report.root else f", which was at {report.former_root}"
    looked = f"{count(report.datasets, 'dataset')} of {report.root}{came}"
    sentences = [f"checked {looked}; rewrote {count(report.rewritten, 'manifest')}"]
    tables = []
    if report.unexplained:
        rows = tuple((found.dataset, found.home, found.path) for found in report.unexplained)
        sentences.append(
            "not complete: name the new paths of these with --mapping if they moved, or add them as bases of the tables"
        )
        tables.append(Table(columns=("dataset", "home", "reads"), rows=rows))
    output.show(Answer(document=document, sentences=sentences, tables=tables))
    if not report.is_complete:
        raise typer.Exit(GENERAL)
