"""Reading a collected commit reports it, under any name, and does not change the repository."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from tests.lake_templates import Cast
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, fill_lake, ids, nothing_changes, table
from tests.repo.gc.needed import find_unreachable
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.local


@dataclass(frozen=True)
class Gone:
    """A lake of whose main all but the last two commits were collected, and all of branch 'gone'.

    Of branch 'dev', and of live branch 'view', all but the newest state of each.
    """

    repo: Repository
    commits: list[str]
    deleted: str
    at: str


def upsert(repo: Repository, value: str, *, branch: str | None = None) -> str:
    """Change a row in place, so that a state is not part of the one after it."""
    with repo.transaction(branch, message=value) as tx:
        tx.upsert(ORDERS, table(1, v=value))
        tx.overwrite(CUSTOMERS, table(10, v=value))
    assert tx.published is not None
    return tx.published.graph_commit_id


def fill(lake: Repository) -> None:
    fill_lake(lake)
    for value in "pqr":
        upsert(lake, value)
    lake.branch_create("gone")
    lake.branch_create("dev")
    lake.branch_create_from("main", "view", mode="live")
    append(lake, 4, branch="gone")
    for branch in ("dev", "view"):
        for value in "xyz":
            upsert(lake, value, branch=branch)
    lake.merge("dev", into="main", strategy="source")
    lake.branch_delete("gone")
    for value in "stu":
        upsert(lake, value)


@pytest.fixture
def gone(cast: Cast) -> Gone:
    lake = cast(fill)
    made = {commit.message: commit for commit in lake.list_commits()}
    commits = [made[value].graph_commit_id for value in "pqr"]
    deleted = lake.snapshot_of("gone@v2").id
    pass_time(lake)
    report = lake.gc(keep_last=2)
    assert {*commits[:2], deleted} <= set(report.commits)
    assert find_unreachable(lake) == {}
    at = datetime.fromtimestamp(made["p"].created_at / 1e6 + 1e-6, UTC).isoformat()
    return Gone(another(lake), commits, deleted, at)


Ask = Callable[[Gone], object]

READS: dict[str, Ask] = {
    "a commit": lambda gone: gone.repo.snapshot_of(gone.commits[0]),
    "a prefix": lambda gone: gone.repo.snapshot_of(gone.commits[0][:24]),
    "a commit before": lambda gone: gone.repo.snapshot_of("main~5"),
    "a version": lambda gone: gone.repo.snapshot_of("main@v3"),
    "a time": lambda gone: gone.repo.snapshot_of(f"main@{{{gone.at}}}"),
    "a number": lambda gone: gone.repo.snapshot_at_version(3),
    "a published commit": lambda gone: EngineAccess(gone.repo).published_snapshot_of(gone.commits[0]),
    "a version of a branch": lambda gone: gone.repo.snapshot_of("dev@v2"),
    "a version of a live branch": lambda gone: gone.repo.snapshot_of("view@v2"),
    "a version of a deleted branch": lambda gone: gone.repo.snapshot_of("gone@v2"),
    "an entity at a version": lambda gone: gone.repo.entity_at(ORDERS, 1, version=3),
    "an entity at a ref": lambda gone: gone.repo.entity_at(ORDERS, 1, ref="main@v3"),
    "an entity at a commit": lambda gone: gone.repo.entity_at(ORDERS, 1, ref=gone.commits[0]),
    "the history of an entity": lambda gone: gone.repo.entity_history(ORDERS, 1),
    "SQL": lambda gone: gone.repo.sql("SELECT * FROM in_c_sales.orders", ref="main@v3"),
    "SQL at a version": lambda gone: gone.repo.sql("SELECT * FROM in_c_sales.orders AT 'main@v3'"),
    "a diff": lambda gone: gone.repo.diff("main@v3", "main"),
    "a diff with a commit": lambda gone: gone.repo.diff("main", gone.commits[0]),
    "changes": lambda gone: [list(each.iter_rows()) for each in gone.repo.changes(ORDERS)],
    "changes since a version": lambda gone: [list(e.iter_rows()) for e in gone.repo.changes(ORDERS, since="main@v3")],
    "a clone": lambda gone: ab.clone(gone.repo.uri, f"{gone.repo.uri}-clone", ref="main@v3"),
    "a dry merge": lambda gone: gone.repo.merge(gone.commits[0], into="dev", dry_run=True),
}

WRITES: dict[str, Ask] = {
    "a tag": lambda gone: gone.repo.tag_create("t", ref=gone.commits[0]),
    "a tag on a version": lambda gone: gone.repo.tag_create("t", ref="main@v3"),
    "a branch": lambda gone: gone.repo.branch_create_from(gone.commits[0], "b"),
    "a branch from a version": lambda gone: gone.repo.branch_create_from("main@v3", "b"),
    "a branch from a time": lambda gone: gone.repo.branch_create_from(f"main@{{{gone.at}}}", "b"),
    "a reset": lambda gone: gone.repo.reset("dev", to=gone.commits[0]),
    "a reset to a version": lambda gone: gone.repo.reset("dev", to="dev@v2"),
    "a reset of a live branch": lambda gone: gone.repo.reset("view", to="view@v2"),
    "a branch restored": lambda gone: gone.repo.branch_restore("gone"),
    "a deletion undone": lambda gone: gone.repo.undo("gone"),
    "a revert": lambda gone: gone.repo.revert(gone.commits[1]),
    "a revert to what went": lambda gone: gone.repo.revert(oldest_kept(gone.repo)),
    "a cherry pick": lambda gone: gone.repo.cherry_pick(gone.commits[1]),
    "a merge": lambda gone: gone.repo.merge(gone.commits[1], into="dev"),
    "a rebase": lambda gone: gone.repo.rebase("dev", onto=gone.commits[0]),
}


def oldest_kept(repo: Repository) -> str:
    """The oldest commit of main that is kept: it can be read, and what it was made from cannot."""
    return repo.list_commits(limit=2)[-1].graph_commit_id


def outcome_of(ask: Ask, gone: Gone) -> str:
    try:
        ask(gone)
    except AnabranchError as err:
        return err.code
    return "nothing said"


def test_reading_what_was_collected_is_reported(gone: Gone) -> None:
    with nothing_changes(gone.repo):
        assert {name: outcome_of(ask, gone) for name, ask in READS.items()} == dict.fromkeys(READS, "collected")


def test_building_on_what_was_collected_is_refused(gone: Gone) -> None:
    with nothing_changes(gone.repo):
        assert {name: outcome_of(ask, gone) for name, ask in WRITES.items()} == dict.fromkeys(WRITES, "collected")


def test_what_is_kept_continues(gone: Gone) -> None:
    repo = gone.repo
    assert ids(repo.snapshot_of("main~1")) == [1, 2, 3]
    assert repo.entity_at(ORDERS, 1) == {"id": 1, "v": "u"}
    assert [change.after["v"] for change in repo.entity_history(ORDERS, 1, limit=1) if change.after] == ["u"]
    assert len(repo.list_commits(limit=None)) == 9
    assert [movement.event for movement in repo.reflog("gone")] == ["deleted", "committed", "created"]
    assert repo.get_commit(gone.commits[0]).message == "p"
    (change,) = list(repo.changes(ORDERS, since="main~1"))
    assert change.counts.updated == 1
