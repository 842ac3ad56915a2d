"""The overview of a lake, its branches and tags, and the list of all pages.

A new lake shows the first steps.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from anabranch.errors import BranchNotFoundError, TagNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.log.entries import BranchMode, TableEntry
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.refs.tags import TagInfo
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.server.auth import Scope
from anabranch.server.ui import compare, history, merge, sql, storage, tables
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.responses import page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, parse_days, post
from anabranch.storage import in_parallel

_TABLES = 50
_COMMITS = 10
# The sizes of more tables are measured on request.
_MEASURED = 10


def show_overview(visit: Visit) -> Shown:
    """Show the tables, branches and last commits of a ref, by default of main."""
    repository = visit.repository
    ref, search = visit.ref(), visit.query("search")
    snapshot = repository.snapshot_of(ref)
    found = [(key, entry) for key, entry in sorted(snapshot.entries.items()) if search.lower() in str(key).lower()]
    page = page_of(found, number=visit.number("page"), size=_TABLES)
    sizes = _find_sizes(visit, snapshot, page.items)
    commits = repository.list_commits(ref, limit=_COMMITS)
    branch_count = visit.lake.count_branches()
    view = {
        "ref": ref,
        "choices": visit.lake.list_choices(),
        "search": search,
        "tables": page,
        "sizes": sizes,
        "size": sum(sizes.values()) if sizes is not None and len(sizes) == len(snapshot) else None,
        "table_count": len(snapshot),
        "row_count": sum(entry.rows for entry in snapshot.entries.values()),
        "branch_count": branch_count,
        "tag_count": visit.lake.count_tags(),
        "commits": commits,
    }
    # The commit of `init` counts, so a lake with one commit, one branch and no tables was never used.
    is_new = not len(snapshot) and branch_count == 1 and len(commits) == 1
    return Shown("first_steps.html" if is_new else "overview.html", view)


def _find_sizes(
    visit: Visit, snapshot: Snapshot, tables: Sequence[tuple[TableKey, TableEntry]]
) -> dict[TableKey, int] | None:
    """Return the bytes of tables. Each must be opened, so those of a large lake are measured only on request."""
    if len(snapshot) > _MEASURED and visit.query("size") != "1":
        return None

    def size(table: tuple[TableKey, TableEntry]) -> int:
        key, entry = table
        # A version never changes.
        return visit.cached(lambda: snapshot[str(key)].size_bytes, "size", entry.state, weigh=lambda _: 200)

    return dict(zip((key for key, _ in tables), in_parallel(size, tables), strict=True))


_SIZE = 50
# Counting stops there, and the page shows that there are more.
_MOST_COMMITS = 1000

T = TypeVar("T")
_Compared = tuple[tuple[int, int] | None, tuple[str, ...]]


def show_branches(visit: Visit) -> Shown:
    """List the branches and tags whose names contain a text, or deleted branches."""
    search, is_deleted = visit.query("search"), visit.query("deleted") == "yes"
    branches = _list_branches(visit.lake, search, after=visit.query("after") or None, deleted=is_deleted)
    tags = _list_tags(visit.repository, search, after=visit.query("tags_after") or None)
    view = {
        "search": search,
        "is_deleted": is_deleted,
        "branches": branches[:_SIZE],
        "compared": {} if is_deleted else _compare_with_main(visit, branches[:_SIZE]),
        "most_commits": _MOST_COMMITS,
        # Where the next pages begin.
        "next_branch": branches[_SIZE - 1].name if len(branches) > _SIZE else None,
        "tags": tags[:_SIZE],
        "next_tag": tags[_SIZE - 1].name if len(tags) > _SIZE else None,
        "source": visit.query("source") or MAIN,
    }
    return Shown("branches.html", view)


def _list_branches(lake: Lake, search: str, *, after: str | None, deleted: bool) -> list[BranchInfo]:
    """List a page of the branches that match, and one more. Only the heads of names that match are read."""
    repository = lake.repository
    if not search:
        return repository.branch_list(after=after, limit=_SIZE + 1, deleted=deleted)

    def matches(name: str) -> bool:
        return search.lower() in name.lower() or search.lower() in lake.name_of(name).lower()

    # `branch_get` raises for a deleted branch, so the whole list is read and filtered.
    if deleted:
        return [info for info in repository.branch_list(after=after, deleted=True) if matches(info.name)][: _SIZE + 1]
    return _read_some(filter(matches, repository.branch_names(after=after)), repository.branch_get)


def _list_tags(repository: Repository, search: str, *, after: str | None) -> list[TagInfo]:
    """List a page of the tags that match, and one more. Only tags that match are read."""
    if not search:
        return repository.tag_list(after=after, limit=_SIZE + 1)
    matching = (name for name in repository.tag_names(after=after) if search.lower() in name.lower())
    return _read_some(matching, repository.tag_get)


def _read_some(names: Iterable[str], read: Callable[[str], T]) -> list[T]:
    found: list[T] = []
    for name in names:
        # It may have been deleted since its name was listed.
        with suppress(BranchNotFoundError, TagNotFoundError):
            found.append(read(name))
        if len(found) > _SIZE:
            break
    return found


def _compare_with_main(visit: Visit, branches: Sequence[BranchInfo]) -> dict[str, _Compared]:
    """Return how branches compare with main: commits ahead and behind, and the tables that drifted.

    Live branches follow main, so they have tables that they changed and that main has changed since. Main itself and
    live branches without tables of their own are left out.
    """
    compared = [one for one in branches if one.name != MAIN and (one.mode is BranchMode.PINNED or one.own_tables)]
    if not compared:
        return {}
    main = visit.repository.branch_get(MAIN).head_commit_id
    found = {}
    for one in compared:
        # Both heads determine the result.
        key = ("compared", one.name, one.version, one.head_commit_id, main)
        found[one.name] = visit.cached(partial(_compare, visit.repository, one, main), *key, weigh=lambda _: 200)
    return found


def _compare(repository: Repository, info: BranchInfo, main: str) -> _Compared:
    if info.mode is BranchMode.LIVE:
        return None, tuple(one.table for one in repository.branch_drift(info.name) if one.has_drifted)
    return repository.ahead_behind([info.head_commit_id], main, limit=_MOST_COMMITS)[info.head_commit_id], ()


def create_branch(visit: Visit) -> Redirect:
    name = visit.lake.create_branch(
        visit.field("name"),
        source=visit.field("source") or MAIN,
        mode=visit.field("mode") or BranchMode.PINNED,
        description=visit.field("description"),
        expires_in=parse_days(visit.field("days")),
    )
    return Redirect("/branches", f"Branch {name} was created.")


def rename_branch(visit: Visit) -> Redirect:
    name, new = visit.field("branch"), visit.field("new")
    visit.lake.rename_branch(name, new)
    return Redirect("/branches", f"Branch {name} was renamed to {new}.")


def delete_branch(visit: Visit) -> Redirect:
    name = visit.field("branch")
    visit.lake.delete_branch(name)
    return Redirect("/branches", f"Branch {name} was deleted.")


def restore_branch(visit: Visit) -> Redirect:
    name = visit.repository.branch_restore(visit.field("branch")).name
    return Redirect("/branches", f"Branch {name} was restored.")


def create_tag(visit: Visit) -> Redirect:
    name, ref = visit.field("name"), visit.field("ref") or MAIN
    tag = visit.repository.tag_create(name, ref, description=visit.field("description"))
    return Redirect("/branches", f"Tag {tag.name} was created.")


def delete_tag(visit: Visit) -> Redirect:
    name = visit.field("tag")
    visit.repository.tag_delete(name)
    return Redirect("/branches", f"Tag {name} was deleted.")


PAGES: tuple[Page, ...] = (
    get("/", show_overview),
    get("/branches", show_branches),
    post("/branches/create", create_branch, needs=Scope.BRANCH),
    post("/branches/rename", rename_branch, writes="branch"),
    post("/branches/delete", delete_branch, writes="branch"),
    post("/branches/restore", restore_branch, writes="branch"),
    post("/tags/create", create_tag),
    post("/tags/delete", delete_tag),
    *history.PAGES,
    *storage.PAGES,
    *tables.PAGES,
    *compare.PAGES,
    *merge.PAGES,
    *sql.PAGES,
)
