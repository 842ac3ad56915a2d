"""What ends or is replaced while a service runs: projects, sessions, and work for the page of storage."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import TooManyRequestsError
from anabranch.server.ui.requests import Sessions
from anabranch.server.ui.storage import Workshop
from anabranch.storage.requests import Progress
from tests.server.conftest import Project, Running, ok
from tests.server.conftest import running as running
from tests.server.ui.test_service import signed_in


def make_project(running: Running) -> None:
    with running.client() as api:
        ok(api.post("/projects", json={"id": "again"}))
        project = Project(api, "again")
        ok(api.post(f"{project.on()}/buckets", json={"name": "in_c_sales"}))
        project.create_table("orders")


def delete_project(running: Running) -> None:
    with running.client() as api:
        ok(api.delete("/projects/again"))


def test_project_with_the_id_of_a_deleted_one_does_not_show_its_work(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    original = ab.Repository.doctor

    def slow(self: ab.Repository, *, progress: Callable[[Progress], None]) -> Any:
        progress(Progress(stage="old tables", done=3, total=7))
        assert may_end.wait(60)
        return original(self, progress=progress)

    page = "/ui/projects/again/storage?show=doctor"
    with signed_in(running, running.secret) as (client, _):
        make_project(running)
        with monkeypatch.context() as patched:
            patched.setattr(ab.Repository, "doctor", slow)
            assert "3 of 7 old tables" in client.get(page).text
        delete_project(running)
        assert client.get(page).status_code == 404
        make_project(running)
        try:
            assert "old tables" not in client.get(page).text
        finally:
            may_end.set()
            delete_project(running)


def test_work_stops_with_the_server() -> None:
    """Python waits for all threads before a process ends, and a measurement may take an hour."""
    workshop = Workshop()

    def endless(progress: Callable[[Progress], None]) -> None:
        while True:
            progress(Progress(stage="tables", done=1, total=2))

    work = workshop.request(("lake",), endless)
    assert not work.future.done()
    workshop.close()
    assert work.future.exception(timeout=60) is not None


def test_result_that_two_visitors_wait_for_does_not_end_the_next_work() -> None:
    workshop = Workshop()
    first = workshop.request(("lake",), lambda _: 1)
    assert first.future.result() == 1
    may_end = threading.Event()
    try:
        running_now = workshop.request(("lake",), lambda _: may_end.wait(60))
        assert workshop.request(("lake",), lambda _: 3) is running_now
    finally:
        may_end.set()
        workshop.close()


def test_visitors_of_one_lake_do_not_take_all_measurements() -> None:
    workshop = Workshop()
    may_end = threading.Event()
    try:
        with ThreadPoolExecutor(4) as visitors:
            for found in visitors.map(
                lambda number: workshop.request(("busy", number), lambda _: may_end.wait(60)), range(4)
            ):
                assert not found.future.done()
        with pytest.raises(TooManyRequestsError):
            workshop.request(("busy", 5), lambda _: 1)
        assert not workshop.request(("other", 1), lambda _: 1).future.done()
    finally:
        may_end.set()
        workshop.close()


def test_sessions_of_one_token_do_not_end_those_of_others() -> None:
    sessions = Sessions()
    other = sessions.start(token_id=str(1))
    mine = [sessions.start(token_id=str(2)) for _ in range(11_000)]
    assert sessions.find(other.id) is other
    assert sessions.find(mine[-1].id) is mine[-1]
    assert sessions.find(mine[0].id) is None
