"""INSERT, CTAS and MERGE INTO of TPC-H's lineitem: catalog tables beside parquet files, in one session."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

from _comparison import Finding, medians, take_turns
from _tpch import BUCKET, LAKE, SIDES
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import anabranch as ab

__all__ = ["SOURCE_SHARE", "compare_writes"]

SOURCE = f"{SIDES['parquet']}.lineitem"
TARGETS = {"keyed": "l_orderkey,l_linenumber", "unkeyed": ""}
CHANGES = "lineitem_changes"
# One row in so many is in the source of MERGE INTO, and one in five of those has a key that the table does not have.
SOURCE_SHARE, NEW_SHARE = 100, 5
NEW_KEYS = 100_000_000
KEY_IS_SAME = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
MOST_OF_INSERT, MOST_OF_MERGE = "at most 1.2x", "at most 0.5x"


def compare_writes(
    spark: SparkSession, repo: ab.Repository, folder: Path, *, rounds: int, warm_up: int
) -> list[Finding]:
    """Write lineitem, and merge changed and new rows into it, on both sides by turns."""
    _make_changes(spark, folder / "changes")
    for name, key in TARGETS.items():
        _create(spark, f"merged_{name}", key)
        spark.sql(f"INSERT INTO {LAKE}.{BUCKET}.merged_{name} SELECT * FROM {SOURCE}")  # noqa: S608 - of names
    took = medians(take_turns(_contestants(spark, repo, folder), rounds=rounds, warm_up=warm_up))
    inserts = ("INSERT", "INSERT, with a primary key", "CREATE TABLE AS SELECT")
    merges = ("MERGE INTO, with a primary key", "MERGE INTO, without one")
    return [
        *(Finding(name, took[name], "parquet", took["parquet"], MOST_OF_INSERT) for name in inserts),
        *(Finding(name, took[name], "parquet, all rows", took["rewrite"], MOST_OF_MERGE) for name in merges),
    ]


def _make_changes(spark: SparkSession, folder: Path) -> None:
    """Write the source of MERGE INTO: changed rows that are spread over the whole table, and new ones."""
    number = sf.xxhash64("l_orderkey", "l_linenumber")
    some = spark.table(SOURCE).where(sf.pmod(number, sf.lit(SOURCE_SHARE)) == 0)
    is_new = sf.pmod(number, sf.lit(SOURCE_SHARE * NEW_SHARE)) == 0
    key = sf.when(is_new, sf.col("l_orderkey") + NEW_KEYS).otherwise(sf.col("l_orderkey"))
    quantity = (sf.col("l_quantity") + 1).cast(some.schema["l_quantity"].dataType)
    some.withColumns({"l_orderkey": key, "l_quantity": quantity}).coalesce(1).write.parquet(str(folder))
    spark.read.parquet(str(folder)).createOrReplaceTempView(CHANGES)


def _create(spark: SparkSession, name: str, key: str) -> None:
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark.table(SOURCE).schema)
    properties = f" TBLPROPERTIES ('primaryKey' = '{key}')" if key else ""
    spark.sql(f"CREATE TABLE {LAKE}.{BUCKET}.{name} ({columns}){properties}")


def _contestants(spark: SparkSession, repo: ab.Repository, folder: Path) -> dict[str, Callable[[], object]]:
    numbers = count()

    def insert(key: str) -> None:
        name = f"inserted_{next(numbers)}"
        _create(spark, name, key)
        spark.sql(f"INSERT INTO {LAKE}.{BUCKET}.{name} SELECT * FROM {SOURCE}")  # noqa: S608 - of names

    def create() -> None:
        spark.sql(f"CREATE TABLE {LAKE}.{BUCKET}.created_{next(numbers)} AS SELECT * FROM {SOURCE}")  # noqa: S608 - of names

    def merge(name: str) -> None:
        branch = f"merge_{next(numbers)}"
        repo.branch_create(branch)
        spark.sql(
            f"MERGE INTO {LAKE}.{BUCKET}.merged_{name}.branch_{branch} t USING {CHANGES} s ON {KEY_IS_SAME} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def rewrite() -> None:
        kept = spark.sql(f"SELECT * FROM {SOURCE} t LEFT ANTI JOIN {CHANGES} s ON {KEY_IS_SAME}")  # noqa: S608 - of names
        kept.unionAll(spark.table(CHANGES)).write.mode("overwrite").parquet(str(folder / "rewritten.parquet"))

    written = str(folder / "written.parquet")
    return {
        "INSERT": lambda: insert(""),
        "INSERT, with a primary key": lambda: insert(TARGETS["keyed"]),
        "CREATE TABLE AS SELECT": create,
        "parquet": lambda: spark.table(SOURCE).write.mode("overwrite").parquet(written),
        "MERGE INTO, with a primary key": lambda: merge("keyed"),
        "MERGE INTO, without one": lambda: merge("unkeyed"),
        "rewrite": rewrite,
    }
