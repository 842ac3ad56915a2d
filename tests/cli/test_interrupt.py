"""Ctrl-C: a real SIGINT to a real process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import short

COMMAND = [sys.executable, "-m", "anabranch.cli.main"]
NEW_TABLE = "    more:\n      columns:\n        id: int64\n"


@pytest.fixture(params=["text", "json"])
def flags(request: pytest.FixtureRequest) -> list[str]:
    return ["--json"] if request.param == "json" else []


def test_nothing_was_committed(lake: ab.Repository, folder: Path, flags: list[str]) -> None:
    if "://" in lake.uri:
        pytest.skip("a process reaches the local lake")
    before, pipe = lake.snapshot_of("main").id, folder / "schema.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [*COMMAND, "schema", "apply", str(pipe), *flags], stderr=subprocess.PIPE, text=True
    ) as process:
        with pipe.open("w"):  # returns when the process waits for the text
            process.send_signal(signal.SIGINT)
            process.wait(30)
        assert process.stderr is not None
        printed = process.stderr.read()
    assert process.returncode == 130
    message = "interrupted; nothing was committed"
    assert (
        (f'"message": "{message}"' in printed and '"code": "interrupted"' in printed)
        if flags
        else printed == f"{message}\n"
    )
    assert lake.snapshot_of("main").id == before


def test_a_commit_that_was_published_is_named(lake: ab.Repository, folder: Path) -> None:
    """The process is stopped while it prints its answer: the reader of its output does not read."""
    if "://" in lake.uri:
        pytest.skip("a process reaches the local lake")
    if not Path("/proc/self/wchan").exists():
        pytest.skip("the kernel does not report what a process waits for")
    before = lake.snapshot_of("main").id
    (folder / "schema.yaml").write_text(lake.schema_show("main").to_yaml() + NEW_TABLE)
    output, stdout = os.pipe()
    os.set_blocking(stdout, False)
    try:
        while True:
            os.write(stdout, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(stdout, True)
    with subprocess.Popen(
        [*COMMAND, "schema", "apply", "schema.yaml"], stdout=stdout, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(stdout)
        while lake.snapshot_of("main").id == before:
            assert process.poll() is None
            time.sleep(0.02)
        while "pipe_w" not in Path(f"/proc/{process.pid}/wchan").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        with os.fdopen(output, "rb") as reader:
            reader.read()
        assert process.stderr is not None
        printed = process.stderr.read()
    assert process.returncode == 130, printed
    assert printed == f"interrupted; main was at {short(lake, 'main')} already, check the log\n"
