"""Datasets that others made: without stable row ids, with rows, indices and versions of their own."""

import lance
import pyarrow as pa
import pytest

from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    append,
    compact,
    delete,
    drop_columns,
    fork,
    index,
    overwrite,
    settle,
    update,
    upsert,
)
from tests.conftest import Location
from tests.format.staging.tables import SCHEMA, contents, covered, fragment_ids, ids, rows


def made_elsewhere(location: Location) -> VersionRef:
    home = Home.at(location / "external.lance", location.storage_options)
    options = home.lance_options()
    lance.write_dataset(rows(range(10)), home.uri, storage_options=options, max_rows_per_file=4)
    dataset = lance.write_dataset(rows(range(10, 15)), home.uri, mode="append", storage_options=options)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 1")
    return VersionRef(home=home, version=dataset.version)


@pytest.mark.s3
def test_every_recipe_works_without_stable_row_ids(location: Location) -> None:
    version_ref = made_elsewhere(location)
    assert not version_ref.open().has_stable_row_ids
    at = append(version_ref, rows([20]))
    at = update(at, {"v": "5.0"}, where="id IN (2, 20)").version_ref
    at = upsert(at, rows([3, 30], v=5.0), ["id"]).version_ref
    at = upsert(at, pa.table({"id": [4, 31], "v": [5.0, 5.0]}), ["id"]).version_ref
    at = delete(delete(at, "id = 5").version_ref, "id = 6").version_ref
    assert ids(at, "v = 5.0") == [2, 3, 4, 20, 30, 31]
    assert ids(at, "id IN (1, 2, 3, 4, 5, 6, 7, 20, 30, 31)") == [2, 3, 4, 7, 20, 30, 31]
    at = add_columns(at, {"w": "id * 2"})
    at = drop_columns(alter_columns(at, [ColumnChange(path="w", type=pa.int32(), name="x")]), ["s"])
    packed = compact(index(at, "x", IndexKind.BTREE))
    assert contents(packed) == contents(at)
    assert covered(packed) == {"id_idx": fragment_ids(packed), "x_idx": fragment_ids(packed)}
    assert ids(packed, "id = 20 OR x = 60") == [20, 30]
    home = fork(packed, "dev/1")
    assert contents(VersionRef(home=home, version=home.open().version)) == contents(at)
    assert ids(version_ref) == [0, *range(2, 15)]
    settle(version_ref.home, packed.version, expected_head=version_ref.version)
    assert version_ref.home.open().count_rows() == packed.count_rows()


def test_leftover_dataset_of_another_schema_can_be_taken_over(location: Location) -> None:
    home = Home.at(location / "left.lance", location.storage_options)
    lance.write_dataset(pa.table({"x": ["old"]}), home.uri, storage_options=home.lance_options())
    version_ref = overwrite(VersionRef(home=home, version=1), rows([1]))
    assert (version_ref.schema.names, ids(append(version_ref, rows([2])))) == (SCHEMA.names, [1, 2])
