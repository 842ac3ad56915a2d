"""Queries that are cancelled: Spark's tasks and the gateway stop, nothing is visible, and the session works on."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import anabranch as ab
from tests.spark.conftest import ORDERS
from tests.spark.processes import count_requests, gateways, wait_until

pytestmark = pytest.mark.spark

HELD_SECONDS = 90


class Query:
    """A query in a thread of its own, and the error that ended it."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self.error: Exception | None = None
        self._thread = InheritableThread(target=self._catch)
        self._thread.start()

    def _catch(self) -> None:
        try:
            self._run()
        except Exception as err:  # noqa: BLE001 - the test checks it
            self.error = err

    def join(self) -> None:
        self._thread.join(HELD_SECONDS)
        assert not self._thread.is_alive()


def running_tasks(spark: SparkSession) -> int:
    java: Any = spark.sparkContext._jsc
    executors = java.sc().statusStore().executorList(True)  # noqa: FBT003 - of Java
    return sum(executors.apply(number).activeTasks() for number in range(executors.size()))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from doing anything, as one that is very busy."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def register_hold(spark: SparkSession, folder: Path, row: int) -> None:
    """Make `hold(id, v)` known to SQL: at one row it reports that it was called, and does not return."""

    def hold(number: int, _value: str) -> int:
        if number == row:
            (folder / "held").touch()
            time.sleep(HELD_SECONDS)
        return number

    spark.udf.register("hold", hold, "long")


def fill(lake: ab.Repository, rows: int) -> None:
    """Append rows that are together larger than what a socket holds."""
    with lake.transaction() as tx:
        values = [os.urandom(5000).hex() for _ in range(rows)]
        tx.append(ORDERS, pa.table({"id": pa.array(range(1000, 1000 + rows), pa.int64()), "v": values}))


def test_cancelled_scan_ends_while_the_gateway_does_not_answer(
    spark: SparkSession, lake: ab.Repository, catalog: str
) -> None:
    fill(lake, 4000)
    frame = spark.table(f"{catalog}.{ORDERS}").where("length(v) < 3")
    assert frame.collect() == []  # plans the scan, too: a second run only reads
    [gateway] = gateways()

    def run() -> None:
        spark.sparkContext.addJobTag("cancelled")
        frame.collect()

    with stopped(gateway.pid):
        query = Query(run)
        wait_until(lambda: running_tasks(spark) > 0)
        spark.sparkContext.cancelJobsWithTag("cancelled")
        query.join()
        wait_until(lambda: running_tasks(spark) == 0)
    assert "cancelled" in str(query.error)
    wait_until(lambda: count_requests(gateway.socket) == 0)
    assert [one.pid for one in gateways()] == [gateway.pid]
    assert frame.collect() == []


def test_cancelled_write_publishes_nothing(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    head = lake.head_commit_id_for_branch("main")
    register_hold(spark, tmp_path, 30_000)
    rows = "SELECT id, repeat('x', 1000) AS v FROM range(10000, 40000, 1, 2)"

    def run() -> None:
        spark.sparkContext.setJobGroup("cancelled", "a write")
        spark.sql(f"INSERT INTO {catalog}.{ORDERS} SELECT hold(id, v), v FROM ({rows})")

    query = Query(run)
    wait_until((tmp_path / "held").exists)
    [gateway] = gateways()
    wait_until(lambda: count_requests(gateway.socket) > 0)
    spark.sparkContext.cancelJobGroup("cancelled")
    query.join()
    assert "cancelled" in str(query.error)
    wait_until(lambda: running_tasks(spark) == 0)
    wait_until(lambda: count_requests(gateway.socket) == 0)
    assert lake.head_commit_id_for_branch("main") == head
    spark.sql(f"INSERT INTO {catalog}.{ORDERS} SELECT id, 'new' FROM range(10000, 10010)")
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 110
    assert lake.snapshot_of("main").commit.parent_commit_id == head
