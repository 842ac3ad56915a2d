"""The values a repository is made of are immutable."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict

import pytest

import anabranch as ab
from tests.repo.conftest import ORDERS, append, table


@pytest.fixture
def commit(lake: ab.Repository) -> ab.GraphCommit:
    with lake.transaction(message="labelled", metadata={"run": "7", "ticket": "A-1"}) as tx:
        tx.append(ORDERS, table(4))
    return lake.snapshot().commit


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.update(run="8"),
        lambda metadata: metadata.__setitem__("run", "8"),
        lambda metadata: metadata.__delitem__("run"),
        lambda metadata: metadata.__ior__({"run": "8"}),
        lambda metadata: metadata.pop("run"),
        lambda metadata: metadata.popitem(),
        lambda metadata: metadata.setdefault("new", "8"),
        lambda metadata: metadata.clear(),
    ],
)
def test_metadata_do_not_change_nor_does_the_next_commit_change_them(
    lake: ab.Repository, commit: ab.GraphCommit, change: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError, match="make a copy"):
        change(commit.metadata)
    append(lake, 5)
    reported = [ab.open(lake.uri).list_commits(limit=2)[1], lake.list_commits(limit=2)[1], lake.get_commit("main~1")]
    assert [one.metadata for one in reported] == [{"run": "7", "ticket": "A-1"}] * 3


def test_what_was_given_as_metadata_can_be_used_again(lake: ab.Repository) -> None:
    given = {"run": "7"}
    with lake.transaction(metadata=given) as tx:
        tx.append(ORDERS, table(4))
    given["run"] = "8"
    assert lake.snapshot().commit.metadata == {"run": "7"}


def test_metadata_are_a_dict_to_readers(commit: ab.GraphCommit) -> None:
    metadata = commit.metadata
    assert metadata == {"run": "7", "ticket": "A-1"}
    assert repr(metadata) == "{'run': '7', 'ticket': 'A-1'}"
    assert json.loads(json.dumps(metadata)) == metadata
    assert asdict(commit)["metadata"] == metadata
    assert {**metadata, "run": "8"} == {"run": "8", "ticket": "A-1"}
    assert {commit} == {copy.deepcopy(commit)}


def test_commits_travel_to_other_processes(commit: ab.GraphCommit) -> None:
    arrived = pickle.loads(pickle.dumps(commit))  # noqa: S301 - of our own making
    assert arrived == commit
    with pytest.raises(TypeError):
        arrived.metadata.clear()
