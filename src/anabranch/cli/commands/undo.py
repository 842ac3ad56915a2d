"""`anabranch undo` and `anabranch redo`: steps along the movements of a branch."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions
from anabranch.cli.commands.reflog import movement_document
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import Session, open_session

if TYPE_CHECKING:
    from anabranch.repo.refs.reflog import Movement

__all__ = ["redo", "undo"]

_Branch = Annotated[
    str | None,
    typer.Argument(
        metavar="BRANCH", show_default=False, help="A branch, even a deleted one; by default the current one."
    ),
]


def undo(
    branch: _Branch = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Undo the last movement of a branch: a commit, a reset, a delete, a pull.

    Again, it undoes the movement before that one. 'anabranch redo' goes the other way. Each step is an entry of the
    reflog, and nothing is lost.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    undone = here.repository.undo(branch or here.repository.branch)
    _show(here, branch, undone, verb="undid", key="undone", as_json=as_json)


def redo(
    branch: _Branch = None,
    repo: Repo = None,
    actor: Actor = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Redo the movement that the last undo undid.

    Again, it redoes the one that was undone before. After any other movement of the branch there is nothing to redo;
    'anabranch reset' goes to any position of the reflog.
    """
    here = open_session(repo=repo, storage_options=storage_option, actor=actor)
    redone = here.repository.redo(branch or here.repository.branch)
    _show(here, branch, redone, verb="redid", key="redone", as_json=as_json)


def _show(here: Session, branch: str | None, movement: "Movement", *, verb: str, key: str, as_json: bool) -> None:
    name = branch or here.repository.branch
    (now,) = here.repository.reflog(name, limit=1)
    document = {
        "branch": name,
        "version": now.number,
        "head_commit_id": None if now.is_deleted else now.commit_id,
        key: movement_document(movement),
    }
    where = f"there is no branch {name} now" if now.is_deleted else f"{name} is at {short_id(now.commit_id)}"
    sentence = f"{verb} {name}@v{movement.number} ({movement.event.value}); {where}"
    output_for(as_json=as_json).show(Answer(document=document, sentences=[sentence]))
