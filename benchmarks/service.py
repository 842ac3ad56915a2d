"""What the HTTP service does in a second: previews alone and beside a running import, branches, a small import.

The service runs in a process of its own, the clients in this one, all on the same cores. There is no peer; baselines
are the service's own answers to `/health`, which touch no table, previews while nothing else runs, and what the library
takes of the processor for the same.
"""

import argparse
import io
import json
import os
import socket
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

from _comparison import seconds, to_section, working_folder, write_section

ROWS = 100_000
CLIENTS = 8
BRANCHES = 100
IMPORTS = 20
WARM_UP = 3
MEGABYTE = 1 << 20
TABLE = "/projects/bench/branches/default/buckets/in_c_bench/tables/orders"


@dataclass(frozen=True)
class Server:
    """Where a service listens, what it takes to be let in, and which process it is."""

    port: int
    token: str
    pid: int

    def processor_seconds(self) -> float:
        """What it took of the processor until now, in all of its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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
        yield wait_for(Server(port, token, started.pid))
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
    client.import_rows(make_orders(), table="orders")


def make_orders() -> bytes:
    lines = "".join(f"{number},{number % 1000}.50,customer {number % 1000}\n" for number in range(ROWS))
    return f"id,amount,customer\n{lines}".encode()


@dataclass(frozen=True)
class Taken:
    """How many seconds each request took, all of them together, and what they took of the service's processor."""

    each: list[float]
    seconds: float
    processor: float

    def percentile(self, part: float) -> float:
        return sorted(self.each)[min(len(self.each) - 1, int(len(self.each) * part))] * 1e3


def hammer(server: Server, path: str, *, until: Callable[[], bool]) -> Taken:
    """Let several clients ask again and again."""
    taken: list[float] = []

    def work() -> None:
        client = server.connect()
        while not until():
            taken.append(seconds(lambda: client.send("GET", path)))

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    used = server.processor_seconds()
    return Taken(seconds=seconds(run), each=taken, processor=server.processor_seconds() - used)


def repeat(server: Server, action: Callable[[int], object], *, times: int) -> Taken:
    """Let one client do something over and over, a few times more to warm up."""
    for number in range(WARM_UP):
        action(number)
    used = server.processor_seconds()
    each = [seconds(lambda: action(number)) for number in range(WARM_UP, WARM_UP + times)]  # noqa: B023 - used at once
    return Taken(each=each, seconds=sum(each), processor=server.processor_seconds() - used)


def row_of(what: str, taken: Taken, *, library: float | None, limit: str) -> tuple[str, ...]:
    return (
        what,
        f"{len(taken.each) / taken.seconds:.0f}",
        f"{taken.percentile(0.5):.1f}",
        f"{taken.percentile(0.99):.1f}",
        f"{taken.processor / len(taken.each) * 1e3:.1f}",
        "-" if library is None else f"{library:.1f}",
        limit,
    )


def measure_library(folder: Path) -> dict[str, float]:
    """What the same takes of the processor without a service, in milliseconds."""
    import anabranch as ab

    repository = ab.init(folder / "lake")
    (folder / "orders.csv").write_bytes(make_orders())
    repository.load("in_c_bench.orders", folder / "orders.csv", mode="append")

    def load(number: int) -> None:
        (folder / "small.csv").write_bytes(make_rows(number * 100_000, megabytes=1))
        repository.load("in_c_bench.small", folder / "small.csv", mode="append")

    def preview(_: int) -> None:
        table = repository.snapshot_of("main")["in_c_bench.orders"]
        table.to_arrow(limit=10).to_pylist()
        table.count_rows()

    actions: dict[str, Callable[[int], object]] = {
        "preview": preview,
        "branch": lambda number: repository.branch_create_from("main", f"branch{number}", mode="live"),
        "import": load,
    }
    found = {}
    for name, action in actions.items():
        for number in range(WARM_UP):
            action(number)
        began = time.process_time()
        for number in range(WARM_UP, WARM_UP + IMPORTS):
            action(number)
        found[name] = (time.process_time() - began) / IMPORTS * 1e3
    return found


def measure(server: Server, library: dict[str, float], *, seconds: float) -> list[tuple[str, ...]]:
    client = server.connect()
    prepare(client)

    def for_a_while() -> Callable[[], bool]:
        end = time.perf_counter() + seconds
        return lambda: time.perf_counter() >= end

    preview = f"{TABLE}/preview?limit=10"
    health = hammer(server, "/health", until=for_a_while())
    alone = hammer(server, preview, until=for_a_while())
    beside = beside_import(server, preview)
    made = repeat(server, lambda number: make_branch(client, number), times=BRANCHES)
    imported = repeat(
        server,
        lambda number: client.import_rows(make_rows(number * 100_000, megabytes=1), table="small"),
        times=IMPORTS,
    )
    return [
        row_of(f"`/health`, {CLIENTS} clients", health, library=None, limit="Python's web stack"),
        row_of(
            f"previews, {CLIENTS} clients", alone, library=library["preview"], limit="that, one interpreter at a time"
        ),
        row_of(
            "previews beside an import of 100 MB",
            beside,
            library=None,
            limit="cores: the import takes one, and is in this processor time",
        ),
        row_of(
            "branch creation",
            made,
            library=library["branch"],
            limit="two writes of metadata that wait for the disk, and the log's",
        ),
        row_of("import of 1 MB of CSV, warm", imported, library=library["import"], limit="the load"),
    ]


def make_branch(client: Client, number: int) -> None:
    client.send("POST", "/projects/bench/branches", {"name": f"branch {number}"})


def beside_import(server: Server, path: str) -> Taken:
    large, is_done = make_rows(0, megabytes=100), threading.Event()

    def load() -> None:
        server.connect().import_rows(large, table="large")
        is_done.set()

    importing = threading.Thread(target=load)
    importing.start()
    taken = hammer(server, path, until=is_done.is_set)
    importing.join()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder, running(folder / "data") as server:
        rows = measure(server, measure_library(folder), seconds=chosen.seconds)
    section = to_section(
        "The HTTP service (`service.py`)",
        [
            f"One service and its {CLIENTS} clients on the same cores; previews of 10 rows of a table of {ROWS:,},",
            f"each for {chosen.seconds:g} seconds; {BRANCHES} branches; {IMPORTS} imports into a table without a key.",
            "*Processor* is what one took of it on average in the service, and in the library for the same.",
        ],
        rows,
        heads=("what", "per second", "p50, ms", "p99, ms", "processor, ms", "library's", "what limits it"),
        packages=("fastapi", "uvicorn", "pylance", "duckdb"),
        folder=folder,
    )
    sys.stdout.write(section)
    write_section("service", section)


if __name__ == "__main__":
    main()
