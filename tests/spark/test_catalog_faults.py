"""The process beside the JVM killed during a write: a clear error, nothing visible, and the next try works."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.spark.conftest import ORDERS

pytestmark = pytest.mark.spark


def gateways() -> list[int]:
    """Return the processes beside the JVMs that this process started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = (parent, b"pyspark_anabranch.gateway" in command)
    return [pid for pid, (parent, is_one) in parents.items() if is_one and _descends(parent, parents)]


def _descends(pid: int, parents: dict[int, tuple[int, bool]]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid][0]
    return pid == os.getpid()


def register_kill(spark: SparkSession) -> None:
    """Make `kill(id)` known to SQL: it ends the process that serves the query, and returns its argument."""
    [gateway] = gateways()

    def kill(number: int) -> int:
        with suppress(ProcessLookupError):  # an earlier row did
            os.kill(gateway, signal.SIGKILL)
        return number

    spark.udf.register("kill", kill, "long")


def test_killed_process_is_replaced(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    assert spark.table(f"{catalog}.{ORDERS}").count() == 100  # starts the process
    head = lake.head_commit_id_for_branch("main")

    register_kill(spark)
    with pytest.raises(Exception, match=r"process of this JVM ended|process that began this write has ended"):
        spark.sql(f"INSERT INTO {catalog}.{ORDERS} SELECT kill(id + 10000), repeat('x', 100000) FROM range(600)")
    assert lake.head_commit_id_for_branch("main") == head
    spark.sql(f"INSERT INTO {catalog}.{ORDERS} SELECT id + 10000, 'new' FROM range(600)")
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 700
    assert lake.snapshot_of("main").commit.parent_commit_id == head
    assert len(gateways()) == 1


def test_deleted_file_is_named(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    frame = spark.table(f"{catalog}.{ORDERS}")
    files = [file for file in Path(lake.uri).rglob("*.lance") if file.is_file()]
    for file in files:
        file.unlink()
    with pytest.raises(Exception, match=r"\.lance"):
        frame.collect()
