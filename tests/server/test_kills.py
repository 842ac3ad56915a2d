"""Services killed while they work: what was acknowledged is there afterwards, and nothing is half there."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import anabranch as ab
from anabranch.errors import BranchNotFoundError
from tests.processes import Program
from tests.server.conftest import (
    Project,
    Running,
    make_token,
    new_project,
    ok,
    process,
    refused,
    serving,
    wait_until_healthy,
)
from tests.server.programs.clients import Budget, Client, build_site, run_clients
from tests.server.programs.inspecting import check_agreement, check_knowledge
from tests.server.programs.process_pool import BATCH

WRITTEN = [1, 2, 3, 10, 11]
FEW = 2
MANY = 40
_NUMBERS = count(1)
# Threads that create branches at once, and the number of branches after which their service is killed.
_CREATORS = 8
_CREATED = 40


@pytest.fixture(scope="module")
def process_pool() -> Iterator[Program]:
    """A process that forks services off itself."""
    with Program("process_pool", package="tests.server.programs") as program:
        yield program


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """At how many points on its way a scenario is killed."""
    return MANY if request.config.getoption("--proof") else FEW


Prepare = Callable[[Project], str]
Check = Callable[[Running, Project, str, list[str]], None]


def kill_at_points(
    process_pool: Program, data: Path, scenario: str, *, kills: int, prepare: Prepare, check: Check
) -> None:
    """Let services do the same to one thing after the other, each killed at another point, and check the things.

    Each service first finishes what the one before left.
    """
    with serving(data) as running, running.client() as client:
        project = new_project(client)
        names = [prepare(project) for _ in range(1 + FEW)]
    asked: dict[str, Any] = {"scenario": scenario, "data": str(data), "project": project.id}
    whole = process_pool.points_of(name=names[0], **asked)
    fatal = spread(len(whole), kills)
    if len(fatal) > FEW:
        with serving(data) as running, running.client() as client:
            names += [prepare(Project(client, project.id)) for _ in fatal[FEW:]]
    outcomes = {names[0]: whole}
    for name, point in zip(names[1:], fatal, strict=True):
        answer = process_pool.ask("kill", name=name, fatal=point, **asked)
        outcomes[name] = answer.get("killed") or answer["done"]
    with serving(data) as running, running.client() as client:
        check_metadata(running)
        for name, passed in outcomes.items():
            check(running, Project(client, project.id), name, passed)


def spread(count: int, most: int) -> list[int]:
    """Some of the numbers below another one, not the first: all, or some at the same distance."""
    return list(range(count)) if most >= count else [count * number // (most + 1) for number in range(1, most + 1)]


def check_metadata(running: Running) -> None:
    """The content of `metadata.duckdb` is what the repositories have, before any request."""
    assert running.service is not None
    read = running.service.database.read
    projects = {row["id"] for row in read("SELECT id FROM projects")}
    assert {path.name for path in running.data.glob("*project_*")} == {f"project_{name}" for name in projects}
    assert read("SELECT * FROM intents") == []
    branches: set[tuple[str, str]] = set()
    copies: set[tuple[str, str]] = set()
    for project_id in projects:
        folder = running.data / f"project_{project_id}"
        repository = ab.open(folder)
        living = {info.name: info for info in repository.branch_list() if info.name != "main"}
        branches |= {(project_id, name) for name in living}
        for name, info in living.items():
            there = repository.snapshot_of(name)
            copies |= {(name, key) for key in info.own_tables if key in there}
        homes = {path.name for path in folder.glob("tables/*/*.lance/tree/*") if list(path.rglob("*.*"))}
        assert homes <= living.keys()
    assert {(row["project_id"], row["id"]) for row in read("SELECT * FROM branches")} == branches
    noted = {(row["branch_id"], f"{row['bucket_name']}.{row['table_name']}") for row in read("FROM branch_tables")}
    assert noted == copies
    bound = {(token.project_id, token.branch_id) for token in running.service.tokens.list_all() if not token.revoked_at}
    assert {branch for branch in bound if branch[1] is not None} <= branches
    assert {project for project, _ in bound if project is not None} <= projects


def published(passed: list[str], branch: str) -> bool:
    """Whether a service came to put an entry into a branch's log."""
    return any(point.startswith(f"after put_if_absent _versions/{branch}/") for point in passed)


@pytest.mark.proof
def test_killed_branch_create_is_all_or_nothing(process_pool: Program, tmp_path: Path, kills: int) -> None:
    def check(_: Running, project: Project, name: str, passed: list[str]) -> None:
        found = ok(project.client.get(f"{project.path}/branches"))["branches"]
        made = [branch["id"] for branch in found if branch["name"] == name]
        assert len(made) == any(point.startswith("after put_if_absent _versions/br_") for point in passed)
        for branch in made:
            assert project.ids(branch) == [1, 2, 3]
            assert project.client.delete(project.on(branch)).status_code == 204

    kill_at_points(
        process_pool,
        tmp_path,
        "create a branch",
        kills=kills,
        prepare=lambda _: f"branch {next(_NUMBERS)}",
        check=check,
    )


@pytest.mark.proof
def test_killed_batch_create_is_all_or_nothing_for_each_branch(
    process_pool: Program, tmp_path: Path, kills: int
) -> None:
    def check(running: Running, project: Project, name: str, passed: list[str]) -> None:
        found = ok(project.client.get(f"{project.path}/branches"))["branches"]
        made = {one["name"]: one["id"] for one in found if one["name"].startswith(name)}
        # The names of the others are free. `check_metadata` has compared the rows with the repository.
        assert len(made) == sum(point.startswith("after put_if_absent _versions/br_") for point in passed)
        for wanted in (f"{name}{number}" for number in range(BATCH)):
            created = project.client.post(f"{project.path}/branches", json={"name": wanted})
            assert created.status_code == (409 if wanted in made else 201)
            branch = made.get(wanted) or ok(created)["id"]
            assert project.ids(branch) == [1, 2, 3]
            assert project.client.delete(project.on(branch)).status_code == 204
        assert not ab.open(running.data / f"project_{project.id}").doctor().findings

    kill_at_points(
        process_pool,
        tmp_path,
        "create branches together",
        kills=kills,
        prepare=lambda _: f"batch {next(_NUMBERS)} ",
        check=check,
    )


def test_acknowledged_branches_survive_a_kill(tmp_path: Path) -> None:
    kill_while_branches_are_created(tmp_path, kills=1)


@pytest.mark.proof
def test_acknowledged_branches_survive_many_kills(tmp_path: Path) -> None:
    kill_while_branches_are_created(tmp_path, kills=10)


def kill_while_branches_are_created(data: Path, *, kills: int) -> None:
    """Kill a service each time it has created some branches at once, and send all requests again with their keys."""
    with serving(data) as running, running.client() as client:
        project, secret = new_project(client), running.secret
    for _ in range(kills):
        sent: dict[str, str | None] = {}
        with process(data) as (started, url), ThreadPoolExecutor(_CREATORS) as pool:
            wait_until_healthy(url, started)
            running = Running(url=url, data=data, secret=secret)
            creators = [pool.submit(create_until_killed, running, project.id, sent) for _ in range(_CREATORS)]
            pause = threading.Event()
            while sum(text is not None for text in list(sent.values())) < _CREATED:
                assert started.poll() is None
                pause.wait(0.001)
            started.kill()
            for creator in creators:
                creator.result()
        # With the first token, because keys belong to their token.
        with serving(data) as running, running.client(secret) as client:
            check_metadata(running)
            check_sent_again(client, project.id, sent)


def create_until_killed(running: Running, project_id: str, sent: dict[str, str | None]) -> None:
    """Create branches, and note each before it is sent, and then its answer."""
    with running.client() as client, suppress(httpx.TransportError):
        while True:
            name = f"b{next(_NUMBERS)}"
            sent[name] = None
            sent[name] = create_branch(client, project_id, name).text


def create_branch(client: httpx.Client, project_id: str, name: str) -> httpx.Response:
    path, headers = f"/projects/{project_id}/branches", {"Idempotency-Key": f"key-{name}"}
    return client.post(path, json={"name": name}, headers=headers)


def check_sent_again(client: httpx.Client, project_id: str, sent: dict[str, str | None]) -> None:
    found = ok(client.get(f"/projects/{project_id}/branches"))["branches"]
    there = {branch["name"]: branch["id"] for branch in found}
    assert len(there) == len(found)
    for name, text in sent.items():
        again = create_branch(client, project_id, name)
        if text is not None:
            assert again.text == text
        # A branch whose answer was lost is there or is created now. If its answer was stored, it is sent again.
        if text is not None or "Idempotent-Replay" in again.headers:
            assert there[name] == ok(again)["id"]
        else:
            assert again.status_code == (409 if name in there else 201)
    events = ok(client.get(f"/projects/{project_id}/audit", params={"limit": 1000}))["events"]
    created = [event["status"] for event in events if event["action"] == "create_branch"].count(201)
    assert created >= sum(text is not None for text in sent.values())


def test_killed_branch_delete_is_completed_at_the_next_start(process_pool: Program, tmp_path: Path, kills: int) -> None:
    def prepare(project: Project) -> str:
        branch = project.branch()
        project.insert(10, 11, branch=branch)
        project.create_table(f"own_{branch}", branch)
        project.insert(5, branch=branch, table=f"own_{branch}")
        make_token(project.client, "branch", project_id=project.id, branch_id=branch)
        return branch

    def check(_: Running, project: Project, branch: str, passed: list[str]) -> None:
        if published(passed, branch):
            refused(project.client.get(project.on(branch)), 404, "branch_not_found")
            assert not [path for path in list_files(tmp_path) if branch in path]
            with pytest.raises(BranchNotFoundError):
                ab.open(tmp_path / f"project_{project.id}").branch_delete(branch, purge=True)
        else:
            assert project.ids(branch) == WRITTEN
            assert project.ids(branch, f"own_{branch}") == [5]
            assert project.client.delete(project.on(branch)).status_code == 204
        assert project.ids() == [1, 2, 3]

    kill_at_points(process_pool, tmp_path, "delete a branch", kills=kills, prepare=prepare, check=check)


@pytest.mark.parametrize("has_commits", [False, True])
def test_deleted_branch_leaves_no_files_of_an_interrupted_write(
    process_pool: Program, tmp_path: Path, *, has_commits: bool
) -> None:
    """A writer that is killed before it publishes leaves a home that no commit names."""
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        whole, cut = project.branch(), project.branch()
        # Both alike: a log with a single entry may have no hint, and then takes other requests to read.
        for branch in (whole, cut) if has_commits else ():
            project.create_table("other", branch)
    asked: dict[str, Any] = {"scenario": "write", "data": str(tmp_path), "project": project.id}
    passed = process_pool.points_of(name=whole, **asked)
    publish = next(number for number, point in enumerate(passed) if f"put_if_absent _versions/{whole}/" in point)
    process_pool.kill_at(publish, name=cut, **asked)
    with serving(tmp_path) as running, running.client() as client:
        project = Project(client, project.id)
        assert project.ids(cut) == [1, 2, 3]
        assert any(f"orders.lance/tree/{cut}/" in path for path in list_files(tmp_path))
        assert client.delete(project.on(cut)).status_code == 204
        assert not [path for path in list_files(tmp_path) if cut in path]


def list_files(data: Path) -> set[str]:
    """The files of the tables."""
    return {str(path.relative_to(data)) for path in data.glob("project_*/tables/**/*") if path.is_file()}


@pytest.mark.proof
def test_a_first_write_is_there_with_its_copy_or_not(process_pool: Program, tmp_path: Path, kills: int) -> None:
    def prepare(project: Project) -> str:
        return project.branch()

    def check(running: Running, project: Project, branch: str, passed: list[str]) -> None:
        is_there = published(passed, branch)
        assert project.ids(branch) == (WRITTEN if is_there else [1, 2, 3])
        assert running.service is not None
        noted = running.service.database.read("FROM branch_tables WHERE branch_id = ?", [branch])
        assert len(noted) == is_there
        project.insert(20, branch=branch)
        assert 20 in project.ids(branch)
        assert project.client.delete(project.on(branch)).status_code == 204

    kill_at_points(process_pool, tmp_path, "write", kills=kills, prepare=prepare, check=check)


@pytest.mark.proof
def test_a_pulled_table_is_main_s_or_still_the_branch_s(process_pool: Program, tmp_path: Path, kills: int) -> None:
    def prepare(project: Project) -> str:
        branch = project.branch()
        project.insert(10, 11, branch=branch)
        return branch

    def check(running: Running, project: Project, branch: str, passed: list[str]) -> None:
        is_pulled = published(passed, branch)
        assert running.service is not None
        noted = running.service.database.read("FROM branch_tables WHERE branch_id = ?", [branch])
        assert len(noted) == (not is_pulled)
        assert project.ids(branch) == ([1, 2, 3] if is_pulled else WRITTEN)
        assert project.client.delete(project.on(branch)).status_code == 204

    kill_at_points(process_pool, tmp_path, "pull", kills=kills, prepare=prepare, check=check)


@pytest.mark.proof
def test_killed_project_create_is_all_or_nothing(process_pool: Program, tmp_path: Path, kills: int) -> None:
    def check(_: Running, project: Project, name: str, passed: list[str]) -> None:
        projects = [one["id"] for one in ok(project.client.get("/projects"))["projects"]]
        assert (name in projects) == ("after write INSERT INTO projects" in passed)
        if name not in projects:
            ok(project.client.post("/projects", json={"id": name}))
        ok(project.client.post(f"/projects/{name}/branches", json={"name": "usable"}))
        assert project.client.delete(f"/projects/{name}").status_code == 204

    kill_at_points(
        process_pool, tmp_path, "create a project", kills=kills, prepare=lambda _: f"half{next(_NUMBERS)}", check=check
    )


def test_killed_project_delete_is_completed_at_the_next_start(
    process_pool: Program, tmp_path: Path, kills: int
) -> None:
    def prepare(project: Project) -> str:
        doomed = Project(project.client, f"doomed{next(_NUMBERS)}")
        ok(project.client.post("/projects", json={"id": doomed.id}))
        ok(project.client.post(f"{doomed.on()}/buckets", json={"name": "in_c_sales"}))
        doomed.create_table("orders")
        doomed.insert(1, branch=doomed.branch())
        make_token(project.client, "project", project_id=doomed.id)
        ok(project.client.post(f"{doomed.path}/files", files={"file": ("a.csv", b"id\n1\n")}))
        return doomed.id

    def check(running: Running, project: Project, name: str, passed: list[str]) -> None:
        is_begun = "after write INSERT INTO intents" in passed
        assert project.client.get(f"/projects/{name}").status_code == (404 if is_begun else 200)
        if not is_begun:
            assert project.client.delete(f"/projects/{name}").status_code == 204
        assert not (running.data / "files" / name).exists()
        assert project.ids() == [1, 2, 3]

    kill_at_points(process_pool, tmp_path, "delete a project", kills=kills, prepare=prepare, check=check)


@pytest.mark.proof
def test_a_bucket_that_was_being_deleted_can_be_deleted_again(
    process_pool: Program, tmp_path: Path, kills: int
) -> None:
    def prepare(project: Project) -> str:
        bucket = f"doomed{next(_NUMBERS)}"
        ok(project.client.post(f"{project.on()}/buckets", json={"name": bucket}))
        body = {"name": "t", "columns": [{"name": "id", "type": "int64"}]}
        for name in ("t", "u"):
            ok(project.client.post(f"{project.on()}/buckets/{bucket}/tables", json={**body, "name": name}))
        return bucket

    def check(_: Running, project: Project, name: str, passed: list[str]) -> None:
        on = f"{project.on()}/buckets/{name}"
        if "after write DELETE FROM buckets" not in passed:
            tables = ok(project.client.get(f"{on}/tables"))["tables"]
            assert len(tables) == (0 if published(passed, "main") else 2)
            assert project.client.delete(on, params={"cascade": True}).status_code == 204
        refused(project.client.get(on), 404, "bucket_not_found")

    kill_at_points(process_pool, tmp_path, "delete a bucket", kills=kills, prepare=prepare, check=check)


def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    kill_under_load(tmp_path, kills=1, clients=8, requests=60)


@pytest.mark.proof
def test_what_was_acknowledged_survives_many_kills(tmp_path: Path) -> None:
    kill_under_load(tmp_path, kills=10, clients=16, requests=100)


def kill_under_load(data: Path, *, kills: int, clients: int, requests: int) -> None:
    """Kill a service each time its clients got a given number of answers, and continue with what is there."""
    with serving(data) as running:
        site, secret = build_site(running), running.secret
    crowd = [Client(number=number, site=site) for number in range(clients)]
    for seed in range(kills):
        with process(data) as (started, url):
            wait_until_healthy(url, started)
            budget = Budget(1_000_000)
            running = Running(url=url, data=data, secret=secret)
            with run_clients(crowd, running, budget, seed=seed):
                budget.wait_for(requests)
                budget.stop()
                started.kill()
                started.wait()
        with serving(data) as running:
            check_metadata(running)
            check_jobs(running, site.project)
            check_knowledge(crowd, running)
            check_agreement(site, running)


def check_jobs(running: Running, project_id: str) -> None:
    """No job continues; of one that was cut off no row came, since its rows are in no other file."""
    with running.client() as client:
        jobs = ok(client.get("/jobs", params={"project_id": project_id, "limit": 1000}))["jobs"]
        assert {job["state"] for job in jobs} <= {"succeeded", "failed"}
        failed = [job for job in jobs if job["state"] == "failed"]
        assert {job["error"]["code"] for job in failed} <= {"interrupted"}
        for job in failed:
            if job["kind"] == "import":
                first = job["request"]["file"].removesuffix(".csv")
                table = f"{job['request']['bucket']}/tables/{job['request']['table']}"
                path = f"/projects/{project_id}/branches/{job['branch_id']}/buckets/{table}/preview"
                response = client.get(path, params={"where": f"id = {first}", "count": True})
                assert response.status_code == 404 or ok(response)["total_row_count"] == 0
