"""Reflog with undo, garbage collection, runs and lineage, in a browser."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import anabranch as ab
from anabranch.display import short_id
from anabranch.errors import StorageError
from anabranch.format.home import is_staged
from anabranch.ids import BranchName
from anabranch.repo.log.heads import Heads
from anabranch.storage.requests import Progress
from tests.server.ui.conftest import LocalSite, serving, visiting
from tests.server.ui.lakes import shop
from tests.server.ui.test_sessions import csrf_of


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
        for wrong in ("", "-1", "1" * 30, "²"):
            assert (
                client.post("/reflog/undo", data={"csrf": csrf, "branch": "dev", "version": wrong}).status_code == 400
            )
    assert len(site.repository.table("shop.orders", "dev")) == 3


def test_undo_is_refused_if_the_branch_moves_while_it_runs(site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is compared by the put of the new log entry, so that no movement gets between the two."""
    original = Heads.move

    def move(self: Heads, branch: BranchName, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(Heads, "move", original)
        ab.open(site.repository.uri).delete("shop.orders", "id = 1", branch="dev", message="meanwhile")
        return original(self, branch, *arguments, **options)

    with site.client() as client:
        csrf = csrf_of(client, "/reflog?branch=dev")
        version = str(site.repository.branch_get("dev").version)
        monkeypatch.setattr(Heads, "move", move)
        answer = client.post("/reflog/undo", data={"csrf": csrf, "branch": "dev", "version": version})
        assert answer.status_code == 409, answer.text
    assert {row["id"] for row in site.repository.table("shop.orders", "dev").to_arrow().to_pylist()} == {2, 3, 4}


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
        steps = page.get_by_role("table", name="Steps of the pipeline")
        expect(steps.get_by_role("row", name="shop.totals")).to_contain_text("shop.orders")
        steps.get_by_role("link", name="shop.totals").click()
        graph = page.get_by_role("region", name="Lineage graph")
        expect(graph.get_by_role("link", name="shop.orders")).to_be_visible()
        graph.get_by_role("link", name="nightly").click()
        expect(page.get_by_role("heading", name="Nightly")).to_be_visible()


def test_run_shows_its_checks_and_what_failed(browser: Browser, site: LocalSite) -> None:
    def results() -> list[tuple[str, str]]:
        checks = page.get_by_role("table", name="Checks of the run")
        # A click does not wait for the next page, and neither does `all`.
        expect(checks).to_be_visible()
        rows = checks.get_by_role("row").all()[1:]
        return [
            (row.get_by_role("rowheader").inner_text().partition("\n")[0], row.get_by_role("cell").first.inner_text())
            for row in rows
        ]

    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/runs")
        expect(page.get_by_role("row", name="nightly").first).to_contain_text("3 passed")
        failed = page.get_by_role("row", name="CheckFailedError")
        expect(failed).to_contain_text("1 failed, 1 passed, 1 not run")
        failed.get_by_role("link").first.click()
        assert results() == [
            ("no negative totals", "! failed"),
            ("totals exist", "✓ passed"),
            ("a total for each order", "not run"),
        ]
        row = page.get_by_role("row", name="no negative totals")
        expect(row).to_contain_text("found rows, such as {'sold': -1.0}")
        expect(row.get_by_role("link", name="shop.totals")).to_be_visible()
        row.get_by_text("SQL").click()
        expect(row).to_contain_text("SELECT sold FROM shop.totals WHERE sold < 0")
        visitor.check_accessible()
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("row", name="nightly").first.get_by_role("link").first.click()
        assert [result for _, result in results()] == ["✓ passed"] * 3
        visitor.check_accessible()


def test_commit_shows_where_its_tables_came_from(browser: Browser, site: LocalSite) -> None:
    head, before = (site.repository.snapshot_of(ref) for ref in ("main", "main~1"))
    with visiting(browser, site.url, enter=site.enter, java_script_enabled=False) as visitor:
        page = visitor.open(f"/commits/{head.id}")
        row = page.get_by_role("table", name="Where each table came from").get_by_role("row", name="shop.totals")
        expect(row).to_contain_text("sql, rebuild")
        expect(row).to_contain_text(f"shop.orders at {short_id(before.id)}")
        version = before["shop.orders"].entry.version
        assert is_staged(version)
        expect(row).not_to_contain_text(str(version))
        expect(row.get_by_title(str(version), exact=True)).to_have_text("staged Lance version")
        expect(row).to_contain_text("c0dec0dec0de")
        expect(page.locator("main")).to_contain_text("pipeline nightly")
        expect(page.locator("main")).to_contain_text("5a1e5a1e5a1e")
        row.get_by_role("link", name="shop.orders").click()
        assert f"ref={before.id}" in page.url
        page.go_back()
        row.get_by_role("link", name="Lineage of shop.totals").click()
        expect(page.get_by_role("heading", name="Lineage of shop.totals")).to_be_visible()
        page.go_back()
        facts = page.locator("dl").nth(1)
        facts.get_by_role("link").first.click()
        expect(page.get_by_role("table", name="Checks of the run")).to_be_visible()
        merge = next(one for one in site.repository.list_commits(limit=None) if one.kind == "merge")
        visitor.open(f"/commits/{merge.id}")
        taken = page.locator("dl").nth(1).get_by_role("link")
        assert taken.get_attribute("href") == f"/commits/{merge.merged_parent_commit_id}"


def test_commit_with_collected_inputs_is_shown(site: LocalSite) -> None:
    record = {"pipeline": "p", "pipeline.input": "0" * 26, "pipeline.outputs": '{"shop.orders": {"inputs": ["a.b"]}}'}
    with site.repository.transaction(message="By hand", metadata={**record, "run_id": "x"}) as tx:
        tx.delete("shop.orders", "id = 1")
    with site.client() as client:
        page = client.get(f"/commits/{site.repository.snapshot().id}")
        assert page.status_code == 200
        assert "a.b</a>," not in page.text
        assert "/runs/x" not in page.text, "only runs make commits with a run"


@pytest.mark.parametrize("show", ["storage", "gc", "doctor"])
def test_long_work_shows_how_far_it_is_and_blocks_no_page(
    browser: Browser, site: LocalSite, monkeypatch: pytest.MonkeyPatch, show: str
) -> None:
    may_end = threading.Event()
    name = {"storage": "storage_report"}.get(show, show)
    original = getattr(ab.Repository, name)
    calls = []

    def slow(self: ab.Repository, *, progress: Callable[[Progress], None], **options: Any) -> Any:
        calls.append(options)
        progress(Progress(stage="tables", done=3, total=7))
        assert may_end.wait(60)
        return original(self, progress=progress, **options)

    monkeypatch.setattr(ab.Repository, name, slow)
    with visiting(browser, site.url, enter=site.enter, java_script_enabled=False) as visitor:
        page = visitor.open(f"/storage?show={show}")
        expect(page.get_by_role("status")).to_contain_text("3 of 7 tables")
        expect(page.get_by_role("progressbar")).to_have_attribute("value", "3")
        visitor.open("/branches")
        expect(page.get_by_role("heading", name="Branches")).to_be_visible()
        visitor.open(f"/storage?show={show}")
        expect(page.get_by_role("status")).to_contain_text("3 of 7 tables")
        may_end.set()
        # The page loads itself again.
        result = {"storage": "Bytes by branch", "gc": "It would delete", "doctor": "Nothing is wrong"}[show]
        expect(page.get_by_text(result).first).to_be_visible()
        expect(page.get_by_role("status")).to_have_count(0)
    assert len(calls) == 1, "the work was done again for each request"


def test_error_of_long_work_is_shown_once(site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: ab.Repository, **_: Any) -> None:
        raise StorageError("the disk is gone", hint="mount it")

    with site.client() as client:
        with monkeypatch.context() as patched:
            patched.setattr(ab.Repository, "doctor", failing)
            answer = client.get("/storage?show=doctor")
            assert answer.status_code >= 500
            assert "the disk is gone" in answer.text
        # Each request waits for a second.
        pages = (client.get("/storage?show=doctor") for _ in range(60))
        found = next(page for page in pages if "refresh" not in page.headers)
        assert "Nothing is wrong" in found.text
