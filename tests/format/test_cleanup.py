"""Cleanup of one dataset: what is kept reads as before, by plain pylance, and what nothing needs is gone."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    BaseNotFoundError,
    DamagedFileError,
    DatasetInUseError,
    InvalidInputError,
    StaleBaseError,
)
from anabranch.format.layout.listing import LayoutKind
from tests.conftest import Location
from tests.format.trees import contents

NOW = timedelta(0)
DAY = timedelta(days=1)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(uri: str, version: int | str | None = None, options: dict[str, str] | None = None) -> list[int]:
    """The rows of a version, read by plain pylance."""
    opened = lance.dataset(uri, version=version, storage_options=options or None)
    return sorted(opened.to_table()["id"].to_pylist())


def make(location: Location) -> ab.Dataset:
    """Five versions on main: two appends, an index, a deletion; and a branch dev from version 2, with one more row."""
    options = location.storage_options or None
    root = location / "t.lance"
    lance.write_dataset(rows(*range(10)), root, storage_options=options, enable_stable_row_ids=True)
    lance.dataset(root, storage_options=options).insert(rows(10))
    dataset = ab.dataset(root, location.storage_options)
    dataset.branch_create("dev", 2)
    dataset.branch_checkout("dev").append(rows(100))
    lance.dataset(root, storage_options=options).create_scalar_index("id", "BTREE")
    lance.dataset(root, storage_options=options).delete("id = 3")
    dataset.append(rows(11))
    return dataset


@pytest.fixture
def dataset(location: Location) -> ab.Dataset:
    return make(location)


@pytest.fixture
def local(tmp_path: Path) -> ab.Dataset:
    return make(Location(root=str(tmp_path)))


def data_files(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).rglob("*.lance") if path.is_file()}


def age(folder: str | Path, days: float) -> None:
    """Make every file below a folder older."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - days * 86_400
            os.utime(path, (then, then))


@pytest.mark.s3
def test_a_cleanup_keeps_heads_forks_and_tags_and_removes_the_rest(dataset: ab.Dataset, location: Location) -> None:
    root, options = dataset.uri, location.storage_options
    dataset.tag_create("v3", 3)
    before = {version: ids(root, version, options) for version in (2, 3, 5)}
    planned = dataset.cleanup(keep_last=1, grace=NOW, dry_run=True)
    assert contents(root, options).keys() >= {file.path for file in planned.files}
    done = dataset.cleanup(keep_last=1, grace=NOW)
    assert done.versions == (("main", 1), ("main", 4))
    assert set(done.files) == set(planned.files)
    assert dataset.version_list() == [2, 3, 5]
    assert {version: ids(root, version, options) for version in (2, 3, 5)} == before
    assert ids(f"{root}/tree/dev", None, options) == [*range(11), 100]
    assert not {file.path for file in done.files} & contents(root, options).keys()
    again = dataset.cleanup(keep_last=1, grace=NOW)
    assert (again.versions, again.files) == ((), ())
    assert dataset.doctor().is_clean


def test_without_a_rule_all_versions_stay_and_only_unused_files_go(local: ab.Dataset) -> None:
    stray = Path(local.uri) / "data" / ("0" * 24 + "a" * 26 + ".lance")
    stray.write_bytes(b"never committed")
    own = Path(local.uri) / "data" / "notes.txt"
    own.write_text("not a file of Lance")
    versions = local.version_list()
    done = local.cleanup(grace=NOW)
    assert [file.path for file in done.files] == [f"data/{stray.name}"]
    assert (done.versions, local.version_list()) == ((), versions)
    assert own.exists()


def test_what_is_younger_than_the_grace_period_stays(local: ab.Dataset) -> None:
    """A writer stages its files before it commits, and needs the versions since the one that it read."""
    before = contents(local.uri)
    done = local.cleanup(keep_last=1)
    assert (done.files, done.too_young) == ((), 3)
    assert contents(local.uri) == before
    age(local.uri, days=2)
    local.append(rows(12))
    late = local.cleanup(keep_last=1)
    assert set(late.versions) == {("main", 1), ("main", 3), ("main", 4), ("main", 5)}
    assert ids(local.uri) == sorted({*range(13)} - {3})


def test_versions_are_kept_by_age_or_number(local: ab.Dataset) -> None:
    manifests = {int(2**64 - 1 - int(path.stem)): path for path in Path(local.uri, "_versions").glob("*.manifest")}
    for version, path in manifests.items():
        then = path.stat().st_mtime - (10 - version) * 86_400
        os.utime(path, (then, then))
    planned = local.cleanup(keep_newer_than=timedelta(days=6, hours=12), grace=NOW, dry_run=True)
    assert {version for branch, version in planned.versions if branch == "main"} == {1, 3}
    planned = local.cleanup(keep_newer_than=timedelta(days=6, hours=12), keep_last=3, grace=NOW, dry_run=True)
    assert {version for branch, version in planned.versions if branch == "main"} == {1}


@pytest.mark.s3
def test_after_a_move_the_copies_in_the_hot_tier_are_freed(dataset: ab.Dataset, location: Location) -> None:
    root, options = dataset.uri, location.storage_options
    dataset.branch_delete("dev")
    dataset.base_add(location / "cold", name="cold")
    before = ids(root, None, options)
    moved = dataset.move_fragments(to="cold", fragments=[0, 1])
    assert len(moved.left_behind) == 2
    hot = {path for path in contents(root, options) if path.startswith("data/")}
    done = dataset.cleanup(keep_last=1, grace=NOW)
    left = {path for path in contents(root, options) if path.startswith("data/")}
    assert {f"{root}/{path}" for path in hot - left} == set(moved.left_behind)
    assert done.bytes >= moved.bytes
    assert ids(root, None, options) == before
    assert dataset.doctor().is_clean


def test_moved_and_pruned_while_a_branch_a_tag_and_a_clone_need_the_copies(local: ab.Dataset, tmp_path: Path) -> None:
    local.base_add(tmp_path / "cold", name="cold")
    local.shallow_clone(tmp_path / "clone.lance", 3)
    local.append(rows(12))
    newest = ids(local.uri)
    everything = [fragment.fragment_id for fragment in lance.dataset(local.uri).get_fragments()]
    hot = data_files(Path(local.uri, "data"))
    local.move_fragments(to="cold", fragments=everything)
    local.cleanup(keep_last=1, grace=NOW)
    # dev and the clone read the files of versions 2 and 3; the last two appends are read in the cold tier only.
    assert len(hot - data_files(Path(local.uri, "data"))) == 2
    assert ids(local.uri) == newest
    assert ids(str(tmp_path / "clone.lance")) == [*range(11)]
    assert ids(f"{local.uri}/tree/dev") == [*range(11), 100]


def test_files_in_a_base_go_only_if_the_base_is_named(local: ab.Dataset, tmp_path: Path) -> None:
    local.base_add(tmp_path / "cold", name="cold")
    other = lance.write_dataset(rows(1), str(tmp_path / "other.lance"))
    local.move_fragments(to="cold", fragments=[0])
    (in_cold,) = data_files(tmp_path / "cold")
    # Another dataset has a file in the same folder, which no manifest of this dataset names.
    shutil.copy(next(Path(other.uri, "data").iterdir()), tmp_path / "cold" / ("1" * 24 + "b" * 26 + ".lance"))
    local.move_fragments(to="root", fragments=[0])
    done = local.cleanup(keep_last=1, grace=NOW)
    assert [(base.name, base.files) for base in done.unused_in_bases] == [("cold", 1)]
    assert in_cold in data_files(tmp_path / "cold")
    # The manifests that named the file are gone by now: it was recorded.
    planned = local.cleanup(grace=NOW, bases=["cold"], dry_run=True)
    done = local.cleanup(grace=NOW, bases=["cold"])
    assert (
        [file.path for file in done.files]
        == [str(tmp_path / "cold" / in_cold)]
        == [file.path for file in planned.files]
    )
    assert data_files(tmp_path / "cold") == {"1" * 24 + "b" * 26 + ".lance"}
    assert LayoutKind.CLEANUP_RECORD not in local.layout().by_kind
    assert local.doctor().is_clean


def test_a_base_that_is_another_dataset_is_never_cleaned(local: ab.Dataset, tmp_path: Path) -> None:
    clone_uri = str(tmp_path / "clone.lance")
    local.shallow_clone(clone_uri)
    clone = ab.dataset(clone_uri)
    clone.append(rows(50))
    lance.write_dataset(rows(0), clone_uri, mode="overwrite")
    before = contents(local.uri)
    done = clone.cleanup(keep_last=1, grace=NOW)
    assert done.unused_in_bases == ()
    assert all(not file.path.startswith("/") for file in done.files)
    with pytest.raises(InvalidInputError, match="dataset or branch of its own"):
        clone.cleanup(keep_last=1, grace=NOW, bases=[clone.base_list()[0].path])
    assert contents(local.uri) == before


def test_a_clone_does_not_remove_what_its_source_wrote_into_a_shared_tier(local: ab.Dataset, tmp_path: Path) -> None:
    local.base_add(tmp_path / "cold", name="cold")
    local.move_fragments(to="cold", fragments=[0])
    clone_uri = str(tmp_path / "clone.lance")
    local.shallow_clone(clone_uri)
    lance.write_dataset(rows(0), clone_uri, mode="overwrite")
    cold = data_files(tmp_path / "cold")
    newest = ids(local.uri)
    ab.dataset(clone_uri).cleanup(keep_last=1, grace=NOW, bases=["cold"])
    assert data_files(tmp_path / "cold") == cold
    assert ids(local.uri) == newest


def test_a_source_does_not_remove_what_a_clone_reads_in_a_shared_tier(local: ab.Dataset, tmp_path: Path) -> None:
    local.base_add(tmp_path / "cold", name="cold")
    clone_uri = str(tmp_path / "clone.lance")
    local.shallow_clone(clone_uri)
    clone = ab.dataset(clone_uri)
    # Both move the same fragment, and the copy is made once.
    local.move_fragments(to="cold", fragments=[0])
    clone.move_fragments(to="cold", fragments=[0])
    expected = ids(clone_uri)
    local.move_fragments(to="root", fragments=[0])
    done = local.cleanup(keep_last=1, grace=NOW, bases=["cold"])
    assert all(str(tmp_path / "cold") not in file.path for file in done.files)
    assert ids(clone_uri) == expected
    shutil.move(clone_uri, tmp_path / "moved.lance")
    with pytest.raises(DatasetInUseError, match="cannot be read"):
        local.cleanup(keep_last=1, grace=NOW, bases=["cold"])
    ab.dataset(tmp_path / "moved.lance").relocate()
    local.cleanup(keep_last=1, grace=NOW, bases=["cold"])
    assert ids(str(tmp_path / "moved.lance")) == expected
    local.clone_drop(tmp_path / "moved.lance")
    freed = local.cleanup(keep_last=1, grace=NOW, bases=["cold"])
    assert len([file for file in freed.files if str(tmp_path / "cold") in file.path]) == 1
    assert data_files(tmp_path / "cold") == set()


def test_clones_that_are_not_known_are_kept_if_they_are_named(local: ab.Dataset, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs.lance")
    lance.dataset(local.uri).shallow_clone(theirs, 4)
    lance.write_dataset(rows(0), local.uri, mode="overwrite")
    local.branch_delete("dev")
    expected = ids(theirs)
    local.cleanup(keep_last=1, grace=NOW, clones=[theirs])
    assert ids(theirs) == expected
    local.cleanup(keep_last=1, grace=NOW)
    with pytest.raises(Exception, match="Not found"):
        ids(theirs)


def test_large_values_and_indices_go_with_their_files(tmp_path: Path) -> None:
    root = str(tmp_path / "t.lance")
    blob = pa.field("value", pa.large_binary(), metadata={b"lance-encoding:blob": b"true"})
    table = pa.table({"id": [1, 2], "value": [b"x" * 100, b"y"]}, schema=pa.schema([pa.field("id", pa.int64()), blob]))
    lance.write_dataset(table, root, data_storage_version="2.2")
    lance.dataset(root).create_scalar_index("id", "BTREE")
    lance.write_dataset(rows(7), root, mode="overwrite")
    done = ab.dataset(root).cleanup(keep_last=1, grace=NOW)
    kinds = {file.path.partition("/")[0] for file in done.files}
    assert kinds >= {"_versions", "data", "_indices"}
    assert ids(root) == [7]
    assert not list(Path(root, "_indices").rglob("*.lance"))


def test_a_table_of_a_repository_is_refused(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction(message="m") as tx:
        tx.create_table("b.t", pa.schema([("id", pa.int64())]))
        tx.append("b.t", rows(1))
    (folder,) = (tmp_path / "lake" / "tables" / "b").iterdir()
    (tmp_path / "link.lance").symlink_to(folder)
    before = contents(str(tmp_path / "lake"))
    for uri in (folder, tmp_path / "link.lance"):
        with pytest.raises(InvalidInputError) as refused:
            ab.dataset(uri).cleanup(keep_last=1, grace=NOW)
        assert "`gc()`" in refused.value.hint
    assert contents(str(tmp_path / "lake")) == before


def test_a_copied_dataset_is_refused_until_it_is_relocated(local: ab.Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "copy.lance"
    shutil.copytree(local.uri, copy)
    before = contents(str(copy))
    with pytest.raises(StaleBaseError):
        ab.dataset(copy).cleanup(keep_last=1, grace=NOW)
    assert contents(str(copy)) == before
    ab.dataset(copy).relocate()
    ab.dataset(copy).cleanup(keep_last=1, grace=NOW)
    shutil.rmtree(local.uri)
    assert ids(f"{copy}/tree/dev") == [*range(11), 100]


@pytest.mark.parametrize("ref", ["_refs/tags/t.json", "_refs/branches/dev.json"])
def test_cleanup_deletes_nothing_while_a_ref_is_damaged(local: ab.Dataset, ref: str) -> None:
    local.tag_create("t", 1)
    Path(local.uri, ref).write_bytes(b"{")
    before = contents(local.uri)
    with pytest.raises(DamagedFileError):
        local.cleanup(keep_last=1, grace=NOW)
    assert contents(local.uri) == before


def test_cleanup_deletes_nothing_while_a_kept_version_misses_a_file(local: ab.Dataset) -> None:
    missing = next(file for file in local.layout().files if file.kind is LayoutKind.DELETION)
    Path(local.uri, missing.path).unlink()
    before = contents(local.uri)
    done = local.cleanup(keep_last=1, grace=NOW)
    assert (done.damaged, done.files) == ((missing.path,), ())
    assert contents(local.uri) == before


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"keep_last": 0}, InvalidInputError),
        ({"keep_last": "all"}, InvalidInputError),
        ({"keep_newer_than": 7}, InvalidInputError),
        ({"grace": timedelta(days=-1)}, InvalidInputError),
        ({"bases": ["nowhere"]}, BaseNotFoundError),
    ],
)
def test_wrong_rules_change_nothing(local: ab.Dataset, wrong: dict[str, object], error: type[Exception]) -> None:
    before = contents(local.uri)
    with pytest.raises(error):
        local.cleanup(**{"keep_last": 1, "grace": NOW, **wrong})  # type: ignore[arg-type]
    assert contents(local.uri) == before


def test_staged_versions_stay(local: ab.Dataset) -> None:
    base = lance.dataset(local.uri)
    staged = lance.LanceDataset.commit(
        base,
        lance.LanceOperation.Append(lance.fragment.write_fragments(rows(70), base)),
        read_version=base.version,
        detached=True,
    )
    local.append(rows(12))
    local.cleanup(keep_last=1, grace=NOW)
    assert ids(local.uri, staged.version) == sorted({*range(12), 70} - {3})


Act = Callable[[ab.Dataset], object]


@pytest.mark.parametrize(
    "act",
    [
        lambda dataset: dataset.tag_create("late", 1),
        lambda dataset: dataset.branch_create("late", 1),
        lambda dataset: dataset.append(rows(99)),
    ],
)
def test_a_ref_made_while_a_cleanup_runs_keeps_its_version(local: ab.Dataset, act: Act) -> None:
    """The other writer comes after the plan was made, and before the first manifest is removed."""
    expected = {1: ids(local.uri, 1), 5: ids(local.uri, 5)}

    def progress(step: ab.Progress) -> None:
        if step.done == 0:
            act(ab.dataset(local.uri))

    local.cleanup(keep_last=1, grace=NOW, progress=progress)
    for tag in local.tag_list():
        assert ids(local.uri, tag.name) == expected[tag.version]
    for branch in local.branch_list():
        assert ids(f"{local.uri}/tree/{branch.name}")
        assert ids(local.uri, branch.parent_version)
    assert ids(local.uri, 5) == expected[5]
    assert set(expected[5]) <= set(ids(local.uri))
    assert local.doctor().is_clean


def test_writer_that_read_a_removed_version_does_not_write_below_the_newest(local: ab.Dataset, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        local.base_add(tmp_path / name, name=name)
    native = lance.dataset(local.uri)
    for name in ("one", "two", "three"):
        local.base_remove(name)  # each is a version that Lance did not write, and does not move its version hint
    local.cleanup(keep_last=1, grace=NOW)
    before = ids(local.uri)
    with pytest.raises(OSError, match="Restore"):
        native.insert(rows(500))
    assert ids(local.uri) == before
    lance.dataset(local.uri).insert(rows(500))
    assert ids(local.uri) == [*before, 500]
