"""One commit: its message and metadata, the tables that it changed, and what can be done with it."""

from dataclasses import dataclass

from markupsafe import Markup

from anabranch.drawing.diff_table import draw_tables
from anabranch.ids import MAIN
from anabranch.repo.history.diff import TableDiff
from anabranch.repo.log.entries import GraphCommit
from anabranch.server.ui.compare import outlines_of
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.rendering import address
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "CommitView"]

_TABLES = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """`branch` is the name that people gave to the branch of the commit. `target` is where actions write by default."""

    commit: GraphCommit
    branch: str
    choices: RefChoices
    tables: Paged[TableDiff]
    picture: Markup
    target: str


def show_commit(visit: Visit) -> Shown:
    """Show a commit and the tables that it changed, compared with its first parent."""
    lake = visit.lake
    commit = lake.repository.get_commit(visit.request.path_params["commit_id"])
    parent = commit.parent_commit_id
    changed = () if parent is None else lake.repository.diff(parent, commit.id, engine="local").tables
    page = page_of(changed, number=visit.number("page"), size=_TABLES)
    drawn = draw_tables(
        outlines_of(page.items, counted=visit.query("count")),
        link=lambda one: address(f"{lake.path}/compare/rows", before=parent, after=commit.id, table=one.key),
        count_link=lambda one: address(f"{lake.path}/commits/{commit.id}", count=one.key, page=page.number),
    )
    view = CommitView(
        commit=commit,
        branch=lake.host.branch_names().get(commit.branch, commit.branch),
        choices=lake.list_choices(),
        tables=page,
        picture=Markup(drawn),  # noqa: S704 - the drawing escapes all texts
        target=visit.query("branch") or MAIN,
    )
    return Shown("commit.html", view)


def revert_commit(visit: Visit) -> Redirect:
    """Revert the commit on a branch by a new commit."""
    branch = visit.field("branch") or MAIN
    done = visit.lake.repository.revert(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Reverted on {branch}.", f"There was nothing to revert on {branch}.")


def cherry_pick_commit(visit: Visit) -> Redirect:
    """Apply the changes of the commit to a branch."""
    branch = visit.field("branch") or MAIN
    done = visit.lake.repository.cherry_pick(_commit_id(visit), branch=branch)
    return _done(done.commit, f"Applied to {branch}.", f"There was nothing to apply to {branch}.")


def _commit_id(visit: Visit) -> str:
    return str(visit.request.path_params["commit_id"])


def _done(commit: GraphCommit | None, success: str, nothing: str) -> Redirect:
    return Redirect("/graph", nothing) if commit is None else Redirect(f"/commits/{commit.id}", success)


PAGES: tuple[Page, ...] = (
    get("/commits/{commit_id}", show_commit),
    post("/commits/{commit_id}/revert", revert_commit, writes="branch"),
    post("/commits/{commit_id}/cherry-pick", cherry_pick_commit, writes="branch"),
)
