"""The same program on one machine, on a standalone cluster and over Spark Connect."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.spark.clusters import Cluster, cluster_environment, connect_server, standalone_cluster
from tests.spark.programs.catalog_sql import STATEMENTS

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]
# The sources of this folder, which the driver alone knows. A PYTHONPATH would reach the processes that it starts.
DRIVER = """import runpy, sys
sys.path.insert(0, "src")
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__")
"""
SEEN = {
    "rows": 100,
    "some": 10,
    "again": 100,
    "views": ["s__orders"],
    "sql": {"n": 200, "new": 10},
    "diff": {"inserted": 100, "updated": 10, "deleted": 0},
    "columns": [["inserted", []], ["updated", ["v"]]],
}

SQL_SEEN = [
    [[10, 945]],
    [["m", 2, 0, 1], ["n", 1, 3000, 3000], ["old", 147, 2, 2099], ["old!", 50, 2000, 2098]],
    [[200]],
    [[100]],
    [[1, "one", 7]],
    [["s", "orders", False]],
]

# Rows, inserted rows and loaded rows of each procedure, and the rows of the exported file.
CALLED = [[1, None, 2], [1, None, None], [1, 2, None], [1, None, None], [1, None, None], [1, None, None], 2]
WAYS_SEEN = {
    "procedures": CALLED,
    "load": [30, 20, 20, 30, 5],
    "pipeline": [{"gold.totals": 2, "gold.doubled": 2}, [["v0", 30], ["v1", 30]]],
    "streams": [[[0, "f0"], [1, "f1"]], [[0, "f0"], [1, "f1"]], [[0, "insert"], [1, "insert"]]],
}


def make_lake(folder: Path) -> ab.Repository:
    repo = ab.init(folder / "lake")
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "v": ["old"] * 100})
    with repo.transaction() as tx:
        tx.create_table("s.orders", rows.schema, primary_key=["id"])
        tx.append("s.orders", rows)
    repo.branch_create("dev")
    return repo


def run(program: str, *arguments: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", DRIVER, f"tests.spark.programs.{program}", *arguments]
    answer = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    # Without the stack frames of the JVM, which would hide the message.
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("\tat ")]
    assert answer.returncode == 0, "\n".join(lines)[-5000:] + answer.stdout[-2000:]
    return answer.stdout


def check(repo: ab.Repository, output: str) -> None:
    seen = next(line for line in output.splitlines() if line.startswith("SEEN "))
    assert json.loads(seen.removeprefix("SEEN ")) == SEEN
    dev = repo.snapshot_of("dev")["s.orders"]
    assert dev.count_rows() == 200
    assert dev.count_rows("v = 'new'") == 10
    assert repo.snapshot_of("main")["s.orders"].count_rows() == 100
    assert len(repo.list_commits("dev")) == len(repo.list_commits("main")) + 2


@pytest.mark.proof
@pytest.mark.parametrize("start", [standalone_cluster, connect_server])
def test_workers_without_this_package_read_and_write(
    tmp_path: Path, start: Callable[[Path], AbstractContextManager[Cluster]]
) -> None:
    repo = make_lake(tmp_path)
    with start(tmp_path / "cluster") as cluster:
        check(repo, run("read_and_write", cluster.master, repo.uri, "{}", environment=cluster.environment))
        check_sql(tmp_path / "sql", cluster)
        check_ways(tmp_path / "ways", cluster)


def check_sql(folder: Path, cluster: Cluster) -> None:
    """Check that each statement on a table of the catalog is one commit, and that queries answer what it wrote."""
    repo = make_lake(folder)
    main, before = repo.head_commit_id_for_branch("main"), len(repo.list_commits("dev"))
    output = run("catalog_sql", cluster.master, repo.uri, "{}", environment=cluster.environment)
    seen = next(line for line in output.splitlines() if line.startswith("SEEN "))
    assert list(json.loads(seen.removeprefix("SEEN ")).values()) == SQL_SEEN
    commits = repo.list_commits("dev")
    assert len(commits) == before + len(STATEMENTS)
    assert [commit.message for commit in commits[: len(STATEMENTS)]] == list(reversed(STATEMENTS))
    assert repo.head_commit_id_for_branch("main") == main


def check_ways(folder: Path, cluster: Cluster) -> None:
    """Check procedures, a load, a pipeline project, exports and streams by name; all of them write to `dev` only."""
    repo = make_lake(folder)
    main = repo.head_commit_id_for_branch("main")
    output = run("catalog_ways", cluster.master, repo.uri, str(folder), environment=cluster.environment)
    seen = next(line for line in output.splitlines() if line.startswith("SEEN "))
    assert json.loads(seen.removeprefix("SEEN ")) == WAYS_SEEN
    assert repo.head_commit_id_for_branch("main") == main
    # The called load, two loads, the pipeline, three new tables, two batches of files, and one of each other stream.
    assert len(repo.list_commits("dev")) == len(repo.list_commits("main")) + 11
    assert repo.doctor(rows=True).is_clean


@pytest.mark.proof
def test_one_machine_needs_nothing_but_the_program(tmp_path: Path) -> None:
    repo = make_lake(tmp_path)
    environment = cluster_environment(sys.executable)
    del environment["PYSPARK_PYTHON"]
    check(repo, run("read_and_write", "local[*]", repo.uri, "{}", environment=environment))
