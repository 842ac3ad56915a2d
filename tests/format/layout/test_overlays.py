"""Overlay files belong to the files that a version needs: for doctor, cleanup, the storage report and clones."""

import shutil
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BranchExistsError, ConflictError, UnsupportedFormatError
from anabranch.format.clone.clone import copy_version
from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_path
from anabranch.format.layout.manifest import without_base
from anabranch.format.staging import VersionRef
from tests.format.overlays import ENABLE, add_overlay

NOW = timedelta(0)
VALUES = ["new", "b", "new", "d", "e", "f"]


def values(uri: str, version: int | None = None) -> list[str]:
    return [str(value) for value in lance.dataset(uri, version=version).to_table()["v"].to_pylist()]


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLE, "1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two fragments on main; an overlay on the first one replaces two cells."""
    home = Home.at(tmp_path / "t.lance")
    table = pa.table({"id": range(6), "v": list("abcdef")})
    lance.write_dataset(table, home.root, max_rows_per_file=3, enable_stable_row_ids=True)
    return home


def test_doctor_needs_overlay_files(home: Home) -> None:
    add_overlay(home, "v", {0: "new", 2: "new"})
    assert values(home.uri) == VALUES
    assert ab.dataset(home.root).doctor().findings == ()


def test_doctor_reports_a_missing_overlay_file(home: Home) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    home.store().delete(path)
    (finding,) = ab.dataset(home.root).doctor().findings
    assert (finding.kind, finding.subject, finding.severity) == ("missing_data_file", path, "error")


def test_doctor_reports_an_overlay_file_of_the_wrong_size(home: Home) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    home.store().put(path, home.store().get(path) + b"?")
    (finding,) = ab.dataset(home.root).doctor().findings
    assert (finding.kind, finding.subject) == ("wrong_size", path)


def test_cleanup_keeps_overlay_files_of_kept_versions(home: Home) -> None:
    first = add_overlay(home, "v", {0: "old", 1: "old"})
    second = add_overlay(home, "v", {0: "new", 1: "b", 2: "new"})
    home.open().optimize.compact_files()
    assert values(home.uri) == VALUES
    home.open().tags.create("before", 3)
    report = ab.dataset(home.root).cleanup(keep_last=1, grace=NOW)
    assert report.damaged == ()
    assert values(home.uri, 3) == VALUES
    home.open().tags.delete("before")
    removed = {file.path for file in ab.dataset(home.root).cleanup(keep_last=1, grace=NOW).files}
    assert {first, second} <= removed
    assert values(home.uri) == VALUES


def test_storage_report_counts_overlay_files(home: Home) -> None:
    before = ab.dataset(home.root).storage_report().total
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    after = ab.dataset(home.root).storage_report().total
    assert (after - before).files == 1
    assert (after - before).bytes == home.store().head(path).size
    home.store().delete(path)
    assert ab.dataset(home.root).storage_report().missing == (f"{home.root}/{path}",)


@pytest.mark.parametrize("kind", ["deep", "shallow"])
def test_clones_read_overlay_files(home: Home, tmp_path: Path, kind: str) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    dataset = ab.dataset(home.root)
    target = str(tmp_path / "clone.lance")
    made = dataset.deep_clone(target) if kind == "deep" else dataset.shallow_clone(target)
    assert values(target) == VALUES
    assert ab.dataset(target).doctor().findings == ()
    assert Path(target, path).exists() == (kind == "deep")
    # The hold of a shallow clone keeps the overlay when the source itself no longer needs it.
    home.open().optimize.compact_files()
    dataset.cleanup(keep_last=1, grace=NOW)
    assert values(target) == VALUES
    assert made is not None


def test_a_base_with_an_overlay_file_is_not_removed(home: Home, tmp_path: Path) -> None:
    dataset = ab.dataset(home.root)
    Path(tmp_path, "cold", "data").mkdir(parents=True)
    base = dataset.base_add(tmp_path / "cold", name="cold", is_dataset_root=True)
    add_overlay(home, "v", {0: "new", 2: "new"}, base=base)
    assert values(home.uri) == VALUES
    assert dataset.doctor().findings == ()
    with pytest.raises(ConflictError, match="files"):
        dataset.base_remove("cold")
    with pytest.raises(ConflictError, match="files"):
        without_base(home.store().get(manifest_path(home.head_version())), base.path)
    assert {base.name: base.data.files for base in dataset.storage_report().bases} == {"root": 2, "cold": 1}


def test_moved_fragments_leave_their_overlay_files_in_place(home: Home, tmp_path: Path) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    dataset = ab.dataset(home.root)
    dataset.base_add(tmp_path / "cold", name="cold", is_dataset_root=True)
    moved = dataset.move_fragments(where="id < 3", to="cold", prune=True, keep_last=1, grace=NOW)
    assert values(home.uri) == VALUES
    assert f"{home.root}/{path}" not in moved.left_behind
    assert {base.name: base.data.files for base in dataset.storage_report().bases} == {"root": 2, "cold": 1}


def test_a_copied_version_has_copies_of_overlay_files(home: Home, tmp_path: Path) -> None:
    add_overlay(home, "v", {0: "new", 2: "new"})
    other = Home.at(tmp_path / "other.lance")
    lance.write_dataset(pa.table({"id": [1], "v": ["x"]}), other.root, enable_stable_row_ids=True)
    copied = copy_version(VersionRef(home=home, version=2), onto=VersionRef(home=other, version=1))
    shutil.rmtree(home.root)
    assert copied.open().to_table()["v"].to_pylist() == VALUES


def test_without_support_in_lance_nothing_is_removed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    monkeypatch.delenv(ENABLE)
    with pytest.raises(UnsupportedFormatError):
        ab.dataset(home.root)
    kinds = {str(finding.kind) for finding in ab.doctor(home.root, repair=True).open}
    assert "damaged_manifest" in kinds
    assert home.store().head(path).size
    monkeypatch.setenv(ENABLE, "1")
    assert values(home.uri) == VALUES


def test_a_branch_inherits_overlay_files(home: Home) -> None:
    path = add_overlay(home, "v", {0: "new", 2: "new"})
    dataset = ab.dataset(home.root)
    dataset.branch_create("dev")
    own = add_overlay(home.on("dev"), "v", {1: "dev"})
    home.open().optimize.compact_files()
    dataset.cleanup(keep_last=1, grace=NOW)
    assert values(home.on("dev").uri) == ["new", "dev", "new", "d", "e", "f"]
    assert {path, own} <= {file.path for file in dataset.layout().files}
    assert dataset.doctor().findings == ()


def test_files_of_a_fork_with_other_overlay_files_are_not_taken_for_an_unfinished_branch(home: Home) -> None:
    dataset = ab.dataset(home.root)

    def create_source(value: str) -> None:
        dataset.branch_create("source")
        add_overlay(home.on("source"), "v", {0: value})

    def fail_at_ref(name: str) -> None:
        """Leave what a creator leaves that fails before it writes the ref of the branch."""
        dataset.branch_create(name, "source")
        home.store().delete(f"_refs/branches/{name}.json")

    create_source("old")
    fail_at_ref("same")
    dataset.branch_create("same", "source")
    assert values(home.on("same").uri) == ["old", "b", "c", "d", "e", "f"]
    dataset.branch_delete("same")
    fail_at_ref("other")
    # The data files of the new source are the same, and its version is, too.
    dataset.branch_delete("source")
    create_source("new")
    with pytest.raises(BranchExistsError, match="files of an unfinished branch"):
        dataset.branch_create("other", "source")
