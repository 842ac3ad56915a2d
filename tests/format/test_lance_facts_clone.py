"""What Lance does about clones and recorded paths, as far as the product builds on it or works around it."""

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments

from anabranch.format.home import Home
from anabranch.format.layout.manifest import base_paths_of, read_manifest
from anabranch.storage import open_store
from tests.conftest import Location

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def root(tmp_path: Path) -> str:
    lance.write_dataset(ROWS, str(tmp_path / "t.lance"))
    return str(tmp_path / "t.lance")


def bases(folder: str | Path) -> set[tuple[int, str, str | None]]:
    (manifest,) = Path(folder, "_versions").glob("*.manifest")
    return {(base.id, base.path, base.name) for base in base_paths_of(read_manifest(manifest.read_bytes()))}


def stage(root: str) -> int:
    base = lance.dataset(root)
    operation = LanceOperation.Append(write_fragments(ROWS, base))
    return int(lance.LanceDataset.commit(base, operation, read_version=base.version, detached=True).version)


def clean(root: str) -> None:
    lance.dataset(root).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )


def test_a_clone_has_its_source_as_a_nameless_base_and_not_its_own_root(root: str, tmp_path: Path) -> None:
    lance.dataset(root).tags.create("v1", 1)
    lance.dataset(root).shallow_clone(str(tmp_path / "clone.lance"), "v1")
    assert bases(tmp_path / "clone.lance") == {(0, root, None)}


def test_a_branch_of_a_branch_names_the_base_after_its_parent(root: str) -> None:
    lance.dataset(root).create_branch("dev")
    lance.dataset(root).create_branch("nested", ("dev", None))
    assert bases(f"{root}/tree/dev") == {(0, root, None)}
    assert bases(f"{root}/tree/nested") == {(0, root, None), (1, f"{root}/tree/dev", "dev")}


def test_a_relative_path_is_recorded_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(ROWS, "./t.lance").create_branch("dev")
    assert bases(tmp_path / "t.lance/tree/dev") == {(0, "./t.lance", None)}


def test_only_one_base_may_be_nameless(root: str, tmp_path: Path) -> None:
    lance.dataset(root).create_branch("dev")
    with pytest.raises(ValueError, match="Base path with name 'None'"):
        lance.dataset(f"{root}/tree/dev").add_bases([lance.DatasetBasePath(str(tmp_path / "cold"))])


def test_a_folder_with_other_files_is_taken_for_a_clone(root: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    assert lance.dataset(root).shallow_clone(str(tmp_path / "folder"), 1).count_rows() == 3


@pytest.mark.parametrize("kind", ["shallow_clone", "deep_clone"])
def test_a_clone_of_a_staged_version_has_no_ordinary_version(root: str, tmp_path: Path, kind: str) -> None:
    staged = stage(root)
    with pytest.raises(ValueError, match="was not found"):
        getattr(lance.dataset(root), kind)(str(tmp_path / "clone.lance"), staged)
    manifests = [path.name for path in (tmp_path / "clone.lance/_versions").glob("*.manifest")]
    assert manifests == [f"d{staged}.manifest"]


def test_a_tag_keeps_metadata(root: str) -> None:
    lance.dataset(root).tags.create("v1", 1)
    lance.dataset(root).tags.replace_metadata("v1", {"clone": "/somewhere"})
    assert lance.dataset(root).tags.list()["v1"]["metadata"] == {"clone": "/somewhere"}


def test_a_tag_does_not_save_a_staged_version_from_cleanup(root: str) -> None:
    staged = stage(root)
    lance.dataset(root).tags.create("kept", staged)
    lance.write_dataset(ROWS, root, mode="overwrite")
    clean(root)
    with pytest.raises(Exception, match="Not found"):
        lance.dataset(root, version=staged).to_table()


def test_dropping_a_dataset_removes_its_folder(root: str) -> None:
    lance.LanceDataset.drop(root)
    assert not Path(root).exists()


@pytest.mark.xdist_group("s3")
def test_on_s3_a_clone_into_another_bucket_lands_in_the_sources(s3_location: Location) -> None:
    home = Home.at(s3_location / "t.lance", s3_location.storage_options)
    dataset = lance.write_dataset(ROWS, home.root, storage_options=home.lance_options())
    target = (s3_location / "clone.lance").replace("s3://lake/", "s3://other/")
    with pytest.raises(ValueError, match="was not found"):
        dataset.shallow_clone(target, 1)
    assert list(open_store(s3_location / "clone.lance", s3_location.storage_options).list("_versions"))
    assert not list(open_store(target, s3_location.storage_options).list())


@pytest.mark.xdist_group("s3")
def test_on_s3_a_version_with_bases_cannot_be_cloned_deeply(s3_location: Location) -> None:
    home = Home.at(s3_location / "t.lance", s3_location.storage_options)
    lance.write_dataset(ROWS, home.root, storage_options=home.lance_options()).create_branch("dev")
    with pytest.raises(OSError, match="empty path segment"):
        home.on("dev").open().deep_clone(s3_location / "deep.lance", 1)


def test_on_local_disk_a_version_with_bases_is_cloned_deeply(root: str, tmp_path: Path) -> None:
    lance.dataset(root).create_branch("dev")
    dev = lance.dataset(f"{root}/tree/dev")
    assert dev.deep_clone(str(tmp_path / "deep.lance"), dev.version).count_rows() == dev.count_rows()


def test_a_staged_version_is_cloned_as_one_and_not_found_unless_it_is_named(root: str, tmp_path: Path) -> None:
    staged, clone = stage(root), str(tmp_path / "clone.lance")
    with pytest.raises(ValueError, match="was not found"):
        lance.dataset(root).shallow_clone(clone, (None, staged))
    named = lance.dataset(root).shallow_clone(str(tmp_path / "named.lance"), (None, staged), version=staged)
    assert named.count_rows() == lance.dataset(clone, version=staged).count_rows() == 6
    assert [path.name for path in Path(clone, "_versions").iterdir()] == [f"d{staged}.manifest"]
