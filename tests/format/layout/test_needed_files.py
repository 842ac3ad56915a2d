"""The files that versions need, read from manifests alone: exactly those that Lance lists, on every kind of version."""

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import DamagedFileError, UnsupportedFormatError
from anabranch.format.bases import add_base, append_to_base
from anabranch.format.home import Home
from anabranch.format.layout.listing import LayoutFile, LayoutKind, ManifestName, layout
from anabranch.format.layout.needed_files import FileKind, FilesReader, files_of_fragment, folder_of_index
from anabranch.format.refs.branches import create_branch
from anabranch.storage.uris import relative_to
from tests.format.live_files import list_live_files


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "v": [str(number) for number in range(start, stop)]})


def make(tmp_path: Path) -> Home:
    """A dataset whose versions have deletions of both kinds, added columns, indices, large values, bases, branches."""
    home = Home.at(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 20_000), home.root, max_rows_per_file=10_000, enable_stable_row_ids=True)
    home.open().delete("id = 3 or id = 15000")
    home.open().delete("id > 10000 and id % 3 != 0")
    home.open().create_scalar_index("id", "BTREE")
    home.open().add_columns({"w": "id * 2"})
    lance.write_dataset(rows(20_000, 20_010).append_column("w", [[0] * 10]), home.root, mode="append")
    add_base(home, str(tmp_path / "cold"), name="cold", is_dataset_root=True)
    append_to_base(home, rows(30_000, 30_010).append_column("w", [[0] * 10]), base="cold")
    branch = create_branch(home, "dev", (None, home.head_version()))
    home.on(branch.name).open().delete("id < 5")
    lance.write_dataset(rows(40_000, 40_010).append_column("w", [[0] * 10]), home.on("dev").uri, mode="append")
    nested = create_branch(home, "more", ("dev", home.on("dev").head_version()))
    home.on(nested.name).open().create_scalar_index("v", "BITMAP")
    return home


def manifests(home: Home) -> Iterator[tuple[LayoutFile, int]]:
    for file in layout(home).files:
        if file.kind is LayoutKind.MANIFEST:
            yield file, ManifestName.parse(file.name).version


def listed_by_lance(home: Home, file: LayoutFile, version: int) -> set[str]:
    """The files of a version, and those in the folders of its indices, below the dataset's root."""
    of_branch = home.on(file.branch)
    found: set[str] = set()
    there = [each.path for each in layout(home).files]
    for live in list_live_files(of_branch, of_branch.open(version)):
        path = relative_to(live.uri, home.root)
        if path is not None:
            found.update([path] if live.kind is not FileKind.INDEX else [])
            beside = f"{path.removesuffix('.lance')}/"
            found.update(other for other in there if other.startswith(beside))
    return found


def test_every_version_needs_what_lance_lists(tmp_path: Path) -> None:
    home = make(tmp_path)
    kinds: set[LayoutKind] = set()
    seen = FilesReader(home, layout(home))
    by_path = {file.path: file.kind for file in layout(home).files}
    for file, version in manifests(home):
        found = seen.read(file).below
        beside = {path for path in found if by_path[path] in {LayoutKind.MANIFEST, LayoutKind.TRANSACTION}}
        assert file.path in beside
        assert found - beside == listed_by_lance(home, file, version), file.path
        kinds |= {by_path[path] for path in found}
    assert kinds >= {LayoutKind.DATA, LayoutKind.DELETION, LayoutKind.INDEX, LayoutKind.TRANSACTION}
    names = {file.name.rpartition(".")[2] for file in layout(home).files if file.kind is LayoutKind.DELETION}
    assert names == {"arrow", "bin"}


def test_large_values_belong_to_their_data_file(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "t.lance")
    schema = pa.schema([lance.blob_field("blob")])
    large = pa.table({"blob": lance.blob_array([b"d" * 5_000_000])}, schema=schema)
    lance.write_dataset(large, home.root, data_storage_version="2.2")
    ((file, version),) = manifests(home)
    found = FilesReader(home, layout(home)).read(file).below
    assert listed_by_lance(home, file, version) <= found
    assert sum(path.endswith(".blob") for path in found) == 1


def test_a_description_with_an_unknown_field_is_refused() -> None:
    """A field that is not known may name further files, so that nothing may be called unused."""
    for number in (6, 8, 10, 12):
        with pytest.raises(UnsupportedFormatError, match=f"unknown field {number}"):
            files_of_fragment(bytes([number << 3 | 2, 0]))
    with pytest.raises(UnsupportedFormatError, match="unknown field 12"):
        folder_of_index(bytes([12 << 3 | 2, 0]))


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 10), home.root)
    ((file, _),) = manifests(home)
    home.store().put(file.path, home.store().get(file.path)[:-1])
    with pytest.raises(DamagedFileError, match=file.name):
        FilesReader(home, layout(home)).read(file)
