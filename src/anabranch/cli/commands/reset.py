"""`anabranch reset`: put a branch on another commit."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session

__all__ = ["reset"]


def reset(
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The branch to put elsewhere.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="REF",
            show_default=False,
            help="Where to: a branch, a tag, a commit, main~3, main@v7 or main@{2026-11-15T10:00:00Z}.",
        ),
    ],
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Put a branch on what a ref stands for.

    The old position stays in the reflog, and undo restores it.
    """
    repository = open_session(repo=repo, storage_options=storage_option, actor=actor).repository
    before = repository.branch_get(branch)
    repository.reset(branch, to=to)
    after = repository.branch_get(branch)
    document = {
        "branch": branch,
        "head_commit_id": after.head_commit_id,
        "previous_commit_id": before.head_commit_id,
        "version": after.version,
    }
    way = f"from {short_id(before.head_commit_id)} to {short_id(after.head_commit_id)}"
    sentence = f"reset {branch} {way}; 'anabranch undo {branch}' restores it"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))
