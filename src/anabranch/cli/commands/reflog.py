"""`anabranch reflog`, `undo`, `redo` and `reset`: the positions of a branch."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import COMMITS, WRITES, Here, command, group
from anabranch.cli.options import Limit, argument, option
from anabranch.cli.output import Answer
from anabranch.cli.texts import Table, first_line, first_page
from anabranch.display import short_id
from anabranch.errors import InvalidInputError
from anabranch.repo.log.entries import BranchEvent

if TYPE_CHECKING:
    from anabranch.repo.refs.reset_and_undo import Movement

app = group()

Steps = Annotated[int, option("--steps", "N", "Number of changes.", min=1)]

_Branch = Annotated[
    str | None, argument("BRANCH", "Name of a branch. A deleted branch works too (default: the current branch).")
]


@command(app, "reflog", "reflog", "reflog dev --limit 5")
def reflog(here: Here, branch: _Branch = None, limit: Limit = 20) -> Answer:
    """List all changes of a branch, newest first.

    A change is, for example, a commit, a merge, a reset, an undo, or the deletion of the branch. Each change has a
    number. 'anabranch reset dev@v7 --branch dev' returns the branch dev to its state after change 7.
    """
    name = branch or here.repository.branch
    found = here.repository.reflog(name, limit=limit + 1)
    movements, has_more, sentences = first_page(found, limit, "newest", "change")
    rows = [
        (
            f"{name}@v{movement.number}",
            movement.change,
            movement.moved,
            movement.actor,
            short_id(movement.commit_id),
            first_line(movement.message),
        )
        for movement in movements
    ]
    document = {"branch": name, "movements": movements, "has_more": has_more}
    shown = Table(("version", "event", "time (UTC)", "by", "commit", "message"), rows)
    former = next((movement.renamed_from for movement in reversed(movements) if movement.renamed_from), None)
    if former is not None:
        sentences.append(f"the branch was called {former} before: 'anabranch reflog {former}' shows more")
    return Answer(document, *sentences, tables=[shown])


@command(app, "undo", "undo", "undo dev", "undo --steps 3", on=WRITES)
def undo(here: Here, branch: _Branch = None, steps: Steps = 1) -> Answer:
    """Undo the last change of a branch.

    The change can be a commit, a merge, a reset, a 'branch pull' or the deletion of the branch. A second undo undoes
    the change before. No data is deleted. 'anabranch redo' restores the change that was undone. 'anabranch reflog'
    lists all changes.
    """
    name = branch or here.repository.branch
    return _repeat(here, here.repository.undo, name, steps, verb="undid", key="undone")


@command(app, "redo", "redo", "redo dev", "redo --steps 3", on=WRITES)
def redo(here: Here, branch: _Branch = None, steps: Steps = 1) -> Answer:
    """Restore the change that was undone last.

    If several changes were undone, each redo restores one change: first the change that was undone last. After a new
    change of the branch, such as a commit, there is nothing to redo. But 'anabranch reset' can still move the branch to
    any state in its reflog.
    """
    name = branch or here.repository.branch
    return _repeat(here, here.repository.redo, name, steps, verb="redid", key="redone")


def _repeat(here: Here, move: "Callable[[str], Movement]", name: str, steps: int, *, verb: str, key: str) -> Answer:
    """Undo or redo several changes, or as many as there are. Raise an error if there is none."""
    movement, done = move(name), 1
    # After the first step an error would be wrong: the branch has moved, and errors mean that nothing changed.
    with suppress(InvalidInputError):
        while done < steps:
            movement, done = move(name), done + 1
    # By the reflog, which a deleted branch has too: an undo or redo may leave the branch deleted.
    (now,) = here.repository.reflog(name, limit=1)
    document = {
        "branch": name,
        "version": now.number,
        "head_commit_id": None if now.is_deleted else now.commit_id,
        key: movement,
        "steps": done,
    }
    where = f"{name} is deleted" if now.is_deleted else f"{name} is at {short_id(now.commit_id)}"
    message = first_line(movement.message) if movement.event is BranchEvent.COMMITTED else ""
    change = f"{movement.event.value}: {message}" if message else movement.change
    sentences = [f"{verb} change {movement.number} of {name} ({change}); {where}"]
    if done < steps:
        sentences.append(f"{verb} {done} of {steps} changes: there are no more")
    if movement.event is BranchEvent.PROTECTED:
        is_protected = here.repository.branch_get(name).is_protected
        sentences.append(f"{name} is {'protected again' if is_protected else 'not protected any more'}")
    return Answer(document, *sentences)


@command(app, "reset", "reset main~1", "reset dev@v7 --branch dev", on=COMMITS)
def reset(
    here: Here,
    to: str = argument(
        "REF",
        "New position: a branch, a tag, a commit, or an older state such as main~3, main@v7 or"
        " main@{2026-11-15T10:00:00Z}. 'anabranch help refs' explains these forms.",
    ),
) -> Answer:
    """Move the current branch to another commit. The old position stays in the reflog.

    After a reset, 'anabranch undo' moves the branch back. A live branch can only be moved to one of its own states,
    such as dev@v7.
    """
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
    return Answer(document, f"reset {after.name} {way}; 'anabranch undo {after.name}' restores it")
