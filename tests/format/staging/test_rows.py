"""Rows deleted and updated by predicate."""

from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from anabranch.errors import (
    DamagedFileError,
    InvalidExpressionError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
    WriteConflictError,
)
from anabranch.format.home import Home
from anabranch.format.layout.listing import is_data_file
from anabranch.format.staging import (
    Addresses,
    IndexKind,
    RowBatch,
    RowsChanged,
    VersionRef,
    append,
    append_fragments,
    create_empty,
    delete,
    fork,
    index,
    replace_rows,
    require_rows,
    update,
    upsert,
    write_moved_rows,
)
from tests.conftest import Location
from tests.format.overlays import ENABLE, add_overlay
from tests.format.staging.tables import contents, ids, new_table, raw, row_ids, rows


@pytest.mark.s3
def test_delete_takes_rows_from_every_fragment_and_keeps_the_row_ids_of_the_rest(location: Location) -> None:
    version_ref = new_table(location, [1, 2, 3], [4, 5], [6])
    result = delete(version_ref, "id IN (2, 4, 5)")
    assert result.deleted == 3
    assert ids(result.version_ref) == [1, 3, 6]
    assert row_ids(result.version_ref) == {
        key: row_id for key, row_id in row_ids(version_ref).items() if key in {1, 3, 6}
    }
    assert ids(version_ref) == [1, 2, 3, 4, 5, 6]
    assert raw(version_ref).count_rows() == 0


def test_deletes_add_up(location: Location) -> None:
    version_ref = new_table(location, range(10))
    for key in (3, 7, 0):
        version_ref = delete(version_ref, f"id = {key}").version_ref
    assert ids(version_ref) == [1, 2, 4, 5, 6, 8, 9]
    assert ids(delete(version_ref, "true").version_ref) == []


def test_appended_files_with_row_ids_give_no_others_to_their_rows(location: Location) -> None:
    """Spark writes changed rows under their old ids. Their keys are checked in a version to which they are appended."""
    version_ref = new_table(location, range(5))
    batch = rows([50, 51, 52]).to_batches()[0]
    moved = write_moved_rows(version_ref, [(batch, np.array([1, 4, 2], dtype=np.uint64))])
    left = delete(version_ref, "id IN (1, 2, 4)").version_ref
    appended = append(append_fragments(left, moved), rows([60]))
    assert ids(appended) == [0, 3, 50, 51, 52, 60]
    assert row_ids(appended) == {0: 0, 3: 3, 50: 1, 51: 4, 52: 2, 60: 5}


@pytest.mark.parametrize("kind", [None, IndexKind.BTREE])
def test_replaced_and_new_rows_are_written_together(location: Location, kind: IndexKind | None) -> None:
    version_ref = new_table(location, range(5))
    version_ref = version_ref if kind is None else index(version_ref, "id", kind)
    changed = [
        RowBatch(rows=rows([3, 1]), addresses=addresses([3, 1]), row_ids=addresses([3, 1])),
        RowBatch(rows=None, addresses=addresses([4])),
        RowBatch(rows=rows([50])),
        RowBatch(rows=rows([51])),
    ]
    replaced = replace_rows(version_ref, changed)
    assert (replaced.inserted, replaced.updated, replaced.deleted) == (2, 2, 1)
    assert replaced.version_ref.count_fragments() == 2
    assert row_ids(replaced.version_ref) == {0: 0, 1: 1, 2: 2, 3: 3, 50: 5, 51: 6}
    assert [ids(replaced.version_ref, f"id = {key}") for key in (1, 4, 51)] == [[1], [], [51]]


def test_rows_with_other_values_by_an_overlay_are_changed_rows(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENABLE, "1")
    home = new_table(location, range(5)).home
    home.open().insert(rows(range(5)))
    before = VersionRef(home=home, version=home.head_version())
    add_overlay(home, "v", {2: 9.0}, fragment=0)
    after = VersionRef(home=home, version=home.head_version())
    require_rows(before, before, addresses([2]))
    with pytest.raises(WriteConflictError):
        require_rows(before, after, addresses([2]))


def addresses(numbers: list[int]) -> Addresses:
    return np.array(numbers, dtype=np.uint64)


def test_deleting_nothing_returns_the_same_version(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert delete(version_ref, "id = 9") == RowsChanged(version_ref=version_ref)
    empty = new_table_elsewhere(location)
    assert delete(empty, "true") == RowsChanged(version_ref=empty)


def new_table_elsewhere(location: Location) -> VersionRef:
    return create_empty(Home.at(location / "empty.lance", location.storage_options), pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize(
    "predicate",
    [
        "nope = 1",
        "id = ",
        "",
        "v + 1",
        "count(*) > 1",
        "unknown(v) > 1",
        "id > 1 LIMIT 1",
        "id = 1; DROP TABLE t",
        "id = 1) OR (true",
        "id IN (SELECT 1)",
        "1 / (id - 1) > 0",
        "CAST(s AS INT) > 1",
    ],
)
def test_bad_predicates_are_refused_and_quoted(location: Location, predicate: str) -> None:
    version_ref = new_table(location, [1, 2])
    with pytest.raises(InvalidExpressionError) as from_delete:
        delete(version_ref, predicate)
    with pytest.raises(InvalidExpressionError) as from_update:
        update(version_ref, {"v": "1.0"}, where=predicate)
    assert repr(predicate) in from_delete.value.problem
    assert repr(predicate) in from_update.value.problem


def test_predicate_may_end_with_a_comment(location: Location) -> None:
    assert ids(delete(new_table(location, [1, 2]), "id = 1 -- the first").version_ref) == [2]


@pytest.mark.s3
def test_update_computes_from_old_values_and_keeps_row_ids(location: Location) -> None:
    version_ref = append(new_table(location, [1, 2], [3, 4]), rows([5], v=None))
    result = update(version_ref, {"v": "v + id", "s": "concat(s, '!')"}, where="id > 1")
    assert result.updated == 4
    found = contents(result.version_ref)
    assert [row["v"] for row in found] == [0.0, 2.0, 3.0, 4.0, None]
    assert [row["s"] for row in found] == ["s1", "s2!", "s3!", "s4!", "s5!"]
    assert [row["st"] for row in found] == [row["st"] for row in contents(version_ref)]
    assert row_ids(result.version_ref) == row_ids(version_ref)
    assert [row["v"] for row in contents(version_ref)] == [0.0, 0.0, 0.0, 0.0, None]


def test_update_without_a_condition_touches_every_row(location: Location) -> None:
    version_ref = new_table(location, [1, 2], [3])
    result = update(version_ref, {"v": "7"})
    assert {row["v"] for row in contents(result.version_ref)} == {7.0}
    assert row_ids(result.version_ref) == row_ids(version_ref)
    fresh = append(result.version_ref, rows([4]))
    assert len(set(row_ids(fresh).values())) == 4


def test_update_keeps_rows_apart_that_look_the_same(location: Location) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    version_ref = create_empty(Home.at(location / "keyless.lance", location.storage_options), schema)
    version_ref = append(version_ref, pa.table({"a": [1, 1, None, None], "b": ["x", "x", None, "y"]}))
    result = update(version_ref, {"a": "coalesce(a, 0) + 1"})
    assert result.updated == 4
    assert sorted(result.version_ref.open().to_table().column("a").to_pylist()) == [1, 1, 2, 2]


def test_update_computes_numbers_into_narrower_columns_if_they_fit(location: Location) -> None:
    schema = pa.schema([("id", pa.int64()), ("small", pa.int8()), ("single", pa.float32())])
    version_ref = create_empty(Home.at(location / "narrow.lance", location.storage_options), schema)
    version_ref = append(
        version_ref, pa.table({"id": [1], "small": pa.array([100], pa.int8()), "single": pa.array([1.5], pa.float32())})
    )
    assert contents(update(version_ref, {"small": "small + 27", "single": "single * 2"}).version_ref) == [
        {"id": 1, "small": 127, "single": 3.0}
    ]
    with pytest.raises((SchemaMismatchError, InvalidExpressionError), match="small"):
        update(version_ref, {"small": "cast(small as int) * 2"})


@pytest.mark.parametrize(
    ("assignments", "error", "message"),
    [
        ({"nope": "1"}, SchemaMismatchError, "no column 'nope'"),
        ({"v": "nope + 1"}, InvalidExpressionError, "'nope \\+ 1'"),
        ({"v": "1.0 LIMIT 5"}, InvalidExpressionError, "LIMIT"),
        ({"v": "s"}, SchemaMismatchError, "'v' was expected to be float64 and was found to be string"),
        ({"id": "cast(null as bigint)"}, SchemaMismatchError, "'id' takes no nulls"),
        ({"v": "1 / (id - 1)"}, InvalidExpressionError, "1 / \\(id - 1\\)"),
        ({}, InvalidInputError, "changes nothing"),
    ],
)
def test_bad_updates_are_refused(
    location: Location, assignments: dict[str, str], error: type[Exception], message: str
) -> None:
    version_ref = new_table(location, [1, 2])
    with pytest.raises(error, match=message):
        update(version_ref, assignments)


def test_update_names_the_dataset_whose_file_is_missing(location: Location) -> None:
    version_ref = new_table(location, [1, 2, 3])
    home = version_ref.home
    ((path,),) = ([file.path for file in one.metadata.files] for one in version_ref.open().get_fragments())
    home.store().delete(f"{home.folder}/data/{path}".lstrip("/"))
    with pytest.raises(DamagedFileError, match=r"t\.lance"):
        update(version_ref, {"v": "v + 1"})


def test_update_of_no_rows_returns_the_same_version(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert update(version_ref, {"v": "1.0"}, where="id = 9") == RowsChanged(version_ref=version_ref)


def test_indices_answer_right_after_rows_moved(location: Location) -> None:
    version_ref = index(index(new_table(location, range(50)), "id", IndexKind.BTREE), "v", IndexKind.BTREE)
    version_ref = append(version_ref, rows([50, 51], v=5.0))
    version_ref = update(version_ref, {"v": "9.0"}, where="id IN (3, 50)").version_ref
    version_ref = update(version_ref, {"id": "id + 1000"}, where="id = 4").version_ref
    version_ref = delete(version_ref, "id = 6").version_ref
    assert ids(version_ref, "v = 9.0") == [3, 50]
    assert ids(version_ref, "v = 5.0") == [51]
    assert ids(version_ref, "id IN (3, 4, 5, 6, 50, 1004)") == [3, 5, 50, 1004]
    assert len(ids(version_ref, "v = 0.0")) == 48


def test_odd_column_names_survive_an_update(location: Location) -> None:
    schema = pa.schema([("Id", pa.int64()), ("we ird", pa.string()), ("ü", pa.int64()), ('q"t', pa.int64())])
    version_ref = create_empty(Home.at(location / "odd.lance", location.storage_options), schema)
    version_ref = append(version_ref, pa.table({"Id": [1], "we ird": ["x"], "ü": [2], 'q"t': [3]}))
    updated = update(version_ref, {"ü": '`ü` + `q"t`'}, where="`we ird` = 'x'").version_ref
    assert updated.open().to_table().to_pylist() == [{"Id": 1, "we ird": "x", "ü": 5, 'q"t': 3}]


def described(dataset: lance.LanceDataset) -> list[dict[str, Any]]:
    """The fragments as their manifest describes them, without the random names of files."""
    found = [fragment.metadata.to_json() for fragment in dataset.get_fragments()]
    for fragment in found:
        fragment["files"] = [{**file, "path": ""} for file in fragment["files"]]
        fragment["deletion_file"] = fragment["deletion_file"] and {**fragment["deletion_file"], "id": 0}
    return found


def lance_commit(version_ref: VersionRef, change: lance.LanceOperation.BaseOperation) -> lance.LanceDataset:
    return lance.LanceDataset.commit(version_ref.open(), change, read_version=version_ref.version, detached=True)


@pytest.mark.s3
def test_staged_rows_are_described_as_lance_describes_them(location: Location) -> None:
    base = new_table(location, range(5), range(5, 8))
    home = fork(base, "dev/one")
    forked = VersionRef(home=home, version=home.head_version())
    for version_ref in (base, forked, delete(base, "id = 6").version_ref):
        home, dataset = version_ref.home, version_ref.open()
        written = write_fragments(rows([20, 21]), dataset, mode="append")
        expected = lance_commit(version_ref, lance.LanceOperation.Append(written))
        appended = append(version_ref, rows([20, 21])).open()
        assert described(appended) == described(expected)
        updated = update(version_ref, {"v": "1.0"}, where="id IN (1, 3)").version_ref
        step = lance.dataset(home.uri, updated.version, storage_options=home.lance_options()).read_transaction(
            updated.version
        )
        assert step is not None
        assert step.read_version == version_ref.version
        # Lance makes of the transaction the version that was put with it, except for the versions of rows.
        same = [
            {key: value for key, value in fragment.items() if not key.endswith("_version_meta")}
            for dataset in (updated.open(), lance_commit(version_ref, step.operation))
            for fragment in described(dataset)
        ]
        assert same[: len(same) // 2] == same[len(same) // 2 :]


def test_upserts_of_upserts_keep_one_id_for_each_row_and_manifests_do_not_grow(location: Location) -> None:
    version_ref = new_table(location, range(5))
    known: dict[int, int] = row_ids(version_ref)
    sizes = []
    for number in range(6):
        version_ref = upsert(version_ref, rows([0, 10 + number], v=float(number)), ["id"]).version_ref
        version_ref = delete(version_ref, f"id = {10 + number}").version_ref
        sizes.append(len(version_ref.home.store().get(f"_versions/d{version_ref.version}.manifest")))
    assert row_ids(version_ref) == known
    assert len(set(known.values())) == 5
    assert contents(version_ref, "v", where="id = 0") == [{"v": 5.0}]
    # Each step removes the fragments of the one before, so that a transaction that is left behind would show.
    assert max(sizes) - min(sizes) < 64


_PLAIN = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.uint8()),
        ("half", pa.float16()),
        ("number", pa.float64()),
        ("text", pa.string()),
        ("long_text", pa.large_string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("ns", "Europe/Prague")),
        ("nothing", pa.float32()),
    ]
)


def test_few_plain_rows_are_written_as_lance_writes_them(location: Location) -> None:
    rows_given = pa.table(
        {
            "id": [1, 2, 3],
            "flag": [True, None, False],
            "small": [255, 0, None],
            "half": pa.array([np.float16(1.5), None, np.float16("nan")], pa.float16()),
            "number": [float("nan"), -0.0, None],
            "text": ["", None, "číslo"],
            "long_text": [None, "a" * 3000, ""],
            "day": pa.array([0, -1, None], pa.date32()),
            "moment": pa.array([1, None, -1], pa.timestamp("ns", "Europe/Prague")),
            "nothing": pa.nulls(3, pa.float32()),
        },
        schema=_PLAIN,
    )
    table = append(create_empty(Home.at(location / "plain.lance", location.storage_options), _PLAIN), rows_given)
    changed: Any = update(table, {"small": "small"}, where="true").version_ref.open()
    (fragment,) = changed.get_fragments()
    (by_lance,) = write_fragments(rows_given, table.open(), mode="append")
    changed.validate()
    # As text, in which NaN is equal to itself, and 0.0 is not -0.0.
    assert str(changed.to_table().to_pylist()) == str(rows_given.to_pylist())
    (file,), (expected,) = fragment.metadata.files, by_lance.files
    assert (file.fields, file.column_indices) == (expected.fields, expected.column_indices)
    assert (file.file_major_version, file.file_minor_version) == (
        expected.file_major_version,
        expected.file_minor_version,
    )
    # Cleanup and garbage collection know data files by their names.
    assert is_data_file(file.path)
    assert is_data_file(expected.path)


def test_nulls_in_a_column_without_nulls_are_refused_in_few_rows(location: Location) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = append(
        create_empty(Home.at(location / "strict.lance", location.storage_options), schema), pa.table({"id": [1]})
    )
    batch = pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], schema=schema)
    with pytest.raises(StorageError, match="non-nullable but contains null values"):
        write_moved_rows(table, [(batch, np.array([0], dtype=np.uint64))])
