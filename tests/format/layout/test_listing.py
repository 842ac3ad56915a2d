"""Every file of a dataset, classified."""

from datetime import UTC, datetime
from typing import Literal

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.fragment import write_fragments

from anabranch.errors import DatasetNotFoundError
from anabranch.format.home import Home
from anabranch.format.layout.listing import Layout, LayoutKind, Total, branch_ref_path, lay_out, layout
from anabranch.storage import ObjectInfo
from tests.conftest import Location

DATA = "101100101101010011010110a1b2c3d4e5f60718293a4b5c6d"
UUID = "550e8400-e29b-41d4-a716-446655440000"
MANIFEST = "18446744073709551614.manifest"


def laid_out(*paths: str) -> Layout:
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    return lay_out("/t.lance", [ObjectInfo(path=path, size=10, modified=seen) for path in paths])


def kind_of(path: str) -> LayoutKind:
    return laid_out(path).files[0].kind


def rich_dataset(location: Location) -> Home:
    """Every kind of file that an ordinary table, its branches and staged versions have."""
    home = Home.at(location / "t.lance", location.storage_options)
    table = pa.table({"id": range(100), "word": ["w"] * 100})
    dataset = lance.write_dataset(table, home.root, storage_options=home.lance_options())
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id < 5")
    staged = lance.LanceDataset.commit(
        dataset, lance.LanceOperation.Append(write_fragments(table, dataset)), detached=True, read_version=3
    )
    dataset.create_branch("dev")
    dataset.create_branch("dev/deep")
    dataset.create_branch("from-staged", staged.version)
    home.on("dev").open().insert(table)
    home.on("dev/deep").open().delete("id < 50")
    dataset.tags.create("v1", 1)
    return home


@pytest.mark.s3
def test_everything_that_lance_writes_is_known(location: Location) -> None:
    home = rich_dataset(location)
    found = layout(home)
    assert found.unknown_files == ()
    assert found.unreferenced_trees == ()
    assert found.branches == ("dev", "dev/deep", "from-staged")
    # The hint exists on local disk only.
    assert set(found.by_kind) - {LayoutKind.VERSION_HINT} == {
        LayoutKind.BRANCH_REF,
        LayoutKind.DATA,
        LayoutKind.DELETION,
        LayoutKind.DETACHED_MANIFEST,
        LayoutKind.INDEX,
        LayoutKind.MANIFEST,
        LayoutKind.TAG_REF,
        LayoutKind.TRANSACTION,
    }
    assert {file.path: file.size for file in found.files} == {info.path: info.size for info in home.store().list()}
    assert {file.branch for file in found.files if file.kind is LayoutKind.DELETION} == {None, "dev/deep"}
    assert {file.branch for file in found.files if file.kind is LayoutKind.DATA} == {None, "dev"}
    assert layout(home.on("dev")) == found


def test_totals_by_kind_and_by_branch_add_up(location: Location) -> None:
    found = layout(rich_dataset(location))
    assert set(found.by_branch) == {None, "dev", "dev/deep", "from-staged"}
    for totals in (found.by_kind.values(), found.by_branch.values()):
        assert sum(total.files for total in totals) == found.total.files == len(found.files)
        assert sum(total.bytes for total in totals) == found.total.bytes
    assert found.by_kind[LayoutKind.TAG_REF].files == 1
    assert found.of_branch("dev") == [file for file in found.files if file.branch == "dev"]


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_every_storage_version_uses_the_same_names(
    location: Location, version: Literal["legacy", "2.0", "2.1", "2.2"]
) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    table = pa.table({"id": [1, 2]})
    lance.write_dataset(table, home.root, data_storage_version=version, storage_options=home.lance_options())
    assert layout(home).unknown_files == ()


def test_manifests_of_the_first_scheme_are_known(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    dataset = lance.write_dataset(
        pa.table({"id": [1]}), home.root, enable_v2_manifest_paths=False, storage_options=home.lance_options()
    )
    dataset.insert(pa.table({"id": [2]}))
    found = layout(home)
    assert {file.name for file in found.files if file.kind is LayoutKind.MANIFEST} == {"1.manifest", "2.manifest"}
    assert found.unknown_files == ()


def test_large_values_and_vector_indices_are_known(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(256 * 4, dtype=np.float32)), 4)
    schema = pa.schema([lance.blob_field("body"), pa.field("v", vectors.type)])
    table = pa.table([lance.blob_array([b"x" * 100_000] * 256), vectors], schema=schema)
    dataset = lance.write_dataset(table, home.root, data_storage_version="2.2", storage_options=home.lance_options())
    dataset.create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=1)
    found = layout(home)
    assert found.unknown_files == ()
    assert found.by_kind[LayoutKind.BLOB].bytes == 256 * 100_000
    assert found.by_kind[LayoutKind.INDEX].files == 2


@pytest.mark.s3
def test_unknown_files_and_unreferenced_trees_are_distinguished(location: Location) -> None:
    home = rich_dataset(location)
    store = home.store()
    store.delete("_refs/branches/dev%2Fdeep.json")
    for path in ("notes.txt", "data/part-0.parquet", "tree/dev/readme.md", "tree/dev/deep/data/x.lance", "tree/x.txt"):
        store.put(path, b"mine")
    found = layout(home)
    assert {(file.path, file.branch) for file in found.unknown_files} == {
        ("notes.txt", None),
        ("data/part-0.parquet", None),
        ("tree/dev/readme.md", "dev"),
        ("tree/dev/deep/data/x.lance", "dev/deep"),
        ("tree/x.txt", None),
    }
    assert found.unreferenced_trees == ("dev/deep",)
    assert all(file.has_ref for file in found.of_branch("dev"))
    assert not any(file.has_ref for file in found.of_branch("dev/deep"))


@pytest.mark.parametrize("path", ["", "/nothing-here"])
def test_a_location_without_a_dataset_is_refused(location: Location, path: str) -> None:
    Home.at(location.root, location.storage_options).store().put("file.txt", b"text")
    with pytest.raises(DatasetNotFoundError, match="there is no Lance dataset"):
        layout(Home.at(location.root + path, location.storage_options))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"data/{DATA}.lance", LayoutKind.DATA),
        (f"data/{DATA}/{'01' * 16}.blob", LayoutKind.BLOB),
        ("_deletions/0-1-77.bin", LayoutKind.DELETION),
        (f"_versions/{MANIFEST}", LayoutKind.MANIFEST),
        ("_versions/7.manifest", LayoutKind.MANIFEST),
        ("_versions/d9223372036854775809.manifest", LayoutKind.DETACHED_MANIFEST),
        (f"_versions/{MANIFEST}-{UUID}", LayoutKind.PENDING_MANIFEST),
        ("_versions/latest_version_hint.json", LayoutKind.VERSION_HINT),
        (f"_transactions/1-{UUID}.txn", LayoutKind.TRANSACTION),
        (f"_indices/{UUID}/index.idx", LayoutKind.INDEX),
        (f"_indices/{UUID}/parts/0/data.lance", LayoutKind.INDEX),
        (f"_mem_wal/{UUID}/wal/1.arrow", LayoutKind.MEM_WAL),
        ("_refs/branches/a%2Fb.json", LayoutKind.BRANCH_REF),
        ("_refs/tags/v1.json", LayoutKind.TAG_REF),
        ("data/.tmpCYeIBg", LayoutKind.TEMPORARY),
        ("_versions/.tmp4q4npl", LayoutKind.TEMPORARY),
        (f"_indices/{UUID}/.tmp1m9LtN", LayoutKind.TEMPORARY),
        ("tree/dev/_transactions/.tmpm7NtWd", LayoutKind.TEMPORARY),
        (f"_refs/branches/x.json.tmp.{'ab' * 16}", LayoutKind.TEMPORARY),
        (f"_refs/tags/v1.json.tmp.{'ab' * 16}", LayoutKind.TEMPORARY),
        ("_refs/tags/v1.json.tmp", LayoutKind.UNKNOWN),
        (".tmpCYeIBg", LayoutKind.UNKNOWN),
        (f"data/sub/{DATA}.lance", LayoutKind.UNKNOWN),
        (f"data/{DATA}/notes.txt", LayoutKind.UNKNOWN),
        (f"data/{DATA}.lance.tmp", LayoutKind.UNKNOWN),
        (f"_deletions/{DATA}.lance", LayoutKind.UNKNOWN),
        ("_versions/notes.txt", LayoutKind.UNKNOWN),
        ("_indices/index.idx", LayoutKind.UNKNOWN),
        ("_refs/branches/a/b.json", LayoutKind.UNKNOWN),
        ("_refs/tags/v1.txt", LayoutKind.UNKNOWN),
        ("_refs/heads/v1.json", LayoutKind.UNKNOWN),
        ("tree/dev/_refs/tags/v1.json", LayoutKind.UNKNOWN),
        ("_latest.manifest", LayoutKind.UNKNOWN),
        ("data", LayoutKind.UNKNOWN),
        ("tree/a", LayoutKind.UNKNOWN),
    ],
)
def test_location_and_name_make_the_kind(path: str, kind: LayoutKind) -> None:
    assert kind_of(path) == kind


@pytest.mark.parametrize(
    ("path", "refs", "branch"),
    [
        (f"tree/a/_versions/{MANIFEST}", ["a", "a/z"], "a"),
        (f"tree/a/z/_versions/{MANIFEST}", ["a", "a/z"], "a/z"),
        (f"tree/a/z/_versions/{MANIFEST}", ["a"], "a/z"),
        (f"tree/a/z/_versions/{MANIFEST}", [], "a/z"),
        ("tree/a/z/notes.txt", ["a"], "a"),
        ("tree/a/z/notes.txt", ["a", "a/z"], "a/z"),
        ("tree/az/notes.txt", ["a"], None),
        # Lance itself allows the names of its own folders in a branch's name.
        (f"tree/data/_versions/{MANIFEST}", [], "data"),
        (f"tree/a/data/_versions/{MANIFEST}", ["a"], "a/data"),
        (f"tree/a/data/{DATA}.lance", ["a", "a/data"], "a"),
        (f"tree/a/_versions/_versions/{MANIFEST}", ["a", "a/_versions"], "a/_versions"),
        (f"tree/a/_versions/{MANIFEST}", ["a", "a/_versions"], "a"),
        (f"tree/a/tree/b/_versions/{MANIFEST}", ["a"], "a/tree/b"),
        (f"tree/a/_mem_wal/{UUID}/1_gen_1/_versions/{MANIFEST}", ["a"], "a"),
    ],
)
def test_a_file_below_tree_belongs_to_the_branch_around_it(path: str, refs: list[str], branch: str | None) -> None:
    found = laid_out(path, *(branch_ref_path(name) for name in refs))
    (file,) = (file for file in found.files if file.path == path)
    assert file.branch == branch


def test_totals_count_files_and_bytes() -> None:
    found = laid_out("notes.txt", f"data/{DATA}.lance", f"tree/a/data/{DATA}.lance")
    assert found.total == Total(files=3, bytes=30)
    assert found.by_branch == {None: Total(files=2, bytes=20), "a": Total(files=1, bytes=10)}


SEGMENTS = st.sampled_from(["a", "b", "data", "_versions", "tree", "_refs", "branches", "x.json", f"{DATA}.lance"])


@given(st.lists(st.lists(SEGMENTS, min_size=1, max_size=6).map("/".join), unique=True))
def test_any_listing_is_classified_completely(paths: list[str]) -> None:
    found = laid_out(*paths)
    assert [file.path for file in found.files] == sorted(paths)
    for file in found.files:
        assert file.branch is None or file.path.startswith(f"tree/{file.branch}/")
        assert file.has_ref == (file.branch is None or file.branch in found.branches)
