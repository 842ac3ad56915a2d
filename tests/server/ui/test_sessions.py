"""Sessions, headers and forms of the local UI, over plain HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from anabranch.server.ui.overview import PAGES
from anabranch.server.ui.responses import SECURITY_HEADERS
from tests.server.ui.conftest import LocalSite, serving


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(ab.init(tmp_path / "lake", actor="ada", durability="none")) as found:
        yield found


def csrf_of(client: httpx.Client, path: str = "/branches") -> str:
    """Return the token in the forms of a page."""
    return client.get(path).text.partition('name="csrf" value="')[2].partition('"')[0]


def test_printed_address_works_once(site: LocalSite) -> None:
    with httpx.Client(base_url=site.url) as first, httpx.Client(base_url=site.url) as second:
        answer = first.get(site.enter)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert first.get("/").status_code == 200
        assert second.get(site.enter).status_code == 401
        assert second.get("/").status_code == 401
        # The browser that has the cookie may open the address again, for example after a reload.
        assert first.get(site.enter).status_code == 303


def test_head_request_does_not_use_the_printed_address_up(site: LocalSite) -> None:
    with httpx.Client(base_url=site.url) as preview:
        assert preview.head(site.enter).status_code == 303
        assert not preview.cookies
    with site.client() as client:
        assert client.get("/").status_code == 200


def test_no_page_answers_without_a_session(site: LocalSite) -> None:
    for path in ("/", "/branches"):
        assert httpx.get(f"{site.url}{path}").status_code == 401
    assert httpx.post(f"{site.url}/branches/create", data={"name": "dev"}).status_code == 401
    assert [branch.name for branch in site.repository.branch_list()] == ["main"]


def test_other_host_names_are_refused(site: LocalSite) -> None:
    with site.client() as client:
        answer = client.get("/", headers={"Host": "attacker.example"})
        assert answer.status_code == 421
        assert client.get("/static/anabranch.css", headers={"Host": "attacker.example"}).status_code == 421


def check_headers(answer: httpx.Response) -> None:
    """Fail if an answer has not each security header once."""
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers.get_list(name) == [value], (answer.request.method, answer.request.url, name)
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def check_error_page(answer: httpx.Response, status: int, way_back: str) -> None:
    """Fail if an answer is not a page about an error, with a link to a page that works."""
    check_headers(answer)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    if answer.request.method != "HEAD":
        assert f'<a href="{way_back}">' in answer.text, answer.text


# Forms that cannot be read.
BROKEN_FORMS: dict[str, tuple[dict[str, str], bytes]] = {
    "no boundary": ({"Content-Type": "multipart/form-data"}, b"x"),
    "wrong boundary": ({"Content-Type": "multipart/form-data; boundary=a"}, b"--b\r\n\r\n"),
    "large part": (
        {"Content-Type": "multipart/form-data; boundary=a"},
        b'--a\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + b"x" * (2 << 20) + b"\r\n--a--\r\n",
    ),
    "many fields": (
        {"Content-Type": "multipart/form-data; boundary=a"},
        b'--a\r\nContent-Disposition: form-data; name="x"\r\n\r\nx\r\n' * 6000 + b"--a--\r\n",
    ),
}


def test_every_answer_has_the_security_headers(site: LocalSite) -> None:
    paths = [page.path.format(commit_id="0" * 26, table="a.b", run_id="0" * 26) for page in PAGES]
    paths += ["/static/anabranch.css", "/static/nothing.css", "/enter?token=x", "/nothing", "/branches/", "//", "/%00"]
    with site.client() as client, httpx.Client(base_url=site.url) as other:
        for path in paths:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "NONSENSE"):
                for sender in (client, other):
                    answer = sender.request(method, path)
                    check_headers(answer)
                    assert answer.status_code < 500, (method, path)


def test_errors_are_pages_with_a_way_back(site: LocalSite) -> None:
    with site.client() as client, httpx.Client(base_url=site.url) as other:
        for sender in (client, other):
            check_error_page(sender.get("/nothing"), 404, "/")
            check_error_page(sender.get("/static/nothing.css"), 404, "/")
            refused = sender.put("/branches")
            check_error_page(refused, 405, "/")
            assert refused.headers["allow"] == "GET, HEAD"
            check_error_page(sender.get("/branches/create"), 405, "/")
        home = f"{site.url}/"
        check_error_page(client.get("/", headers={"Host": "attacker.example"}), 421, home)
        for headers, body in BROKEN_FORMS.values():
            check_error_page(client.post("/branches/create", headers=headers, content=body), 400, "/")
    assert [branch.name for branch in site.repository.branch_list()] == ["main"]


def test_error_of_the_server_is_a_page(site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.client() as client:
        monkeypatch.setattr("anabranch.server.ui.site.text_of", None)
        answer = client.post("/branches/create", data={"csrf": csrf_of(client)})
        check_error_page(answer, 500, "/")
        assert "NoneType" not in answer.text


def test_wrong_address_leaves_the_message_for_the_next_page(site: LocalSite) -> None:
    with site.client() as client:
        client.post("/branches/create", data={"csrf": csrf_of(client), "name": "dev"})
        assert "was created" not in client.get("/favicon.ico").text
        assert not client.head("/branches").text
        assert "Branch dev was created" in client.get("/branches").text


def test_hints_are_in_the_words_of_the_page(site: LocalSite) -> None:
    with site.client() as client:
        csrf = csrf_of(client)
        version = str(site.repository.branch_get("main").version)
        answer = client.post("/reflog/redo", data={"csrf": csrf, "branch": "main", "version": version})
        assert answer.status_code == 400
        assert "the page Reflog lists all positions" in answer.text
        assert "anabranch reset&#39; goes to any of them" in answer.text
        assert "where the service runs" not in answer.text


def test_pages_are_not_kept_by_browsers(site: LocalSite) -> None:
    with site.client() as client:
        assert client.get("/").headers["cache-control"] == "no-store"
        assert "immutable" in client.get("/static/anabranch.css").headers["cache-control"]


def test_form_with_the_token_of_its_session_is_accepted(site: LocalSite) -> None:
    with site.client() as client:
        data = {"csrf": csrf_of(client), "name": "dev"}
        answer = client.post("/branches/create", data=data)
        assert (answer.status_code, answer.headers["location"]) == (303, "/branches")
        assert "Branch dev was created" in client.get("/branches").text
    assert site.repository.branch_get("dev").created_by == "ada"


@pytest.mark.parametrize("value", [None, "", "wrong", "é"])
def test_forged_form_is_refused(site: LocalSite, value: str | None) -> None:
    with site.client() as client:
        data = {"name": "dev"} if value is None else {"name": "dev", "csrf": value}
        assert client.post("/branches/create", data=data).status_code == 403
    assert [branch.name for branch in site.repository.branch_list()] == ["main"]


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://attacker.example"}])
def test_form_from_another_site_is_refused(site: LocalSite, headers: dict[str, str]) -> None:
    with site.client() as client:
        data = {"csrf": csrf_of(client), "name": "dev"}
        assert client.post("/branches/create", data=data, headers=headers).status_code == 403
    assert [branch.name for branch in site.repository.branch_list()] == ["main"]


def test_every_action_needs_the_token_of_the_form(site: LocalSite) -> None:
    actions = [page.path for page in PAGES if page.method == "POST"]
    assert len(actions) >= 12
    with site.client() as client:
        csrf = csrf_of(client)
        for path in (path.format(commit_id="0" * 26) for path in actions):
            data = {"name": "dev", "branch": "main", "source": "main", "into": "main"}
            assert client.post(path, data=data).status_code == 403, path
            assert client.post(path, data={**data, "csrf": csrf}, headers={"Origin": "http://x"}).status_code == 403, (
                path
            )
            assert httpx.post(f"{site.url}{path}", data={**data, "csrf": csrf}).status_code == 401, path
    assert [branch.name for branch in site.repository.branch_list()] == ["main"]


def test_error_is_a_page_with_its_hint(site: LocalSite) -> None:
    with site.client() as client:
        answer = client.get("/", params={"ref": "nothing"})
        assert answer.status_code == 404
        assert "branch_not_found" in answer.text
        assert answer.headers["content-type"].startswith("text/html")
        assert client.get("/", params={"page": "-1"}).status_code == 400


def test_static_files_come_from_the_package_only(site: LocalSite) -> None:
    with site.client() as client:
        for path in ("/static/../session.py", "/static/%2e%2e/session.py", "/static//etc/passwd", "/static/"):
            assert client.get(path).status_code == 404, path
        assert "Zero-Clause BSD" in client.get("/static/vendor/htmx.LICENSE.txt").text
