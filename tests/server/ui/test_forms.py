"""Forms that a service must not read: too large, without a right to send them, or in another encoding than UTF-8."""

import html
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from anabranch.server.settings import Limits
from tests.server.conftest import Project, Running, make_token, new_project
from tests.server.conftest import running as running
from tests.server.conftest import serving as serving_a_service
from tests.server.ui.conftest import LocalSite, serving
from tests.server.ui.lakes import shop
from tests.server.ui.test_service import csrf_in, signed_in

# The decoder of 'punycode' takes minutes for one megabyte, in the thread that serves all requests. The others return
# texts with half characters, which cannot be encoded again.
_ENCODINGS = ("punycode", "idna", "utf-7", "unicode_escape", "utf-16")

# The path of a page, its status, and a text on it.
_WRONG_FILTERS = [
    ("/graph?table=shop.ordrs", 404, "there are no commits for table 'shop.ordrs'"),
    ("/graph?table=shop.ordrs", 404, "did you mean 'shop.orders'? change or clear a field of the form"),
    ("/graph?table=shop.orders&actor=bob", 404, "for table 'shop.orders', actor 'bob'"),
    ("/graph?table=shop.orders&actor=bob", 404, "<bdi>change or clear a field of the form"),
    ("/graph?page=99", 404, "there are no commits for page '99'"),
    ("/graph?ref=mian", 404, "did you mean 'main'?"),
    ("/runs?branch=mian", 404, "there is no branch 'mian'"),
    ("/runs?branch=fix", 200, "No runs."),
    ("/reflog?branch=mian", 404, "did you mean 'main'?"),
    ("/reflog?branch=main&after=1", 200, "No older movements."),
    ("/?ref=mian", 404, "did you mean 'main'?"),
    ("/tables/shop.orders?where=id+%3D", 400, "Expected: an expression, found: the end or ')'"),
]


@pytest.fixture(scope="module")
def project(running: Running) -> Iterator[Project]:
    with running.client() as client:
        yield new_project(client)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(shop(tmp_path / "shop")) as found:
        yield found


def form_in(encoding: str, fields: dict[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """Return a form with parts, and its headers."""
    parts = [
        b'--limit\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
        for name, value in fields.items()
    ]
    headers = {"Content-Type": f"multipart/form-data; boundary=limit; charset={encoding}"}
    return b"".join((*parts, b"--limit--\r\n")), headers


@pytest.mark.parametrize("encoding", _ENCODINGS)
def test_sign_in_form_in_another_encoding_is_refused(running: Running, encoding: str) -> None:
    body, headers = form_in(encoding, {"token": b"a-" + b"a" * 20_000, "csrf": b"+2AA-\\ud800"})
    answer = httpx.post(f"{running.url}/ui/sign-in", content=body, headers=headers, timeout=60)
    assert answer.status_code == 400
    assert "UTF-8" in answer.text


def test_form_in_another_encoding_is_refused(site: LocalSite) -> None:
    with site.client() as client:
        for encoding in _ENCODINGS:
            body, headers = form_in(encoding, {"csrf": b"+2AA-\\ud800", "name": b"a-" + b"a" * 20_000})
            answer = client.post("/branches/create", content=body, headers=headers)
            assert answer.status_code == 400
            assert "UTF-8" in answer.text


def test_form_in_utf_8_is_read(site: LocalSite) -> None:
    with site.client() as client:
        csrf = csrf_in(client.get("/branches").text)
        fields = {"csrf": csrf.encode(), "name": b"from-a-form", "description": "Größe".encode()}
        body, headers = form_in("UTF-8", fields)
        assert client.post("/branches/create", content=body, headers=headers).status_code == 303
    assert site.repository.branch_get("from-a-form").description == "Größe"


def test_form_that_the_visitor_may_not_send_is_refused_before_it_arrives(running: Running, project: Project) -> None:
    """The form with a file may have a gigabyte, and goes to disk."""
    with running.client() as api:
        secret = make_token(api, "read", project_id=project.id)
    with signed_in(running, secret) as (client, _):
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    address = urlsplit(running.url)
    head = (
        f"POST /ui/projects/{project.id}/import HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {cookie}\r\n"
        "Content-Type: multipart/form-data; boundary=limit\r\nContent-Length: 1000000000\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 403"


def test_form_with_a_file_has_few_and_short_texts(running: Running, project: Project) -> None:
    """Texts are kept in memory, and the limit of such a form is that of files."""
    with signed_in(running, running.secret) as (client, csrf):
        for texts in ({f"x{number}": b"" for number in range(30)}, {"table": b"x" * 300_000}):
            body, headers = form_in("utf-8", {"csrf": csrf.encode(), **texts})
            answer = client.post(f"/ui/projects/{project.id}/import", content=body, headers=headers)
            assert answer.status_code == 400, answer.text
            assert "the form cannot be read" in answer.text


def test_form_without_a_file_field_accepts_no_files(running: Running, project: Project) -> None:
    with signed_in(running, running.secret) as (client, csrf):
        path = f"/ui/projects/{project.id}/branches/create"
        answer = client.post(path, data={"csrf": csrf, "name": "x"}, files={"file": ("x.csv", b"id\n1\n")})
    assert answer.status_code == 400


def test_refused_load_leaves_no_file(tmp_path: Path) -> None:
    with (
        serving_a_service(tmp_path, limits=Limits(job_workers=1, queued_jobs=0)) as running,
        running.client() as api,
    ):
        project = new_project(api)
        with signed_in(running, running.secret) as (client, csrf):
            data = {"csrf": csrf, "table": "in_c_sales.orders", "branch": "main"}
            file = {"file": ("new.csv", b"id,v\n7,seven\n")}
            answer = client.post(f"/ui/projects/{project.id}/import", data=data, files=file)
        assert answer.status_code == 429, answer.text
        assert list((tmp_path / "files").rglob("*.csv")) == []
        assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_wrong_filters_are_answered_with_a_message(site: LocalSite) -> None:
    with site.client() as client:
        for path, status, message in _WRONG_FILTERS:
            answer = client.get(path)
            assert (answer.status_code, message in html.unescape(answer.text)) == (status, True), (path, message)
