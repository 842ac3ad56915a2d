"""Requests that fail, and requests that are carried out although their answer is lost."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, ObjectExistsError, StorageUnavailableError
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import create_repository
from anabranch.repo.repository import Repository
from anabranch.storage import ObjectStore, open_store
from anabranch.testing import Fault, FaultyStore, WrappedStore
from tests.conftest import Location
from tests.handles import open_with
from tests.repo.programs import ledger

T = TypeVar("T")


class RepeatingStore(WrappedStore):
    """Carry out each conditional put twice, as a client does whose first try timed out: the second meets the first."""

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        result = send()
        return send() if operation == "put_if_absent" else result


def config_through(location: Location, wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store) -> RepoConfig:
    uri = location / "lake"
    return RepoConfig(
        root=uri, store=wrap(open_store(uri, location.storage_options)), storage_options=location.storage_options
    )


@pytest.fixture
def lake(location: Location) -> Repository:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    ledger.create(repo)
    return repo


def assert_whole(lake: Repository, branch: str = "main") -> list[str]:
    published = ledger.marks(lake, branch)
    assert len(set(published)) == len(published)
    assert ledger.read(lake, branch) == ledger.expected(published)
    return published


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
@pytest.mark.parametrize("operation", ["put_if_absent", "put", "get", "list"])
def test_failed_request_of_a_commit_leaves_all_or_nothing(
    lake: Repository, location: Location, operation: str, fault: Fault
) -> None:
    for nth in count(1):
        mark, config = ledger.mark_of(1, nth), config_through(location)
        store = FaultyStore(config.store, nth=nth, fault=fault, operation=operation)
        try:
            ledger.commit(open_with(replace(config, store=store)), mark)
        except StorageUnavailableError:
            # What was carried out is found by looking, so only what was not is the caller's concern.
            assert operation in {"get", "list"} or fault is Fault.FAIL
            assert mark not in assert_whole(lake)
            ledger.commit(lake, mark)
        assert assert_whole(lake)[-1] == mark
        if not store.reached.is_set():
            break
    assert nth > {"put_if_absent": 2, "put": 1, "get": 3, "list": 0}[operation] or not location.is_local


@pytest.mark.s3
def test_conditional_put_accepts_its_own_first_attempt(location: Location) -> None:
    config = config_through(location, RepeatingStore)
    create_repository(config)
    repo = open_with(config)
    ledger.create(repo)
    ledger.commit(repo, "1-0")
    repo.branch_create("dev")
    ledger.commit(repo, "1-1", branch="dev")
    repo.branch_delete("dev")
    repo.branch_restore("dev")
    repo.branch_delete("dev")
    repo.branch_create("dev")
    assert assert_whole(repo) == ["1-0"]
    assert assert_whole(repo, "dev") == ["1-0"]
    assert repo.branch_get("dev").version == 6


class SilentAfter(WrappedStore):
    """Answer nothing any more once a faulty store has had its fault."""

    def __init__(self, faulty: FaultyStore) -> None:
        super().__init__(faulty)
        self._faulty = faulty

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if self._faulty.reached.is_set():
            raise StorageUnavailableError(f"{operation} of {path!r} got no answer", hint="try again")
        return send()


def test_transaction_with_an_unknown_outcome_is_not_published_again(lake: Repository, location: Location) -> None:
    # The entry of the log is put, its answer is lost, and so is that of the read that follows.
    def wrap(inner: ObjectStore) -> ObjectStore:
        return SilentAfter(FaultyStore(inner, nth=2, fault=Fault.LOSE_ANSWER, operation="put_if_absent"))

    tx = open_with(config_through(location, wrap)).transaction(message="1-0")
    ledger.write(tx, "1-0")
    with pytest.raises(StorageUnavailableError):
        tx.commit()
    with pytest.raises(InvalidInputError, match="ended"):
        tx.commit()
    assert assert_whole(lake) == ["1-0"]


def test_lost_answer_to_the_tombstone_of_a_branch(lake: Repository, location: Location) -> None:
    lake.branch_create("dev")
    faulty = open_with(
        config_through(
            location, lambda inner: FaultyStore(inner, nth=1, fault=Fault.LOSE_ANSWER, operation="put_if_absent")
        )
    )
    faulty.branch_delete("dev")
    assert [branch.name for branch in lake.branch_list()] == ["main"]


def test_init_whose_last_answer_is_lost_left_a_repository(tmp_path: Path) -> None:
    location = Location(root=str(tmp_path))
    config = config_through(
        location, lambda inner: FaultyStore(inner, nth=3, fault=Fault.LOSE_ANSWER, operation="put_if_absent")
    )
    create_repository(config)
    ledger.create(ab.open(location / "lake"))


def test_repeating_store_refuses_what_others_put(tmp_path: Path) -> None:
    store = RepeatingStore(open_store(str(tmp_path)))
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("once", b"twice")
