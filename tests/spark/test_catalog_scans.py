"""What a scan of a catalog table leaves to Lance: columns, aggregates, limits, orders, and the filters of joins."""

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.spark.conftest import add_catalog, setting

pytestmark = pytest.mark.spark

TABLE = "s.things"
SHOPS = "s.shops"
ROWS = 1_000


def things(start: int, end: int) -> pa.Table:
    numbers = range(start, end)
    deep = pa.struct([("x", pa.int64()), ("y", pa.string())])
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "shop": pa.array([n % 50 for n in numbers], pa.int32()),
            "price": pa.array([Decimal(n % 97) if n % 10 else None for n in numbers], pa.decimal128(12, 2)),
            "weight": pa.array([float("nan") if n == 5 else n / 3 for n in numbers]),
            "name": [f"thing {n:04}" for n in numbers],
            "day": pa.array([date(2024, 1, 1) + timedelta(days=n % 400) for n in numbers]),
            "part": pa.array([{"x": n, "y": str(n)} if n % 4 else None for n in numbers], deep),
            "parts": pa.array([[{"x": n, "y": str(n)}] for n in numbers], pa.list_(deep)),
        }
    )


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The catalog of a repository with things in four fragments, one of them with deleted rows, and with shops."""
    repo = ab.init(tmp_path_factory.mktemp("scans") / "lake", actor="tester")
    shops = pa.table({"shop": pa.array(range(50), pa.int32()), "city": [f"city {n % 5}" for n in range(50)]})
    with repo.transaction() as tx:
        tx.create_table(TABLE, things(0, 1).schema, primary_key=["id"])
        for start in range(0, ROWS, ROWS // 4):
            tx.append(TABLE, things(start, start + ROWS // 4))
        tx.create_table(SHOPS, shops.schema, primary_key=["shop"])
        tx.append(SHOPS, shops)
    with repo.transaction() as tx:
        tx.delete(TABLE, "id = 999")
    return add_catalog(repo)


def plan_of(spark: SparkSession, query: str) -> str:
    """The physical plan, in the form that names what each scan leaves to the source."""
    explained = spark.sql(f"EXPLAIN EXTENDED {query}").first()
    assert explained is not None
    return str(explained[0]).partition("== Physical Plan ==")[2]


def rows_of(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def test_the_number_of_rows_comes_from_the_manifest(spark: SparkSession, shop: str) -> None:
    query = f"SELECT count(*), count(1) FROM {shop}.{TABLE}"
    assert rows_of(spark, query) == [(ROWS - 1, ROWS - 1)]
    assert "LocalTableScan" in plan_of(spark, query)


@pytest.mark.usefixtures("large")
def test_counts_minima_and_maxima_are_computed_by_each_part(spark: SparkSession, shop: str) -> None:
    query = (
        f"SELECT count(*), count(price), min(price), max(price), min(name), max(day), min(shop) FROM {shop}.{TABLE} "
        "WHERE id BETWEEN 100 AND 700"
    )
    assert "aggregates=[" in plan_of(spark, query)
    expected = [(601, 540, Decimal("0.00"), Decimal("96.00"), "thing 0100", date(2025, 2, 3), 0)]
    assert rows_of(spark, query) == expected
    # Without a row, too.
    empty = f"SELECT count(*), count(price), min(price), max(name) FROM {shop}.{TABLE} WHERE id < 0"
    assert rows_of(spark, empty) == [(0, 0, None, None)]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(weight) FROM {table}",  # NaN is the largest number for Spark alone
        "SELECT count(DISTINCT shop) FROM {table}",
        "SELECT min(id) FROM {table} WHERE weight > 1.5",  # Spark filters again
        "SELECT shop, count(*) FROM {table} GROUP BY shop",
        "SELECT max(part) FROM {table}",
    ],
)
def test_other_aggregates_are_left_to_spark(spark: SparkSession, shop: str, query: str) -> None:
    assert "aggregates=[" not in plan_of(spark, query.format(table=f"{shop}.{TABLE}"))


def test_a_limit_reads_as_few_fragments_as_it_needs(spark: SparkSession, shop: str) -> None:
    frame = spark.sql(f"SELECT id FROM {shop}.{TABLE} LIMIT 7")
    assert len(frame.collect()) == 7
    assert "limit=7" in plan_of(spark, f"SELECT id FROM {shop}.{TABLE} LIMIT 7")
    assert len(rows_of(spark, f"SELECT id FROM {shop}.{TABLE} LIMIT 600")) == 600
    assert len(rows_of(spark, f"SELECT id FROM {shop}.{TABLE} WHERE shop = 3 LIMIT 15")) == 15
    assert len(rows_of(spark, f"SELECT id FROM {shop}.{TABLE} LIMIT 5000")) == ROWS - 1


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("direction", ["ASC", "DESC"])
@pytest.mark.parametrize("nulls", ["", "NULLS FIRST", "NULLS LAST"])
def test_the_first_rows_of_an_order_are_chosen_by_each_part(
    spark: SparkSession, shop: str, direction: str, nulls: str
) -> None:
    order = f"price {direction} {nulls}, name DESC"
    query = f"SELECT id, price FROM {shop}.{TABLE} WHERE shop <> 7 ORDER BY {order} LIMIT 120"
    plan = plan_of(spark, query)
    assert "order=[" in plan
    assert "limit=120" in plan
    # The names have no capital letters, so that this is the same order; an expression is left to Spark.
    alone = query.replace("name", "lower(name)")
    assert "order=[" not in plan_of(spark, alone)
    assert rows_of(spark, query) == rows_of(spark, alone)


def test_an_order_by_a_float_is_left_to_spark(spark: SparkSession, shop: str) -> None:
    query = f"SELECT id FROM {shop}.{TABLE} ORDER BY weight DESC LIMIT 2"
    assert "order=[" not in plan_of(spark, query)
    assert rows_of(spark, query) == [(5,), (998,)]


def test_a_join_narrows_the_rows_that_are_read(spark: SparkSession, shop: str) -> None:
    query = (
        f"SELECT count(*), sum(t.id) FROM {shop}.{TABLE} t JOIN {shop}.{SHOPS} s ON t.shop = s.shop "
        "WHERE s.city = 'city 3'"
    )
    with setting(spark, "spark.sql.adaptive.enabled", "false"):  # else the plan is rebuilt while it runs
        frame = spark.sql(query)
        found = [tuple(row) for row in frame.collect()]
        scan = scan_of(frame, TABLE)
    ids = [n for n in range(ROWS - 1) if n % 50 % 5 == 3]
    assert found == [(len(ids), sum(ids))]
    assert "RuntimeFilters: [dynamicpruning" in scan.toString()
    # Of all things, only those of the ten shops in the city were read.
    assert int(scan.metrics().apply("numOutputRows").value()) == len(ids)


def scan_of(frame: Any, table: str) -> Any:
    """The scan of a table in the plan that ran."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    return next(scan for scan in scans if f"anabranch {table} " in scan.toString())


def test_fields_of_structs_are_read_without_the_others(spark: SparkSession, shop: str) -> None:
    query = f"SELECT part.y, parts.x FROM {shop}.{TABLE} WHERE id IN (3, 4)"
    assert re.search(r"part#\d+, parts#\d+", plan_of(spark, query))
    assert sorted(rows_of(spark, query), key=str) == [("3", [3]), (None, [4])]
    read = spark.sql(f"SELECT part.y, part IS NULL AS missing FROM {shop}.{TABLE} WHERE id < 9")
    schema = scan_schema(read)
    assert "x" not in schema
    assert sum(row.missing for row in read.collect()) == 3
    assert rows_of(spark, f"SELECT count(*) FROM {shop}.{TABLE} WHERE part.x > 500") == [(374,)]


def scan_schema(frame: Any) -> str:
    """The type of the columns that the scan reads."""
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0)
    return str(leaf.schema().simpleString())


def test_a_scan_without_a_column_counts_rows(spark: SparkSession, shop: str) -> None:
    assert spark.table(f"{shop}.{TABLE}").selectExpr("1 AS one").selectExpr("sum(one)").first() == (ROWS - 1,)


def test_statistics_give_rows_and_the_bytes_of_the_chosen_columns(spark: SparkSession, shop: str) -> None:
    def size(query: str) -> int:
        plan: Any = spark.sql(query)._jdf.queryExecution().optimizedPlan()
        statistics = plan.collectLeaves().apply(0).stats()
        assert int(str(statistics.rowCount().get())) == ROWS - 1
        return int(str(statistics.sizeInBytes()))

    table = f"{shop}.{TABLE}"
    with setting(spark, "spark.sql.cbo.enabled", "true"):  # Spark keeps the number of rows for this alone
        whole, one = size(f"SELECT * FROM {table}"), size(f"SELECT shop FROM {table}")
    assert 0 < one < whole / 5


def test_every_type_is_read_as_spark_shows_it(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    moment = datetime(2024, 2, 29, 12, 30, 0, 123456)
    columns = {
        "half": pa.array([1.5, None], pa.float16()),
        "large": pa.array([2**64 - 1, None], pa.uint64()),
        "nanos": pa.array([1_709_209_800_123_456_789, None], pa.timestamp("ns", "UTC")),
        "seconds": pa.array([datetime(2024, 2, 29, 12, 30), None], pa.timestamp("s")),
        "clock": pa.array([time(12, 30, 0, 123456), None], pa.time64("us")),
        "span": pa.array([timedelta(days=1, microseconds=5), None], pa.duration("ns")),
        "many": pa.array([[1, None], None], pa.large_list(pa.int64())),
        "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "word": pa.array(["a", None]).dictionary_encode(),
        "pairs": pa.array([[("a", {"n": 1})], None], pa.map_(pa.string(), pa.struct([("n", pa.int8())]))),
        "bytes": pa.array([b"\0\xff", None], pa.binary()),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "wide": pa.array([Decimal("12345678901234567890.123456789"), None], pa.decimal128(38, 9)),
        "narrow": pa.array([Decimal("-0.01"), None], pa.decimal128(18, 2)),
        "flag": pa.array([True, None]),
        "tiny": pa.array([-128, None], pa.int8()),
        "old": pa.array([date(1583, 1, 1), None]),
    }
    repo = ab.init(tmp_path_factory.mktemp("types") / "lake", actor="tester")
    with repo.transaction() as tx:
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), **columns})
        tx.create_table(TABLE, rows.schema, primary_key=["id"])
        tx.append(TABLE, rows)
    names = list(columns)
    first, second = spark.table(f"{add_catalog(repo)}.{TABLE}").orderBy("id").select(*names).collect()
    assert first.asDict(recursive=True) == {
        "half": 1.5,
        "large": Decimal(2**64 - 1),
        "nanos": moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None),
        "seconds": datetime(2024, 2, 29, 12, 30),
        "clock": time(12, 30, 0, 123456),
        "span": timedelta(days=1, microseconds=5),
        "many": [1, None],
        "vector": [1.0, 2.0],
        "word": "a",
        "pairs": {"a": {"n": 1}},
        "bytes": b"\0\xff",
        "fixed": b"ab",
        "wide": Decimal("12345678901234567890.123456789"),
        "narrow": Decimal("-0.01"),
        "flag": True,
        "tiny": -128,
        "old": date(1583, 1, 1),
    }
    assert set(second.asDict().values()) == {None}
