"""Filters of Spark SQL on catalog tables: each must keep the rows that Spark itself keeps of the same data."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from tests.spark.conftest import add_catalog

# Filters of small tables stay in Spark's plan, too, where they would hide rows that are kept wrongly.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("large")]

TABLE = "s.everything"
ROWS = 120
PREDICATES = 40
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 12),
    datetime(1970, 1, 1),
    datetime(1583, 1, 1),
]
DAYS = [date(1583, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]
FLOATS = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 65504.0]
TEXTS = ["", "a", "ab", "abc", "b", "%", "a_c", "A", "ä", "日本", "😀", "it's", "back\\slash", "a\nb", "`"]


@dataclass(frozen=True)
class Column:
    """A type, some values of it, and how Spark SQL writes one of them."""

    kind: pa.DataType
    values: list[Any]
    literal: Callable[[Any], str] | None


def number(value: Any) -> str:
    return f"CAST('{value}' AS DOUBLE)" if isinstance(value, float) else str(value)


def text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def integers(bits: int, *, is_signed: bool = True) -> list[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return [least, most, 0, 1, 7, least + 1, most - 1]


def timestamp(value: datetime) -> str:
    return f"TIMESTAMP_LTZ '{value.isoformat(' ')}'"


def timestamp_ntz(value: datetime) -> str:
    return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"


def nanoseconds(value: int) -> str:
    return f"timestamp_micros({value // 1000})"


def decimals(*values: str) -> list[Decimal]:
    return [Decimal(value) for value in values]


COLUMNS: Mapping[str, Column] = {
    "flag": Column(pa.bool_(), [True, False], lambda value: str(value).lower()),
    **{f"i{bits}": Column(getattr(pa, f"int{bits}")(), integers(bits), number) for bits in (8, 16, 32)},
    "i64": Column(pa.int64(), integers(64)[1:], number),
    **{
        f"u{bits}": Column(getattr(pa, f"uint{bits}")(), integers(bits, is_signed=False), number)
        for bits in (8, 16, 32, 64)
    },
    "f16": Column(pa.float16(), FLOATS, number),
    "f32": Column(pa.float32(), FLOATS, number),
    "f64": Column(pa.float64(), [*FLOATS, 5e-324, 1.7976931348623157e308], number),
    "d9": Column(pa.decimal128(9, 2), decimals("0.00", "-0.01", "9999999.99", "1.50"), number),
    "d20": Column(pa.decimal128(20, 4), decimals("0", "-1.5", "9999999999999999.9999"), number),
    "d38": Column(pa.decimal128(38, 10), decimals("0", "1.5", "-9999999999999999999999999999.9999999999"), number),
    "text": Column(pa.string(), TEXTS, text),
    "large_text": Column(pa.large_string(), TEXTS, text),
    "word": Column(pa.dictionary(pa.int32(), pa.string()), TEXTS[:5], text),
    "bytes": Column(pa.binary(), [b"", b"\0", b"a", b"\xff\xfe"], lambda value: f"X'{value.hex()}'"),
    "large_bytes": Column(pa.large_binary(), [b"", b"\0", b"a"], lambda value: f"X'{value.hex()}'"),
    "two_bytes": Column(pa.binary(2), [b"\0\0", b"ab"], lambda value: f"X'{value.hex()}'"),
    "day": Column(pa.date32(), DAYS, lambda value: f"DATE '{value}'"),
    "t_s": Column(pa.timestamp("s", "UTC"), [m.replace(microsecond=0, tzinfo=UTC) for m in MOMENTS], timestamp),
    "t_us": Column(pa.timestamp("us", "UTC"), [m.replace(tzinfo=UTC) for m in MOMENTS], timestamp),
    "t_ns": Column(pa.timestamp("ns", "UTC"), [-1, 0, 1, 999, 1001, 1_700_000_000_123_456_789], nanoseconds),
    "n_us": Column(pa.timestamp("us"), MOMENTS, timestamp_ntz),
    "n_ms": Column(pa.timestamp("ms"), [m.replace(microsecond=0) for m in MOMENTS], timestamp_ntz),
    "span": Column(pa.duration("us"), [timedelta(0), timedelta(days=-1), timedelta(microseconds=1)], None),
    "words": Column(pa.list_(pa.string()), [[], ["a"], [None, "b"]], None),
    "many": Column(pa.large_list(pa.int64()), [[], [1, 2]], None),
    "vector": Column(pa.list_(pa.float32(), 2), [[0.0, 1.0], [2.0, 3.0]], None),
    "pairs": Column(pa.map_(pa.string(), pa.int64()), [[], [("a", 1)]], None),
    "inner": Column(
        pa.struct([("n", pa.int32()), ("t", pa.string()), ("deep", pa.struct([("m", pa.int64())]))]),
        [
            {"n": 1, "t": "a", "deep": {"m": 1}},
            {"n": None, "t": "b", "deep": None},
            {"n": 2, "t": None, "deep": {"m": None}},
        ],
        None,
    ),
}
# Fields of structs are filtered like columns.
NESTED = {
    "inner.n": Column(pa.int32(), [0, 1, 2], number),
    "inner.t": Column(pa.string(), ["a", "b"], text),
    "inner.deep.m": Column(pa.int64(), [1, 2], number),
}


def make_rows() -> pa.Table:
    chosen = random.Random(1)
    columns: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int64())}
    for name, column in COLUMNS.items():
        values = [chosen.choice([None, *column.values]) for _ in range(ROWS)]
        columns[name] = to_array(values, column.kind)
    return pa.table(columns)


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


class Predicates:
    """Random predicates over the columns, with their literals mostly taken from the values."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._columns = {name: column for name, column in {**COLUMNS, **NESTED}.items() if column.literal}

    def any(self, depth: int = 2) -> str:
        if depth == 0 or self._random.random() < 0.3:
            return self._leaf()
        match self._random.randrange(4):
            case 0:
                return f"NOT ({self.any(depth - 1)})"
            case 1:
                return f"({self.any(depth - 1)} AND {self.any(depth - 1)})"
            case _:
                return f"({self.any(depth - 1)} OR {self.any(depth - 1)})"

    def _leaf(self) -> str:
        name = self._random.choice(list(self._columns))
        column = self._columns[name]
        match self._random.randrange(8):
            case 0:
                return f"{name} IS {self._random.choice(['', 'NOT '])}NULL"
            case 1:
                return f"{name} {self._random.choice(['', 'NOT '])}IN ({', '.join(self._literals(column))})"
            case 2 if column.kind in {pa.string(), pa.large_string()}:
                return f"{name} LIKE {self._random.choice([text('a%'), text('%b'), text('%b%'), text('a_c')])}"
            case 3:
                return f"{name} <=> {self._random.choice([*self._literals(column), 'NULL'])}"
            case 4:
                return f"{name} BETWEEN {self._literal(column)} AND {self._literal(column)}"
            case _:
                op = self._random.choice(["=", "<>", "<", "<=", ">", ">="])
                return f"{name} {op} {self._literal(column)}"

    def _literals(self, column: Column) -> list[str]:
        found = [self._literal(column) for _ in range(self._random.randrange(1, 4))]
        return [*found, "NULL"] if self._random.random() < 0.2 else found

    def _literal(self, column: Column) -> str:
        assert column.literal is not None
        return column.literal(self._random.choice(column.values))


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, DataFrame]:
    """The name of a table of all types, and the same rows held in Spark's memory."""
    repo = ab.init(tmp_path_factory.mktemp("filters") / "lake", actor="tester")
    rows = make_rows()
    with repo.transaction() as tx:
        tx.create_table(TABLE, rows.schema, primary_key=["id"])
        for start in range(0, ROWS, ROWS // 2):
            # Not slices: Lance panics at those of structs in structs.
            tx.append(TABLE, rows.take(pa.array(range(start, start + ROWS // 2))))
    name = f"{add_catalog(repo)}.{TABLE}"
    # Collected and given back as rows, which no scan and no filter of ours has touched.
    table = spark.table(name)
    held = spark.createDataFrame(table.collect(), table.schema).cache()
    assert held.count() == ROWS
    return name, held


def kept_by_spark(held: DataFrame, predicates: list[str]) -> list[set[int]]:
    """Evaluate all predicates in one query."""
    flags = held.selectExpr("id", *(f"coalesce({one}, false) AS p{n}" for n, one in enumerate(predicates))).collect()
    return [{row.id for row in flags if row[f"p{n}"]} for n in range(len(predicates))]


def kept_by_catalog(spark: SparkSession, name: str, predicates: list[str]) -> list[set[int]]:
    """Evaluate each predicate in a scan of its own; they share a query, because each query takes a while."""
    kept: list[set[int]] = [set() for _ in predicates]
    for start in range(0, len(predicates), 20):
        chosen = list(enumerate(predicates))[start : start + 20]
        scans = (f"SELECT {n} AS n, id FROM {name} WHERE {one}" for n, one in chosen)
        for row in spark.sql(" UNION ALL ".join(scans)).collect():
            kept[row.n].add(row.id)
    return kept


def check(spark: SparkSession, everything: tuple[str, DataFrame], predicates: list[str]) -> None:
    name, held = everything
    expected, found = kept_by_spark(held, predicates), kept_by_catalog(spark, name, predicates)
    compared = zip(predicates, expected, found, strict=True)
    assert not {one: sorted(right ^ got) for one, right, got in compared if right != got}


def test_random_filters_keep_the_rows_that_spark_keeps(spark: SparkSession, everything: tuple[str, DataFrame]) -> None:
    predicates = Predicates(seed=1)
    check(spark, everything, [predicates.any() for _ in range(PREDICATES)])


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_filters_keep_the_rows_that_spark_keeps(
    spark: SparkSession, everything: tuple[str, DataFrame], seed: int
) -> None:
    predicates = Predicates(seed=seed)
    check(spark, everything, [predicates.any() for _ in range(PREDICATES)])
