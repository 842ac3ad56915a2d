"""Merges that are killed at every step, and concurrent merges: no row is lost, and the merge can be repeated."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.repo.repository import Repository
from tests.processes import Program
from tests.repo.programs import ledger, merges

EVERY_NTH_POINT = 31


def made(folder: Path) -> Repository:
    repo = ab.init(folder)
    ledger.create(repo)
    merges.prepare(repo, "dev")
    return repo


def test_a_merge_killed_anywhere_leaves_both_branches_and_can_be_repeated(
    process_pool: Program, tmp_path: Path, every: int
) -> None:
    points = len(process_pool.points_of("merge", uri=made(tmp_path / "untouched").uri, name="dev"))
    wanted = merges.state(ab.open(tmp_path / "untouched"), "main")
    assert wanted[merges.LISTED][:4] == [(0, "base"), (1, "dev"), (3, "main"), (4, "base")]
    for fatal in range(0, points, every):
        repo = made(tmp_path / f"lake{fatal}")
        before = {branch: merges.state(repo, branch) for branch in ("main", "dev")}
        killed = process_pool.kill_at(fatal, "merge", uri=repo.uri, name="dev")
        other = ab.open(repo.uri)
        assert merges.state(other, "dev") == before["dev"]
        is_done = any(point.startswith("after put_if_absent _versions/main/") for point in killed)
        assert merges.state(other, "main") in ([wanted] if is_done else [before["main"], wanted])
        other.merge("dev", into="main", message="merge dev")
        assert merges.state(other, "main") == wanted
        merged = [commit for commit in other.list_commits("main", limit=None) if commit.message == "merge dev"]
        assert len(merged) == 1
        plain = {key: ledger.read_plain(path, {}) for key, path in ledger.homes(other).items()}
        assert plain == wanted
        other.branch_delete("dev")
        assert merges.state(other, "main") == wanted


def test_a_rebase_killed_anywhere_is_all_or_nothing(process_pool: Program, tmp_path: Path, every: int) -> None:
    points = len(process_pool.points_of("rebase", uri=made(tmp_path / "untouched").uri, name="dev"))
    wanted = merges.state(ab.open(tmp_path / "untouched"), "dev")
    for fatal in range(0, points, every):
        repo = made(tmp_path / f"lake{fatal}")
        before = {branch: merges.state(repo, branch) for branch in ("main", "dev")}
        process_pool.kill_at(fatal, "rebase", uri=repo.uri, name="dev")
        other = ab.open(repo.uri)
        assert merges.state(other, "main") == before["main"]
        assert merges.state(other, "dev") in (before["dev"], wanted)
        other.rebase("dev", onto="main")
        assert merges.state(other, "dev") == wanted


def test_eight_processes_merge_their_own_branches_into_main_at_once(
    process_pool: Program, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    merges = 3 if request.config.getoption("--proof") else 2
    repo = ab.init(tmp_path / "lake")
    ledger.create(repo)
    course = {"uri": repo.uri, "branch": "main", "storage_options": {}}
    reported = process_pool.ask("race of merges", course=course, writers=8, merges=merges)
    assert all("done" in writer for writer in reported["writers"]), reported
    wanted = sorted((w * 1000 + n, ledger.mark_of(w, n)) for w in range(8) for n in range(merges))
    found = ledger.read(repo)
    assert found == {
        ledger.ORDERS: wanted,
        ledger.EVENTS: wanted,
        ledger.STOCK: [(w, ledger.mark_of(w, merges - 1)) for w in range(8)],
    }
    messages = [commit.message for commit in repo.list_commits("main", limit=None)]
    assert sorted(m for m in messages if m.startswith("merge")) == sorted(f"merge {mark}" for _, mark in wanted)
    assert {key: ledger.read_plain(path, {}) for key, path in ledger.homes(repo).items()} == found
