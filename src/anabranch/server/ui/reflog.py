"""The movements of a branch, newest first, with undo and redo."""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import WriteConflictError
from anabranch.ids import MAIN
from anabranch.repo.refs.reflog import Movement
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "ReflogView"]

_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflogView:
    """`version` is the newest movement that the visitor sees: undo is refused after a later one."""

    branch: str
    name: str
    movements: tuple[Movement, ...]
    version: int
    limit: int
    has_more: bool


def show_reflog(visit: Visit) -> Shown:
    """List the movements of a branch."""
    branch, limit = visit.query("branch") or MAIN, visit.number("limit", _SIZE)
    found = visit.lake.repository.reflog(branch, limit=min(limit, 1000) + 1)
    view = ReflogView(
        branch=branch,
        name=visit.lake.host.branch_names().get(branch, branch),
        movements=tuple(found[:limit]),
        version=found[0].number,
        limit=limit,
        has_more=len(found) > limit,
    )
    return Shown("reflog.html", view)


def undo(visit: Visit) -> Redirect:
    """Undo the last movement of a branch."""
    return _move(visit, visit.lake.repository.undo, "Undone")


def redo(visit: Visit) -> Redirect:
    """Redo the movement that was undone last."""
    return _move(visit, visit.lake.repository.redo, "Redone")


def _move(visit: Visit, move: Callable[[str], Movement], word: str) -> Redirect:
    branch = visit.field("branch") or MAIN
    if str(visit.lake.repository.branch_get(branch).version) != visit.field("version"):
        raise WriteConflictError(
            f"branch '{branch}' moved since the page was opened", hint="open the page again and read the new movements"
        )
    movement = move(branch)
    return Redirect("/reflog", f"{word}: {movement.event} {movement.message}", {"branch": branch})


PAGES: tuple[Page, ...] = (
    get("/reflog", show_reflog),
    post("/reflog/undo", undo, writes="branch"),
    post("/reflog/redo", redo, writes="branch"),
)
