"""Merging by clicks: the plan, conflicts with three sides, decisions by hand and by rule, and the result."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect

import anabranch as ab
from tests.server.ui.conftest import LocalSite, serving, visiting
from tests.server.ui.lakes import HOSTILE, hostile_lake, shop
from tests.server.ui.test_sessions import csrf_of


def prices(path: Path, *, rows: int = 3) -> ab.Repository:
    """A lake in which both branches changed two cells of each row."""
    repository = ab.init(path, actor="ada", durability="none")
    table = pa.table({"id": list(range(rows)), "price": [1.0] * rows, "stock": [10] * rows, "note": ["old"] * rows})
    repository.load("shop.prices", table, primary_key=["id"])
    repository.branch_create("dev")
    repository.update(
        "shop.prices", {"price": "CAST(id AS DOUBLE) + 2.5", "stock": "12"}, "true", branch="dev", message="dev"
    )
    repository.update("shop.prices", {"price": "CAST(id AS DOUBLE) + 2.0", "stock": "9"}, "true", message="main")
    return repository


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(prices(tmp_path / "lake")) as found:
        yield found


def rows_of(repository: ab.Repository, ref: str = "main") -> list[dict[str, object]]:
    rows = repository.table("shop.prices", ref).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: int(str(row["id"])))


def form_in(page: str) -> dict[str, Any]:
    """Return the hidden fields of the form of a plan, as a browser sends them."""
    found: dict[str, Any] = {}
    for one in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page.partition('id="merge"')[2]):
        found.setdefault(one[0], []).append(unescape(one[1]))
    return found


def open_plan(page: Page) -> None:
    page.get_by_role("link", name="Merge", exact=True).click()
    page.get_by_label("From").fill("dev")
    page.get_by_role("button", name="Show the plan").click()


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_conflicts_are_decided_by_cell_row_value_and_rule(
    browser: Browser, site: LocalSite, options: dict[str, bool]
) -> None:
    with visiting(browser, site.url, enter=site.enter, **options) as visitor:
        page = visitor.page
        open_plan(page)
        expect(page.get_by_text("0 of 6 decided")).to_be_visible()
        row = page.get_by_role("row", name="stock").first
        assert row.get_by_role("cell").all_inner_texts()[:3] == ["10", "12", "9"]
        page.get_by_label("Table or column").select_option("shop.prices.stock")
        page.get_by_label("Rule", exact=True).select_option("max")
        page.get_by_role("button", name="Add the rule").click()
        expect(page.get_by_text("3 of 6 decided")).to_be_visible()
        page.get_by_label('Decision for shop.prices {"id": 0} price').select_option("source")
        page.get_by_label('Decision for shop.prices {"id": 1} price').select_option("value")
        page.get_by_label('Value for shop.prices {"id": 1} price').fill("99.5")
        page.get_by_label('Decision for the whole row {"id": 2}').select_option("base")
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_text("6 of 6 decided")).to_be_visible()
        if not options:
            visitor.check_accessible()
        page.get_by_label("Message").fill("Both prices")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("dev was merged into main.")
        expect(page.get_by_text("Both prices")).to_be_visible()
        if not options:
            visitor.check_accessible()
    assert [(row["price"], row["stock"]) for row in rows_of(site.repository)] == [(2.5, 12), (99.5, 12), (1.0, 10)]
    commit = site.repository.list_commits(limit=1)[0]
    assert commit.merged_parent_commit_id == site.repository.head_commit_id_for_branch("dev")


def test_decisions_on_the_page_count_when_merging_at_once(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("6 conflicts")
        assert rows_of(site.repository)[0]["price"] == 2.0
        page.get_by_role("radio", name="keep main (target)").check()
        page.get_by_label('Decision for shop.prices {"id": 0} price').select_option("source")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    assert [row["price"] for row in rows_of(site.repository)] == [2.5, 3.0, 4.0]


def test_decision_and_rule_can_be_removed(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_label("Table or column").select_option("shop.prices")
        page.get_by_role("button", name="Add the rule").click()
        expect(page.get_by_text("6 of 6 decided")).to_be_visible()
        page.get_by_label("remove").check()
        page.get_by_label('Decision for shop.prices {"id": 0} price').select_option("target")
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_text("1 of 6 decided")).to_be_visible()
        page.get_by_label('Decision for shop.prices {"id": 0} price').select_option("")
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_text("0 of 6 decided")).to_be_visible()


def test_wrong_value_and_rule_are_explained(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_label('Decision for shop.prices {"id": 0} price').select_option("value")
        page.get_by_label('Value for shop.prices {"id": 0} price').fill("cheap")
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_role("alert")).to_contain_text("price")
        page.get_by_label("Table or column").select_option("shop.prices")
        page.get_by_label("Rule", exact=True).select_option("max")
        page.get_by_role("button", name="Add the rule").click()
        expect(page.get_by_role("alert")).to_contain_text("Hint")
        expect(page.get_by_text("0 of 6 decided")).to_be_visible()


def test_failed_check_stops_the_merge(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_role("radio", name="take dev (source)").check()
        page.get_by_label("Checks").fill("SELECT * FROM shop.prices WHERE price > 4")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("price > 4")
        assert rows_of(site.repository)[0]["price"] == 2.0
        page.get_by_label("Checks").fill("SELECT * FROM shop.prices WHERE price > 400")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()


def test_target_that_moved_is_not_merged_unseen(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_role("radio", name="take dev (source)").check()
        site.repository.update("shop.prices", {"note": "'new'"}, "id = 0")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert site.repository.list_commits(limit=1)[0].merged_parent_commit_id is None
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()


def test_source_that_moved_is_not_merged_unseen(browser: Browser, site: LocalSite) -> None:
    """Neither rows nor decisions: the visitor sees the new plan, with what was decided so far."""
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_role("radio", name="take dev (source)").check()
        site.repository.append(
            "shop.prices", [{"id": 9, "price": 1.0, "stock": 1, "note": "unseen"}], branch="dev", message="later"
        )
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("'dev' moved from commit")
        expect(page.get_by_role("alert")).to_contain_text("nothing was merged")
        assert len(rows_of(site.repository)) == 3
        expect(page.get_by_role("row", name="shop.prices").first).to_contain_text("+1")
        expect(page.get_by_role("radio", name="take dev (source)")).to_be_checked()
        site.repository.update("shop.prices", {"note": "'newer'"}, "id = 9", branch="dev")
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_role("alert")).to_contain_text("'dev' moved from commit")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    assert rows_of(site.repository)[-1]["note"] == "newer"


@pytest.mark.parametrize("side", ["dev", "main"])
def test_side_that_moves_while_the_merge_begins_is_not_merged(
    site: LocalSite, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    original = ab.Repository.merge

    def merge(self: ab.Repository, *arguments: Any, **options: Any) -> Any:
        if not options.get("dry_run"):
            monkeypatch.setattr(ab.Repository, "merge", original)
            ab.open(self.uri).update("shop.prices", {"note": "'unseen'"}, "id = 0", branch=side)
        return original(self, *arguments, **options)

    with site.client() as client:
        form = form_in(client.get("/merge?source=dev&into=main").text)
        monkeypatch.setattr(ab.Repository, "merge", merge)
        answer = client.post("/merge/apply", data={**form, "strategy": "source"})
        assert answer.status_code == 409, answer.text
        assert "is on commit" in answer.text
    assert site.repository.list_commits(limit=1)[0].merged_parent_commit_id is None


def test_main_below_a_live_source_is_part_of_the_plan(tmp_path: Path) -> None:
    repository = prices(tmp_path / "lake")
    repository.branch_create("release")
    repository.branch_create("preview", mode="live")
    repository.update("shop.prices", {"note": "'live'"}, "id = 0", branch="preview")
    repository.load("shop.more", [{"id": 1}], primary_key=["id"])
    with serving(repository) as site, site.client() as client:
        form = form_in(client.get("/merge?source=preview&into=release").text)
        repository.append("shop.more", [{"id": 2}])
        answer = client.post("/merge/apply", data=form)
        assert answer.status_code == 409
        assert "main moved below the live branch &#39;preview&#39;" in answer.text
        assert "shop.more" not in repository.snapshot_of("release")
        assert client.post("/merge/apply", data=form_in(answer.text)).status_code == 303
    assert len(repository.table("shop.more", "release")) == 2


def test_long_value_of_a_decision_is_kept_and_not_shown(browser: Browser, tmp_path: Path) -> None:
    repository = prices(tmp_path / "lake")
    for branch in ("dev", "main"):
        repository.update("shop.prices", {"note": f"'{branch}'"}, "id = 0", branch=branch)
    long = '<&"é' * 3000
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        page.get_by_role("radio", name="take dev (source)").check()
        page.get_by_label('Decision for shop.prices {"id": 0} note').select_option("value")
        page.get_by_label('Value for shop.prices {"id": 0} note').fill(long)
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_text("7 of 7 decided")).to_be_visible()
        expect(page.get_by_label('Decision for shop.prices {"id": 0} note')).to_have_value("keep")
        expect(page.get_by_label('Value for shop.prices {"id": 0} note')).to_have_value("")
        assert len(page.content().encode()) < 300_000
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    assert rows_of(repository)[0]["note"] == long


def test_page_of_decisions_is_bounded(site: LocalSite) -> None:
    site.repository.update("shop.prices", {"note": "'dev'"}, "id = 0", branch="dev")
    site.repository.update("shop.prices", {"note": "'main'"}, "id = 0")
    with site.client() as client:
        page = client.get("/merge?source=dev&into=main").text
        form = form_in(page)
        number = [one.partition('"')[0] for one in page.split('name="conflict" value="')[1:]].index(
            next(one.partition('"')[0] for one in page.split('name="conflict" value="')[1:] if "note" in one[:200])
        )
        for path in ("/merge/decide", "/merge/apply"):
            for long in ("x" * 150_000, '"' * 50_000):
                data = {**form, f"take.{number}": "value", f"value.{number}": long}
                answer = client.post(path, data=data)
                assert answer.status_code == 400
                assert "characters are too many" in answer.text
                assert len(answer.content) < 300_000
        for name, most in (("message", 4000), ("checks", 10_000)):
            answer = client.post("/merge/apply", data={**form, name: "x" * 500_000})
            assert answer.status_code == 400
            assert f"at most {most:,} are allowed" in answer.text
            assert len(answer.content) < 300_000
    assert site.repository.list_commits(limit=1)[0].merged_parent_commit_id is None


def test_schema_and_table_conflicts_are_decided(browser: Browser, tmp_path: Path) -> None:
    repository = shop(tmp_path / "shop")
    repository.branch_create("other")
    with repository.transaction("other", message="Drop and widen") as tx:
        tx.drop_table("shop.customers")
        tx.alter_columns("shop.orders", [ab.ColumnChange(path="item", name="article")])
    with repository.transaction(message="Change both") as tx:
        tx.update("shop.customers", {"name": "'Ada'"}, where="id = 1")
        tx.alter_columns("shop.orders", [ab.ColumnChange(path="item", name="thing")])
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/merge?source=other&into=main")
        total = page.locator("progress").get_attribute("max")
        assert total == "2"
        for number, side in (("0", "source"), ("1", "source")):
            page.locator(f'select[name="take.{number}"]').select_option(side)
        visitor.check_accessible()
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    assert "shop.customers" not in repository
    assert repository["shop.orders"].columns == ("id", "article", "amount")


def test_many_conflicts_are_paged_and_decided_by_rule(browser: Browser, tmp_path: Path) -> None:
    repository = prices(tmp_path / "lake", rows=5000)
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.page
        open_plan(page)
        expect(page.get_by_text("0 of 10,000 decided")).to_be_visible()
        assert len(page.content()) < 300_000
        page.get_by_label('Decision for shop.prices {"id": 3} price').select_option("target")
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text("21 to 40 of 10,000")).to_be_visible()
        expect(page.get_by_text("1 of 10,000 decided")).to_be_visible()
        page.get_by_label('Decision for shop.prices {"id": 13} stock').select_option("target")
        page.get_by_role("radio", name="take dev (source)").check()
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    rows = rows_of(repository)
    assert [number for number, row in enumerate(rows) if row["price"] != number + 2.5] == [3]
    assert [number for number, row in enumerate(rows) if row["stock"] != 12] == [13]


def test_hostile_conflict_stays_text_and_can_be_decided(browser: Browser, tmp_path: Path) -> None:
    repository = hostile_lake(tmp_path / "lake")
    repository.update("evil.rows", {"long": "'<script>alert(2)</script>'"}, "true", message=HOSTILE)
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/merge?source=dev&into=main")
        expect(page.locator("main img, main script, main b")).to_have_count(0)
        assert HOSTILE in page.inner_text("main")
        visitor.check_width()
        for number in (0, 1):
            page.locator(f'select[name="take.{number}"]').select_option("value")
            page.locator(f'input[name="value.{number}"]').fill(HOSTILE)
        page.get_by_role("button", name="Save decisions").click()
        expect(page.get_by_text("2 of 2 decided")).to_be_visible()
        expect(page.locator("main img")).to_have_count(0)
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
    assert set(repository["evil.rows"].to_arrow()["long"].to_pylist()) == {HOSTILE}


def test_forged_and_broken_forms_are_refused(site: LocalSite) -> None:
    with site.client() as client:
        good = {**form_in(client.get("/merge?source=dev&into=main").text), "strategy": "source"}

        def status(path: str, **changes: str) -> int:
            return client.post(path, data={**good, **changes}).status_code

        for path in ("/merge/decide", "/merge/apply"):
            assert status(path, csrf="forged") == 403
            assert status(path, strategy="nothing") == 400
            assert status(path, rules="[1]") == 400
            assert status(path, decisions="{") == 400
            assert status(path, decisions='{"{\\"table\\": \\"shop.prices\\"}": {"take": "nothing"}}') == 400
            assert status(path, rules='{"shop.nothing": "source"}') == 400
            assert status(path, into="v1", strategy="fail") == 404
            assert status(path, source="nothing") == 404
            # A form without the commits of its plan would merge changes that the user did not see.
            assert status(path, target_head="") == 400
            assert status(path, source_head="") == 400
            assert client.post(path, data={"csrf": good["csrf"], "source": "dev", "into": "main"}).status_code == 400
            assert status(path, target_head="0" * 26) == 409
            assert status(path, source_head="x") == 409
        assert site.repository.list_commits(limit=1)[0].merged_parent_commit_id is None


def test_nothing_to_merge_is_shown(site: LocalSite) -> None:
    with site.client() as client:
        assert "Nothing to merge" in client.get("/merge?source=main&into=main").text
        head = site.repository.branch_get("main").head_commit_id
        data = {"csrf": csrf_of(client), "source": "main", "into": "main", "source_head": head, "target_head": head}
        answer = client.post("/merge/apply", data=data)
        assert answer.headers["location"] == "/merge?into=main"


def test_result_of_an_unknown_commit_is_an_error(site: LocalSite) -> None:
    with site.client() as client:
        assert client.get("/merge/result?commit=nothing").status_code in (400, 404)
