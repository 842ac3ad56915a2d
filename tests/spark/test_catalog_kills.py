"""Processes of a cluster that are killed, and tasks that run twice: right answers, and each write is one commit."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.s3_server import free_ports
from tests.spark.clusters import Cluster, _running, python_without_the_package
from tests.spark.processes import is_running
from tests.spark.test_clusters import run

pytestmark = [pytest.mark.spark, pytest.mark.proof]

NEW = 30_000


@contextmanager
def cluster_of_two_hosts(folder: Path) -> Iterator[Cluster]:
    """A master and two workers on different addresses: Spark runs no second attempt on the host of the first."""
    python = python_without_the_package(folder / "python")
    port, *web = free_ports(4)
    master, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    with _running(
        folder / "master.log", python, "spark-class", f"{deploy}.master.Master", "--host", "127.0.0.1",
        "--port", str(port), "--webui-port", str(web[0]), until=f"127.0.0.1:{port}",
    ), _worker(folder, python, 1, web[1], master), _worker(folder, python, 2, web[2], master):  # fmt: skip
        yield Cluster(master=master, python=python, folder=folder)


@contextmanager
def _worker(folder: Path, python: str, number: int, web: int, master: str) -> Iterator[None]:
    with _running(
        folder / f"worker{number}.log", python, "spark-class", "org.apache.spark.deploy.worker.Worker",
        "--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g", "--webui-port", str(web),
        "-d", str(folder / str(number)), master,
    ):  # fmt: skip
        yield


def make_lake(folder: Path) -> ab.Repository:
    """A lake with 20,000 orders of 10,000 letters each, and tables to write to."""
    repo = ab.init(folder / "lake")
    rows = pa.table({
        "id": pa.array(range(20_000), pa.int64()),
        "v": [f"{number:05d}" * 2000 for number in range(20_000)],
        "w": ["old"] * 20_000,
    })  # fmt: skip
    with repo.transaction() as tx:
        for name in ("orders", "executor", "gateway", "inserted", "merged"):
            tx.create_table(f"s.{name}", rows.schema, primary_key=["id"])
        tx.append("s.orders", rows)
        tx.append("s.merged", rows.slice(0, 15_010).set_column(1, "v", pa.array(["old"] * 15_010)))
    return repo


def events(folder: Path) -> list[dict[str, Any]]:
    """Return what Spark wrote down about its work."""
    files = [file for file in folder.rglob("*") if file.is_file() and "app-" in file.name and ".crc" not in file.name]
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.startswith("{")]


def test_lost_processes_and_second_attempts_change_no_answer(tmp_path: Path) -> None:
    repo = make_lake(tmp_path)
    head = repo.head_commit_id_for_branch("main")
    log = tmp_path / "events"
    log.mkdir()
    with cluster_of_two_hosts(tmp_path / "cluster") as cluster:
        output = run("lose_processes", cluster.master, repo.uri, str(log), environment=cluster.environment)
    [line] = [line for line in output.splitlines() if line.startswith("SEEN ")]
    assert json.loads(line.removeprefix("SEEN ")) == {
        "executor-scan": [20_000, sum(range(20_000)), 200_000_000],
        "gateway-scan": [20_000, sum(range(20_000)), 200_000_000],
    }
    check_rows(repo, head)
    check_processes(log)
    check_attempts(events(log))


def check_rows(repo: ab.Repository, head: str) -> None:
    """Check that each of the four writes is one commit, in which each row is once."""
    commits = repo.list_commits("main")
    numbers = [commit.graph_commit_id for commit in commits]
    assert numbers.index(head) == 4
    main = repo.snapshot_of("main")
    for name in ("executor", "gateway"):
        found = main[f"s.{name}"].to_arrow(columns=["id"])["id"].to_pylist()
        assert sorted(found) == list(range(10_000, 40_000))
    assert sorted(main["s.inserted"].to_arrow(columns=["id"])["id"].to_pylist()) == list(range(10_000, 30_000))
    merged = main["s.merged"].to_arrow(columns=["id", "v"]).sort_by("id")
    assert merged["id"].to_pylist() == list(range(30_000))
    assert main["s.merged"].count_rows("v = 'new'") == 20_000
    assert repo.doctor().is_clean


def check_processes(log: Path) -> None:
    """Check that a killed executor was not survived by its gateway, and that one gateway served it."""
    for name in ("executor-scan", "executor-write", "gateway-scan", "gateway-write"):
        killed = json.loads((log / name).read_text())
        assert len(killed["gateways"]) == 1, name
        assert not any(is_running(pid) for pid in [killed["executor"], *killed["gateways"]])


def check_attempts(found: list[dict[str, Any]]) -> None:
    """Check that tasks failed and were tried again, and that second attempts ran beside the first and won."""
    ends = [one for one in found if one["Event"] == "SparkListenerTaskEnd"]
    reasons = [one["Task End Reason"]["Reason"] for one in ends]
    assert reasons.count("ExecutorLostFailure") >= 2
    assert reasons.count("ExceptionFailure") >= 1  # a scan may have received all its rows before its gateway was killed
    starts = [one["Task Info"] for one in found if one["Event"] == "SparkListenerTaskStart"]
    assert sum(one["Speculative"] for one in starts) >= 2
    won = [one for one in ends if one["Task Info"]["Speculative"] and one["Task End Reason"]["Reason"] == "Success"]
    assert len(won) >= 2
    assert reasons.count("TaskKilled") >= 2
