"""The overview of a lake: its tables, branches and last commits, and the list of all pages.

A new lake shows the first steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.snapshot import Snapshot
from anabranch.server.ui import branches, compare, history, merge, rows, runs, sql, storage, tables
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.responses import Paged, page_of
from anabranch.server.ui.site import Page, Shown, Visit, get
from anabranch.storage import in_parallel

_TABLES = 50
_COMMITS = 10
# The sizes of more tables are measured on request.
_MEASURED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    key: str
    rows: int
    primary_key: tuple[str, ...]
    version: tuple[str, str | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The tables of a ref and what led to it. `sizes` are the bytes of the tables of the page, if measured."""

    ref: str
    choices: RefChoices
    search: str
    tables: Paged[TableRow]
    sizes: Mapping[str, int] | None
    table_count: int
    row_count: int
    branch_count: int
    tag_count: int
    commits: tuple[GraphCommit, ...]

    @property
    def size(self) -> int | None:
        """The bytes of all tables, None if not all were measured."""
        is_whole = self.sizes is not None and len(self.sizes) == self.table_count
        return sum(self.sizes.values()) if self.sizes is not None and is_whole else None


def show_overview(visit: Visit) -> Shown:
    """Show the tables, branches and last commits of a ref, by default of main."""
    repository = visit.lake.repository
    ref, search = visit.ref(), visit.query("search")
    snapshot = repository.snapshot_of(ref)
    found = [
        TableRow(
            key=str(key),
            rows=entry.rows,
            primary_key=entry.primary_key,
            version=(entry.dataset, entry.home, entry.version),
        )
        for key, entry in sorted(snapshot.entries.items())
        if search.lower() in str(key).lower()
    ]
    page = page_of(found, number=visit.number("page"), size=_TABLES)
    is_measured = len(snapshot) <= _MEASURED or visit.query("size") == "1"
    view = Overview(
        ref=ref,
        choices=visit.lake.list_choices(),
        search=search,
        tables=page,
        sizes=_measure(visit, snapshot, page.items) if is_measured else None,
        table_count=len(snapshot),
        row_count=sum(entry.rows for entry in snapshot.entries.values()),
        branch_count=visit.lake.count_branches(),
        tag_count=len(repository.tag_names()),
        commits=tuple(repository.list_commits(ref, limit=_COMMITS)),
    )
    # The commit of `init` counts, so a lake with one commit, one branch and no tables was never used.
    is_new = not len(snapshot) and view.branch_count == 1 and len(view.commits) == 1
    return Shown("first_steps.html" if is_new else "overview.html", view)


def _measure(visit: Visit, snapshot: Snapshot, tables: Sequence[TableRow]) -> dict[str, int]:
    """Return the bytes of tables. Each must be opened, but a version never changes."""

    def size(one: TableRow) -> int:
        return visit.cached(lambda: snapshot[one.key].size_bytes, "size", *one.version, weigh=lambda _: 200)

    return dict(zip((one.key for one in tables), in_parallel(size, tables), strict=True))


PAGES: tuple[Page, ...] = (
    get("/", show_overview),
    *branches.PAGES,
    *history.PAGES,
    *runs.PAGES,
    *storage.PAGES,
    *tables.PAGES,
    *rows.PAGES,
    *compare.PAGES,
    *merge.PAGES,
    *sql.PAGES,
)
