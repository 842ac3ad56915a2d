"""Values of every type are compared exactly, and reported as they are in the table."""

import datetime as dt
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.history.diff import RowChange

NOON = dt.datetime(2024, 2, 29, 12)

# A value, and one that differs from it as little as the type allows.
CASES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, False),
    (pa.int8(), -7, -8),
    (pa.uint64(), 2**64 - 1, 2**64 - 2),
    (pa.float16(), np.float16(1.5), np.float16(1.501)),
    (pa.float32(), 1.5, np.nextafter(np.float32(1.5), np.float32(2))),
    (pa.float64(), 0.1, np.nextafter(0.1, 1)),
    (pa.string(), "é\0x", "é\0y"),
    (pa.large_string(), "x", "X"),
    (pa.binary(), b"\0\1", b"\0"),
    (pa.large_binary(), b"q", b""),
    (pa.binary(3), b"abc", b"abd"),
    (pa.date32(), NOON.date(), dt.date(2024, 3, 1)),
    (pa.date64(), NOON.date(), dt.date(2024, 3, 1)),
    (pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 5000)),
    (pa.time64("ns"), pa.scalar(1, pa.time64("ns")), pa.scalar(2, pa.time64("ns"))),
    (pa.timestamp("s"), NOON, NOON + dt.timedelta(seconds=1)),
    (pa.timestamp("ns"), pa.scalar(1, pa.timestamp("ns")), pa.scalar(2, pa.timestamp("ns"))),
    (pa.timestamp("ns", "Europe/Prague"), *(pa.scalar(n, pa.timestamp("ns", "Europe/Prague")) for n in (1, 2))),
    (pa.timestamp("s", "UTC"), NOON, NOON + dt.timedelta(seconds=1)),
    (pa.duration("ns"), pa.scalar(1, pa.duration("ns")), pa.scalar(2, pa.duration("ns"))),
    (pa.decimal128(38, 2), Decimal("1.25"), Decimal("1.24")),
    (pa.decimal256(20, 2), Decimal("1.25"), Decimal("1.24")),
    (pa.decimal256(70, 2), Decimal(10**60), Decimal(10**60 + 1)),
    (pa.dictionary(pa.int32(), pa.string()), "word", "other"),
    (pa.list_(pa.int32()), [1, None], [1]),
    (pa.large_list(pa.string()), ["a", "b"], ["ab"]),
    (pa.list_(pa.float32(), 2), [1.0, 2.0], [1.0, 3.0]),
    (pa.list_(pa.float16(), 2), [np.float16(1), np.float16(2)], [np.float16(1), np.float16(3)]),
    (pa.struct([("a", pa.int8()), ("A", pa.string())]), {"a": 1, "A": "x"}, {"a": 1, "A": None}),
    (
        pa.list_(pa.struct([("a", pa.int8()), ("A", pa.uuid().storage_type)])),
        [{"a": 1, "A": None}],
        [{"a": None, "A": None}],
    ),
    (pa.struct([pa.field("a", pa.float16(), nullable=False)]), {"a": np.float16(1)}, {"a": np.float16(2)}),
    (pa.struct([("d", pa.duration("s")), ("l", pa.list_(pa.date64()))]), {"d": 1, "l": []}, {"d": 1, "l": None}),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("a", 2)], [("a", 1), ("a", 3)]),
    (pa.list_(pa.map_(pa.string(), pa.decimal256(70, 0))), [[("a", Decimal(1))]], [[("a", Decimal(2))]]),
    (pa.uuid(), uuid.UUID(int=7).bytes, uuid.UUID(int=8).bytes),
    (pa.json_(), '{"a":1}', '{"a":2}'),
]


def column(kind: pa.DataType, *values: Any) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, column(kind.storage_type, *values))
    plain = [
        value.as_py() if isinstance(value, pa.Scalar) and not pa.types.is_temporal(kind) else value for value in values
    ]
    return pa.array(plain, kind)


def table(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"id": list(range(len(values))), "x": column(kind, *values)})


def lake(path: Path, data: pa.Table, *, primary_key: tuple[str, ...]) -> ab.Repository:
    repo = ab.init(path / "lake")
    with repo.transaction() as tx:
        tx.create_table("s.t", data.schema, primary_key=primary_key)
        tx.append("s.t", data)
    return repo


def overwrite(repo: ab.Repository, data: pa.Table) -> None:
    with repo.transaction() as tx:
        tx.overwrite("s.t", data)


def changes(repo: ab.Repository) -> list[RowChange]:
    return sorted(repo.diff("main~1").iter_rows(), key=repr)


@pytest.mark.parametrize("primary_key", [("id",), ()], ids=["keyed", "keyless"])
@pytest.mark.parametrize(("kind", "value", "other"), CASES, ids=[str(case[0]) for case in CASES])
def test_the_least_difference_is_seen(
    tmp_path: Path, kind: pa.DataType, value: Any, other: Any, primary_key: tuple[str, ...]
) -> None:
    data = table(kind, value, value, None, None, value)
    repo = lake(tmp_path, data, primary_key=primary_key)
    changed = table(kind, value, other, None, value, None)
    overwrite(repo, changed)
    [diff] = repo.diff("main~1").tables
    found = diff.to_arrow()
    for side, whole in (("before", data), ("after", changed)):
        struct = found.column(side).combine_chunks()
        rows = pa.Table.from_struct_array(struct.filter(struct.is_valid())).sort_by("id")
        expected = whole.slice(1, 1).to_pylist() + whole.slice(3).to_pylist()
        assert rows.to_pylist() == expected
        assert rows.schema.field("x").type == kind
    assert diff.counts.total == len(found)
    if primary_key:
        assert diff.counts == TableCounts(inserted=0, updated=3, deleted=0)
        assert found.column("columns").to_pylist() == [["x"]] * 3


@pytest.mark.parametrize("primary_key", [("id",), ()], ids=["keyed", "keyless"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), math.nan),
        (pa.float16(), np.float16(math.nan)),
        (pa.list_(pa.float32(), 2), [math.nan, 1.0]),
        (pa.struct([("a", pa.float32())]), {"a": math.nan}),
        (pa.struct([("a", pa.float32())]), {"a": None}),
        (pa.null(), None),
    ],
    ids=str,
)
def test_what_is_not_a_number_or_nothing_equals_itself(
    tmp_path: Path, kind: pa.DataType, value: Any, primary_key: tuple[str, ...]
) -> None:
    data = table(kind, value, value, None)
    repo = lake(tmp_path, data, primary_key=primary_key)
    overwrite(repo, data)
    assert repo.diff("main~1").is_empty
    with repo.transaction() as tx:
        tx.delete("s.t", "id = 1")
    assert [(row.change.value, row.after) for row in changes(repo)] == [("deleted", None)]


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        (table(pa.int32(), 1, 2), table(pa.int64(), 1, 3), {1}),
        (table(pa.int64(), 1, 2), table(pa.float64(), 1.0, 2.5), {1}),
        (table(pa.decimal128(38, 37), 1, 2), table(pa.int64(), 1, 300), {1}),
        (table(pa.decimal128(10, 2), Decimal("100.50"), 100), table(pa.decimal128(10, 4), Decimal("100.5"), 1), {1}),
        (table(pa.string(), "1", "x"), table(pa.int64(), 1, 2), {1}),
        (table(pa.timestamp("s"), NOON, NOON), table(pa.timestamp("ns", "UTC"), NOON, None), {1}),
        (table(pa.string(), "a", "b"), table(pa.dictionary(pa.int8(), pa.string()), "a", "c"), {1}),
        (table(pa.list_(pa.int8()), [1], [2]), table(pa.string(), "[1]", "no"), {1}),
    ],
    ids=lambda value: str(value.column("x").type) if isinstance(value, pa.Table) else "",
)
@pytest.mark.parametrize("primary_key", [("id",), ()], ids=["keyed", "keyless"])
def test_of_a_column_of_another_type_only_other_values_differ(
    tmp_path: Path, old: pa.Table, new: pa.Table, differing: set[int], primary_key: tuple[str, ...]
) -> None:
    repo = lake(tmp_path, old, primary_key=primary_key)
    overwrite(repo, new)
    [diff] = repo.diff("main~1").tables
    assert [change.change for change in diff.columns] == ["type"]
    assert {(row.after or row.before or {})["id"] for row in changes(repo)} == differing


def test_keys_of_any_type_match(tmp_path: Path) -> None:
    for number, (kind, values) in enumerate(
        [
            (pa.binary(3), (b"abc", b"abd")),
            (pa.decimal256(70, 0), (Decimal(10**60), Decimal(10**60 + 1))),
            (pa.timestamp("ns", "UTC"), tuple(pa.scalar(n, pa.timestamp("ns", "UTC")) for n in (1, 2))),
        ]
    ):
        data = pa.table({"k": pa.array(values, kind), "v": [1, 2]})
        folder = tmp_path / str(number)
        folder.mkdir()
        repo = lake(folder, data, primary_key=("k",))
        overwrite(repo, data.set_column(1, "v", pa.array([1, 3])))
        assert repo.diff("main~1").summary() == {"s.t": TableCounts(inserted=0, updated=1, deleted=0)}


def test_many_readers_at_once_do_not_meet(tmp_path: Path) -> None:
    repo = lake(tmp_path, table(pa.int64(), *range(20_000)), primary_key=())
    overwrite(repo, table(pa.int64(), *range(1, 20_001)))
    [diff] = repo.diff("main~1").tables
    one, other = diff.iter_batches(), diff.iter_batches()
    first = one.read_next_batch()
    assert other.read_all().num_rows == 40_000
    assert first.num_rows + one.read_all().num_rows == 40_000
