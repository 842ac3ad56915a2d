"""Deleting a branch removes that branch and nothing else, whatever its name and whichever tool made it."""

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from anabranch.format.layout.listing import branch_ref_path
from tests.conftest import Location

# Every legal shape of a nested name, and shapes that only other tools make.
OTHERS = ("a/b", "a/b2", "ab", "b/a", "c/d/e", "c/d/f", "x", "main2")
SHAPES = ("a/c", "a", "a/b/c", "c", "c/d", "c/d/g", "c/d/e/f", "b", "z", "mai", "main/x", "main/x/y", "x/main", "été")


@pytest.fixture
def dataset(location: Location) -> ab.Dataset:
    """A dataset with branches of many names, made by pylance, each with a row of its own."""
    root = location / "t.lance"
    plain = lance.write_dataset(rows(1, 2), root, storage_options=location.storage_options or None)
    for name in OTHERS:
        make_branch(plain, name)
    plain.tags.create("v1", 1)
    return ab.dataset(root, location.storage_options)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def make_branch(plain: lance.LanceDataset, name: str) -> None:
    """Let pylance make a branch, with a row, a deletion and an index of its own."""
    options = plain._storage_options
    plain.create_branch(name, storage_options=options)
    branch = lance.dataset(f"{plain.uri}/tree/{name}", storage_options=options)
    branch.insert(rows(7))
    branch.delete("id = 1")
    branch.create_scalar_index("id", "BTREE")


def contents(dataset: ab.Dataset) -> dict[str, bytes]:
    store = dataset.home.store()
    return {info.path: store.get(info.path) for info in store.list()}


def delete(dataset: ab.Dataset, name: str) -> None:
    """Delete a branch and check that all that is gone is its own."""
    before = contents(dataset)
    dataset.branch_delete(name)
    after = contents(dataset)
    assert {path: data for path, data in before.items() if path in after} == after
    gone = set(before) - set(after)
    assert branch_ref_path(name) in gone
    assert all(path.startswith(f"tree/{name}/") for path in gone - {branch_ref_path(name)})
    left = {path for path in after if path.startswith(f"tree/{name}/")}
    nested = [other.name for other in dataset.branch_list() if other.name.startswith(f"{name}/")]
    assert all(path.startswith(tuple(f"tree/{other}/" for other in nested)) for path in left)


@pytest.mark.parametrize("name", SHAPES)
def test_deleting_a_branch_leaves_every_other_file_as_it_was(dataset: ab.Dataset, name: str) -> None:
    make_branch(dataset.open(), name)
    delete(dataset, name)
    assert [branch.name for branch in dataset.branch_list()] == sorted(OTHERS)
    for other in OTHERS:
        assert sorted(dataset.branch_checkout(other).to_arrow().column("id").to_pylist()) == [2, 7]
    assert dataset.tag_checkout("v1").count_rows() == 2


def test_all_branches_deleted_in_any_order_leave_the_dataset(dataset: ab.Dataset) -> None:
    plain = dataset.open()
    for name in SHAPES:
        make_branch(plain, name)
    for name in (*reversed(SHAPES), *OTHERS):
        delete(dataset, name)
    assert dataset.branch_list() == []
    assert dataset.count_rows() == 2
    assert dataset.doctor().is_clean


@pytest.mark.s3
def test_branches_below_main_that_pylance_made_are_listed_read_and_deleted(dataset: ab.Dataset) -> None:
    plain = dataset.open()
    for name in ("main/hotfix", "main/fix/1"):
        make_branch(plain, name)
    names = [branch.name for branch in dataset.branch_list()]
    assert {"main/hotfix", "main/fix/1"} <= set(names)
    assert dataset.branch_checkout("main/hotfix").count_rows() == 2
    assert dataset.doctor().is_clean
    delete(dataset, "main/hotfix")
    delete(dataset, "main/fix/1")
    assert dataset.count_rows() == 2


@pytest.mark.parametrize("name", ["main/hotfix", "main/a/b"])
def test_names_below_main_are_refused_for_new_branches(dataset: ab.Dataset, name: str) -> None:
    before = contents(dataset)
    for create in (dataset.branch_create, lambda name: dataset.fork_branch_from_state("main", name, 1)):
        with pytest.raises(errors.InvalidNameError, match="starts with 'main/'") as caught:
            create(name)
        assert caught.value.hint == f"use {name.replace('/', '-')!r}"
    assert contents(dataset) == before


def test_a_deleted_branch_leaves_no_empty_folders(tmp_path: Path) -> None:
    plain = lance.write_dataset(rows(1), str(tmp_path / "t.lance"))
    dataset = ab.dataset(tmp_path / "t.lance")
    for name in ("a/b/c", "a/d"):
        make_branch(plain, name)
    dataset.branch_delete("a/b/c")
    assert sorted(os.listdir(tmp_path / "t.lance/tree/a")) == ["d"]
    dataset.branch_delete("a/d")
    assert not (tmp_path / "t.lance/tree").exists()
    assert (tmp_path / "t.lance/_versions").is_dir()


def test_deleting_a_branch_through_a_link_removes_nothing_elsewhere(tmp_path: Path) -> None:
    plain = lance.write_dataset(rows(1), str(tmp_path / "t.lance"))
    make_branch(plain, "dev")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t.lance/tree/dev/link").symlink_to(tmp_path / "elsewhere")
    ab.dataset(tmp_path / "t.lance").branch_delete("dev")
    assert (tmp_path / "elsewhere").is_dir()


def test_a_branch_that_a_reader_of_its_files_needs_is_kept(dataset: ab.Dataset) -> None:
    dataset.branch_create("child", ("a/b", None))
    with pytest.raises(errors.BranchInUseError, match="'a/b' is the parent of 'child'"):
        dataset.branch_delete("a/b")
    dataset.branch_delete("child")
    dataset.tag_create("keep", ("a/b", None))
    with pytest.raises(errors.BranchInUseError, match="tag 'keep' names version 4 of branch 'a/b'"):
        dataset.branch_delete("a/b")
    dataset.tag_delete("keep")
    delete(dataset, "a/b")
