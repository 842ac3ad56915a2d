"""A version is copied into another home file by file: rows, schema, deletions, and what comes after."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.format import staging
from anabranch.format.clone.clone import copy_version
from anabranch.format.home import Home
from anabranch.format.staging import ColumnChange, VersionRef
from tests.conftest import Location


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": list(range(start, stop)), "v": [f"v{number}" for number in range(start, stop)]})


def made(root: str, options: dict[str, str], rows: pa.Table) -> VersionRef:
    return staging.append(staging.create_empty(Home.at(root, options), rows.schema), rows)


@pytest.mark.s3
def test_rows_schema_and_deletions_are_those_of_the_source(location: Location) -> None:
    source = made(location / "source.lance", location.storage_options, numbers(0, 50))
    source = staging.append(source, numbers(50, 80))
    source = staging.delete(source, "id % 7 = 0").version_ref
    source = staging.drop_columns(staging.add_columns(source, {"w": "id * 2"}), ["v"])
    source = staging.alter_columns(source, [ColumnChange(path="w", name="double")])
    onto = made(location / "target.lance", location.storage_options, numbers(900, 910))
    copied = copy_version(source, onto=onto)
    assert copied.schema == source.schema
    assert copied.open().to_table() == source.open().to_table()
    assert onto.open().to_table() == numbers(900, 910)
    longer = staging.append(copied, pa.table({"id": [1000], "double": [1]}))
    ids = longer.open().to_table(columns=["id"], with_row_id=True)
    assert len(set(ids.column("_rowid").to_pylist())) == len(ids) == copied.count_rows() + 1
    assert staging.update(longer, {"double": "id"}, where="id = 8").updated == 1


def test_a_fork_is_copied_with_the_files_of_its_root(tmp_path: Path) -> None:
    root = made(str(tmp_path / "source.lance"), {}, numbers(0, 10))
    fork = staging.fork(root, "dev/one")
    source = staging.append(VersionRef(home=fork, version=fork.head_version()), numbers(10, 12))
    copied = copy_version(source, onto=made(str(tmp_path / "target.lance"), {}, numbers(0, 1)))
    for file in (tmp_path / "source.lance").rglob("*.lance"):
        if file.is_file():
            file.unlink()
    assert copied.open().to_table() == numbers(0, 12)


@pytest.mark.parametrize("kind", ["column", "struct", "list"])
def test_large_blobs_are_copied_with_their_data_file(tmp_path: Path, kind: str) -> None:
    blobs = lance.blob_array([b"inline", b"p" * 200_000, b"d" * 5_000_000])
    field = lance.blob_field("blob")
    column: pa.Array = blobs
    if kind == "struct":
        column = pa.StructArray.from_arrays([blobs], fields=[field])
    if kind == "list":
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), blobs, type=pa.list_(field))
    source = Home.at(str(tmp_path / "source.lance"))
    table = pa.table([column], schema=pa.schema([field if kind == "column" else pa.field("outer", column.type)]))
    lance.write_dataset(table, source.root, data_storage_version="2.2", enable_stable_row_ids=True)
    onto = made(str(tmp_path / "target.lance"), {}, numbers(0, 1))
    copied = copy_version(VersionRef(home=source, version=1), onto=onto)
    assert copied.count_rows() == 3
    found = {path.name: path.read_bytes() for path in (tmp_path / "target.lance").rglob("*.blob")}
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "source.lance").rglob("*.blob")}
    assert len(found) == 2


def test_an_empty_table_is_copied(tmp_path: Path) -> None:
    source = staging.create_empty(Home.at(str(tmp_path / "source.lance")), numbers(0, 1).schema)
    copied = copy_version(source, onto=made(str(tmp_path / "target.lance"), {}, numbers(0, 3)))
    assert copied.count_rows() == 0
