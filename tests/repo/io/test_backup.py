"""A plain copy of a repository's files, made during writes: what refers to others is copied before them."""

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, ObjectNotFoundError
from anabranch.storage import copy_between, open_store
from tests.repo.conftest import ORDERS, append, ids, table
from tests.repo.io.moving import read_all
from tests.repo.programs import ledger

Step = Callable[[str], bool]


def is_hint(path: str) -> bool:
    return path.endswith("/hint")


def is_manifest(path: str) -> bool:
    return path.startswith("tables/") and ("/_versions/" in path or "/_refs/" in path)


# As documented in operations. What is copied later may be newer, and is never older.
STEPS: list[Step] = [
    lambda path: path.startswith(("_versions/", "_tags/", "_runs/", "_clones/", "_origin/")) and not is_hint(path),
    lambda path: path.startswith(("_commits/", "_gc/")),
    is_manifest,
    lambda path: path.startswith("tables/") and not is_manifest(path),
    lambda path: path == "_repo.json",
]


def copy_step(source: str, target: str, step: Step) -> None:
    there, here = open_store(source), open_store(target)
    for path in [info.path for info in there.list() if step(info.path)]:
        try:
            copy_between(there, path, here, path)
        except ObjectNotFoundError:
            assert "/.tmp" in path  # what Lance renames when it is complete


@pytest.fixture
def lake(tmp_path: Path) -> ab.Repository:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, table(1).schema, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
    repo.branch_create("dev")
    repo.branch_create_from("dev", "dev/deeper")
    append(repo, 4, branch="dev")
    append(repo, 5, branch="dev/deeper")
    repo.tag_create("v1", ref="dev")
    return repo


def keep_writing(lake: ab.Repository, number: int) -> None:
    """What writers do; each time with other rows."""
    for branch in ("main", "dev/deeper"):
        with lake.transaction(branch, message=f"round {number}") as tx:
            tx.upsert(ORDERS, table(2, 100 + number, v="later"))
            tx.delete(ORDERS, "id = 1")
    lake.compact(branch="main")
    lake.branch_create(f"new{number}")
    append(lake, 200 + number, branch=f"new{number}")
    lake.tag_create(f"tag{number}", ref="dev/deeper")


def take_backup(lake: ab.Repository, target: str, steps: list[Step]) -> dict[str, Any]:
    """Copy step by step while others write in between; what there was to read when the first step was done."""
    there = {}
    for number, step in enumerate(steps):
        copy_step(lake.uri, target, step)
        if not number:
            there = read_all(lake)
        keep_writing(lake, number)
    return there


def test_a_copy_that_takes_what_refers_first_is_whole(lake: ab.Repository, tmp_path: Path) -> None:
    target = str(tmp_path / "backup")
    expected = take_backup(lake, target, STEPS)
    ab.relocate(target)
    backup = ab.open(target)
    assert read_all(backup) == expected
    assert [finding for finding in backup.doctor(rows=True).findings if finding.severity == "error"] == []
    keep_writing(backup, 99)
    assert 199 in ids(backup.snapshot_of("dev/deeper"))


@pytest.mark.parametrize(("ahead", "entries"), [(1, [4, 3, 2, 1]), (3, [3, 2, 1])])
def test_hints_that_were_copied_later_do_no_harm(
    lake: ab.Repository, tmp_path: Path, ahead: int, entries: list[int]
) -> None:
    target, before = str(tmp_path / "backup"), ids(lake)
    copy_step(lake.uri, target, STEPS[0])
    for number in range(ahead):
        append(lake, 100 + number)
    for step in (is_hint, *STEPS[1:]):
        copy_step(lake.uri, target, step)
    ab.relocate(target)
    backup = ab.open(target)
    # A hint is an entry: the next one of the log can be taken from it, but one further ahead has lost its position.
    assert ids(backup) == [*before, *([100] if ahead == 1 else [])]
    append(backup, 500)
    assert [movement.number for movement in backup.reflog("main")] == entries
    assert backup.doctor().is_clean


def test_a_copy_that_takes_data_first_is_not(lake: ab.Repository, tmp_path: Path) -> None:
    target = str(tmp_path / "backup")
    take_backup(lake, target, STEPS[3::-1] + STEPS[4:])
    ab.relocate(target)
    with pytest.raises(AnabranchError):
        read_all(ab.open(target))


def test_a_copy_beside_a_writer_that_never_rests(tmp_path: Path) -> None:
    lake, target = ab.init(tmp_path / "lake"), str(tmp_path / "backup")
    ledger.create(lake)
    lake.branch_create("dev")
    is_over, failures = threading.Event(), []

    def write() -> None:
        writer = ab.open(lake.uri)
        try:
            for number in count():
                ledger.commit(writer, f"1-{number}", branch=("main", "dev")[number % 2])
                if is_over.is_set():
                    return
        except BaseException as err:  # noqa: BLE001 - reported by the test
            failures.append(err)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for step in STEPS:
            copy_step(lake.uri, target, step)
    finally:
        is_over.set()
        thread.join()
    assert failures == []
    ab.relocate(target)
    backup = ab.open(target)
    for branch in ("main", "dev"):
        published = ledger.marks(backup, branch)
        assert ledger.read(backup, branch) == ledger.expected(published)
        assert published == ledger.marks(lake, branch)[: len(published)]
        ledger.commit(backup, "2-0", branch=branch)


def test_half_a_copy_is_not_a_repository(lake: ab.Repository, tmp_path: Path) -> None:
    for step in STEPS[:-1]:
        copy_step(lake.uri, str(tmp_path / "backup"), step)
    with pytest.raises(AnabranchError, match="no repository"):
        ab.open(tmp_path / "backup")
