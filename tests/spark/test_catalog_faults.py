"""The process beside the JVM killed during a write: a clear error, nothing visible, and the next try works."""

import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.session import CATALOG_CLASS
from tests.spark.conftest import ORDERS
from tests.spark.processes import gateways, wait_until

pytestmark = pytest.mark.spark


def register_kill(spark: SparkSession) -> None:
    """Make `kill(id)` known to SQL: it ends the process that serves the query, and returns its argument."""
    [gateway] = gateways()

    def kill(number: int) -> int:
        with suppress(ProcessLookupError):  # an earlier row did
            os.kill(gateway.pid, signal.SIGKILL)
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


def test_next_scan_starts_another_process_in_a_private_folder(
    spark: SparkSession, lake: ab.Repository, catalog: str
) -> None:
    frame = spark.table(f"{catalog}.{ORDERS}").where("length(v) < 3")
    assert frame.collect() == []  # plans the scan, too: a second run only reads
    [gateway] = gateways()
    os.kill(gateway.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{gateway.pid}").exists())  # until the JVM knows that it ended
    assert frame.collect() == []  # by another process
    [second] = gateways()
    assert second.pid != gateway.pid
    folder = Path(second.socket).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.local
def test_settings_name_the_python(spark: SparkSession, lake: ab.Repository, tmp_path: Path) -> None:
    assert gateway_of(spark, lake, tmp_path, "python") == "python"
    assert gateway_of(spark, lake, tmp_path, "python", "driverPython") == "driverPython"


def gateway_of(spark: SparkSession, lake: ab.Repository, folder: Path, *settings: str) -> str:
    """Set up a catalog with a Python of its own for each setting; return the name of the one that was run."""
    name = f"own_{len(settings)}_{abs(hash(lake.uri))}"
    for setting in settings:
        own = folder / f"{name}_{setting}"
        own.write_text(f'#!/bin/sh\necho {setting} > {folder / name}\nexec {sys.executable} "$@"\n')
        own.chmod(0o700)
        spark.conf.set(f"spark.sql.catalog.{name}.{setting}", str(own))
    spark.conf.set(f"spark.sql.catalog.{name}.repo", lake.uri)
    spark.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    before = {one.pid for one in gateways()}
    assert spark.table(f"{name}.{ORDERS}").count() == 100
    for one in gateways():
        if one.pid not in before:
            os.kill(one.pid, signal.SIGKILL)
    return (folder / name).read_text().strip()


@pytest.mark.local
def test_deleted_file_is_named(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    frame = spark.table(f"{catalog}.{ORDERS}")
    files = [file for file in Path(lake.uri).rglob("*.lance") if file.is_file()]
    for file in files:
        file.unlink()
    with pytest.raises(Exception, match=r"\.lance"):
        frame.collect()
