"""`anabranch clone`: a new repository from a ref of another."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, StorageOptions, parse_pairs
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, count, output_for
from anabranch.config import new_repository_settings
from anabranch.ids import MAIN

__all__ = ["clone"]


def clone(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="The repository to clone: a folder, or an s3://, gs:// or az:// address.",
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", show_default=False, help="Location of the clone. It must be empty.")
    ],
    ref: Annotated[
        str,
        typer.Option("--ref", metavar="REF", help="A branch, a tag, a commit, main~3 or main@v7 of the source."),
    ] = MAIN,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", show_default=False, help="Clone this table only; repeatable."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Copy and compare all files, so that it needs the source no more.")
    ] = False,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    target_storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--target-storage-option",
            metavar="KEY=VALUE",
            envvar="ANABRANCH_TARGET_OPTIONS",
            show_default=False,
            help="A storage option for the target, if it needs others than the source; repeat it for more.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a repository from the tables of another.

    A shallow clone reads the source's files where they are and writes its own; the source keeps what it needs.
    """
    import anabranch

    output = output_for(as_json=as_json)
    settings = new_repository_settings(target, actor=actor)
    with output.progress("cloning") as progress:
        made = anabranch.clone(
            source,
            settings.repository,
            ref=ref,
            tables=table or None,
            shallow=not deep,
            storage_options=parse_pairs(storage_option, option="--storage-option"),
            target_storage_options=parse_pairs(target_storage_option, option="--target-storage-option") or None,
            actor=settings.actor,
            progress=progress,
        )
    snapshot = made.snapshot()
    kind, metadata = "deep" if deep else "shallow", snapshot.commit.metadata
    document = {
        "repository": made.uri,
        "kind": kind,
        "source": metadata["source"],
        "source_commit_id": metadata["source_commit_id"],
        "clone_id": metadata["clone_id"],
        "head_commit_id": snapshot.id,
        "tables": list(snapshot),
    }
    sentence = (
        f"made a {kind} clone of {metadata['source']} at {short_id(metadata['source_commit_id'])}"
        f" in {made.uri}: {count(len(snapshot), 'table')}"
    )
    output.show(Answer(document=document, sentences=[sentence]))
