"""Processes that write the same tables at the same time."""

from itertools import pairwise
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.repository import Repository
from tests.conftest import Location
from tests.processes import Program
from tests.repo.programs import ledger

BEFORE = ledger.mark_of(99, 0)


def race(process_pool: Program, location: Location, *, writers: int, commits: int, branch: str) -> None:
    """Let processes commit to one branch at the same time, while another one reads its homes with plain Lance."""
    course = {"uri": location / "lake", "branch": branch, "storage_options": location.storage_options}
    results = process_pool.ask("race", course=course, writers=writers, commits=commits)
    assert [result for result in results["writers"] if "done" not in result] == []
    (seen,) = results["readers"]
    assert "done" in seen, seen
    assert seen["done"]["wrong"] == []
    assert seen["done"]["versions"] > len(ledger.TABLES)


def assert_race_is_won_by_all(repo: Repository, location: Location, branch: str, *, writers: int, commits: int) -> None:
    wanted = [ledger.mark_of(writer, number) for writer in range(writers) for number in range(commits)]
    published = [mark for mark in ledger.marks(repo, branch) if mark != BEFORE]
    assert len(published) == len(wanted)
    assert set(published) == set(wanted)
    for writer in range(writers):
        own = [mark for mark in published if mark.startswith(f"{writer}-")]
        assert own == [ledger.mark_of(writer, number) for number in range(commits)]
    assert_one_line(repo.list_commits(branch, limit=None))
    assert_every_commit_is_whole(repo, branch, len(wanted))
    rows = ledger.read(repo, branch)
    for key, path in ledger.homes(repo, branch).items():
        assert ledger.read_plain(path, location.storage_options) == rows[key]


def assert_one_line(history: list[GraphCommit]) -> None:
    assert history[-1].parent_commit_id is None
    for newer, older in pairwise(history):
        assert newer.parent_commit_id == older.graph_commit_id
        assert newer.merged_parent_commit_id is None
        assert newer.generation == older.generation + 1
        assert newer.created_at >= older.created_at


def assert_every_commit_is_whole(repo: Repository, branch: str, commits: int) -> None:
    published = ledger.marks(repo, branch)
    newest = repo.sync_branch(branch).version
    for back in range(commits):
        snapshot = repo.snapshot_at_version(newest - back)
        wanted = ledger.expected(published[: len(published) - back])
        assert snapshot.commit.message == published[len(published) - back - 1]
        assert snapshot.commit.tables == tuple(sorted(ledger.TABLES))
        for key, rows in wanted.items():
            assert snapshot[key].count_rows() == len(rows)
            # Reading all of every commit would take longer than the race.
            assert back % 10 != 0 or ledger.found(snapshot[key].to_arrow()) == rows


def test_eight_processes_commit_to_the_same_three_tables(
    process_pool: Program, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    commits = 25 if request.config.getoption("--proof") else 5
    location = Location(root=str(tmp_path))
    repo = ab.init(location / "lake")
    ledger.create(repo)
    race(process_pool, location, writers=8, commits=commits, branch="main")
    assert_race_is_won_by_all(repo, location, "main", writers=8, commits=commits)


def test_processes_fork_the_same_tables_at_the_same_time(process_pool: Program, tmp_path: Path) -> None:
    location = Location(root=str(tmp_path))
    repo = ab.init(location / "lake")
    ledger.create(repo)
    ledger.commit(repo, BEFORE)
    repo.branch_create("dev")
    race(process_pool, location, writers=4, commits=4, branch="dev")
    assert_race_is_won_by_all(repo, location, "dev", writers=4, commits=4)
    assert ledger.read(repo, "main") == ledger.expected([BEFORE])


@pytest.mark.s3
def test_four_processes_commit_to_the_same_three_tables(
    process_pool: Program, location: Location, request: pytest.FixtureRequest
) -> None:
    commits = 25 if request.config.getoption("--proof") else 3
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    ledger.create(repo)
    race(process_pool, location, writers=4, commits=commits, branch="main")
    assert_race_is_won_by_all(repo, location, "main", writers=4, commits=commits)
