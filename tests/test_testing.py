"""`anabranch.testing`: handles with another store, clock or lease."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.testing import CountingStore


@pytest.fixture
def repo(tmp_path: Path) -> ab.Repository:
    made = ab.init(tmp_path / "lake", durability="none", actor="ada")
    made.load("s.t", pa.table({"id": [1]}))
    made.branch_create_from("main", "dev")
    return made


def test_another_handle_has_the_settings_of_the_first(repo: ab.Repository) -> None:
    dev = testing.open(ab.open(repo.uri, branch="dev", actor="ada"))
    assert (dev.uri, dev.branch, dev.actor) == (repo.uri, "dev", "ada")
    assert testing.open(repo.uri).branch == "main"
    assert testing.open(repo, branch="dev").branch == "dev"


def test_a_store_sees_all_requests(repo: ab.Repository) -> None:
    store = CountingStore(testing.store_of(repo))
    assert testing.open(repo, store=store)["s.t"].count_rows() == 1
    assert store.counts["get"] > 0


def test_a_clock_dates_commits(repo: ab.Repository) -> None:
    then = 1_935_792_000_000_000
    later = testing.open(repo, clock=lambda: then, checks_clock=False)
    later.append("s.t", [{"id": 2}])
    assert repo.get_commit("main").created_at == then
    with pytest.raises(ab.AnabranchError, match="clock"):
        testing.open(repo, clock=lambda: 1_000_000).append("s.t", [{"id": 3}])


def test_a_lease_bounds_the_grace_of_garbage_collection(repo: ab.Repository) -> None:
    repo.gc(grace=timedelta(hours=1), dry_run=True)
    with pytest.raises(ab.InvalidInputError, match="grace"):
        testing.open(repo, lease=timedelta(hours=2)).gc(grace=timedelta(hours=1), dry_run=True)


def test_work_whose_lease_has_aged_is_not_published(repo: ab.Repository) -> None:
    tx = repo.transaction()
    tx.append("s.t", [{"id": 2}])
    testing.age_leases(3600)
    with pytest.raises(ab.AnabranchError, match="not renewed"):
        tx.commit()
    assert repo["s.t"].count_rows() == 1


def test_an_abandoned_transaction_publishes_nothing_and_leaves_its_files(repo: ab.Repository) -> None:
    files = set(Path(repo.uri).rglob("*.lance"))
    tx = repo.transaction()
    tx.append("s.t", [{"id": 2}])
    assert tx["s.t"].count_rows() == 2
    testing.abandon(tx)
    assert repo["s.t"].count_rows() == 1
    assert set(Path(repo.uri).rglob("*.lance")) > files
