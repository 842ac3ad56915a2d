"""Run SQL on a cluster while processes of it are killed and tasks are held; print what was read and which were killed.

Each fault happens once, in the first attempt of a task, in the middle of its rows.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import anabranch as ab

HELD_SECONDS = 300
ROW = 15_000


def ancestors(pid: int) -> list[int]:
    """Return the processes that a process descends from, the nearest first."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:  # it has ended
        return ""


def find_executor() -> int:
    """Return the JVM that this Python worker works for."""
    return next(pid for pid in ancestors(os.getpid()) if "CoarseGrainedExecutorBackend" in arguments(pid))


def find_gateways(executor: int) -> list[int]:
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    found = [pid for pid in pids if "import serve_gateway" in arguments(pid)]
    return [pid for pid in found if ancestors(pid)[:1] == [executor]]


def killer(folder: str, name: str, *, whole_executor: bool) -> Callable[[int, str], int]:
    """Return a function that kills the executor which calls it, or the gateway beside it, at one row."""

    def kill(number: int, _value: str) -> int:
        if number == ROW:
            executor = find_executor()
            gateways = find_gateways(executor)
            try:
                with (Path(folder) / name).open("x") as file:
                    json.dump({"executor": executor, "gateways": gateways}, file)
            except FileExistsError:
                return number  # another attempt was killed
            for pid in [executor] if whole_executor else gateways:
                os.kill(pid, signal.SIGKILL)
            time.sleep(HELD_SECONDS if whole_executor else 0)
        return number

    return kill


def hold(number: int) -> int:
    """Keep the first attempt of a task at one row, so that Spark tries another one beside it."""
    context = TaskContext.get()
    if number == ROW and context is not None and context.attemptNumber() == 0:
        time.sleep(HELD_SECONDS)
    return number


def lose(spark: SparkSession, folder: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, whole_executor in (("executor", True), ("gateway", False)):
        for kind in ("scan", "write"):
            function = killer(folder, f"{name}-{kind}", whole_executor=whole_executor)
            spark.udf.register("kill", function, "long")
            if kind == "scan":
                query = "SELECT count(*), sum(kill(id, v)), sum(length(v)) FROM lake.s.orders"
                seen[f"{name}-{kind}"] = list(spark.sql(query).collect()[0])
            else:
                rows = "SELECT id, repeat('x', 1000) AS v FROM range(10000, 40000, 1, 2)"
                spark.sql(f"INSERT INTO lake.s.{name} SELECT kill(id, v), v, 'new' FROM ({rows})")
    return seen


def speculate(spark: SparkSession) -> None:
    spark.udf.register("hold", hold, "long")
    rows = "SELECT hold(id) AS id, 'new' AS v, 'w' AS w FROM range(10000, 30000, 1, 4)"
    spark.sql(f"INSERT INTO lake.s.inserted {rows}")
    spark.sql(
        f"MERGE INTO lake.s.merged t USING ({rows}) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def main(master: str, uri: str, folder: str) -> None:
    repo = ab.open(uri)
    config = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder,
        "spark.executor.memory": "512m",
        # The table of the MERGE is the broadcast side, so that the held rows are in the stage that writes.
        "spark.sql.autoBroadcastJoinThreshold": "100MB",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation": "true",
    }
    spark = ab.spark_session(repo, master=master, config=config)
    seen = lose(spark, folder)
    speculate(spark)
    print("SEEN " + json.dumps(seen))  # noqa: T201 - a program's answer
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
