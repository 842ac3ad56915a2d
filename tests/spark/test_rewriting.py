"""Compaction by Spark's workers."""

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.spark.conftest import ORDERS, orders, rows

pytestmark = pytest.mark.spark


def test_workers_compact_on_a_branch_in_one_commit(spark: SparkSession, lake: ab.Repository) -> None:
    assert spark.version.startswith("4.")
    lake.index(ORDERS, "id")
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id % 10 = 7")
    before = rows(lake)
    lake.branch_create("dev")
    done = lake.compact(branch="dev", keys=[ORDERS], engine="spark")
    (table,) = done.tables
    assert (table.rows, table.fragments_before, table.fragments_after) == (90, 4, 1)
    assert done.commit is not None
    assert (done.commit.kind, done.commit.branch) == ("compact", "dev")
    assert rows(lake, "dev") == rows(lake) == before
    found = lake.snapshot_of("dev")[ORDERS]
    assert [(index.name, index.covered_rows) for index in found.indices] == [("id_idx", 90)]
    assert found.to_arrow(filter="id = 42").to_pylist() == [{"id": 42, "v": "old"}]
    assert lake.snapshot()[ORDERS].pin.count_fragments() == 4


def test_tasks_are_spread_and_rows_that_come_meanwhile_are_kept(spark: SparkSession, lake: ab.Repository) -> None:
    assert spark is not None
    done = lake.compact(engine="spark", target_rows_per_fragment=50)
    assert [table.fragments_after for table in done.tables] == [2]
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 101))
    assert [row["id"] for row in rows(lake)] == list(range(101))
