"""The UI of a service: sign-in by token, and the scopes of the API."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import httpx
import pytest
from playwright.sync_api import Browser, expect

from anabranch.server.ui.site import PageRoute
from tests.server.conftest import Project, Running, make_token, new_project, ok
from tests.server.conftest import running as running
from tests.server.ui.conftest import visiting
from tests.server.ui.test_sessions import BROKEN_FORMS, check_error_page, check_headers


@pytest.fixture(scope="module")
def project(running: Running) -> Iterator[Project]:
    with running.client() as client:
        yield new_project(client, rows=3)


def csrf_in(text: str) -> str:
    return text.partition('name="csrf" value="')[2].partition('"')[0]


@contextmanager
def signed_in(running: Running, secret: str) -> Iterator[tuple[httpx.Client, str]]:
    """Yield a client with a session, and the token of its forms."""
    with httpx.Client(base_url=running.url, timeout=60) as client:
        form = client.get("/ui/sign-in").text
        answer = client.post("/ui/sign-in", data={"csrf": csrf_in(form), "token": secret})
        assert answer.status_code == 303, answer.text
        # Any page with a form will do: the token is that of the session.
        yield client, csrf_in(client.get("/ui/", follow_redirects=True).text)


def routes_of(running: Running) -> list[PageRoute]:
    from anabranch.server.ui.service_pages import ServiceSite

    assert running.service is not None
    # Without `/`, which only redirects.
    return [route for route in ServiceSite(running.service).all_routes() if route.path != "/"]


def path_of(route: PageRoute, project: Project) -> str:
    return route.path_format.format(
        project_id=project.id, name="none", commit_id="0" * 26, table="in_c_sales.orders", run_id="0" * 26
    )


def test_no_page_answers_without_a_session(running: Running, project: Project) -> None:
    tried = 0
    with httpx.Client(base_url=running.url) as client:
        for route in routes_of(running):
            if route.page is not None:
                answer = client.request(route.page.method, path_of(route, project))
                assert answer.status_code == 401, route.path
                assert "Sign in" in answer.text
                tried += 1
    assert tried > 6


def test_bearer_token_alone_opens_no_page(running: Running, project: Project) -> None:
    """Otherwise the forms of the UI would accept requests without a token of the form."""
    with running.client() as client:
        assert client.get(f"/ui/projects/{project.id}/").status_code == 401


def test_session_cookie_opens_no_json_route(running: Running, project: Project) -> None:
    with signed_in(running, running.secret) as (client, _):
        cookie = client.cookies["anabranch_session"]
        answer = client.get(f"/projects/{project.id}", headers={"Cookie": f"anabranch_session={cookie}"})
        assert answer.status_code == 401


@pytest.mark.parametrize("secret", ["", "ab_0123_wrong"])
def test_wrong_token_is_refused(running: Running, secret: str) -> None:
    with httpx.Client(base_url=running.url) as client:
        form = client.get("/ui/sign-in").text
        answer = client.post("/ui/sign-in", data={"csrf": csrf_in(form), "token": secret})
        assert answer.status_code == 401
        assert "anabranch_session" not in client.cookies


def test_forged_sign_in_is_refused(running: Running) -> None:
    with httpx.Client(base_url=running.url) as client:
        assert client.post("/ui/sign-in", data={"token": running.secret}).status_code == 401
        client.get("/ui/sign-in")
        assert client.post("/ui/sign-in", data={"token": running.secret, "csrf": "x"}).status_code == 401


def test_sign_in_leads_only_to_pages_of_the_ui(running: Running) -> None:
    for wanted in ("https://attacker.example", "//attacker.example", "/ui//attacker.example", "/\\attacker.example"):
        with httpx.Client(base_url=running.url) as client:
            data = {"csrf": csrf_in(client.get("/ui/sign-in").text), "token": running.secret, "wanted": wanted}
            assert client.post("/ui/sign-in", data=data).headers["location"] == "/ui/"


def test_read_token_cannot_do_anything_but_read(running: Running, project: Project) -> None:
    with running.client() as api:
        secret = make_token(api, "read", project_id=project.id)
        before = ok(api.get(f"{project.path}/branches"))
    tried = 0
    with signed_in(running, secret) as (client, csrf):
        for route in routes_of(running):
            if route.page is not None and route.page.needs is not None:
                path = path_of(route, project)
                if route.page.method == "POST":
                    answer = client.post(path, data={"csrf": csrf, "branch": "main", "name": "x"})
                    assert answer.status_code == 403, route.path
                    tried += 1
        page = client.get(f"/ui/projects/{project.id}/branches")
        assert page.status_code == 200
        assert 'name="name"' not in page.text, "the page has a form that the visitor may not send"
    with running.client() as api:
        assert ok(api.get(f"{project.path}/branches")) == before
    assert tried >= 5


@pytest.mark.parametrize("spelling", ["main", " main", "main\t", "main\u00a0", "", None])
def test_branch_token_does_not_write_to_main_in_any_spelling(
    running: Running, project: Project, spelling: str | None
) -> None:
    """An empty or missing name means main, and blanks around a name are not part of it."""
    with running.client() as api:
        secret = make_token(api, "branch", project_id=project.id)
    tried = 0
    with signed_in(running, secret) as (client, csrf):
        for route in routes_of(running):
            if route.page is not None and route.page.writes:
                named = {} if spelling is None else {route.page.writes: spelling}
                form = {"csrf": csrf, "source": "dev", "table": "in_c_sales.orders", "version": "2", **named}
                answer = client.post(path_of(route, project), data=form)
                assert answer.status_code == 403, (route.path, answer.text)
                tried += 1
    assert tried >= 8


def test_forged_form_is_refused_by_every_action(running: Running, project: Project) -> None:
    with running.client() as api:
        before = ok(api.get(f"{project.path}/branches"))
    with signed_in(running, running.secret) as (client, csrf):
        actions = [route for route in routes_of(running) if route.page is not None and route.page.method == "POST"]
        assert len(actions) >= 20
        for route in actions:
            path, data = path_of(route, project), {"name": "forged", "branch": "main", "source": "main", "into": "main"}
            for form in (data, {**data, "csrf": ""}, {**data, "csrf": "x" * len(csrf)}):
                assert client.post(path, data=form).status_code == 403, route.path
            for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://attacker.example"}):
                assert client.post(path, data={**data, "csrf": csrf}, headers=headers).status_code == 403, route.path
            # A form sent as a link, by a browser that follows it.
            assert client.get(path).status_code in (404, 405), route.path
        assert client.get("/ui/").status_code == 200, "a forged form ended the session"
    with running.client() as api:
        assert ok(api.get(f"{project.path}/branches")) == before


def test_page_without_a_scope_is_only_the_start_and_sign_out(running: Running) -> None:
    routes = routes_of(running)
    assert {route.path for route in routes if route.page is None} == {"/ui/static/{name:path}", "/ui/sign-in"}
    open_to_all = {route.path for route in routes if route.page is not None and route.page.needs is None}
    # The list of jobs contains what the token may read.
    assert open_to_all == {"/ui/", "/ui/sign-out", "/ui/jobs"}


def test_read_token_opens_the_pages_that_read(running: Running, project: Project) -> None:
    refused = set()
    with running.client() as api:
        secret = make_token(api, "read", project_id=project.id)
    with signed_in(running, secret) as (client, _):
        for route in routes_of(running):
            if route.page is not None and route.page.method == "GET":
                answer = client.get(path_of(route, project), follow_redirects=True)
                assert answer.status_code in (200, 400, 403, 404), route.path
                if answer.status_code == 403:
                    refused.add(route.path.removeprefix("/ui/projects/{project_id}"))
                forms = answer.text.partition("<main")[2].count('method="post"')
                assert not forms, f"{route.path} has a form that the visitor may not send"
    assert refused == {"/storage", "/tokens", "/audit", "/ui/tokens", "/ui/audit"}


def test_jobs_page_shows_what_the_api_lists(running: Running, project: Project) -> None:
    with running.client() as api:
        other = new_project(api, rows=2)
        for one in (project, other):
            ok(api.post(f"{one.table()}/export", json={}))
        secrets = {
            "read": make_token(api, "read", project_id=project.id),
            "branch": make_token(api, "branch", project_id=project.id, branch_id=project.branch()),
            "admin": running.secret,
        }
    for name, secret in secrets.items():
        with signed_in(running, secret) as (client, _), running.client(secret) as reader:
            page = client.get("/ui/jobs")
            listed = [job["id"] for job in ok(reader.get("/jobs"))["jobs"]]
            assert re.findall(r"job_\w+", page.text) == listed, name
            assert bool(listed) == (name != "branch")
            assert 'href="/ui/jobs"' in page.text
            of_project = client.get(f"/ui/projects/{project.id}/jobs")
            answer = reader.get("/jobs", params={"project_id": project.id})
            if name != "branch":
                assert re.findall(r"job_\w+", of_project.text) == [job["id"] for job in ok(answer)["jobs"]]


def test_every_answer_has_the_security_headers(running: Running, project: Project) -> None:
    paths = [path_of(route, project) for route in routes_of(running)]
    paths += ["/ui", "/ui/nothing", f"/ui/projects/{project.id}/nothing", "/ui/static/nothing", "/ui/tokens/"]
    with signed_in(running, running.secret) as (client, _), httpx.Client(base_url=running.url) as other:
        for path in dict.fromkeys(paths):
            # All of them are refused or read: a form without its token does nothing.
            for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
                for sender in (client, other):
                    answer = sender.request(method, path)
                    check_headers(answer)
                    assert answer.status_code < 500, (method, path)
                    if answer.status_code >= 400:
                        assert answer.headers["content-type"].startswith("text/html"), (method, path)
        assert "content-security-policy" not in client.get("/projects").headers


def test_errors_are_pages_with_a_way_back(running: Running, project: Project) -> None:
    path = f"/ui/projects/{project.id}"
    with signed_in(running, running.secret) as (client, _), httpx.Client(base_url=running.url) as other:
        for sender in (client, other):
            check_error_page(sender.get("/ui/nothing"), 404, "/ui/")
            check_error_page(sender.get(f"{path}/merge/nothing"), 404, "/ui/")
            check_error_page(sender.get("/ui/static/nothing.css"), 404, "/ui/")
            refused = sender.delete(f"{path}/branches")
            check_error_page(refused, 405, "/ui/")
            assert refused.headers["allow"] == "GET, HEAD"
        for headers, body in BROKEN_FORMS.values():
            check_error_page(client.post(f"{path}/branches/create", headers=headers, content=body), 400, "/ui/")
        large = client.post(f"{path}/branches/create", content=b"x" * (65 << 20))
        check_error_page(large, 413, "/ui/")
        # Clients of the API still read JSON.
        assert client.get("/nothing").json()["code"] == "route_not_found"


def test_dev_branch_is_not_merged_as_in_the_api(running: Running, project: Project) -> None:
    with running.client() as api:
        branch = project.branch()
        project.insert(20, branch=branch)
        refused = api.post(f"{project.path}/merges/plan", json={"source": branch})
        commit = ok(api.get(f"{project.path}/branches/{branch}/commits"))["commits"][0]["id"]
        before = ok(api.get(f"{project.path}/branches/default/commits"))
    assert refused.status_code == 400
    path = f"/ui/projects/{project.id}"
    with signed_in(running, running.secret) as (client, csrf):
        page = client.get(f"{path}/merge", params={"source": branch})
        assert page.status_code == 400
        assert unescape(page.text).count(refused.json()["message"]) == 1
        assert 'formaction="' not in page.text
        for source, into in ((branch, "main"), (commit, "main"), (f"{branch}~0", "main"), ("main", branch)):
            data = {"csrf": csrf, "source": source, "into": into, "source_head": commit, "target_head": commit}
            for action in ("decide", "apply"):
                answer = client.post(f"{path}/merge/{action}", data=data)
                assert answer.status_code == 400, (source, answer.text)
                assert "is a dev branch" in answer.text
        picked = client.post(f"{path}/commits/{commit}/cherry-pick", data={"csrf": csrf, "branch": "main"})
        assert picked.status_code == 400
        assert "is a dev branch" in picked.text
    with running.client() as api:
        assert ok(api.get(f"{project.path}/branches/default/commits")) == before


def test_token_of_another_project_is_refused(running: Running, project: Project) -> None:
    with running.client() as api:
        other = new_project(api, rows=0)
        secret = make_token(api, "project", project_id=other.id)
    with signed_in(running, secret) as (client, csrf):
        assert client.get(f"/ui/projects/{project.id}/").status_code == 403
        data = {"csrf": csrf, "name": "x"}
        assert client.post(f"/ui/projects/{project.id}/branches/create", data=data).status_code == 403
        assert client.get("/ui/").headers["location"] == f"/ui/projects/{other.id}/"


def test_branch_token_makes_branches_and_leaves_main_alone(running: Running, project: Project) -> None:
    with running.client() as api:
        secret = make_token(api, "branch", project_id=project.id)
    with signed_in(running, secret) as (client, csrf):
        made = client.post(f"/ui/projects/{project.id}/branches/create", data={"csrf": csrf, "name": "Mine"})
        assert made.status_code == 303, made.text
        refused = client.post(f"/ui/projects/{project.id}/branches/delete", data={"csrf": csrf, "branch": "main"})
        assert refused.status_code == 403
        tagged = client.post(f"/ui/projects/{project.id}/tags/create", data={"csrf": csrf, "name": "v1"})
        assert tagged.status_code == 403
    with running.client() as api:
        assert "Mine" in [branch["name"] for branch in ok(api.get(f"{project.path}/branches"))["branches"]]


def test_file_is_loaded_as_a_job(running: Running, project: Project) -> None:
    with running.client() as api:
        secret = make_token(api, "branch", project_id=project.id)
    path = f"/ui/projects/{project.id}"
    with signed_in(running, secret) as (client, csrf):
        client.post(f"{path}/branches/create", data={"csrf": csrf, "name": "Loads"})
        found = client.get(f"{path}/load").text.partition('">Loads</option>')[0]
        branch = found.rpartition('value="')[2]
        data = {"csrf": csrf, "table": "in_c_sales.orders", "branch": branch, "mode": "replace"}
        file = {"file": ("new.csv", b"id,v\n7,seven\n")}
        answer = client.post(f"{path}/import", data=data, files=file)
        assert answer.status_code == 303, answer.text
        assert "new.csv" in client.get(answer.headers["location"]).text
        broken = client.post(f"{path}/import", data=data, files={"file": ("bad.csv", b"nothing\n1\n")})
        assert broken.status_code == 400
        assert "bad.csv" in broken.text
        assert client.post(f"{path}/import", data={**data, "branch": "main"}, files=file).status_code == 403
        missing = client.post(f"{path}/import", data={**data, "table": "in_c_sales.missing"}, files=file)
        assert missing.status_code == 404


def test_actions_are_in_the_audit(running: Running, project: Project) -> None:
    with signed_in(running, running.secret) as (client, csrf):
        client.post(f"/ui/projects/{project.id}/branches/create", data={"csrf": csrf, "name": "Audited"})
        client.post(f"/ui/projects/{project.id}/branches/create", data={"csrf": "forged", "name": "Other"})
    with running.client() as api:
        events = ok(api.get("/audit", params={"limit": 2}))["events"]
    assert [(event["action"], event["status"]) for event in events] == [("create_branch", 403), ("create_branch", 303)]
    assert events[0]["actor"] == "admin"


def test_audit_names_the_branch_of_an_action(running: Running, project: Project) -> None:
    with running.client() as api:
        branch = project.branch()
    path = f"/ui/projects/{project.id}"
    with signed_in(running, running.secret) as (client, csrf):
        for name in ("main", branch, "x" * 1000):
            client.post(f"{path}/reflog/undo", data={"csrf": csrf, "branch": name, "version": "999999"})
        client.post(f"{path}/merge/apply", data={"csrf": csrf, "source": branch, "into": "main"})
        page = client.get(f"{path}/audit").text
    with running.client() as api:
        events = ok(api.get("/audit", params={"limit": 4}))["events"]
    found = [(event["action"], event["branch_id"]) for event in reversed(events)]
    assert found == [("undo", "default"), ("undo", branch), ("undo", "x" * 200), ("apply_merge", "default")]
    assert f"<td>{branch}</td>" in page


def test_session_ends_with_its_token(running: Running, project: Project) -> None:
    with running.client() as api:
        answer = ok(api.post("/tokens", json={"name": "short", "scope": "read", "project_id": project.id}))
        with signed_in(running, answer["secret"]) as (client, _):
            assert client.get(f"/ui/projects/{project.id}/").status_code == 200
            ok(api.post(f"/tokens/{answer['id']}/rotate"))
            assert client.get(f"/ui/projects/{project.id}/").status_code == 401


def test_sign_out_ends_the_session(running: Running) -> None:
    with signed_in(running, running.secret) as (client, csrf):
        cookie = client.cookies["anabranch_session"]
        assert client.post("/ui/sign-out", data={"csrf": csrf}).headers["location"] == "/ui/sign-in"
        assert client.get("/ui/", headers={"Cookie": f"anabranch_session={cookie}"}).status_code == 401


def test_visitor_signs_in_and_creates_a_branch(browser: Browser, running: Running, project: Project) -> None:
    with visiting(browser, running.url) as visitor:
        page = visitor.open(f"/ui/projects/{project.id}/branches")
        visitor.check_accessible()
        page.get_by_label("Token").fill(running.secret)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("Name").first.fill("<b>By hand</b>")
        page.get_by_role("button", name="Create branch").click()
        expect(page.get_by_role("status")).to_have_text("Branch <b>By hand</b> was created.")
        expect(page.get_by_role("rowheader", name="<b>By hand</b>")).to_have_count(1)
        visitor.check_accessible()
        page.get_by_role("link", name="Projects").click()
        visitor.check_accessible()


def test_token_is_created_shown_once_and_revoked(browser: Browser, running: Running, project: Project) -> None:
    with visiting(browser, running.url, java_script_enabled=False) as visitor:
        page = visitor.open(f"/ui/projects/{project.id}/tokens")
        page.get_by_label("Token").fill(running.secret)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("Name").fill("<i>Reporting</i>")
        page.get_by_label("Ends after days").fill("7")
        page.get_by_role("button", name="Create token").click()
        secret = page.get_by_role("status").inner_text().rpartition(" ")[2]
        with running.client(secret) as reader:
            assert reader.get(f"{project.path}/branches").status_code == 200
            assert reader.post(f"{project.path}/branches", json={"name": "no"}).status_code == 403
            page.reload()
            assert secret not in page.content()
            page.get_by_label("Revoke token <i>Reporting</i>").click()
            page.get_by_role("button", name="Revoke").click()
            assert reader.get(f"{project.path}/branches").status_code == 401


def test_pages_of_the_service_are_accessible(browser: Browser, running: Running, project: Project) -> None:
    with visiting(browser, running.url) as visitor:
        page = visitor.open("/ui/")
        page.get_by_label("Token").fill(running.secret)
        page.get_by_role("button", name="Sign in").click()
        page.set_viewport_size({"width": 360, "height": 800})
        for path in ("/ui/", "/ui/tokens", "/ui/audit", "/ui/jobs", f"/ui/projects/{project.id}/audit"):
            visitor.open(path)
            visitor.check_width()
            visitor.check_accessible()


def test_project_token_cannot_make_an_admin(running: Running, project: Project) -> None:
    with running.client() as api:
        secret = make_token(api, "project", project_id=project.id)
    with signed_in(running, secret) as (client, csrf):
        data = {"csrf": csrf, "name": "more", "scope": "admin"}
        assert client.post(f"/ui/projects/{project.id}/tokens/create", data=data).status_code == 403
        assert client.post("/ui/tokens/create", data=data).status_code == 403
        assert client.get("/ui/audit").status_code == 403
        wrong = {"csrf": csrf, "name": "", "scope": "everything"}
        assert client.post(f"/ui/projects/{project.id}/tokens/create", data=wrong).status_code == 400


def test_audit_page_refuses_a_wrong_time(running: Running) -> None:
    with signed_in(running, running.secret) as (client, _):
        assert client.get("/ui/audit", params={"before": "yesterday"}).status_code == 400


def test_swagger_ui_comes_from_the_package(browser: Browser, running: Running) -> None:
    with visiting(browser, running.url) as visitor:
        page = visitor.open("/docs")
        expect(page.get_by_text("/projects/{project_id}/branches").first).to_be_visible()


def test_address_of_the_service_opens_the_ui(running: Running) -> None:
    answer = httpx.get(f"{running.url}/")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/")
