"""The stores around a store: one counts, one makes a request go wrong."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch.errors import ObjectExistsError, ObjectNotFoundError, StorageUnavailableError
from anabranch.storage import ObjectStore, open_store
from anabranch.testing import CountingStore, Fault, FaultyStore
from tests.conftest import Location

REQUESTS: dict[str, tuple[str, Callable[[ObjectStore], object]]] = {
    "get": ("get", lambda store: store.get("there")),
    "stream": ("get", lambda store: b"".join(store.stream("there"))),
    "head": ("head", lambda store: store.head("there").size),
    "put": ("put", lambda store: store.put("new", b"1")),
    "put_stream": ("put", lambda store: store.put_stream("new", iter([b"1"]))),
    "put_if_absent": ("put_if_absent", lambda store: store.put_if_absent("new", b"1")),
    "list": ("list", lambda store: [info.path for info in store.list()]),
    "list_folders": ("list_folders", lambda store: store.list_folders()),
    "delete": ("delete", lambda store: store.delete("there")),
}


@pytest.fixture
def inner(tmp_path: Path) -> ObjectStore:
    store = open_store(tmp_path)
    store.put("there", b"here")
    return store


@pytest.mark.parametrize("name", REQUESTS)
def test_a_counting_store_answers_like_its_inner_and_counts_one(inner: ObjectStore, name: str) -> None:
    operation, request = REQUESTS[name]
    counting = CountingStore(inner)
    answer = request(counting)
    assert counting.counts == {operation: 1}
    assert counting.total == 1
    if name not in {"put_if_absent", "delete"}:
        assert answer == request(inner)
    assert counting.uri == inner.uri


def test_counts_name_the_paths_and_start_again(inner: ObjectStore) -> None:
    counting = CountingStore(inner)
    counting.get("there")
    counting.head("there")
    counting.put("a", b"")
    assert counting.requests == [("get", "there"), ("head", "there"), ("put", "a")]
    counting.reset()
    assert (counting.total, counting.counts) == (0, {})


def test_failed_requests_count_too(inner: ObjectStore) -> None:
    counting = CountingStore(inner)
    with pytest.raises(ObjectNotFoundError):
        counting.get("nowhere")
    assert counting.counts == {"get": 1}


def test_no_request_is_lost_between_threads(inner: ObjectStore) -> None:
    counting = CountingStore(inner)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counting.get("there"), range(400)))
    assert counting.counts == {"get": 400}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_failed_request_is_never_sent(inner: ObjectStore, name: str) -> None:
    operation, request = REQUESTS[name]
    faulty = FaultyStore(CountingStore(inner), nth=1, fault=Fault.FAIL)
    with pytest.raises(StorageUnavailableError, match=f"an injected fault hit {operation} of"):
        request(faulty)
    assert faulty.reached.is_set()
    assert [info.path for info in inner.list()] == ["there"]
    request(faulty)


@pytest.mark.s3
def test_a_lost_answer_leaves_the_object_there(location: Location) -> None:
    inner = open_store(location / "lake", location.storage_options)
    faulty = FaultyStore(inner, nth=1, fault=Fault.LOSE_ANSWER, operation="put_if_absent")
    with pytest.raises(StorageUnavailableError) as failure:
        faulty.put_if_absent("log/1", b"mine")
    assert failure.value.retryable
    assert inner.get("log/1") == b"mine"
    with pytest.raises(ObjectExistsError):
        faulty.put_if_absent("log/1", b"mine")


@pytest.mark.parametrize("name", ["put", "put_stream", "delete"])
def test_a_request_whose_answer_is_lost_was_carried_out(inner: ObjectStore, name: str) -> None:
    with pytest.raises(StorageUnavailableError):
        REQUESTS[name][1](FaultyStore(inner, nth=1, fault=Fault.LOSE_ANSWER))
    expected = [] if name == "delete" else ["new", "there"]
    assert sorted(info.path for info in inner.list()) == expected


def test_only_the_nth_request_goes_wrong(inner: ObjectStore) -> None:
    faulty = FaultyStore(inner, nth=3, fault=Fault.FAIL)
    faulty.get("there")
    faulty.head("there")
    with pytest.raises(StorageUnavailableError):
        faulty.get("there")
    faulty.get("there")


def test_only_the_nth_request_of_the_chosen_operation_goes_wrong(inner: ObjectStore) -> None:
    faulty = FaultyStore(inner, nth=2, fault=Fault.FAIL, operation="put")
    faulty.put("a", b"")
    faulty.get("there")
    faulty.get("there")
    assert not faulty.reached.is_set()
    with pytest.raises(StorageUnavailableError, match="put of 'b'"):
        faulty.put("b", b"")


def test_a_stalled_request_waits_until_it_is_released(inner: ObjectStore) -> None:
    faulty = FaultyStore(inner, nth=1, fault=Fault.STALL, operation="put_if_absent")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(faulty.put_if_absent, "log/1", b"late")
        try:
            assert faulty.reached.wait(30)
            faulty.put_if_absent("log/1", b"early")
        finally:
            faulty.release()
        with pytest.raises(ObjectExistsError):
            late.result(30)
    assert inner.get("log/1") == b"early"


def test_wrappers_go_around_wrappers(inner: ObjectStore) -> None:
    counting = CountingStore(inner)
    faulty = FaultyStore(counting, nth=1, fault=Fault.FAIL)
    with pytest.raises(StorageUnavailableError):
        faulty.get("there")
    assert faulty.get("there") == b"here"
    assert counting.counts == {"get": 1}
