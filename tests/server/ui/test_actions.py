"""Actions that no other test clicks: tags, numbers in forms, cherry-picks, and tokens of the whole service."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import Running
from tests.server.conftest import running as running
from tests.server.ui.conftest import LocalSite, serving
from tests.server.ui.lakes import shop
from tests.server.ui.test_service import csrf_in, signed_in


@pytest.fixture(scope="module")
def client(site: LocalSite) -> Iterator[httpx.Client]:
    with site.client() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    with serving(shop(tmp_path_factory.mktemp("actions") / "shop")) as found:
        yield found


def test_tag_is_created_found_and_deleted(site: LocalSite, client: httpx.Client) -> None:
    csrf = csrf_in(client.get("/branches").text)
    made = client.post("/tags/create", data={"csrf": csrf, "name": "v2.0", "ref": "dev"})
    assert made.status_code == 303
    assert site.repository.tag_get("v2.0").commit_id == site.repository.branch_get("dev").head_commit_id
    found = client.get("/branches", params={"search": "V2"}).text
    assert "v2.0" in found
    assert "v1.0" not in found
    assert client.post("/tags/delete", data={"csrf": csrf, "tag": "v2.0"}).status_code == 303
    assert [tag.name for tag in site.repository.tag_list()] == ["v1.0"]


def test_deleted_branch_is_found_among_the_deleted_only(site: LocalSite, client: httpx.Client) -> None:
    site.repository.branch_create("Experiment")
    site.repository.branch_delete("Experiment")
    assert "Experiment" not in client.get("/branches", params={"search": "expe"}).text
    deleted = client.get("/branches", params={"search": "expe", "deleted": "yes"}).text
    assert 'aria-label="Restore branch Experiment"' in deleted
    assert "Restore branch dev" not in deleted


@pytest.mark.parametrize("days", ["0", "36501", "-1", "1.5", "²", "9" * 5000])
def test_wrong_number_of_days_is_refused(site: LocalSite, client: httpx.Client, days: str) -> None:
    csrf = csrf_in(client.get("/branches").text)
    answer = client.post("/branches/create", data={"csrf": csrf, "name": "short", "days": days})
    assert answer.status_code == 400
    assert "must be from 1 to 36500" in answer.text
    assert "short" not in site.repository.branch_names()


def test_branch_expires_after_the_days_of_the_form(site: LocalSite, client: httpx.Client) -> None:
    csrf = csrf_in(client.get("/branches").text)
    assert client.post("/branches/create", data={"csrf": csrf, "name": "week", "days": "7"}).status_code == 303
    branch = site.repository.branch_get("week")
    assert branch.expires is not None
    assert round((branch.expires - branch.created) / timedelta(days=1)) == 7


def test_commit_is_picked(tmp_path: Path) -> None:
    with serving(shop(tmp_path / "shop")) as site, site.client() as client:
        commit = site.repository.snapshot_of("dev").id
        path = f"/commits/{commit}/cherry-pick"
        csrf = csrf_in(client.get(f"/commits/{commit}").text)
        site.repository.branch_create("target")
        picked = client.post(path, data={"csrf": csrf, "branch": "target"})
        head = site.repository.snapshot_of("target").commit
        assert picked.headers["location"] == f"/commits/{head.id}"
        assert head.kind == "cherry_pick"
        assert f'href="/commits/{commit}"' in client.get(f"/commits/{head.id}").text


def test_undo_needs_the_movement_of_the_page(site: LocalSite, client: httpx.Client) -> None:
    before = site.repository.branch_get("main").version
    csrf = csrf_in(client.get("/branches").text)
    for version in ("", "x", "9" * 30):
        answer = client.post("/reflog/undo", data={"csrf": csrf, "branch": "main", "version": version})
        assert answer.status_code == 400
        assert "open the page again" in answer.text
    assert site.repository.branch_get("main").version == before


def test_token_of_the_service_is_rotated_and_revoked(running: Running) -> None:
    with signed_in(running, running.secret) as (client, csrf):
        fields = {"csrf": csrf, "name": "monitor", "scope": "read", "days": "30"}
        assert client.post("/ui/tokens/create", data=fields).headers["location"] == "/ui/tokens"
        first = secret_on(client)
        token_id = first.split("_")[1]
        assert client.post("/ui/tokens/rotate", data={"csrf": csrf, "token": token_id}).status_code == 303
        second = secret_on(client)
        assert first != second
        with signed_in(running, second) as (monitor, _):
            assert monitor.get("/ui/jobs").status_code == 200
            assert client.post("/ui/tokens/revoke", data={"csrf": csrf, "token": token_id}).status_code == 303
            assert monitor.get("/ui/jobs").status_code == 401


def secret_on(client: httpx.Client) -> str:
    found = re.search(r"ab_[0-9a-f]+_[\w-]+", client.get("/ui/tokens").text)
    assert found is not None
    return found.group()
