"""`anabranch undo`: undo the last movement of a branch."""

from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions
from anabranch.cli.commands.reflog import movement_document
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session

__all__ = ["undo"]


def undo(
    branch: Annotated[
        str | None,
        typer.Argument(
            metavar="BRANCH", show_default=False, help="A branch, even a deleted one; by default the current one."
        ),
    ] = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Undo the last movement of a branch, whatever it was.

    It becomes one more entry of the reflog, so that undoing twice changes nothing.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    name = branch or here.repository.branch
    here.repository.undo(name)
    now, taken_back = here.repository.reflog(name, limit=2)
    document = {
        "branch": name,
        "version": now.number,
        "head_commit_id": None if now.is_deleted else now.commit_id,
        "taken_back": movement_document(taken_back),
    }
    where = f"there is no branch {name} now" if now.is_deleted else f"{name} is at {short_id(now.commit_id)}"
    sentence = f"undid {name}@v{taken_back.number} ({taken_back.event.value}); {where}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))
