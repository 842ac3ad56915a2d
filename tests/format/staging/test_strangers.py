"""Datasets that others made: without stable row ids, with rows, indices and versions of their own."""

import lance
import pyarrow as pa
import pytest

from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    Pin,
    add_columns,
    alter_columns,
    append,
    compact,
    delete,
    delete_keys,
    drop_columns,
    fork,
    index,
    overwrite,
    settle,
    update,
    upsert,
)
from tests.conftest import Place
from tests.format.staging.tables import SCHEMA, contents, covered, fragment_ids, ids, rows


def made_elsewhere(place: Place) -> Pin:
    home = Home.at(place / "stranger.lance", place.storage_options)
    options = home.lance_options()
    lance.write_dataset(rows(range(10)), home.uri, storage_options=options, max_rows_per_file=4)
    dataset = lance.write_dataset(rows(range(10, 15)), home.uri, mode="append", storage_options=options)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 1")
    return Pin(home=home, version=dataset.version)


@pytest.mark.s3
def test_every_recipe_works_without_stable_row_ids(place: Place) -> None:
    pin = made_elsewhere(place)
    assert not pin.open().has_stable_row_ids
    at = append(pin, rows([20]))
    at = update(at, {"v": "5.0"}, where="id IN (2, 20)").pin
    at = upsert(at, rows([3, 30], v=5.0), ["id"]).pin
    at = upsert(at, pa.table({"id": [4, 31], "v": [5.0, 5.0]}), ["id"]).pin
    at = delete_keys(delete(at, "id = 5").pin, pa.table({"id": [6]}), ["id"]).pin
    assert ids(at, "v = 5.0") == [2, 3, 4, 20, 30, 31]
    assert ids(at, "id IN (1, 2, 3, 4, 5, 6, 7, 20, 30, 31)") == [2, 3, 4, 7, 20, 30, 31]
    at = add_columns(at, {"w": "id * 2"})
    at = drop_columns(alter_columns(at, [ColumnChange(path="w", type=pa.int32(), name="x")]), ["s"])
    packed = compact(index(at, "x", IndexKind.BTREE))
    assert contents(packed) == contents(at)
    assert covered(packed) == {"id_idx": fragment_ids(packed), "x_idx": fragment_ids(packed)}
    assert ids(packed, "id = 20 OR x = 60") == [20, 30]
    home = fork(packed, "dev/1")
    assert contents(Pin(home=home, version=home.open().version)) == contents(at)
    assert ids(pin) == [0, *range(2, 15)]
    settle(pin.home, packed.version, expected_head=pin.version)
    assert pin.home.open().count_rows() == packed.count_rows()


def test_leftover_dataset_of_another_schema_can_be_taken_over(place: Place) -> None:
    home = Home.at(place / "left.lance", place.storage_options)
    lance.write_dataset(pa.table({"x": ["old"]}), home.uri, storage_options=home.lance_options())
    pin = overwrite(Pin(home=home, version=1), rows([1]))
    assert (pin.schema.names, ids(append(pin, rows([2])))) == (SCHEMA.names, [1, 2])
