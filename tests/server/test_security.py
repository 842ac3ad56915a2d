"""What an attacker tries: each is refused in the one form, and nothing has changed."""

import gzip
import hashlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from anabranch.server.settings import Limits
from tests.server.conftest import Project, Running, make_token, new_project, ok, refused, serving

TRACES = ("Traceback", ".py", "site-packages", "rust/")


def raw(running: Running, method: str, path: str) -> httpx.Response:
    """Send a path as it is, with a body of rows; httpx would tidy it."""
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"))
    headers = {"Authorization": f"Bearer {running.secret}", "Content-Type": "application/json"}
    connection.request(method, path, body=None if method == "GET" else '{"rows": [{"id": 9}]}', headers=headers)
    answer = connection.getresponse()
    request = httpx.Request(method, running.url)
    found = httpx.Response(answer.status, content=answer.read(), request=request)
    connection.close()
    return found


def state_of(running: Running, project: Project) -> dict[str, Any]:
    """All files of a project, what is beside projects, and the heads of the branches."""
    files = {
        str(path.relative_to(running.data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(running.data.rglob("*"))
        if path.is_file() and {f"project_{project.id}", project.id} & set(path.parts)
    }
    known = ("project_", "files", "metadata.duckdb")
    beside = sorted(path.name for path in running.data.iterdir() if not path.name.startswith(known))
    branches = ok(project.client.get(f"{project.path}/branches"))["branches"]
    heads = [
        ok(project.client.get(f"{project.on(branch)}/commits", params={"limit": 1}))["commits"][0]["id"]
        for branch in ("default", *(one["id"] for one in branches))
    ]
    return {"files": files, "beside": beside, "heads": heads, "branches": branches}


@pytest.fixture(scope="module")
def victim(running: Running) -> Iterator[tuple[Project, dict[str, Any]]]:
    """A project with a branch, and its state."""
    with running.client() as client:
        project = new_project(client)
        project.branch("dev")
        yield project, state_of(running, project)


@pytest.fixture
def unchanged(running: Running, victim: tuple[Project, dict[str, Any]]) -> Iterator[Project]:
    """A project in which a test changes nothing."""
    project, before = victim
    yield project
    assert state_of(running, project) == before


def assert_refused(answer: httpx.Response, *statuses: int, running: Running | None = None) -> dict[str, Any]:
    """The one form, a status of those, and no word about the inside of the service."""
    body = answer.json()
    assert answer.status_code in statuses, (answer.request.url, answer.text)
    assert set(body) == {"code", "message", "details"}, answer.text
    assert not any(trace in answer.text for trace in TRACES), answer.text
    if running is not None:
        assert str(running.data) not in answer.text
        assert running.secret not in answer.text
    return dict(body)


WAYS_OUT = [
    "..",
    "%2e%2e",
    "%252e%252e",
    "..%2f..%2fmetadata.duckdb",
    "%2fetc%2fpasswd",
    "..%5c..%5cx",
    "%00",
    "orders%00.csv",
    "~root",
    "x" * 3000,
    "%F0%9F%92%A9",
    "a%0d%0aX-Header:%20y",
    "file:%2f%2f%2fetc",
    "*",
    "$(id)",
    "'%20OR%20'1'='1",
]
HEADERS = [
    "/projects/{}",
    "/projects/{}/branches",
    "/projects/P/branches/{}",
    "/projects/P/branches/default/buckets/{}",
    "/projects/P/branches/default/buckets/in_c_sales/tables/{}",
    "/projects/P/branches/default/buckets/in_c_sales/tables/{}/preview",
    "/projects/P/branches/default/diff/in_c_sales/{}",
    "/projects/P/branches/default/commits/{}",
    "/projects/P/tags/{}",
    "/projects/P/files/{}",
    "/jobs/{}",
    "/jobs/{}/file",
    "/tokens/{}",
]


def test_no_part_of_a_path_leads_out_of_its_folder(running: Running, unchanged: Project) -> None:
    for header in HEADERS:
        path = header.replace("/P/", f"/{unchanged.id}/")
        for way in WAYS_OUT:
            # A path with dots or slashes may be another route, where it is refused for its method or its parts.
            assert_refused(raw(running, "GET", path.format(way)), 400, 404, 405, 422, running=running)


def test_writes_outside_the_data_folder_are_refused(running: Running, unchanged: Project) -> None:
    for way in WAYS_OUT:
        table = f"{unchanged.on()}/buckets/{way}/tables/orders"
        for method, path in [
            ("POST", f"{table}/rows"),
            ("PUT", f"{unchanged.on(way)}/buckets/in_c_sales/tables/orders/rows"),
            ("POST", f"{unchanged.on()}/tables/in_c_sales/{way}/pull"),
        ]:
            assert_refused(raw(running, method, path), 404, 405, 422, running=running)
        for path in (table, unchanged.on(way), f"/projects/{way}", f"{unchanged.path}/files/{way}"):
            assert_refused(raw(running, "DELETE", path), 404, 405, 422, running=running)


@pytest.mark.parametrize(
    "name", ["../x", "..", ".", "/etc/x", "a/b", "a\\b", "a\u0000b", "", "x" * 129, "_versions/..", "a.lance/..", "a b"]
)
def test_what_is_made_has_a_name_that_is_not_a_path(running: Running, unchanged: Project, name: str) -> None:
    client = unchanged.client
    columns = [{"name": "id", "type": "int64"}]
    for path, body in [
        ("/projects", {"id": name}),
        (f"{unchanged.on()}/buckets", {"name": name}),
        (f"{unchanged.on()}/buckets/in_c_sales/tables", {"name": name, "columns": columns}),
        (f"{unchanged.path}/tags", {"name": name}),
    ]:
        if name == "x" * 129 or (path, name) != ("/projects", ""):
            assert_refused(client.post(path, json=body), 400, 422, running=running)


@pytest.mark.parametrize("name", ["default", "main", ".."])
def test_no_branch_is_reached_by_the_name_of_another(shared: Project, name: str) -> None:
    """A branch has an id that the service makes; its name is words, even if these are `main`."""
    made = shared.branch(name)
    try:
        assert made.startswith("br_")
        shared.insert(50, branch=made)
        assert shared.ids() == [1, 2, 3]
    finally:
        assert shared.client.delete(shared.on(made)).status_code == 204
    assert_refused(shared.client.delete(shared.on("default")), 400, 404, 409, 422)
    assert_refused(shared.client.get(f"{shared.on('main')}/buckets"), 404)


@pytest.mark.parametrize(
    "name", ["../../../evil.csv", "..\\..\\evil.csv", "/etc/evil.csv", "a\u0000b.csv", "..", "é.csv"]
)
def test_the_name_of_an_upload_is_not_a_path(running: Running, unchanged: Project, name: str) -> None:
    client = unchanged.client
    made = ok(client.post(f"{unchanged.path}/files", files={"file": (name, b"id,v\n1,a\n")}))
    folder = running.data / "files" / unchanged.id / made["id"]
    assert [path.name for path in folder.iterdir()] in (["data.csv"], ["data"])
    assert "/" not in made["name"]
    assert "\\" not in made["name"]
    assert made["name"].isprintable()
    assert client.delete(f"{unchanged.path}/files/{made['id']}").status_code == 204


STATEMENTS = [
    "1=1; DROP TABLE orders",
    "id IN (SELECT id FROM orders)",
    "EXISTS (SELECT 1)",
    "1=1 UNION SELECT 1",
    "read_csv('/etc/passwd') IS NULL",
    "v = read_text('/etc/passwd')",
    "v IN (FROM read_csv_auto('/etc/passwd'))",
    "glob('/etc/*') IS NOT NULL",
    "getenv('HOME') = 'x'",
    "current_setting('data_directory') = 'x'",
    "version() = '1'",
    "ATTACH '/tmp/x.db'",
    "COPY orders TO '/tmp/x'",
    "INSTALL httpfs",
    "PRAGMA database_list",
    "information_schema.tables.table_name = 'x'",
    "tokens.secret_hash IS NOT NULL",
    "secret_hash IS NOT NULL",
    "true) OR (true",
    "_rowid >= 0",
    "_RowAddr >= 0",
    "`_rowid` >= 0",
    "arrow_cast(id, 'Decimal128(99, 1)') = 1",
    "CAST(id AS DECIMAL(99, 1)) = 1",
    "CAST(id AS DECIMAL(10, -3)) = 1",
    "date_trunc('x', now()) = now()",
    "date_part('', now()) = 1",
    "get_field(v, 'a') = 'x'",
    "magic = 1",
    "corrupt = 'decode'",
    "\u0000",
    "",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_filter_sees_the_columns_of_its_table_and_nothing_else(running: Running, shared: Project, text: str) -> None:
    """Words that Lance has for damaged files are not taken for such, either."""
    client, table = shared.client, shared.table()
    answers = [
        client.get(f"{table}/preview", params={"where": text}),
        client.get(f"{table}/preview", params={"where": text, "sort": "id", "format": "csv"}),
        client.delete(f"{table}/rows", params={"where": text}),
        client.post(f"{table}/export", json={"where": text}),
    ]
    for answer in answers:
        reported = assert_refused(answer, 400, 422, running=running)
        assert reported["code"] in ("invalid_expression", "invalid_input", "invalid_request")
        assert ".lance" not in reported["message"]
    assert shared.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    "text", ["id; DROP TABLE orders", "random()", "(SELECT 1)", "_rowid", "*", "1", "id desc", "", "0" * 9000]
)
def test_columns_and_orders_are_names_and_no_sql(running: Running, shared: Project, text: str) -> None:
    for name in ("sort", "columns"):
        answer = shared.client.get(f"{shared.table()}/preview", params={name: text})
        assert_refused(answer, 400, running=running)
    assert_refused(shared.client.post(f"{shared.table()}/export", json={"columns": [text or "x"]}), 400, 422)


def test_names_with_sql_in_them_are_kept_as_they_are(shared: Project) -> None:
    client, name = shared.client, "x'); DROP TABLE tokens; --"
    branch = shared.branch(name)
    made = ok(client.post("/tokens", json={"name": name, "scope": "read", "project_id": shared.id}))
    assert made["name"] == ok(client.get(shared.on(branch)))["name"] == name
    assert ok(client.get("/jobs", params={"project_id": "' OR 1=1 --"})) == {"jobs": []}
    assert client.delete(shared.on(branch)).status_code == 204


BODIES = [
    b'{"rows": [{"id": ' + b"[" * 900 + b"]" * 900 + b"}]}",
    b'{"rows": [{"v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    b'{"rows": [{"v": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}]}",
    b'{"rows": [{"id": 1' + b"0" * 5000 + b"}]}",
    b'{"rows": [{"id": 1e400}]}',
    b'{"rows": [{"id": NaN}]}',
    b'{"rows": [{"id": "1; DROP"}]}',
    b'{"rows": [{"id": {"$gt": 0}}]}',
    b'{"rows": [{"id": true}]}',
    b'{"rows": [{"v": "\\ud800"}]}',
    b'{"rows": [{"\\ud800": 1}]}',
    b'{"rows": [{"__class__": 1}]}',
    b'{"rows": {"id": 9}}',
    b'{"rows": []}',
    b'{"rows": [[9]]}',
    b'{"rows": "id"}',
    b'{"rows": null}',
    b'{"rows": [{"id": 9}], "\\ud800": 1}',
    b"",
    b"null",
    b"\x00",
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:30].decode(errors="replace").replace("\x00", "NUL"))
def test_rows_of_another_shape_are_refused(running: Running, shared: Project, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    for method in ("POST", "PUT"):
        answer = shared.client.request(method, f"{shared.table()}/rows", content=body, headers=headers)
        assert_refused(answer, 400, 422, running=running)
    assert shared.ids() == [1, 2, 3]


def test_a_body_in_another_language_is_refused(running: Running, unchanged: Project) -> None:
    body = b'{"rows": [{"id": 9}]}'
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind}
        answer = unchanged.client.post(f"{unchanged.table()}/rows", content=body, headers=headers)
        assert_refused(answer, 400, 415, 422, running=running)


def test_unknown_options_are_refused(unchanged: Project) -> None:
    """A wrongly spelled `cascade` or `limit` would be taken for one left out."""
    for method, path in [
        ("GET", "/projects"),
        ("GET", f"{unchanged.path}/branches"),
        ("GET", f"{unchanged.table()}/preview"),
        ("DELETE", unchanged.table()),
    ]:
        answer = unchanged.client.request(method, path, params={"cascad": "true"})
        assert "cascad" in refused(answer, 422, "invalid_request")["message"]


def test_a_table_with_too_many_columns_is_refused(unchanged: Project) -> None:
    columns = [{"name": f"c{number}", "type": "int64"} for number in range(2001)]
    tables = f"{unchanged.on()}/buckets/in_c_sales/tables"
    refused(unchanged.client.post(tables, json={"name": "wide", "columns": columns}), 422, "invalid_request")
    deep = "list<" * 150 + "int64" + ">" * 150
    body = {"name": "deep", "columns": [{"name": "a", "type": deep}]}
    assert_refused(unchanged.client.post(tables, json=body), 400, 422)


def test_a_small_file_that_unpacks_to_one_endless_line_is_refused(running: Running, unchanged: Project) -> None:
    bomb = gzip.compress(b"id,v\n1," + b"x" * (80 << 20), compresslevel=1)
    assert len(bomb) < 1 << 20
    answer = unchanged.client.post(f"{unchanged.table()}/import", files={"file": ("a.csv.gz", bomb)})
    reported = refused(answer, 400, "bad_record")
    assert "64 MiB" in reported["message"]
    assert_refused(answer, 400, running=running)


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("tight"), limits=Limits(body_bytes=2000, upload_bytes=4000)) as running:
        yield running


def test_an_upload_that_is_too_large_leaves_nothing_behind(tight: Running) -> None:
    with tight.client() as client:
        project = new_project(client)
        head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
        headers = {"content-type": "multipart/form-data; boundary=x"}
        before = state_of(tight, project)

        def pieces() -> Iterator[bytes]:
            yield head
            for _ in range(10):
                yield b"id,v\n" * 200

        for path in (f"{project.path}/files", f"{project.table()}/import"):
            whole = head + b"id,v\n" * 2000 + b"\r\n--x--\r\n"
            refused(client.post(path, content=whole, headers=headers), 413, "too_large")
            refused(client.post(path, content=pieces(), headers=headers), 413, "too_large")
        assert state_of(tight, project) == before


@pytest.fixture
def other(client: httpx.Client, running: Running) -> dict[str, Any]:
    """Another project, and the ids of what it has."""
    theirs = new_project(client)
    branch = theirs.branch()
    commit = theirs.insert(4, branch=branch)["commit_id"]
    ok(client.post(f"{theirs.path}/tags", json={"name": "theirs"}))
    file = ok(client.post(f"{theirs.path}/files", files={"file": ("a.csv", b"id,v\n7,a\n")}))["id"]
    job = ok(client.post(f"{theirs.table()}/export", json={}))["job_id"]
    token = ok(client.post(f"{theirs.path}/tokens", json={"name": "t", "scope": "read"}))["id"]
    main = theirs.insert(5)["commit_id"]
    return {
        "project": theirs, "branch": branch, "commit": commit, "main": main, "file": file, "job": job, "token": token
    }  # fmt: skip


def test_ids_of_another_project_are_nothing_here(running: Running, unchanged: Project, other: dict[str, Any]) -> None:
    """A caller that may do everything with one project learns and changes nothing of another."""
    theirs: Project = other["project"]
    before = state_of(running, theirs)
    secret = make_token(unchanged.client, "project", project_id=unchanged.id)
    table = unchanged.table()
    with running.client(secret) as client:
        for path in (
            unchanged.on(other["branch"]),
            f"{unchanged.table(other['branch'])}/preview",
            f"{unchanged.on(other['branch'])}/diff",
            f"{unchanged.on()}/commits/{other['commit']}",
            f"{unchanged.on()}/commits/{other['main']}",
            f"{unchanged.path}/tags/theirs",
            f"{unchanged.path}/files/{other['file']}",
            f"/jobs/{other['job']}",
            f"/jobs/{other['job']}/file",
            f"{table}/preview?ref={other['main']}",
            f"{table}/preview?ref=theirs",
        ):
            assert_refused(client.get(path), 404, running=running)
        for path in (
            unchanged.on(other["branch"]),
            unchanged.table(other["branch"]),
            f"{unchanged.path}/tags/theirs",
            f"{unchanged.path}/files/{other['file']}",
            f"{unchanged.path}/tokens/{other['token']}",
            f"/jobs/{other['job']}",
        ):
            assert_refused(client.delete(path), 404, running=running)
        for path in (
            f"{table}/import?file_id={other['file']}",
            f"{unchanged.on(other['branch'])}/tables/in_c_sales/orders/pull",
            f"{unchanged.path}/tokens/{other['token']}/rotate",
        ):
            assert_refused(client.post(path), 404, running=running)
        for body in ({"name": "x", "branch_id": other["branch"]}, {"name": "x", "ref": other["main"]}):
            assert_refused(client.post(f"{unchanged.path}/tags", json=body), 404, running=running)
        body = {"name": "x", "scope": "read", "branch_id": other["branch"]}
        assert_refused(client.post(f"{unchanged.path}/tokens", json=body), 404, running=running)
        assert_refused(client.get("/jobs", params={"project_id": theirs.id}), 403, running=running)
        assert other["job"] not in client.get("/jobs").text
    assert state_of(running, theirs) == before


def test_the_key_of_another_token_answers_nothing(running: Running, shared: Project) -> None:
    branch = shared.branch()
    key = {"Idempotency-Key": f"key-of-{shared.id}"}
    path, rows = f"{shared.table(branch)}/rows", {"rows": [{"id": 70}]}
    first = shared.client.post(path, json=rows, headers=key)
    assert first.status_code == 201
    with running.client(make_token(shared.client, "read", project_id=shared.id)) as reader:
        refused(reader.post(path, json=rows, headers=key), 403, "forbidden")
    with running.client("ab_nobody") as anonymous:
        refused(anonymous.post(path, json=rows, headers=key), 401, "unauthenticated")
    with running.client(make_token(shared.client, "branch", project_id=shared.id)) as writer:
        answer = writer.post(path, json=rows, headers=key)
        assert "Idempotent-Replay" not in answer.headers
        refused(answer, 409, "key_conflict")
    assert shared.client.delete(shared.on(branch)).status_code == 204


def test_a_token_counts_in_its_header_only(running: Running, unchanged: Project) -> None:
    secret = running.secret
    client = httpx.Client(base_url=running.url)
    for headers in (
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": secret},
        {"Authorization": f"Basic {secret}"},
        {"Authorization": f"Token {secret}"},
        {"Authorization": f"Bearer {secret} {secret}"},
        {"Authorization": f"Bearer {secret[:-1]}"},
        {"Authorization": f"Bearer {secret.upper()}"},
        {"Authorization": f"Bearer {hashlib.sha256(secret.encode()).hexdigest()}"},
        {"X-Api-Key": secret},
        {"Cookie": f"token={secret}; Authorization=Bearer {secret}"},
        {"X-Forwarded-User": "admin"},
    ):
        for path in ("/projects", f"/projects?token={secret}", f"/projects?access_token={secret}"):
            refused(client.get(path, headers=headers), 401, "unauthenticated")
        refused(client.delete(unchanged.path, headers=headers), 401, "unauthenticated")
    refused(client.get("/projects", headers=[("Authorization", "Bearer x")] * 2), 401, "unauthenticated")
    client.close()


def test_secrets_are_nowhere_on_disk_and_in_no_answer(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running, running.client() as client:
        project = new_project(client)
        made = ok(client.post("/tokens", json={"name": "a", "scope": "project", "project_id": project.id}))
        turned = ok(client.post(f"/tokens/{made['id']}/rotate"))["secret"]
        secrets = [running.secret, made["secret"], turned]
        with running.client(turned) as holder:
            own = Project(holder, project.id)
            own.insert(4)
            headers = {"Idempotency-Key": "k"}
            ok(holder.post(f"{project.path}/branches", json={"name": "x"}, headers=headers))
            refused(holder.post(f"{project.path}/tokens", json={"name": "y", "scope": "read"}, headers=headers), 400, "invalid_input")  # fmt: skip  # noqa: E501
        seen = [client.get(path).text for path in ("/tokens", "/audit", "/jobs", "/metrics", f"{project.on()}/commits")]
        assert not [secret for secret in secrets for text in seen if secret in text]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(path.name == "metadata.duckdb" for path in files)
    for path in files:
        content = path.read_bytes()
        for secret in secrets:
            assert secret.encode() not in content, path
            _, _, random = secret.split("_", maxsplit=2)  # the rest may have a "_", too
            assert random.encode() not in content, path


def test_every_write_is_recorded_in_the_audit(shared: Project) -> None:
    """The done and the refused alike, with the token that it came from."""
    client, branch = shared.client, shared.branch()
    table = shared.table(branch)
    done = [
        ("insert_rows", client.post(f"{table}/rows", json={"rows": [{"id": 5}]})),
        ("upsert_rows", client.put(f"{table}/rows", json={"rows": [{"id": 5}]})),
        ("delete_rows", client.delete(f"{table}/rows", params={"where": "id = 5"})),
        ("delete_rows", client.delete(f"{table}/rows", params={"where": "1=1; DROP TABLE x"})),
        ("insert_rows", client.post(f"{table}/rows", content=b"no json")),
        ("import_table", client.post(f"{table}/import", files={"file": ("a.csv", b"id,v\n1,a\n")})),
        ("export_table", client.post(f"{table}/export", json={})),
        ("add_columns", client.post(f"{table}/columns", json={"columns": [{"name": "n", "type": "int64"}]})),
        ("alter_column", client.patch(f"{table}/columns/n", json={"name": "m"})),
        ("drop_column", client.delete(f"{table}/columns/m")),
        ("set_primary_key", client.put(f"{table}/primary-key", json={"columns": []})),
        ("pull_table", client.post(f"{shared.on(branch)}/tables/in_c_sales/orders/pull")),
        ("create_project_tag", client.post(f"{shared.path}/tags", json={"name": "t"})),
        ("delete_tag", client.delete(f"{shared.path}/tags/t")),
        ("delete_branch", client.delete(shared.on(branch))),
        ("delete_branch", client.delete(shared.on(branch))),
    ]
    events = ok(client.get(f"{shared.path}/audit"))["events"][: len(done)]
    reported = [(event["action"], event["status"]) for event in reversed(events)]
    assert reported == [(action, answer.status_code) for action, answer in done], json.dumps(reported)
    assert {answer.status_code for _, answer in done} >= {200, 201, 204, 400, 404, 422}
    assert all(event["token_id"] and event["actor"] == "admin" for event in events)
