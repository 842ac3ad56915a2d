"""Each write on a branch copies; main, and other branches, stay what they were, byte for byte."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Project, Running, ok, refused


def state_of_main(data: Path, project: Project) -> dict[str, str]:
    """The hashes of all files that main's tables and its log are made of."""
    root = data / f"project_{project.id}"
    found = {}
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        is_mains = relative.parts[0] == "tables" and not {"tree", "_refs"} & set(relative.parts)
        if path.is_file() and (is_mains or relative.parts[:2] == ("_versions", "main")):
            found[str(relative)] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert any("/data/" in name for name in found)
    assert any(name.startswith("_versions/main/") for name in found)
    return found


WRITES: dict[str, Callable[[Project, str], Any]] = {
    "insert": lambda project, table: project.client.post(f"{table}/rows", json={"rows": [{"id": 4, "v": "new"}]}),
    "upsert": lambda project, table: project.client.put(f"{table}/rows", json={"rows": [{"id": 1, "v": "new"}]}),
    "delete": lambda project, table: project.client.delete(f"{table}/rows", params={"where": "id = 1"}),
    "add a column": lambda project, table: project.client.post(
        f"{table}/columns", json={"columns": [{"name": "w", "type": "float64"}]}
    ),
    "rename a column": lambda project, table: project.client.patch(f"{table}/columns/v", json={"name": "w"}),
    "drop a column": lambda project, table: project.client.delete(f"{table}/columns/v"),
    "set the key": lambda project, table: project.client.put(f"{table}/primary-key", json={"columns": ["id", "v"]}),
    "drop the key": lambda project, table: project.client.put(f"{table}/primary-key", json={"columns": []}),
}


def look(project: Project, branch: str, table: str = "orders") -> tuple[dict[str, Any], dict[str, Any]]:
    """All there is to see of a table of a branch."""
    detail = ok(project.client.get(project.table(branch, table)))
    del detail["commit_id"], detail["source"]
    return detail, project.preview(branch, table, sort="id")


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_write_on_a_branch_copies_and_leaves_main_as_it_is(
    running: Running, shared: Project, write: Callable[[Project, str], Any]
) -> None:
    branch, other = shared.branch(), shared.branch()
    before, seen = state_of_main(running.data, shared), look(shared, "default")
    response = write(shared, shared.table(branch))
    assert response.is_success, response.text
    assert state_of_main(running.data, shared) == before
    assert look(shared, "default") == look(shared, other) == seen
    assert look(shared, branch) != seen
    copied = ok(shared.client.get(shared.on(branch)))["tables"]
    assert [(table["bucket"], table["table"]) for table in copied] == [("in_c_sales", "orders")]
    assert ok(shared.client.get(shared.on(other)))["tables"] == []


def test_writes_on_main_show_on_a_branch_without_a_copy(project: Project) -> None:
    branch = project.branch()
    for number, write in enumerate(WRITES.values()):
        table = f"t{number}"
        project.create_table(table)
        project.insert(1, 2, 3, table=table)
        before = look(project, branch, table)
        response = write(project, project.table(table=table))
        assert response.is_success, response.text
        assert look(project, branch, table) == look(project, "default", table) != before
    assert ok(project.client.get(project.on(branch)))["tables"] == []


def test_a_write_that_is_refused_copies_nothing(running: Running, project: Project) -> None:
    branch = project.branch()
    before = state_of_main(running.data, project)
    table = project.table(branch)
    refused(project.client.post(f"{table}/rows", json={"rows": [{"id": 1, "v": "again"}]}), 409, "key_conflict")
    refused(project.client.post(f"{table}/rows", json={"rows": [{"id": "text"}]}), 400, "bad_record")
    refused(project.client.post(f"{table}/rows", json={"rows": [{"nothing": 1}]}), 400, "schema_mismatch")
    refused(project.client.delete(f"{table}/rows", params={"where": "nonsense ("}), 400, "invalid_expression")
    refused(project.client.delete(f"{table}/columns/nothing"), 400, "schema_mismatch")
    assert ok(project.client.get(project.on(branch)))["tables"] == []
    assert state_of_main(running.data, project) == before
    project.insert(4)
    assert project.ids(branch) == [1, 2, 3, 4]


def test_a_table_made_on_a_branch_is_there_only(project: Project) -> None:
    branch, other = project.branch(), project.branch()
    project.create_table("drafts", branch)
    project.insert(7, branch=branch, table="drafts")
    assert project.ids(branch, "drafts") == [7]
    for elsewhere in ("default", other):
        refused(project.client.get(project.table(elsewhere, "drafts")), 404, "table_not_found")
    listed = ok(project.client.get(f"{project.on(branch)}/buckets/in_c_sales/tables"))["tables"]
    assert [(table["name"], table["source"]) for table in listed] == [("drafts", "branch"), ("orders", "main")]
    # Main may have one of the same name, with other rows, and neither sees the other's.
    project.create_table("drafts")
    project.insert(8, table="drafts")
    assert (project.ids(branch, "drafts"), project.ids(other, "drafts")) == ([7], [8])


def test_a_table_dropped_on_a_branch_is_hidden_there_only(running: Running, project: Project) -> None:
    branch, other = project.branch(), project.branch()
    before = state_of_main(running.data, project)
    assert project.client.delete(project.table(branch)).status_code == 204
    refused(project.client.get(f"{project.table(branch)}/preview"), 404, "table_not_found")
    assert ok(project.client.get(f"{project.on(branch)}/buckets/in_c_sales/tables"))["tables"] == []
    assert project.ids() == project.ids(other) == [1, 2, 3]
    assert state_of_main(running.data, project) == before
    assert ok(project.client.get(project.on(branch)))["tables"] == []
    project.insert(4)
    refused(project.client.get(project.table(branch)), 404, "table_not_found")
    pulled = ok(project.client.post(f"{project.on(branch)}/tables/in_c_sales/orders/pull"))
    assert pulled["was_local"] is True
    assert project.ids(branch) == [1, 2, 3, 4]


def test_main_dropping_a_copied_table_leaves_the_branch_readable(project: Project) -> None:
    copied, live = project.branch(), project.branch()
    project.insert(4, branch=copied)
    assert project.client.delete(project.table()).status_code == 204
    assert project.ids(copied) == [1, 2, 3, 4]
    project.insert(5, branch=copied)
    assert project.ids(copied) == [1, 2, 3, 4, 5]
    refused(project.client.get(project.table(live)), 404, "table_not_found")


def test_two_branches_do_not_see_each_other(project: Project) -> None:
    one, two = project.branch(), project.branch()
    project.insert(4, branch=one)
    project.insert(4, 5, branch=two)
    assert (project.ids(one), project.ids(two), project.ids()) == ([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3])


def test_deleting_a_branch_deletes_its_tables_and_nothing_else(running: Running, project: Project) -> None:
    gone, kept = project.branch(), project.branch()
    project.insert(4, branch=kept)
    before = state_of_main(running.data, project)
    project.insert(5, branch=gone)
    project.create_table("own", gone)
    assert project.client.delete(project.on(gone)).status_code == 204
    assert {name: state_of_main(running.data, project)[name] for name in before} == before
    assert project.ids(kept) == [1, 2, 3, 4]
    assert project.ids() == [1, 2, 3]
    root = running.data / f"project_{project.id}" / "tables"
    left = [path for path in root.rglob("*") if path.is_file() and (gone in str(path) or "own.lance" in str(path))]
    assert left == []
    assert state_of_main(running.data, project) == before


def test_a_bucket_of_a_branch_is_there_only(project: Project) -> None:
    branch, other = project.branch(), project.branch()
    buckets = f"{project.on(branch)}/buckets"
    ok(project.client.post(buckets, json={"name": "out_c_reports"}))
    names = [(bucket["name"], bucket["source"]) for bucket in ok(project.client.get(buckets))["buckets"]]
    assert names == [("in_c_sales", "main"), ("out_c_reports", "branch")]
    for elsewhere in ("default", other):
        refused(project.client.get(f"{project.on(elsewhere)}/buckets/out_c_reports"), 404, "bucket_not_found")
    ok(project.client.post(f"{project.on()}/buckets", json={"name": "out_c_live"}))
    assert ok(project.client.get(f"{buckets}/out_c_live"))["table_count"] == 0
    refused(project.client.post(buckets, json={"name": "out_c_live"}), 409, "bucket_exists")


def test_a_bucket_that_main_deletes_stays_on_a_branch_with_copies(project: Project) -> None:
    branch, other = project.branch(), project.branch()
    project.insert(4, branch=branch)
    bucket = f"{project.on(branch)}/buckets/in_c_sales"
    assert ok(project.client.get(bucket))["source"] == "main"
    assert project.client.delete(f"{project.on()}/buckets/in_c_sales", params={"cascade": True}).status_code == 204
    found = ok(project.client.get(bucket))
    assert (found["source"], found["table_count"]) == ("branch", 1)
    assert project.ids(branch) == [1, 2, 3, 4]
    refused(project.client.get(f"{project.on(other)}/buckets/in_c_sales"), 404, "bucket_not_found")


def test_a_bucket_deleted_on_a_branch_is_hidden_there_only(project: Project) -> None:
    branch = project.branch()
    bucket = f"{project.on(branch)}/buckets/in_c_sales"
    refused(project.client.delete(bucket), 409, "bucket_not_empty")
    assert project.client.delete(bucket, params={"cascade": True}).status_code == 204
    refused(project.client.get(bucket), 404, "bucket_not_found")
    assert ok(project.client.get(f"{project.on()}/buckets/in_c_sales"))["table_count"] == 1
    assert project.ids() == [1, 2, 3]
    # It can be made again, without what was in it.
    ok(project.client.post(f"{project.on(branch)}/buckets", json={"name": "in_c_sales"}))
    assert ok(project.client.get(f"{bucket}/tables"))["tables"] == []


def test_of_many_who_make_the_same_at_once_one_does(running: Running, shared: Project) -> None:
    def make(path: str, body: dict[str, Any]) -> list[int]:
        with ThreadPoolExecutor(8) as pool, running.client() as client:
            return sorted(pool.map(lambda _: client.post(path, json=body).status_code, range(8)))

    columns = [{"name": "id", "type": "int64"}]
    for path, body in (
        (f"{shared.on()}/buckets", {"name": "once"}),
        (f"{shared.on()}/buckets/once/tables", {"name": "once", "columns": columns}),
        (f"{shared.path}/branches", {"name": "once"}),
        (f"{shared.path}/tags", {"name": "once"}),
        ("/projects", {"id": "once"}),
    ):
        assert make(path, body) == [201, *[409] * 7], path
