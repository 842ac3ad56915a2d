"""Runs and schema changes of many processes at the same time: all rows once, one end for each run, one holder."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    AnabranchError,
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    CheckFailedError,
    RunEndedError,
)
from anabranch.ids import BranchName
from anabranch.repo.log.entries import CommitKind, RunPhase
from anabranch.repo.merge import run_publish
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.repository import Repository
from anabranch.repo.runs.runs import RUN_ID
from tests.conftest import Location
from tests.processes import Program
from tests.repo.leases import expire
from tests.repo.programs import ledger, runs
from tests.repo.rivals import raced_by


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often rivals meet."""
    return 100 if request.config.getoption("--proof") else 5


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    repo = ab.init(tmp_path / "lake")
    ledger.create(repo)
    return repo


def let_act(process_pool: Program, repo: Repository, names: list[str], *acts: str) -> list[tuple[str, ...]]:
    """What came of the acts on each name, in their order."""
    course = {"uri": repo.uri, "branch": "main", "storage_options": {}}
    results = process_pool.ask("rivalry", course=course, names=names, acts=acts)
    assert [result for result in results if "done" not in result] == []
    return list(zip(*(result["done"] for result in results), strict=True))


def race(process_pool: Program, location: Location, *, writers: int, count: int, branch: str) -> None:
    course = {"uri": location / "lake", "branch": branch, "storage_options": location.storage_options}
    results = process_pool.ask("race of runs", course=course, writers=writers, runs=count)
    assert [result for result in results["writers"] if "done" not in result] == []
    for seen in results["readers"]:
        assert "done" in seen, seen
        assert seen["done"]["wrong"] == []
        assert seen["done"]["reads"] > 1


def assert_all_runs_are_there_once(
    repo: Repository, location: Location, branch: str, *, writers: int, count: int, before: int
) -> None:
    wanted = [ledger.mark_of(writer, number) for writer in range(writers) for number in range(count)]
    history = repo.list_commits(branch, limit=None)
    published = [commit for commit in history if commit.kind is CommitKind.PUBLISH_RUN]
    assert sorted(commit.message for commit in published) == sorted(wanted)
    assert len(history) == before + len(wanted)
    found = repo.run_list(limit=None)
    assert {run.id: run.commit_id for run in found} == {c.metadata[RUN_ID]: c.graph_commit_id for c in published}
    assert {run.state for run in found} == {RunPhase.PUBLISHED}
    snapshot = repo.snapshot_of(branch)
    homes = ledger.homes(repo, branch)
    for key in runs.APPENDED:
        assert ledger.found(snapshot[key].to_arrow()) == ledger.expected(wanted)[key]
        assert ledger.read_plain(homes[key], location.storage_options) == ledger.expected(wanted)[key]
    for writer in range(writers):
        own = [ledger.mark_of(writer, number) for number in range(count)]
        assert ledger.found(snapshot[ledger.own_table(writer)].to_arrow()) == ledger.expected(own)[ledger.ORDERS]


def test_eight_processes_with_runs_of_their_own(
    process_pool: Program, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = 25 if request.config.getoption("--proof") else 2
    location = Location(root=str(tmp_path))
    repo = ab.init(location / "lake")
    ledger.create(repo)
    race(process_pool, location, writers=8, count=count, branch="main")
    assert_all_runs_are_there_once(repo, location, "main", writers=8, count=count, before=2)


@pytest.mark.s3
def test_processes_with_runs_that_fork_the_same_tables(
    process_pool: Program, location: Location, request: pytest.FixtureRequest
) -> None:
    count = 10 if request.config.getoption("--proof") else 1
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    ledger.create(repo)
    repo.branch_create("dev")
    race(process_pool, location, writers=3, count=count, branch="dev")
    assert_all_runs_are_there_once(repo, location, "dev", writers=3, count=count, before=2)
    assert all(ledger.read(repo, "main")[key] == [] for key in ledger.TABLES)


# The same run in many hands


def prepared_runs(repo: Repository, count: int) -> list[str]:
    """Runs that have done their work and wait for another process to end them."""
    made = []
    for number in range(count):
        run = repo.begin_run(message=ledger.mark_of(1, number))
        runs.append_in_steps(run, ledger.mark_of(1, number))
        made.append(run.id)
    return made


def assert_ended_once(repo: Repository, run_id: str, mark: str) -> RunPhase:
    """A run is published by one commit, or by none and not published, as recorded in its log."""
    commits = [c for c in repo.list_commits(limit=None) if c.metadata.get(RUN_ID) == run_id]
    info = repo.run_get(run_id).info()
    assert (info.state is RunPhase.PUBLISHED) is bool(commits)
    assert [info.commit_id] * len(commits) == [commit.graph_commit_id for commit in commits]
    snapshot = repo.snapshot_of("main")
    assert (ledger.new_table(mark) in snapshot) is bool(commits)
    wanted = ledger.expected([mark] * len(commits))
    for key in runs.APPENDED:
        assert [row for row in ledger.found(snapshot[key].to_arrow()) if row[1] == mark] == wanted[key]
    return info.state


def test_processes_publish_the_same_run(process_pool: Program, lake: Repository, rounds: int) -> None:
    made = prepared_runs(lake, rounds)
    for number, outcomes in enumerate(let_act(process_pool, lake, made, *["publish"] * 4)):
        assert assert_ended_once(lake, made[number], ledger.mark_of(1, number)) is RunPhase.PUBLISHED
        assert set(outcomes) <= {"done", "RunEndedError"}  # who was as fast gets the same commit


def test_processes_publish_and_abort_the_same_run(process_pool: Program, lake: Repository, rounds: int) -> None:
    made = prepared_runs(lake, rounds)
    acts = ["publish", "abort", "publish", "abort", "publish in vain"]
    for number, outcomes in enumerate(let_act(process_pool, lake, made, *acts)):
        state = assert_ended_once(lake, made[number], ledger.mark_of(1, number))
        reported = list(zip(acts, outcomes, strict=True))
        assert (("publish", "done") in reported) is (state is RunPhase.PUBLISHED), reported
        assert (("abort", "done") in reported) is (state is RunPhase.ABORTED), reported
        assert set(outcomes) <= {"done", "RunEndedError", "BusyError", "CheckFailedError"}


def test_abort_that_returns_keeps_its_word(lake: Repository) -> None:
    """One process publishes; another one fails to, which lets the run continue; a third one aborts it."""
    (run_id,) = prepared_runs(lake, 1)
    reported: list[str] = []

    def in_between(_: object) -> None:
        with pytest.raises(AnabranchError):
            lake.run_get(run_id).publish(checks=[lambda _: False])
        try:
            lake.run_get(run_id).abort()
        except AnabranchError as err:
            reported.append(err.code)
        else:
            reported.append("aborted")

    try:
        lake.run_get(run_id).publish(checks=[in_between])
    except AnabranchError as err:
        reported.append(err.code)
    else:
        reported.append("published")
    state = assert_ended_once(lake, run_id, ledger.mark_of(1, 0))
    assert [word for word in reported if word in ("aborted", "published")] == [state]


def test_abort_of_a_run_whose_publisher_only_seemed_dead(lake: Repository) -> None:
    (run_id,) = prepared_runs(lake, 1)

    def in_between(_: object) -> None:
        expire(lake)
        lake.run_get(run_id).abort()

    with pytest.raises(RunEndedError, match="aborted"):
        lake.run_get(run_id).publish(checks=[in_between])
    assert assert_ended_once(lake, run_id, ledger.mark_of(1, 0)) is RunPhase.ABORTED


def _refuse(branch: BranchName) -> Combiner:
    raise AssertionError(f"nothing on {branch} has to be merged")


def test_abort_at_the_moment_at_which_a_publisher_succeeds_that_seemed_dead(lake: Repository) -> None:
    """The abort looks for the commit before it is there, and puts its entry after."""
    (run_id,) = prepared_runs(lake, 1)
    announced, _ = run_publish._announce(testing.repo_store_of(lake), run_id)
    expire(lake)

    def publish(other: Repository) -> None:
        carrier = run_publish._Carrier(testing.repo_store_of(other), announced, _refuse)
        run_publish._publish(testing.repo_store_of(other), carrier, inspect=None, metadata={})

    aborting = raced_by(lake, publish)
    with pytest.raises(RunEndedError, match="published"):
        aborting.run_get(run_id).abort()
    assert assert_ended_once(lake, run_id, ledger.mark_of(1, 0)) is RunPhase.PUBLISHED


def test_work_does_not_continue_while_another_writer_may_still_publish(lake: Repository) -> None:
    (run_id,) = prepared_runs(lake, 1)

    def in_between(_: object) -> None:
        with pytest.raises(CheckFailedError):
            lake.run_get(run_id).publish(checks=[lambda _: False])
        with pytest.raises(BusyError, match="being published"), lake.run_get(run_id).transaction() as tx:
            tx.append(ledger.EVENTS, ledger.rows([(1, "lost")]))

    assert lake.run_get(run_id).publish(checks=[in_between]) is not None
    assert assert_ended_once(lake, run_id, ledger.mark_of(1, 0)) is RunPhase.PUBLISHED


# A run begins on a branch that is deleted


def is_there(repo: Repository, branch: str) -> bool:
    return branch in [found.name for found in repo.branch_list()]


def test_branch_deleted_while_a_run_begins(lake: Repository) -> None:
    lake.branch_create("dev")
    with pytest.raises(BranchNotFoundError, match="at the same time"):
        raced_by(lake, lambda other: other.branch_delete("dev")).begin_run("dev")
    assert not is_there(lake, "dev")
    assert [run.state for run in lake.run_list()] == [RunPhase.ABORTED]
    lake.branch_restore("dev")
    lake.branch_delete("dev")


def test_branch_deleted_and_made_again_while_a_run_begins(lake: Repository) -> None:
    def replace(other: Repository) -> None:
        other.branch_delete("dev")
        other.branch_create("dev")

    lake.branch_create("dev")
    with pytest.raises(BranchNotFoundError, match="at the same time"):
        raced_by(lake, replace).begin_run("dev")
    assert [run.state for run in lake.run_list()] == [RunPhase.ABORTED]
    lake.branch_delete("dev")


def test_run_begins_while_its_branch_is_deleted(lake: Repository) -> None:
    lake.branch_create("dev")
    begun = []
    with pytest.raises(BranchInUseError, match="active"):
        raced_by(lake, lambda other: begun.append(other.begin_run("dev", message="1-0"))).branch_delete("dev")
    (run,) = begun
    runs.append_in_steps(run, "1-0")
    assert run.publish() is not None
    assert ledger.marks(lake, "dev") == ["1-0"]
    lake.branch_delete("dev")


def test_runs_begin_on_branches_that_are_deleted(process_pool: Program, lake: Repository, rounds: int) -> None:
    names = [f"dev/{number}" for number in range(rounds)]
    for name in names:
        lake.branch_create(name)
    outcomes = let_act(process_pool, lake, names, "begin", "delete")
    active = {run.target for run in lake.run_list(limit=None) if run.state is RunPhase.RUNNING}
    for name, (begun, deleted) in zip(names, outcomes, strict=True):
        assert begun in ("done", "BranchNotFoundError")
        assert deleted in ("done", "BranchInUseError")
        assert (begun, deleted) != ("done", "done")
        assert is_there(lake, name) is (deleted != "done")
        assert (name in active) is (begun == "done")
