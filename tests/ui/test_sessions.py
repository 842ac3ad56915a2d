"""Sessions, headers and forms of the local UI, over plain HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from anabranch.server.ui.pages import PAGES
from tests.ui.conftest import LocalSite, serving


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


@pytest.mark.parametrize("path", ["/", "/branches", "/static/anabranch.css", "/static/nothing.css", "/enter?token=x"])
def test_every_answer_has_the_security_headers(site: LocalSite, path: str) -> None:
    with site.client() as client:
        headers = client.get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"


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
