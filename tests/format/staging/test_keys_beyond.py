"""Keys looked for only in the rows that another version does not have."""

import pyarrow as pa
import pytest

from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.staging import VersionRef
from tests.conftest import Location
from tests.format.overlays import ENABLE, add_overlay


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def base(location: Location) -> VersionRef:
    empty = staging.create_empty(Home.at(location / "t.lance", location.storage_options), numbers().schema)
    return staging.append(empty, numbers(1, 2, 3))


def found(version_ref: VersionRef, *ids: int, beyond: VersionRef) -> list[int]:
    existing: list[int] = (
        staging.find_existing_keys(version_ref, numbers(*ids), ["id"], beyond=beyond).column("id").to_pylist()
    )
    return existing


def test_same_version_has_nothing_beyond_itself(location: Location) -> None:
    version_ref = base(location)
    assert found(version_ref, 1, 2, 3, beyond=version_ref) == []


def test_key_that_an_overlay_gave_to_a_row_is_found(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLE, "1")
    home = base(location).home
    home.open().insert(numbers(1, 2))
    before = VersionRef(home=home, version=home.head_version())
    add_overlay(home, "id", {0: 50})
    after = VersionRef(home=home, version=home.head_version())
    assert found(after, 50, beyond=before) == [50]


def test_keys_in_appended_rows_are_found(location: Location) -> None:
    version_ref = base(location)
    assert found(staging.append(version_ref, numbers(4, 5)), 5, 6, beyond=version_ref) == [5]


def test_keys_in_rows_of_a_sibling_are_found_though_fragment_ids_agree(location: Location) -> None:
    version_ref = base(location)
    ours, theirs = staging.append(version_ref, numbers(4)), staging.append(version_ref, numbers(5))
    assert found(theirs, 5, beyond=ours) == [5]


def test_key_deleted_in_the_other_version_only_is_found(location: Location) -> None:
    version_ref = base(location)
    without = staging.delete(version_ref, "id = 2").version_ref
    assert found(version_ref, 2, beyond=without) == [2]
    assert found(staging.delete(version_ref, "id = 1").version_ref, 2, beyond=without) == [2]


def test_key_of_an_overwritten_table_is_found(location: Location) -> None:
    version_ref = base(location)
    assert found(staging.overwrite(version_ref, numbers(9)), 9, beyond=version_ref) == [9]
