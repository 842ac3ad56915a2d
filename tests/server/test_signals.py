"""SIGTERM and Ctrl-C: a real signal to a real process."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import free_port, serving, wait_until_healthy

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@contextmanager
def stuck(data: Path, *, stop_seconds: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service whose only job never ends, and its address."""
    port = free_port()
    command = [sys.executable, "-m", "tests.server.programs.stuck", str(data), str(port), str(stop_seconds)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}", started)
        yield started, f"http://127.0.0.1:{port}"
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_service_ends_although_a_job_does_not_stop(tmp_path: Path, number: signal.Signals) -> None:
    with stuck(tmp_path, stop_seconds=0.2) as (started, _):
        started.send_signal(number)
        _, error = started.communicate(timeout=60)
        assert started.returncode == -number
    with serving(tmp_path) as running, running.client() as client:
        (job,) = client.get("/jobs").json()["jobs"]
        assert error == f"jobs did not stop in time: {job['id']}\n"
        assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")


def test_second_ctrl_c_ends_the_service_at_once(tmp_path: Path) -> None:
    with stuck(tmp_path, stop_seconds=3600) as (started, url):
        started.send_signal(signal.SIGINT)
        wait_until_refused(url)
        started.send_signal(signal.SIGINT)
        _, error = started.communicate(timeout=60)
        assert error == ""
        assert started.returncode == -signal.SIGINT
    with serving(tmp_path) as running, running.client() as client:
        (job,) = client.get("/jobs").json()["jobs"]
        assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")


def wait_until_refused(url: str) -> None:
    """Ask until the service accepts no connections."""
    while True:
        try:
            httpx.get(f"{url}/health", verify=False)  # noqa: S501 - there is no TLS
        except httpx.TransportError:
            return
        time.sleep(0.02)
