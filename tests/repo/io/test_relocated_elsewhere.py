"""A process that has a copied repository open while another process relocates it."""

import shutil
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import StaleBaseError
from anabranch.format.layout.manifest import read_manifest
from tests.repo.conftest import ORDERS, append, fill_lake, ids
from tests.repo.gc.object_ages import pass_time
from tests.repo.test_processes import in_a_process

_RELOCATE = "import sys, anabranch as ab; assert ab.relocate(sys.argv[1]).is_complete"


@pytest.fixture
def copy(tmp_path: Path) -> tuple[str, str]:
    """An original with a branch, and a copy of its files that was not relocated."""
    original, copy = str(tmp_path / "original"), str(tmp_path / "copy")
    repo = ab.init(original)
    fill_lake(repo)
    repo.branch_create("dev")
    append(repo, 4, branch="dev")
    shutil.copytree(original, copy)
    return original, copy


def bases(root: str) -> set[str]:
    found = Path(root).rglob("*.manifest")
    return {base.path for path in found for base in read_manifest(path.read_bytes()).base_paths}


def check_apart(original: str, copy: str) -> None:
    """The copy reads itself only: also after the original is gone."""
    assert {base for base in bases(copy) if base.startswith(original)} == set()
    assert ids(ab.open(original, branch="dev")) == [1, 2, 3, 4]
    shutil.rmtree(original)
    assert ids(ab.open(copy, branch="dev")) == [1, 2, 3, 4, 5]
    printed = in_a_process(
        "import sys, anabranch as ab\n"
        f"print(sorted(ab.open(sys.argv[1], branch='dev').snapshot()['{ORDERS}'].to_arrow()['id'].to_pylist()))",
        copy,
    )
    assert printed == "[1, 2, 3, 4, 5]\n"
    assert [str(finding) for finding in ab.open(copy).doctor().findings] == []


def test_repository_opened_again_after_another_process_relocated_it(copy: tuple[str, str]) -> None:
    original, root = copy
    with pytest.raises(StaleBaseError):
        ids(ab.open(root, branch="dev"))
    in_a_process(_RELOCATE, root)
    append(ab.open(root, branch="dev"), 5, branch="dev")
    check_apart(original, root)


def test_handle_that_was_open_while_another_process_relocated_it(copy: tuple[str, str]) -> None:
    original, root = copy
    held = ab.open(root, branch="dev")
    append(held, 10, branch="main")
    with pytest.raises(StaleBaseError):
        ids(held)
    in_a_process(_RELOCATE, root)
    append(held, 5, branch="dev")
    assert ids(held) == [1, 2, 3, 4, 5]
    check_apart(original, root)


def test_gc_by_a_handle_that_was_open_while_another_process_relocated_it(copy: tuple[str, str]) -> None:
    _, root = copy
    held = ab.open(root)
    with pytest.raises(StaleBaseError):
        held.gc()
    in_a_process(_RELOCATE, root)
    pass_time(held)
    held.gc(keep_last=1)
    assert ids(ab.open(root, branch="dev")) == [1, 2, 3, 4]
