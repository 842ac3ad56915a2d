"""A pipeline whose process is killed halfway leaves nothing to see, and nothing to repair."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.repo.log.entries import RunPhase
from tests.pipelines.conftest import CUSTOMERS, ORDERS, WriteFile
from tests.pipelines.test_run import raw

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PROJECT = Path(__file__).parents[2]

FIVE = """
    import os, time

    pipeline.sql("bronze.customers", "SELECT DISTINCT customer AS id, 'new' AS name FROM bronze.orders")
    pipeline.sql("gold.one", "SELECT * FROM bronze.customers", primary_key=["id"])

    @pipeline.table("gold.two", inputs=["gold.one"])
    def two(one):
        if "STOP_AT" in os.environ:
            open(os.environ["STOP_AT"], "w").close()
            while True:
                time.sleep(0.1)
        return one

    pipeline.sql("gold.three", "SELECT * FROM gold.two")
    pipeline.sql("gold.four", "SELECT * FROM gold.three")
"""


@pytest.mark.proof
def test_a_killed_run_leaves_no_trace_and_the_next_succeeds(
    lake: ab.Repository, write_file: WriteFile, tmp_path: Path
) -> None:
    file, mark = write_file(FIVE), tmp_path / "halfway"
    before, log = lake.snapshot_of("dev"), lake.reflog("dev")
    seen = {key: raw(lake, key) for key in (ORDERS, CUSTOMERS)}
    command = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "pipeline",
        "run",
        str(file),
        "--repo",
        lake.uri,
        "--branch",
        "dev",
    ]
    with (tmp_path / "printed").open("wb") as printed:
        process = subprocess.Popen(
            command, env={**os.environ, "STOP_AT": str(mark)}, cwd=PROJECT, stdout=printed, stderr=printed
        )
    while not mark.exists() and process.poll() is None:
        time.sleep(0.1)
    assert process.poll() is None, (tmp_path / "printed").read_text()
    process.send_signal(signal.SIGKILL)
    process.wait()
    # It had written two of the five.
    (killed,) = lake.run_list()
    assert (killed.commit_id, sorted(killed.tables)) == (None, [CUSTOMERS, "gold.one"])
    assert killed.state in (RunPhase.RUNNING, RunPhase.EXPIRED)
    assert lake.snapshot_of("dev").id == before.id
    assert lake.reflog("dev") == log
    assert list(lake.snapshot_of("dev")) == [CUSTOMERS, ORDERS]
    assert {key: raw(lake, key) for key in (ORDERS, CUSTOMERS)} == seen
    done = ab.Pipeline.load(file).run(lake, branch="dev")
    assert done.commit_id == lake.snapshot_of("dev").id
    assert [output.rows for output in done.outputs] == [3] * 5
    assert lake.snapshot_of("dev")[CUSTOMERS].count_rows("name = 'new'") == 3
    assert raw(lake, "gold.four")[1] == 3
