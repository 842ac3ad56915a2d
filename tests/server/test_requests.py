"""What every request gets: one form of errors, limits, metrics, and a description of all of it."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import lance
import pytest

from anabranch.errors import InvalidInputError
from anabranch.server import status
from anabranch.server.app import listen
from anabranch.server.settings import Limits
from tests.server.conftest import Project, Running, ok, refused, serving


def test_what_is_nowhere_is_reported_in_the_same_form(client: httpx.Client) -> None:
    refused(client.get("/nowhere"), 404, "route_not_found")
    answer = client.put("/projects")
    refused(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET"} or "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b'"text"',
        b"{}",
        b'{"name": 7}',
        b'{"name": ""}',
        b'{"name": " padded "}',
        b'{"name": "two\\nlines"}',
        b'{"name": "nul\\u0000"}',
        b'{"name": "\\ud800"}',
        b'{"name": "ok", "color": "red"}',
        json.dumps({"name": "x" * 129}).encode(),
        b"\xff\xfe",
    ],
)
def test_a_body_of_another_shape_is_refused(shared: Project, body: bytes) -> None:
    before = ok(shared.client.get(f"{shared.path}/branches"))
    headers = {"content-type": "application/json"}
    found = refused(
        shared.client.post(f"{shared.path}/branches", content=body, headers=headers), 422, "invalid_request"
    )
    assert found["details"]["errors"]
    assert ok(shared.client.get(f"{shared.path}/branches")) == before


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2Fb", "a.b", "a b", "-a", "a" * 129, "%00", "%C3%BC", "a%0A"])
def test_names_that_would_leave_their_location_are_refused(shared: Project, name: str) -> None:
    url = f"{shared.on()}/buckets/{name}/tables/orders"
    answer = shared.client.request("GET", httpx.URL(shared.client.base_url, raw_path=url.encode()))
    assert answer.status_code in (404, 422), answer.text
    assert set(answer.json()) == {"code", "message", "details"}


def test_sql_in_names_is_not_sql(running: Running, shared: Project) -> None:
    name = "'; DROP TABLE branches; --"
    branch = shared.branch(name)
    assert ok(shared.client.get(shared.on(branch)))["name"] == name
    refused(shared.client.get(f"{shared.on('x%27%20OR%20%271%27%3D%271')}"), 422, "invalid_request")
    assert running.service is not None
    assert running.service.database.read("SELECT name FROM branches WHERE id = ?", [branch]) == [{"name": name}]


def test_unknown_types_are_named(shared: Project) -> None:
    tables = f"{shared.on()}/buckets/in_c_sales/tables"
    body: dict[str, Any] = {"name": "odd", "columns": [{"name": "a", "type": "integr"}]}
    assert "integr" in refused(shared.client.post(tables, json=body), 400, "invalid_input")["message"]
    body = {"name": "odd", "columns": [{"name": "a", "type": "int64"}], "primary_key": ["b"]}
    refused(shared.client.post(tables, json=body), 400, "schema_mismatch")
    body = {"name": "odd", "columns": [{"name": "a", "type": "list<timestamp[us, tz=Nowhere/X]>"}]}
    assert "Nowhere/X" in refused(shared.client.post(tables, json=body), 400, "invalid_input")["message"]
    body = {"name": "odd", "columns": []}
    refused(shared.client.post(tables, json=body), 422, "invalid_request")
    body = {"name": "orders", "columns": [{"name": "a", "type": "int64"}]}
    refused(shared.client.post(tables, json=body), 409, "table_exists")
    elsewhere = f"{shared.on()}/buckets/nowhere/tables"
    refused(shared.client.post(elsewhere, json={**body, "name": "odd"}), 404, "bucket_not_found")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service that takes very little."""
    limits = Limits(body_bytes=1000, requests_at_once=1, request_seconds=1.0, preview_rows=2)
    with serving(tmp_path_factory.mktemp("narrow"), limits=limits) as running:
        yield running


def test_a_body_that_is_too_large_is_refused(narrow: Running) -> None:
    with narrow.client() as client:
        large = {"name": "x", "description": "y" * 1000}
        refused(client.post("/projects", json=large), 413, "too_large")

        def pieces() -> Any:
            yield b'{"description": "'
            yield b"y" * 2000

        headers = {"content-type": "application/json"}
        refused(client.post("/projects", content=pieces(), headers=headers), 413, "too_large")
        assert ok(client.get("/projects")) == {"projects": []}


def test_requests_above_the_limit_are_asked_to_wait(narrow: Running) -> None:
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow, narrow.client() as client:
        head = f"POST /projects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {narrow.secret}\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 20\r\n\r\n".encode())
        answer = client.get("/projects")
        while answer.status_code == 200:  # until the slow one has come through
            answer = client.get("/projects")
        refused(answer, 429, "too_many_requests")
        assert answer.headers["Retry-After"] == "1"
        assert answer.json()["details"]["retryable"] is True
        assert client.get("/health").status_code == 200
        # The slow one never sends its body, and is not waited for.
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_health_needs_no_token(running: Running) -> None:
    assert ok(httpx.get(f"{running.url}/health"))["status"] == "ok"


def test_health_is_503_when_the_metadata_cannot_be_read(tmp_path: Path) -> None:
    with serving(tmp_path) as running, running.client() as client:
        assert running.service is not None
        running.service.database.close()
        answer = client.get("/health")
        while answer.status_code == 200:  # the result of the last check is used for a second
            answer = client.get("/health")
        refused(answer, 503, "storage_unavailable")


def test_health_is_ok_for_clients_that_wait_for_one_check(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    # A check is valid for no time, so that new ones begin while requests wait for an earlier one.
    monkeypatch.setattr(status, "_VALID_SECONDS", 0.0)

    def ask(_: int) -> list[int]:
        with running.client() as client:
            return [client.get("/health").status_code for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        assert set(chain.from_iterable(pool.map(ask, range(8)))) == {200}


def test_health_answers_while_all_workers_are_busy(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(workers=1)) as running, running.client() as client:
        service = running.service
        assert service is not None
        # A write waits for this lock in the only worker thread.
        with ThreadPoolExecutor(1) as pool, service.database.turn():
            write = pool.submit(client.post, "/projects", json={"id": "1"})
            with running.client() as other:
                while service.metrics.registry.get_sample_value("anabranch_requests_running") == 0:
                    pass
                for _ in range(3):
                    assert ok(other.get("/health"))["status"] == "ok"
                assert not write.done()
    ok(write.result())


def test_answers_are_sent_without_delay() -> None:
    with listen(host="127.0.0.1", port=0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_metrics_count_requests_by_route(running: Running, shared: Project) -> None:
    shared.preview()
    text = shared.client.get("/metrics").text
    route = "/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}/preview"
    start = f'anabranch_requests_total{{method="GET",route="{route}",status="200"}}'
    line = next(line for line in text.splitlines() if line.startswith(start))
    assert float(line.rpartition(" ")[2]) >= 1
    assert shared.id not in text


def _body_of(operation: dict[str, Any], described: dict[str, Any]) -> Any:
    """The JSON that a route takes, as it is described; if it takes none, there is nothing to show."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return "no example is needed"
    return described["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]


def test_the_service_describes_itself(client: httpx.Client) -> None:
    described = ok(client.get("/openapi.json"))
    assert described["openapi"].startswith("3.")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            refusal = operation["responses"]["4XX"]["content"]["application/json"]["schema"]
            assert refusal == {"$ref": "#/components/schemas/Envelope"}, (method, path)
            assert operation["description"], (method, path)
            assert operation["operationId"].isidentifier(), (method, path)
            assert "example" in json.dumps(_body_of(operation, described)), (method, path)
            assert ("security" in operation) is (path != "/health"), (method, path)
    assert "HTTPValidationError" not in described["components"]["schemas"]
    assert client.get("/docs").text.count("/openapi.json") == 1


def test_unexpected_errors_reveal_nothing(tmp_path: Path) -> None:
    """A project whose repository was taken away from below the service is not an expected situation."""
    with serving(tmp_path) as running, running.client() as client:
        ok(client.post("/projects", json={"id": "1"}))
        (tmp_path / "project_1").rename(tmp_path / "elsewhere")
        answer = client.get("/projects/1/branches/default/buckets")
        assert set(answer.json()) == {"code", "message", "details"}
        assert answer.status_code in (404, 500)
        assert "Traceback" not in answer.text


def test_a_port_that_is_taken_is_named(running: Running) -> None:
    port = int(running.url.rpartition(":")[2])
    with pytest.raises(InvalidInputError, match=f"on 127.0.0.1, port {port}: Address already in use"):
        listen(host="127.0.0.1", port=port)


def test_commit_beside_a_direct_write_answers_with_a_warning(running: Running, project: Project) -> None:
    answer = project.client.post(f"{project.table()}/rows", json={"rows": [{"id": 4, "v": "x"}]})
    assert "anabranch-warning" not in answer.headers
    (uri,) = running.data.glob(f"project_{project.id}/tables/in_c_sales/orders.lance")
    lance.dataset(str(uri)).delete("id = 1")
    answer = project.client.post(f"{project.table()}/rows", json={"rows": [{"id": 5, "v": "x"}]})
    ok(answer)
    assert "anabranch table adopt in_c_sales.orders --branch main" in answer.headers["anabranch-warning"]
    assert str(running.data) not in answer.headers["anabranch-warning"]
