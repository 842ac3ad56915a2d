"""`anabranch clone`: a new repository from the tables of another one, and the clones that a repository knows."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions, example, parse_pairs
from anabranch.cli.commits import short_id
from anabranch.cli.groups import ListGroup
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session
from anabranch.config import new_repository_settings
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.repo.log.clones import CloneInfo

__all__ = ["app"]


class _Clones(ListGroup):
    otherwise = "anabranch clone create"


app = typer.Typer(cls=_Clones, help="Clone a repository, and list and release its clones.")


@app.command(
    "create",
    epilog=example("clone create lake experiment", "clone create s3://bucket/lake backup --deep --ref v1.0"),
)
def create(
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


@app.command("list", epilog=example("clone list", "clone list --json"))
def list_(repo: Repo = None, storage_option: StorageOptions = None, as_json: AsJson = False) -> None:
    """List the clones that were made of a repository.

    What a registered one reads is kept from garbage collection.
    """
    clones = open_session(repo=repo, storage_options=storage_option).repository.clone_list()
    rows = tuple(
        (
            clone.id,
            clone.target,
            clone.kind.value,
            short_id(clone.commit_id),
            count(len(clone.tables), "table"),
            clone.created,
            clone.state.value,
        )
        for clone in clones
    )
    columns = ("id", "clone", "kind", "of", "reads", "created (UTC)", "state")
    document = {"clones": [_document(clone) for clone in clones]}
    output_for(as_json=as_json).show(
        Answer(document=document, tables=[Table(columns=columns, rows=rows, empty="no clones")])
    )


@app.command("release", epilog=example("clone release 01M7GMZB03Y0YAE5N3J2R7K9QX"))
def release(
    clone_id: Annotated[str, typer.Argument(metavar="ID", help="The clone, as 'list' shows it.", show_default=False)],
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Stop keeping what a clone reads.

    For a clone that is gone, or that was cut off while it was made: one that still reads the source will break.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    clone = here.repository.clone_release(clone_id)
    output_for(as_json=as_json).show(
        Answer(document=_document(clone), sentences=[f"released {clone.id}, the clone at {clone.target}"])
    )


def _document(clone: "CloneInfo") -> dict[str, object]:
    return {
        "id": clone.id,
        "target": clone.target,
        "kind": clone.kind,
        "commit_id": clone.commit_id,
        "tables": clone.tables,
        "created_at": clone.created,
        "created_by": clone.created_by,
        "state": clone.state,
    }
