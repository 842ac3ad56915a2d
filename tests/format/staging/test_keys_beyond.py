"""Keys looked for only in the rows that another version does not have."""

import pyarrow as pa

from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.staging import Pin
from tests.conftest import Place


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def base(place: Place) -> Pin:
    empty = staging.create_empty(Home.at(place / "t.lance", place.storage_options), numbers().schema)
    return staging.append(empty, numbers(1, 2, 3))


def found(pin: Pin, *ids: int, beyond: Pin) -> list[int]:
    existing: list[int] = staging.find_existing_keys(pin, numbers(*ids), ["id"], beyond=beyond).column("id").to_pylist()
    return existing


def test_same_version_has_nothing_beyond_itself(place: Place) -> None:
    pin = base(place)
    assert found(pin, 1, 2, 3, beyond=pin) == []


def test_keys_in_appended_rows_are_found(place: Place) -> None:
    pin = base(place)
    assert found(staging.append(pin, numbers(4, 5)), 5, 6, beyond=pin) == [5]


def test_keys_in_rows_of_a_sibling_are_found_though_fragment_ids_agree(place: Place) -> None:
    pin = base(place)
    ours, theirs = staging.append(pin, numbers(4)), staging.append(pin, numbers(5))
    assert found(theirs, 5, beyond=ours) == [5]


def test_key_deleted_in_the_other_version_only_is_found(place: Place) -> None:
    pin = base(place)
    without = staging.delete(pin, "id = 2").pin
    assert found(pin, 2, beyond=without) == [2]
    assert found(staging.delete(pin, "id = 1").pin, 2, beyond=without) == [2]


def test_key_of_an_overwritten_table_is_found(place: Place) -> None:
    pin = base(place)
    assert found(staging.overwrite(pin, numbers(9)), 9, beyond=pin) == [9]
