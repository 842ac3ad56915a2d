"""The clones of a repository as their source knows them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import CollectedError, NotFoundError
from anabranch.ids import TableKey
from anabranch.repo.io.clone import clone_repository
from anabranch.repo.log.clones import CloneKind, Clones, CloneState
from anabranch.repo.log.collected import mark_collected
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage import open_store
from anabranch.testing import WrappedStore
from tests.conftest import Location
from tests.repo.conftest import CUSTOMERS, ORDERS

T = TypeVar("T")

KEYS = [TableKey.parse(ORDERS), TableKey.parse(CUSTOMERS)]


@pytest.mark.s3
def test_a_registered_clone_is_held_until_it_is_released(lake: ab.Repository) -> None:
    clones = Clones(testing.config_of(lake))
    head = lake.head_commit_id_for_branch("main")
    first = clones.register(target="/there", kind=CloneKind.SHALLOW, commit_id=head, keys=KEYS)
    second = clones.register(target="/elsewhere", kind=CloneKind.DEEP, commit_id=head, keys=KEYS[:1])

    # Two that were made in the same millisecond have no order.
    assert {(clone.id, clone.commit_id, clone.tables, clone.is_held) for clone in clones.list()} == {
        (first.id, head, tuple(sorted(map(str, KEYS))), True),
        (second.id, head, (str(KEYS[0]),), True),
    }
    assert clones.release(first.id).state is CloneState.RELEASED
    assert clones.release(first.id).state is CloneState.RELEASED  # releasing again is harmless
    assert {(clone.id, clone.is_held) for clone in clones.list()} == {(first.id, False), (second.id, True)}


@pytest.mark.parametrize("wrong", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "../main", "a/b"])
def test_an_unregistered_clone_is_named(lake: ab.Repository, wrong: str) -> None:
    with pytest.raises(NotFoundError, match="no clone"):
        Clones(testing.config_of(lake)).release(wrong)


class _CollectedConcurrently(WrappedStore):
    """A store in which garbage collection marks a commit right after a clone was registered."""

    def __init__(self, config: RepoConfig, commit_id: str) -> None:
        super().__init__(config.store)
        self._mark = partial(mark_collected, config, commit_id, at=1)

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        result = send()
        if operation == "put_if_absent" and path.startswith("_clones/"):
            self._mark()
        return result


def test_a_commit_that_is_collected_at_the_same_time_is_not_cloned(lake: ab.Repository, location: Location) -> None:
    config, target = testing.config_of(lake), open_store(location / "clone", location.storage_options)
    store = _CollectedConcurrently(config, lake.head_commit_id_for_branch("main"))
    source, copy = RepoStore.of(replace(config, store=store)), replace(config, root=location / "clone", store=target)
    with pytest.raises(CollectedError):
        clone_repository(source, copy, ref="main", tables=None, kind=CloneKind.SHALLOW)
    assert [clone.is_held for clone in lake.clone_list()] == [False]
    assert list(target.list()) == []
