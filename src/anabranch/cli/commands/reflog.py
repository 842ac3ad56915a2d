"""`anabranch reflog`: every movement of a branch."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Limit, Repo, StorageOptions
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.refs.reflog import Movement

__all__ = ["movement_document", "reflog"]


def reflog(
    branch: Annotated[
        str | None,
        typer.Argument(
            metavar="BRANCH", show_default=False, help="A branch, even a deleted one; by default the current one."
        ),
    ] = None,
    limit: Limit = 20,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List where a branch has been, newest first: commits, resets, deletes, and who did it when."""
    here = open_session(repo=repo, storage_options=storage_option)
    name = branch or here.repository.branch
    found = here.repository.reflog(name, limit=limit + 1)
    movements, has_more = found[:limit], len(found) > limit
    rows = tuple(
        (
            f"{name}@v{movement.number}",
            movement.event.value,
            movement.moved,
            movement.actor,
            short_id(movement.commit_id),
            movement.message.strip().partition("\n")[0],
        )
        for movement in movements
    )
    document = {"branch": name, "movements": [movement_document(one) for one in movements], "has_more": has_more}
    shown = Table(columns=("version", "what", "time (UTC)", "by", "commit", "message"), rows=rows)
    sentences = [f"the newest {count(limit, 'movement')}; --limit shows more"] if has_more else []
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences, tables=[shown]))


def movement_document(movement: "Movement") -> dict[str, object]:
    return {
        "version": movement.number,
        "event": movement.event,
        "at": movement.moved,
        "actor": movement.actor,
        "commit_id": movement.commit_id,
        "message": movement.message,
        "is_deleted": movement.is_deleted,
        "restores": movement.restores,
    }
