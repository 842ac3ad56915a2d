"""What the pages of a service let a token do: as much as the JSON routes, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.service_pages import ProjectLake
from tests.server.conftest import Project, Running, make_token, new_project, ok, serving
from tests.server.conftest import running as running
from tests.server.ui.test_service import path_of, routes_of, signed_in


@pytest.fixture(scope="module")
def project(running: Running) -> Iterator[Project]:
    with running.client() as client:
        yield new_project(client)


def test_project_decides_all_that_the_lake_of_this_machine_allows() -> None:
    """A method that is new in `Lake` is allowed to all visitors until the service overrides it."""
    same_for_all = {
        "identity",
        "name_of",
        "can_write",
        "list_choices",
        "count_branches",
        "count_tags",
        "can_administer",
    }
    own = {name for name in vars(Lake) if not name.startswith("_")} - set(Lake.__dataclass_fields__)
    assert own - same_for_all - set(vars(ProjectLake)) == set()


def repository_of(running: Running, project: Project) -> ab.Repository:
    return ab.open(running.data / f"project_{project.id}")


def test_branch_token_does_not_write_to_branches_of_other_tools(running: Running, project: Project) -> None:
    """The JSON routes reach main and dev branches only, and merges need a token for the project."""
    repository = repository_of(running, project)
    repository.branch_create("reviewed")
    before = repository.reflog("reviewed")
    with running.client() as api:
        secret = make_token(api, "branch", project_id=project.id)
    tried = 0
    with signed_in(running, secret) as (client, csrf):
        for route in routes_of(running):
            if route.page is not None and route.page.writes:
                form = {"csrf": csrf, "source": "main", "table": "in_c_sales.orders", "version": "1", "new": "other"}
                answer = client.post(path_of(route, project), data={**form, route.page.writes: "reviewed"})
                assert answer.status_code == 403, (route.path, answer.text)
                tried += 1
        page = client.get(f"/ui/projects/{project.id}/branches").text
        assert 'aria-label="Delete branch reviewed"' not in page
        assert client.get(f"/ui/projects/{project.id}/reflog?branch=reviewed").text.count("formaction") == 0
    assert tried >= 9
    assert repository.reflog("reviewed") == before


def test_own_token_is_rotated_without_losing_its_secret(running: Running, project: Project) -> None:
    with running.client() as api:
        made = ok(api.post("/tokens", json={"name": "lead", "scope": "project", "project_id": project.id}))
    path = f"/ui/projects/{project.id}/tokens"
    with signed_in(running, made["secret"]) as (client, csrf), signed_in(running, made["secret"]) as (other, _):
        rotated = client.post(f"{path}/rotate", data={"csrf": csrf, "token": made["id"]})
        assert rotated.status_code == 303
        page = client.get(rotated.headers["location"])
        assert page.status_code == 200, "the visitor was signed out, and the new secret was never shown"
        assert other.get(path).status_code == 401, "other sessions began with the old secret"
    secret = page.text.partition("shown only here: ")[2].partition("<")[0].strip()
    with running.client(secret) as api:
        ok(api.get(f"{project.path}/branches"))


def test_token_of_a_branch_does_not_revert_commits_of_other_branches(running: Running, project: Project) -> None:
    """A revert brings back what a commit has removed, so that it reads the branch of the commit."""
    mine, other = project.branch(), project.branch()
    project.insert(50, branch=other)
    ok(project.client.delete(f"{project.table(other)}/rows", params={"where": "id = 50"}))
    with running.client() as api:
        secret = make_token(api, "branch", project_id=project.id, branch_id=mine)
    commit = ok(project.client.get(f"{project.on(other)}/commits"))["commits"][0]["id"]
    with signed_in(running, secret) as (client, csrf):
        form = {"csrf": csrf, "branch": mine}
        answer = client.post(f"/ui/projects/{project.id}/commits/{commit}/revert", data=form)
        assert answer.status_code == 404, answer.text
    assert 50 not in project.ids(mine)


def test_branches_of_other_tools_are_renamed_and_dev_branches_keep_their_id(running: Running, project: Project) -> None:
    repository = repository_of(running, project)
    repository.branch_create("nightly")
    dev = project.branch("My branch")
    path = f"/ui/projects/{project.id}"
    with signed_in(running, running.secret) as (client, csrf):
        page = client.get(f"{path}/branches").text
        assert 'aria-label="Rename branch nightly"' in page
        assert 'aria-label="Rename branch My branch"' not in page
        for branch, new in ((dev, "free"), ("main", "free"), ("nightly", "default"), ("nightly", f"br_{'0' * 13}")):
            form = {"csrf": csrf, "branch": branch, "new": new}
            assert client.post(f"{path}/branches/rename", data=form).status_code == 400, (branch, new)
        form = {"csrf": csrf, "branch": "nightly", "new": "weekly"}
        assert client.post(f"{path}/branches/rename", data=form).status_code == 303
    assert repository.branch_get("weekly").name == "weekly"
    assert repository.branch_get(dev).name == dev


def test_dev_branch_renamed_through_the_library_is_not_found(running: Running, project: Project) -> None:
    """Its rows in the database still name the old id."""
    dev = project.branch("Renamed outside")
    project.insert(70, branch=dev)
    repository_of(running, project).branch_rename(dev, "kept")
    path = f"/ui/projects/{project.id}"
    with signed_in(running, running.secret) as (client, csrf):
        for page in ("branches", "graph", f"reflog?branch={dev}", "merge", "runs", "?ref=kept"):
            assert client.get(f"{path}/{page}").status_code == 200, page
        assert client.get(f"{path}/?ref={dev}").status_code == 404
        assert client.post(f"{path}/branches/delete", data={"csrf": csrf, "branch": dev}).status_code == 303
    assert project.client.get(f"{project.on(dev)}/commits").status_code == 404
    assert len(repository_of(running, project).table("in_c_sales.orders", "kept")) == 4


def test_report_of_the_doctor_does_not_name_the_folder_of_the_service(running: Running) -> None:
    with running.client() as api:
        project = new_project(api)
    folder = running.data / f"project_{project.id}"
    for file in folder.rglob("*.lance"):
        if file.is_file():
            file.unlink()
    with signed_in(running, running.secret) as (client, _):
        pages = (client.get(f"/ui/projects/{project.id}/storage?show=doctor") for _ in range(60))
        report = next(page for page in pages if "refresh" not in page.headers).text
    assert "Findings" in report
    assert str(running.data).strip("/") not in report


def test_start_forgets_a_dev_branch_that_the_library_renamed(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as api:
        project = new_project(api)
        dev = project.branch()
        project.insert(70, branch=dev)
        secret = make_token(api, "branch", project_id=project.id, branch_id=dev)
        repository_of(running, project).branch_rename(dev, "kept")
    with serving(tmp_path) as running, running.client() as api:
        assert ok(api.get(f"{project.path}/branches"))["branches"] == []
        with running.client(secret) as bound:
            assert bound.get(f"{project.on(dev)}/commits").status_code == 401
        # It is a branch of another tool now.
        with signed_in(running, running.secret) as (client, csrf):
            path, form = f"/ui/projects/{project.id}", {"csrf": csrf, "branch": "kept", "new": "renamed"}
            assert client.get(f"{path}/?ref=kept").status_code == 200
            assert client.post(f"{path}/branches/rename", data=form).status_code == 303
        assert len(repository_of(running, project).table("in_c_sales.orders", "renamed")) == 4
