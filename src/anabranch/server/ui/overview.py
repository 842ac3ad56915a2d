"""The overview of a lake: its tables, branches and last commits, and the list of all pages.

A new lake shows the first steps.
"""

from collections.abc import Sequence

from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.snapshot import Snapshot
from anabranch.server.ui import branches, compare, history, merge, sql, storage, tables
from anabranch.server.ui.responses import page_of
from anabranch.server.ui.site import Page, Shown, Visit, get
from anabranch.storage import in_parallel

_TABLES = 50
_COMMITS = 10
# The sizes of more tables are measured on request.
_MEASURED = 10


def show_overview(visit: Visit) -> Shown:
    """Show the tables, branches and last commits of a ref, by default of main."""
    repository = visit.lake.repository
    ref, search = visit.ref(), visit.query("search")
    snapshot = repository.snapshot_of(ref)
    found = [(key, entry) for key, entry in sorted(snapshot.entries.items()) if search.lower() in str(key).lower()]
    page = page_of(found, number=visit.number("page"), size=_TABLES)
    is_measured = len(snapshot) <= _MEASURED or visit.query("size") == "1"
    sizes = _measure(visit, snapshot, page.items) if is_measured else None
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


def _measure(visit: Visit, snapshot: Snapshot, tables: Sequence[tuple[TableKey, TableEntry]]) -> dict[TableKey, int]:
    """Return the bytes of tables. Each must be opened, but a version never changes."""

    def size(table: tuple[TableKey, TableEntry]) -> int:
        key, entry = table
        return visit.cached(lambda: snapshot[str(key)].size_bytes, "size", entry.state, weigh=lambda _: 200)

    return dict(zip((key for key, _ in tables), in_parallel(size, tables), strict=True))


PAGES: tuple[Page, ...] = (
    get("/", show_overview),
    *branches.PAGES,
    *history.PAGES,
    *storage.PAGES,
    *tables.PAGES,
    *compare.PAGES,
    *merge.PAGES,
    *sql.PAGES,
)
