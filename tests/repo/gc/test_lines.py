"""Lines of first parents: what many branches go back to is read once."""

from dataclasses import replace

import pytest

from anabranch.ids import BranchName
from anabranch.repo.gc.lines import Lines
from anabranch.repo.log import commits
from anabranch.repo.log.commits import Commits
from anabranch.repo.repository import Repository
from anabranch.storage.wrappers import CountingStore
from tests.repo.conftest import append


def test_a_line_is_read_once_however_many_go_back_to_it(lake: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_PAGE", 3)
    for number in range(4, 12):
        append(lake, number)
    for name in ("early", "late"):
        lake.branch_create_from("main~5" if name == "early" else "main", name)
        append(lake, 20, branch=name)
    heads = {name: lake._records.heads.get(BranchName(name)).head for name in ("main", "early", "late")}
    store = CountingStore(lake._context.store)
    read = Commits(replace(lake._context, store=store))
    lines = Lines(read)
    assert list(lines.iter_line(heads["main"])) == list(read.iter_history(heads["main"]))
    # Both ways read each page once.
    assert store.counts["get"] == 2 * len({path for _, path in store.requests})
    store.reset()
    for name in ("late", "early", "main"):
        assert list(lines.iter_line(heads[name])) == list(lake._records.commits.iter_history(heads[name]))
    assert store.total == 0
    assert lines.known.keys() >= {commit.graph_commit_id for commit in lake.list_commits(limit=None)}


def test_a_line_can_be_left_and_taken_up_anywhere(lake: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_PAGE", 3)
    for number in range(4, 12):
        append(lake, number)
    head = lake._records.heads.get(BranchName("main")).head
    whole = list(lake._records.commits.iter_history(head))
    for beginning in range(len(whole)):
        lines = Lines(lake._records.commits)
        older = lake._records.commits.get(whole[beginning].graph_commit_id)
        assert list(lines.iter_line(older)) == whole[beginning:]
        assert list(lines.iter_line(head)) == whole
