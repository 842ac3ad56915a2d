"""A driver that is killed around its commit: all of the statement is visible or nothing, and no process is left."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.spark.gateway.requests import Frame
from tests.processes import ROOT, run_until_killed
from tests.repo.clocks import at_store_time
from tests.spark.clusters import cluster_environment
from tests.spark.conftest import ORDERS, orders
from tests.spark.processes import is_running, wait_until
from tests.spark.test_gateway import Gateway, started


def run_and_die(lake: ab.Repository, folder: Path, point: str) -> None:
    """Insert 100 rows in a process that dies at a point; wait until all its processes have ended."""
    report = folder / "report"
    program = [sys.executable, "-m", "tests.spark.programs.insert_and_die", "insert"]
    environment = cluster_environment(sys.executable) | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src")])}
    run_until_killed([*program, lake.uri, point, str(report), str(folder)], cwd=ROOT, env=environment)
    pids = json.loads(report.read_text())
    assert len(pids) >= 4  # Python, the JVM, the gateway, and Python workers
    wait_until(lambda: not any(map(is_running, pids)))


def data_files(lake: ab.Repository) -> set[Path]:
    return set(Path(lake.uri).rglob("*.lance")) - {path for path in Path(lake.uri).rglob("*.lance") if path.is_dir()}


def write_rows(gateway: Gateway, begun: dict[str, Any], rows: pa.Table, common: dict[str, Any]) -> dict[str, Any]:
    """Send rows as a task does; return its result."""
    with gateway.connection() as frames:
        frames.send_json({"op": "write_rows", "writer": begun["writer"], **common})
        content = pa.BufferOutputStream()
        with pa.ipc.new_stream(content, rows.schema) as stream:
            stream.write_table(rows)
        frames.send_arrow(content.getvalue())
        frames.send_end()
        kind, answer = frames._read()
        assert kind is Frame.JSON, answer
        found: dict[str, Any] = json.loads(answer)
        return found


@pytest.mark.parametrize("is_committed", [False, True])
def test_killed_gateway_has_published_all_or_nothing(
    lake: ab.Repository, tmp_path: Path, *, is_committed: bool
) -> None:
    head, files = lake.head_commit_id_for_branch("main"), data_files(lake)
    common = {"repo": lake.uri, "storage_options": {}}
    named = {"parts": ORDERS.split("."), "branch": "main", **common}
    with started(tmp_path / "gateway") as gateway:
        table = gateway.ask("load_table", **named)
        begun = gateway.ask("begin_write", mode="append", message="two tasks", schema=table["schema"], **named)
        tasks = [write_rows(gateway, begun, orders(n, n + 50, "new"), common) for n in (1000, 1050)]
        if is_committed:
            gateway.ask("commit_write", write=begun["write"], tasks=tasks, **common)
        gateway.process.kill()
        gateway.process.wait()
    written = data_files(lake) - files
    assert len(written) == 2
    main = lake.snapshot_of("main")
    assert main[ORDERS].count_rows() == (200 if is_committed else 100)
    assert (main.commit.parent_commit_id if is_committed else main.id) == head
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(2000, 2001))
    at_store_time(lake, timedelta(days=3)).gc()
    assert (written <= data_files(lake)) == is_committed
    assert lake.doctor().is_clean


@pytest.mark.spark
@pytest.mark.proof
@pytest.mark.parametrize("point", ["before put_if_absent _commits", "after put_if_absent _commits"])
def test_driver_killed_before_the_commit_publishes_nothing(lake: ab.Repository, tmp_path: Path, point: str) -> None:
    head, files = lake.head_commit_id_for_branch("main"), data_files(lake)
    run_and_die(lake, tmp_path, point)
    assert lake.head_commit_id_for_branch("main") == head
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 100
    written = data_files(lake) - files
    assert written
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(1000, 1100, "again"))
    at_store_time(lake, timedelta(days=3)).gc()
    assert not written & data_files(lake)
    assert lake.snapshot_of("main")[ORDERS].count_rows("v = 'again'") == 100
    assert lake.doctor().is_clean


@pytest.mark.spark
@pytest.mark.proof
def test_driver_killed_after_the_commit_has_published_all(lake: ab.Repository, tmp_path: Path) -> None:
    head = lake.head_commit_id_for_branch("main")
    run_and_die(lake, tmp_path, "after put_if_absent _versions")
    main = lake.snapshot_of("main")
    assert main.commit.parent_commit_id == head
    assert main[ORDERS].count_rows("v = 'new'") == 100
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(2000, 2001))
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 201
    assert lake.doctor().is_clean
