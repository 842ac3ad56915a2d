"""Parts of a version: together all rows, each once."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.errors import BaseNotFoundError, InvalidExpressionError, SchemaMismatchError
from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.splits import Order, Selection, Split, plan_splits, read_split, selected_schema
from anabranch.format.staging import VersionRef


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64()), "v": [f"v{n}" for n in range(start, end)]})


@pytest.fixture
def version_ref(tmp_path: Path) -> VersionRef:
    """Rows 0 to 99 in one fragment, 100 to 129 in three of ten."""
    made = staging.create_empty(Home.at(tmp_path / "t.lance"), numbers(0, 1).schema)
    made = staging.append(made, numbers(0, 100))
    for start in (100, 110, 120):
        made = staging.append(made, numbers(start, start + 10))
    return made


def ids(version_ref: VersionRef, splits: list[Split], selection: Selection) -> list[list[int]]:
    return [
        [n for batch in read_split(version_ref, split, selection) for n in batch["id"].to_pylist()] for split in splits
    ]


def joined(parts: list[list[int]]) -> list[int]:
    return [number for part in parts for number in part]


def test_large_fragments_are_cut_and_small_ones_share_a_part(version_ref: VersionRef) -> None:
    splits = plan_splits(version_ref, Selection(), rows_per_split=25)
    assert ids(version_ref, splits, Selection()) == [
        [*range(25)],
        [*range(25, 50)],
        [*range(50, 75)],
        [*range(75, 100)],
        [*range(100, 120)],
        [*range(120, 130)],
    ]


def test_by_default_a_small_table_is_one_part(version_ref: VersionRef) -> None:
    assert len(plan_splits(version_ref, Selection())) == 1


def test_wide_rows_make_more_parts(version_ref: VersionRef) -> None:
    assert len(plan_splits(version_ref, Selection(), bytes_per_split=500)) > 4
    assert sorted(
        joined(ids(version_ref, plan_splits(version_ref, Selection(), bytes_per_split=500), Selection()))
    ) == [*range(130)]


def test_deleted_rows_leave_no_gap_and_no_double(version_ref: VersionRef) -> None:
    left = staging.delete(version_ref, "id % 3 = 0 OR (id > 40 AND id < 60)").version_ref
    found = ids(left, plan_splits(left, Selection(), rows_per_split=7), Selection())
    assert max(map(len, found)) <= 7
    assert joined(found) == [n for n in range(130) if n % 3 and not 40 < n < 60]


def test_a_filter_keeps_fragments_whole(version_ref: VersionRef) -> None:
    selection = Selection(columns=("id",), filter="id % 10 = 1 OR id > 120")
    splits = plan_splits(version_ref, selection, rows_per_split=25)
    assert all(split.rows is None for split in splits)
    assert joined(ids(version_ref, splits, selection)) == [n for n in range(130) if n % 10 == 1 or n > 120]


def test_no_fragments_have_no_rows(tmp_path: Path) -> None:
    empty = staging.create_empty(Home.at(tmp_path / "e.lance"), numbers(0, 1).schema)
    assert plan_splits(empty, Selection()) == []
    assert list(read_split(empty, Split(fragments=()), Selection())) == []


def test_columns_come_in_the_order_asked_for(version_ref: VersionRef) -> None:
    selection = Selection(columns=("v", "id"))
    assert selected_schema(version_ref, selection).names == ["v", "id"]
    assert next(read_split(version_ref, plan_splits(version_ref, selection)[0], selection)).schema.names == ["v", "id"]


def test_wrong_columns_filters_and_bases_are_refused(version_ref: VersionRef) -> None:
    with pytest.raises(SchemaMismatchError, match="no column 'x'"):
        selected_schema(version_ref, Selection(columns=("x",)))
    with pytest.raises(InvalidExpressionError, match="id >"):
        selected_schema(version_ref, Selection(filter="id >"))
    with pytest.raises(BaseNotFoundError, match="'cold'"):
        plan_splits(version_ref, Selection(bases=("cold",)))


def test_bases_choose_the_fragments_that_lie_there(tmp_path: Path, version_ref: VersionRef) -> None:
    from anabranch.format.bases import add_base, append_to_base

    home = Home.at(tmp_path / "b.lance")
    staging.create_empty(home, numbers(0, 1).schema)
    add_base(home, str(tmp_path / "cold"), name="cold")
    append_to_base(home, numbers(0, 5))
    based = VersionRef(home=home, version=append_to_base(home, numbers(5, 8), base="cold"))
    for bases, expected in ((("cold",), [5, 6, 7]), (("root",), [0, 1, 2, 3, 4]), (("root", "cold"), [*range(8)])):
        selection = Selection(bases=bases)
        assert joined(ids(based, plan_splits(based, selection), selection)) == expected


def test_a_limit_without_a_filter_plans_no_more_fragments_than_it_needs(version_ref: VersionRef) -> None:
    selection = Selection(limit=105)
    assert plan_splits(version_ref, selection, rows_per_split=1) == [Split(fragments=(0,)), Split(fragments=(1,))]
    assert len(plan_splits(version_ref, Selection(limit=105, filter="id >= 0"), rows_per_split=1)) == 4


def test_each_part_gives_the_first_rows_of_an_order(version_ref: VersionRef) -> None:
    order = (
        Order(column="v", is_ascending=False, nulls_first=True),
        Order(column="id", is_ascending=True, nulls_first=True),
    )
    selection = Selection(columns=("id", "v"), filter="id <> 99", limit=2, order=order)
    splits = plan_splits(version_ref, selection, rows_per_split=25)
    assert ids(version_ref, splits, selection) == [[98, 97], [119, 118], [129, 128]]


def wide(path: Path, values: list[str]) -> VersionRef:
    """Make a table of one fragment with these texts."""
    made = staging.create_empty(Home.at(path), numbers(0, 1).schema)
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": values})
    return staging.append(made, rows)


@pytest.mark.parametrize("selection", [Selection(), Selection(filter="id >= 0"), Selection(columns=("v",))])
def test_batches_of_large_values_are_bounded_by_bytes(tmp_path: Path, selection: Selection) -> None:
    # Equal values are stored once, so that the size of the file does not depend on them.
    version_ref = wide(tmp_path / "t.lance", ["x" * (1 << 20)] * 100)
    [split] = plan_splits(version_ref, selection)
    batches = list(read_split(version_ref, split, selection))
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.nbytes for batch in batches) < 40 << 20
    assert len(list(read_split(version_ref, split, Selection(columns=("id",))))) == 1


def test_rows_of_deleted_and_cut_fragments_are_sampled(tmp_path: Path) -> None:
    version_ref = wide(tmp_path / "t.lance", ["x" * 1000] * 100)
    left = staging.delete(version_ref, "id < 60 OR id > 98").version_ref
    assert joined(ids(left, plan_splits(left, Selection(), rows_per_split=7), Selection())) == [*range(60, 99)]
    none = staging.delete(version_ref, "id >= 0").version_ref
    assert ids(none, plan_splits(none, Selection()), Selection()) in ([], [[]])


@pytest.mark.proof
def test_values_of_more_than_two_gigabytes_are_read_where_the_sample_misses_them(tmp_path: Path) -> None:
    count, schema = 2400, numbers(0, 1).schema
    # The sample is every 300th row. Lance fails if a batch has more than 2 GB of text.
    lengths = [1 if number % 300 == 0 else 1 << 20 for number in range(count)]
    batches = (pa.record_batch([pa.array([n]), pa.array(["x" * size])], schema) for n, size in enumerate(lengths))
    made = staging.create_empty(Home.at(tmp_path / "t.lance"), schema)
    version_ref = staging.append(made, pa.RecordBatchReader.from_batches(schema, batches))
    for selection in (Selection(), Selection(filter="id >= 0"), Selection(limit=count)):
        [split] = plan_splits(version_ref, selection, bytes_per_split=1 << 40)
        read = [row for batch in read_split(version_ref, split, selection) for row in _lengths(batch)]
        assert read == list(enumerate(lengths))


def _lengths(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(batch["id"].to_pylist(), pc.binary_length(batch["v"]).to_pylist(), strict=True))
