"""Pages have threads of their own, so that long ones stop neither the JSON routes nor the pages of other tokens."""

import asyncio
import socket
import threading
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from anabranch.server.request_limits import SharedThreads
from anabranch.server.settings import Limits
from anabranch.server.ui.sql import limited_processes
from tests.event_loop import run_apart
from tests.server.conftest import new_project, ok, serving
from tests.server.ui.test_service import signed_in
from tests.server.ui.test_sql import ENDLESS


def test_long_page_leaves_the_threads_of_the_json_routes_alone(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(workers=1)) as running, running.client() as api:
        project = new_project(api)
        with signed_in(running, running.secret) as (client, _):
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        address, query = urlsplit(running.url), urlencode({"sql": ENDLESS})
        head = (
            f"GET /ui/projects/{project.id}/sql?{query} HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {cookie}\r\n\r\n"
        )
        assert running.service is not None
        token = running.service.tokens.list_all()[0].id
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head.encode())
            while not limited_processes().turns.count(token):
                time.sleep(0.01)
            ok(api.get(f"{project.path}/branches"))
            assert limited_processes().turns.count(token), "the page ended first"


def test_token_has_a_share_of_the_threads() -> None:
    may_end = threading.Event()
    threads = SharedThreads("pages", Limits(shared_threads=16, shared_threads_per_token=4))
    begun: list[str] = []

    def work(owner: str) -> None:
        begun.append(owner)
        assert may_end.wait(60)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            for owner in ("a",) * 10 + ("b",) * 2:
                tasks.create_task(threads.run(owner, partial(work, owner)))
            while "b" not in begun:
                await asyncio.sleep(0.01)
            assert sorted(begun) in ([*"aaaab"], [*"aaaabb"])
            may_end.set()

    run_apart(run)
    assert sorted(begun) == [*"aaaaaaaaaabb"]


def test_request_that_is_cancelled_while_it_waits_for_a_thread_does_nothing() -> None:
    may_end = threading.Event()
    threads = SharedThreads("pages", Limits(shared_threads=1))
    done: list[str] = []

    async def run() -> None:
        first = asyncio.create_task(threads.run("a", partial(may_end.wait, 60)))
        waiting = asyncio.create_task(threads.run("b", partial(done.append, "b")))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
        may_end.set()
        await first
        await threads.run("b", partial(done.append, "next"))

    run_apart(run)
    assert done == ["next"]


def test_exception_that_asyncio_refuses_leaves_the_thread_free() -> None:
    threads = SharedThreads("pages", Limits(shared_threads_per_token=1))

    async def run() -> str:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        failing = asyncio.create_task(threads.run("a", partial(next, iter(()))))
        await asyncio.wait([failing], timeout=0.5)
        failing.cancel()
        return await asyncio.wait_for(threads.run("a", lambda: "next"), timeout=10)

    assert run_apart(run) == "next"
