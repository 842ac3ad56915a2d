"""Rows found by key."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.home import Home
from anabranch.format.staging import (
    IndexKind,
    RowsChanged,
    VersionRef,
    append,
    create_empty,
    find_existing_keys,
    index,
    upsert,
)
from tests.conftest import Location
from tests.format.staging.tables import SCHEMA, contents, ids, new_table, raw, row_ids, rows


@pytest.mark.s3
def test_upsert_replaces_by_key_keeping_row_ids_and_adds_the_rest(location: Location) -> None:
    version_ref = new_table(location, [1, 2, 3], [4])
    result = upsert(version_ref, rows([9, 4, 2], v=5.0), ["id"])
    assert (result.updated, result.inserted) == (2, 1)
    assert {row["id"]: row["v"] for row in contents(result.version_ref)} == {1: 0.0, 2: 5.0, 3: 0.0, 4: 5.0, 9: 5.0}
    before, after = row_ids(version_ref), row_ids(result.version_ref)
    assert {key: after[key] for key in before} == before
    assert after[9] not in before.values()
    assert raw(version_ref).count_rows() == 0


def test_upsert_into_an_empty_table_only_adds(location: Location) -> None:
    result = upsert(new_table(location), rows([1, 2]), ["id"])
    assert (result.updated, result.inserted, ids(result.version_ref)) == (0, 2, [1, 2])


def test_upsert_of_nothing_returns_the_same_version(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert upsert(version_ref, SCHEMA.empty_table(), ["id"]) == RowsChanged(version_ref=version_ref)


def test_columns_not_given_keep_their_values_and_are_null_in_new_rows(location: Location) -> None:
    result = upsert(new_table(location, [1, 2]), pa.table({"s": ["x", "y"], "id": [7, 1]}), ["id"])
    assert contents(result.version_ref) == [
        {"id": 1, "v": 0.0, "s": "y", "st": {"a": 1, "b": ["b1"]}},
        {"id": 2, "v": 0.0, "s": "s2", "st": None},
        {"id": 7, "v": None, "s": "x", "st": None},
    ]


def keyed(location: Location) -> VersionRef:
    schema = pa.schema([("region", pa.string()), ("day", pa.date32()), pa.field("amount", pa.int64(), nullable=False)])
    version_ref = create_empty(Home.at(location / "keyed.lance", location.storage_options), schema)
    data = {"region": ["eu", "eu", "us", None], "day": pa.array([1, 2, 1, 1], pa.date32()), "amount": [1, 2, 3, 4]}
    return append(version_ref, pa.table(data))


def test_composite_keys_match_as_a_whole_and_rows_with_null_keys_stay(location: Location) -> None:
    version_ref = keyed(location)
    data = {"region": ["eu", "us"], "day": pa.array([2, 2], pa.date32()), "amount": [20, 30]}
    result = upsert(version_ref, pa.table(data), ["region", "day"])
    assert (result.updated, result.inserted) == (1, 1)
    found = result.version_ref.open().to_table()
    assert sorted(found.column("amount").to_pylist()) == [1, 3, 4, 20, 30]
    assert None in found.column("region").to_pylist()


def test_new_rows_need_every_column_that_takes_no_nulls(location: Location) -> None:
    version_ref = keyed(location)
    known = pa.table({"region": ["eu"], "day": pa.array([2], pa.date32())})
    assert upsert(version_ref, known, ["region", "day"]).updated == 1
    with pytest.raises(SchemaMismatchError, match="'amount' is expected"):
        upsert(version_ref, pa.table({"region": ["xx"], "day": pa.array([2], pa.date32())}), ["region", "day"])


@pytest.mark.parametrize("recipe", [upsert, find_existing_keys])
def test_repeated_and_null_keys_are_refused(location: Location, recipe: object) -> None:
    assert callable(recipe)
    with pytest.raises(KeyConflictError, match=r"1 key occurs more than once in the data, such as \{'id': 2\}"):
        recipe(new_table(location, [1]), rows([2, 3, 2]), ["id"])
    data = {"region": [None, "eu"], "day": pa.array([1, 1], pa.date32()), "amount": [1, 1]}
    with pytest.raises(KeyConflictError, match="1 rows have no value in the key column 'region'"):
        recipe(keyed(location), pa.table(data), ["region", "day"])


def test_table_that_repeats_a_key_is_not_upserted(location: Location) -> None:
    version_ref = new_table(location, [1, 2], [2])
    with pytest.raises(KeyConflictError, match=r"the table holds the key \{'id': 2\} more than once"):
        upsert(version_ref, rows([2]), ["id"])
    assert upsert(version_ref, rows([1]), ["id"]).updated == 1


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ([], InvalidInputError, "no key columns"),
        (["nope"], SchemaMismatchError, "no column 'nope'"),
        (["st"], InvalidInputError, "cannot be a key"),
    ],
)
def test_bad_keys_are_refused(location: Location, keys: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        upsert(new_table(location), rows([1]), keys)


def test_data_without_its_key_is_refused(location: Location) -> None:
    with pytest.raises(SchemaMismatchError, match="no key column 'id'"):
        upsert(new_table(location), pa.table({"s": ["x"]}), ["id"])


def test_existing_keys_are_found(location: Location) -> None:
    version_ref = new_table(location, [1, 2], [3])
    assert find_existing_keys(version_ref, rows([3, 4, 1]), ["id"]).column("id").to_pylist() == [3, 1]
    assert find_existing_keys(version_ref, rows([]), ["id"]).num_rows == 0


def test_indices_answer_right_after_an_upsert(location: Location) -> None:
    version_ref = index(index(new_table(location, range(50)), "id", IndexKind.BTREE), "s", IndexKind.BITMAP)
    version_ref = append(version_ref, rows([60, 61]))
    version_ref = upsert(version_ref, pa.table({"id": [5, 60, 70], "s": ["new", "new", "new"]}), ["id"]).version_ref
    version_ref = upsert(version_ref, pa.table({"id": [5, 61], "v": [1.0, 1.0]}), ["id"]).version_ref
    assert ids(version_ref, "s = 'new'") == [5, 60, 70]
    assert ids(version_ref, "s = 's5'") == []
    assert ids(version_ref, "s = 's61'") == [61]
    assert ids(version_ref, "id IN (5, 60, 61, 70)") == [5, 60, 61, 70]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array([b"a", b"b"]),
        pa.array([b"ab", b"cd"], pa.binary(2)),
        pa.array([1, 2], pa.decimal128(10, 2)),
        pa.array([1, 2], pa.timestamp("us", "UTC")),
        pa.array([1, 2], pa.int8()),
        pa.array([0.5, 1.5]),
    ],
    ids=lambda values: str(values.type),
)
def test_any_plain_type_can_be_a_key(location: Location, values: pa.Array) -> None:
    schema = pa.schema([("k", values.type), ("n", pa.int64())])
    version_ref = append(
        create_empty(Home.at(location / "k.lance", location.storage_options), schema),
        pa.table({"k": values[:1], "n": [1]}),
    )
    result = upsert(version_ref, pa.table({"k": values, "n": [10, 20]}), ["k"])
    assert (result.updated, result.inserted) == (1, 1)
    assert result.version_ref.open().to_table().sort_by("n").column("k").to_pylist() == values.to_pylist()


@given(st.data())
def test_keys_of_any_text_and_number_are_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    letters = st.text(st.sampled_from("aA'\"`\\%_;-\n\0é(),"), max_size=4)
    numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
    pairs = st.sets(st.tuples(letters, numbers), max_size=6)
    there, wanted = data.draw(pairs), data.draw(pairs)
    asked = wanted | set(data.draw(st.lists(st.sampled_from(sorted(there)), max_size=4)) if there else [])
    version_ref = create_empty(Home.at(str(tmp_path_factory.mktemp("t") / "t.lance")), PAIRS)
    found = find_existing_keys(append(version_ref, paired(there)), paired(asked), ["s", "n"])
    assert {(row["s"], row["n"]) for row in found.to_pylist()} == there & asked


PAIRS = pa.schema([("s", pa.string()), ("n", pa.int64())])


def paired(pairs: set[tuple[str, int]]) -> pa.Table:
    return pa.Table.from_pylist([{"s": s, "n": n} for s, n in sorted(pairs)], schema=PAIRS)


def test_many_keys_are_matched_without_listing_them(location: Location) -> None:
    version_ref = new_table(location, range(0, 2000, 2))
    result = upsert(version_ref, rows(range(1500), v=1.0), ["id"])
    assert (result.updated, result.inserted) == (750, 750)
    assert len(ids(result.version_ref, "v = 1.0")) == 1500
