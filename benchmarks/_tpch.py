"""The 22 queries of TPC-H and two aggregates over lineitem: catalog tables beside parquet files, in one session."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from _comparison import Finding, medians, take_turns
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parent.parent))
from tests.spark.tpch import KEYS, QUERIES
from tests.spark.tpch.answers import find_different, run_on_duckdb, run_on_spark
from tests.spark.tpch.lake import BUCKET, Lake, make_lake

__all__ = ["AGGREGATES", "BUCKET", "LAKE", "SIDES", "check_answers", "compare_queries", "make_tables"]

AGGREGATES = {
    "9 columns": (
        "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_quantity), sum(l_extendedprice), "
        "sum(l_discount), max(l_shipdate), max(l_shipmode), max(l_comment) FROM lineitem"
    ),
    "2 columns": "SELECT l_returnflag, sum(l_extendedprice) FROM lineitem GROUP BY l_returnflag",
}
LAKE = "tpch_lake"
# Where Spark finds the tables of each side by their plain names.
SIDES = {"lake": f"{LAKE}.{BUCKET}", "parquet": "spark_catalog.tpch_parquet"}
MOST_OF_MEAN, MOST_OF_QUERY, MOST_OF_AGGREGATE = "at most 0.95x", "at most 1.4x", "at most 1.0x"


def make_tables(spark: SparkSession, folder: Path, *, scale: float) -> Lake:
    """Make the tables of both sides."""
    lake = make_lake(folder / "tpch", catalog=LAKE, scale=scale)
    spark.sql(f"CREATE DATABASE {SIDES['parquet']} LOCATION '{folder / 'tpch-database'}'")
    for name in KEYS:
        location = lake.parquet / "main" / f"{name}.parquet"
        spark.sql(f"CREATE TABLE {SIDES['parquet']}.{name} USING parquet LOCATION '{location}'")
    return lake


def check_answers(spark: SparkSession, lake: Lake) -> None:
    """Compare the answers on main, on the branch and on an earlier version with those of parquet and of DuckDB."""
    on_main = run_on_duckdb(lake.parquet / "main")
    on_branch = run_on_duckdb(lake.parquet / "dev")
    if len(find_different(on_branch, on_main)) <= len(QUERIES) // 2:
        raise SystemExit("the changes of the branch do not show in the answers: this check would prove little")
    for state, source, expected in (
        ("parquet of main", lake.in_parquet_of_main, on_main),
        ("parquet of the branch", lake.in_parquet_of_branch, on_branch),
        ("main", lake.on_main, on_main),
        ("the branch", lake.on_branch, on_branch),
        ("VERSION AS OF", lake.before_change, on_main),
    ):
        different = find_different(run_on_spark(spark, source, at_once=1), expected)
        if different:
            raise SystemExit(f"{state} is not answered as DuckDB answers it: {', '.join(different)}")
        sys.stderr.write(f"{state}: {len(expected)} of {len(QUERIES)} queries are answered as DuckDB answers them\n")


def compare_queries(spark: SparkSession, *, rounds: int, warm_up: int, only: Sequence[str] = ()) -> list[Finding]:
    """Time each query on both sides by turns; first the geometric mean and the worst, then all of them."""
    queries = {**QUERIES, **AGGREGATES}
    chosen = {name: query for name, query in queries.items() if not only or name in only}
    took = medians(take_turns(_contestants(spark, chosen), rounds=rounds, warm_up=warm_up))
    findings = [
        Finding(
            name,
            took[f"lake {name}"],
            "parquet",
            took[f"parquet {name}"],
            MOST_OF_AGGREGATE if name in AGGREGATES else MOST_OF_QUERY,
        )
        for name in chosen
    ]
    of_queries = [finding for finding in findings if finding.what not in AGGREGATES]
    return [*_summary(of_queries), *findings] if of_queries else findings


def _contestants(spark: SparkSession, queries: Mapping[str, str]) -> dict[str, Callable[[], object]]:
    def runner(side: str, query: str) -> Callable[[], object]:
        def run() -> object:
            spark.sql(f"USE {SIDES[side]}")
            return spark.sql(query).collect()

        return run

    return {f"{side} {name}": runner(side, query) for name, query in queries.items() for side in SIDES}


def _summary(findings: Sequence[Finding]) -> list[Finding]:
    """The geometric mean of all ratios, as a total of milliseconds that has it, and the worst of them."""
    mean = math.exp(sum(math.log(finding.ratio) for finding in findings) / len(findings))
    total = sum(finding.baseline for finding in findings)
    worst = max(findings, key=lambda finding: finding.ratio)
    return [
        Finding(f"{len(findings)} queries, geometric mean", mean * total, "parquet", total, MOST_OF_MEAN),
        Finding(f"the worst of them, {worst.what}", worst.milliseconds, "parquet", worst.baseline, MOST_OF_QUERY),
    ]
