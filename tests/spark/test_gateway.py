"""The process beside the JVM, by its protocol: when it ends, whom it answers, and how errors and cancels reach it."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.spark.gateway.requests import Frame, Frames
from tests.spark.conftest import ORDERS, orders
from tests.spark.processes import GATEWAY

PROJECT = Path(__file__).parents[2]
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Gateway:
    process: subprocess.Popen[bytes]
    path: Path

    @contextmanager
    def connection(self) -> Iterator[Frames]:
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(str(self.path))
            yield Frames(connected)

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        with self.connection() as frames:
            frames.send_json({"op": op, **arguments})
            kind, content = frames._read()
            assert kind is Frame.JSON, content
            answer: dict[str, Any] = json.loads(content)
            return answer

    def sockets(self) -> int:
        """Return the number of its open sockets that have the path: one to listen, and one for each request."""
        lines = Path("/proc/net/unix").read_text().splitlines()
        return sum(line.endswith(f" {self.path}") for line in lines)


@contextmanager
def started(folder: Path, *arguments: str, errors: int | None = None) -> Iterator[Gateway]:
    folder.mkdir(mode=0o700)
    path = folder / "socket"
    command = [sys.executable, "-c", GATEWAY.decode(), str(path), *arguments]
    environment = os.environ | {"PYTHONPATH": str(PROJECT / "src")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield Gateway(process, path)
        finally:
            process.kill()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with started(tmp_path / "gateway") as found:
        yield found


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_request(gateway: Gateway, repo: ab.Repository) -> dict[str, Any]:
    """Return the request for all rows of the orders."""
    common = {"repo": repo.uri, "storage_options": {}}
    table = gateway.ask("load_table", parts=ORDERS.split("."), branch="main", **common)
    [split] = gateway.ask("plan_scan", version_ref=table["version_ref"], cores=1, **common)["splits"]
    return {"op": "read_rows", "version_ref": table["version_ref"], "split": split, "schema": table["schema"], **common}


def test_process_ends_with_its_standard_input(tmp_path: Path) -> None:
    with started(tmp_path / "gateway") as gateway:
        (gateway.path.parent / "anabranch-0.zip").touch()
        assert gateway.process.stdin is not None
        gateway.process.stdin.close()  # as when the JVM is killed
        assert gateway.process.wait(timeout=WAIT_SECONDS) == 0
        assert not gateway.path.parent.exists()


def test_idle_process_ends_unless_a_write_was_begun(tmp_path: Path, lake: ab.Repository) -> None:
    with started(tmp_path / "gateway", "1") as gateway:
        common = {"repo": lake.uri, "storage_options": {}}
        table = gateway.ask("load_table", parts=ORDERS.split("."), branch="main", **common)
        begun = gateway.ask(
            "begin_write",
            parts=ORDERS.split("."),
            branch="main",
            mode="append",
            message="",
            schema=table["schema"],
            **common,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            gateway.process.wait(timeout=2)
        gateway.ask("abort_write", write=begun["write"], **common)
        assert gateway.process.wait(timeout=WAIT_SECONDS) == 0


def test_write_with_a_definition_creates_or_replaces_a_table(gateway: Gateway, lake: ab.Repository) -> None:
    columns = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": False, "metadata": {}}]}
    definition = {"schema": json.dumps(columns), "properties": {"primaryKey": "k"}, "partitions": [], "defaults": {}}

    def write(mode: str, key: str) -> dict[str, Any]:
        """Write no rows; return the answer, or the error."""
        request = {
            "mode": mode, "parts": key.split("."), "branch": "main", "message": mode, "schema": json.dumps(columns),
            "definition": {**definition, "constraints": []}, "repo": lake.uri, "storage_options": {},
        }  # fmt: skip
        with gateway.connection() as frames:
            frames.send_json({"op": "begin_write", **request})
            begun: dict[str, Any] = json.loads(frames._read()[1])
        if "write" in begun:
            gateway.ask("commit_write", write=begun["write"], tasks=[], repo=lake.uri, storage_options={})
        return begun

    assert write("create", ORDERS)["error"] == "TableExistsError"
    assert write("replace", "s.new")["error"] == "TableNotFoundError"
    assert lake.snapshot_of("main")[ORDERS].primary_key == ("id",)
    for mode, key in (("create", "s.new"), ("create_or_replace", "s.newer"), ("replace", ORDERS)):
        assert write(mode, key)["writer"]["is_overwrite"] == (mode == "replace")
        table = lake.snapshot_of("main")[key]
        assert (table.schema.names, table.primary_key, table.count_rows()) == (["k"], ("k",), 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_other_users_are_not_answered() -> None:
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected');"
        "s.sendall(b'J' + (15).to_bytes(4, 'big') + b'{\"op\": \"hello\"}'); print(s.recv(5))"
    )
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, started(Path(folder) / "gateway") as gateway:
        assert gateway.ask("hello") == {"protocol": 1}
        # As if the folder did not keep others out.
        for path, mode in ((gateway.path, 0o777), (gateway.path.parent, 0o755), (Path(folder), 0o755)):
            path.chmod(mode)
        answer = subprocess.run([python, "-c", program, str(gateway.path)], user=65534, capture_output=True, text=True)
    assert answer.stdout.startswith("connected"), answer.stderr
    assert "J" not in answer.stdout


def test_credentials_are_in_no_argument_and_no_environment(gateway: Gateway, lake: ab.Repository) -> None:
    gateway.ask("list_tables", repo=lake.uri, branch="main", storage_options={"aws_secret_access_key": "hidden-key"})
    for name in ("cmdline", "environ"):
        assert b"hidden-key" not in Path(f"/proc/{gateway.process.pid}/{name}").read_bytes()


def test_error_after_rows_reaches_the_reader(gateway: Gateway, lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(1000, 1010))
    request = read_request(gateway, lake)
    newest = max((Path(lake.uri).rglob("*.lance")), key=lambda file: (file.is_file(), file.stat().st_mtime_ns))
    newest.unlink()
    kinds: list[Frame] = []
    with gateway.connection() as frames:
        frames.send_json(request)
        while not kinds or kinds[-1] is Frame.ARROW:
            kind, content = frames._read()
            kinds.append(kind)
    assert kinds[-1] is Frame.ERROR
    assert len(kinds) > 2  # after the schema and some rows
    error = json.loads(content)
    assert newest.name in error["problem"]
    assert "Traceback" not in error["problem"]
    assert error["hint"]


def test_closed_connection_ends_the_scan(gateway: Gateway, lake: ab.Repository) -> None:
    wide = pa.table({"id": range(5000, 5400), "v": ["x" * 100_000] * 400})  # more than a socket holds
    with lake.transaction() as tx:
        tx.append(ORDERS, wide)
    request = read_request(gateway, lake)
    wait_until(lambda: gateway.sockets() == 1)
    with gateway.connection() as frames:
        frames.send_json(request)
        frames._read()
        assert gateway.sockets() == 2
    wait_until(lambda: gateway.sockets() == 1)
    assert gateway.ask("hello") == {"protocol": 1}


@pytest.mark.parametrize("kind", [pa.int32(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_long_list_of_values_is_pushed_as_their_range(gateway: Gateway, lake: ab.Repository, kind: pa.DataType) -> None:
    with lake.transaction() as tx:
        tx.create_table("s.days", pa.schema([("v", kind)]))
        tx.append("s.days", pa.table({"v": pa.array(range(8_000), kind)}))
    common = {"repo": lake.uri, "storage_options": {}}
    version_ref = gateway.ask("load_table", parts=["s", "days"], branch="main", **common)["version_ref"]
    values = [{"op": "literal", "value": value} for value in range(1_000, 7_000)]
    wanted = {"op": "IN", "args": [{"op": "column", "name": ["v"]}, *values]}
    [pushed] = gateway.ask("push_filters", version_ref=version_ref, filters=[wanted], **common)["pushed"]
    assert not pushed["exact"]
    assert lake.snapshot()["s.days"].count_rows(pushed["sql"]) == 6_000


def test_commit_after_an_external_write_warns_on_standard_error(tmp_path: Path, lake: ab.Repository) -> None:
    lance.write_dataset(orders(900, 901), lake.snapshot()[ORDERS].uri, mode="append")
    with started(tmp_path / "gateway", errors=subprocess.PIPE) as gateway:
        column = {"op": "column", "name": ["id"]}
        filters = [{"op": "=", "args": [column, {"op": "literal", "value": 1}]}]
        common = {"repo": lake.uri, "storage_options": {}, "parts": ORDERS.split("."), "branch": "main"}
        assert gateway.ask("delete_where", filters=filters, message="one", **common) == {"can_delete": True}
        assert gateway.process.stdin is not None
        assert gateway.process.stderr is not None
        gateway.process.stdin.close()
        assert b"ExternalWriteWarning" in gateway.process.stderr.read()
