"""Measure the HTTP service: `/health`, previews alone and beside a running import, branch creation, a small import.

The service runs in a process of its own, the clients in threads of this one, all on the same cores. The baselines are a
plain FastAPI application with one route, measured in the same run, and the processor time that the library takes for
the same work.
"""

import argparse
import io
import itertools
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
BRANCHES = 200
IMPORTS = 20
WARM_UP = 3
MEGABYTE = 1 << 20
NUMBERS = itertools.count()
TABLE = "/projects/bench/branches/default/buckets/in_c_bench/tables/orders"


@dataclass(frozen=True)
class Server:
    """The port of a service, its token and its process id."""

    port: int
    token: str
    pid: int

    def processor_seconds(self) -> float:
        """Return the processor time of all threads of the service until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> "Client":
        return Client(HTTPConnection("127.0.0.1", self.port, timeout=600), self.token)


class LeanClient:
    """Sends prepared requests over one connection.

    `http.client` takes 0.3 ms of the processor for a request. With 8 clients in this process, their interpreter would
    be the limit instead of the service.
    """

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"Host: bench\r\nAuthorization: Bearer {server.token}\r\n"

    def prepare(self, method: str, path: str, body: Any = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        more = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
        return f"{method} {path} HTTP/1.1\r\n{self._head}{more}\r\n".encode() + content

    def send(self, request: bytes) -> None:
        """Send a request and read its answer; any status but success ends the benchmark."""
        self._socket.sendall(request)
        answer = self._socket.recv(1 << 16)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._socket.recv(1 << 16)
        head = answer[:end].lower()
        missing = int(head.partition(b"content-length:")[2].split(b"\r\n")[0]) - (len(answer) - end - 4)
        while missing > 0:
            missing -= len(self._socket.recv(1 << 16))
        if head[9:10] != b"2":
            raise RuntimeError(f"{request[:100]!r}: {answer[:500]!r}")


@dataclass(frozen=True)
class Client:
    connection: HTTPConnection
    token: str

    def send(self, method: str, path: str, body: Any = None, *, form: bytes | None = None) -> Any:
        """Return the answer of a request; any status but success ends the benchmark."""
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


@contextmanager
def running_plain() -> Iterator[Server]:
    """A FastAPI application with one route, in a process of its own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    started = subprocess.Popen([sys.executable, str(Path(__file__).with_name("_plain_service.py")), str(port)])  # noqa: S603
    try:
        yield wait_for(Server(port, "", started.pid))
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
    """Return CSV rows of a size, with ids that begin at `start`."""
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
    """The seconds of each request, of all of them together, and the processor seconds of the service."""

    each: list[float]
    seconds: float
    processor: float

    def percentile(self, part: float) -> float:
        return sorted(self.each)[min(len(self.each) - 1, int(len(self.each) * part))] * 1e3


def hammer(server: Server, requests: Callable[[LeanClient], Iterator[bytes]]) -> Taken:
    """Send requests with several clients, each one the next as soon as it has an answer."""
    taken: list[float] = []

    def work() -> None:
        client = LeanClient(server)
        for request in requests(client):
            took = seconds(lambda: client.send(request))  # noqa: B023 - used at once
            taken.append(took)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    used = server.processor_seconds()
    return Taken(seconds=seconds(run), each=taken, processor=server.processor_seconds() - used)


def repeating(path: str, *, until: Callable[[], bool]) -> Callable[[LeanClient], Iterator[bytes]]:
    """Requests for the same path until a condition holds."""

    def requests(client: LeanClient) -> Iterator[bytes]:
        request = client.prepare("GET", path)
        while not until():
            yield request

    return requests


def creating_branches(client: LeanClient) -> Iterator[bytes]:
    for _ in range(BRANCHES // CLIENTS):
        yield client.prepare("POST", "/projects/bench/branches", {"name": f"branch {next(NUMBERS)}"})


def repeat(server: Server, action: Callable[[int], object], *, times: int) -> Taken:
    """Repeat an action with one client, after a few runs to warm up."""
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
    """Return the processor milliseconds of the same work in the library."""
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
    with running_plain() as other:
        plain = hammer(other, repeating("/health", until=for_a_while()))
    health = hammer(server, repeating("/health", until=for_a_while()))
    alone = hammer(server, repeating(preview, until=for_a_while()))
    beside = beside_import(server, preview)
    made = hammer(server, creating_branches)
    made_alone = repeat(server, lambda number: make_branch(client, number), times=BRANCHES)
    imported = repeat(
        server,
        lambda number: client.import_rows(make_rows(number * 100_000, megabytes=1), table="small"),
        times=IMPORTS,
    )
    return [
        row_of("a plain FastAPI app with one route", plain, library=None, limit="Python's web stack"),
        row_of("`/health`", health, library=None, limit="Python's web stack"),
        row_of("previews", alone, library=library["preview"], limit="web stack and scan, in one interpreter"),
        row_of(
            "previews beside an import of 100 MB",
            beside,
            library=None,
            limit="cores: the import takes one, and is included in this processor time",
        ),
        row_of(
            "branch creation, one client",
            made_alone,
            library=library["branch"],
            limit="the log entry and one metadata transaction, which wait for the disk",
        ),
        row_of(
            "branch creation",
            made,
            library=library["branch"],
            limit="processor: the log entry and the SQL of all clients in one interpreter",
        ),
        row_of("import of 1 MB of CSV, warm", imported, library=library["import"], limit="the load"),
    ]


def make_branch(client: Client, number: int) -> None:
    client.send("POST", "/projects/bench/branches", {"name": f"single {number}"})


def beside_import(server: Server, path: str) -> Taken:
    large, is_done = make_rows(0, megabytes=100), threading.Event()

    def load() -> None:
        server.connect().import_rows(large, table="large")
        is_done.set()

    importing = threading.Thread(target=load)
    importing.start()
    taken = hammer(server, repeating(path, until=is_done.is_set))
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
            f"each for {chosen.seconds:g} seconds; {BRANCHES} branches; {IMPORTS} imports into a table without a key,",
            "by one client. *Processor* is the mean processor time of a request in the service, and of the same work",
            "in the library.",
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
