"""Manifests as bytes."""

from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import DamagedFileError
from anabranch.format.home import Home
from anabranch.format.layout.manifest import BasePath, base_paths_of, read_manifest, with_base_paths, with_version
from tests.conftest import Location


@pytest.fixture
def branched(tmp_path: Path) -> Path:
    root = tmp_path / "t.lance"
    dataset = lance.write_dataset(pa.table({"id": [1, 2, 3]}), str(root), enable_stable_row_ids=True)
    dataset.create_branch("dev")
    return root


def manifest_of(folder: Path) -> Path:
    (found,) = (folder / "_versions").glob("*.manifest")
    return found


def test_version_branch_and_base_paths_are_read(branched: Path) -> None:
    main = read_manifest(manifest_of(branched).read_bytes())
    dev = read_manifest(manifest_of(branched / "tree" / "dev").read_bytes())
    assert (main.version, main.branch, base_paths_of(main)) == (1, "", ())
    assert dev.branch == "dev"
    assert base_paths_of(dev) == (BasePath(id=0, path=str(branched), name=None, is_dataset_root=True),)


def test_lance_reads_a_manifest_whose_base_path_changed(branched: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved-to-a-location-with-a-much-longer-name.lance"
    branched.rename(moved)
    manifest = manifest_of(moved / "tree" / "dev")
    manifest.write_bytes(with_base_paths(manifest.read_bytes(), lambda base: replace(base, path=str(moved))))
    assert lance.dataset(str(moved / "tree" / "dev")).to_table().column("id").to_pylist() == [1, 2, 3]


def test_nothing_changes_where_no_base_path_does(branched: Path) -> None:
    data = manifest_of(branched / "tree" / "dev").read_bytes()
    assert with_base_paths(data, lambda base: base) == data


def test_lance_reads_a_manifest_under_another_version(branched: Path) -> None:
    manifest = manifest_of(branched)
    number = 300
    target = manifest.with_name(f"{2**64 - 1 - number:020d}.manifest")
    target.write_bytes(with_version(manifest.read_bytes(), number))
    assert lance.dataset(str(branched)).version == number
    assert lance.dataset(str(branched)).count_rows() == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:0],
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data[:-16] + (1 << 40).to_bytes(8, "little") + data[-8:],
        lambda data: b"\xff" * (len(data) - 16) + data[-16:],
    ],
    ids=["empty", "cut short", "no mark", "message outside", "noise"],
)
def test_a_damaged_manifest_is_refused_by_name(branched: Path, damage: object) -> None:
    assert callable(damage)
    data = damage(manifest_of(branched).read_bytes())
    with pytest.raises(DamagedFileError, match=r"manifest 'x\.manifest' is damaged"):
        read_manifest(data, name="x.manifest")


@pytest.mark.s3
def test_a_home_opens_by_its_folder(location: Location) -> None:
    root = location / "t.lance"
    written = lance.write_dataset(pa.table({"id": [1]}), root, storage_options=location.storage_options or None)
    written.create_branch("dev")
    home = Home.at(root, location.storage_options).on("dev")
    assert home.open().uri.endswith("/tree/dev")
    assert home.open().count_rows() == 1
