"""The overview of a lake: its tables, branches and last commits. A new lake shows the first steps."""

from dataclasses import dataclass

from anabranch.repo.log.entries import GraphCommit
from anabranch.server.ui.lake import RefChoices
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.site import Page, Shown, Visit, get

__all__ = ["PAGES", "Overview", "TableRow"]

_TABLES = 50
_COMMITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    key: str
    rows: int
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The tables of a ref and what led to it."""

    ref: str
    choices: RefChoices
    search: str
    tables: Paged[TableRow]
    table_count: int
    row_count: int
    branch_count: int
    tag_count: int
    commits: tuple[GraphCommit, ...]


def show_overview(visit: Visit) -> Shown:
    """Show the tables, branches and last commits of a ref, by default of main."""
    repository = visit.lake.repository
    ref, search = visit.ref(), visit.query("search")
    snapshot = repository.snapshot_of(ref)
    found = [
        TableRow(key=str(key), rows=entry.rows, primary_key=entry.primary_key)
        for key, entry in sorted(snapshot.entries.items())
        if search.lower() in str(key).lower()
    ]
    view = Overview(
        ref=ref,
        choices=visit.lake.list_choices(),
        search=search,
        tables=page_of(found, number=visit.number("page"), size=_TABLES),
        table_count=len(snapshot),
        row_count=sum(entry.rows for entry in snapshot.entries.values()),
        branch_count=len(repository.branch_names()),
        tag_count=len(repository.tag_names()),
        commits=tuple(repository.list_commits(ref, limit=_COMMITS)),
    )
    is_new = not len(snapshot) and view.branch_count == 1 and len(view.commits) == 1
    return Shown("first_steps.html" if is_new else "overview.html", view)


PAGES: tuple[Page, ...] = (get("/", show_overview),)
