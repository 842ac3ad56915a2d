"""Garbage collected beside processes that write and read: they see no difference, and nothing is left."""

import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BusyError
from anabranch.repo.repository import Repository
from tests.processes import Program
from tests.proof_log import record_proof
from tests.repo.gc.needed import find_unreachable, list_readable, read_all
from tests.repo.programs import collecting

LEASE = 0.3
WRITERS = READERS = 2


# Two hundred rounds in all: logs stay for good, so that in one lake each would take longer than the one before.
LONG = [pytest.param(50, id=f"lake {number}", marks=pytest.mark.proof) for number in range(4)]


@pytest.mark.parametrize("rounds", [10, *LONG])
def test_two_write_and_two_read_while_garbage_is_collected(process_pool: Program, tmp_path: Path, rounds: int) -> None:
    uri, began = str(tmp_path / "lake"), time.monotonic()
    collecting.create(ab.init(uri))
    reported = process_pool.ask("race with gc", uri=uri, lease=LEASE, rounds=rounds, writers=WRITERS, readers=READERS)
    results = [*reported["writers"], *reported["readers"]]
    assert [result["error"] for result in results if "done" not in result] == []
    writers, readers = reported["readers"][:WRITERS], reported["readers"][WRITERS:]
    for reader in readers:
        seen = reader["done"]
        assert seen["wrong"] == []
        assert seen["reads"] > 2 * seen["slow"]
    outcomes = [writer["done"]["outcomes"] for writer in writers]
    assert any(each.get("run published") for each in outcomes), outcomes
    assert any(each.get("transaction published") for each in outcomes), outcomes
    repo = collecting.open_quick(uri, LEASE)
    published = sorted(number for writer in writers for number in writer["done"]["main"])
    assert_rows(repo, "main", published)
    for number, writer in enumerate(writers):
        assert_rows(repo, collecting.own_branch(number), sorted(writer["done"]["own"]))
    collect_the_rest(repo)
    assert_rows(repo, "main", published)
    for commit_id in list_readable(repo):
        # Those inside a run that ended just now are there for the grace, and not to be read.
        if not testing.repo_store_of(repo).commits.get(commit_id).commit.branch.startswith("__run__"):
            read_all(repo, commit_id)
    counts = {
        "rounds": rounds,
        "deleted": reported["writers"][0]["done"]["objects"],
        "reads": sum(reader["done"]["reads"] for reader in readers),
        "writes": sum(sum(each.values()) for each in outcomes),
    }
    record_proof("gc beside writers and readers", counts, seconds=time.monotonic() - began)


def assert_rows(repo: Repository, branch: str, ids: list[int]) -> None:
    snapshot = repo.snapshot_of(branch)
    for key in collecting.TABLES:
        assert sorted(snapshot[key].to_arrow().column("id").to_pylist()) == ids


def collect_the_rest(repo: Repository) -> None:
    """Collect until nothing is left; what is younger than the grace takes a moment."""
    grace = testing.config_of(repo).leases.expiry
    for _ in range(1000):
        try:
            report = repo.gc(keep_last=2, grace=grace)
        except BusyError:
            continue  # this process was suspended for longer than work may be silent
        assert report.damaged == ()
        if not report.objects and not find_unreachable(repo):
            return
    raise AssertionError(find_unreachable(repo))
