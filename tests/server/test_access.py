"""Who may do what: every route declares what it needs, and holds to it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from anabranch.errors import UnauthenticatedError
from anabranch.server.app import create_app
from anabranch.server.auth import Scope
from anabranch.server.routing import Needs, Public, make_router
from anabranch.server.service import open_service
from anabranch.server.settings import Settings
from anabranch.server.ui.site import PageRoute
from tests.server.conftest import Project, Running, make_token, new_project, ok, refused

OPEN_TO_ALL = {"/health", "/docs", "/openapi.json"}


def iter_needs(dependant: Dependant) -> Iterator[Needs | Public]:
    for found in dependant.dependencies:
        if isinstance(found.call, Needs | Public):
            yield found.call
        yield from iter_needs(found)


def need_of(route: APIRoute) -> Needs | Public:
    needs = list(iter_needs(route.dependant))
    assert len(needs) == 1, f"{route.path} says {len(needs)} times what it needs"
    return needs[0]


def iter_routes(routes: Sequence[Any]) -> Iterator[Any]:
    """All routes, those of included routers too, whatever FastAPI wraps these in."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if router is None:
            yield route
        else:
            yield from iter_routes(router.routes)


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[APIRoute]:
    settings = Settings(data=tmp_path_factory.mktemp("routes"))
    service = open_service(settings)
    app = create_app(settings, service=service)
    service.close()
    found = list(iter_routes(app.routes))
    assert all(isinstance(route, APIRoute | PageRoute) for route in found), found
    return [route for route in found if isinstance(route, APIRoute)]


def test_a_route_whose_scope_would_not_be_checked_is_refused() -> None:
    router = make_router("odd")

    def unprotected() -> None: ...

    def odd(_: Annotated[None, Depends(unprotected)]) -> None: ...

    with pytest.raises(TypeError, match="'odd' states no scope that is checked"):
        router.get("/odd")(odd)


def path_of(route: APIRoute, project: str, branch: str = "default") -> str:
    """The path of a route, with a value for each of its parameters."""
    others = {"bucket": "b", "table": "t", "column": "c", "tag": "t", "token_id": "0" * 12, "commit_id": "0" * 26}
    values = {**others, "job_id": "j" * 13, "file_id": "f" * 13, "project_id": project, "branch_id": branch}
    return route.path_format.format(**values)


def call(client: httpx.Client, route: APIRoute, path: str) -> httpx.Response:
    (method,) = sorted(route.methods or ())
    return client.request(method, path)


def test_every_route_declares_what_it_needs(routes: list[APIRoute]) -> None:
    assert len(routes) > 30
    public = {route.path for route in routes if isinstance(need_of(route), Public)}
    assert public == OPEN_TO_ALL


def test_no_route_but_the_open_ones_answers_without_a_token(running: Running, routes: list[APIRoute]) -> None:
    with httpx.Client(base_url=running.url) as client:
        for route in routes:
            if route.path not in OPEN_TO_ALL:
                answer = call(client, route, path_of(route, "123"))
                assert refused(answer, 401, "unauthenticated")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        for path in OPEN_TO_ALL:
            assert client.get(path).status_code == 200


def test_no_route_takes_a_weaker_token(running: Running, shared: Project, routes: list[APIRoute]) -> None:
    """A token that does not include what a route needs is refused, whatever else is wrong with the request."""
    secrets = {
        scope: make_token(shared.client, scope, project_id=shared.id)
        for scope in (Scope.PROJECT, Scope.BRANCH, Scope.READ)
    }
    tried = 0
    for scope, secret in secrets.items():
        with running.client(secret) as client:
            for route in routes:
                need = need_of(route)
                if isinstance(need, Needs) and not scope.includes(need.scope):
                    refused(call(client, route, path_of(route, shared.id)), 403, "forbidden")
                    tried += 1
    assert tried > 20


def test_no_route_takes_a_token_of_another_project(
    running: Running, client: httpx.Client, project: Project, routes: list[APIRoute]
) -> None:
    """Neither for one that exists nor for one that does not, and both sound alike."""
    other = new_project(client, rows=0)
    with running.client(make_token(client, "project", project_id=other.id)) as foreign:
        for route in routes:
            if "{project_id}" in route.path:
                first = refused(call(foreign, route, path_of(route, project.id)), 403, "forbidden")
                second = refused(call(foreign, route, path_of(route, "nowhere")), 403, "forbidden")
                assert first["message"] == second["message"]
    assert project.ids() == [1, 2, 3]


def test_a_token_of_a_branch_works_on_that_branch_only(running: Running, shared: Project) -> None:
    mine, other = shared.branch(), shared.branch()
    secret = make_token(shared.client, "branch", project_id=shared.id, branch_id=mine)
    with running.client(secret) as client:
        bound = Project(client, shared.id)
        bound.insert(4, branch=mine)
        assert bound.ids(mine) == [1, 2, 3, 4]
        for branch in (other, "default", "br_unknown"):
            refused(client.get(f"{bound.table(branch)}/preview"), 403, "forbidden")
            refused(client.post(f"{bound.table(branch)}/rows", json={"rows": [{"id": 9}]}), 403, "forbidden")
        refused(client.get(f"{bound.path}/branches"), 403, "forbidden")
        refused(client.post(f"{bound.path}/branches", json={"name": "another"}), 403, "forbidden")
        assert client.delete(bound.on(mine)).status_code == 204
        refused(client.get(bound.on(mine)), 401, "unauthenticated")
    assert shared.ids() == shared.ids(other) == [1, 2, 3]


def test_a_token_cannot_read_the_commits_of_another_branch(running: Running, shared: Project) -> None:
    mine, other = shared.branch(), shared.branch()
    foreign = shared.insert(4, branch=other)["commit_id"]
    secret = make_token(shared.client, "read", project_id=shared.id, branch_id=mine)
    with running.client(secret) as client:
        bound = Project(client, shared.id)
        refused(client.get(f"{bound.table(mine)}/preview", params={"ref": foreign}), 404, "commit_not_found")
        refused(client.get(f"{bound.on(mine)}/commits/{foreign}"), 404, "commit_not_found")
        refused(client.get(f"{bound.on(mine)}/commits", params={"before": foreign}), 404, "commit_not_found")


def test_a_token_of_branches_does_not_write_to_main(running: Running, shared: Project) -> None:
    with running.client(make_token(shared.client, "branch", project_id=shared.id)) as client:
        found = Project(client, shared.id)
        refused(client.post(f"{found.table()}/rows", json={"rows": [{"id": 9}]}), 403, "forbidden")
        refused(client.delete(found.table()), 403, "forbidden")
        branch = found.branch()
        found.insert(4, branch=branch)
        assert found.ids() == [1, 2, 3]


def test_a_revoked_token_is_unknown_at_once(running: Running, client: httpx.Client) -> None:
    made = ok(client.post("/tokens", json={"name": "short", "scope": "admin"}))
    with running.client(made["secret"]) as holder:
        ok(holder.get("/projects"))
        assert client.delete(f"/tokens/{made['id']}").status_code == 204
        assert "revoked" in refused(holder.get("/projects"), 401, "unauthenticated")["message"]
    assert ok(client.get(f"/tokens/{made['id']}"))["revoked_at"] is not None


def test_a_rotated_token_has_a_new_secret_and_no_old_one(running: Running, client: httpx.Client) -> None:
    made = ok(client.post("/tokens", json={"name": "turning", "scope": "admin"}))
    new = ok(client.post(f"/tokens/{made['id']}/rotate"))
    assert (new["id"], new["name"], new["scope"]) == (made["id"], "turning", "admin")
    with running.client(made["secret"]) as old, running.client(new["secret"]) as holder:
        refused(old.get("/projects"), 401, "unauthenticated")
        ok(holder.get("/projects"))


def test_a_token_ends_at_its_expiry(tmp_path: Path) -> None:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    service = open_service(Settings(data=tmp_path), clock=lambda: now)
    token, secret = service.tokens.create("brief", Scope.ADMIN, expires_at=now + timedelta(seconds=10))
    assert service.tokens.authenticate(secret) == token
    now += timedelta(seconds=10)
    with pytest.raises(UnauthenticatedError, match="expired"):
        service.tokens.authenticate(secret)
    service.close()


def test_a_secret_is_shown_once_and_kept_as_a_hash(running: Running, client: httpx.Client) -> None:
    made = ok(client.post("/tokens", json={"name": "hidden", "scope": "read"}))
    assert made["secret"].startswith("ab_")
    assert "secret" not in ok(client.get(f"/tokens/{made['id']}"))
    assert made["secret"] not in client.get("/tokens").text
    assert running.service is not None
    (row,) = running.service.database.read("SELECT * FROM tokens WHERE id = ?", [made["id"]])
    assert made["secret"] not in repr(row)
    assert len(row["secret_hash"]) == 64


@pytest.mark.parametrize("secret", ["ab_", "nonsense", "ab_000000000000_x", "é", "ab_" + "x" * 5000])
def test_a_made_up_token_is_refused(running: Running, secret: str) -> None:
    headers = [(b"Authorization", f"Bearer {secret}".encode())]
    with httpx.Client(base_url=running.url, headers=headers) as client:
        refused(client.get("/projects"), 401, "unauthenticated")


def test_the_right_id_with_a_wrong_secret_is_refused(running: Running) -> None:
    with running.client(running.secret[:-1] + ("a" if running.secret[-1] != "a" else "b")) as client:
        refused(client.get("/projects"), 401, "unauthenticated")


def test_a_project_token_makes_tokens_for_its_project_only(running: Running, shared: Project) -> None:
    with running.client(make_token(shared.client, "project", project_id=shared.id)) as owner:
        made = ok(owner.post(f"{shared.path}/tokens", json={"name": "reader", "scope": "read"}))
        assert (made["project_id"], made["created_by"]) == (shared.id, "a project")
        refused(owner.post(f"{shared.path}/tokens", json={"name": "boss", "scope": "admin"}), 403, "forbidden")
        refused(owner.post("/tokens", json={"name": "boss", "scope": "admin"}), 403, "forbidden")
        assert running.service is not None
        admin = next(token for token in running.service.tokens.list_all() if token.project_id is None)
        refused(owner.delete(f"{shared.path}/tokens/{admin.id}"), 404, "token_not_found")
        assert owner.delete(f"{shared.path}/tokens/{made['id']}").status_code == 204


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "project"},
        {"scope": "branch"},
        {"scope": "admin", "project_id": "{project}"},
        {"scope": "project", "project_id": "{project}", "branch_id": "{branch}"},
    ],
)
def test_a_token_is_bound_as_its_scope_allows(shared: Project, body: dict[str, str]) -> None:
    filled = {key: value.format(project=shared.id, branch=shared.branch()) for key, value in body.items()}
    refused(shared.client.post("/tokens", json={"name": "odd", **filled}), 400, "invalid_input")


def test_the_audit_shows_who_did_what(running: Running, project: Project) -> None:
    made = ok(project.client.post("/tokens", json={"name": "ada", "scope": "read", "project_id": project.id}))
    with running.client(made["secret"]) as client:
        refused(client.delete(project.table()), 403, "forbidden")
    commit = project.insert(4)["commit_id"]
    events = ok(project.client.get(f"{project.path}/audit"))["events"]
    reported = [(event["action"], event["actor"], event["status"]) for event in events]
    assert reported[:3] == [("insert_rows", "admin", 201), ("drop_table", "ada", 403), ("insert_rows", "admin", 201)]
    assert events[1]["token_id"] == made["id"]
    assert events[1]["path"] == project.table()
    commit_detail = ok(project.client.get(f"{project.on()}/commits/{commit}"))
    assert commit_detail["actor"] == "admin"
    assert commit_detail["metadata"]["token_id"] == events[0]["token_id"]
    page = ok(project.client.get(f"{project.path}/audit", params={"limit": 2}))
    rest = ok(project.client.get(f"{project.path}/audit", params={"before": page["next"]}))
    assert page["events"] + rest["events"] == events


def test_audit_pages_have_each_event_of_one_microsecond(running: Running, project: Project) -> None:
    for value in range(4, 10):
        project.insert(value)
    assert running.service is not None
    # Two writes of one transaction may have one time; here the six last are in groups of three.
    running.service.database.write(
        "UPDATE audit_events SET happened_at = TIMESTAMPTZ '2026-01-01 00:00:00+00'"
        " + INTERVAL 1 MICROSECOND * (rowid // 3) WHERE project_id = ?",
        [project.id],
    )
    events = ok(project.client.get(f"{project.path}/audit"))["events"]
    assert len({event["request_id"] for event in events}) == len(events) > len({e["happened_at"] for e in events})
    for limit in (1, 2, 3):
        seen, before = [], None
        while True:
            asked = {"limit": limit} if before is None else {"limit": limit, "before": before}
            page = ok(project.client.get(f"{project.path}/audit", params=asked))
            seen += page["events"]
            before = page["next"]
            if before is None:
                break
        assert seen == events
