"""Imports over HTTP: the rows of a file become one commit, or nothing changes."""

import gzip
import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.server.files import Files
from anabranch.server.jobs import Jobs
from anabranch.server.settings import Limits
from tests.server.conftest import Project, Running, new_project, ok, refused, serving

T = TypeVar("T")


def send(
    project: Project, data: bytes | str, name: str = "orders.csv", *, branch: str = "default", **options: Any
) -> httpx.Response:
    sent = data.encode() if isinstance(data, str) else data
    return project.client.post(f"{project.table(branch)}/import", params=options, files={"file": (name, sent)})


def rows(project: Project, branch: str = "default") -> list[tuple[int, str | None]]:
    found = project.preview(branch, limit=10_000)["rows"]
    return sorted((row["id"], row["v"]) for row in found)


def state(project: Project, branch: str = "default") -> tuple[Any, ...]:
    """All that a failed import must leave as it was."""
    detail = ok(project.client.get(project.table(branch)))
    return rows(project, branch), detail["commit_id"], detail["source"]


def left_files(running: Running, project: Project) -> list[str]:
    folder = running.data / "files" / project.id
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_an_import_replaces_all_rows_unless_it_is_incremental(running: Running, project: Project) -> None:
    done = ok(send(project, "id,v\n7,seven\n8,eight\n"))
    assert rows(project) == [(7, "seven"), (8, "eight")]
    assert (done["imported_rows"], done["table_row_count"], done["warnings"]) == (2, 2, [])
    commit = ok(project.client.get(f"{project.on()}/commits/{done['commit_id']}"))
    assert (commit["kind"], commit["message"]) == ("load", "Import orders.csv into in_c_sales.orders")
    job = ok(project.client.get(f"/jobs/{done['job_id']}"))
    assert (job["state"], job["result"], job["progress"]) == ("succeeded", done, {"rows": 2, "fraction": 1.0})
    done = ok(send(project, "id,v\n8,other\n9,nine\n", incremental=True))
    assert rows(project) == [(7, "seven"), (8, "other"), (9, "nine")]
    assert (done["imported_rows"], done["table_row_count"]) == (2, 3)
    assert left_files(running, project) == []


def test_without_a_primary_key_an_incremental_import_adds_rows(project: Project) -> None:
    ok(project.client.put(f"{project.table()}/primary-key", json={"columns": []}))
    ok(send(project, "id,v\n3,again\n", incremental=True))
    assert rows(project) == [(1, "v1"), (2, "v2"), (3, "again"), (3, "v3")]
    refused(send(project, "id,v\n3,again\n", dedup=True), 400, "invalid_input")


def test_columns_are_found_by_their_names(project: Project) -> None:
    ok(send(project, "v,id\nseven,7\n"))
    assert rows(project) == [(7, "seven")]
    ok(send(project, "eight,8\n", columns="v,id"))
    assert rows(project) == [(8, "eight")]
    ok(send(project, "9,nine\n", header=False))
    assert rows(project) == [(9, "nine")]
    assert [column["name"] for column in project.preview()["columns"]] == ["id", "v"]


def test_files_come_as_their_senders_write_them(project: Project) -> None:
    packed, columns = gzip.compress(b"id,v\n7,a;b\n8,\n"), parquet({"v": ["a;b", None], "id": [7, 8]})
    files: list[tuple[bytes | str, str, dict[str, Any]]] = [
        ("id;v\n7;'a;b'\n8;NULL\n", "orders.csv", {"delimiter": ";", "quote": "'", "null": "NULL"}),
        ("id\tv\n7\ta;b\n8\t\n", "orders.tsv", {}),
        ("a note\nid|v\n7|a;b\n8|\n", "orders.txt", {"delimiter": "|", "quote": "", "skip": 1}),
        ("id,v\n7,a;b\n8,\n".encode("utf-16"), "orders", {"encoding": "utf-16"}),
        (packed, "orders.csv.gz", {}),
        (packed, "no ending that would tell", {}),
        ('{"v": "a;b", "id": 7}\n{"id": 8}\n', "orders.jsonl", {}),
        (columns, "orders.parquet", {}),
        (columns, "orders", {}),
    ]
    for data, name, options in files:
        ok(send(project, "id,v\n0,none\n"))
        assert ok(send(project, data, name, **options))["imported_rows"] == 2
        assert rows(project) == [(7, "a;b"), (8, None)]


@pytest.mark.parametrize(
    ("data", "code", "line", "reason"),
    [
        ("id,v\n7,a\n8,b,c\n", "bad_record", 3, "it has 3 values for 2 columns"),
        ("id,v\n7,a\n\n8,b\nnine,c\n", "bad_record", 5, "cannot convert 'nine' to int64 (column 'id')"),
        ("id,v\n7,a\n8,b\n7,c\n", "key_conflict", 4, "the key {'id': 7} occurs more than once"),
    ],
)
def test_a_failed_import_reports_where_and_why_and_leaves_the_table_as_it_was(
    running: Running, project: Project, data: str, code: str, line: int, reason: str
) -> None:
    branch = project.branch()
    for on, incremental in product(("default", branch), (False, True)):
        before = state(project, on)
        response = send(project, data, "März.csv", branch=on, incremental=incremental)
        reported = refused(response, 409 if code == "key_conflict" else 400, code)
        assert (reported["details"]["file"], reported["details"]["line"], reported["details"]["reason"]) == (
            "März.csv",
            line,
            reason,
        )
        assert f"März.csv, line {line}" in reported["message"]
        assert str(running.data) not in response.text
        assert state(project, on) == before
        job = ok(project.client.get(f"/jobs/{reported['details']['job_id']}"))
        assert (job["state"], job["error"]["code"], job["result"]) == ("failed", code, None)
    assert ok(project.client.get(project.on(branch)))["tables"] == []
    assert left_files(running, project) == []


def test_what_is_no_such_file_is_refused(project: Project) -> None:
    before = state(project)
    files: list[tuple[bytes | str, str, str]] = [
        ("id,w\n7,a\n", "a.csv", "schema_mismatch"),
        ("v\na\n", "a.csv", "schema_mismatch"),
        ("", "a.csv", "schema_mismatch"),
        (gzip.compress(b"id,v\n7,a\n")[:-6], "a.csv.gz", "bad_record"),
        (b"PAR1 and no more", "a.parquet", "bad_record"),
        (b"id,v\n7,\xff\xfe\n", "a.csv", "bad_record"),
        (parquet({"id": ["seven"], "v": ["a"]}), "a.parquet", "schema_mismatch"),
        ("[7,", "a.json", "bad_record"),
    ]
    for data, name, code in files:
        reported = refused(send(project, data, name), 400, code)
        assert name in reported["message"]
        assert reported["details"]["file"] == name
        assert reported["details"]["reason"] in reported["message"]
        assert "/files/" not in str(reported)
        assert state(project) == before


def test_of_rows_with_the_same_key_the_last_can_win(project: Project) -> None:
    done = ok(send(project, "id,v\n7,first\n8,b\n7,last\n", dedup=True))
    assert rows(project) == [(7, "last"), (8, "b")]
    assert (done["imported_rows"], done["warnings"]) == (2, ["1 rows were replaced by later rows with the same key"])
    done = ok(send(project, "id,v\n7,x\n9,y\n7,z\n", dedup=True, incremental=True))
    assert rows(project) == [(7, "z"), (8, "b"), (9, "y")]


def test_an_import_copies_the_table_to_the_branch(project: Project) -> None:
    branch = project.branch()
    done = ok(send(project, "id,v\n4,new\n", branch=branch, incremental=True))
    assert done["table_row_count"] == 4
    assert rows(project, branch) == [(1, "v1"), (2, "v2"), (3, "v3"), (4, "new")]
    assert rows(project) == [(1, "v1"), (2, "v2"), (3, "v3")]
    copied = ok(project.client.get(project.on(branch)))["tables"]
    assert [(table["bucket"], table["table"]) for table in copied] == [("in_c_sales", "orders")]
    project.insert(5)
    assert project.ids(branch) == [1, 2, 3, 4]


def test_imports_at_the_same_time_all_get_in_and_make_one_copy(project: Project) -> None:
    branch = project.branch()

    def one(number: int) -> dict[str, Any]:
        return ok(send(project, f"id,v\n{number},new\n3,{number}\n", branch=branch, incremental=True))

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(one, range(10, 16)))
    assert len({answer["commit_id"] for answer in done}) == 6
    assert sorted(answer["table_row_count"] for answer in done) == [4, 5, 6, 7, 8, 9]
    assert project.ids(branch) == [1, 2, 3, *range(10, 16)]
    assert len(ok(project.client.get(project.on(branch)))["tables"]) == 1
    assert project.ids() == [1, 2, 3]


def test_a_file_can_be_sent_before_and_imported_twice(running: Running, project: Project) -> None:
    files = f"{project.path}/files"
    response = project.client.post(files, files={"file": ("../orders.csv", b"id,v\n7,seven\n")})
    sent = ok(response)
    assert (response.status_code, sent["name"], sent["size_bytes"]) == (201, "orders.csv", 13)
    assert ok(project.client.get(files))["files"] == [sent]
    branch = project.branch()
    for on in ("default", branch):
        done = ok(project.client.post(f"{project.table(on)}/import", params={"file_id": sent["id"]}))
        assert done["imported_rows"] == 1
        assert rows(project, on) == [(7, "seven")]
    other = new_project(project.client, rows=0)
    foreign = project.client.post(f"{other.table()}/import", params={"file_id": sent["id"]})
    refused(foreign, 404, "file_not_found")
    assert left_files(running, project) == [sent["id"]]
    assert project.client.delete(f"{files}/{sent['id']}").status_code == 204
    refused(project.client.get(f"{files}/{sent['id']}"), 404, "file_not_found")
    assert left_files(running, project) == []


def test_a_file_of_another_form_is_refused_with_the_field_to_pass(project: Project) -> None:
    before = state(project)
    answer = refused(send(project, "id,v\n7,a\n", delimiter=";"), 400, "schema_mismatch")
    assert answer["message"] == "the header of 'orders.csv', line 1, is one column 'id,v' with the delimiter ';'"
    assert answer["details"]["hint"] == "pass delimiter=',', or quote the name in the file if it is one column"
    answer = refused(send(project, "id\tv\n7\ta\n"), 400, "schema_mismatch")
    assert answer["details"]["hint"].startswith("pass delimiter=tab, or")
    answer = refused(send(project, '[{"id": 7, "v": "a"}]'), 400, "invalid_input")
    assert answer["message"].startswith("'orders.csv' looks like JSON, not CSV: it begins with")
    assert answer["details"]["hint"] == "pass format=json"
    assert state(project) == before
    ok(send(project, "id\tv\n7\ta\n", delimiter="tab"))
    ok(send(project, '[{"id": 8, "v": "b"}]', format="json", incremental=True))
    assert rows(project) == [(7, "a"), (8, "b")]


def test_requests_that_make_no_sense_are_refused(running: Running, project: Project) -> None:
    before = state(project)
    path, good = f"{project.table()}/import", {"file": ("a.csv", b"id,v\n7,a\n")}
    post = project.client.post
    refused(post(path), 400, "invalid_input")
    refused(post(path, json={}), 400, "invalid_input")
    refused(post(path, files=good, params={"file_id": "file_1"}), 400, "invalid_input")
    refused(post(path, params={"file_id": "file_1"}), 404, "file_not_found")
    refused(post(path, files={"other": b"x"}), 400, "invalid_input")
    refused(post(path, files=good, data={"incremental": "true"}), 400, "invalid_input")
    refused(post(path, files=[("file", ("a", b"x")), ("file", ("b", b"x"))]), 400, "invalid_input")
    refused(post(path, files=good, params={"columns": "id,v", "header": True}), 400, "invalid_input")
    refused(post(path, files=good, params={"delimiter": '"'}), 400, "invalid_input")
    refused(post(path, files=good, params={"delimiter": "ta"}), 400, "invalid_input")
    refused(post(path, files=good, params={"columns": "id,id"}), 400, "invalid_input")
    for encoding in ("klingon", "hex", "rot13"):
        refused(post(path, files=good, params={"encoding": encoding}), 400, "invalid_input")
    refused(post(path, files=good, params={"encoding": "undefined"}), 400, "bad_record")
    for params in ({"color": "red"}, {"skip": -1}, {"wait": 101}, {"format": "xls"}):
        refused(post(path, files=good, params=params), 422, "invalid_request")
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for body in (b"", b"--x", b"--x\r\nContent-Disposition: form-data\r\n\r\n", b"nothing like it", b"--x--\r\n"):
        refused(post(path, content=body, headers=form), 400, "invalid_input")
    refused(post(path, content=b"x", headers={"Content-Type": "multipart/form-data"}), 400, "invalid_input")
    missing = f"{project.table(table='nothing')}/import"
    refused(post(missing, files=good), 404, "table_not_found")
    assert state(project) == before
    assert left_files(running, project) == []


def test_a_file_that_is_too_large_is_refused_while_it_comes(tmp_path: Path) -> None:
    with serving(tmp_path / "data", limits=Limits(upload_bytes=300_000)) as running, running.client() as client:
        project = new_project(client)
        head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\nid,v\n'

        def endless() -> Any:
            yield head
            for number in range(10_000):
                yield b"%d,%s\n" % (number, b"v" * 90)

        form = {"Content-Type": "multipart/form-data; boundary=x"}
        for path in (f"{project.table()}/import", f"{project.path}/files"):
            refused(client.post(path, content=endless(), headers=form), 413, "too_large")
        assert left_files(running, project) == []
        assert project.ids() == [1, 2, 3]
        assert client.delete(project.path).status_code == 204


def test_a_large_file_may_take_longer_if_it_keeps_coming(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        made = new_project(client)
    limits = Limits(request_seconds=0.8, slowest_bytes_per_second=1000)
    with serving(tmp_path, limits=limits) as running, running.client() as client:
        project = Project(client, made.id)
        head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\nid,v\n'
        form = {"Content-Type": "multipart/form-data; boundary=x"}

        def slow(size: int) -> Iterator[bytes]:
            yield head
            for number in range(5):
                yield b"%d,%s\n" % (number, b"v" * size)
                time.sleep(0.2)  # longer than a request may take, all in all
            yield b"\r\n--x--\r\n"

        sent = client.post(f"{project.table()}/import", content=slow(20_000), headers=form)
        assert ok(sent)["imported_rows"] == 5
        refused(client.post(f"{project.table()}/import", content=slow(1), headers=form), 408, "too_slow")
        assert left_files(running, project) == []


@pytest.mark.parametrize("route", ["files", "import"])
def test_file_of_a_timed_out_request_is_complete_or_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """The thread that records the file, or the job that imports it, continues after the request has ended."""
    part, reached, answered = Files if route == "files" else Jobs, threading.Event(), threading.Event()
    insert = part._insert

    def insert_late(*args: Any) -> None:
        reached.set()
        answered.wait(60)
        insert(*args)

    with serving(tmp_path) as running, running.client() as client:
        made = new_project(client)
    with serving(tmp_path, limits=Limits(request_seconds=3.0)) as running, running.client() as client:
        project = Project(client, made.id)
        monkeypatch.setattr(part, "_insert", insert_late)
        path = f"{project.path}/files" if route == "files" else f"{project.table()}/import"
        refused(client.post(path, files={"file": ("a.csv", b"id,v\n7,seven\n")}), 408, "too_slow")
        assert reached.is_set()
        monkeypatch.undo()
        answered.set()
        if route == "files":
            kept = wait_for(lambda: ok(client.get(f"{project.path}/files"))["files"])
            ok(client.post(f"{project.table()}/import", params={"file_id": kept[0]["id"]}))
        wait_for(lambda: rows(project) == [(7, "seven")])


def wait_for(find: Callable[[], T]) -> T:
    """Return what a function finds, as soon as it finds something."""
    deadline = time.monotonic() + 60
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_project_delete_deletes_its_files(running: Running, client: httpx.Client) -> None:
    project = new_project(client)
    ok(client.post(f"{project.path}/files", files={"file": ("a.csv", b"id,v\n7,a\n")}))
    assert client.delete(project.path).status_code == 204
    assert not (running.data / "files" / project.id).exists()
