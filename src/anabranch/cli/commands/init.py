"""`anabranch init`: make a repository."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, StorageOptions, parse_pairs
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import notes_on
from anabranch.config import new_repository_settings, remember

__all__ = ["init"]


def init(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            show_default=False,
            help="Where: a folder, or an s3://, gs:// or az:// address; by default ANABRANCH_REPO, else this folder.",
        ),
    ] = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Make a repository.

    The current folder remembers it, so that the commands that follow need no --repo.
    """
    import anabranch

    options = parse_pairs(storage_option, option="--storage-option")
    settings = new_repository_settings(path, actor=actor)
    repository = anabranch.init(settings.repository, storage_options=options, actor=settings.actor)
    memory = remember(repository=repository.uri, branch=repository.branch, memory=settings.memory)
    commit_id = repository.head_commit_id_for_branch(repository.branch)
    document = {
        "repository": repository.uri,
        "branch": repository.branch,
        "head_commit_id": commit_id,
        "remembered_in": str(memory.file),
    }
    made = f"made a repository at {repository.uri}, with branch {repository.branch} at {short_id(commit_id)}"
    output_for(as_json=as_json).show(
        Answer(document=document, sentences=[made, *notes_on(memory, before=settings.memory)])
    )
