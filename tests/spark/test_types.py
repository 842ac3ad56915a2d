"""Every Arrow type that Lance can hold, to Spark and back."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import SchemaMismatchError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import Read, Write, slow

pytestmark = pytest.mark.spark

DAY, MOMENT, SPAN = (
    dt.date(1969, 12, 30),
    dt.datetime(1961, 4, 12, 6, 7, 8, 123456),
    dt.timedelta(days=-3, microseconds=5),
)
SECOND = dt.datetime(2021, 3, 28, 2, 30, 0)
LONG = Decimal("-123456789012345678901234567.123456789")
ZONED = SECOND.replace(tzinfo=dt.UTC)

# Column, its type, a value, and the type of the same column in a table that Spark makes of it.
TYPES: dict[str, tuple[pa.DataType, list[Any], pa.DataType]] = {
    "bool": (pa.bool_(), [True, False], pa.bool_()),
    "int8": (pa.int8(), [-128, 127], pa.int8()),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1], pa.int16()),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1], pa.int32()),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1], pa.int64()),
    "uint8": (pa.uint8(), [0, 255], pa.int16()),
    "uint16": (pa.uint16(), [0, 2**16 - 1], pa.int32()),
    "uint32": (pa.uint32(), [0, 2**32 - 1], pa.int64()),
    "uint64": (pa.uint64(), [0, 2**64 - 1], pa.decimal128(20, 0)),
    "float16": (pa.float16(), [1.5, -0.25], pa.float32()),
    "float32": (pa.float32(), [1.5, float("inf")], pa.float32()),
    "float64": (pa.float64(), [0.1, float("-inf")], pa.float64()),
    "decimal128": (pa.decimal128(38, 9), [Decimal("1.5"), LONG], pa.decimal128(38, 9)),
    "decimal256": (pa.decimal256(38, 2), [Decimal("1.25"), Decimal("-7.10")], pa.decimal128(38, 2)),
    "string": (pa.string(), ["", "Ærø\0\N{GRINNING FACE}"], pa.string()),
    "large_string": (pa.large_string(), ["", "x"], pa.string()),
    "binary": (pa.binary(), [b"", b"\0\xff"], pa.binary()),
    "large_binary": (pa.large_binary(), [b"", b"x"], pa.binary()),
    "fixed_binary": (pa.binary(4), [b"abcd", b"\0\0\0\0"], pa.binary()),
    "date32": (pa.date32(), [DAY, dt.date(9999, 12, 31)], pa.date32()),
    "date64": (pa.date64(), [DAY, dt.date(9999, 12, 31)], pa.date32()),
    "time32": (pa.time32("ms"), [dt.time(1, 2, 3, 4000), dt.time(0)], pa.time64("ns")),
    "time64": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999999)], pa.time64("ns")),
    "timestamp": (pa.timestamp("us"), [MOMENT, SECOND], pa.timestamp("us")),
    "timestamp_s": (pa.timestamp("s"), [SECOND, SECOND], pa.timestamp("us")),
    "timestamp_ns": (pa.timestamp("ns"), [MOMENT, SECOND], pa.timestamp("us")),
    "timestamp_utc": (pa.timestamp("us", "UTC"), [ZONED, ZONED], pa.timestamp("us", "UTC")),
    "timestamp_zone": (pa.timestamp("ms", "Europe/Berlin"), [ZONED, ZONED], pa.timestamp("us", "UTC")),
    "duration": (pa.duration("us"), [SPAN, -SPAN], pa.duration("us")),
    "duration_s": (pa.duration("s"), [dt.timedelta(seconds=5), dt.timedelta(0)], pa.duration("us")),
    "list": (pa.list_(pa.uint8()), [[1, None], []], pa.list_(pa.int16())),
    "large_list": (pa.large_list(pa.string()), [["a", None], []], pa.list_(pa.string())),
    "vector": (pa.list_(pa.float32(), 3), [[1.0, 2.0, 3.0], [0.0, 0.0, 0.5]], pa.list_(pa.float32(), 3)),
    "struct": (
        pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.date64()))]),
        [{"a": 2**64 - 1, "b": [DAY, None]}, {"a": None, "b": None}],
        pa.struct([("a", pa.decimal128(20, 0)), ("b", pa.list_(pa.date32()))]),
    ),
    "map": (pa.map_(pa.string(), pa.uint16()), [[("a", 1), ("b", None)], []], pa.map_(pa.string(), pa.int32())),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["x", "y"], pa.string()),
}  # fmt: skip


def table_of_all() -> pa.Table:
    columns = {name: pa.array([values[0], None, values[1]], kind) for name, (kind, values, _) in TYPES.items()}
    return pa.table({"id": pa.array([1, 2, 3], pa.int64()), **columns})


@pytest.fixture
def typed(lake: ab.Repository) -> ab.Repository:
    with lake.transaction() as tx:
        tx.create_table("s.typed", table_of_all().schema, primary_key=["id"])
        tx.append("s.typed", table_of_all())
    return lake


def test_there_are_at_least_29() -> None:
    assert len(TYPES) >= 29


def stored(repo: ab.Repository, key: str = "s.typed") -> pa.Table:
    return repo.snapshot_of("main")[key].to_arrow().sort_by("id")


@pytest.mark.parametrize("mode", ["append", slow("overwrite"), "upsert"])
def test_all_types_go_to_spark_and_back_unchanged(typed: ab.Repository, read: Read, write: Write, mode: str) -> None:
    before = stored(typed)
    frame = read(typed, "s.typed")
    if mode == "append":
        write(frame.selectExpr("id + 10 AS id", "* EXCEPT (id)"), typed, "s.typed")
        after = stored(typed).slice(3)
    else:
        given = {"mode": "append", "upsert": "true"} if mode == "upsert" else {"mode": mode}
        write(frame, typed, "s.typed", **given)
        after = stored(typed)
    assert after.schema == before.schema
    for name in TYPES:
        assert after.column(name).to_pylist() == before.column(name).to_pylist(), name


def test_a_table_that_spark_makes_has_the_documented_types(typed: ab.Repository, read: Read, write: Write) -> None:
    write(read(typed, "s.typed"), typed, "s.copy")
    before, after = stored(typed), stored(typed, "s.copy")
    assert {name: after.schema.field(name).type for name in TYPES} == {
        name: kind for name, (_, _, kind) in TYPES.items()
    }
    widened = before.cast(pa.schema([("id", pa.int64()), *((n, TYPES[n][2]) for n in TYPES)]))
    for name in TYPES:
        assert after.column(name).to_pylist() == widened.column(name).to_pylist(), name


def test_finer_than_a_microsecond_is_cut_off(lake: ab.Repository, read: Read) -> None:
    rows = pa.table({"at": pa.array([1_999, 86_399_999_999_999], pa.timestamp("ns"))})
    with lake.transaction() as tx:
        tx.create_table("s.fine", rows.schema)
        tx.append("s.fine", rows)
    found = [row[0] for row in read(lake, "s.fine").selectExpr("unix_micros(cast(at AS timestamp))").collect()]
    assert sorted(found) == [1, 86_399_999_999]


def test_columns_that_take_no_nulls_stay_so(spark: SparkSession, lake: ab.Repository, read: Read, write: Write) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    with lake.transaction() as tx:
        tx.create_table("s.strict", schema)
    write(spark.sql("SELECT 1L AS id, 'x' AS v"), lake, "s.strict")
    write(read(lake, "s.strict"), lake, "s.strict", mode="overwrite")
    assert lake.snapshot_of("main")["s.strict"].schema == schema
    with pytest.raises(SchemaMismatchError, match="column 'id' takes no nulls"), spark_errors():
        write(spark.sql("SELECT cast(NULL AS long) AS id, 'x' AS v"), lake, "s.strict")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("'x' AS int32", "column 'int32' was expected to be int32 and was found to be string"),
        slow("1L AS string", "column 'string' was expected to be string and was found to be int64"),
        slow("1.5D AS float32", "column 'float32' was expected to be float32 and was found to be float64"),
        slow("true AS int8", "column 'int8' was expected to be int8 and was found to be bool"),
        slow("'2020-01-01' AS date32", "column 'date32' was expected to be date32 and was found to be string"),
        slow(
            "array('a') AS list",
            "column 'list' was expected to be list<uint8> and was found to be list<string>",
        ),
        ("named_struct('a', 1) AS struct", "column 'struct' was expected to be struct<a: uint64"),
        slow("parse_json('1') AS string", "column 'string' is variant, which no table can hold"),
        ("300S AS uint8", "column 'uint8' takes uint8, and a value of the given int16 does not fit"),
        slow("-1 AS uint16", "column 'uint16' takes uint16, and a value of the given int32 does not fit"),
        ("array(1f, 2f) AS vector", "column 'vector' takes vector(3)"),
        slow("X'00' AS fixed_binary", "column 'fixed_binary' takes fixed_size_binary(4)"),
        slow("70000 AS int16", "column 'int16' takes int16, and a value of the given int32 does not fit"),
    ],
)
def test_a_wrong_type_names_the_column_the_expected_and_the_found(
    spark: SparkSession, typed: ab.Repository, write: Write, column: str, message: str
) -> None:
    head = typed.head_commit_id_for_branch("main")
    with pytest.raises(SchemaMismatchError) as caught, spark_errors():
        write(spark.sql(f"SELECT 9L AS id, {column}"), typed, "s.typed")
    assert message in caught.value.problem
    assert typed.head_commit_id_for_branch("main") == head


@pytest.mark.parametrize("column", ["NULL AS x", slow("parse_json('1') AS x"), slow("interval '1' year AS x")])
def test_types_that_no_table_can_hold_are_refused(
    spark: SparkSession, lake: ab.Repository, write: Write, column: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'x' is .*, which no table can hold"), spark_errors():
        write(spark.sql(f"SELECT 9L AS id, {column}"), lake, "s.unheld")


def test_a_type_that_spark_does_not_know_is_named(lake: ab.Repository, read: Read) -> None:
    rows = pa.table({"id": [1], "wide": pa.array([Decimal(1)], pa.decimal256(60, 2))})
    with lake.transaction() as tx:
        tx.create_table("s.wide", rows.schema)
        tx.append("s.wide", rows)
    with pytest.raises(SchemaMismatchError, match=r"column 'wide' is decimal\(60, 2\)"), spark_errors():
        read(lake, "s.wide")
    assert read(lake, "s.wide", columns="id").count() == 1
