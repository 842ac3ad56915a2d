"""The answers of the 22 queries, from Spark and from DuckDB, in a form that can be compared."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from tests.spark.tpch import KEYS, QUERIES

__all__ = ["Answers", "find_different", "run_on_duckdb", "run_on_spark"]

# Spark spends much of a small query's time on planning it and on starting its tasks: several at once use all cores.
AT_ONCE = 4
Row = tuple[str | float, ...]
Rows = list[Row]
Answers = dict[str, Rows]


def run_on_spark(spark: SparkSession, source: Callable[[str], str], *, at_once: int = AT_ONCE) -> Answers:
    """Run all queries, each table as `source` names it."""

    def run(query: str) -> Rows:
        return comparable([tuple(row) for row in spark.sql(query).collect()])

    for name in KEYS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {source(name)}")
    try:
        with ThreadPoolExecutor(at_once) as threads:
            return dict(zip(QUERIES, threads.map(run, QUERIES.values()), strict=True))
    finally:
        for name in KEYS:
            spark.catalog.dropTempView(name)


def run_on_duckdb(files: Path) -> Answers:
    with duckdb.connect() as connection:
        for name in KEYS:
            connection.sql(f"CREATE VIEW {name} AS FROM '{files}/{name}.parquet'")
        return {number: comparable(connection.sql(query).fetchall()) for number, query in QUERIES.items()}


def comparable(rows: list[tuple[Any, ...]]) -> Rows:
    """Return the rows in an order of their own, which names and dates decide before numbers do."""
    return sorted((tuple(map(as_plain, row)) for row in rows), key=in_order)


def in_order(row: Row) -> tuple[list[str], list[float]]:
    return [v for v in row if isinstance(v, str)], [v for v in row if isinstance(v, float)]


def as_plain(value: Any) -> str | float:
    if isinstance(value, int | float | Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def find_different(found: Answers, expected: Answers) -> list[str]:
    """Return the queries that are not answered alike. Spark's quotients of decimals have six digits after the point."""
    return [number for number in expected if not is_same(found[number], expected[number])]


def is_same(found: Rows, expected: Rows) -> bool:
    if [len(row) for row in found] != [len(row) for row in expected]:
        return False
    pairs = [pair for rows in zip(found, expected, strict=True) for pair in zip(*rows, strict=True)]
    return all(
        math.isclose(one, other, rel_tol=1e-8, abs_tol=1e-6)
        if isinstance(one, float) and isinstance(other, float)
        else one == other
        for one, other in pairs
    )
