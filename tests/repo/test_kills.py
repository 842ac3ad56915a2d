"""Processes killed at every point of what they do: the repository opens, shows all or nothing, and continues."""

import random
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import BranchNotFoundError, RepositoryExistsError, RepositoryNotFoundError
from anabranch.repo.repository import Repository
from tests.processes import Program
from tests.repo.programs import ledger

EVERY_NTH_POINT = 5

BEFORE = "99-0"


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    repo = ab.init(tmp_path / "lake")
    ledger.create(repo)
    ledger.commit(repo, BEFORE)
    return repo


def kill(process_pool: Program, scenario: str, uri: str, name: str, fatal: int) -> bool:
    """Kill a scenario at a point; whether it had put an entry into a branch's log by then.

    Each test brings the repository into a state in which the scenario passes as many points as it did without a kill.
    """
    passed = process_pool.kill_at(fatal, scenario, uri=uri, name=name)
    return any(point.startswith("after put_if_absent _versions/") and point.endswith(".json") for point in passed)


def new_name(fatal: int) -> str:
    """Return the mark of a writer that has not written yet.

    The upsert of a writer that has rows already may change one more fragment than without a kill.
    """
    return ledger.mark_of(100 + fatal, 0)


def is_settle(point: str) -> bool:
    """Return whether a point is before or after the put of an ordinary manifest."""
    return "put_if_absent" in point and point.endswith(".manifest")


def assert_all_or_nothing(uri: str, branch: str = "main") -> list[str]:
    """The commits that are there, each in all tables or in none; plain Lance may be behind, but not ahead."""
    repo = ab.open(uri)
    published = ledger.marks(repo, branch)
    assert ledger.read(repo, branch) == ledger.expected(published)
    for key, path in ledger.homes(repo, branch).items():
        if key in ledger.TABLES:
            assert ledger.is_some_state(key, ledger.read_plain(path, {}), published)
    return published


def assert_continues(uri: str, name: str, branch: str = "main") -> None:
    """The next write succeeds, and plain Lance sees it and all before it."""
    repo = ab.open(uri)
    before = ledger.marks(repo, branch)
    ledger.commit(repo, name, branch=branch)
    assert ledger.marks(repo, branch) == [*before, name]
    rows = ledger.read(repo, branch)
    assert rows == ledger.expected([*before, name])
    for key, path in ledger.homes(repo, branch).items():
        if key in ledger.TABLES:
            assert ledger.read_plain(path, {}) == rows[key]


def test_commit(process_pool: Program, lake: Repository, every: int) -> None:
    points = process_pool.points_of("commit", uri=lake.uri, name="1-0")
    assert sum("write_fragments" in point for point in points) == 2 * len(ledger.TABLES)
    assert sum(is_settle(point) for point in points) == 2 * len(ledger.TABLES)
    outcomes = set()
    for fatal in range(0, len(points), every):
        is_published = kill(process_pool, "commit", lake.uri, new_name(fatal), fatal)
        assert assert_all_or_nothing(lake.uri).count(new_name(fatal)) == is_published
        assert_continues(lake.uri, f"3-{fatal}")
        outcomes.add(is_published)
    assert outcomes == {False, True}


def test_first_commit_on_a_branch(process_pool: Program, lake: Repository, every: int) -> None:
    lake.branch_create("dev/1-0")
    points = process_pool.points_of("first commit on a branch", uri=lake.uri, name="1-0")
    assert sum(point.endswith(" clone") for point in points) == 2 * len(ledger.TABLES)
    for fatal in range(0, len(points), every):
        name, branch = f"2-{fatal}", f"dev/2-{fatal}"
        lake.branch_create(branch)
        is_published = kill(process_pool, "first commit on a branch", lake.uri, name, fatal)
        assert assert_all_or_nothing(lake.uri, branch).count(name) == is_published
        assert_continues(lake.uri, f"3-{fatal}", branch)
    assert ledger.read(ab.open(lake.uri)) == ledger.expected([BEFORE])


def test_commit_that_creates_a_table(process_pool: Program, lake: Repository, every: int) -> None:
    points = process_pool.points_of("create a table", uri=lake.uri, name="1-0")
    assert sum("write_dataset" in point for point in points) == 2
    for fatal in range(0, len(points), every):
        name = new_name(fatal)
        is_there = kill(process_pool, "create a table", lake.uri, name, fatal)
        assert assert_all_or_nothing(lake.uri).count(name) == is_there
        new = ledger.new_table(name)
        repo = ab.open(lake.uri)
        assert (new in repo.snapshot()) is is_there
        with repo.transaction(message="again") as tx:
            if not is_there:
                tx.create_table(new, ledger.SCHEMA, primary_key=["id"])
                tx.append(new, ledger.rows([(1, name)]))
            tx.append(new, ledger.rows([(2, "again")]))
        assert ledger.found(repo.snapshot()[new].to_arrow()) == [(1, name), (2, "again")]
        assert ledger.read_plain(ledger.homes(repo)[new], {}) == [(1, name), (2, "again")]
        # This settles what the killed process published, as the next scenario would: it would pass other points.
        assert_continues(lake.uri, f"3-{fatal}")


def test_branch_create(process_pool: Program, lake: Repository) -> None:
    for fatal in range(len(process_pool.points_of("create a branch", uri=lake.uri, name="1-0"))):
        name = f"2-{fatal}"
        is_there = kill(process_pool, "create a branch", lake.uri, name, fatal)
        repo = ab.open(lake.uri)
        assert (f"dev/{name}" in [branch.name for branch in repo.branch_list()]) is is_there
        if not is_there:
            repo.branch_create(f"dev/{name}")
        assert_continues(lake.uri, f"3-{fatal}", f"dev/{name}")


def test_branch_delete(process_pool: Program, lake: Repository, every: int) -> None:
    # One branch for all points: a deletion reads the logs of all branches, so that others would add points.
    lake.branch_create("dev/1-0")
    outcomes = set()
    for fatal in range(0, len(process_pool.points_of("delete a branch", uri=lake.uri, name="1-0")), every):
        repo = ab.open(lake.uri)
        repo.branch_restore("dev/1-0")
        is_deleted = kill(process_pool, "delete a branch", lake.uri, "1-0", fatal)
        assert ("dev/1-0" not in [found.name for found in repo.branch_list()]) is is_deleted
        if not is_deleted:
            assert_continues(lake.uri, f"3-{fatal}", "dev/1-0")
            repo.branch_delete("dev/1-0")
        with pytest.raises(BranchNotFoundError):
            repo.snapshot_of("dev/1-0")
        repo.branch_restore("dev/1-0")
        assert_continues(lake.uri, f"4-{fatal}", "dev/1-0")
        repo.branch_delete("dev/1-0")
        outcomes.add(is_deleted)
    assert outcomes == {False, True}


def test_branch_rename(process_pool: Program, lake: Repository, every: int) -> None:
    """After a kill the old name works, or the new one, or both: then doctor removes the new one, which is unchanged."""
    lake.branch_create("dev/1-0")
    outcomes = set()
    points = process_pool.points_of("rename a branch", uri=lake.uri, name="1-0")
    puts = [at for at, point in enumerate(points) if point.startswith("after put_if_absent _versions/")]
    for fatal in sorted({*range(0, len(points), every), *puts}):
        old, new = f"dev/2-{fatal}", f"new/2-{fatal}"
        lake.branch_create(old)
        lake.branch_create(f"child/{fatal}", old)
        kill(process_pool, "rename a branch", lake.uri, f"2-{fatal}", fatal)
        repo = ab.open(lake.uri)
        there = {old, new} & {branch.name for branch in repo.branch_list()}
        outcomes.add(tuple(sorted(name.partition("/")[0] for name in there)))
        kinds = [finding.kind.value for finding in repo.doctor(repair=True).findings if "rename" in finding.kind.value]
        assert kinds == (["unfinished_rename"] if len(there) == 2 else [])
        repo = ab.open(lake.uri)
        if old in there:
            assert repo.branch_get(f"child/{fatal}").parent == old
            repo.branch_rename(old, new)
        assert repo.branch_get(f"child/{fatal}").parent == new
        assert_continues(lake.uri, f"3-{fatal}", new)
        with pytest.raises(BranchNotFoundError, match="was renamed to"):
            repo.snapshot_of(old)
    assert outcomes == {("dev",), ("dev", "new"), ("new",)}


def test_init(process_pool: Program, tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    for fatal in range(len(process_pool.points_of("init", uri=uri, name="1-0"))):
        kill(process_pool, "init", uri, f"2-{fatal}", fatal)
        location = f"{uri}-2-{fatal}"
        try:
            repo = ab.init(location)
        except RepositoryExistsError:
            repo = ab.open(location)
        ledger.create(repo)
        assert_continues(location, "3-0")


def test_init_that_was_killed_halfway_has_made_nothing(process_pool: Program, tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    points = process_pool.points_of("init", uri=uri, name="1-0")
    fatal = points.index("before put_if_absent _repo.json")
    kill(process_pool, "init", uri, "2-0", fatal)
    with pytest.raises(RepositoryNotFoundError):
        ab.open(f"{uri}-2-0")


def test_kills_at_random_moments(process_pool: Program, lake: Repository, request: pytest.FixtureRequest) -> None:
    kills = 50 if request.config.getoption("--proof") else 6
    moments = random.Random(7)
    for number in range(kills):
        reported = {"scenario": "commit over and over", "uri": lake.uri, "name": f"{number + 2}-"}
        # By the time that it computes, not by the clock: on a busy machine it would not get to a commit.
        assert process_pool.ask("kill", **reported, cpu_seconds=moments.uniform(0, 0.4)) is None
        assert_all_or_nothing(lake.uri)
        assert_continues(lake.uri, f"1-{number}")
    by_the_killed = [mark for mark in ledger.marks(lake) if mark != BEFORE and not mark.startswith("1-")]
    assert by_the_killed
