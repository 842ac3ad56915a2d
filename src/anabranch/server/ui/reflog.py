"""The movements of a branch, newest first, with undo and redo."""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import BusyError, InvalidInputError, WriteConflictError
from anabranch.ids import MAIN
from anabranch.repo.refs.reflog import Movement
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "ReflogView"]

_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflogView:
    """`version` is the newest movement: undo is refused after a later one. `next` is where the next page begins.

    `former` is the name that the branch had before the oldest movement of the page, if it was renamed there.
    """

    branch: str
    name: str
    choices: RefChoices
    movements: tuple[Movement, ...]
    version: int
    is_first: bool
    next: int | None
    former: str | None


def show_reflog(visit: Visit) -> Shown:
    """List the movements of a branch."""
    branch, is_first = visit.query("branch") or MAIN, not visit.query("after")
    after = None if is_first else visit.number("after")
    found = visit.lake.repository.reflog(branch, limit=_SIZE + 1, after=after)
    shown = tuple(found[:_SIZE])
    view = ReflogView(
        branch=branch,
        name=visit.lake.host.branch_names().get(branch, branch),
        choices=visit.lake.list_choices(),
        movements=shown,
        version=found[0].number if is_first else 0,
        is_first=is_first,
        next=found[_SIZE - 1].number if len(found) > _SIZE else None,
        former=next((one.renamed_from for one in reversed(shown) if one.renamed_from), None),
    )
    return Shown("reflog.html", view)


def undo(visit: Visit) -> Redirect:
    """Undo the last movement of a branch."""
    return _move(visit, visit.lake.repository.undo, "Undone")


def redo(visit: Visit) -> Redirect:
    """Redo the movement that was undone last."""
    return _move(visit, visit.lake.repository.redo, "Redone")


def _move(visit: Visit, move: Callable[..., Movement], word: str) -> Redirect:
    branch = visit.field("branch") or MAIN
    version = visit.field("version")
    if not (version.isascii() and version.isdigit() and len(version) <= 18):
        raise InvalidInputError("the form does not state which movement it is about", hint="open the page again")
    try:
        # The visitor decided by the movements on the page. After a later movement, another change would be undone.
        movement = move(branch, expected_version=int(version))
    except BusyError as err:
        raise WriteConflictError(
            f"branch '{branch}' moved since the page was opened", hint="open the page again and read the new movements"
        ) from err
    return Redirect("/reflog", f"{word}: {movement.event} {movement.message}", {"branch": branch})


PAGES: tuple[Page, ...] = (
    get("/reflog", show_reflog),
    post("/reflog/undo", undo, writes="branch"),
    post("/reflog/redo", redo, writes="branch"),
)
