"""A running service: most tests share one in a thread of their process, a few talk to one of their own."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import anabranch as ab
from anabranch.server.app import create_app, listen, make_server
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.jobs import JobKind
from anabranch.server.service import Service, create_first_token, open_service
from anabranch.server.settings import Limits, Settings
from tests.processes import running_program

_NUMBERS = count(1)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True, kw_only=True)
class Running:
    """A service that listens, its data, and the secret of a token that may do everything."""

    url: str
    data: Path
    secret: str
    pid: int | None = None
    service: Service | None = field(default=None, repr=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)

    def client(self, secret: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.secret if secret is None else secret}"}
        # Without TLS there is nothing to verify, and reading all certificates takes longer than most requests.
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False)  # noqa: S501


@contextmanager
def serving(data: Path, *, limits: Limits | None = None) -> Iterator[Running]:
    """A service in a thread of this process, listening on a real port."""
    settings = Settings(data=data, limits=limits or Limits())
    service = open_service(settings)
    secret = create_first_token(service)
    listening = listen(host="127.0.0.1", port=0)
    server = make_server(create_app(settings, service=service))
    runner = asyncio.Runner()

    def run() -> None:
        with runner:
            runner.run(server.serve(sockets=[listening]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    wait_until_healthy(url)
    try:
        yield Running(url=url, data=data, secret=secret, service=service, loop=runner.get_loop())
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def process(data: Path, *arguments: str, python: str = sys.executable) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, `anabranch serve`, and where it listens."""
    port = free_port()
    command = [python, "-m", "anabranch.cli.main", "serve", "--data", str(data), "--port", str(port)]
    with running_program([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        yield started, f"http://127.0.0.1:{port}"


def secret_of(started: subprocess.Popen[str]) -> str:
    """The secret that a service with `--init` prints first."""
    assert started.stdout is not None
    return next(line for line in started.stdout if line.startswith("token: ")).split()[1]


def wait_until_healthy(url: str, started: subprocess.Popen[str] | None = None) -> None:
    """Ask until the server answers: a new one prints nothing before it listens."""
    pause = threading.Event()
    with httpx.Client(timeout=5, verify=False) as client:  # noqa: S501 - there is no TLS
        while started is None or started.poll() is None:
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pause.wait(0.05)
    assert started is not None
    raise AssertionError(f"the service ended: {started.communicate()}")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service that most tests share, each with a project of its own."""
    with serving(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`anabranch serve` in a process of its own, on a folder with the repository of a project '7'."""
    data = tmp_path_factory.mktemp("served")
    ab.init(data / "project_7")
    with process(data, "--rebuild-metadata", "--init") as (started, url):
        secret = secret_of(started)
        wait_until_healthy(url, started)
        yield Running(url=url, data=data, secret=secret)


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as found:
        yield found


@dataclass(frozen=True)
class Project:
    """A project with a table of orders, and short words for what tests do with it."""

    client: httpx.Client
    id: str

    @property
    def path(self) -> str:
        return f"/projects/{self.id}"

    def on(self, branch: str = "default") -> str:
        return f"{self.path}/branches/{branch}"

    def table(self, branch: str = "default", table: str = "orders") -> str:
        return f"{self.on(branch)}/buckets/in_c_sales/tables/{table}"

    def branch(self, name: str | None = None) -> str:
        """A new dev branch."""
        body = {"name": name or f"branch {next(_NUMBERS)}"}
        return str(ok(self.client.post(f"{self.path}/branches", json=body))["id"])

    def insert(self, *ids: int, branch: str = "default", table: str = "orders") -> dict[str, Any]:
        rows = [{"id": number, "v": f"v{number}"} for number in ids]
        return ok(self.client.post(f"{self.table(branch, table)}/rows", json={"rows": rows}))

    def preview(self, branch: str = "default", table: str = "orders", **params: Any) -> dict[str, Any]:
        return ok(self.client.get(f"{self.table(branch, table)}/preview", params=params))

    def ids(self, branch: str = "default", table: str = "orders") -> list[int]:
        rows = self.preview(branch, table, limit=10_000)["rows"]
        return sorted(row["id"] for row in rows)

    def create_table(self, table: str, branch: str = "default") -> dict[str, Any]:
        body = {
            "name": table,
            "columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}],
            "primary_key": ["id"],
        }
        return ok(self.client.post(f"{self.on(branch)}/buckets/in_c_sales/tables", json=body))


def ok(response: httpx.Response) -> dict[str, Any]:
    """What a request answered that went well."""
    assert response.is_success, response.text
    return dict(response.json()) if response.content else {}


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The envelope of a request that was refused, as it was to be."""
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), response.text
    assert set(body) == {"code", "message", "details"}
    return dict(body)


def make_token(client: httpx.Client, scope: str, **more: Any) -> str:
    """The secret of a new token."""
    return str(ok(client.post("/tokens", json={"name": f"a {scope}", "scope": scope, **more}))["secret"])


@contextmanager
def busy(running: Running, project: Project) -> Iterator[None]:
    """Let the only worker of a service wait until this is left."""
    service = running.service
    assert service is not None
    begun, released = threading.Event(), threading.Event()

    def work(*_: Any) -> dict[str, Any]:
        begun.set()
        released.wait()
        return {}

    token = service.tokens.list_all()[0]
    service.jobs.submit(service.branches.open(project.id, DEFAULT_BRANCH, token), JobKind.EXPORT, {}, work)
    begun.wait()
    try:
        yield
    finally:
        released.set()


def new_project(client: httpx.Client, *, rows: int = 3) -> Project:
    made = Project(client, str(ok(client.post("/projects", json={"name": "shop"}))["id"]))
    ok(client.post(f"{made.on()}/buckets", json={"name": "in_c_sales"}))
    made.create_table("orders")
    if rows:
        made.insert(*range(1, rows + 1))
    return made


@pytest.fixture
def project(client: httpx.Client) -> Project:
    """A new project with orders 1, 2 and 3, keyed by id."""
    return new_project(client)


@pytest.fixture(scope="session")
def shared(running: Running) -> Iterator[Project]:
    """A project with orders 1, 2 and 3 on main, which stay unchanged; branches and other tables come and go."""
    with running.client() as client:
        yield new_project(client)
