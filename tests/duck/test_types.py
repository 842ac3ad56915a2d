"""Columns of every type that Lance stores."""

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import SchemaMismatchError
from tests.duck.conftest import rows

NOON = dt.datetime(2024, 2, 29, 12)

CASES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int8(), -7, -7),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float16(), np.float16(1.5), 1.5),
    (pa.float32(), 1.5, 1.5),
    (pa.string(), "é'", "é'"),
    (pa.large_string(), "x", "x"),
    (pa.binary(), b"\0'", b"\0'"),
    (pa.binary(3), b"abc", b"abc"),
    (pa.date32(), NOON.date(), NOON.date()),
    (pa.date64(), NOON.date(), NOON.date()),
    (pa.time32("s"), NOON.time(), NOON.time()),
    (pa.time64("us"), NOON.time(), NOON.time()),
    (pa.timestamp("s"), NOON, NOON),
    (pa.timestamp("us"), NOON, NOON),
    (pa.timestamp("ns"), NOON, NOON),
    (pa.timestamp("ms", "Europe/Prague"), NOON, NOON.replace(tzinfo=dt.UTC)),
    (pa.timestamp("us", "UTC"), NOON, NOON.replace(tzinfo=dt.UTC)),
    (pa.decimal128(38, 2), Decimal("1.25"), Decimal("1.25")),
    (pa.decimal256(20, 2), Decimal("1.25"), Decimal("1.25")),
    (pa.dictionary(pa.int32(), pa.string()), "word", "word"),
    (pa.list_(pa.int32()), [1, None], [1, None]),
    (pa.list_(pa.float32(), 2), [1.0, 2.0], [1.0, 2.0]),
    (pa.list_(pa.float16(), 2), [np.float16(1), np.float16(2)], [1.0, 2.0]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    (pa.uuid(), uuid.UUID(int=7).bytes, str(uuid.UUID(int=7))),
    (pa.json_(), '{"a":1}', '{"a":1}'),
]


def _table(kind: pa.DataType, value: Any) -> pa.Table:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    array = pa.array([value, None], storage)
    column = pa.ExtensionArray.from_storage(kind, array) if isinstance(kind, pa.BaseExtensionType) else array
    return pa.table({"id": [1, 2], "x": column})


def _lake(path: Path, data: pa.Table) -> ab.Repository:
    repo = ab.init(path / "lake")
    with repo.transaction() as tx:
        tx.create_table("s.t", data.schema)
        tx.append("s.t", data)
    return repo


@pytest.mark.parametrize("zone", ["UTC", "Europe/Prague"])
def test_nanoseconds_of_times_with_a_zone_are_cut_off(tmp_path: Path, zone: str) -> None:
    moments = [1_700_000_000_123_456_789, 1_700_000_000_000_000_000]
    kind = pa.timestamp("ns", zone)
    repo = _lake(tmp_path, pa.table({"id": [1, 2], "x": pa.array(moments, kind)}))
    shown = dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=dt.UTC)
    assert rows(repo, "SELECT x FROM s.t WHERE id = 1") == [(shown,)]
    assert rows(repo, "SELECT id FROM s.t WHERE x > TIMESTAMPTZ '2023-11-14 22:13:20+00'") == [(1,)]
    assert rows(repo, "SELECT id FROM s.t WHERE x = TIMESTAMPTZ '2023-11-14 22:13:20.123456+00'") == [(1,)]


def test_integers_above_int64(tmp_path: Path) -> None:
    repo = _lake(tmp_path, pa.table({"id": [1, 2], "x": pa.array([2**64 - 1, 5], pa.uint64())}))
    assert rows(repo, "SELECT x FROM s.t ORDER BY id") == [(2**64 - 1,), (5,)]
    assert rows(repo, f"SELECT id FROM s.t WHERE x > {2**63}") == [(1,)]
    assert rows(repo, "SELECT sum(x) FROM s.t") == [(2**64 + 4,)]


@pytest.mark.parametrize(("kind", "value", "read"), CASES, ids=[str(case[0]) for case in CASES])
def test_a_column_is_read_and_filtered(tmp_path: Path, kind: pa.DataType, value: Any, read: Any) -> None:
    repo = _lake(tmp_path, _table(kind, value))
    assert rows(repo, "SELECT x FROM s.t ORDER BY id") == [(read,), (None,)]
    assert rows(repo, "SELECT id FROM s.t WHERE x IS NULL") == [(2,)]
    assert rows(repo, "SELECT id FROM s.t WHERE x = (SELECT x FROM s.t WHERE id = 1)") == [(1,)]
    if not pa.types.is_nested(kind):
        literal = rows(repo, "SELECT x::VARCHAR, typeof(x) FROM s.t WHERE id = 1")[0]
        text = str(literal[0]).replace("'", "''")
        assert rows(repo, f"SELECT id FROM s.t WHERE x >= '{text}'::{literal[1]}") == [(1,)]


def test_vectors_are_compared(tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float32(), 2))
    repo = _lake(tmp_path, pa.table({"id": [1, 2], "v": vectors}))
    sql = "SELECT id FROM s.t ORDER BY array_distance(v, [0.1, 0.9]::FLOAT[2]) LIMIT 1"
    assert rows(repo, sql) == [(2,)]
    assert repo.sql("SELECT v FROM s.t").schema.field("v").type.list_size == 2


def test_a_type_that_sql_does_not_know_is_named(tmp_path: Path) -> None:
    repo = _lake(tmp_path, _table(pa.decimal256(50, 2), Decimal(1)))
    with pytest.raises(SchemaMismatchError, match=r"'x' of table 's\.t' is of type decimal\(50, 2\)"):
        repo.sql("SELECT id FROM s.t")


def test_columns_with_odd_names_are_read_and_filtered(tmp_path: Path) -> None:
    data = pa.table({"a b": [1, 2], "select": [3, 4], "Upper": [5, 6], 'd"q': [9, 10], "é": [1, 2]})
    repo = _lake(tmp_path, data)
    for name in data.column_names:
        quoted = '"' + name.replace('"', '""') + '"'
        last = data[name][1].as_py()
        assert rows(repo, f"SELECT {quoted} FROM s.t WHERE {quoted} > {last - 1}") == [(last,)]
    assert rows(repo, "SELECT upper FROM s.t WHERE UPPER = 6") == [(6,)]
