"""What is deleted while others use it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

import anabranch as ab
from anabranch.server.settings import Limits
from tests.server.conftest import Project, Running, busy, new_project, ok, refused, serving


def test_a_project_in_use_is_not_deleted(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(retry_seconds=0.1)) as running, running.client() as client:
        project = new_project(client)
        assert running.service is not None
        with running.service.projects.in_use(project.id):
            busy = refused(client.delete(project.path), 409, "busy")
            assert busy["details"]["retryable"] is True
            assert project.ids() == [1, 2, 3]
        assert client.delete(project.path).status_code == 204
        refused(client.get(project.path), 404, "project_not_found")
        assert list(tmp_path.glob("*project*")) == []


def test_jobs_that_wait_outlive_a_deletion_that_did_not_happen(tmp_path: Path) -> None:
    limits = Limits(retry_seconds=0.5, job_workers=1)
    with serving(tmp_path, limits=limits) as running, running.client() as client:
        project, other = new_project(client), new_project(client, rows=0)
        projects = running.service.projects if running.service is not None else None
        assert projects is not None
        with projects.in_use(project.id), ThreadPoolExecutor(1) as threads:
            with busy(running, other):
                upload = {"file": ("a.csv", b"id,v\n7,a\n")}
                waiting = client.post(
                    f"{project.table()}/import", params={"wait": 0, "incremental": True}, files=upload
                )
                deleting = threads.submit(client.delete, project.path)
                while project.id not in projects._ending:
                    pass
            refused(deleting.result(), 409, "busy")
        done = ok(client.get(f"/jobs/{ok(waiting)['id']}"))
        while done["state"] in {"queued", "running"}:
            done = ok(client.get(f"/jobs/{done['id']}"))
        assert done["state"] == "succeeded", done
        assert project.ids() == [1, 2, 3, 7]


def test_branch_deleted_through_the_library_is_not_found(running: Running, project: Project) -> None:
    client = project.client
    branch = project.branch("shared")
    project.insert(4, branch=branch)
    ab.open(running.data / f"project_{project.id}").branch_delete(branch, purge=True)
    for path in (f"{project.table(branch)}/preview", f"{project.on(branch)}/diff", f"{project.on(branch)}/drift"):
        refused(client.get(path), 404, "branch_not_found")
    refused(client.post(f"{project.table(branch)}/rows", json={"rows": [{"id": 9}]}), 404, "branch_not_found")
    assert client.delete(project.on(branch)).status_code == 204
    project.branch("shared")


def test_what_a_tag_names_outlives_the_branch_it_was_made_on(running: Running, project: Project) -> None:
    client = project.client
    branch = project.branch()
    commit = project.insert(4, branch=branch)["commit_id"]
    ok(client.post(f"{project.path}/tags", json={"name": "kept", "branch_id": branch, "ref": commit}))
    assert client.delete(project.on(branch)).status_code == 204
    repository = ab.open(running.data / f"project_{project.id}")
    assert repository.snapshot_of("kept")["in_c_sales.orders"].count_rows() == 4
    # A tag of a branch is not a state of main.
    answer = client.get(f"{project.table()}/preview", params={"ref": "kept"})
    refused(answer, 404, "commit_not_found")


def test_two_projects_have_nothing_in_common(client: httpx.Client) -> None:
    one, two = new_project(client), new_project(client, rows=0)
    branch = one.branch()
    refused(client.get(f"{two.path}/branches/{branch}"), 404, "branch_not_found")
    refused(client.get(f"{two.table(branch)}/preview"), 404, "branch_not_found")
    commit = one.insert(4)["commit_id"]
    refused(client.get(f"{two.on()}/commits/{commit}"), 404, "commit_not_found")
    refused(client.get(f"{two.table()}/preview", params={"ref": commit}), 404, "commit_not_found")
    assert client.delete(one.path).status_code == 204
    assert Project(client, two.id).ids() == []
