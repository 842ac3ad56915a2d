"""Tags of one dataset, by the branch and tag specification, through the public handle."""

import json
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import errors
from tests.conftest import Location


@pytest.fixture
def dataset(location: Location) -> ab.Dataset:
    """Two versions on main (1 and 2 rows), and a branch dev with a third (3 rows)."""
    root, options = location / "t.lance", location.storage_options or None
    lance.write_dataset(pa.table({"id": [0]}), root, storage_options=options)
    lance.write_dataset(pa.table({"id": [1]}), root, mode="append", storage_options=options)
    handle = ab.dataset(root, location.storage_options)
    handle.branch_create("dev")
    handle.branch_checkout("dev").append(pa.table({"id": [2]}))
    return handle


@pytest.mark.s3
def test_tag_names_one_version_until_it_is_moved_or_removed(dataset: ab.Dataset) -> None:
    made = dataset.tag_create("v1.0", 1)
    assert (made.branch, made.version) == (None, 1)
    assert made.manifest_size > 0
    assert made.created_at is not None
    assert dataset.tag_checkout("v1.0").count_rows() == 1
    moved = dataset.tag_update("v1.0", 2)
    assert (moved.version, moved.created_at) == (2, made.created_at)
    assert dataset.tag_checkout("v1.0").count_rows() == 2
    dataset.tag_delete("v1.0")
    assert dataset.tag_list() == []


def test_a_tag_on_a_branch_is_stored_at_the_root(dataset: ab.Dataset) -> None:
    made = dataset.branch_checkout("dev").tag_create("on-dev")
    assert (made.branch, made.version) == ("dev", 3)
    assert dataset.tag_checkout("on-dev").count_rows() == 3
    assert [info.path for info in dataset.home.store().list("_refs/tags")] == ["_refs/tags/on-dev.json"]
    assert not list(dataset.home.store().list("tree/dev/_refs"))
    assert [tag.name for tag in dataset.branch_checkout("dev").tag_list()] == ["on-dev"]


def test_a_tag_can_move_to_another_branch(dataset: ab.Dataset) -> None:
    dataset.tag_create("t", 1)
    assert dataset.tag_update("t", ("dev", 3)).branch == "dev"
    assert dataset.tag_update("t", ("main", 1)).branch is None


@pytest.mark.parametrize("former", ["main", "old"])
def test_tag_that_moves_to_a_branch_while_that_is_deleted_stays_where_it_was(
    dataset: ab.Dataset, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    """The deletion has listed the tags already. If the former branch goes in between, too, the tag has no version."""
    dataset.branch_create("old", 1)
    dataset.tag_create("t", (former, 1))
    tags = type(dataset.open().tags)
    update = tags.update

    def update_late(*args: Any) -> None:
        update(*args)
        for branch in ("dev", "old"):
            dataset.home.store().delete(f"_refs/branches/{branch}.json")  # the first step of a deletion

    monkeypatch.setattr(tags, "update", update_late)
    with pytest.raises(errors.BranchNotFoundError, match="no branch 'dev'"):
        dataset.tag_update("t", ("dev", 3))
    assert [(tag.branch, tag.version) for tag in dataset.tag_list()] == ([(None, 1)] if former == "main" else [])


def test_plain_pylance_reads_our_tags_and_we_read_its(dataset: ab.Dataset, location: Location) -> None:
    options = location.storage_options or None
    dataset.tag_create("ours", 1)
    assert lance.dataset(dataset.uri, version="ours", storage_options=options).count_rows() == 1
    lance.dataset(dataset.uri, storage_options=options).tags.create("theirs", ("dev", 3))
    assert [tag.name for tag in dataset.tag_list()] == ["ours", "theirs"]
    assert dataset.tag_checkout("theirs").count_rows() == 3


@pytest.mark.parametrize("branch", [{}, {"branch": None}])
def test_metadata_is_read_in_the_spelling_of_the_specification(dataset: ab.Dataset, branch: dict[str, None]) -> None:
    fields = {**branch, "version": 1, "manifest_size": 12}
    dataset.home.store().put("_refs/tags/spec.json", json.dumps(fields).encode())
    tag = dataset.tag_get("spec")
    assert (tag.branch, tag.version, tag.manifest_size) == (None, 1, 12)
    assert dataset.tag_checkout("spec").count_rows() == 1


def test_damaged_metadata_is_named(dataset: ab.Dataset) -> None:
    dataset.home.store().put("_refs/tags/bad.json", b"{")
    with pytest.raises(errors.DamagedFileError, match=r"_refs/tags/bad\.json"):
        dataset.tag_get("bad")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda ds: ds.tag_create("t", 2), errors.TagExistsError, "has a tag 't' already"),
        (lambda ds: ds.tag_create("a/b", 2), errors.InvalidNameError, "contains '/'"),
        (lambda ds: ds.tag_create("新", 2), errors.InvalidNameError, "contains '新'"),
        (lambda ds: ds.tag_create("new", 99), errors.VersionNotFoundError, "has no version 99"),
        (lambda ds: ds.tag_create("new", ("nope", 1)), errors.BranchNotFoundError, "no branch 'nope'"),
        (lambda ds: ds.tag_create("new", ("dev", 99)), errors.VersionNotFoundError, "has no version 99"),
        (lambda ds: ds.tag_create("new", -1), errors.VersionNotFoundError, "has no version -1"),
        (lambda ds: ds.tag_get("x" * 300), errors.TagNotFoundError, "has no tag 'xxx"),
        (lambda ds: ds.tag_update("nope", 1), errors.TagNotFoundError, "has no tag 'nope'"),
        (lambda ds: ds.tag_update("t", 99), errors.VersionNotFoundError, "has no version 99"),
        (lambda ds: ds.tag_delete("nope"), errors.TagNotFoundError, "has no tag 'nope'"),
        (lambda ds: ds.tag_get("nope"), errors.TagNotFoundError, "has no tag 'nope'"),
        (lambda ds: ds.tag_checkout("nope"), errors.TagNotFoundError, "has no tag 'nope'"),
    ],
)
def test_bad_input_changes_nothing(
    dataset: ab.Dataset, call: Callable[[ab.Dataset], object], error: type[Exception], message: str
) -> None:
    dataset.tag_create("t", 1)
    before = {info.path: info.size for info in dataset.home.store().list()}
    with pytest.raises(error, match=message):
        call(dataset)
    assert {info.path: info.size for info in dataset.home.store().list()} == before


@pytest.mark.parametrize("kind", ["shallow_clone", "deep_clone"])
def test_a_name_means_the_same_in_a_clone_as_in_a_branch(dataset: ab.Dataset, location: Location, kind: str) -> None:
    for name in ("main", "dev"):
        lance.dataset(dataset.uri, storage_options=location.storage_options or None).tags.create(name, 1)
    clone = getattr(dataset, kind)
    assert (
        clone(location / "clone.lance", "main").source_version
        == dataset.branch_create("new", "main").parent_version
        == 2
    )
    with pytest.raises(errors.InvalidInputError, match="'dev' is a branch and a tag"):
        clone(location / "other.lance", "dev")
