"""Insert rows with a session of its own, whose gateway kills the driver at one point of the commit.

The same program is the gateway. It reports the processes of the driver, kills the driver's Python and JVM, and waits:
it must end because the JVM has ended.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import open_repository
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.server import serve
from tests.handles import open_with
from tests.processes import kill
from tests.repo.programs.killing import FatalStore, NamedPoint
from tests.spark.processes import descendants, iter_processes

HELD_SECONDS = 300


def kill_driver(report: Path) -> None:
    """Kill the Python of the driver and the JVM that is the parent of this gateway."""
    machine = os.getppid()
    [driver] = [one.parent for one in iter_processes() if one.pid == machine]
    report.write_text(json.dumps([driver, *(one.pid for one in descendants(driver))]))
    kill(driver, machine)
    time.sleep(HELD_SECONDS)


def serve_until(point: str, report: str, socket: str, idle: str) -> None:
    fatal = NamedPoint(point, lambda: kill_driver(Path(report)))

    def open_fatal(uri: str, **options: Any) -> Repository:
        context = testing.config_of(open_repository(uri, **options))
        return open_with(replace(context, store=FatalStore(context.store, fatal)))

    serve(socket, open_fatal, idle_seconds=int(idle))


def insert(uri: str, point: str, report: str, folder: str) -> None:
    python = Path(folder) / "python"
    own = f"{sys.executable} -m tests.spark.programs.insert_and_die gateway"
    python.write_text(f'#!/bin/sh\nexec {own} "{point}" "{report}" "$3" "$4"\n')
    python.chmod(0o700)
    spark = ab.spark_session(ab.open(uri), master="local[2]")
    spark.conf.set("spark.sql.catalog.lake.driverPython", str(python))
    spark.udf.register("same", lambda number: number, "long")
    spark.sql("INSERT INTO lake.s.orders SELECT same(id), 'new' FROM range(1000, 1100, 1, 2)")


if __name__ == "__main__":
    if sys.argv[1] == "gateway":
        serve_until(*sys.argv[2:])
    else:
        insert(*sys.argv[2:])
