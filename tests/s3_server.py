"""A real S3 server (SeaweedFS) on loopback, for the tests that need one."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.storage import open_store
from tests.processes import running_program

ACCESS_KEY, SECRET_KEY, BUCKETS = "test-access", "test-secret-never-shown", ("lake", "cold", "other")
# The options of a key that may list and read, and not write.
READER = {"aws_access_key_id": "test-reader", "aws_secret_access_key": "test-reader-secret-never-shown"}
START_SECONDS = 90
ATTEMPTS = 4


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Start a server with its data in a folder; yield the storage options that reach it.

    A port that was free when it was chosen may be taken when the server gets to it; then others are tried.
    """
    with ExitStack() as running:
        for attempt in range(ATTEMPTS):
            try:
                options = running.enter_context(_one_server(folder / str(attempt)))
            except ServerDiedError as err:
                if attempt + 1 == ATTEMPTS:
                    pytest.fail(f"the S3 server did not start:\n{err}")
            else:
                break
        yield options


class ServerDiedError(Exception):
    """The server ended or did not answer; the message is the end of its log."""


@contextmanager
def _one_server(folder: Path) -> Iterator[dict[str, str]]:
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": READER["aws_access_key_id"], "secretKey": READER["aws_secret_access_key"]}],
        "actions": ["Read", "List"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity, reader]}))
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or "weed"
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip([f"{name}.port{grpc}" for name in names for grpc in ("", ".grpc")], free_ports(8), strict=True))
    extra = dict(zip(("s3.port.iceberg", "s3.port.lance"), free_ports(2), strict=True))
    command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer"]
    command += [f"-s3.config={config}", "-master.volumeSizeLimitMB=64", "-volume.max=200", "-volume.preStopSeconds=0"]
    command += [f"-{name}={port}" for name, port in {**ports, **extra}.items()]
    log = folder / "weed.log"
    with log.open("wb") as out, running_program(command, stdout=out, stderr=out) as process:
        options = {
            "aws_endpoint": f"http://127.0.0.1:{ports['s3.port']}",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        master = f"127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}"
        filer = f"127.0.0.1:{ports['filer.port']}.{ports['filer.port.grpc']}"
        wait_until_it_serves(process, options, log, [weed, "shell", f"-master={master}", f"-filer={filer}"])
        yield options


def wait_until_it_serves(process: subprocess.Popen[str], options: dict[str, str], log: Path, shell: list[str]) -> None:
    commands = "".join(f"s3.bucket.create -name {bucket}\n" for bucket in BUCKETS).encode()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            subprocess.run(shell, input=commands, capture_output=True, timeout=15, check=False)
            for bucket in BUCKETS:
                probe = open_store(f"s3://{bucket}", {**options, "client_max_retries": "0"})
                probe.put("probe", b"up")
                probe.delete("probe")
        except (AnabranchError, subprocess.TimeoutExpired):
            time.sleep(0.5)
        else:
            return
    raise ServerDiedError(log.read_text(errors="replace")[-3000:])


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
