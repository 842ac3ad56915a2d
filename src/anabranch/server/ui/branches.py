"""Branches and tags: search and page through them, create, delete and restore them."""

from dataclasses import dataclass
from datetime import timedelta

from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.refs.tags import TagInfo
from anabranch.server.auth import Scope
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "BranchRow", "BranchesView"]

_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRow:
    """A branch, the name that people gave it, and what the visitor may do with it."""

    info: BranchInfo
    name: str
    can_delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchesView:
    search: str
    branches: Paged[BranchRow]
    deleted: tuple[BranchInfo, ...]
    tags: Paged[TagInfo]
    source: str


def show_branches(visit: Visit) -> Shown:
    """List the branches and tags whose names contain a text."""
    lake, search = visit.lake, visit.query("search")
    names = lake.host.branch_names()
    found = [
        info
        for info in lake.repository.branch_list()
        if _contains(search, info.name, names.get(info.name, ""), info.description, info.created_by or "")
    ]
    found.sort(key=lambda info: (info.name != MAIN, info.name))
    tags = [tag for tag in lake.repository.tag_list() if _contains(search, tag.name, tag.description)]
    page = page_of(found, number=visit.number("page"), size=_SIZE)
    rows = Paged(
        items=[
            BranchRow(info=info, name=names.get(info.name, info.name), can_delete=_can_delete(visit, info))
            for info in page.items
        ],
        number=page.number,
        size=page.size,
        has_more=page.has_more,
        total=page.total,
    )
    view = BranchesView(
        search=search,
        branches=rows,
        deleted=tuple(lake.repository.branch_list(deleted=True)[:_SIZE]),
        tags=page_of(tags, number=visit.number("tags"), size=_SIZE),
        source=visit.query("source") or MAIN,
    )
    return Shown("branches/list.html", view)


def create_branch(visit: Visit) -> Redirect:
    """Create a branch."""
    name = visit.lake.host.create_branch(
        visit.field("name"),
        source=visit.field("source") or MAIN,
        mode=visit.field("mode") or BranchMode.PINNED,
        description=visit.field("description"),
        expires_in=_days(visit.field("days")),
    )
    return Redirect("/branches", f"Branch {name} was created.")


def delete_branch(visit: Visit) -> Redirect:
    """Delete a branch."""
    name = visit.field("branch")
    visit.lake.host.delete_branch(name)
    return Redirect("/branches", f"Branch {name} was deleted.")


def restore_branch(visit: Visit) -> Redirect:
    """Restore a deleted branch."""
    name = visit.lake.repository.branch_restore(visit.field("branch")).name
    return Redirect("/branches", f"Branch {name} was restored.")


def create_tag(visit: Visit) -> Redirect:
    """Create a tag."""
    tag = visit.lake.repository.tag_create(
        visit.field("name"), visit.field("ref") or MAIN, description=visit.field("description")
    )
    return Redirect("/branches", f"Tag {tag.name} was created.")


def delete_tag(visit: Visit) -> Redirect:
    """Delete a tag."""
    name = visit.field("tag")
    visit.lake.repository.tag_delete(name)
    return Redirect("/branches", f"Tag {name} was deleted.")


def _contains(search: str, *texts: str) -> bool:
    return any(search.lower() in text.lower() for text in texts)


def _can_delete(visit: Visit, info: BranchInfo) -> bool:
    return info.name != MAIN and not info.is_protected and visit.lake.can_write(info.name)


def _days(text: str) -> timedelta | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= 36_500):
        raise InvalidInputError(f"the number of days must be from 1 to 36500, got {text[:50]!r}", hint="for example 7")
    return timedelta(days=int(text))


PAGES: tuple[Page, ...] = (
    get("/branches", show_branches),
    post("/branches/create", create_branch, needs=Scope.BRANCH),
    post("/branches/delete", delete_branch, writes="branch"),
    post("/branches/restore", restore_branch, writes="branch"),
    post("/tags/create", create_tag),
    post("/tags/delete", delete_tag),
)
