"""Holds: a clone's version stays in its source until the clone is dropped or released by name."""

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BranchInUseError, DatasetInUseError, InvalidNameError
from tests.conftest import Location
from tests.format.trees import contents


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def make(location: Location) -> ab.Dataset:
    """Three rows on main, and a branch dev with a fourth."""
    lance.write_dataset(rows(1, 2, 3), location / "source.lance", storage_options=location.storage_options or None)
    source = ab.dataset(location / "source.lance", location.storage_options)
    source.branch_create("dev")
    source.branch_checkout("dev").append(rows(4))
    return source


@pytest.fixture
def source(location: Location) -> ab.Dataset:
    return make(location)


@pytest.fixture
def local(tmp_path: Path) -> ab.Dataset:
    return make(Location(root=str(tmp_path)))


def hold_of(source: ab.Dataset, clone: str) -> str:
    (found,) = [info.tag for info in source.clone_list() if info.uri == clone]
    assert found is not None
    return found


@pytest.mark.s3
def test_a_hold_is_neither_deleted_nor_moved_as_a_tag(source: ab.Dataset, location: Location) -> None:
    clone = location / "clone.lance"
    tag = source.shallow_clone(clone).tag
    assert tag is not None
    source.append(rows(9))
    before = contents(source.uri, location.storage_options)
    for change in (
        lambda: source.tag_delete(tag),
        lambda: source.tag_update(tag),
        lambda: source.branch_checkout("dev").tag_delete(tag),
    ):
        with pytest.raises(DatasetInUseError) as refused:
            change()
        assert clone in refused.value.problem
        assert "clone_drop" in refused.value.hint
        assert contents(source.uri, location.storage_options) == before
    source.clone_drop(clone)
    assert source.tag_list() == []


def test_a_hold_without_a_clone_is_released_by_its_name(local: ab.Dataset, tmp_path: Path) -> None:
    tag = local.shallow_clone(tmp_path / "clone.lance").tag
    assert tag is not None
    shutil.rmtree(tmp_path / "clone.lance")
    with pytest.raises(DatasetInUseError, match="clone_release"):
        local.tag_delete(tag)
    local.clone_release(tag)
    assert local.tag_list() == []


def test_a_branch_that_a_clone_reads_names_the_clone_when_its_deletion_is_refused(
    local: ab.Dataset, tmp_path: Path
) -> None:
    clone = str(tmp_path / "clone.lance")
    local.shallow_clone(clone, "dev")
    with pytest.raises(BranchInUseError) as refused:
        local.branch_delete("dev")
    assert clone in refused.value.problem
    assert "clone_drop" in refused.value.hint
    assert lance.dataset(clone).count_rows() == 4
    local.clone_drop(clone)
    local.branch_delete("dev")


def test_names_of_holds_are_reserved(local: ab.Dataset) -> None:
    """A tag of such a name counts as a hold, and could not be deleted as a tag any more."""
    with pytest.raises(InvalidNameError, match="reserved"):
        local.tag_create("clone-0123456789abcdef")
    with pytest.raises(InvalidNameError, match="reserved"):
        local.branch_create("clone-0123456789abcdef")
    assert local.tag_create("clone-of-mine").name == "clone-of-mine"


@pytest.mark.parametrize("ref", [None, "v1.0", "dev"])
def test_relocating_a_clone_records_its_new_address_in_the_source(
    local: ab.Dataset, tmp_path: Path, ref: str | None
) -> None:
    local.tag_create("v1.0")
    old, new = str(tmp_path / "old.lance"), str(tmp_path / "elsewhere/new.lance")
    tag = local.shallow_clone(old, ref).tag
    Path(new).parent.mkdir()
    shutil.move(old, new)
    report = ab.dataset(new).relocate()
    assert [(info.uri, info.tag, info.exists) for info in local.clone_list()] == [(new, tag, True)]
    assert [(hold.source, hold.tag, hold.outcome) for hold in report.holds] == [(local.uri, tag, "updated")]
    again = ab.dataset(new).relocate()
    assert [hold.outcome for hold in again.holds] == ["unchanged"]
    local.clone_drop(new)
    assert not Path(new).exists()
    assert local.clone_list() == []


@pytest.mark.parametrize("ref", [None, "v1.0"])
def test_a_copied_clone_gets_a_hold_of_its_own(local: ab.Dataset, tmp_path: Path, ref: str | None) -> None:
    local.tag_create("v1.0")
    first, copy = str(tmp_path / "first.lance"), str(tmp_path / "copy.lance")
    local.shallow_clone(first, ref)
    shutil.copytree(first, copy)
    report = ab.dataset(copy).relocate()
    assert [hold.outcome for hold in report.holds] == ["added"]
    assert {info.uri for info in local.clone_list()} == {first, copy}
    assert hold_of(local, first) != hold_of(local, copy)
    local.clone_drop(first)
    assert [info.uri for info in local.clone_list()] == [copy]
    assert lance.dataset(copy).count_rows() == 3


def test_a_clone_and_its_source_that_moved_together(local: ab.Dataset, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    shutil.move(local.uri, before / "source.lance")
    moved = ab.dataset(before / "source.lance")
    moved.relocate()
    moved.shallow_clone(before / "clone.lance")
    shutil.move(before, after)
    source = ab.dataset(after / "source.lance")
    source.relocate()
    clone = ab.dataset(after / "clone.lance")
    report = clone.relocate(mapping={str(before / "source.lance"): source.uri})
    assert [hold.outcome for hold in report.holds] == ["updated"]
    assert [info.uri for info in source.clone_list()] == [clone.uri]


def test_a_source_that_cannot_be_reached_does_not_stop_a_relocation(local: ab.Dataset, tmp_path: Path) -> None:
    local.shallow_clone(tmp_path / "clone.lance")
    shutil.move(tmp_path / "clone.lance", tmp_path / "moved.lance")
    clone = ab.dataset(tmp_path / "moved.lance")
    shutil.move(local.uri, tmp_path / "gone.lance")
    report = clone.relocate()
    assert [(hold.source, hold.tag, hold.outcome) for hold in report.holds] == [(local.uri, None, "not_found")]


def test_a_clone_made_by_pylance_is_held_after_it_was_relocated(local: ab.Dataset, tmp_path: Path) -> None:
    """It has no hold: relocation takes one, as for a copy."""
    lance.dataset(local.uri).shallow_clone(str(tmp_path / "theirs.lance"), 1)
    report = ab.dataset(tmp_path / "theirs.lance").relocate()
    assert [hold.outcome for hold in report.holds] == ["added"]
    assert [info.uri for info in local.clone_list()] == [str(tmp_path / "theirs.lance")]
