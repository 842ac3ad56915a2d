"""What two versions may differ in is found without reading what they share."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anabranch.format import staging
from anabranch.format.compare.difference import ColumnPair, Difference, compare_versions, find_filled
from anabranch.format.compare.parts import count_parts, iter_parts
from anabranch.format.home import Home
from anabranch.format.staging import ColumnChange, VersionRef

ROWS = 1000


def rows(start: int, count: int = ROWS) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "v": ids * 10, "w": pa.array([f"text {number}" for number in ids])})


@pytest.fixture
def version_ref(tmp_path: Path) -> VersionRef:
    """Four fragments of a thousand rows each."""
    made = staging.create_empty(Home.at(str(tmp_path / "t.lance"), {}), rows(0).schema)
    for start in range(0, 4 * ROWS, ROWS):
        made = staging.append(made, rows(start))
    return made


def read(version_ref: VersionRef, difference: Difference, side: str) -> list[int]:
    parts = difference.older if side == "older" else difference.newer
    batches = list(iter_parts(version_ref, parts, with_row_ids=False))
    found = [number for batch in batches for number in batch.column("id").to_pylist()]
    assert len(found) == count_parts(parts)
    return sorted(found)


def remove_files(version_ref: VersionRef, *, fragments: set[int], field: int | None = None) -> None:
    """Take away the data files of fragments, or those of them that hold a field: what must not be read."""
    removed = 0
    for fragment in version_ref.open().get_fragments():
        for file in fragment.metadata.files:
            if fragment.fragment_id in fragments and (field is None or field in file.fields):
                (Path(version_ref.home.uri) / "data" / file.path).unlink()
                removed += 1
    assert removed


def test_versions_that_are_the_same_differ_in_nothing(version_ref: VersionRef) -> None:
    found = compare_versions(version_ref, version_ref)
    assert (found.older, found.newer, found.reshaped) == ((), (), ())
    assert found.columns == tuple(ColumnPair(older=name, newer=name) for name in ("id", "v", "w"))


def test_nothing_is_read_of_untouched_fragments(version_ref: VersionRef) -> None:
    after = staging.update(
        staging.delete(version_ref, "id = 5").version_ref, {"v": "v + 1"}, where="id in (6, 2500)"
    ).version_ref
    after = staging.append(after, rows(9000, 2))
    remove_files(version_ref, fragments={1, 3})
    found = compare_versions(version_ref, after)
    assert read(version_ref, found, "older") == [5, 6, 2500]
    assert read(after, found, "newer") == [6, 2500, 9000, 9001]
    turned = compare_versions(after, version_ref)
    assert read(version_ref, turned, "newer") == [5, 6, 2500]


def test_what_both_had_deleted_before_is_not_counted(version_ref: VersionRef) -> None:
    start = staging.delete(version_ref, "id % 3 = 0").version_ref
    one = staging.delete(start, "id in (1, 1001)").version_ref
    other = staging.delete(start, "id in (2, 4, 1001)").version_ref
    found = compare_versions(one, other)
    assert read(one, found, "older") == [2, 4]
    assert read(other, found, "newer") == [1]


def test_row_ids_are_those_of_the_rows(version_ref: VersionRef) -> None:
    start = staging.delete(version_ref, "id < 10").version_ref
    after = staging.delete(start, "id in (12, 1700, 3999)").version_ref
    found = compare_versions(start, after)
    batches = list(iter_parts(start, found.older, with_row_ids=True))
    table = pa.Table.from_batches(batches).sort_by("id")
    assert table.column("id").to_pylist() == [12, 1700, 3999]
    assert table.column("_rowid").to_pylist() == [12, 1700, 3999]


def test_many_rows_of_a_fragment_are_read_like_few(version_ref: VersionRef) -> None:
    start = staging.delete(version_ref, "id % 7 = 0").version_ref
    after = staging.delete(start, "id % 2 = 0").version_ref
    found = compare_versions(start, after)
    assert read(start, found, "older") == [number for number in range(4 * ROWS) if number % 2 == 0 and number % 7]
    assert read(after, found, "newer") == []


def test_of_a_column_that_came_nothing_else_is_read(version_ref: VersionRef) -> None:
    after = staging.add_columns(
        staging.delete(version_ref, "id = 3").version_ref, {"some": "nullif(v, id * 10)", "all": "id + 1"}
    )
    after = staging.drop_columns(after, ["all"])
    after = staging.update(after, {"some": "1"}, where="id = 8").version_ref
    remove_files(version_ref, fragments={0, 1, 2, 3}, field=0)
    found = compare_versions(version_ref, after)
    assert len(found.reshaped) == 4
    assert find_filled(version_ref, after, found) == ()
    assert (count_parts(found.older), count_parts(found.newer)) == (2, 1)


def test_rows_that_have_something_in_a_new_column_are_found(version_ref: VersionRef) -> None:
    start = staging.delete(version_ref, "id in (1, 2)").version_ref
    after = staging.add_columns(
        staging.delete(start, "id in (0, 5)").version_ref, {"big": "nullif(greatest(id, 3), 3)"}
    )
    for older, newer in ((start, after), (after, start)):
        found = compare_versions(older, newer)
        pairs = find_filled(older, newer, found)
        sides = (older, [one for one, _ in pairs]), (newer, [other for _, other in pairs])
        for version_ref_of_side, parts in sides:
            batches = list(iter_parts(version_ref_of_side, parts, with_row_ids=False))
            ids = [number for batch in batches for number in batch.column("id").to_pylist()]
            assert sorted(ids) == [4, *range(6, 4 * ROWS)]


def test_a_column_keeps_its_data_under_another_name(version_ref: VersionRef) -> None:
    after = staging.alter_columns(version_ref, [ColumnChange(path="v", name="V"), ColumnChange(path="w", name="v")])
    remove_files(version_ref, fragments={0, 1, 2, 3})
    found = compare_versions(version_ref, after)
    assert found.columns == tuple(
        ColumnPair(older=old, newer=new) for old, new in (("id", "id"), ("v", "V"), ("w", "v"))
    )
    assert (found.older, found.newer, found.reshaped) == ((), (), ())


def test_a_column_that_took_the_name_of_another_is_read(version_ref: VersionRef) -> None:
    after = staging.add_columns(staging.drop_columns(version_ref, ["v"]), {"v": "id"})
    found = compare_versions(version_ref, after)
    assert ColumnPair(older="v", newer="v") in found.columns
    assert count_parts(found.older) == count_parts(found.newer) == 4 * ROWS


def test_what_is_read_does_not_grow_with_what_is_not(tmp_path: Path) -> None:
    for number, size in enumerate((2_000, 200_000)):
        made = staging.create_empty(Home.at(str(tmp_path / f"{number}.lance"), {}), rows(0).schema)
        before = staging.append(made, rows(0, size))
        after = staging.update(before, {"v": "0"}, where=f"id % {size // 3} = 7").version_ref
        before.open().io_stats_incremental()
        found = compare_versions(before, after)
        assert (count_parts(found.older), count_parts(found.newer)) == (3, 3)
        assert len(read(before, found, "older")) == 3
        # Of each column, one block of 64 KiB for each row, at most.
        most = 3 * 64 * 1024 * len(made.schema)
        assert 0 < before.open().io_stats_incremental().read_bytes < most < 1_000_000
    assert sum(file.stat().st_size for file in tmp_path.glob("1.lance/data/*")) > 2_000_000
