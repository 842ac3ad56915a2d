"""Branches and tags: search and page through them, create, rename, delete and restore them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from anabranch.errors import BranchNotFoundError, InvalidInputError, TagNotFoundError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.refs.tags import TagInfo
from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

_SIZE = 50
# Counting stops there, and the page shows that there are more.
_MOST_COMMITS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRow:
    """A branch, the name that people gave it, how it compares with main, and what the visitor may do with it.

    `ahead` and `behind` are numbers of commits, and None for main and for live branches, which follow main. `drifted`
    are the tables that a live branch changed and that main has changed since.
    """

    info: BranchInfo
    name: str
    ahead: int | None
    behind: int | None
    drifted: tuple[str, ...]
    can_delete: bool
    can_rename: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchesView:
    """A page of branches and one of tags. `next_branch` and `next_tag` are where the next pages begin."""

    search: str
    is_deleted: bool
    branches: tuple[BranchRow, ...]
    next_branch: str | None
    tags: tuple[TagInfo, ...]
    next_tag: str | None
    source: str
    most_commits: int = _MOST_COMMITS


def show_branches(visit: Visit) -> Shown:
    """List the branches and tags whose names contain a text, or deleted branches."""
    lake, search, is_deleted = visit.lake, visit.query("search"), visit.query("deleted") == "yes"
    found = _list_branches(lake, search, after=visit.query("after") or None, deleted=is_deleted)
    tags = _list_tags(lake.repository, search, after=visit.query("tags_after") or None)
    view = BranchesView(
        search=search,
        is_deleted=is_deleted,
        branches=_rows(visit, found[:_SIZE], is_deleted=is_deleted),
        next_branch=found[_SIZE - 1].name if len(found) > _SIZE else None,
        tags=tuple(tags[:_SIZE]),
        next_tag=tags[_SIZE - 1].name if len(tags) > _SIZE else None,
        source=visit.query("source") or MAIN,
    )
    return Shown("branches.html", view)


def _list_branches(lake: Lake, search: str, *, after: str | None, deleted: bool) -> list[BranchInfo]:
    """List a page of the branches that match, and one more. Only the heads of names that match are read."""
    repository = lake.repository
    if not search:
        return repository.branch_list(after=after, limit=_SIZE + 1, deleted=deleted)
    names = lake.host.branch_names()
    matching = (
        name
        for name in repository.branch_names(after=after)
        if search.lower() in name.lower() or search.lower() in names.get(name, "").lower()
    )
    # `branch_get` raises for a deleted branch, so the whole list is read and filtered.
    if deleted:
        wanted = set(matching)
        return [info for info in repository.branch_list(after=after, deleted=True) if info.name in wanted][: _SIZE + 1]
    return list(islice(filter(None, (_find_branch(repository, name) for name in matching)), _SIZE + 1))


def _list_tags(repository: Repository, search: str, *, after: str | None) -> list[TagInfo]:
    """List a page of the tags that match, and one more. Only tags that match are read."""
    if not search:
        return repository.tag_list(after=after, limit=_SIZE + 1)
    matching = (name for name in repository.tag_names(after=after) if search.lower() in name.lower())
    return list(islice(filter(None, (_find_tag(repository, name) for name in matching)), _SIZE + 1))


def _find_tag(repository: Repository, name: str) -> TagInfo | None:
    """Return a tag, None if it was deleted."""
    try:
        return repository.tag_get(name)
    except TagNotFoundError:
        return None


def _find_branch(repository: Repository, name: str) -> BranchInfo | None:
    """Return a branch, None if it was deleted."""
    try:
        return repository.branch_get(name)
    except BranchNotFoundError:
        return None


def _rows(visit: Visit, found: Sequence[BranchInfo], *, is_deleted: bool) -> tuple[BranchRow, ...]:
    lake = visit.lake
    names = lake.host.branch_names()
    pinned = [info for info in found if info.mode is BranchMode.PINNED and info.name != MAIN and not is_deleted]
    live = [info for info in found if info.mode is BranchMode.LIVE and info.own_tables and not is_deleted]
    apart, drifted = _count_apart(visit, pinned), _list_drifted(visit, live)
    return tuple(
        BranchRow(
            info=info,
            name=names.get(info.name, info.name),
            ahead=apart[info.name][0] if info.name in apart else None,
            behind=apart[info.name][1] if info.name in apart else None,
            drifted=drifted.get(info.name, ()),
            can_delete=info.name != MAIN and not info.is_protected and lake.can_write(info.name),
            can_rename=info.name != MAIN and not info.is_protected and lake.host.can_rename(info.name),
        )
        for info in found
    )


def _count_apart(visit: Visit, found: Sequence[BranchInfo]) -> dict[str, tuple[int, int]]:
    """Return how many commits each branch is ahead of main and behind it. That follows from the two commits."""
    if not found:
        return {}
    repository = visit.lake.repository
    main = repository.branch_get(MAIN).head_commit_id

    def count(commit_id: str) -> tuple[int, int]:
        return repository.ahead_behind([commit_id], main, limit=_MOST_COMMITS)[commit_id]

    return {
        info.name: visit.cached(partial(count, info.head_commit_id), "apart", info.head_commit_id, main, weigh=_small)
        for info in found
    }


def _list_drifted(visit: Visit, found: Sequence[BranchInfo]) -> dict[str, tuple[str, ...]]:
    """Return the tables of each live branch that main has changed since. That follows from both heads."""
    if not found:
        return {}
    repository = visit.lake.repository
    main = repository.branch_get(MAIN).head_commit_id

    def drifted(name: str) -> tuple[str, ...]:
        return tuple(one.table for one in repository.branch_drift(name) if one.has_drifted)

    return {
        info.name: visit.cached(partial(drifted, info.name), "drift", info.name, info.version, main, weigh=_small)
        for info in found
    }


def _small(_: object) -> int:
    return 200


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


def rename_branch(visit: Visit) -> Redirect:
    """Rename a branch."""
    name, new = visit.field("branch"), visit.field("new")
    visit.lake.host.rename_branch(name, new)
    return Redirect("/branches", f"Branch {name} was renamed to {new}.")


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


def _days(text: str) -> timedelta | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 36_500):
        raise InvalidInputError(f"the number of days must be from 1 to 36500, got {text[:50]!r}", hint="for example 7")
    return timedelta(days=int(text))


PAGES: tuple[Page, ...] = (
    get("/branches", show_branches),
    post("/branches/create", create_branch, needs=Scope.BRANCH),
    post("/branches/rename", rename_branch, writes="branch"),
    post("/branches/delete", delete_branch, writes="branch"),
    post("/branches/restore", restore_branch, writes="branch"),
    post("/tags/create", create_tag),
    post("/tags/delete", delete_tag),
)
