"""Clients that hold resources without using them: others are served while they do, and everything is released."""

import asyncio
import gzip
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from anabranch.server.settings import Limits
from tests.server.conftest import (
    Project,
    Running,
    make_token,
    new_project,
    ok,
    process,
    refused,
    secret_of,
    serving,
    wait_until_healthy,
)

MEGABYTE = 1 << 20


@contextmanager
def connections(running: Running, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent something and stay open."""
    host, port = running.url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        opened = []
        for _ in range(number):
            opened.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=60)))
            opened[-1].sendall(sent)
        yield opened


def head(path: str, *, length: int, secret: str | None = None) -> bytes:
    token = "" if secret is None else f"Authorization: Bearer {secret}\r\n"
    form = f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{token}{form}\r\n".encode()


def answer_of(connection: socket.socket) -> bytes:
    """The answer that a connection gets, empty if it is closed without one."""
    answer = connection.recv(4096)
    while answer and not (length := re.search(rb"content-length: (\d+)\r\n(?:.*\r\n)*\r\n", answer)):
        answer += connection.recv(4096)
    while answer and length is not None and len(answer) < length.end() + int(length[1]):
        answer += connection.recv(4096)
    return answer


def status_of(connection: socket.socket) -> int:
    return int(answer_of(connection).split()[1])


def use(project: Project) -> None:
    """Read and write as an ordinary client does."""
    project.insert(len(project.ids()) + 1)
    assert ok(project.client.get("/health"))["status"] == "ok"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Project]]:
    """A service in a process of its own, and a client of it."""
    data = tmp_path_factory.mktemp("attacked")
    with process(data, "--init") as (started, url):
        secret = secret_of(started)
        wait_until_healthy(url, started)
        running = Running(url=url, data=data, secret=secret, pid=started.pid)
        with running.client() as client:
            yield running, new_project(client)


def test_half_sent_bodies_without_a_token_take_no_slots(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    with connections(running, Limits().requests_at_once, head("/projects", length=1000) + b"{") as opened:
        use(project)
        assert [status_of(one) for one in opened] == [401] * len(opened)
        use(project)
    use(project)


def test_half_sent_heads_do_not_block_others(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    with connections(running, 400, b"GET /projects HTTP/1.1\r\nHost: x\r\nX-Slow: ") as opened:
        use(project)
        # The service waits for some of them longer than for the others.
        closed = opened[Limits().half_sent_heads :]
        assert [status_of(one) for one in closed] == [408] * len(closed)
        use(project)
    use(project)


def test_large_bodies_without_a_token_are_refused_and_not_kept(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    before = memory_of(running)
    body = b" " * (15 * MEGABYTE)

    def send(_: int) -> int:
        with connections(running, 1, head("/projects", length=len(body))) as (one,):
            with suppress(ConnectionError):  # the service may close the connection after it has answered
                one.sendall(body)
            return status_of(one)

    with ThreadPoolExecutor(40) as pool:
        answers = pool.map(send, range(40))
        use(project)
        assert set(answers) == {401}
    use(project)
    assert memory_of(running) - before < 200 * MEGABYTE  # the bodies are 600


def memory_of(running: Running) -> int:
    """The largest memory of the service until now, in bytes."""
    status = Path(f"/proc/{running.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that waits for clients only a moment, and unpacks little."""
    limits = Limits(
        head_seconds=0.5,
        body_seconds=0.5,
        anonymous_requests_at_once=1,
        unpacked_free_bytes=MEGABYTE,
        unpacked_ratio=50,
    )
    with serving(tmp_path_factory.mktemp("hasty"), limits=limits) as running:
        yield running


def test_half_sent_head_is_answered_408(hasty: Running) -> None:
    with connections(hasty, 1, b"GET /projects HT") as (one,):
        assert status_of(one) == 408
        assert one.recv(1) == b""


def test_second_head_of_a_connection_has_the_same_limit(hasty: Running) -> None:
    request = f"GET /projects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hasty.secret}\r\n\r\n".encode()
    with connections(hasty, 1, request) as (one,):
        assert status_of(one) == 200
        one.sendall(b"GET /proj")
        assert status_of(one) == 408


def test_silent_connection_is_closed(hasty: Running) -> None:
    with connections(hasty, 1, b"") as (one,):
        assert one.recv(1) == b""


def test_half_sent_body_is_answered_408(hasty: Running) -> None:
    with connections(hasty, 1, head("/projects", length=1000, secret=hasty.secret) + b"{") as (one,):
        assert b"only 1 bytes of the body" in answer_of(one)
    with hasty.client() as client:
        ok(client.get("/projects"))


def test_connection_is_usable_after_the_rest_of_a_refused_body(hasty: Running) -> None:
    with connections(hasty, 1, head("/projects", length=10) + b"{") as (one,):
        assert status_of(one) == 401
        one.sendall(b"}" * 9)
        one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(one) == 200


def test_rest_of_a_refused_body_is_not_awaited_forever(hasty: Running) -> None:
    with connections(hasty, 1, head("/projects", length=1000) + b"{") as (one,):
        assert status_of(one) == 401
        assert one.recv(1) == b""


def import_file(project: Project, content: bytes) -> httpx.Response:
    return project.client.post(f"{project.table()}/import", files={"file": ("rows.csv.gz", content)})


def test_upload_that_unpacks_to_too_much_is_refused(hasty: Running) -> None:
    with hasty.client() as client:
        project = new_project(client)
        before = project.ids()
        bomb = gzip.compress(b"id,v\n" + b"7,a\n" * (4 * MEGABYTE))
        found = refused(import_file(project, bomb), 413, "too_large")
        assert "'rows.csv.gz'" in found["message"]
        assert str(hasty.data) not in str(found)
        assert project.ids() == before
        rows = b"id,v\n" + b"".join(b"%d,a\n" % number for number in range(1000))
        assert ok(import_file(project, gzip.compress(rows)))["table_row_count"] == 1000
        refused(import_file(project, gzip.compress(rows)[:-20]), 400, "bad_record")


def test_waiting_previews_leave_threads_and_slots_to_others(tmp_path: Path) -> None:
    """Previews of one token use its share and wait. Writes, and previews of another token, are answered."""
    limits = Limits(workers=2, preview_workers=2, previews_per_token=1, waiting_previews_per_token=8)
    with serving(tmp_path, limits=limits) as running, running.client() as client, ExitStack() as stack:
        service = running.service
        assert service is not None
        assert running.loop is not None
        project = new_project(client)
        heavy = service.tokens.list_all()[0].id
        begun, released = threading.Event(), threading.Event()

        def read() -> None:
            begun.set()
            released.wait()

        # The preview that runs until it is released; its token has no thread left.
        blocked = asyncio.run_coroutine_threadsafe(service.previews.run(heavy, read), running.loop)
        begun.wait()
        pool = stack.enter_context(ThreadPoolExecutor(8))
        stack.callback(released.set)
        waiting = [pool.submit(client.get, f"{project.table()}/preview") for _ in range(8)]
        first = next(as_completed(waiting)).result()
        refused(first, 429, "too_many_requests")
        project.insert(4)
        with running.client(make_token(client, "read")) as other:
            assert Project(other, project.id).ids() == [1, 2, 3, 4]
        assert not blocked.done()
        released.set()
        answers = [one.result() for one in waiting]
        assert sorted(one.status_code for one in answers) == [200] * 7 + [429]
        blocked.result()


@pytest.mark.proof
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_upload_that_unpacks_to_gigabytes_keeps_memory_small(
    attacked: tuple[Running, Project], tmp_path: Path, codec: str
) -> None:
    running, project = attacked
    path = tmp_path / "bomb"
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), codec) as stream:
        stream.write(b"id,v\n")
        for _ in range(4096):
            stream.write(b"7,a\n" * (MEGABYTE // 4))
    before = project.ids()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(import_file, project, path.read_bytes())
        with running.client() as client:
            use(Project(client, project.id))
        refused(answer.result(), 413, "too_large")
    assert project.ids() == [*before, len(before) + 1]
    assert memory_of(running) < 1 << 30
