"""Every operation of the object store, on local disk and on a real S3 server."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import (
    AnabranchError,
    InvalidPathError,
    LinkError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from anabranch.storage import ObjectStore, copy_between, copy_verified, open_files, open_store
from anabranch.testing import WrappedStore
from tests.conftest import Location

MB = 1 << 20
T = TypeVar("T")


@pytest.fixture
def store(location: Location) -> ObjectStore:
    return open_store(location / "lake", location.storage_options)


def paths(store: ObjectStore, prefix: str = "") -> list[str]:
    return sorted(info.path for info in store.list(prefix))


@pytest.mark.s3
def test_what_was_put_is_got(store: ObjectStore) -> None:
    store.put("a/b.json", b"one")
    assert store.get("a/b.json") == b"one"
    store.put("a/b.json", b"")
    assert store.get("a/b.json") == b""


@pytest.mark.s3
def test_some_bytes_of_an_object_can_be_got(store: ObjectStore) -> None:
    store.put("a", b"0123456789")
    assert (store.get_range("a", 0, 3), store.get_range("a", 7, 3)) == (b"012", b"789")
    with pytest.raises(ObjectNotFoundError):
        store.get_range("none", 0, 1)


@pytest.mark.s3
def test_head_shows_size_and_time(store: ObjectStore) -> None:
    store.put("a", b"12345")
    info = store.head("a")
    assert (info.path, info.size) == ("a", 5)
    assert info.modified.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - info.modified) < timedelta(minutes=10)


@pytest.mark.s3
def test_put_if_absent_keeps_the_first(store: ObjectStore) -> None:
    store.put_if_absent("log/1.json", b"first")
    with pytest.raises(ObjectExistsError, match=r"log/1\.json' exists already"):
        store.put_if_absent("log/1.json", b"second")
    assert store.get("log/1.json") == b"first"


@pytest.mark.s3
def test_listing_finds_what_is_below_a_folder(store: ObjectStore) -> None:
    for path in ("a/1", "a/b/2", "ab/3", "4"):
        store.put(path, b"x" * len(path))
    assert paths(store) == ["4", "a/1", "a/b/2", "ab/3"]
    assert paths(store, "a") == paths(store, "a/") == ["a/1", "a/b/2"]
    assert {info.path: info.size for info in store.list("a")} == {"a/1": 3, "a/b/2": 5}
    assert sorted(store.list_folders()) == ["a", "ab"]
    assert store.list_folders("a") == ("a/b",)


@pytest.mark.s3
def test_a_missing_folder_lists_nothing(store: ObjectStore) -> None:
    assert (paths(store), paths(store, "no/such"), store.list_folders(), store.list_folders("no")) == ([], [], (), ())
    store.put("a/1", b"")
    assert (paths(store, "no/such"), store.list_folders("no")) == ([], ())


@pytest.mark.s3
def test_more_than_a_page_of_objects_is_listed(store: ObjectStore) -> None:
    count = 1100
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.put(f"log/{number:05d}", b"x"), range(count)))
    assert paths(store, "log") == [f"log/{number:05d}" for number in range(count)]


@pytest.mark.s3
def test_deleting_removes_one_object_and_never_minds_a_missing_one(store: ObjectStore) -> None:
    store.put("a/1", b"")
    store.put("a/2", b"")
    store.delete("a/1")
    store.delete("a/1")
    store.delete("never/was")
    assert paths(store) == ["a/2"]


@pytest.mark.s3
def test_a_missing_object_is_not_found_by_name(store: ObjectStore) -> None:
    store.put("there", b"")
    for request in (
        lambda: store.get("a/b"),
        lambda: store.head("a/b"),
        lambda: next(store.stream("a/b")),
    ):
        with pytest.raises(ObjectNotFoundError, match=f"there is no object '{store.uri}/a/b'; check the path"):
            request()


def test_nothing_is_found_in_a_folder_that_is_not_there(store: ObjectStore) -> None:
    for request in (lambda: store.get("a"), lambda: store.head("a")):
        with pytest.raises(ObjectNotFoundError, match="there is no object"):
            request()
    store.delete("a")


@pytest.mark.s3
@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/", "./a"])
def test_no_path_leaves_the_root(store: ObjectStore, path: str) -> None:
    store.put("a", b"mine")
    requests: list[Callable[[], object]] = [
        lambda: store.get(path),
        lambda: store.head(path),
        lambda: next(store.stream(path)),
        lambda: store.put(path, b"x"),
        lambda: store.put_if_absent(path, b"x"),
        lambda: store.put_stream(path, iter([b"x"])),
        lambda: store.delete(path),
    ]
    for request in requests:
        with pytest.raises(InvalidPathError):
            request()
    assert paths(store) == ["a"]


@pytest.mark.parametrize("prefix", ["..", "../x", "/etc", "a//b", "."])
def test_no_listing_leaves_the_root(store: ObjectStore, prefix: str) -> None:
    store.put("a", b"mine")
    for request in (lambda: list(store.list(prefix)), lambda: store.list_folders(prefix)):
        with pytest.raises(InvalidPathError):
            request()


@pytest.mark.s3
def test_odd_object_names_are_kept_as_they_are(store: ObjectStore) -> None:
    names = ["a b", "a#b", "a%2Fb", "a%41", "ünï/日本", "a+b", "a?b", "a=b&c", "~", "a:b", "a'b\"c"]
    for name in names:
        store.put(name, name.encode())
    assert paths(store) == sorted(names)
    assert [store.get(name).decode() for name in names] == names


def test_a_name_that_obstore_keeps_for_itself_on_local_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPathError, match="x#1"):
        open_store(tmp_path).put("x#1", b"")


@pytest.mark.parametrize("name", ["a b", "a#b", "a%41b", "a%20b", "ünï 日本", "a+b", "x#1", "a:b", "-a", "a\\b"])
def test_lance_and_the_store_agree_on_an_odd_root_on_disk(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    lance.write_dataset(pa.table({"id": [1]}), str(root))
    store = open_store(root)
    on_disk = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert paths(store) == on_disk
    assert "_versions" in store.list_folders()


@pytest.mark.s3
@pytest.mark.parametrize("name", ["a b", "ünï 日本", "a+b", "a=b", "a:b", "[a]"])
def test_lance_and_the_store_agree_on_an_odd_root(location: Location, name: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), location / name, storage_options=location.storage_options or None)
    assert "_versions" in open_store(location / name, location.storage_options).list_folders()
    assert open_store(location.root, location.storage_options).list_folders() == (name,)


@given(data=st.binary(max_size=100), chunks=st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_survive_whole_and_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, chunks: list[bytes]
) -> None:
    store = open_store(tmp_path_factory.getbasetemp() / "any")
    store.put("a", data)
    assert (store.get("a"), b"".join(store.stream("a"))) == (data, data)
    store.put_stream("b", iter(chunks))
    assert store.get("b") == b"".join(chunks)


@pytest.mark.s3
def test_a_large_object_goes_from_store_to_store_and_back(location: Location, tmp_path: Path) -> None:
    data = os.urandom(MB) * 20
    here, there = open_store(tmp_path / "here"), open_store(location / "there", location.storage_options)
    here.put("large", data)
    copy_between(here, "large", there, "a/large")
    assert there.head("a/large").size == len(data)
    copy_between(there, "a/large", here, "back")
    assert here.get("back") == data


@pytest.mark.s3
def test_a_large_object_is_read_in_pieces(store: ObjectStore) -> None:
    store.put_stream("large", (bytes([number]) * MB for number in range(20)))
    sizes = [len(chunk) for chunk in store.stream("large")]
    assert sum(sizes) == 20 * MB
    assert max(sizes) < 20 * MB


@pytest.mark.s3
def test_an_object_whose_pieces_broke_off_never_appears(store: ObjectStore) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * 12 * MB
        raise KeyError("the source broke")

    store.put("there", b"")
    with pytest.raises(KeyError, match="the source broke"):
        store.put_stream("a/broken", pieces())
    assert paths(store) == ["there"]


@pytest.mark.s3
def test_a_missing_source_leaves_no_target(location: Location) -> None:
    source, target = (open_store(location / name, location.storage_options) for name in ("source", "target"))
    with pytest.raises(ObjectNotFoundError):
        copy_between(source, "a", target, "b")
    assert paths(target) == []


class _ShortStore:
    """A source that shrinks while it is read: its head shows more than its stream gives."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def stream(self, path: str) -> Iterator[bytes]:
        yield self._inner.get(path)[:-1]


@pytest.mark.parametrize("copy", [copy_between, copy_verified])
def test_a_copy_that_arrived_short_is_reported(tmp_path: Path, copy: Callable[..., None]) -> None:
    source, target = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    source.put("x", b"123")
    with pytest.raises(StorageError, match=r"2 of 3 bytes arrived at '.*/b/x'; try again"):
        copy(_ShortStore(source), "x", target, "x")


@pytest.mark.s3
def test_of_eight_threads_one_puts_each_object(store: ObjectStore) -> None:
    threads, objects = 8, 20
    start = Barrier(threads)

    def race(number: int) -> list[bool]:
        start.wait()
        return [wins(store, f"log/{name:02d}", b"%d" % number) for name in range(objects)]

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(race, range(threads)))
    for name in range(objects):
        winners = [number for number in range(threads) if results[number][name]]
        assert [b"%d" % winner for winner in winners] == [store.get(f"log/{name:02d}")]


def test_of_four_processes_one_puts_each_object(tmp_path: Path) -> None:
    processes, objects = 4, 100
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        results = pool.starmap(race_in_a_process, [(str(tmp_path), number, objects) for number in range(processes)])
    store = open_store(tmp_path)
    for name in range(objects):
        winners = [number for number in range(processes) if results[number][name]]
        assert [b"%d" % winner for winner in winners] == [store.get(f"log/{name:03d}")]


def race_in_a_process(root: str, number: int, objects: int) -> list[bool]:
    store = open_store(root)
    return [wins(store, f"log/{name:03d}", b"%d" % number) for name in range(objects)]


def wins(store: ObjectStore, path: str, data: bytes) -> bool:
    try:
        store.put_if_absent(path, data)
    except ObjectExistsError:
        return False
    return True


def test_a_reader_never_sees_half_an_object(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    versions = [bytes([number]) * MB for number in range(2)]
    store.put("a", versions[0])

    def write() -> None:
        for turn in range(20):
            store.put("a", versions[turn % 2])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        seen = [store.get("a")]
        while not writing.done():
            seen.append(store.get("a"))
        writing.result()
    assert all(data in versions for data in seen)


def test_opening_a_store_creates_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    assert paths(store) == []
    assert not (tmp_path / "lake").exists()


def test_what_is_a_file_is_not_a_folder(tmp_path: Path) -> None:
    open_store(tmp_path).put("file", b"1")
    inside = open_store(tmp_path / "file")
    assert paths(inside) == []
    requests: list[Callable[[], None]] = [lambda: inside.put("x", b""), lambda: open_store(tmp_path).put("file/x", b"")]
    for request in requests:
        with pytest.raises(InvalidPathError, match="file"):
            request()


def test_a_folder_is_not_an_object(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("folder/x", b"1")
    with pytest.raises(ObjectNotFoundError):
        store.get("folder")
    requests: list[Callable[[], None]] = [lambda: store.put("folder", b""), lambda: store.delete("folder")]
    for request in requests:
        with pytest.raises(AnabranchError, match="folder"):
            request()
    assert paths(store) == ["folder/x"]


@pytest.mark.s3
def test_a_verified_copy_is_the_same(store: ObjectStore, tmp_path: Path) -> None:
    target = open_store(tmp_path / "target")
    store.put("x", b"a" * (3 * MB))
    copy_verified(store, "x", target, "y")
    assert target.get("y") == b"a" * (3 * MB)


class _ForgetfulStore(WrappedStore):
    """A disk that gives back something else than it was given, of the same size."""

    def _request(self, _operation: str, _path: str, send: Callable[[], T]) -> T:
        return send()

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        data = b"".join(chunks)
        self._inner.put(path, data[:-1] + b"?")


def test_a_copy_that_is_not_the_same_is_noticed(tmp_path: Path) -> None:
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    source.put("x", b"as it was")
    with pytest.raises(StorageError, match="differs from its source"):
        copy_verified(source, "x", _ForgetfulStore(target), "x")


def test_links_below_a_root_are_neither_listed_nor_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_bytes(b"1")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder" / "secret").symlink_to(tmp_path / "outside" / "secret")
    store = open_store(str(root))
    assert [info.path for info in store.list()] == ["folder/file"]
    assert store.list_folders() == ("folder",)
    assert [info.path for info in store.list_files("folder")] == ["folder/file"]
    for path in ("link/secret", "folder/secret", "link/new"):
        for request in (store.get, store.head, store.delete, lambda path: store.put(path, b"2")):
            with pytest.raises(LinkError):
                request(path)
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "outside" / "new").exists()


def test_links_in_a_folder_that_a_user_names_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.csv").write_bytes(b"1")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.csv").symlink_to(tmp_path / "elsewhere.csv")
    store = open_files(str(tmp_path / "root"))
    assert [info.path for info in store.list()] == ["a.csv"]
    assert store.get("a.csv") == b"1"


@pytest.mark.s3
def test_find_returns_none_for_a_missing_object(store: ObjectStore) -> None:
    assert store.find("a/b") is None
    store.put("a/b", b"here")
    assert store.find("a/b") == b"here"
