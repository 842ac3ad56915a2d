"""Exports over HTTP: rows of a table as a file to be fetched."""

import gzip
import io
import json
from typing import Any

import httpx
import pyarrow.parquet as pq

from tests.server.conftest import Project, Running, ok, refused


def export(project: Project, branch: str = "default", **body: Any) -> httpx.Response:
    return project.client.post(f"{project.table(branch)}/export", json=body)


def fetch(project: Project, done: dict[str, Any]) -> httpx.Response:
    response = project.client.get(done["url"])
    assert response.status_code == 200, response.text
    assert len(response.content) == done["size_bytes"]
    return response


def test_rows_are_written_as_csv(project: Project) -> None:
    done = ok(export(project))
    assert (done["rows"], done["format"], done["file_name"]) == (3, "csv", "orders.csv")
    assert done["url"] == f"/jobs/{done['job_id']}/file"
    response = fetch(project, done)
    assert response.text == '"id","v"\n1,"v1"\n2,"v2"\n3,"v3"\n'
    assert response.headers["content-type"].startswith("text/csv")
    assert response.headers["content-disposition"] == 'attachment; filename="orders.csv"'
    part = project.client.get(done["url"], headers={"Range": "bytes=9-14"})
    assert (part.status_code, part.text) == (206, '1,"v1"')
    job = ok(project.client.get(f"/jobs/{done['job_id']}"))
    assert (job["kind"], job["state"], job["result"]) == ("export", "succeeded", done)
    assert job["progress"] == {"rows": 3, "fraction": 1.0}


def test_columns_rows_and_form_can_be_chosen(project: Project) -> None:
    chosen = ok(export(project, columns=["v", "id"], where="id > 1", limit=1, delimiter=";", gzip=True, header=False))
    assert (chosen["rows"], chosen["file_name"]) == (1, "orders.csv.gz")
    assert gzip.decompress(fetch(project, chosen).content) == b'"v2";2\n'
    lines = fetch(project, ok(export(project, format="json", where="id <= 2"))).text.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 1, "v": "v1"}, {"id": 2, "v": "v2"}]
    read = pq.read_table(io.BytesIO(fetch(project, ok(export(project, format="parquet"))).content))
    assert read.to_pydict() == {"id": [1, 2, 3], "v": ["v1", "v2", "v3"]}
    nothing = ok(export(project, where="id > 100"))
    assert (nothing["rows"], fetch(project, nothing).text) == (0, '"id","v"\n')


def test_export_takes_the_name_of_the_tab(project: Project) -> None:
    done = ok(export(project, delimiter="tab", where="id = 1"))
    assert fetch(project, done).text == '"id"\t"v"\n1\t"v1"\n'


def test_an_export_shows_what_its_branch_shows(project: Project) -> None:
    branch = project.branch()
    assert ok(export(project, branch))["rows"] == 3
    before = project.insert(4, branch=branch)["commit_id"]
    project.insert(5, 6, branch=branch)
    assert [ok(export(project, on))["rows"] for on in ("default", branch)] == [3, 6]
    assert ok(export(project, branch, ref=before))["rows"] == 4


def test_what_was_exported_can_be_imported(project: Project) -> None:
    ok(project.client.post(f"{project.table()}/rows", json={"rows": [{"id": 8, "v": None}, {"id": 9, "v": 'a,"\n'}]}))
    before = project.preview()
    for form in ("csv", "json", "parquet"):
        done = ok(export(project, format=form))
        file = {"file": (done["file_name"], fetch(project, done).content)}
        assert ok(project.client.post(f"{project.table()}/import", files=file))["imported_rows"] == 5
        assert project.preview() == before


def test_what_makes_no_sense_is_refused(running: Running, project: Project) -> None:
    refusals: list[tuple[dict[str, Any], int, str]] = [
        ({"where": "id > > 1"}, 400, "invalid_expression"),
        ({"where": "nothing > 1"}, 400, "invalid_expression"),
        ({"columns": ["id", "w"]}, 400, "schema_mismatch"),
        ({"format": "parquet", "gzip": True}, 400, "invalid_input"),
        ({"delimiter": "é"}, 400, "invalid_input"),
        ({"ref": "no such moment"}, 404, "commit_not_found"),
        ({"format": "xls"}, 422, "invalid_request"),
        ({"limit": 0}, 422, "invalid_request"),
        ({"limit": 10**30}, 422, "invalid_request"),
        ({"filter": "x"}, 422, "invalid_request"),
        ({"delimiter": "tabs"}, 422, "invalid_request"),
        ({"encoding": "latin-1"}, 422, "invalid_request"),
        ({"quote": "'"}, 422, "invalid_request"),
    ]
    for body, status, code in refusals:
        reported = refused(export(project, **body), status, code)
        assert str(running.data) not in reported["message"]
    refused(project.client.post(f"{project.table(table='no')}/export", json={}), 404, "table_not_found")
    assert list((running.data / "files" / project.id).iterdir()) == []


def test_file_is_deleted_with_its_job(running: Running, project: Project) -> None:
    done = ok(export(project))
    assert running.service is not None
    running.service.database.write("UPDATE jobs SET finished_at = '2020-01-01' WHERE id = ?", [done["job_id"]])
    ok(export(project))
    refused(project.client.get(done["url"]), 404, "job_not_found")
    folder = running.data / "files" / project.id
    assert done["job_id"] not in [path.name for path in folder.iterdir()]
    imported = project.client.post(f"{project.table()}/import", files={"file": ("a.csv", b"id,v\n1,a\n")})
    refused(project.client.get(f"/jobs/{ok(imported)['job_id']}/file"), 404, "file_not_found")
