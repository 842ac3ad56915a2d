"""Requests with a key: done once, however often they are sent."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from anabranch.server.settings import Limits
from tests.server.conftest import (
    Project,
    Running,
    busy,
    make_token,
    new_project,
    ok,
    process,
    refused,
    secret_of,
    serving,
    wait_until_healthy,
)

KEY = "Idempotency-Key"
REPLAY = "Idempotent-Replay"


def once(key: str) -> dict[str, str]:
    return {KEY: key}


def send_file(project: Project, key: str, data: bytes = b"id,v\n7,a\n", **options: Any) -> httpx.Response:
    path = f"{project.table()}/import"
    return project.client.post(path, params=options, headers=once(key), files={"file": ("a.csv", data)})


def lose_answer(running: Running, key: str) -> None:
    """Leave what a crash after the commit and before the answer leaves."""
    assert running.service is not None
    running.service.database.write("UPDATE idempotency_keys SET status = NULL, response = NULL WHERE key = ?", [key])


def writes(project: Project) -> Iterator[tuple[str, Callable[[str], httpx.Response]]]:
    """A request of each kind, to be sent with a key."""
    client, table = project.client, project.table()
    rows = {"rows": [{"id": 4, "v": "v4"}]}
    new = {"name": "made", "columns": [{"name": "id", "type": "int64"}]}
    column = {"columns": [{"name": "w", "type": "string"}]}
    yield "insert", lambda key: client.post(f"{table}/rows", json=rows, headers=once(key))
    yield "delete rows", lambda key: client.delete(f"{table}/rows", params={"where": "id < 3"}, headers=once(key))
    yield "import", lambda key: send_file(project, key)
    yield "add a column", lambda key: client.post(f"{table}/columns", json=column, headers=once(key))
    yield "create", lambda key: client.post(table.rpartition("/")[0], json=new, headers=once(key))
    yield "drop", lambda key: client.delete(project.table(table="made"), headers=once(key))
    yield "branch", lambda key: client.post(f"{project.path}/branches", json={"name": "b"}, headers=once(key))
    yield "file", lambda key: client.post(f"{project.path}/files", files={"file": b"x"}, headers=once(key))
    yield "export", lambda key: client.post(f"{table}/export", json={}, headers=once(key))


def test_the_same_request_is_done_once_and_answered_twice(project: Project) -> None:
    for name, send in writes(project):
        first, second = send(name.replace(" ", "-")), send(name.replace(" ", "-"))
        assert first.is_success, (name, first.text)
        assert (second.status_code, second.content) == (first.status_code, first.content), name
        assert REPLAY not in first.headers
        assert second.headers[REPLAY] == "true"
        assert second.headers.get("content-type") == first.headers.get("content-type")
    branches = ok(project.client.get(f"{project.path}/branches"))["branches"]
    assert [branch["name"] for branch in branches] == ["b"]
    assert len(ok(project.client.get(f"{project.path}/files"))["files"]) == 1


def test_without_a_key_or_with_another_a_request_is_another_one(project: Project) -> None:
    ok(project.client.put(f"{project.table()}/primary-key", json={"columns": []}))
    for headers in (once("a"), once("b"), {}):
        response = project.client.post(f"{project.table()}/rows", json={"rows": [{"id": 9}]}, headers=headers)
        assert REPLAY not in response.headers
    assert project.ids() == [1, 2, 3, 9, 9, 9]


def test_a_key_is_good_for_one_request(project: Project) -> None:
    client, path = project.client, f"{project.table()}/rows"
    ok(client.post(path, json={"rows": [{"id": 4}]}, headers=once("k")))
    branch = project.branch()
    others: list[Callable[[], httpx.Response]] = [
        lambda: client.post(path, json={"rows": [{"id": 5}]}, headers=once("k")),
        lambda: client.put(path, json={"rows": [{"id": 4}]}, headers=once("k")),
        lambda: client.post(f"{project.table(branch)}/rows", json={"rows": [{"id": 4}]}, headers=once("k")),
        lambda: client.delete(path, params={"where": "id = 4"}, headers=once("k")),
    ]
    for other in others:
        refused(other(), 409, "idempotency_key_reused")
    ok(send_file(project, "f", b"id,v\n7,a\n", incremental=True))
    refused(send_file(project, "f", b"id,v\n7,b\n", incremental=True), 409, "idempotency_key_reused")
    refused(send_file(project, "f", b"id,v\n7,a\n"), 409, "idempotency_key_reused")
    assert send_file(project, "f", b"id,v\n7,a\n", incremental=True, wait=1).headers[REPLAY] == "true"
    assert project.ids() == [1, 2, 3, 4, 7]
    assert project.ids(branch) == project.ids()


def test_a_key_belongs_to_its_token(running: Running, project: Project) -> None:
    path, body = f"{project.table()}/rows", {"rows": [{"id": 4}]}
    ok(project.client.post(path, json=body, headers=once("mine")))
    with running.client(make_token(project.client, "project", project_id=project.id)) as client:
        response = client.post(path, json=body, headers=once("mine"))
        assert refused(response, 409, "key_conflict")
        assert REPLAY not in response.headers
    with running.client(make_token(project.client, "read", project_id=project.id)) as client:
        refused(client.post(path, json=body, headers=once("mine")), 403, "forbidden")
    with running.client("ab_unknown") as client:
        refused(client.post(path, json=body, headers=once("mine")), 401, "unauthenticated")


def test_refusals_that_stay_are_kept_and_others_are_not(project: Project) -> None:
    path = f"{project.table()}/rows"
    for replayed in (None, "true"):
        response = project.client.post(path, json={"rows": [{"id": 1}]}, headers=once("taken"))
        refused(response, 409, "key_conflict")
        assert response.headers.get(REPLAY) == replayed
    for _ in range(2):
        response = project.client.post(path, json={"rows": "none"}, headers=once("wrong"))
        refused(response, 422, "invalid_request")
        assert REPLAY not in response.headers
    ok(project.client.post(path, json={"rows": [{"id": 4}]}, headers=once("wrong")))
    for key in (b"", b"two words", b"x" * 256, "é".encode()):
        headers = httpx.Headers([(KEY.encode(), key)])
        refused(project.client.post(path, json={"rows": [{"id": 5}]}, headers=headers), 400, "invalid_input")
    assert project.ids() == [1, 2, 3, 4]


def test_an_answer_with_a_secret_is_not_kept(project: Project) -> None:
    body = {"name": "a token", "scope": "read", "project_id": project.id}
    refused(project.client.post("/tokens", json=body, headers=once("t")), 400, "invalid_input")


def test_a_key_is_forgotten_in_time(running: Running, project: Project) -> None:
    path = f"{project.table()}/rows"
    ok(project.client.post(path, json={"rows": [{"id": 4}]}, headers=once("old")))
    assert running.service is not None
    running.service.database.write("UPDATE idempotency_keys SET created_at = '2020-01-01' WHERE key = 'old'")
    ok(project.client.post(path, json={"rows": [{"id": 5}]}, headers=once("old")))
    assert project.client.post(path, json={"rows": [{"id": 5}]}, headers=once("old")).headers[REPLAY] == "true"
    assert project.ids() == [1, 2, 3, 4, 5]


def test_a_commit_whose_answer_was_lost_is_found_again(running: Running, project: Project) -> None:
    for name, send in writes(project):
        if name in ("branch", "file", "export"):
            continue
        key = f"lost-{name.replace(' ', '-')}"
        first = send(key)
        assert first.is_success, (name, first.text)
        lose_answer(running, key)
        commits = ok(project.client.get(f"{project.on()}/commits"))["commits"]
        again = send(key)
        assert again.content == first.content, name
        assert REPLAY not in again.headers
        assert ok(project.client.get(f"{project.on()}/commits"))["commits"] == commits
        assert send(key).headers[REPLAY] == "true"
    assert ok(project.client.get(project.table()))["row_count"] == 1


def test_a_request_that_was_not_done_when_its_answer_was_lost_is_done(running: Running, project: Project) -> None:
    path = f"{project.table()}/rows"
    refused(project.client.post(path, json={"rows": [{"id": 1}]}, headers=once("again")), 409, "key_conflict")
    lose_answer(running, "again")
    ok(project.client.delete(path, params={"where": "id = 1"}))
    response = project.client.post(path, json={"rows": [{"id": 1}]}, headers=once("again"))
    assert ok(response)["rows"] == 1
    assert project.ids() == [1, 2, 3]


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Running]:
    """A service with one worker, room for one job that waits, and little patience."""
    limits = Limits(job_workers=1, queued_jobs=1, request_seconds=3.0)
    with serving(tmp_path, limits=limits) as running:
        yield running


def test_one_of_two_at_once_has_to_wait_and_the_answer_is_kept_for_the_other(narrow: Running) -> None:
    with narrow.client() as client:
        project = new_project(client)
        answers: list[httpx.Response] = []
        with busy(narrow, project):
            first = threading.Thread(target=lambda: answers.append(send_file(project, "k", wait=60)))
            first.start()
            pause = threading.Event()
            while not ok(client.get("/jobs", params={"state": "queued"}))["jobs"]:
                pause.wait(0.02)
            reported = refused(send_file(project, "k", wait=60), 409, "busy")
            assert reported["details"]["retryable"] is True
            refused(send_file(project, "full"), 429, "too_many_requests")
            first.join()
            refused(answers[0], 408, "too_slow")
            refused(send_file(project, "k", wait=60), 409, "busy")
        while (last := send_file(project, "k", wait=60)).status_code == 409:
            pause.wait(0.02)
        assert ok(last)["imported_rows"] == 1
        assert last.headers[REPLAY] == "true"
        assert ok(send_file(project, "full"))["imported_rows"] == 1
        assert len(ok(client.get("/jobs", params={"project_id": project.id}))["jobs"]) == 3
        assert list((narrow.data / "files" / project.id).iterdir()) == []


def test_key_is_usable_after_its_request_timed_out_before_its_work(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(request_seconds=2.0)) as running, running.client() as client:
        project = new_project(client)
        assert running.service is not None
        path, body = f"{project.path}/branches", {"name": "late"}
        with ThreadPoolExecutor(1) as pool:
            # The row of the key waits for the turn of another writer.
            wait = threading.Event()
            with running.service.database.turn():
                first = pool.submit(client.post, path, json=body, headers=once("k"))
                wait.wait(3)
            refused(first.result(), 408, "too_slow")
            deadline = time.monotonic() + 30
            while (last := client.post(path, json=body, headers=once("k"))).status_code == 409:
                assert time.monotonic() < deadline, last.text
                wait.wait(0.05)
        assert ok(last)["name"] == "late"
        assert len(ok(client.get(path))["branches"]) == 1


@pytest.mark.proof
@pytest.mark.parametrize("answered", [1, 9, 25])
def test_across_a_kill_every_request_with_a_key_is_done_exactly_once(tmp_path: Path, answered: int) -> None:
    """The table has no primary key, so that a row that is written twice is there twice."""
    answers: dict[int, Any] = {}
    enough = threading.Event()

    def insert(client: httpx.Client, project: Project, number: int) -> dict[str, Any]:
        path, body = f"{project.table()}/rows", {"rows": [{"id": number}]}
        return ok(client.post(path, json=body, headers=once(f"row-{number}")))

    def insert_some(running: Running, project: Project, first: int) -> None:
        with running.client() as client, suppress(httpx.TransportError):
            for number in range(first, first + 100):
                answers[number] = insert(client, project, number)
                if len(answers) >= answered:
                    enough.set()

    with process(tmp_path, "--init") as (started, url):
        running = Running(url=url, data=tmp_path, secret=secret_of(started))
        wait_until_healthy(url, started)
        with running.client() as client:
            project = new_project(client, rows=0)
            ok(client.put(f"{project.table()}/primary-key", json={"columns": []}))
        threads = [threading.Thread(target=insert_some, args=(running, project, 100 * n)) for n in range(4)]
        for thread in threads:
            thread.start()
        enough.wait()
        started.kill()
        for thread in threads:
            thread.join()
    before = dict(answers)
    with process(tmp_path) as (started, url):
        wait_until_healthy(url, started)
        with Running(url=url, data=tmp_path, secret=running.secret).client() as client:
            again = Project(client, project.id)
            # Those after the last that was answered may have been done, half done, or never have come.
            done = [sum(number // 100 == worker for number in before) for worker in range(4)]
            numbers = [100 * worker + n for worker in range(4) for n in range(done[worker] + 1)]
            sent = {number: insert(client, again, number) for number in numbers}
            assert {number: sent[number] for number in before} == before
            assert again.ids() == sorted(numbers)
