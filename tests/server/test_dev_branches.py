"""Dev branches: live view, copy-on-write, pull and delete, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import anabranch as ab
from tests.server.conftest import Project, Running, new_project, ok, refused


def data_files(data: Path, project: Project) -> set[str]:
    """All files of the tables of a project, on all branches."""
    root = data / f"project_{project.id}" / "tables"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_the_flow_from_creation_to_deletion(served: Running) -> None:
    with served.client() as client:
        ok(client.post("/projects", json={"id": "123", "name": "shop"}))
        project = Project(client, "123")
        ok(client.post(f"{project.on()}/buckets", json={"name": "in_c_sales"}))
        project.create_table("orders")
        project.insert(*range(100))
        # T0: create branch
        made = ok(
            client.post(
                "/projects/123/branches",
                json={"name": "feature-new-report", "description": "Testing new report logic"},
            )
        )
        branch = made["id"]
        # T1: a table that is not modified yet is main's
        assert project.preview(branch)["total_row_count"] == 100
        # T2, T3: main goes from 100 to 150 rows, and the branch shows it
        project.insert(*range(100, 150))
        assert project.preview(branch)["total_row_count"] == 150
        # T4: a write to the branch copies 150 rows, then applies
        project.insert(1000, 1001, branch=branch)
        assert project.preview(branch)["total_row_count"] == 152
        # T5, T6: main goes from 150 to 170 rows, and the branch does not show it
        project.insert(*range(150, 170))
        assert project.preview()["total_row_count"] == 170
        assert project.preview(branch)["total_row_count"] == 152
        assert project.ids(branch) == [*range(150), 1000, 1001]
        # T7: delete branch
        assert client.delete(f"/projects/123/branches/{branch}").status_code == 204
        refused(client.get(f"{project.table(branch)}/preview"), 404, "branch_not_found")
        assert project.ids() == [*range(170)]


def test_create_branch(running: Running, project: Project) -> None:
    before = data_files(running.data, project)
    response = project.client.post(f"{project.path}/branches", json={"name": "feature", "description": "why"})
    assert response.status_code == 201
    made = response.json()
    assert made.pop("created_at").endswith("Z")
    assert made == {
        "id": made["id"],
        "project_id": project.id,
        "name": "feature",
        "description": "why",
        "created_by": "admin",
    }
    detail = ok(project.client.get(f"{project.path}/branches/{made['id']}"))
    assert detail["tables"] == []
    assert {**made, "created_at": detail["created_at"], "tables": []} == detail
    assert data_files(running.data, project) == before
    assert [branch["id"] for branch in ok(project.client.get(f"{project.path}/branches"))["branches"]] == [made["id"]]
    refused(project.client.post(f"{project.path}/branches", json={"name": "feature"}), 409, "branch_exists")


def test_branches_created_at_once_have_rows_and_events(
    running: Running, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    def create(number: int) -> int:
        with running.client() as client:
            return client.post(f"{project.path}/branches", json={"name": f"branch {number % 12}"}).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(24)))
    assert sorted(answers) == [201] * 12 + [409] * 12
    branches = ok(project.client.get(f"{project.path}/branches"))["branches"]
    assert sorted(branch["name"] for branch in branches) == sorted(f"branch {number}" for number in range(12))
    repository = ab.open(running.data / f"project_{project.id}")
    assert {branch["id"] for branch in branches} == {*repository.branch_names()} - {"main"}
    events = ok(project.client.get(f"{project.path}/audit"))["events"]
    found = [event["status"] for event in events if event["action"] == "create_branch"]
    assert sorted(found) == sorted(answers)
    assert "could not be created together" not in caplog.text


def test_branch_read_from_main(shared: Project) -> None:
    branch = shared.branch()
    assert shared.preview(branch) == shared.preview()
    assert shared.ids(branch) == [1, 2, 3]
    listed = ok(shared.client.get(f"{shared.on(branch)}/buckets/in_c_sales/tables"))["tables"]
    assert [(table["name"], table["source"]) for table in listed] == [("orders", "main")]


def test_branch_cow_on_write(shared: Project) -> None:
    branch = shared.branch()
    shared.insert(4, branch=branch)
    assert shared.ids(branch) == [1, 2, 3, 4]
    assert shared.ids() == [1, 2, 3]
    detail = ok(shared.client.get(shared.on(branch)))
    assert [(table["bucket"], table["table"]) for table in detail["tables"]] == [("in_c_sales", "orders")]
    first = detail["tables"][0]["copied_at"]
    assert detail["created_at"] <= first
    shared.insert(5, branch=branch)
    assert ok(shared.client.get(shared.on(branch)))["tables"][0]["copied_at"] == first
    assert ok(shared.client.get(shared.table(branch)))["source"] == "branch"


def test_branch_isolation_after_cow(project: Project) -> None:
    branch = project.branch()
    project.insert(4, branch=branch)
    project.insert(5)
    assert project.ids(branch) == [1, 2, 3, 4]
    assert project.ids() == [1, 2, 3, 5]


def test_pull_table(project: Project) -> None:
    branch = project.branch()
    pull = f"{project.on(branch)}/tables/in_c_sales/orders/pull"
    assert ok(project.client.post(pull)) == {"bucket": "in_c_sales", "table": "orders", "was_local": False}
    project.insert(4, branch=branch)
    project.insert(5)
    assert ok(project.client.post(pull))["was_local"] is True
    assert project.ids(branch) == [1, 2, 3, 5]
    assert ok(project.client.get(project.on(branch)))["tables"] == []
    project.insert(6)
    assert project.ids(branch) == [1, 2, 3, 5, 6]
    missing = f"{project.on(branch)}/tables/in_c_sales/nothing/pull"
    refused(project.client.post(missing), 404, "table_not_found")


def test_delete_branch(project: Project) -> None:
    branch = project.branch("gone")
    project.insert(4, branch=branch)
    project.create_table("own", branch)
    assert project.client.delete(project.on(branch)).status_code == 204
    refused(project.client.get(project.on(branch)), 404, "branch_not_found")
    refused(project.client.delete(project.on(branch)), 404, "branch_not_found")
    refused(project.client.get(project.table(branch, "own")), 404, "branch_not_found")
    refused(project.client.get(project.table(table="own")), 404, "table_not_found")
    assert ok(project.client.get(f"{project.path}/branches"))["branches"] == []
    assert project.ids() == [1, 2, 3]
    again = project.branch("gone")
    assert again != branch
    assert project.ids(again) == [1, 2, 3]


def test_main_changes_visible_before_cow(project: Project) -> None:
    branch = project.branch()
    for number in (4, 5):
        project.insert(number)
        assert project.ids(branch) == project.ids()
    project.create_table("customers")
    assert project.ids(branch, "customers") == []
    assert project.client.delete(project.table(table="customers")).status_code == 204
    refused(project.client.get(project.table(branch, "customers")), 404, "table_not_found")


def test_there_is_no_way_to_merge_tables(shared: Project) -> None:
    branch = shared.branch()
    refused(shared.client.post(f"{shared.on(branch)}/merge"), 404, "route_not_found")


def test_a_project_starts_empty(running: Running) -> None:
    with running.client() as client:
        project = new_project(client, rows=0)
        assert project.preview() == {
            "columns": [
                {"name": "id", "type": "int64", "nullable": True},
                {"name": "v", "type": "string", "nullable": True},
            ],
            "rows": [],
            "total_row_count": 0,
        }
