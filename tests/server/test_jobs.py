"""Jobs: a few run, some wait, more are refused, and a crash leaves none half done."""

import gzip
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.jobs import Job, JobKind, Progress, Report, Work
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


def send(project: Project, branch: str = "default", *, wait: float = 0, data: bytes = b"id,v\n7,a\n") -> httpx.Response:
    return project.client.post(
        f"{project.table(branch)}/import", params={"wait": wait}, files={"file": ("a.csv", data)}
    )


def end_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """A job when it has ended."""
    pause = threading.Event()
    while (job := ok(client.get(f"/jobs/{job_id}")))["state"] in ("queued", "running"):
        pause.wait(0.02)
    return job


def submit(running: Running, project: Project, work: Work) -> str:
    """Submit a job with work of the test's own."""
    service = running.service
    assert service is not None
    branch = service.branches.open(project.id, DEFAULT_BRANCH, service.tokens.list_all()[0])
    return service.jobs.submit(branch, JobKind.EXPORT, {}, work).id


def endless(_job: Job, report: Report) -> dict[str, Any]:
    """Work that reports progress until it is stopped."""
    for rows in count(1):
        report(Progress(rows=rows))
    raise AssertionError("not reached")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with one worker and room for two jobs that wait."""
    limits = Limits(job_workers=1, queued_jobs=2)
    with serving(tmp_path_factory.mktemp("narrow"), limits=limits) as running:
        yield running


def test_a_request_that_does_not_wait_gets_a_job(narrow: Running) -> None:
    with narrow.client() as client:
        project = new_project(client)
        with busy(narrow, project):
            response = send(project)
            job = ok(response)
            assert (response.status_code, job["state"], job["kind"]) == (202, "queued", "import")
            assert response.headers["location"] == f"/jobs/{job['id']}"
            assert ok(client.get(response.headers["location"])) == job
            assert project.ids() == [1, 2, 3]
            listed = ok(client.get("/jobs", params={"project_id": project.id}))["jobs"]
            assert [(one["kind"], one["state"]) for one in listed] == [("import", "queued"), ("export", "running")]
        done = end_of(client, job["id"])
        assert (done["state"], done["result"]["imported_rows"], done["error"]) == ("succeeded", 1, None)
        assert done["created_at"] <= done["started_at"] <= done["finished_at"]
        assert project.ids() == [7]
        listed = ok(client.get("/jobs", params={"project_id": project.id, "state": "succeeded"}))["jobs"]
        assert job["id"] == listed[0]["id"]


def test_number_of_waiting_jobs_is_limited(narrow: Running) -> None:
    with narrow.client() as client:
        project = new_project(client)
        with busy(narrow, project):
            waiting = [ok(send(project))["id"] for _ in range(2)]
            response = send(project)
            assert refused(response, 429, "too_many_requests")["details"]["retryable"] is True
            assert int(response.headers["retry-after"]) >= 1
            assert project.ids() == [1, 2, 3]  # reads do not wait for jobs
            cancelled = ok(client.delete(f"/jobs/{waiting[0]}"))
            assert (cancelled["state"], cancelled["error"]["code"]) == ("cancelled", "job_cancelled")
            assert ok(client.get(f"/jobs/{waiting[0]}")) == cancelled
            refused(client.delete(f"/jobs/{waiting[0]}"), 409, "job_not_queued")
            assert send(project).status_code == 202
        assert end_of(client, waiting[1])["state"] == "succeeded"
        refused(client.delete(f"/jobs/{waiting[1]}"), 409, "job_not_queued")
        folder = narrow.data / "files" / project.id
        assert waiting[0] not in [path.name for path in folder.iterdir()]


def test_running_job_is_cancelled_after_its_batch(narrow: Running) -> None:
    with narrow.client() as client:
        project = new_project(client)
        job_id = submit(narrow, project, endless)
        while not ok(client.get(f"/jobs/{job_id}"))["progress"]["rows"]:
            pass
        assert ok(client.delete(f"/jobs/{job_id}"))["state"] in ("running", "cancelled")
        ended = end_of(client, job_id)
        assert (ended["state"], ended["error"]["code"], ended["result"]) == ("cancelled", "job_cancelled", None)
        refused(client.delete(f"/jobs/{job_id}"), 409, "job_not_queued")
        ok(send(project, wait=30))  # its worker is free
        assert project.ids() == [7]


def test_stop_interrupts_jobs_and_answers_those_who_wait(tmp_path: Path) -> None:
    limits = Limits(job_workers=1, stop_seconds=1.0)
    with ThreadPoolExecutor(1) as pool, serving(tmp_path, limits=limits) as running, running.client() as client:
        project = new_project(client)
        job_id = submit(running, project, endless)

        def wait_for_import() -> httpx.Response:
            with running.client() as other:
                return send(Project(other, project.id), wait=60)

        answer = pool.submit(wait_for_import)
        while "import" not in [job["kind"] for job in ok(client.get("/jobs"))["jobs"]]:
            pass
    assert refused(answer.result(), 409, "interrupted")["details"]["retryable"] is True
    with serving(tmp_path) as running, running.client() as client:
        job = ok(client.get(f"/jobs/{job_id}"))
        assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")
        assert Project(client, project.id).ids() == [1, 2, 3]


def test_stop_does_not_wait_forever_for_a_job_that_does_not_stop(tmp_path: Path) -> None:
    released = threading.Event()

    def stuck(_job: Job, _report: Report) -> dict[str, Any]:
        released.wait()
        return {}

    with serving(tmp_path, limits=Limits(stop_seconds=0.2)) as running, running.client() as client:
        project = new_project(client)
        job_id = submit(running, project, stuck)
        while ok(client.get(f"/jobs/{job_id}"))["state"] != "running":
            pass
    with serving(tmp_path) as running, running.client() as client:
        job = ok(client.get(f"/jobs/{job_id}"))
        assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")
    released.set()


@pytest.mark.proof
def test_cancelled_import_changes_nothing(narrow: Running) -> None:
    data = b"id,v\n" + b"".join(b"%d,some text that makes the file longer\n" % number for number in range(700_000))
    with narrow.client() as client:
        project = new_project(client)
        job_id = ok(send(project, data=data))["id"]
        while not ok(client.get(f"/jobs/{job_id}"))["progress"]["rows"]:
            pass
        ok(client.delete(f"/jobs/{job_id}"))
        assert end_of(client, job_id)["state"] == "cancelled"
        assert project.ids() == [1, 2, 3]
        assert list((narrow.data / "files" / project.id).iterdir()) == []


def test_a_caller_that_waits_for_a_cancelled_job_gets_an_answer(narrow: Running) -> None:
    with narrow.client() as client:
        project = new_project(client)
        answers: list[httpx.Response] = []
        with busy(narrow, project):
            waiting = threading.Thread(target=lambda: answers.append(send(project, wait=60)))
            waiting.start()
            pause = threading.Event()
            while not (queued := ok(client.get("/jobs", params={"state": "queued"}))["jobs"]):
                pause.wait(0.02)
            ok(client.delete(f"/jobs/{queued[0]['id']}"))
            waiting.join()
        refused(answers[0], 409, "job_cancelled")
        assert project.ids() == [1, 2, 3]


def test_waiting_job_does_not_change_a_recreated_project(narrow: Running) -> None:
    with narrow.client() as client:
        project, other = new_project(client), new_project(client, rows=0)
        with busy(narrow, other):
            old = ok(send(project))["id"]
            key = {"Idempotency-Key": "for the old one".replace(" ", "-")}
            ok(client.post(f"{project.table()}/rows", json={"rows": [{"id": 4}]}, headers=key))
            assert client.delete(project.path).status_code == 204
            ok(client.post("/projects", json={"id": project.id, "name": "shop again"}))
            ok(client.post(f"{project.on()}/buckets", json={"name": "in_c_sales"}))
            project.create_table("orders")
            project.insert(1, 2)
        ok(send(other, wait=30))  # comes after the old one
        assert project.ids() == [1, 2]
        refused(client.get(f"/jobs/{old}"), 404, "job_not_found")
        ok(client.post(f"{project.table()}/rows", json={"rows": [{"id": 4}]}, headers=key))
        assert project.ids() == [1, 2, 4]


def test_jobs_are_shown_to_those_who_may_see_their_branch(running: Running, project: Project) -> None:
    branch = project.branch()
    job = ok(send(project, branch, wait=30))["job_id"]
    other = new_project(project.client, rows=0)
    secrets = {
        "foreign": make_token(project.client, "project", project_id=other.id),
        "reader": make_token(project.client, "read", project_id=project.id),
        "bound": make_token(project.client, "branch", project_id=project.id, branch_id=branch),
        "elsewhere": make_token(project.client, "branch", project_id=project.id, branch_id=project.branch()),
    }
    for name, secret in secrets.items():
        with running.client(secret) as client:
            listed = [one["id"] for one in ok(client.get("/jobs"))["jobs"]]
            if name in ("reader", "bound"):
                assert ok(client.get(f"/jobs/{job}"))["branch_id"] == branch
                assert listed == [job]
            else:
                unknown = refused(client.get("/jobs/job_0"), 404, "job_not_found")["message"]
                reported = refused(client.get(f"/jobs/{job}"), 404, "job_not_found")["message"]
                assert reported == unknown.replace("job_0", job)
                refused(client.delete(f"/jobs/{job}"), 404, "job_not_found")
                refused(client.get(f"/jobs/{job}/file"), 404, "job_not_found")
                assert listed == []
    with running.client(secrets["reader"]) as client:
        refused(client.delete(f"/jobs/{job}"), 403, "forbidden")
        refused(client.get("/jobs", params={"project_id": other.id}), 403, "forbidden")


def test_a_start_ends_what_a_crash_left(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        done = ok(send(project, wait=30))
        lost = ok(send(project, wait=30, data=b"id,v\n8,b\n9,c\n"))
        kept = ok(client.post(f"{project.path}/files", files={"file": ("a.csv", b"id,v\n7,a\n")}))["id"]
        export = ok(client.post(f"{project.table()}/export", json={}))
        assert running.service is not None
        # As a crash between the commit and the row would leave it; and one before the commit.
        write = running.service.database.write
        write("UPDATE jobs SET state = 'running', result = NULL WHERE id = ?", [lost["job_id"]])
        write("UPDATE jobs SET state = 'queued', result = NULL, id = 'job_never' WHERE id = ?", [done["job_id"]])
        half = tmp_path / "files" / project.id / "file_half"
        half.mkdir()
    with serving(tmp_path) as running, running.client() as client:
        found = ok(client.get(f"/jobs/{lost['job_id']}"))
        assert (found["state"], found["result"]["commit_id"]) == ("succeeded", lost["commit_id"])
        assert (found["result"]["imported_rows"], found["result"]["table_row_count"]) == (2, 2)
        never = ok(client.get("/jobs/job_never"))
        assert (never["state"], never["error"]["code"]) == ("failed", "interrupted")
        assert sorted(path.name for path in half.parent.iterdir()) == sorted([kept, export["job_id"]])
        assert client.get(export["url"]).text == '"id","v"\n8,"b"\n9,"c"\n'


def zipped_csv() -> bytes:
    return gzip.compress(b"id,v\n" + b"7,a\n" * (4 << 20))


def long_texts() -> bytes:
    file = io.BytesIO()
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"id": range(2_000), "v": texts}), file, store_schema=False)
    return file.getvalue()


@pytest.mark.parametrize("build", [zipped_csv, long_texts])
def test_cancelled_import_does_not_unpack_its_file_to_the_end(tmp_path: Path, build: Callable[[], bytes]) -> None:
    """The job waits at a pipe until it is cancelled. At its end, the check would refuse the file."""
    content = build()
    limits = Limits(job_workers=1, unpacked_free_bytes=1 << 20, unpacked_ratio=50)
    with serving(tmp_path, limits=limits) as running, running.client() as client:
        project = new_project(client)
        with busy(running, project):
            sent = {"file": ("rows", content)}
            job = ok(client.post(f"{project.table()}/import", files=sent, params={"wait": 0}))["id"]
            (file,) = (tmp_path / "files" / project.id).glob("*/data*")
            kept, pipe = file.rename(file.with_name("kept")), file.with_name("pipe")
            os.mkfifo(file)
            pipe.hardlink_to(file)
        with pipe.open("wb") as writer:  # waits until the job opens its file
            ok(client.delete(f"/jobs/{job}"))
            kept.rename(file)
            writer.write(content[:4])
        assert end_of(client, job)["state"] == "cancelled"
        assert project.ids() == [1, 2, 3]


@pytest.mark.proof
def test_a_service_that_is_killed_while_it_imports_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    lines = [b"id,v", *(b"%d,some text that makes the file longer" % number for number in range(700_000))]
    with process(tmp_path, "--init") as (started, url):
        secret = secret_of(started)
        wait_until_healthy(url, started)
        with Running(url=url, data=tmp_path, secret=secret).client() as client:
            project = new_project(client)
            branch = project.branch()
            before = [project.preview(on) for on in ("default", branch)]
            jobs = [ok(send(project, on, data=b"\n".join(lines)))["id"] for on in ("default", branch)]
            pause = threading.Event()
            while not (job := ok(client.get(f"/jobs/{jobs[0]}")))["progress"]["rows"]:
                pause.wait(0.01)
            assert job["state"] == "running"
            started.kill()
            started.wait()
    with process(tmp_path) as (started, url):
        wait_until_healthy(url, started)
        with Running(url=url, data=tmp_path, secret=secret).client() as client:
            again = Project(client, project.id)
            for job_id in jobs:
                job = ok(client.get(f"/jobs/{job_id}"))
                assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")
            assert [again.preview(on) for on in ("default", branch)] == before
            assert list((tmp_path / "files" / project.id).iterdir()) == []
            assert ok(send(again, wait=30))["table_row_count"] == 1


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_jobs_are_done_or_reported_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """Two jobs run and more wait when the service gets SIGTERM or Ctrl-C.

    The size of the file depends on the machine: a job takes at least a second, and requests take much less.
    """
    count = 25_000
    with process(tmp_path, "--init") as (started, url):
        secret = secret_of(started)
        wait_until_healthy(url, started)
        with Running(url=url, data=tmp_path, secret=secret).client() as client:
            project = new_project(client)
            branches = [project.branch() for _ in range(24)]
            seconds = 0.0
            while seconds < 1:
                count *= 2
                lines = [b"id,v", *(b"%d,some text that makes the file longer" % number for number in range(count))]
                # Each file is sent before its jobs, so that the time of an import does not include the upload.
                file = ok(client.post(f"{project.path}/files", files={"file": ("a.csv", b"\n".join(lines))}))["id"]
                tried = project.table(project.branch())
                began = time.monotonic()
                assert ok(client.post(f"{tried}/import", params={"file_id": file, "wait": 100}))["table_row_count"]
                seconds = time.monotonic() - began
            asked = {"file_id": file, "wait": 0}
            jobs = [ok(client.post(f"{project.table(on)}/import", params=asked))["id"] for on in branches]
            pause = threading.Event()
            while not ok(client.get(f"/jobs/{jobs[0]}"))["progress"]["rows"]:
                pause.wait(0.01)
        started.send_signal(number)
        assert started.wait(timeout=120) == -number  # uvicorn raises the signal again when it has stopped
    with process(tmp_path) as (started, url):
        wait_until_healthy(url, started)
        with Running(url=url, data=tmp_path, secret=secret).client() as client:
            project = Project(client, project.id)
            states = []
            for branch, job_id in zip(branches, jobs, strict=True):
                job = ok(client.get(f"/jobs/{job_id}"))
                states.append(job["state"])
                assert job["state"] == "succeeded" or job["error"]["code"] == "interrupted"
                rows = project.preview(branch, limit=1)["total_row_count"]
                assert rows == (count if job["state"] == "succeeded" else 3)
            assert "failed" in states
            repeated = branches[states.index("failed")]
            assert ok(send(project, repeated, wait=100, data=b"id,v\n7,a\n"))["table_row_count"] == 1
