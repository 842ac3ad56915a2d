"""Walks along first parents: commits that several branches share are read once."""

from dataclasses import replace

import pytest

from anabranch import testing
from anabranch.ids import BranchName
from anabranch.repo.gc.roots import FirstParents
from anabranch.repo.log import codec
from anabranch.repo.log.commits import Commits
from anabranch.repo.repository import Repository
from anabranch.testing import CountingStore
from tests.repo.conftest import append


def test_shared_first_parents_are_read_once(lake: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_PAGE", 3)
    for number in range(4, 12):
        append(lake, number)
    for name in ("early", "late"):
        lake.branch_create_from("main~5" if name == "early" else "main", name)
        append(lake, 20, branch=name)
    heads = {name: testing.repo_store_of(lake).heads.get(BranchName(name)).head for name in ("main", "early", "late")}
    store = CountingStore(testing.store_of(lake))
    read = Commits(replace(testing.config_of(lake), store=store))
    walk = FirstParents(read)
    assert list(walk.iter_from(heads["main"])) == list(read.iter_history(heads["main"]))
    # Both ways read each page once.
    assert store.counts["get"] == 2 * len({path for _, path in store.requests})
    store.reset()
    for name in ("late", "early", "main"):
        assert list(walk.iter_from(heads[name])) == list(testing.repo_store_of(lake).commits.iter_history(heads[name]))
    assert store.total == 0
    assert walk.known.keys() >= {commit.graph_commit_id for commit in lake.list_commits(limit=None)}


def test_walk_can_start_at_any_commit(lake: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_PAGE", 3)
    for number in range(4, 12):
        append(lake, number)
    head = testing.repo_store_of(lake).heads.get(BranchName("main")).head
    whole = list(testing.repo_store_of(lake).commits.iter_history(head))
    for beginning in range(len(whole)):
        walk = FirstParents(testing.repo_store_of(lake).commits)
        older = testing.repo_store_of(lake).commits.get(whole[beginning].graph_commit_id)
        assert list(walk.iter_from(older)) == whole[beginning:]
        assert list(walk.iter_from(head)) == whole
