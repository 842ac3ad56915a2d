"""`anabranch lineage`: what a table came from."""

from collections.abc import Mapping
from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, RefOption, Repo, StorageOptions, TableName
from anabranch.cli.output import Answer, Line, output_for
from anabranch.cli.session import open_session

__all__ = ["lineage", "write_drawing"]


def lineage(
    key: TableName,
    ref: RefOption = None,
    svg: Annotated[
        str | None,
        typer.Option(
            "--svg",
            metavar="FILE",
            show_default=False,
            help="Draw it into this file instead, as SVG; on the repository's store, too.",
        ),
    ] = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what a table came from: the tables, pipelines, loads and changes behind it."""
    here = open_session(repo=repo, storage_options=storage_option)
    with here.on_current_branch():
        found = here.repository.lineage(key, ref)
    output = output_for(as_json=as_json)
    if svg is None:
        output.show(Answer(document=found.to_dict(), lines=[Line(line) for line in found.to_text().splitlines()]))
        return
    write_drawing(svg, found.to_svg(), here.repository.storage_options)
    document = {**found.to_dict(), "svg": svg}
    output.show(Answer(document=document, sentences=[f"drew the lineage of {key} into {svg}"]))


def write_drawing(location: str, text: str, storage_options: Mapping[str, str]) -> None:
    """Write a drawing to a local file, or to the store of the repository."""
    # Not at the top: a help text needs no store.
    from anabranch.storage import open_files
    from anabranch.storage.uris import normalise_uri

    folder, _, name = normalise_uri(location).rpartition("/")
    open_files(folder or "/", storage_options).put(name, text.encode())
