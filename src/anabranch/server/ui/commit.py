"""One commit: its message and metadata, the tables that it changed, and what can be done with it."""

from dataclasses import dataclass

from anabranch.ids import MAIN
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.history.diff import SchemaChange, TableDiff
from anabranch.repo.log.entries import GraphCommit
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "ChangedTable", "CommitView"]

# Rows are counted without a click only where few must be read.
_ROWS_TO_COUNT = 200_000
_TABLES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable:
    """A table that a commit changed. `counts` is None if counting needs many rows; then it is done on demand."""

    key: str
    change: str
    renamed_from: str | None
    columns: tuple[SchemaChange, ...]
    counts: TableCounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """`branch` is the name that people gave to the branch of the commit. `target` is where actions write by default."""

    commit: GraphCommit
    branch: str
    tables: tuple[ChangedTable, ...]
    more_tables: int
    target: str


def show_commit(visit: Visit) -> Shown:
    """Show a commit and the tables that it changed, compared with its first parent."""
    repository = visit.lake.repository
    commit = repository.get_commit(visit.request.path_params["commit_id"])
    names = visit.lake.host.branch_names()
    parent = commit.parent_commit_id
    changed = [] if parent is None else list(repository.diff(parent, commit.id, engine="local").tables)
    view = CommitView(
        commit=commit,
        branch=names.get(commit.branch, commit.branch),
        tables=tuple(_changed(table, is_wanted=visit.query("count") == table.key) for table in changed[:_TABLES]),
        more_tables=max(0, len(changed) - _TABLES),
        target=visit.query("branch") or MAIN,
    )
    return Shown("commit/commit.html", view)


def _changed(table: TableDiff, *, is_wanted: bool) -> ChangedTable:
    is_cheap = table.before is None or table.after is None or table.rows_to_compare <= _ROWS_TO_COUNT
    return ChangedTable(
        key=table.key,
        change=table.change,
        renamed_from=table.renamed_from,
        columns=table.columns,
        counts=table.counts if is_cheap or is_wanted else None,
    )


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
