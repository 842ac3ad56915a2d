"""`anabranch reset`: move a branch to another commit."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, BranchOption, Repo, StorageOptions
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session

__all__ = ["reset"]


def reset(
    to: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            show_default=False,
            help="New position: a branch, a tag, a commit, main~3, main@v7 or main@{2026-11-15T10:00:00Z}.",
        ),
    ],
    branch: BranchOption = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Move the current branch to another commit. The old position stays in the reflog.

    'anabranch undo' moves the branch back.
    """
    here = open_session(repo=repo, storage_options=storage_option, branch=branch, actor=actor)
    before = here.current()
    here.repository.reset(before.name, to=to)
    after = here.repository.branch_get(before.name)
    document = {
        "branch": after.name,
        "head_commit_id": after.head_commit_id,
        "previous_commit_id": before.head_commit_id,
        "version": after.version,
    }
    way = f"from {short_id(before.head_commit_id)} to {short_id(after.head_commit_id)}"
    sentence = f"reset {after.name} {way}; 'anabranch undo {after.name}' restores it"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))
