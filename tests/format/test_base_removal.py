"""A base that no version uses is removed from the list; concurrent writers to it fail and lose nothing."""

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BaseNotFoundError, ConflictError, InvalidInputError
from tests.conftest import Location
from tests.format.trees import contents


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def make(location: Location) -> ab.Dataset:
    """Two fragments and an index on main; a branch; and an empty base 'cold'."""
    options = location.storage_options or None
    root = location / "t.lance"
    lance.write_dataset(rows(1, 2), root, storage_options=options, enable_stable_row_ids=True)
    lance.dataset(root, storage_options=options).insert(rows(3))
    lance.dataset(root, storage_options=options).create_scalar_index("id", "BTREE")
    dataset = ab.dataset(root, location.storage_options)
    dataset.base_add(location / "cold", name="cold")
    dataset.branch_create("dev")
    return dataset


@pytest.fixture
def local(tmp_path: Path) -> ab.Dataset:
    return make(Location(root=str(tmp_path)))


@pytest.mark.s3
def test_an_unused_base_is_removed_from_main_and_branches(location: Location) -> None:
    dataset, options = make(location), location.storage_options or None
    before = contents(dataset.uri, location.storage_options)
    planned = dataset.base_remove("cold", dry_run=True)
    assert contents(dataset.uri, location.storage_options) == before
    done = dataset.base_remove("cold")
    assert set(planned.versions) == set(done.versions) == {"main", "dev"}
    assert dataset.base_list() == []
    assert [base.name for base in dataset.branch_checkout("dev").base_list()] == [None]
    for uri in (dataset.uri, f"{dataset.uri}/tree/dev"):
        opened = lance.dataset(uri, storage_options=options)
        assert sorted(opened.to_table()["id"].to_pylist()) == [1, 2, 3]
        assert opened.count_rows("id = 2") == 1
        opened.validate()  # type: ignore[no-untyped-call]
        opened.insert(rows(9))
        opened.delete("id = 1")
        assert sorted(lance.dataset(uri, storage_options=options).to_table()["id"].to_pylist()) == [2, 3, 9]
    with pytest.raises(BaseNotFoundError):
        dataset.base_remove("cold")
    assert dataset.base_add(location / "cold", name="cold").name == "cold"
    dataset.append(rows(10), base="cold")
    assert dataset.count_rows() == 4
    assert dataset.doctor().is_clean


def test_a_base_in_use_is_not_removed(local: ab.Dataset) -> None:
    local.move_fragments(to="cold", fragments=[0])
    before = contents(local.uri)
    with pytest.raises(ConflictError, match="holds files of version"):
        local.base_remove("cold")
    assert contents(local.uri) == before
    local.move_fragments(to="root", fragments=[0])
    with pytest.raises(ConflictError, match="holds files of version"):
        local.base_remove("cold")
    local.cleanup(keep_last=1, grace=timedelta(0))
    assert local.base_remove("cold").unused_files == 1
    assert local.base_list() == []


def test_a_base_stays_while_a_branch_without_an_ordinary_version_lists_it(local: ab.Dataset, tmp_path: Path) -> None:
    local.base_add(tmp_path / "warm", name="warm", is_dataset_root=True)
    opened = lance.dataset(local.uri)
    append = lance.LanceOperation.Append([])
    staged = lance.LanceDataset.commit(opened, append, read_version=opened.version, detached=True)
    opened.create_branch("unfinished", staged.version)
    with pytest.raises(ConflictError, match="of 'unfinished' lists it"):
        local.base_remove("warm")


def test_the_root_of_another_dataset_stays(local: ab.Dataset, tmp_path: Path) -> None:
    local.shallow_clone(tmp_path / "clone.lance")
    clone = ab.dataset(tmp_path / "clone.lance")
    with pytest.raises(InvalidInputError, match="dataset or branch of its own"):
        clone.base_remove(clone.base_list()[0].path)


def test_a_writer_that_is_about_to_use_the_base_fails(local: ab.Dataset, tmp_path: Path) -> None:
    """Its files are in the base by then. If its commit landed, no reader could find them."""
    stale = lance.dataset(local.uri)
    written = lance.fragment.write_fragments(rows(7), stale, target_bases=[str(tmp_path / "cold")])
    local.base_remove("cold")
    with pytest.raises(OSError, match=r"Restore|conflict|[Ii]ncompatible"):
        lance.LanceDataset.commit(stale, lance.LanceOperation.Append(written), read_version=stale.version)
    assert sorted(lance.dataset(local.uri).to_table()["id"].to_pylist()) == [1, 2, 3]
