"""What the HTTP service does in a second: previews alone and beside a running import, branches, a small import.

The service runs in a process of its own, the clients in this one, all on the same cores. There is no peer; baselines
are the service's own answers to `/health`, which touch no table, and previews while nothing else runs.
"""

import argparse
import io
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from _comparison import to_section, working_folder, write_section

ROWS = 100_000
CLIENTS = 8
BRANCHES = 100
IMPORTS = 20
MEGABYTE = 1 << 20
TABLE = "/projects/bench/branches/default/buckets/in_c_bench/tables/orders"


@dataclass(frozen=True)
class Server:
    """Where a service listens, and what it takes to be let in."""

    port: int
    token: str

    def connect(self) -> "Client":
        return Client(HTTPConnection("127.0.0.1", self.port, timeout=600), self.token)


@dataclass(frozen=True)
class Client:
    connection: HTTPConnection
    token: str

    def send(self, method: str, path: str, body: Any = None, *, form: bytes | None = None) -> Any:
        """What a request answers; anything but success ends the benchmark."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if form is not None:
            headers["Content-Type"] = "multipart/form-data; boundary=bench"
        elif body is not None:
            headers["Content-Type"] = "application/json"
        content = form if form is not None else None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, body=content, headers=headers)
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer.decode()[:500]}")
        return json.loads(answer) if answer else None

    def import_rows(self, text: bytes, *, table: str, wait: int = 100) -> Any:
        head = b'--bench\r\nContent-Disposition: form-data; name="file"; filename="rows.csv"\r\n\r\n'
        path = f"{TABLE.rpartition('/')[0]}/{table}/import?incremental=true&wait={wait}"
        return self.send("POST", path, form=head + text + b"\r\n--bench--\r\n")


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, "-m", "anabranch.cli.main", "serve", "--data", str(folder), "--port", str(port)]
    started = subprocess.Popen([*command, "--init", "--json"], stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert started.stdout is not None  # noqa: S101 - it is a pipe
        said = ""
        while True:
            said += started.stdout.readline()
            try:
                token = str(json.loads(said)["token"])
                break
            except json.JSONDecodeError:
                continue
        yield wait_for(Server(port, token))
    finally:
        started.terminate()
        started.wait()


def wait_for(server: Server) -> Server:
    while True:
        try:
            server.connect().send("GET", "/health")
        except ConnectionError:
            time.sleep(0.05)
        else:
            return server


def make_rows(start: int, *, megabytes: float) -> bytes:
    """So much CSV, with ids from a start on."""
    text = io.StringIO()
    text.write("id,amount,customer\n")
    number = start
    while text.tell() < megabytes * MEGABYTE:
        text.write(f"{number},{number % 1000}.50,customer {number % 1000}\n")
        number += 1
    return text.getvalue().encode()


def prepare(client: Client) -> None:
    client.send("POST", "/projects", {"id": "bench"})
    client.send("POST", "/projects/bench/branches/default/buckets", {"name": "in_c_bench"})
    columns = [("id", "int64"), ("amount", "float64"), ("customer", "string")]
    for table, key in (("orders", ["id"]), ("small", []), ("large", [])):
        body = {
            "name": table,
            "columns": [{"name": name, "type": kind} for name, kind in columns],
            "primary_key": key,
        }
        client.send("POST", TABLE.rpartition("/")[0], body)
    lines = "".join(f"{number},{number % 1000}.50,customer {number % 1000}\n" for number in range(ROWS))
    client.import_rows(f"id,amount,customer\n{lines}".encode(), table="orders")


def hammer(server: Server, path: str, *, until: Callable[[], bool]) -> tuple[list[float], float]:
    """How long each request of several clients took, and all of them together."""
    taken: list[list[float]] = [[] for _ in range(CLIENTS)]

    def work(mine: list[float]) -> None:
        client = server.connect()
        while not until():
            began = time.perf_counter()
            client.send("GET", path)
            mine.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(one for mine in taken for one in mine), time.perf_counter() - began


def row_of(what: str, found: list[float], seconds: float | None, limit: str) -> tuple[str, ...]:
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    per_second = "-" if seconds is None else f"{len(found) / seconds:.0f}"
    return what, per_second, f"{statistics.median(found) * 1e3:.1f}", f"{p99 * 1e3:.1f}", limit


def measure(server: Server, *, seconds: float) -> list[tuple[str, ...]]:
    client = server.connect()
    prepare(client)

    def for_a_while() -> Callable[[], bool]:
        end = time.perf_counter() + seconds
        return lambda: time.perf_counter() >= end

    preview = f"{TABLE}/preview?limit=10"
    rows = [
        row_of(f"`/health`, {CLIENTS} clients", *hammer(server, "/health", until=for_a_while()), "Python's web stack"),
        row_of(
            f"previews, {CLIENTS} clients",
            *hammer(server, preview, until=for_a_while()),
            "that, and a Lance scan",
        ),
    ]
    large = make_rows(0, megabytes=100)
    is_done = threading.Event()

    def load() -> None:
        server.connect().import_rows(large, table="large")
        is_done.set()

    importing = threading.Thread(target=load)
    importing.start()
    beside = hammer(server, preview, until=is_done.is_set)
    importing.join()
    rows.append(row_of("previews beside an import of 100 MB", *beside, "cores: the import takes one"))
    made, imported = [], []
    for number in range(BRANCHES):
        began = time.perf_counter()
        client.send("POST", "/projects/bench/branches", {"name": f"branch {number}"})
        made.append(time.perf_counter() - began)
    rows.append(row_of("branch creation", sorted(made), None, "writes that wait for the disk: metadata, log, audit"))
    for number in range(IMPORTS + 3):
        text = make_rows(number * 100_000, megabytes=1)
        began = time.perf_counter()
        client.import_rows(text, table="small")
        if number >= 3:
            imported.append(time.perf_counter() - began)
    rows.append(row_of("import of 1 MB of CSV, warm", sorted(imported), None, "the load; the job's rows on disk"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder, running(folder / "data") as server:
        rows = measure(server, seconds=chosen.seconds)
    section = to_section(
        "The HTTP service (`service.py`)",
        [
            f"One service and its {CLIENTS} clients on the same cores; previews of 10 rows of a table of {ROWS:,},",
            f"each for {chosen.seconds:g} seconds; {BRANCHES} branches; {IMPORTS} imports into a table without a key.",
        ],
        rows,
        heads=("what", "per second", "p50, ms", "p99, ms", "what limits it"),
        packages=("fastapi", "uvicorn", "pylance", "duckdb"),
        folder=folder,
    )
    sys.stdout.write(section)
    write_section("service", section)


if __name__ == "__main__":
    main()
