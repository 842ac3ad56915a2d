"""Garbage collection killed at any put or delete, and done again: the end is the same, and nothing is lost."""

import shutil
from pathlib import Path

import anabranch as ab
from anabranch import testing
from anabranch.repo.repository import Repository
from tests.processes import Program
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, objects, table
from tests.repo.gc.needed import find_unreachable, is_collected, list_commit_ids, read_what_can_be_read
from tests.repo.gc.object_ages import pass_time
from tests.repo.leases import expire

EVERY_NTH_POINT = 53

# What each collection writes again, or only to be alive.
_PASSING = ("_gc/", "_clock", "_leases/")


def fill(uri: str) -> Repository:
    """A lake with garbage of every kind, old enough to go, beside what has to stay."""
    lake = ab.init(uri)
    with lake.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(10, 20))
        tx.create_table("in_c_sales.dropped", SCHEMA)
    lake.tag_create("first")
    for number in (4, 5, 6):
        append(lake, number)
    for name in ("dev", "gone"):
        lake.branch_create(name)
        append(lake, 7, branch=name)
        append(lake, 70, branch=name, key=CUSTOMERS)
    lake.branch_create_from("gone", "gone/deep")
    append(lake, 8, branch="gone/deep")
    with lake.transaction() as tx:
        tx.drop_table("in_c_sales.dropped")
        tx.overwrite(CUSTOMERS, table(30))
    lake.branch_delete("gone/deep")
    lake.branch_delete("gone")
    lost = lake.transaction("dev")
    lost.append(ORDERS, table(9))
    testing.abandon(lost)
    pass_time(lake)
    return lake


def test_killed_collection_is_done_again(process_pool: Program, tmp_path: Path, every: int) -> None:
    uri, copy = str(tmp_path / "lake"), tmp_path / "copy"
    lake = fill(uri)
    commits = list_commit_ids(lake)
    before = read_what_can_be_read(lake, commits)
    shutil.copytree(uri, copy)
    points = process_pool.points_of("collect garbage", uri=uri, name="")
    end, collected = state_of(lake), collected_in(lake, commits)
    assert find_unreachable(lake) == {}
    assert 0 < len(collected) < len(commits)
    assert sum(point.startswith("before delete tables/") for point in points) > 20
    fatal = [number for number, point in enumerate(points) if point.split()[1] in ("put", "delete")]
    for number in fatal[::every]:
        shutil.rmtree(uri)
        shutil.copytree(copy, uri)
        process_pool.kill_at(number, "collect garbage", uri=uri, name="")
        assert_whole(uri, before)
        expire(lake)
        ab.open(uri).gc(keep_last=1)
        assert state_of(lake) == end
        assert collected_in(lake, commits) == collected
        assert_whole(uri, before)


def state_of(repo: Repository) -> set[str]:
    return {path for path in objects(repo) if not path.startswith(_PASSING)}


def collected_in(repo: Repository, commits: list[str]) -> set[str]:
    return {commit_id for commit_id in commits if is_collected(repo, commit_id)}


def assert_whole(uri: str, before: dict[str, object]) -> None:
    """Every commit is unchanged or reported as collected, and all that refs name are unchanged."""
    repo = ab.open(uri)
    found = read_what_can_be_read(repo, before)
    assert all(rows in ("collected", before[commit_id]) for commit_id, rows in found.items())
    for ref in ("main", "dev", "first"):
        commit_id = repo.snapshot_of(ref).id
        assert found[commit_id] == before[commit_id] != "collected"
