"""Wide tables, many partitions and large values through the catalog: right answers, with bounded batches."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.gateway.requests import Request
from tests.spark.clusters import cluster_environment
from tests.spark.conftest import ORDERS

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]


class FrameSizes:
    """Notes the size of each Arrow batch instead of sending it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send_arrow(self, piece: pa.Buffer) -> None:
        self.sizes.append(piece.size)

    def send_end(self) -> None:
        pass


def test_rows_are_sent_in_pieces_of_bounded_size() -> None:
    values = ["x" * (40 << 20), *["y" * (1 << 20)] * 100, "z" * (100 << 20), "", None]
    batch = pa.record_batch([pa.array(values)], names=["v"])
    sent = FrameSizes()
    Request({}, sent, lambda *_args, **_kwargs: None).send_rows(iter([batch]), batch.schema)  # type: ignore[arg-type]
    assert sum(sent.sizes) > 240 << 20
    assert max(sent.sizes) < 101 << 20  # one value cannot be cut
    assert sorted(sent.sizes)[-2] < 65 << 20


def check_wide(spark: SparkSession, lake: ab.Repository, catalog: str, width: int) -> None:
    """Create a table of many columns, insert, read a few columns and merge: three commits."""
    names = [f"c{number}" for number in range(width)]
    before = len(lake.list_commits("main"))
    columns = ", ".join(f"{name} INT" for name in names)
    spark.sql(f"CREATE TABLE {catalog}.s.wide (id BIGINT, {columns}, PRIMARY KEY (id))")
    values = ", ".join(f"CAST(id + {number} AS INT) AS c{number}" for number in range(width))
    spark.sql(f"INSERT INTO {catalog}.s.wide SELECT id, {values} FROM range(0, 200, 1, 2)")
    last = names[-1]
    query = f"SELECT count(*), sum(c0), sum({last}) FROM {catalog}.s.wide WHERE c7 >= 107"
    assert list(spark.sql(query).collect()[0]) == [100, sum(range(100, 200)), sum(range(99 + width, 199 + width))]
    spark.sql(
        f"MERGE INTO {catalog}.s.wide t USING (SELECT id + 150 AS id, {values} FROM range(100)) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET {last} = -1 WHEN NOT MATCHED THEN INSERT *"
    )
    table = lake.snapshot_of("main")["s.wide"]
    assert (table.count_rows(), table.count_rows(f"{last} = -1")) == (250, 50)
    assert len(table.schema.names) == width + 1
    assert len(lake.list_commits("main")) == before + 3


def test_table_of_many_columns(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    check_wide(spark, lake, catalog, 300)


@pytest.mark.proof
def test_table_of_two_thousand_columns(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    check_wide(spark, lake, catalog, 2000)


def check_partitions(spark: SparkSession, lake: ab.Repository, catalog: str, count: int) -> None:
    """Insert from a DataFrame of many partitions: one commit, after which the table can be read and compacted."""
    head = lake.head_commit_id_for_branch("main")
    began = time.monotonic()
    spark.sql(f"INSERT INTO {catalog}.{ORDERS} SELECT id + 1000, 'new' FROM range(0, {count}, 1, {count})")
    written = time.monotonic()
    assert lake.snapshot_of("main").commit.parent_commit_id == head
    query = f"SELECT count(*), sum(id) FROM {catalog}.{ORDERS} WHERE v <> 'old' AND id % 1 = 0"
    assert list(spark.sql(query).collect()[0]) == [count, sum(range(1000, 1000 + count))]
    read = time.monotonic()
    fragments = spark.sql(f"SELECT count(DISTINCT fragment) FROM {catalog}.{ORDERS}.files").collect()[0][0]
    print(f"{count} partitions: {fragments} fragments, write {written - began:.1f} s, read {read - written:.1f} s")  # noqa: T201 - figures
    compacted = spark.sql(f"CALL {catalog}.system.compact()").collect()[0]
    assert compacted.fragments_after < 10
    assert list(spark.sql(query).collect()[0]) == [count, sum(range(1000, 1000 + count))]


def test_insert_from_many_partitions(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    check_partitions(spark, lake, catalog, 100)


@pytest.mark.proof
def test_insert_from_ten_thousand_partitions(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    check_partitions(spark, lake, catalog, 10_000)


def run_large_values(uri: str, *numbers: int) -> str:
    command = [sys.executable, "-m", "tests.spark.programs.large_values", uri, *map(str, numbers)]
    environment = cluster_environment(sys.executable) | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "src")])}
    answer = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:] + answer.stdout[-2000:]
    return answer.stdout


@pytest.mark.proof
def test_column_of_a_gigabyte_of_text_with_a_small_heap(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    output = run_large_values(repo.uri, 1000, 1_000_000, 100_000_000)
    print(output)  # noqa: T201 - figures
    table = repo.snapshot_of("main")["s.texts"]
    assert table.count_rows() == 1001
    assert len(repo.list_commits("main")) == 4  # the beginning, CREATE, INSERT and MERGE
