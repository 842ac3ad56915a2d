"""The order in which a local store writes bytes, names and folders. The power-loss proof shows why it matters."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, InvalidPathError, ObjectExistsError, StorageError, StorageFullError
from anabranch.repo.log.numbered_log import NumberedLog, append_together
from anabranch.storage import ObjectStore, local_store, open_store
from anabranch.storage.local_store import remove_empty_folders
from anabranch.warnings import DurabilityWarning

pytestmark = pytest.mark.usefixtures("real_syncs")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_store(str(root))


class Disk:
    """Records what is asked of the disk, and can make a sync fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        self.fails_on: str | None = None
        self._lock = threading.Lock()
        real_fsync, real_link, real_replace = os.fsync, os.link, os.replace
        real_sync = local_store.sync_file_system

        def fsync(file: int) -> None:
            path = os.readlink(f"/proc/self/fd/{file}")
            self._record("sync", path)
            if self.fails_on is not None and self.fails_on in path:
                raise OSError(errno.EIO, "Input/output error", path)
            real_fsync(file)

        def link(source: str, target: str) -> None:
            self._record("link", target)
            real_link(source, target)

        def replace(source: str, target: str) -> None:
            self._record("rename", target)
            real_replace(source, target)

        def sync_file_system(folder: str) -> None:
            self._record("sync all", folder)
            real_sync(folder)

        monkeypatch.setattr(local_store, "sync_file_system", sync_file_system)
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "link", link)
        monkeypatch.setattr(os, "replace", replace)

    def _record(self, kind: str, path: str) -> None:
        with self._lock:
            self.events.append((kind, path))

    def position(self, kind: str, matches: Callable[[str], bool]) -> int:
        return next(at for at, (seen, path) in enumerate(self.events) if seen == kind and matches(path))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def ends_with(text: str) -> Callable[[str], bool]:
    return lambda path: path.endswith(text)


def test_put_if_absent_syncs_bytes_then_links_then_syncs_the_folder(store: ObjectStore, root: Path, disk: Disk) -> None:
    store.put_if_absent("log/1.json", b"{}")
    bytes_synced = disk.position("sync", lambda path: "/log/1.json#" in path)
    linked = disk.position("link", ends_with("/log/1.json"))
    assert bytes_synced < linked
    assert ("sync", f"{root}/log") in disk.events[linked:]


def test_put_if_absent_in_a_new_folder_syncs_each_path_once(store: ObjectStore, root: Path, disk: Disk) -> None:
    """Only the bytes are synced before the link. The new folder and the one that names it are synced after it."""
    store.put_if_absent("branches/main/1.json", b"{}")
    disk.events.clear()
    store.put_if_absent("branches/dev/1.json", b"{}")
    linked = disk.position("link", ends_with("/branches/dev/1.json"))
    (before,) = disk.events[:linked]
    assert "/branches/dev/1.json#" in before[1]
    assert sorted(disk.events[linked + 1 :]) == [("sync", str(root / "branches")), ("sync", str(root / "branches/dev"))]


def test_files_named_in_after_are_synced_before_the_link(store: ObjectStore, root: Path, disk: Disk) -> None:
    (root / "data").mkdir(parents=True)
    (root / "data" / "a.lance").write_bytes(b"rows")
    store.put_if_absent("log/1.json", b"{}", after=[str(root / "data" / "a.lance")])
    linked = disk.position("link", ends_with("/log/1.json"))
    assert disk.position("sync", ends_with("/data/a.lance")) < linked
    assert disk.position("sync", ends_with("/store/data")) < linked


def test_put_syncs_bytes_then_renames_then_syncs_the_folder(store: ObjectStore, root: Path, disk: Disk) -> None:
    store.put("_repo.json", b"first")
    disk.events.clear()
    store.put("_repo.json", b"second")
    bytes_synced = disk.position("sync", lambda path: "_repo.json#" in path)
    renamed = disk.position("rename", ends_with("/_repo.json"))
    assert bytes_synced < renamed < len(disk.events) - 1
    assert disk.events[-1] == ("sync", str(root))
    assert store.get("_repo.json") == b"second"


def test_new_folders_are_synced_up_to_the_root_once(store: ObjectStore, root: Path, disk: Disk) -> None:
    store.put_if_absent("tables/shop/orders.lance/_versions/1.manifest", b"x")
    synced = [path for kind, path in disk.events if kind == "sync"]
    for folder in ("tables/shop/orders.lance/_versions", "tables/shop/orders.lance", "tables/shop", "tables", ""):
        assert str(root / folder).rstrip("/") in synced
    disk.events.clear()
    store.put_if_absent("tables/shop/orders.lance/_versions/2.manifest", b"x")
    folders = {path for kind, path in disk.events if kind == "sync" and "#" not in path}
    assert folders == {str(root / "tables/shop/orders.lance/_versions")}


def test_parents_are_synced_again_after_folders_were_removed(store: ObjectStore, root: Path, disk: Disk) -> None:
    """A new folder may get the name and the inode of a removed one, so nothing is taken as known after a removal."""
    store.put_if_absent("tree/a/1.manifest", b"x")
    (root / "tree" / "b").mkdir()
    remove_empty_folders(str(root), "tree/b")
    disk.events.clear()
    store.put_if_absent("tree/a/2.manifest", b"x")
    assert {("sync", str(root / "tree")), ("sync", str(root))} <= set(disk.events)


def test_unimportant_objects_are_not_synced(store: ObjectStore, disk: Disk) -> None:
    store.put("log/hint", b"1", durable=False)
    store.put_if_absent("_commits/1.json", b"{}", durable=False)
    assert [event for event in disk.events if event[0] == "sync"] == []


def test_durability_none_never_syncs(root: Path, disk: Disk) -> None:
    store = open_store(str(root), {"durability": "none"})
    store.put("a", b"1")
    store.put_if_absent("b", b"1", after=[str(root / "a")])
    store.put_prepared(store.prepare("c", b"1"))
    store.sync([str(root / "a")])
    store.sync_folders([""])
    store.sync_all()
    assert [event for event in disk.events if event[0] == "sync"] == []
    assert sorted(info.path for info in store.list()) == ["a", "b", "c"]


def test_failed_sync_of_the_bytes_leaves_no_object(store: ObjectStore, root: Path, disk: Disk) -> None:
    disk.fails_on = "1.json#"
    with pytest.raises(StorageError, match="Input/output error"):
        store.put_if_absent("log/1.json", b"{}")
    assert list((root / "log").iterdir()) == []


def test_failed_sync_of_a_replacement_leaves_the_old_object(store: ObjectStore, root: Path, disk: Disk) -> None:
    store.put("marks/1.json", b"old")
    disk.fails_on = "1.json#"
    with pytest.raises(StorageError, match="Input/output error"):
        store.put("marks/1.json", b"new")
    assert [(path.name, path.read_bytes()) for path in (root / "marks").iterdir()] == [("1.json", b"old")]


def test_failed_rename_leaves_no_temporary_file(store: ObjectStore, root: Path) -> None:
    (root / "marks" / "1.json").mkdir(parents=True)
    for is_hint in (False, True):
        with pytest.raises(InvalidPathError):
            store.put("marks/1.json", b"new", is_hint=is_hint)
    assert [path.name for path in (root / "marks").iterdir()] == ["1.json"]


def test_entries_put_together_get_their_names_after_all_bytes_are_synced(
    store: ObjectStore, root: Path, disk: Disk
) -> None:
    logs = [NumberedLog(store, f"log/{name}") for name in "ab"]
    assert append_together(store, [(log, 1, b"{}") for log in logs]) == [True, True]
    entries = [f"{root}/{log.path(1)}" for log in logs]
    first, last = disk.events.index(("link", entries[0])), disk.events.index(("link", entries[1]))
    synced = {path.partition("#")[0] for kind, path in disk.events[:first] if kind == "sync"}
    assert synced >= {*entries}
    assert {("sync", f"{root}/{log.folder}") for log in logs} <= {*disk.events[last:]}
    assert append_together(store, [(logs[0], 1, b"other"), (logs[1], 2, b"{}")]) == [False, True]
    assert not list(root.rglob("*#*"))


def test_folder_is_synced_only_after_the_link(store: ObjectStore, root: Path, disk: Disk) -> None:
    store.put_if_absent("log/1.json", b"{}")
    disk.events.clear()
    store.put_if_absent("log/2.json", b"{}")
    assert [kind for kind, _ in disk.events] == ["sync", "link", "sync"]
    assert disk.events[1:] == [("link", f"{root}/log/2.json"), ("sync", f"{root}/log")]


def test_missing_file_in_after_leaves_no_object(store: ObjectStore, root: Path) -> None:
    with pytest.raises(StorageError, match=r"gone\.lance"):
        store.put_if_absent("log/1.json", b"{}", after=[str(root / "gone.lance")])
    assert list((root / "log").iterdir()) == []


@pytest.mark.parametrize("put", ["put", "put_if_absent"])
def test_failed_sync_is_reported_although_the_disk_became_read_only(
    store: ObjectStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    disk.fails_on = "2.json#"
    monkeypatch.setattr(os, "remove", refuse)
    with pytest.raises(StorageError, match="Input/output error"):
        getattr(store, put)("log/2.json", b"{}")
    assert [info.path for info in store.list()] == []


def test_put_succeeds_if_the_temporary_file_stays(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(os, "remove", refuse)
    store.put_if_absent("log/2.json", b"{}")
    assert (store.get("log/2.json"), [info.path for info in store.list()]) == (b"{}", ["log/2.json"])


def test_failed_sync_after_the_link_is_a_warning(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_if_absent("log/1.json", b"{}")
    folder, real_fsync = f"{store.uri}/log", os.fsync

    def fail_after_link(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}") == folder and os.path.exists(f"{folder}/2.json"):
            raise OSError(errno.EIO, "Input/output error", folder)
        real_fsync(file)

    monkeypatch.setattr(os, "fsync", fail_after_link)
    with pytest.warns(DurabilityWarning, match=r"2\.json"):
        store.put_if_absent("log/2.json", b"{}")
    assert store.get("log/2.json") == b"{}"


def test_prepared_object_is_invisible_until_it_is_put(store: ObjectStore, root: Path) -> None:
    prepared = store.prepare("_versions/1.manifest", b"bytes")
    assert [info.path for info in store.list()] == []
    store.put_prepared(prepared)
    assert [info.path for info in store.list()] == ["_versions/1.manifest"]
    assert [path.name for path in (root / "_versions").iterdir()] == ["1.manifest"]


def test_prepared_object_does_not_replace_another_one(store: ObjectStore, root: Path) -> None:
    prepared = store.prepare("a", b"mine")
    store.put("a", b"theirs")
    with pytest.raises(ObjectExistsError):
        store.put_prepared(prepared)
    assert store.get("a") == b"theirs"
    assert [path.name for path in root.iterdir()] == ["a"]


def test_discarded_object_leaves_nothing(store: ObjectStore, root: Path) -> None:
    store.discard(store.prepare("a", b"mine"))
    assert list(root.iterdir()) == []


def test_whole_file_system_is_synced(store: ObjectStore) -> None:
    store.put("a", b"1", durable=False)
    store.sync_all()
    assert store.get("a") == b"1"


def test_unknown_durability_is_refused(root: Path) -> None:
    with pytest.raises(InvalidInputError, match="must be 'full' or 'none', got 'maybe'"):
        open_store(str(root), {"durability": "maybe"})
    assert not root.exists()


def test_full_disk_is_reported_as_such(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StorageFullError, match="no space left"):
        store.put_if_absent("a", b"1")


def test_branch_of_a_table_gets_its_name_after_its_bytes_and_its_manifest(tmp_path: Path, disk: Disk) -> None:
    """Lance would write the name first. A power loss would leave an empty ref, which stops listings of branches."""
    repo = ab.init(str(tmp_path / "lake"))
    rows = pa.table({"id": [1]})
    with repo.transaction() as tx:
        tx.create_table("shop.orders", rows.schema)
        tx.append("shop.orders", rows)
    repo.branch_create_from("main", "dev")
    disk.events.clear()
    with repo.transaction(branch="dev") as tx:
        tx.append("shop.orders", rows)
    named = disk.position("link", lambda path: "/_refs/branches/dev%2F" in path)
    assert disk.position("sync", lambda path: "/_refs/branches/dev%2F" in path) < named
    assert disk.position("sync", lambda path: "/tree/dev/" in path and path.endswith(".manifest")) < named
    assert disk.position("sync", lambda path: "/tree/dev/" in path and path.endswith("/_versions")) < named
    folder = disk.events[named][1].rpartition("/")[0]
    assert ("sync", folder) in disk.events[named:]


def test_external_write_is_durable_before_the_commit_that_adopts_it(tmp_path: Path, disk: Disk) -> None:
    """Lance syncs none of its files, and the version that is published has all of them."""
    repo = ab.init(str(tmp_path / "lake"))
    rows = pa.table({"id": [1]})
    with repo.transaction() as tx:
        tx.create_table("shop.orders", rows.schema)
        tx.append("shop.orders", rows)
    lance.write_dataset(rows, repo["shop.orders"].uri, mode="append")
    disk.events.clear()
    repo.adopt("shop.orders")
    entry = disk.position("link", lambda path: "/_versions/main/" in path)
    assert disk.position("sync all", lambda path: path == repo.uri) < entry


def test_adopted_table_is_durable_before_the_commit_that_names_it(tmp_path: Path, disk: Disk) -> None:
    source = str(tmp_path / "orders.lance")
    lance.write_dataset(pa.table({"id": [1]}), source, enable_stable_row_ids=True)
    repo = ab.init(str(tmp_path / "lake"))
    disk.events.clear()
    repo.adopt("shop.orders", source)
    entry = disk.position("link", lambda path: "/_versions/main/" in path)
    assert disk.position("sync all", lambda path: path == source) < entry
