"""A disk without a free byte, and a mount without write access. Both are real: a small file system in memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, StorageDeniedError, StorageFullError
from anabranch.repo.repository import Repository
from anabranch.warnings import UnregisteredCloneWarning
from tests.command_line import invoke
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system of its own")

TABLE = "shop.orders"


class SmallDisk:
    """A file system of some megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], check=True)

    def fill(self) -> None:
        """Write until there is not one byte left."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass
        assert os.statvfs(self.path).f_bavail == 0

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk")
    yield made
    made.unmount()


def numbers(count: int, start: int = 0) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"{each:0100d}" for each in ids]})


@pytest.fixture
def repo(disk: SmallDisk) -> Repository:
    """A repository with a table and a branch that holds a few megabytes of its own."""
    repo = ab.init(str(disk.path / "lake"))
    with repo.transaction() as tx:
        tx.create_table(TABLE, numbers(1).schema, primary_key=["id"])
        tx.append(TABLE, numbers(1000))
    repo.branch_create("dev")
    with repo.transaction(branch="dev") as tx:
        tx.append(TABLE, numbers(20_000, start=5000))
    return repo


def test_commit_on_a_full_disk_fails_and_changes_nothing(repo: Repository, disk: SmallDisk) -> None:
    disk.fill()
    before = repo.snapshot_of("main").id
    with pytest.raises(StorageFullError), repo.transaction() as tx:
        tx.append(TABLE, numbers(5000, start=100_000))
    fresh = ab.open(repo.uri)
    assert fresh.snapshot().id == before
    assert fresh.snapshot()[TABLE].count_rows() == 1000


def test_deleted_and_purged_branch_frees_a_full_disk(repo: Repository, disk: SmallDisk) -> None:
    disk.fill()
    repo.branch_delete("dev", purge=True)
    assert os.statvfs(disk.path).f_bavail * os.statvfs(disk.path).f_frsize > 200_000
    with repo.transaction() as tx:
        tx.append(TABLE, numbers(10, start=1000))
    assert ab.open(repo.uri).snapshot()[TABLE].count_rows() == 1010


def test_branch_delete_from_the_shell_works_on_a_full_disk(repo: Repository, disk: SmallDisk) -> None:
    disk.fill()
    answer = invoke("branch", "delete", "dev", "--repo", repo.uri)
    assert answer.code == 0, answer.err
    answer = invoke("gc", "--repo", repo.uri)
    assert answer.code == 0, answer.err
    assert [branch.name for branch in ab.open(repo.uri).branch_list()] == ["main"]


def test_gc_frees_a_full_disk(repo: Repository, disk: SmallDisk) -> None:
    repo.branch_delete("dev")
    pass_time(repo)
    disk.fill()
    report = repo.gc()
    assert report.bytes > 200_000
    with repo.transaction() as tx:
        tx.append(TABLE, numbers(10, start=1000))
    assert repo.doctor().is_clean


def test_full_disk_can_be_freed_again_and_again(repo: Repository, disk: SmallDisk) -> None:
    for number in range(3):
        name = f"again-{number}"
        repo.branch_create(name)
        with repo.transaction(branch=name) as tx:
            tx.append(TABLE, numbers(5000, start=50_000))
        disk.fill()
        repo.branch_delete(name, purge=True)
        (disk.path / "ballast").unlink()
    assert repo.doctor().is_clean


@pytest.fixture
def read_only(repo: Repository, disk: SmallDisk) -> Repository:
    disk.make_read_only()
    return ab.open(repo.uri)


def test_reads_work_on_a_read_only_mount(read_only: Repository) -> None:
    assert read_only.snapshot()[TABLE].count_rows() == 1000
    assert [table.counts.inserted for table in read_only.diff("main", "dev").tables] == [20_000]
    assert read_only.storage_report().total.bytes > 0
    assert read_only.gc(dry_run=True).objects == ()
    assert read_only.doctor().is_clean
    assert len(read_only.list_commits()) == 2


def test_write_on_a_read_only_mount_is_refused(read_only: Repository) -> None:
    with pytest.raises(StorageDeniedError, match="read-only"):
        read_only.branch_create("more")
    with pytest.raises(AnabranchError), read_only.transaction() as tx:
        tx.append(TABLE, numbers(1, start=9999))


@pytest.mark.parametrize("shallow", [True, False])
def test_clone_from_a_read_only_mount(read_only: Repository, tmp_path: Path, shallow: bool) -> None:  # noqa: FBT001
    with pytest.warns(UnregisteredCloneWarning, match="is not registered") if shallow else nullcontext():
        clone = ab.clone(read_only.uri, str(tmp_path / "clone"), shallow=shallow)
    assert clone.snapshot()[TABLE].count_rows() == 1000
    with clone.transaction() as tx:
        tx.append(TABLE, numbers(1, start=9999))
    assert clone.snapshot()[TABLE].count_rows() == 1001
