"""Compaction by Spark's workers."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.format.staging import VectorOptions
from tests.spark.conftest import ORDERS, orders, rows

pytestmark = pytest.mark.spark


def test_workers_compact_on_a_branch_in_one_commit(spark: SparkSession, lake: ab.Repository) -> None:
    assert spark.version.startswith("4.")
    lake.index(ORDERS, "id")
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id % 10 = 7")
    before = rows(lake)
    lake.branch_create("dev")
    done = lake.compact(branch="dev", tables=[ORDERS], engine="spark")
    (table,) = done.tables
    assert (table.rows, table.fragments_before, table.fragments_after) == (90, 4, 1)
    assert done.commit is not None
    assert (done.commit.kind, done.commit.branch) == ("compact", "dev")
    assert rows(lake, "dev") == rows(lake) == before
    found = lake.snapshot_of("dev")[ORDERS]
    assert [(index.name, index.covered_rows) for index in found.indices] == [("id_idx", 90)]
    assert found.to_arrow(where="id = 42").to_pylist() == [{"id": 42, "v": "old"}]
    assert lake.snapshot()[ORDERS].version_ref.count_fragments() == 4


def test_tasks_are_spread_and_rows_that_come_concurrently_are_kept(spark: SparkSession, lake: ab.Repository) -> None:
    assert spark is not None
    done = lake.compact(engine="spark", target_rows_per_fragment=50)
    assert [table.fragments_after for table in done.tables] == [2]
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 101))
    assert [row["id"] for row in rows(lake)] == list(range(101))


def test_neighbours_are_the_same_after_workers_compacted_on_a_branch(spark: SparkSession, lake: ab.Repository) -> None:
    assert spark is not None
    numbers = np.random.default_rng(7).random((600, 8), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 8)
    events = pa.table({"id": pa.array(range(600), pa.int64()), "v": vectors})
    with lake.transaction() as tx:
        tx.create_table("s.events", events.schema, primary_key=["id"])
        for start in range(0, 600, 150):
            tx.append("s.events", events.slice(start, 150))
        tx.delete("s.events", "id % 10 = 3")
    lake.index("s.events", "v", type="ivf_flat", vector=VectorOptions(num_partitions=4))
    lake.index("s.events", "id")

    def answers(ref: str) -> list[object]:
        found = lake.snapshot_of(ref)["s.events"]
        points = [found.to_arrow(where=f"id = {key}").to_pylist() for key in (3, 42, 599)]
        return [found.nearest("v", [0.5] * 8, k=20, columns=["id"]).to_pylist(), points, rows(lake, ref, "s.events")]

    before = answers("main")
    lake.branch_create("dev")
    (done,) = lake.compact(["s.events"], branch="dev", engine="spark").tables
    assert (done.rows, done.fragments_before, done.fragments_after) == (540, 4, 1)
    assert answers("dev") == answers("main") == before
    covered = {index.name: index.covered_rows for index in lake.snapshot_of("dev")["s.events"].indices}
    assert covered == {"id_idx": 540, "v_idx": 540}
