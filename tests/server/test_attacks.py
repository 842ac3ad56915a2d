"""Clients that hold resources without using them: others are served while they do, and everything is released."""

import asyncio
import gzip
import io
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from anabranch.server.settings import Limits
from tests.proof_log import record_proof
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
JSON = {"Content-Type": "application/json"}


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


def test_parquet_that_unpacks_to_too_much_is_refused(hasty: Running) -> None:
    """A few thousand bytes name one long text very often: 200 MB of rows in one batch."""
    with hasty.client() as client:
        project = new_project(client)
        ids, long = pa.array(range(2_000)), pa.array(["x" * 100_000])
        indices = pa.array([0] * len(ids), pa.int32())
        texts = pa.DictionaryArray.from_arrays(indices, long)
        bomb = pa.table({"id": ids, "v": texts})
        nested = pa.table({"id": ids, "v": pa.ListArray.from_arrays(pa.array(range(len(ids) + 1), pa.int32()), texts)})
        # One byte that is not UTF-8, which DuckDB refuses to read and Arrow does not.
        broken = pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * 100_000 + b"\xff"]).view(pa.string()))
        for rows in (bomb, nested, pa.table({"id": ids, "v": broken})):
            found = refused(import_parquet(project, rows), 413, "too_large")
            assert "'rows.parquet'" in found["message"]
        assert project.ids() == [1, 2, 3]
        assert ok(import_parquet(project, bomb.slice(0, 5)))["table_row_count"] == 5


def test_format_that_unpacks_without_a_limit_is_refused(hasty: Running) -> None:
    """A few hundred bytes of ORC are 200 MB of rows in one stripe, which is read as a whole."""
    with hasty.client() as client:
        project, file = new_project(client), io.BytesIO()
        bomb = pa.table({"id": range(2_000), "v": ["x" * 100_000] * 2_000})
        orc.write_table(bomb, file, compression="zstd", dictionary_key_size_threshold=1.0)
        sent = {"file": ("rows.orc", file.getvalue())}
        refused(project.client.post(f"{project.table()}/import", files=sent), 400, "invalid_input")
        assert project.ids() == [1, 2, 3]


def import_parquet(project: Project, rows: pa.Table) -> httpx.Response:
    file = io.BytesIO()
    pq.write_table(rows, file, store_schema=False)
    return project.client.post(f"{project.table()}/import", files={"file": ("rows.parquet", file.getvalue())})


def test_description_can_be_requested_by_many_clients_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        with connections(running, 16, request) as opened:
            assert {status_of(connection) for connection in opened} == {200}


SHARED = {
    "previews": ("GET", "branches/default/buckets/in_c_sales/tables/orders/preview", None),
    "comparisons": ("GET", "branches/default/diff", None),
    "rows": ("GET", "branches/default/diff/in_c_sales/orders", None),
    "plans": ("POST", "merges/plan", {"source": "main"}),
    "conflicts": ("POST", "merges/conflicts", {"source": "main"}),
}


@pytest.mark.parametrize("kind", SHARED)
def test_waiting_requests_of_one_token_leave_threads_and_slots_to_others(tmp_path: Path, kind: str) -> None:
    """Heavy requests of one token use its share and wait. Writes, and requests of another token, are answered."""
    method, path, body = SHARED[kind]
    limits = Limits(workers=2, shared_threads=2, shared_threads_per_token=1, shared_requests_per_token=8)
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

        def send(sender: httpx.Client) -> httpx.Response:
            return sender.request(method, f"{project.path}/{path}", json=body)

        # What runs until it is released; its token has no thread left.
        threads = service.previews if kind == "previews" else service.comparisons
        blocked = asyncio.run_coroutine_threadsafe(threads.run(heavy, read), running.loop)
        begun.wait()
        pool = stack.enter_context(ThreadPoolExecutor(8))
        stack.callback(released.set)
        waiting = [pool.submit(send, client) for _ in range(8)]
        first = next(as_completed(waiting)).result()
        refused(first, 429, "too_many_requests")
        project.insert(4)
        with running.client(make_token(client, "read")) as other:
            ok(send(other))
        assert not blocked.done()
        released.set()
        answers = [one.result() for one in waiting]
        assert sorted(one.status_code for one in answers) == [200] * 7 + [429]
        blocked.result()


def test_bodies_of_running_requests_have_a_limit_of_bytes(tmp_path: Path) -> None:
    """Of two bodies that do not fit together, one is refused and the other is read."""
    limits = Limits(body_bytes=MEGABYTE, bodies_bytes_at_once=MEGABYTE)
    body = b'{"name": "large"' + b" " * 600_000
    with serving(tmp_path, limits=limits) as running, running.client() as client:
        with connections(running, 2, head("/projects", length=len(body) + 1, secret=running.secret)) as opened:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda one: one.sendall(body), opened))
            (first,), _, _ = select.select(opened, [], [])
            assert status_of(first) == 429
            (other,) = [one for one in opened if one is not first]
            assert ok(client.post("/projects", json={"id": "small"}))["id"] == "small"
            other.sendall(b"}")
            assert status_of(other) == 201
        assert client.post("/projects", content=body).status_code == 422


def test_form_is_not_read_into_memory_by_routes_without_files(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    sent = head("/projects", length=17 * MEGABYTE, secret=running.secret)
    with connections(running, 1, sent.replace(b"application/json", b"multipart/form-data; boundary=x")) as (one,):
        assert status_of(one) == 413
    use(project)


def test_body_of_very_many_values_is_refused_before_it_is_parsed(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    before = memory_of(running)
    body = b'{"rows": [' + b"{}," * (5 * MEGABYTE) + b"{}]}"
    found = refused(project.client.post(f"{project.table()}/rows", content=body, headers=JSON), 413, "too_large")
    assert "more than 4000000 values" in found["message"]
    assert memory_of(running) - before < 100 * MEGABYTE  # parsed, they would take 400
    use(project)


@pytest.mark.proof
def test_large_json_bodies_with_a_token_keep_memory_small(attacked: tuple[Running, Project]) -> None:
    running, project = attacked
    body = b'{"rows": [' + b"{}," * 1_900_000 + b'"' + b"x" * (9 * MEGABYTE) + b'"]}'

    def send(_: int) -> int:
        with running.client() as client:
            return client.post(f"{project.table()}/rows", content=body, headers=JSON).status_code

    with ThreadPoolExecutor(32) as pool:
        answers = pool.map(send, range(32))
        use(project)
        assert set(answers) == {422, 429}  # too many rows, or too many bytes at once
    use(project)
    assert memory_of(running) < 1 << 30


@contextmanager
def half_sent_bodies(running: Running, _: Project) -> Iterator[None]:
    with connections(running, Limits().requests_at_once, head("/projects", length=1000) + b"{"):
        yield


@contextmanager
def half_sent_heads(running: Running, _: Project) -> Iterator[None]:
    with connections(running, 400, b"GET /projects HTTP/1.1\r\nHost: x\r\nX-Slow: "):
        yield


@contextmanager
def repeated(action: Callable[[], object], *, clients: int) -> Iterator[None]:
    """Repeat an action in several threads until this is left."""
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            action()

    with ThreadPoolExecutor(clients) as pool:
        done = [pool.submit(work) for _ in range(clients)]
        try:
            yield
        finally:
            stopped.set()
    for one in done:
        one.result()


@contextmanager
def large_bodies(running: Running, _: Project) -> Iterator[None]:
    body = b" " * (15 * MEGABYTE)

    def send() -> None:
        with connections(running, 1, head("/projects", length=len(body))) as (one,), suppress(ConnectionError):
            one.sendall(body)

    with repeated(send, clients=40):
        yield


@contextmanager
def compressed_uploads(_: Running, project: Project) -> Iterator[None]:
    content = gzip.compress(b"id,v\n" + b"7,a\n" * (64 * MEGABYTE))
    with repeated(lambda: refused(import_file(project, content), 413, "too_large"), clients=2):
        yield


@contextmanager
def heavy_previews(running: Running, project: Project) -> Iterator[None]:
    """Eight clients that sort a table of a million rows by a text column."""
    rows = b"id,v\n" + b"".join(b"%d,%d\n" % (number, number * 7919 % 1_000_003) for number in range(1_000_000))
    project.create_table("large")
    form = {"file": ("rows.csv", rows)}
    ok(project.client.post(f"{project.table(table='large')}/import", files=form, params={"wait": 100}))
    with running.client(make_token(project.client, "read")) as other:
        reader = Project(other, project.id)
        with repeated(lambda: reader.preview(table="large", sort="v", limit=10_000), clients=8):
            yield


ATTACKS = [half_sent_bodies, half_sent_heads, large_bodies, compressed_uploads, heavy_previews]


@pytest.mark.proof
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_p99_of_other_clients_stays_within_three_times(
    attacked: tuple[Running, Project], attack: Callable[[Running, Project], AbstractContextManager[None]]
) -> None:
    """The same requests without an attack and during one, in the same run."""
    running, _ = attacked
    began = time.monotonic()
    with running.client() as client:
        project = new_project(client)
        before = p99_of(project)
        with attack(running, project):
            during = p99_of(project)
        use(project)
        after = p99_of(project)
    # At least 20 ms: below, a single delay of the scheduler decides.
    usual, memory = max(before, after, 0.020), memory_of(running)
    counts = {
        "p99_milliseconds": round(during * 1000),
        "p99_percent_of_usual": round(100 * during / usual),
        "memory_megabytes": memory // MEGABYTE,
    }
    record_proof(f"attack {attack.__name__}", counts, seconds=time.monotonic() - began)
    assert during <= 3 * usual, (before, during, after)
    assert memory < 1 << 30


def p99_of(project: Project) -> float:
    """The 99th percentile of the seconds of previews and writes."""
    taken = []
    for number in range(300):
        began = time.perf_counter()
        if number % 30:
            project.preview(limit=10)
        else:
            ok(project.client.put(f"{project.table()}/rows", json={"rows": [{"id": 1, "v": str(number)}]}))
        taken.append(time.perf_counter() - began)
    return sorted(taken)[int(len(taken) * 0.99)]


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
