"""Reflog with undo, garbage collection, runs and lineage, in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import LocalSite, serving, visiting
from tests.ui.lakes import shop
from tests.ui.test_sessions import csrf_of


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(shop(tmp_path / "shop")) as found:
        yield found


def test_last_movement_is_undone_and_redone(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter, java_script_enabled=False) as visitor:
        page = visitor.open("/reflog?branch=dev")
        page.get_by_role("button", name="Undo the last movement").click()
        expect(page.get_by_role("status")).to_contain_text("Undone: committed Sell jugs")
        assert len(site.repository.table("shop.orders", "dev")) == 3
        page.get_by_role("button", name="Redo").click()
        expect(page.get_by_role("status")).to_contain_text("Redone: committed Sell jugs")
    assert len(site.repository.table("shop.orders", "dev")) == 4


def test_undo_is_refused_if_the_branch_moved_since(site: LocalSite) -> None:
    with site.client() as client:
        csrf = csrf_of(client, "/reflog?branch=dev")
        version = str(site.repository.branch_get("dev").version)
        site.repository.delete("shop.orders", "id = 1", branch="dev")
        answer = client.post("/reflog/undo", data={"csrf": csrf, "branch": "dev", "version": version})
        assert answer.status_code == 409
        assert "moved since the page was opened" in answer.text
    assert len(site.repository.table("shop.orders", "dev")) == 3


def test_dry_run_of_gc_deletes_nothing(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/storage")
        page.get_by_label("Keep last commits").fill("1")
        page.get_by_role("button", name="Try garbage collection").click()
        expect(page.get_by_text("It would delete")).to_be_visible()
    assert site.repository.doctor().is_clean


def test_storage_page_refuses_wrong_numbers(site: LocalSite) -> None:
    with site.client() as client:
        answer = client.get("/storage", params={"show": "gc", "keep_last": "all"})
        assert answer.status_code == 400
        assert "must be from 1 to 36500" in answer.text


def test_run_leads_to_its_steps_and_their_lineage(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("row", name="nightly").get_by_role("link").first.click()
        expect(page.get_by_role("row", name="shop.totals")).to_contain_text("shop.orders")
        page.get_by_role("link", name="shop.totals").click()
        graph = page.get_by_role("region", name="Lineage graph")
        expect(graph.get_by_role("link", name="shop.orders")).to_be_visible()
        graph.get_by_role("link", name="nightly").click()
        expect(page.get_by_role("heading", name="Nightly")).to_be_visible()
