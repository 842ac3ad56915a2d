"""Rows compared in memory give the same answers as rows compared by DuckDB."""

import datetime as dt
import math
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.duck.comparer import default_comparer
from anabranch.format.compare.difference import ColumnPair
from anabranch.format.compare.parts import all_parts, part_of
from anabranch.format.home import Home
from anabranch.format.layout.fragment_rows import offsets_in
from anabranch.format.staging import VersionRef
from anabranch.repo.history import memory_rows
from anabranch.repo.history.comparer import ColumnTriple, RowComparison, RowMerge, RowSide
from anabranch.repo.history.memory_comparer import LocalComparer, can_compare_in_memory

# What it cannot compare in memory is an error here.
MEMORY = LocalComparer(load_engine=lambda: pytest.fail("not in memory"))
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
# Few values of each type, so that most keys are on several sides.
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, 2, 3, 4, None]),
    (pa.int64(), [0, -1, 1 << 62, (1 << 63) - 1, -(1 << 63)]),
    (pa.uint64(), [0, 1, 1 << 63, (1 << 64) - 1]),
    (pa.int8(), [0, -1, 127]),
    (pa.float64(), [0.0, -0.0, math.nan, OTHER_NAN, 1.5, None]),
    (pa.float32(), [0.0, -0.0, 1.5]),
    (pa.string(), ["", "a", "A", "é\0x", None]),
    (pa.binary(), [b"", b"\0", b"\0\1", None]),
    (pa.binary(2), [b"ab", b"ac", None]),
    (pa.decimal128(12, 2), [Decimal("1.25"), Decimal("1.20"), None]),
    (pa.date32(), [dt.date(2024, 2, 29), dt.date(2024, 3, 1), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), None]),
    (pa.bool_(), [True, False, None]),
]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    *KEYS,
    (pa.list_(pa.int32()), [[], [1], [1, None], None]),
    (pa.list_(pa.float32(), 2), [[1.0, math.nan], [1.0, 2.0], None]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": None, "b": None}, None]),
]


@dataclass(frozen=True)
class Layout:
    """The columns of all sides: some of them are the key."""

    schema: pa.Schema
    domains: tuple[list[Any], ...]
    keys: tuple[str, ...]


@st.composite
def layouts(draw: st.DrawFn, *, most_keys: int = 2) -> Layout:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=0, max_size=most_keys))
    values = draw(st.lists(st.sampled_from(VALUES if keys else KEYS), min_size=1, max_size=3))
    names = [*(f"k{n}" for n in range(len(keys))), *(f"v{n}" for n in range(len(values)))]
    kinds = [kind for kind, _ in (*keys, *values)]
    domains = tuple(domain for _, domain in (*keys, *values))
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    return Layout(schema, domains, tuple(names[: len(keys)]))


def rows_of(layout: Layout) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*map(st.sampled_from, layout.domains)), max_size=8)


class Folder:
    """Writes rows as datasets, some of whose rows are deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def write(self, layout: Layout, rows: list[tuple[Any, ...]], deleted: set[int]) -> VersionRef:
        numbers = pa.array(range(len(rows)), pa.int64())
        columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(layout.schema.types)]
        table = pa.table([*columns, numbers], names=[*layout.schema.names, "number"])
        self._count += 1
        path = str(self._path / f"{self._count}.lance")
        made = lance.write_dataset(table, path, enable_stable_row_ids=True, max_rows_per_file=3)
        if deleted:
            made.delete(f"number IN ({', '.join(map(str, deleted))})")
        return VersionRef(home=Home.at(path), version=made.version)


@contextmanager
def folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory() as path:
        yield Folder(Path(path))


def whole(version_ref: VersionRef) -> RowSide:
    return RowSide(version_ref=version_ref, parts=all_parts(version_ref), with_row_ids=True, with_addresses=True)


def some(version_ref: VersionRef, chosen: set[int]) -> RowSide:
    """Some of the rows, by their offsets."""
    dataset = version_ref.open()
    parts = []
    for fragment in dataset.get_fragments():
        deleted = offsets_in(version_ref.home, dataset, fragment)
        wanted = np.array(sorted(n for n in chosen if n < fragment.physical_rows), dtype=np.uint32)
        parts += part_of(fragment.metadata, np.setdiff1d(wanted, deleted).astype(np.uint32), deleted=deleted)
    return RowSide(version_ref=version_ref, parts=tuple(parts), with_row_ids=True, with_addresses=True)


offsets = st.sets(st.integers(0, 2))
numbers = st.sets(st.integers(0, 7), max_size=3)
FEW = settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[16, 0], ids=["all columns at once", "columns when needed"], autouse=True)
def columns_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(memory_rows, "_MOST_COLUMNS_AT_ONCE", request.param)
    monkeypatch.setattr(memory_rows, "is_local", lambda _root: False)
    return int(request.param)


@FEW
@given(data=st.data())
def test_comparisons_are_those_of_duckdb(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    with folder() as made:
        older, newer = (made.write(layout, data.draw(rows_of(layout)), data.draw(numbers)) for _ in range(2))
        pairs = {name: ColumnPair(older=name, newer=name) for name in layout.schema.names}
        asked = RowComparison(
            older=some(older, data.draw(offsets)),
            newer=whole(newer),
            columns=list(pairs.values()),
            keys=[pairs[name] for name in layout.keys],
            has_row_ids=not layout.keys and data.draw(st.booleans()),
        )
        assert can_compare_in_memory(asked)
        found, expected = (comparer.compare(asked).read_all() for comparer in (MEMORY, default_comparer()))
        assert found.schema == expected.schema
        assert MEMORY.count(asked) == default_comparer().count(asked)
        if layout.keys:
            assert texts(found) == texts(expected)
        else:  # of several equal rows, any may be the one that is left
            assert texts(found.select(["change"])) == texts(expected.select(["change"]))


@FEW
@given(data=st.data())
def test_merges_are_those_of_duckdb(data: st.DataObject, columns_at_once: int) -> None:
    layout = data.draw(layouts())
    with folder() as made:
        base, source, target = (made.write(layout, data.draw(rows_of(layout)), data.draw(numbers)) for _ in range(3))
        is_same = data.draw(st.booleans())
        triples = {
            name: data.draw(triple(name, is_same=is_same or name in layout.keys)) for name in layout.schema.names
        }
        asked = RowMerge(
            base_of_source=some(base, data.draw(offsets)),
            source=whole(source),
            base_of_target=some(base, data.draw(offsets)),
            target=whole(target),
            columns=list(triples.values()),
            keys=[triples[name] for name in layout.keys],
        )
        assert can_compare_in_memory(asked)
        found, expected = (comparer.merge(asked).read_all() for comparer in (MEMORY, default_comparer()))
    assert found.schema == expected.schema
    assert texts(common(found)) == texts(common(expected))
    given_columns = [row["source_columns"] for row in expected.to_pylist() if row["target_change"] is None]
    if columns_at_once:
        assert texts(found.select(["source_change", "source_columns"])) == texts(
            expected.select(["source_change", "source_columns"])
        )
    elif not any(given_columns):
        assert not any(row["source_columns"] for row in found.to_pylist() if row["target_change"] is None)
    if is_unique(expected, "base_address") and not layout.keys:
        assert list(map(repr, common(found))) == list(map(repr, common(expected)))


@st.composite
def triple(draw: st.DrawFn, name: str, *, is_same: bool) -> ColumnTriple:
    if is_same:
        return ColumnTriple(base=name, source=name, target=name)
    base, source, target = (draw(st.sampled_from([name, name, name, None])) for _ in range(3))
    is_filled = base is None and target is None and source is not None and draw(st.booleans())
    return ColumnTriple(base=base, source=source, target=target, is_filled=is_filled)


def common(found: pa.Table) -> list[dict[str, Any]]:
    """What every engine returns: the row of the base where both sides changed it, unless both updated other columns."""
    rows = found.drop(["source_columns"]).to_pylist()
    return [{**row, "base": row["base"] if needs_base(row) else None} for row in rows]


def needs_base(row: dict[str, Any]) -> bool:
    changes = row["source_change"], row["target_change"]
    return bool(row["conflicts"]) if changes == ("updated", "updated") else row["target_change"] is not None


def texts(rows: pa.Table | list[dict[str, Any]]) -> list[str]:
    # DuckDB returns 0.0 for -0.0 in columns that it sorts by.
    return sorted(
        repr(row).replace("-0.0", "0.0") for row in (rows.to_pylist() if isinstance(rows, pa.Table) else rows)
    )


def is_unique(found: pa.Table, name: str) -> bool:
    values = found.column(name).drop_null().to_pylist()
    return len(set(values)) == len(values) == len(found)


def test_rows_of_a_wide_table_that_were_written_again_are_unchanged_beside_rows_that_both_sides_touched(
    tmp_path: Path,
) -> None:
    base = pa.table({"id": list(range(6)), "a": [0] * 6, "b": [0] * 6})
    source = pa.table({"id": list(range(6)), "a": [1, 1, 0, 0, 0, 1], "b": [0] * 6})
    target = pa.table({"id": [0, 2], "a": [0, 0], "b": [5, 5]})
    refs = []
    for number, rows in enumerate((base, source, target)):
        path = str(tmp_path / f"{number}.lance")
        lance.write_dataset(rows, path, enable_stable_row_ids=True)
        refs.append(VersionRef(home=Home.at(path), version=1))
    triples = [ColumnTriple(base=name, source=name, target=name) for name in base.column_names]
    asked = RowMerge(
        base_of_source=some(refs[0], set(range(6))),
        source=whole(refs[1]),
        base_of_target=some(refs[0], {0, 2}),
        target=whole(refs[2]),
        columns=triples,
        keys=triples[:1],
    )
    found, expected = (comparer.merge(asked).read_all() for comparer in (MEMORY, default_comparer()))
    assert common(found) == common(expected)
    assert [row["source"]["id"] for row in found.to_pylist()] == [0, 1, 5]


@pytest.mark.parametrize("changed", [1, 3])
def test_of_a_wide_table_only_changed_columns_count(tmp_path: Path, changed: int) -> None:
    names = [f"c{n}" for n in range(40)]
    before = pa.table({"id": list(range(9)), **{name: [0] * 9 for name in names}})
    after = {name: before.column(name).to_pylist() for name in before.column_names}
    for row in range(1, 9):
        after[names[row % changed]][row] = 1
    refs = []
    for number, rows in enumerate((before, pa.table(after))):
        path = str(tmp_path / f"{number}.lance")
        lance.write_dataset(rows, path, enable_stable_row_ids=True)
        refs.append(VersionRef(home=Home.at(path), version=1))
    pairs = [ColumnPair(older=name, newer=name) for name in before.column_names]
    asked = RowComparison(
        older=some(refs[0], set(range(9))), newer=whole(refs[1]), columns=pairs, keys=pairs[:1], has_row_ids=False
    )
    assert MEMORY.count(asked) == default_comparer().count(asked)
    assert MEMORY.count(asked).updated == 8
