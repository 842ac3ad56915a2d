"""Values of every kind of column, in the three forms."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from anabranch.cli.texts import text_value
from anabranch.files.formats import csv_lines, json_rows, plain_rows

NS = 1_000_000_000
NOON = 1_794_744_000  # 2026-11-15T12:00:00Z


@pytest.mark.parametrize(
    ("column", "in_json", "in_text"),
    [
        (pa.array([None], pa.int64()), None, "null"),
        (pa.array([True]), True, "true"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615", "18446744073709551615"),
        (pa.array([float("nan")]), "NaN", "NaN"),
        (pa.array([float("-inf")]), "-Infinity", "-Infinity"),
        (pa.array([1.5], pa.float16()), 1.5, "1.5"),
        (pa.array([2**63 - 1]), 2**63 - 1, "9223372036854775807"),
        (pa.array([-(2**63)]), -(2**63), "-9223372036854775808"),
        (pa.array([Decimal("1.50")]), "1.50", "1.50"),
        (pa.array([Decimal(0)], pa.decimal128(38, 10)), "0.0000000000", "0.0000000000"),
        (pa.array([Decimal("1E+3")], pa.decimal128(5, -3)), "1000", "1000"),
        (pa.array([Decimal(10) ** 60], pa.decimal256(76, 0)), "1" + "0" * 60, "1" + "0" * 60),
        (pa.array(["null"]), "null", "null"),
        (pa.array([b"abc"]), "YWJj", "0x616263"),
        (pa.array([b"a" * 20]), "YWFhYWFhYWFhYWFhYWFhYWFhYWE=", f"0x{'61' * 16}… (20 bytes)"),
        (pa.array([date(2026, 11, 15)]), "2026-11-15", "2026-11-15"),
        (pa.array([time(10, 40)]), "10:40:00", "10:40:00"),
        (pa.array([NOON], pa.timestamp("s")), "2026-11-15T12:00:00", "2026-11-15 12:00:00"),
        (pa.array([NOON], pa.timestamp("s", "UTC")), "2026-11-15T12:00:00Z", "2026-11-15 12:00:00Z"),
        (pa.array([NOON * NS], pa.timestamp("ns", "UTC")), "2026-11-15T12:00:00Z", "2026-11-15 12:00:00Z"),
        (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000001"),
        (pa.array([3 * 10**11], pa.timestamp("s")), "11476-08-15T05:20:00", "11476-08-15T05:20:00"),
        (pa.array([NOON], pa.timestamp("s", "Europe/Prague")), "2026-11-15T12:00:00Z", "2026-11-15 13:00:00+01:00"),
        (pa.array([timedelta(seconds=90)]), "PT90S", "0:01:30"),
        (pa.array([timedelta(microseconds=-1500)]), "PT-0.0015S", "-1 day, 23:59:59.998500"),
        (pa.array([timedelta(10**8, microseconds=1)]), "PT8640000000000.000001S", "100000000 days, 0:00:00.000001"),
        (pa.array([1], pa.duration("ns")), "PT0.000000001S", "PT0.000000001S"),
        (pa.array([b"ab"], pa.binary(2)), "YWI=", "0x6162"),
        (pa.array(["x"], pa.large_string()), "x", "x"),
        (pa.array(["x"], pa.string_view()), "x", "x"),
        (pa.array([1], pa.time64("ns")), "00:00:00.000000001", "00:00:00.000000001"),
        (pa.array([UUID(int=7).bytes], pa.uuid()), str(UUID(int=7)), str(UUID(int=7))),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), [1, 2, 3], "[1, 2, 3]"),
        (pa.array([[float("nan")]]), ["NaN"], "[NaN]"),
        (pa.array([{"d": Decimal("0.10"), "b": b"a"}]), {"d": "0.10", "b": "YQ=="}, "{d: 0.10, b: 0x61}"),
        (pa.array([2**64 - 1], pa.uint64()).dictionary_encode(), "18446744073709551615", "18446744073709551615"),
        (pa.array([[1, None]]), [1, None], "[1, null]"),
        (pa.array([[0.5] * 9], pa.list_(pa.float32(), 9)), [0.5] * 9, f"[{', '.join(['0.5'] * 8)}, … 9 values]"),
        (pa.array([{"a": 1, "b": "x"}]), {"a": 1, "b": "x"}, "{a: 1, b: x}"),
        (
            pa.array([[{"t": NOON * NS}]], pa.list_(pa.struct([("t", pa.timestamp("ns"))]))),
            [{"t": "2026-11-15T12:00:00"}],
            "[{t: 2026-11-15 12:00:00}]",
        ),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), [["k", 1]], "[[k, 1]]"),
        (pa.array(["a"]).dictionary_encode(), "a", "a"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_value_has_one_form_for_programs_and_one_for_people(column: pa.Array, in_json: object, in_text: str) -> None:
    ((value,),) = plain_rows(pa.table({"c": column}))
    (row,) = json_rows(pa.table({"c": column}))
    assert json.loads(json.dumps(row, allow_nan=False)) == {"c": in_json}
    assert text_value(value) == in_text


def test_csv_holds_lists_as_json_and_nulls_as_nothing() -> None:
    batch = pa.record_batch(
        {
            "l": pa.array([[1, None], None]),
            "b": pa.array([True, None]),
            "x": pa.array([b"abc", None]),
            "t": pa.array([datetime(2026, 11, 15, tzinfo=UTC), None]),
        }
    )
    assert "".join(csv_lines(batch.schema.names, [batch])) == (
        'l,b,x,t\n"[1, null]",true,YWJj,2026-11-15T00:00:00Z\n,,,\n'
    )


def test_csv_distinguishes_empty_text_from_null() -> None:
    values = pa.array(["", None, "plain", 'say "hi"', "a,b", "two\nlines", "mac\rline"])
    batch = pa.record_batch({"a": values, "b": pa.array(range(7))})
    lines = "".join(csv_lines(batch.schema.names, [batch]))
    assert lines == 'a,b\n"",0\n,1\nplain,2\n"say ""hi""",3\n"a,b",4\n"two\nlines",5\n"mac\rline",6\n'
    alone = "".join(csv_lines(["a"], [batch.select(["a"])]))
    assert alone.startswith('a\n""\n\nplain\n')


def test_duckdb_reads_the_csv_as_it_was(tmp_path: Path) -> None:
    values = ["", None, "plain", 'say "hi"', "a,b", "two\nlines", " spaces "]
    batch = pa.record_batch({"a": pa.array(values), "b": pa.array([*range(6), None])})
    (tmp_path / "rows.csv").write_text("".join(csv_lines(batch.schema.names, [batch])))
    found = duckdb.connect().sql(
        f"FROM read_csv('{tmp_path}/rows.csv', header = true, all_varchar = true, allow_quoted_nulls = false)"
    )
    assert found.fetchall() == [*zip(values[:6], "012345", strict=True), (" spaces ", None)]


def test_without_rows_there_is_a_header() -> None:
    assert "".join(csv_lines(["a", "b"], [])) == "a,b\n"
    assert plain_rows(pa.table({"a": pa.array([], pa.int64())})) == []
