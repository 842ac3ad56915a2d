"""Append and overwrite, and fragments that travel."""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import (
    DatasetExistsError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    VersionRef,
    WrittenFragment,
    add_columns,
    alter_columns,
    append,
    append_fragments,
    create_empty,
    drop_columns,
    fork,
    overwrite,
    overwrite_fragments,
    write_fragments,
)
from tests.conftest import Location
from tests.format.staging.tables import SCHEMA, contents, ids, new_table, raw, row_ids, rows


@pytest.mark.s3
def test_staged_rows_are_seen_only_by_those_who_know_the_version(location: Location) -> None:
    empty = new_table(location)
    first = append(empty, rows([1, 2]))
    second = append(first, rows([3]))
    sibling = append(first, rows([4]))
    assert (ids(empty), ids(first), ids(second), ids(sibling)) == ([], [1, 2], [1, 2, 3], [1, 2, 4])
    assert raw(empty).version == empty.version
    assert raw(empty).count_rows() == 0
    assert first.is_staged
    assert len({empty, first, second, sibling}) == 4


def test_new_dataset_has_stable_row_ids_and_sortable_manifests(location: Location) -> None:
    version_ref = new_table(location)
    assert version_ref.open().has_stable_row_ids
    assert f"_versions/{2**64 - 2:020d}.manifest" in [
        found.path for found in version_ref.home.store().list("_versions")
    ]
    with pytest.raises(DatasetExistsError, match="already"):
        create_empty(version_ref.home, SCHEMA)


def test_dataset_is_created_at_the_root_only(location: Location) -> None:
    with pytest.raises(InvalidInputError, match="branch 'dev'"):
        create_empty(Home.at(location / "t.lance", location.storage_options).on("dev"), SCHEMA)


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "a\0b", "_rowid"])
def test_column_names_that_lance_cannot_hold_are_refused(location: Location, name: str) -> None:
    with pytest.raises(InvalidNameError, match="column name"):
        create_empty(Home.at(location / "t.lance", location.storage_options), pa.schema([(name, pa.int64())]))


def test_appending_nothing_returns_the_same_version(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert append(version_ref, SCHEMA.empty_table()) == version_ref


def test_columns_may_come_in_any_order_and_nullable_ones_may_be_missing(location: Location) -> None:
    version_ref = append(new_table(location), pa.table({"s": ["x"], "id": pa.array([1], pa.int32())}))
    assert contents(version_ref) == [{"id": 1, "v": None, "s": "x", "st": None}]


@pytest.mark.parametrize(
    "data",
    [
        lambda: rows([1]),
        lambda: rows([1]).to_batches()[0],
        lambda: pa.RecordBatchReader.from_batches(SCHEMA, rows([1]).to_batches()),
        lambda: pads.dataset(rows([1])),
        lambda: pads.dataset(rows([1])).scanner(),
    ],
    ids=["table", "batch", "reader", "dataset", "scanner"],
)
def test_rows_come_from_anything_arrow_can_read(location: Location, data: Callable[[], object]) -> None:
    assert ids(append(new_table(location), data())) == [1]


def test_what_arrow_cannot_read_is_refused(location: Location) -> None:
    with pytest.raises(InvalidInputError, match=r"7 \(int\)"):
        append(new_table(location), 7)


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("id", pa.array([1], pa.uint8())),
        ("id", pa.array([1]).dictionary_encode()),
        ("v", pa.array([1], pa.int64())),
        ("v", pa.array([1.5], pa.float32())),
        ("s", pa.array(["x"], pa.large_string())),
        ("s", pa.array(["x"], pa.string_view())),
        ("s", pa.array(["x"]).dictionary_encode()),
        ("s", pa.nulls(1)),
        (
            "st",
            pa.array([{"a": 1, "b": ["x"]}], pa.struct([("a", pa.int64()), ("b", pa.large_list(pa.large_string()))])),
        ),
    ],
    ids=str,
)
def test_types_that_lose_nothing_are_cast(location: Location, column: str, given: pa.Array) -> None:
    version_ref = append(new_table(location), pa.table({"id": [1]} | {column: given}))
    assert contents(version_ref)[0][column] == given.to_pylist()[0]


@pytest.mark.parametrize(
    ("column", "given", "message"),
    [
        (
            "extra",
            pa.array([1]),
            r"column 'extra' \(found int64\) is not expected: the columns are 'id', 'v', 's', 'st'",
        ),
        ("v", pa.array(["1"]), "column 'v' was expected to be float64 and was found to be string"),
        ("id", pa.array([1.0]), "column 'id' was expected to be int64 and was found to be float64"),
        ("id", pa.array([2**64 - 1], pa.uint64()), "column 'id' takes int64, and a value of the given uint64"),
        ("id", pa.array([None], pa.int64()), "column 'id' takes no nulls"),
        ("s", pa.array([1]), "column 's' was expected to be string and was found to be int64"),
        ("st", pa.array([{"a": 1}]), "column 'st' was expected to be struct"),
    ],
)
def test_data_that_does_not_fit_is_refused_by_column(
    location: Location, column: str, given: pa.Array, message: str
) -> None:
    version_ref = new_table(location)
    with pytest.raises(SchemaMismatchError, match=message):
        append(version_ref, pa.table({"id": pa.array([1])} | {column: given}))


def test_missing_required_column_is_refused(location: Location) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'id' is expected \(int64, not null\)"):
        append(new_table(location), pa.table({"s": ["x"]}))


def test_failure_of_the_reader_is_raised_as_it_was(location: Location) -> None:
    def broken() -> object:
        yield rows([1]).to_batches()[0]
        raise LookupError("the source went away")

    version_ref = new_table(location)
    with pytest.raises(Exception, match="the source went away"):
        append(version_ref, pa.RecordBatchReader.from_batches(SCHEMA, broken()))


@pytest.mark.s3
def test_fragments_travel_as_json_and_are_staged_again_elsewhere(location: Location) -> None:
    version_ref = new_table(location, [1])
    written = [WrittenFragment.from_json(f.to_json()) for f in write_fragments(version_ref, rows([2, 3]))]
    assert [f.rows for f in written] == [2]
    assert ids(append_fragments(version_ref, written)) == [1, 2, 3]
    moved_on = append(version_ref, rows([9]))
    again = append_fragments(moved_on, written)
    assert ids(again) == [1, 2, 3, 9]
    assert len(set(row_ids(again).values())) == 4


def _write_in_another_process(version_ref: VersionRef, answers: "multiprocessing.Queue[list[str]]") -> None:
    answers.put([fragment.to_json() for fragment in write_fragments(version_ref, rows([7, 8]))])


def _stage_in_another_process(
    version_ref: VersionRef, fragments: list[str], answers: "multiprocessing.Queue[VersionRef]"
) -> None:
    answers.put(append_fragments(version_ref, [WrittenFragment.from_json(text) for text in fragments]))


def test_one_process_writes_and_another_stages(location: Location) -> None:
    version_ref = new_table(location, [1])
    spawn = multiprocessing.get_context("spawn")
    texts, version_refs = spawn.Queue(), spawn.Queue()
    writer = spawn.Process(target=_write_in_another_process, args=(version_ref, texts))
    writer.start()
    fragments = texts.get(timeout=60)
    writer.join()
    stager = spawn.Process(target=_stage_in_another_process, args=(version_ref, fragments, version_refs))
    stager.start()
    staged = version_refs.get(timeout=60)
    stager.join()
    assert ids(staged) == [1, 7, 8]
    assert ids(append_fragments(staged, [WrittenFragment.from_json(f) for f in write_and_dump(staged)])) == [1, 7, 8, 9]


def write_and_dump(version_ref: VersionRef) -> list[str]:
    return [fragment.to_json() for fragment in write_fragments(version_ref, rows([9]))]


@pytest.mark.parametrize(
    "change",
    [
        lambda version_ref: add_columns(version_ref, pa.schema([("w", pa.int64())])),
        lambda version_ref: drop_columns(version_ref, ["v"]),
        lambda version_ref: alter_columns(version_ref, [ColumnChange(path="v", name="w")]),
        lambda version_ref: alter_columns(version_ref, [ColumnChange(path="id", nullable=True)]),
        lambda version_ref: alter_columns(version_ref, [ColumnChange(path="id", type=pa.int32())]),
        lambda version_ref: add_columns(drop_columns(version_ref, ["s"]), pa.schema([("s", pa.string())])),
        lambda version_ref: overwrite(version_ref, rows([5]).select(["v", "id", "s", "st"])),
    ],
    ids=["column added", "dropped", "renamed", "nullable", "retyped", "recreated", "order"],
)
def test_fragments_are_refused_on_a_version_with_another_schema(location: Location, change: object) -> None:
    assert callable(change)
    version_ref = new_table(location, [1])
    written = write_fragments(version_ref, rows([2]))
    with pytest.raises(SchemaMismatchError, match="another schema"):
        append_fragments(change(version_ref), written)


def test_fragments_are_refused_in_another_home(location: Location) -> None:
    version_ref = new_table(location, [1])
    written = write_fragments(version_ref, rows([2]))
    home = fork(version_ref, "dev/1")
    with pytest.raises(SchemaMismatchError, match="written for"):
        append_fragments(VersionRef(home=home, version=home.open().version), written)


def test_fragments_are_refused_where_base_paths_differ(location: Location) -> None:
    version_ref = new_table(location, [1])
    (written,) = write_fragments(version_ref, rows([2]))
    other = replace(written, fingerprint=replace(written.fingerprint, base_paths="other"))
    with pytest.raises(SchemaMismatchError, match="other base paths"):
        append_fragments(version_ref, [other])


def test_overwrite_brings_its_own_schema_and_new_row_ids(location: Location) -> None:
    version_ref = new_table(location, [1, 2])
    other = overwrite(version_ref, pa.table({"id": pa.array([1], pa.int32()), "new": ["x"]}))
    assert contents(other) == [{"id": 1, "new": "x"}]
    assert other.open().has_stable_row_ids
    assert not set(row_ids(other).values()) & set(row_ids(version_ref).values())
    assert ids(append(other, pa.table({"id": [2]}))) == [1, 2]
    assert ids(version_ref) == [1, 2]


def test_overwrite_with_no_rows_leaves_an_empty_table(location: Location) -> None:
    empty = overwrite(new_table(location, [1, 2]), pa.schema([("id", pa.int64())]).empty_table())
    assert contents(empty) == []
    assert ids(append(empty, pa.table({"id": [3]}))) == [3]
    assert ids(overwrite_fragments(empty, [], schema=SCHEMA)) == []


def test_overwrite_fragments_of_another_schema_are_refused(location: Location) -> None:
    version_ref = new_table(location, [1])
    written = write_fragments(version_ref, pa.table({"a": [1]}), for_overwrite=True)
    assert overwrite_fragments(version_ref, written, schema=pa.schema([("a", pa.int64())])).count_rows() == 1
    with pytest.raises(SchemaMismatchError, match="another schema"):
        overwrite_fragments(version_ref, written, schema=pa.schema([("b", pa.int64())]))


def test_version_that_is_not_there_is_named(location: Location) -> None:
    version_ref = new_table(location)
    with pytest.raises(VersionNotFoundError, match="no version 77"):
        append(replace(version_ref, version=77), rows([1]))


@given(st.lists(st.tuples(st.integers(-5, 5), st.none() | st.text(max_size=3)), max_size=5))
def test_appended_rows_are_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[tuple[int, str | None]]
) -> None:
    table = pa.table(
        {"id": pa.array([i for i, _ in given_rows], pa.int64()), "s": pa.array([s for _, s in given_rows], pa.string())}
    )
    version_ref = create_empty(Home.at(str(tmp_path_factory.mktemp("t") / "t.lance")), table.schema)
    assert append(version_ref, table).open().to_table().to_pylist() == table.to_pylist()
