"""`anabranch clones`: the clones that read a repository's files."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions, example
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.log.clones import CloneInfo

__all__ = ["app"]

app = typer.Typer(help="List the clones of a repository; stop keeping files for one.")


@app.command("list", epilog=example("clones list", "clones list --json"))
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


@app.command("release", epilog=example("clones release 01M7GMZB03Y0YAE5N3J2R7K9QX"))
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
