"""The lock of schema changes: one holder, expired holders do not block, and no branch is created while it is held."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BranchNotFoundError, BusyError
from anabranch.repo.log.entries import CommitKind
from anabranch.repo.refs.protection import LOCK, holding_schema_lock
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from tests.processes import Program
from tests.repo.conftest import objects
from tests.repo.leases import expire
from tests.repo.programs import ledger, schemas
from tests.repo.rivals import raced_by

EVERY_NTH_POINT = 7


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often rivals meet."""
    return 100 if request.config.getoption("--proof") else 10


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    repo = ab.init(tmp_path / "lake")
    ledger.create(repo)
    return repo


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """What is held until the test ends."""
    with ExitStack() as stack:
        yield stack


def hold(repo: Repository, held: ExitStack) -> None:
    held.enter_context(holding_schema_lock(testing.repo_store_of(repo)))


def names_of(repo: Repository, *, internal: bool = False) -> list[str]:
    return [branch.name for branch in repo.branch_list(internal=internal)]


def puts_into(passed: list[str], branch: str) -> int:
    """How many entries of a branch were put."""
    return sum(point.startswith(f"after put_if_absent _versions/{branch}/") for point in passed)


def let_act(process_pool: Program, repo: Repository, names: list[str], *acts: str) -> list[tuple[str, ...]]:
    course = {"uri": repo.uri, "branch": "main", "storage_options": {}}
    results = process_pool.ask("rivalry", course=course, names=names, acts=acts)
    assert [result for result in results if "done" not in result] == []
    return list(zip(*(result["done"] for result in results), strict=True))


# One holder


def test_lock_is_an_internal_branch(lake: Repository, held: ExitStack) -> None:
    hold(lake, held)
    assert names_of(lake) == ["main"]
    assert names_of(lake, internal=True) == [str(LOCK), "main"]


def test_second_holder_is_refused_until_the_first_is_done(lake: Repository) -> None:
    with holding_schema_lock(testing.repo_store_of(lake)), pytest.raises(BusyError) as caught, ExitStack() as other:
        hold(ab.open(lake.uri), other)
    assert caught.value.retryable
    with ExitStack() as other:
        hold(ab.open(lake.uri), other)


def test_of_two_that_find_the_lock_free_one_gets_it(lake: Repository, held: ExitStack) -> None:
    slower = raced_by(lake, lambda other: hold(other, held))
    with pytest.raises(BusyError), ExitStack() as mine:
        hold(slower, mine)
    with pytest.raises(BusyError), ExitStack() as mine:  # the loser took nothing away
        hold(lake, mine)


def test_processes_hold_the_lock_one_at_a_time(process_pool: Program, lake: Repository, rounds: int) -> None:
    names = [str(number) for number in range(rounds)]
    for outcomes in let_act(process_pool, lake, names, *["hold the schema lock"] * 4):
        assert "done" in outcomes
        assert set(outcomes) <= {"done", "BusyError"}


def test_holder_with_an_expired_lease_does_not_release_the_lock_of_another(lake: Repository, held: ExitStack) -> None:
    with ExitStack() as slow:
        hold(lake, slow)
        expire(lake)
        hold(ab.open(lake.uri), held)
    with pytest.raises(BusyError), ExitStack() as third:
        hold(lake, third)


def test_killed_holder_does_not_block_after_its_lease(process_pool: Program, lake: Repository) -> None:
    with holding_schema_lock(testing.repo_store_of(lake)):
        pass  # the first of all does a little more
    points = process_pool.points_of("hold the schema lock", uri=lake.uri, name="1-0")
    seen = set()
    for fatal in range(len(points)):
        passed = process_pool.kill_at(fatal, "hold the schema lock", uri=lake.uri, name="1-0")
        is_held = puts_into(passed, str(LOCK)) == 1
        if is_held:
            with pytest.raises(BusyError):
                lake.branch_create(f"dev/{fatal}")
        expire(lake)
        lake.branch_create(f"dev/{fatal}")
        with holding_schema_lock(testing.repo_store_of(lake)):
            pass
        seen.add(is_held)
    assert seen == {False, True}


# Branches that are made while it is held


@pytest.mark.parametrize("mode", ["pinned", "live"])
def test_no_branch_is_made_while_the_lock_is_held(lake: Repository, mode: str) -> None:
    with holding_schema_lock(testing.repo_store_of(lake)), pytest.raises(BusyError) as caught:
        ab.open(lake.uri).branch_create_from("main", "dev", mode=mode)
    assert caught.value.retryable
    assert objects(lake, "_versions/dev") == {}
    lake.branch_create_from("main", "dev", mode=mode)


@pytest.mark.parametrize("mode", ["pinned", "live"])
def test_branch_is_rolled_back_when_the_lock_is_taken_concurrently(
    lake: Repository, held: ExitStack, mode: str
) -> None:
    creating = raced_by(lake, lambda other: hold(other, held))
    with pytest.raises(BusyError):
        creating.branch_create_from("main", "dev", mode=mode)
    assert names_of(lake) == ["main"]
    with pytest.raises(BranchNotFoundError):
        lake.snapshot_of("dev")
    held.close()
    lake.branch_create_from("main", "dev", mode=mode)
    assert names_of(lake) == ["dev", "main"]


def test_branches_created_together_are_rolled_back_when_the_lock_is_taken_concurrently(
    lake: Repository, held: ExitStack
) -> None:
    creating = EngineAccess(raced_by(lake, lambda other: hold(other, held)))
    wanted = {"dev": "", "test": ""}
    for _ in range(2):  # the lock is taken while they are created, then before
        with pytest.raises(BusyError):
            creating.create_live_branches(wanted)
        assert names_of(lake) == ["main"]
    held.close()
    assert not creating.create_live_branches(wanted)  # the names were in use
    assert creating.create_live_branches(dict.fromkeys(["new", "newer"], ""))
    assert names_of(lake) == ["main", "new", "newer"]


def test_writing_continues_while_the_lock_is_held(lake: Repository, held: ExitStack) -> None:
    hold(lake, held)
    ledger.commit(ab.open(lake.uri), "1-0")
    assert ledger.read(lake) == ledger.expected(["1-0"])


# Schemas that are applied


def columns_of(repo: Repository, bucket: str) -> dict[str, list[str]]:
    snapshot = repo.snapshot_of("main")
    tables = {key: snapshot[key] for key in snapshot if key.startswith(f"{bucket}.")}
    assert all(table.count_rows() == len(table.to_arrow()) for table in tables.values())
    return {key.partition(".")[2]: table.schema.names for key, table in tables.items()}


def plain_columns_of(repo: Repository, bucket: str, table: str) -> list[str]:
    names: list[str] = lance.dataset(f"{repo.uri}/tables/{bucket}/{table}.lance").schema.names
    return names


def test_apply_is_refused_while_another_one_is_at_work(lake: Repository, held: ExitStack) -> None:
    schemas.create_old(lake, "b_1")
    hold(lake, held)
    with pytest.raises(BusyError, match="schema"):
        schemas.apply(ab.open(lake.uri), "1")
    assert columns_of(lake, "b_1") == schemas.OLD
    held.close()
    schemas.apply(lake, "1")
    assert columns_of(lake, "b_1") == schemas.NEW


def test_killed_apply_leaves_the_old_schema_or_the_new_one(process_pool: Program, lake: Repository, every: int) -> None:
    schemas.create_old(lake, "b_1")
    schemas.apply(lake, "1")  # the first of all does a little more
    schemas.create_old(lake, "b_1_0")
    points = process_pool.points_of("apply a schema", uri=lake.uri, name="1-0")
    for call in ("merge_columns", "create_index_uncommitted", "write_dataset"):
        assert f"after {call}" in points
    assert any(point.startswith("after put_if_absent") and point.endswith(".manifest") for point in points)
    seen = set()
    for fatal in range(0, len(points), every):
        name, bucket = f"2-{fatal}", f"b_2_{fatal}"
        schemas.create_old(lake, bucket)
        passed = process_pool.kill_at(fatal, "apply a schema", uri=lake.uri, name=name)
        is_new = puts_into(passed, "main") == 1
        assert columns_of(lake, bucket) == (schemas.NEW if is_new else schemas.OLD)
        for table, old in schemas.OLD.items():
            assert plain_columns_of(lake, bucket, table) in (old, schemas.NEW[table] if is_new else old)
        if puts_into(passed, str(LOCK)) == 1:
            with pytest.raises(BusyError):
                lake.branch_create(f"dev/{fatal}")
        expire(lake)
        schemas.apply(lake, name)
        assert columns_of(lake, bucket) == schemas.NEW
        made = [c for c in lake.list_commits(limit=None) if c.kind is CommitKind.SCHEMA_APPLY and c.message == name]
        assert len(made) == 1
        lake.branch_create(f"dev/{fatal}")
        seen.add(is_new)
    assert seen == {False, True}


def test_processes_apply_the_same_schema(process_pool: Program, lake: Repository, rounds: int) -> None:
    names = [f"3-{number}" for number in range(rounds // 2)]
    for name in names:
        schemas.create_old(lake, schemas.bucket_of(name))
    outcomes = let_act(process_pool, lake, names, *["apply a schema"] * 3)
    made = [c.message for c in lake.list_commits(limit=None) if c.kind is CommitKind.SCHEMA_APPLY]
    assert sorted(made) == sorted(names)
    for name, reported in zip(names, outcomes, strict=True):
        assert "done" in reported
        assert set(reported) <= {"done", "BusyError"}
        assert columns_of(lake, schemas.bucket_of(name)) == schemas.NEW
