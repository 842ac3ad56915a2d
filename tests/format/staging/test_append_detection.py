"""Appends found again between two versions, and distinguished from similar changes."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch.errors import SchemaMismatchError
from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.staging import ColumnChange, VersionRef
from tests.conftest import Location

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def table(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": [f"v{number}" for number in ids]}, schema=SCHEMA)


@pytest.fixture
def empty(location: Location) -> VersionRef:
    return staging.create_empty(Home.at(location / "t.lance", location.storage_options), SCHEMA)


@pytest.fixture
def base(empty: VersionRef) -> VersionRef:
    """Rows 1, 2 and 3, of which 2 was deleted again."""
    return staging.delete(staging.append(empty, table(1, 2, 3)), "id = 2").version_ref


def ids(version_ref: VersionRef) -> list[int]:
    return sorted(version_ref.open().to_table(columns=["id"]).column("id").to_pylist())


def row_ids(version_ref: VersionRef) -> dict[int, int]:
    found = version_ref.open().to_table(columns=["id"], with_row_id=True)
    return dict(zip(found.column("id").to_pylist(), found.column("_rowid").to_pylist(), strict=True))


def test_appends_are_found_and_fit_another_version(base: VersionRef) -> None:
    after = staging.append(staging.append(base, table(4, 5)), table(6))
    found = staging.find_appended(base, after)
    assert found is not None
    assert [fragment.rows for fragment in found] == [2, 1]
    other = staging.delete(staging.append(base, table(7)), "id = 1").version_ref
    both = staging.append_fragments(other, found)
    assert ids(both) == [3, 4, 5, 6, 7]
    assert len(set(row_ids(both).values())) == 5
    assert {number: row_ids(both)[number] for number in (3, 7)} == row_ids(other)
    assert ids(after) == [1, 3, 4, 5, 6]


def test_nothing_appended_is_nothing(base: VersionRef) -> None:
    assert staging.find_appended(base, base) == ()


def test_appends_to_no_rows(empty: VersionRef) -> None:
    found = staging.find_appended(empty, staging.append(empty, table(1)))
    assert found is not None
    assert [fragment.rows for fragment in found] == [1]


def test_appends_in_a_fork_are_found_but_fit_only_there(base: VersionRef) -> None:
    home = staging.fork(base, "dev/one")
    forked = VersionRef(home=home, version=home.head_version())
    after = staging.append(staging.append(forked, table(4)), table(5))
    found = staging.find_appended(base, after)
    assert found is not None
    assert ids(staging.append_fragments(staging.append(forked, table(6)), found)) == [1, 3, 4, 5, 6]
    with pytest.raises(SchemaMismatchError):
        staging.append_fragments(base, found)
    assert staging.find_appended(base, staging.upsert(forked, table(9), ["id"]).version_ref) is None


CHANGES: dict[str, Callable[[VersionRef], VersionRef]] = {
    "upsert": lambda version_ref: staging.upsert(version_ref, table(1, 9), ["id"]).version_ref,
    "upsert of new keys": lambda version_ref: staging.upsert(version_ref, table(9), ["id"]).version_ref,
    "update": lambda version_ref: staging.update(version_ref, {"v": "'x'"}).version_ref,
    "delete": lambda version_ref: staging.delete(version_ref, "id = 1").version_ref,
    "delete all": lambda version_ref: staging.delete(version_ref, "true").version_ref,
    "overwrite": lambda version_ref: staging.overwrite(version_ref, table(9)),
    "overwrite by nothing": lambda version_ref: staging.overwrite(version_ref, table()),
    "compact": lambda version_ref: staging.compact(staging.append(version_ref, table(9))),
    "add a column": lambda version_ref: staging.add_columns(version_ref, {"w": "id"}),
    "rename a column": lambda version_ref: staging.alter_columns(version_ref, [ColumnChange(path="v", name="w")]),
    "rename a column and back": lambda version_ref: staging.alter_columns(
        staging.alter_columns(version_ref, [ColumnChange(path="v", name="w")]), [ColumnChange(path="w", name="v")]
    ),
    "drop a column": lambda version_ref: staging.drop_columns(version_ref, ["v"]),
    "delete of what was appended": lambda version_ref: (
        staging.delete(staging.append(version_ref, table(8, 9)), "id = 9").version_ref
    ),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_everything_else_is_not_an_append(base: VersionRef, change: str) -> None:
    assert staging.find_appended(base, CHANGES[change](base)) is None
    assert staging.find_appended(base, staging.append(CHANGES["upsert of new keys"](base), table(10))) is None


def test_overwrite_of_no_rows_is_not_an_append(empty: VersionRef) -> None:
    assert staging.find_appended(empty, staging.overwrite(empty, table(1))) is None


def test_version_on_another_line_is_not_an_append(base: VersionRef) -> None:
    other = staging.append(base, table(4))
    assert staging.find_appended(other, staging.append(base, table(5))) is None
