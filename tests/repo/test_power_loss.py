"""Power loss: what was acknowledged is there after the disk stops at a random moment.

An ext4 file system in a file is shut down without writing its journal, as a power loss would, and mounted again.
"""

import fcntl
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.ids import TableKey
from anabranch.repo.repository import Repository
from tests.processes import running_program
from tests.proof_log import record_proof
from tests.repo.programs.power_loss import SHARED, create, rows

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_JOURNAL = 2
_CRASHES_PER_DISK = 5


def _may_mount() -> bool:
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control") and bool(_find("mkfs.ext4"))


def _find(program: str) -> str | None:
    folders = (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin")
    return next((f"{folder}/{program}" for folder in folders if os.access(f"{folder}/{program}", os.X_OK)), None)


pytestmark = [
    pytest.mark.proof,
    pytest.mark.usefixtures("real_syncs"),
    pytest.mark.xdist_group("power_loss"),
    pytest.mark.skipif(not _may_mount(), reason="needs root, loop devices and mkfs.ext4 to simulate a power loss"),
]


class Disk:
    """An ext4 file system in a file that can lose its power."""

    def __init__(self, folder: Path) -> None:
        self.image, self.path = folder / "disk.img", folder / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(2 << 30)
        subprocess.run([_find("mkfs.ext4") or "", "-q", str(self.image)], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.path)], check=True)

    def lose_power(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(folder)

    def unmount(self) -> None:
        for _ in range(50):
            if subprocess.run(["umount", str(self.path)], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        subprocess.run(["umount", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.unmount()


@contextmanager
def _running(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "tests.repo.programs.power_loss", *arguments]
    with running_program(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def _work_until_power_loss(disk: Disk, uri: str, *, seed: int) -> list[dict[str, Any]]:
    """Run two writers and a storm of syncs, stop the disk at a random moment, and return what was acknowledged."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(_running("write", uri, f"w{number}-{seed}", str(2 * seed + number)))
            for number in (0, 1)
        ]
        stack.enter_context(_running("storm", str(disk.path)))
        time.sleep(chance.uniform(2.0, 8.0))
        disk.lose_power()
        acknowledged = []
        for process in writers:
            try:
                out, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
            acknowledged += [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    disk.unmount()
    disk.mount()
    return acknowledged


def _check(uri: str, acknowledged: list[dict[str, Any]]) -> None:
    repo = ab.open(uri)
    deleted = {done["deleting"] for done in acknowledged if "deleting" in done}
    branches = {branch.name for branch in repo.branch_list()}
    for done in acknowledged:
        if "deleted" in done:
            assert done["deleted"] not in branches, done
        assert branches.issuperset(done.get("created", ())), done
        if "tag" in done:
            assert repo.tag_get(done["tag"]).commit_id == done["commit"]
        if "rows" in done and done["branch"] not in deleted:
            assert done["branch"] in branches, done
            _check_rows(repo, done["branch"], done["rows"])
    for branch in sorted(branches):
        _check_plain_lance(repo, branch)


def _check_rows(repo: Repository, branch: str, expected: dict[str, list[int]]) -> None:
    snapshot = repo.snapshot_of(branch)
    for key, ids in expected.items():
        found = set(snapshot[key].to_arrow()["id"].to_pylist())
        assert found >= set(ids), (branch, key, sorted(set(ids) - found))


def _check_plain_lance(repo: Repository, branch: str) -> None:
    """Open every table of a branch by its folder with plain pylance."""
    for key, entry in repo.snapshot_of(branch).entries.items():
        home = testing.config_of(repo).home_of(entry)
        dataset = lance.dataset(home.uri)
        dataset.validate()  # type: ignore[no-untyped-call]
        assert dataset.count_rows() >= 0, key


def _write_again(uri: str, seed: int) -> None:
    repo = ab.open(uri)
    before = repo.snapshot()[SHARED].count_rows()
    with repo.transaction() as tx:
        tx.append(SHARED, rows([-seed - 1]))
    assert repo.snapshot()[SHARED].count_rows() == before + 1
    home = testing.config_of(repo).home_of(repo.snapshot().entries[TableKey.parse(SHARED)])
    assert lance.dataset(home.uri).count_rows() == before + 1


@pytest.mark.parametrize("disk_number", range(4))
def test_acknowledged_work_survives_power_loss(disk: Disk, disk_number: int) -> None:
    uri = str(disk.path / "lake")
    create(uri)
    began, total = time.monotonic(), 0
    for crash in range(_CRASHES_PER_DISK):
        seed = disk_number * _CRASHES_PER_DISK + crash + 1
        acknowledged = _work_until_power_loss(disk, uri, seed=seed)
        _check(uri, acknowledged)
        report = ab.open(uri).doctor(rows=True)
        assert report.is_clean, report.findings
        _write_again(uri, seed)
        total += sum("stopped" not in done and "deleting" not in done for done in acknowledged)
    counts = {"crashes": _CRASHES_PER_DISK, "acknowledged": total}
    record_proof("power loss", counts, seconds=time.monotonic() - began)
