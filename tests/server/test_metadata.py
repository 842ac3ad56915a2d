"""`metadata.duckdb`: one process at a time, what a crash leaves, and how it is rebuilt."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import httpx
import pytest

import anabranch as ab
from anabranch.errors import CorruptError, DataInUseError, InvalidPathError
from anabranch.server import database as database_module
from anabranch.server.branch_access import BranchRows
from anabranch.server.database import Database, Insert
from anabranch.server.projects import Intent, IntentKind, ProjectRows
from anabranch.server.service import open_service, rebuild_metadata
from anabranch.server.settings import Settings
from tests.server.conftest import Project, Running, new_project, ok, process, refused, serving


def test_data_that_another_process_serves_are_refused(served: Running) -> None:
    with pytest.raises(DataInUseError, match=f"another process serves the data in '{served.data}'"):
        open_service(Settings(data=served.data))


@pytest.mark.proof
def test_a_second_process_on_the_same_data_ends_with_a_message(served: Running) -> None:
    with process(served.data) as (second, _):
        _, printed = second.communicate(timeout=60)
    assert second.returncode == 4
    assert f"another process serves the data in '{served.data}'" in printed


def test_the_schema_is_the_promised_one(running: Running) -> None:
    assert running.service is not None
    found = {
        table: [
            (row["column_name"], row["data_type"])
            for row in running.service.database.read(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
                [table],
            )
        ]
        for table in ("branches", "branch_tables")
    }
    assert found == {
        "branches": [
            ("id", "VARCHAR"),
            ("project_id", "VARCHAR"),
            ("name", "VARCHAR"),
            ("created_at", "TIMESTAMP WITH TIME ZONE"),
            ("created_by", "VARCHAR"),
            ("description", "VARCHAR"),
        ],
        "branch_tables": [
            ("branch_id", "VARCHAR"),
            ("bucket_name", "VARCHAR"),
            ("table_name", "VARCHAR"),
            ("copied_at", "TIMESTAMP WITH TIME ZONE"),
        ],
    }


def test_what_is_not_a_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.duckdb").write_text("this is no database, and long enough to be read as one" * 100)
    with pytest.raises(CorruptError, match="--rebuild-metadata"):
        open_service(Settings(data=tmp_path))


def test_duckdb_refuses_to_delete_children_and_parents_together() -> None:
    """Why rows are deleted by several transactions, and a start finishes what a crash left."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE p (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE c (id INTEGER, FOREIGN KEY (id) REFERENCES p(id))")
    connection.execute("INSERT INTO p VALUES (1)")
    connection.execute("INSERT INTO c VALUES (1)")
    connection.execute("BEGIN")
    connection.execute("DELETE FROM c")
    with pytest.raises(duckdb.ConstraintException):
        connection.execute("DELETE FROM p")
    connection.execute("ROLLBACK")
    connection.execute("DELETE FROM c")
    connection.execute("DELETE FROM p")


def test_a_start_removes_a_branch_whose_creation_failed(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        kept, half, gone = project.branch("kept"), project.branch("half"), project.branch("gone")
        project.insert(4, branch=kept)
        project.insert(5, branch=gone)
    repository = ab.open(tmp_path / f"project_{project.id}")
    for name in (half, gone):  # as if the service had ended before, or after, the repository did its part
        repository.branch_delete(name)
    with serving(tmp_path) as running, running.client() as client:
        project = Project(client, project.id)
        listed = ok(client.get(f"{project.path}/branches"))["branches"]
        assert [branch["id"] for branch in listed] == [kept]
        assert project.ids(kept) == [1, 2, 3, 4]
        assert running.service is not None
        copies = running.service.database.read("SELECT branch_id FROM branch_tables")
        assert [row["branch_id"] for row in copies] == [kept]
        project.branch("half")


def test_start_adopts_branches_that_have_no_row(tmp_path: Path) -> None:
    """A crash between the creation of a branch and its row leaves such a branch."""
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        named, other = project.branch("report"), project.branch("other")
        assert running.service is not None
        running.service.database.write("DELETE FROM branches WHERE id = ?", [named])
        taken = "br_0000000000000"
        repository = ab.open(tmp_path / f"project_{project.id}")
        repository.branch_create_from("main", taken, mode="live", description="other\n\nfor a test")
        repository.branch_create_from("main", "of_another_tool", mode="live")
    with serving(tmp_path) as running, running.client() as client:
        listed = ok(client.get(f"{project.path}/branches"))["branches"]
        found = {branch["id"]: (branch["name"], branch["description"]) for branch in listed}
        assert found == {named: ("report", ""), other: ("other", ""), taken: (taken, "for a test")}
        assert Project(client, project.id).ids(named) == [1, 2, 3]


def test_branch_row_and_audit_event_are_written_together(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        assert running.service is not None
        database = running.service.database
        database.write("ALTER TABLE audit_events RENAME TO hidden_events")
        with running.client() as other:  # the server closes the connection after an unexpected error
            refused(other.post(f"{project.path}/branches", json={"name": "report"}), 500, "internal")
        database.write("ALTER TABLE hidden_events RENAME TO audit_events")
        assert ok(client.get(f"{project.path}/branches"))["branches"] == []
        assert [info.name for info in ab.open(tmp_path / f"project_{project.id}").branch_list()] == ["main"]
        branch = project.branch("report")
        events = database.read("SELECT path, status FROM audit_events WHERE action = 'create_branch'")
        assert [(event["path"], event["status"]) for event in events] == [(f"{project.path}/branches", 201)]
        assert [row["id"] for row in database.read("SELECT id FROM branches")] == [branch]


def test_files_and_deletions_of_projects_are_durable_before_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
        sent = ok(client.post(f"{project.path}/files", files={"file": ("a.csv", b"id,v\n")}))
        folder = tmp_path / "files" / project.id / sent["id"]
        assert {str(folder / "data.csv"), str(folder), str(folder.parent), str(folder.parent.parent)} <= set(synced)
        synced.clear()
        assert client.delete(project.path).status_code == 204
        assert str(tmp_path) in synced


def test_inserts_of_waiting_writes_become_one_statement(tmp_path: Path) -> None:
    database = Database(tmp_path / "metadata.duckdb")
    project = {"id": "p", "name": "p"}
    bad = Insert("branches", {"id": "b", "project_id": "none", "name": "b"})
    with ThreadPoolExecutor(3) as pool:
        with database.turn():
            writes = [
                pool.submit(database.write_all, changes)
                for changes in (
                    [Insert("projects", project), Insert("branches", {"id": "a", "project_id": "p", "name": "a"})],
                    [bad],
                    [Insert("projects", {"id": "q", "name": "q"})],
                )
            ]
            while len(database._queue) < 3:
                pass
        errors = [write.exception() for write in writes]
    assert [type(error) for error in errors] == [type(None), duckdb.ConstraintException, type(None)]
    assert [row["id"] for row in database.read("SELECT id FROM projects ORDER BY id")] == ["p", "q"]
    assert [row["id"] for row in database.read("SELECT id FROM branches")] == ["a"]
    database.close()


def test_a_start_finishes_what_was_begun_with_projects(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        whole, doomed = new_project(client), new_project(client)
        doomed.insert(4, branch=doomed.branch())
    service = open_service(Settings(data=tmp_path))
    rows = ProjectRows(service.database, delete_branches=BranchRows(service.database).delete_all)
    for number, (kind, name) in enumerate(
        [
            (IntentKind.DELETE_PROJECT, doomed.id),
            (IntentKind.CREATE_PROJECT, whole.id),
            (IntentKind.CREATE_PROJECT, "half"),
        ]
    ):
        rows.begin(Intent(id=str(number), kind=kind, project_id=name, begun_at=service.clock()))
    service.close()
    ab.init(tmp_path / "project_half")
    with serving(tmp_path) as running, running.client() as client:
        assert [project["id"] for project in ok(client.get("/projects"))["projects"]] == [whole.id]
        assert Project(client, whole.id).ids() == [1, 2, 3]
        assert sorted(path.name for path in tmp_path.glob("*project_*")) == [f"project_{whole.id}"]
        ok(client.post("/projects", json={"id": "half"}))


def test_it_is_rebuilt_from_the_repositories(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        project = new_project(client)
        branch = project.branch("feature one")
        other = ok(client.post(f"{project.path}/branches", json={"name": "two", "description": "a\n\nb"}))
        project.insert(4, branch=branch)
        project.create_table("own", branch)
        before = [ok(client.get(project.on(one))) for one in (branch, other["id"])]
        created = ok(client.get(project.path))["created_at"]
    (tmp_path / "metadata.duckdb").unlink()
    (tmp_path / "project_stranger").mkdir()
    rebuilt = rebuild_metadata(Settings(data=tmp_path))
    assert (rebuilt.projects, rebuilt.branches, rebuilt.skipped) == (1, 2, ("project_stranger",))
    with serving(tmp_path) as running, running.client() as client:
        project = Project(client, project.id)
        assert ok(client.get(project.path))["created_at"][:16] == created[:16]
        after = [ok(client.get(project.on(one))) for one in (branch, other["id"])]
        for one, two in zip(before, after, strict=True):
            for detail in (one, two):
                detail["created_at"] = detail["created_at"][:16]
            assert one == two
        assert project.ids(branch) == [1, 2, 3, 4]
        assert ok(client.get(f"{project.on()}/buckets/in_c_sales"))["table_count"] == 1


def test_a_rebuild_keeps_the_old_file_aside(tmp_path: Path) -> None:
    open_service(Settings(data=tmp_path)).close()
    rebuilt = rebuild_metadata(Settings(data=tmp_path))
    assert rebuilt.set_aside is not None
    assert rebuilt.set_aside.exists()
    assert rebuild_metadata(Settings(data=tmp_path)).set_aside != rebuilt.set_aside


def test_what_is_served_is_not_rebuilt(served: Running) -> None:
    with pytest.raises(DataInUseError):
        rebuild_metadata(Settings(data=served.data))


def test_project_delete_deletes_its_data(running: Running, client: httpx.Client) -> None:
    ok(client.post("/projects", json={"id": "short-lived"}))
    refused(client.post("/projects", json={"id": "short-lived"}), 409, "project_exists")
    project = Project(client, "short-lived")
    ok(client.post(f"{project.on()}/buckets", json={"name": "in_c_sales"}))
    project.create_table("orders")
    project.insert(1)
    project.insert(2, branch=project.branch())
    assert client.delete(project.path).status_code == 204
    refused(client.get(project.path), 404, "project_not_found")
    refused(client.get(f"{project.table()}/preview"), 404, "project_not_found")
    assert not list(running.data.glob("*short-lived*"))
    ok(client.post("/projects", json={"id": "short-lived"}))
    assert ok(client.get(f"{project.on()}/buckets"))["buckets"] == []


def test_the_service_starts_from_a_rebuild(served: Running) -> None:
    with served.client() as client:
        assert ok(client.get("/projects/7"))["name"] == "7"
        assert ok(client.get("/projects/7/branches/default/buckets")) == {"buckets": []}


def test_a_project_that_is_damaged_does_not_keep_the_others_from_being_served(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        whole, damaged = new_project(client), new_project(client, rows=0)
        cut_off = ok(client.post(f"{damaged.table()}/import", files={"file": ("a.csv", "id,v\n1,a\n")}))["job_id"]
    (tmp_path / f"project_{damaged.id}" / "_repo.json").write_text("{")
    with duckdb.connect(str(tmp_path / "metadata.duckdb")) as connection:  # as a kill leaves it
        connection.execute("UPDATE jobs SET state = 'running'")
    with serving(tmp_path) as running, running.client() as client:
        assert Project(client, whole.id).ids() == [1, 2, 3]
        job = ok(client.get(f"/jobs/{cut_off}"))
        assert (job["state"], job["error"]["code"]) == ("failed", "interrupted")
        assert "nothing was changed" not in job["error"]["message"]
        answer = client.get(f"{damaged.on()}/buckets")
        assert answer.status_code == 500
        assert set(answer.json()) == {"code", "message", "details"}
        assert str(tmp_path) not in answer.text


def test_rebuild_skips_damaged_repositories(tmp_path: Path) -> None:
    for name in ("damaged", "whole"):
        repository = ab.init(tmp_path / f"project_{name}")
        repository.branch_create_from("main", "br_1", mode="live", description="one")
    for entry in (tmp_path / "project_damaged" / "_versions" / "br_1").iterdir():
        entry.write_text("{")
    rebuilt = rebuild_metadata(Settings(data=tmp_path))
    assert (rebuilt.projects, rebuilt.branches, rebuilt.skipped) == (1, 1, ("project_damaged",))
    service = open_service(Settings(data=tmp_path))
    assert [project.id for project in service.projects.list_all()] == ["whole"]
    service.close()


def test_failed_project_create_leaves_nothing(tmp_path: Path) -> None:
    service = open_service(Settings(data=tmp_path))
    service.database.write("INSERT INTO projects (id, name) VALUES ('p', 'in the way')")
    with pytest.raises(duckdb.ConstraintException):
        service.projects.create("p", name=None, description="", actor=None)
    assert list(tmp_path.glob("*project_*")) == []
    service.projects.create("p", name=None, description="", actor=None)
    service.close()


def test_writes_that_wait_share_one_transaction(tmp_path: Path) -> None:
    """One that fails is rolled back and raises; the others are on disk."""
    database = Database(tmp_path / "metadata.duckdb")
    insert = "INSERT INTO projects (id, name) SELECT ?, txid_current()::VARCHAR"
    with ThreadPoolExecutor(5) as pool:
        with database.turn():
            good = [pool.submit(database.write, insert, [name]) for name in "abc"]
            while len(database._queue) < 3:
                pass
        for write in good:
            write.result()
        assert len({row["name"] for row in database.read("SELECT name FROM projects")}) == 1
        with database.turn():
            mixed = [pool.submit(database.write, insert, [name]) for name in "dae"]
            while len(database._queue) < 3:
                pass
        failed = [write for write in mixed if write.exception() is not None]
        assert [type(write.exception()) for write in failed] == [duckdb.ConstraintException]
    database.close()
    again = Database(tmp_path / "metadata.duckdb")
    assert [row["id"] for row in again.read("SELECT id FROM projects ORDER BY id")] == list("abcde")
    again.close()


def test_no_write_waits_for_a_thread_that_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "metadata.duckdb")

    def stop(*_: object) -> None:
        raise SystemExit(1)

    with ThreadPoolExecutor(3) as pool:
        with database.turn():
            writes = [pool.submit(database.insert, "projects", {"id": name, "name": name}) for name in "abc"]
            while len(database._queue) < 3:
                pass
            monkeypatch.setattr(database_module, "_run", stop)
        assert {type(write.exception()) for write in writes} == {SystemExit}
    monkeypatch.undo()
    database.insert("projects", {"id": "d", "name": "d"})
    assert [row["id"] for row in database.read("SELECT id FROM projects")] == ["d"]
    database.close()


def test_branches_of_one_name_are_created_once(project: Project) -> None:
    def create(_: int) -> int:
        return project.client.post(f"{project.path}/branches", json={"name": "wanted"}).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, range(4))) == [201, 409, 409, 409]
    assert len(ok(project.client.get(f"{project.path}/branches"))["branches"]) == 1


def test_a_folder_that_cannot_be_deleted_does_not_prevent_a_start(tmp_path: Path) -> None:
    (tmp_path / ".deleted_project_7").write_text("no folder")
    open_service(Settings(data=tmp_path)).close()


def test_data_in_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(InvalidPathError, match="cannot be created"):
        open_service(Settings(data=tmp_path / "data"))


def test_start_warns_of_a_missing_token_and_of_other_machines(tmp_path: Path) -> None:
    with process(tmp_path / "data", "--host", "0.0.0.0") as (started, _):  # noqa: S104 - the address that it warns of
        assert started.stdout is not None
        notes = [started.stdout.readline() for _ in range(3)]
    assert notes[0] == "note: there is no token yet, so no client can sign in; stop it, and start it with --init\n"
    assert notes[2] == "note: other machines can connect, and HTTP sends tokens as plain text; use a proxy with TLS\n"
    with process(tmp_path / "data", "--init") as (started, url):
        assert started.stdout is not None
        assert started.stdout.readline().startswith("token: ab_")
        assert started.stdout.readline() == f"serving {tmp_path / 'data'} at {url}\n"
