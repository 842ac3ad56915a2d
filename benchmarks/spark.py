"""What it costs to query, read, write and rewrite tables with Spark, beside Spark on parquet files of the same rows.

Everything runs in one session with a heap of 2 GB, the contestants by turns, so that whatever else the machine does
hits all alike. Ratios of medians are what counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from _comparison import bold, medians, take_turns, to_section, working_folder, write_section
from _tpch import check_answers, compare_queries, make_tables
from _tpch_writes import SOURCE_SHARE, compare_writes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import anabranch as ab
from anabranch.repo.repository import Repository

KEY = "bench.orders"
WRITTEN = "bench.written"
FRAGMENTS = 16
SEED = 7
WARM_UP = 1
SELECTIVE = "customer = 4711"
CUSTOMERS = 10_000
PARTS = ("source", "sql", "writes")
HEADS = ("what", "ms", "against", "ms", "speed", "aim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast something is beside something else, and what was aimed at."""

    what: str
    milliseconds: float
    against: str
    baseline: float
    aim: str

    def to_row(self) -> tuple[str, ...]:
        speed = self.baseline / self.milliseconds
        shown = bold(f"{speed:.2f}", when=self.aim != "-" and speed < float(self.aim))
        return self.what, f"{self.milliseconds:.0f}", self.against, f"{self.baseline:.0f}", shown, self.aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The same rows as a table and as parquet files."""

    spark: SparkSession
    repo: Repository
    parquet: Path
    rows: int

    def table(self, **options: str) -> DataFrame:
        return self.spark.read.format("anabranch").options(repo=self.repo.uri, **options).load(KEY)

    def files(self) -> DataFrame:
        return self.spark.read.parquet(str(self.parquet))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--scale", type=float, default=1, help="the scale factor of TPC-H")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--queries", nargs="*", default=(), help="only these queries of TPC-H, such as q01 '2 columns'")
    parser.add_argument("--dry-run", action="store_true", help="print the results, and leave RESULTS.md as it is")
    chosen = parser.parse_args()
    spark = ab.spark_session(config={"spark.driver.memory": "2g"})
    sections = {}
    with working_folder(chosen.folder) as folder:
        if "source" in chosen.parts:
            sections["spark"] = compare_source(spark, folder, rows=chosen.rows, rounds=chosen.rounds)
        if "sql" in chosen.parts or "writes" in chosen.parts:
            tpch = make_tables(spark, folder, scale=chosen.scale)
        if "sql" in chosen.parts:
            check_answers(spark, tpch)
            sections["spark-sql"] = compare_sql(
                spark, folder, scale=chosen.scale, rounds=chosen.rounds, queries=chosen.queries
            )
        if "writes" in chosen.parts:
            sections["spark-writes"] = compare_sql_writes(
                spark, tpch.repo, folder, scale=chosen.scale, rounds=chosen.rounds
            )
        spark.stop()
    for name, section in sections.items():
        sys.stdout.write(section)
        if not chosen.dry_run:
            write_section(name, section)


def compare_source(spark: SparkSession, folder: Path, *, rows: int, rounds: int) -> str:
    """Compare the Python data source with parquet files."""
    lake = make_lake(spark, folder, rows=rows)
    speeds = [
        *compare_reading(lake, rounds=rounds),
        *compare_writing(lake, folder, rounds=rounds),
        *compare_rewriting(lake, rounds=rounds),
    ]
    return to_section(
        "Spark (`spark.py`)",
        [
            f"{rows:,} rows of 8 columns, in {FRAGMENTS} fragments, or in as many parquet files of Spark's own.",
            f"Medians of {rounds} rounds after {WARM_UP} to warm up, the contestants by turns in one session on",
            "this machine with a heap of 2 GB, each from `load` or `save` to the end. *Speed* is how fast ours is",
            "beside the other one: at 0.5 it takes twice as long. Rows that are written are computed on the way;",
            "written *nowhere*, they are computed only.",
        ],
        [speed.to_row() for speed in speeds],
        heads=HEADS,
        packages=("pyspark", "pylance", "pyarrow"),
        folder=folder,
    )


def compare_sql(spark: SparkSession, folder: Path, *, scale: float, rounds: int, queries: Sequence[str]) -> str:
    """Compare queries on catalog tables with the same queries on parquet files."""
    findings = compare_queries(spark, rounds=rounds, warm_up=WARM_UP, only=queries)
    return to_section(
        "Spark SQL (`spark.py`)",
        [
            f"The queries of TPC-H at scale factor {scale:g}, and two aggregates over lineitem, on tables of the",
            f"catalog and on parquet files of `tpchgen-cli`. Medians of {rounds} rounds after {WARM_UP} to warm up,",
            "by turns in one session with a heap of 2 GB. The milliseconds of the geometric mean are the sum of all",
            "queries on parquet, and that sum times the mean. Before, each query was answered once on main, on a",
            "branch with changed rows, and on the version before the change: all answers are those of parquet and of",
            "DuckDB.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pyspark", "pylance", "pyarrow"),
        folder=folder,
    )


def compare_sql_writes(spark: SparkSession, repo: ab.Repository, folder: Path, *, scale: float, rounds: int) -> str:
    """Compare statements that write catalog tables with writing parquet files."""
    findings = compare_writes(spark, repo, folder, rounds=rounds, warm_up=WARM_UP)
    return to_section(
        "Spark SQL writes (`spark.py`)",
        [
            f"All rows of lineitem at scale factor {scale:g}, read from one parquet file of `tpchgen-cli` and",
            "written to a new table, beside writing them as parquet with the same number of tasks. MERGE INTO brings",
            f"as many rows as 1 in {SOURCE_SHARE} of the table, a fifth of them new, each time to a new branch; beside",
            "it, an anti join and a union write all rows as parquet, because no Delta or Iceberg for this release of",
            f"Spark was available. Medians of {rounds} rounds after {WARM_UP} to warm up, by turns in one session with",
            "a heap of 2 GB.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pyspark", "pylance", "pyarrow"),
        folder=folder,
    )


def make_lake(spark: SparkSession, folder: Path, *, rows: int) -> Lake:
    repo = ab.init(folder / "lake", actor="bench")
    lake = Lake(spark=spark, repo=repo, parquet=folder / "orders.parquet", rows=rows)
    orders = make_orders(spark, rows)
    orders.write.format("anabranch").mode("append").options(repo=repo.uri).save(KEY)
    orders.write.parquet(str(lake.parquet))
    return lake


def make_orders(spark: SparkSession, rows: int) -> DataFrame:
    """Seeded rows: the same in every run with the same number of them."""
    some = sf.xxhash64("id", sf.lit(SEED))
    return spark.range(0, rows, numPartitions=FRAGMENTS).select(
        "id",
        sf.pmod(some, sf.lit(CUSTOMERS)).alias("customer"),
        sf.pmod(some, sf.lit(97)).cast("int").alias("quantity"),
        sf.rand(SEED).alias("price"),
        sf.round(sf.rand(SEED + 1), 2).alias("discount"),
        sf.concat(sf.lit("category "), sf.pmod(some, sf.lit(50))).alias("category"),
        sf.hex(some).alias("code"),
        sf.date_add(sf.lit("2020-01-01").cast("date"), sf.pmod(some, sf.lit(2000)).cast("int")).alias("day"),
    )


def compare_reading(lake: Lake, *, rounds: int) -> list[Speed]:
    took = medians(
        take_turns(
            {
                "all": lambda: sum_up(lake.table()),
                "all, parquet": lambda: sum_up(lake.files()),
                "two": lambda: group(lake.table(columns="category,price")),
                "two, parquet": lambda: group(lake.files()),
                "few": lambda: sum_up(lake.table(where=SELECTIVE)),
                "few, parquet": lambda: sum_up(lake.files().where(SELECTIVE)),
            },
            rounds=rounds,
            warm_up=WARM_UP,
        )
    )
    tasks = {
        "all": ("aggregate 8 columns", "0.75"),
        "two": ("aggregate 2 of 8 columns, option `columns`", "0.4"),
        "few": (f"aggregate 1 of {CUSTOMERS:,} rows, option `filter`", "0.6"),
    }
    return [
        Speed(what=what, milliseconds=took[name], against="parquet", baseline=took[f"{name}, parquet"], aim=aim)
        for name, (what, aim) in tasks.items()
    ]


def sum_up(frame: DataFrame) -> object:
    numbers = [sf.sum(name) for name in ("id", "customer", "quantity", "price", "discount")]
    return frame.agg(*numbers, *(sf.max(name) for name in ("category", "code", "day"))).collect()


def group(frame: DataFrame) -> object:
    return frame.groupBy("category").agg(sf.sum("price")).collect()


def compare_writing(lake: Lake, folder: Path, *, rounds: int) -> list[Speed]:
    orders = make_orders(lake.spark, lake.rows)
    overwrite = orders.write.mode("overwrite")
    to_table = orders.write.format("anabranch").mode("overwrite").options(repo=lake.repo.uri)
    took = medians(
        take_turns(
            {
                "table": lambda: to_table.save(WRITTEN),
                "parquet": lambda: overwrite.parquet(str(folder / "written.parquet")),
                "nowhere": lambda: orders.write.format("noop").mode("overwrite").save(),
            },
            rounds=rounds,
            warm_up=WARM_UP,
        )
    )
    what = "write 8 columns"
    return [
        Speed(what=what, milliseconds=took["table"], against="parquet", baseline=took["parquet"], aim="0.8"),
        Speed(what=what, milliseconds=took["table"], against="nowhere", baseline=took["nowhere"], aim="-"),
    ]


def compare_rewriting(lake: Lake, *, rounds: int) -> list[Speed]:
    """Rewrite the table in half as many fragments, each time on a new branch."""
    numbers = count()

    def on_new_branch(rewrite: Callable[[str], object]) -> Callable[[], None]:
        def run() -> None:
            branch = f"b{next(numbers)}"
            lake.repo.branch_create(branch)
            rewrite(branch)

        return run

    def through_rows(branch: str) -> None:
        rows = lake.table().coalesce(FRAGMENTS // 2)
        rows.write.format("anabranch").mode("overwrite").options(repo=lake.repo.uri, branch=branch).save(KEY)

    def kept_in_python(branch: str) -> None:
        target = -(-2 * lake.rows // FRAGMENTS)
        lake.repo.compact([KEY], branch=branch, engine="spark", target_rows_per_fragment=target)

    took = medians(
        take_turns(
            {"rows": on_new_branch(through_rows), "python": on_new_branch(kept_in_python)},
            rounds=rounds,
            warm_up=WARM_UP,
        )
    )
    return [
        Speed(
            what="rewrite the table, kept in Python (`compact`)",
            milliseconds=took["python"],
            against="through Spark's rows",
            baseline=took["rows"],
            aim="3.5",
        )
    ]


if __name__ == "__main__":
    main()
