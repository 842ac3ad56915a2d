"""Real Spark clusters on loopback, started from the wheel: a standalone master with two workers, and Spark Connect.

Their Python has the third-party libraries and not this package, as on a cluster where it is not installed.
"""

import os
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.s3_server import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 120
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Cluster:
    """Where its master is, the Python of its workers, and the output of its processes."""

    master: str
    python: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return cluster_environment(self.python)

    def logs(self) -> str:
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.folder.rglob("*.log")))


def python_without_the_package(folder: Path) -> str:
    """An interpreter that finds every installed library but this package."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A path named in a .pth file is searched, but no .pth file in it, such as that of an editable install, is read.
    (folder / "lib" / version / "site-packages" / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = str(folder / "bin" / "python")
    imports = [python, "-c", "import pyspark, lance; import anabranch"]
    lacks = subprocess.run(imports, env=cluster_environment(python), capture_output=True, text=True)
    assert "No module named 'anabranch'" in lacks.stderr, lacks.stderr
    return python


def cluster_environment(python: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    return kept | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    python = python_without_the_package(folder / "python")
    port, *web = free_ports(4)
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    at = ["--host", "127.0.0.1"]
    with _running(
        folder / "master.log", python, "spark-class", f"{deploy}.master.Master", *at, "--port", str(port),
        "--webui-port", str(web[0]), until=f"127.0.0.1:{port}",
    ):  # fmt: skip
        worker = ["spark-class", f"{deploy}.worker.Worker", *at, "--cores", "1", "--memory", "1g"]
        with (
            _running(
                folder / "worker1.log", python, *worker, "--webui-port", str(web[1]), "-d", str(folder / "1"), master
            ),
            _running(
                folder / "worker2.log", python, *worker, "--webui-port", str(web[2]), "-d", str(folder / "2"), master
            ),
        ):
            yield Cluster(master=master, python=python, folder=folder)


@contextmanager
def connect_server(folder: Path) -> Iterator[Cluster]:
    """A Spark Connect server that does the work by itself."""
    python = python_without_the_package(folder / "python")
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(folder),
    }
    flags = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with _running(
        folder / "connect.log", python, "spark-submit", "--master", "local[2]", *flags, "--class", CONNECT,
        "spark-internal", until=f"127.0.0.1:{port}",
    ):  # fmt: skip
        yield Cluster(master=f"sc://127.0.0.1:{port}", python=python, folder=folder)


@contextmanager
def _running(log: Path, python: str, program: str, *arguments: str, until: str | None = None) -> Iterator[None]:
    """A process of Spark's own, up when it listens."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(SPARK_HOME / "bin" / program), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=cluster_environment(python), cwd=log.parent)
    try:
        if until is not None:
            _wait(process, until, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"{address} did not start:\n{log.read_text(errors='replace')[-3000:]}")
