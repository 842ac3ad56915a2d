"""Comparing two refs: tables first, then rows with their changed cells."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import anabranch as ab
from tests.server.ui.conftest import LocalSite, Visitor, serving, visiting
from tests.server.ui.lakes import HOSTILE, hostile_lake, shop


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    repository = shop(tmp_path_factory.mktemp("lake") / "shop")
    repository.branch_create("wide")
    with repository.transaction("wide", message="Other columns") as tx:
        tx.add_columns("shop.customers", pa.schema([("email", pa.string())]))
        tx.drop_table("shop.orders")
        rows = [{"id": n, **{f"c{column:02}": n for column in range(30)}} for n in range(120)]
        tx.create_table("shop.many", pa.Table.from_pylist(rows).schema, primary_key=["id"])
        tx.append("shop.many", rows)
    with serving(repository) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, site: LocalSite) -> Iterator[Visitor]:
    with visiting(browser, site.url, enter=site.enter) as found:
        yield found


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_changed_cell_is_found_by_clicks(browser: Browser, tmp_path: Path, options: dict[str, bool]) -> None:
    with (
        serving(shop(tmp_path / "shop")) as site,
        visiting(browser, site.url, enter=site.enter, **options) as visitor,
    ):
        page = visitor.open("/")
        page.get_by_role("link", name="Compare", exact=True).click()
        page.get_by_label("To", exact=True).fill("dev")
        page.get_by_role("button", name="Compare").click()
        row = page.get_by_role("row", name="shop.orders")
        expect(row).to_contain_text("± changed")
        assert row.get_by_role("cell").all_inner_texts()[:4] == ["± changed", "+2", "±1", "0"]
        page.get_by_role("link", name="shop.orders").click()
        changed = page.get_by_role("row", name="updated")
        assert changed.locator("del").inner_text().endswith("7.0")
        assert changed.locator("ins").inner_text().endswith("9.5")
        expect(page.get_by_role("row", name="+ inserted")).to_have_count(2)
        page.get_by_role("link", name="Show only changed columns").click()
        expect(page.get_by_role("columnheader")).to_have_count(3)


def test_table_with_the_name_of_a_removed_one_is_shown(browser: Browser, tmp_path: Path) -> None:
    repository = shop(tmp_path / "shop")
    repository.branch_create("again")
    with repository.transaction("again", message="Give the name to another table") as tx:
        tx.drop_table("shop.orders")
        tx.rename_table("shop.customers", "shop.orders")
        tx.append("shop.orders", [{"id": 77}])
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/compare/rows?before=main&after=again&table=shop.orders")
        expect(page.get_by_role("row", name="+ inserted")).to_contain_text("77")


def test_changes_since_the_merge_base_leave_out_the_other_side(visitor: Visitor) -> None:
    page = visitor.open("/compare?before=main&after=dev")
    page.get_by_label("since the merge base").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="shop.orders").get_by_role("cell").nth(1)).to_have_text("+1")
    assert page.get_by_role("row", name="shop.orders").get_by_role("cell").all_inner_texts()[1:4] == ["+1", "±1", "0"]
    page = visitor.open("/compare?before=main...dev")
    assert page.get_by_role("row", name="shop.orders").get_by_role("cell").all_inner_texts()[1:4] == ["+1", "±1", "0"]
    visitor.check_accessible()


def test_schema_changes_and_whole_tables_are_shown(visitor: Visitor) -> None:
    page = visitor.open("/compare?before=main&after=wide")
    assert "+ added" in page.get_by_role("row", name="shop.many").inner_text()
    assert "removed" in page.get_by_role("row", name="shop.orders").inner_text()
    assert "email string" in page.get_by_role("row", name="shop.customers").inner_text()
    page.get_by_role("link", name="shop.many").click()
    expect(page.get_by_role("columnheader")).to_have_count(22)
    page.get_by_label("Pages of rows").get_by_role("link", name="Next").click()
    expect(page.get_by_text("51 to 100", exact=True)).to_be_visible()
    assert page.get_by_role("row").nth(1).get_by_role("cell").nth(1).inner_text() == "50", (
        "rows are in order of the key"
    )
    page.get_by_label("Pages of columns").get_by_role("link", name="Next").click()
    expect(page.get_by_role("columnheader", name="c29")).to_be_visible()
    visitor.check_accessible()
    assert not visitor.problems


def test_difference_is_downloaded_as_csv(visitor: Visitor) -> None:
    page = visitor.open("/compare/rows?before=main&after=dev&table=shop.orders")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == ("change,changed_columns,before.id,before.item,before.amount,after.id,after.item,after.amount")
    assert 'updated,"[""amount""]",2,cup,7.0,2,cup,9.5' in lines
    assert len(lines) == 4
    assert download.value.suggested_filename == "shop.orders.diff.csv"


def test_nothing_differs_between_equal_refs(visitor: Visitor) -> None:
    page = visitor.open("/compare?before=main&after=main")
    expect(page.get_by_text("Nothing differs.")).to_be_visible()


def test_strange_addresses_are_refused(visitor: Visitor, site: LocalSite) -> None:
    def status(address: str) -> int:
        return visitor.page.request.get(f"{site.url}{address}").status

    assert status("/compare?before=main&after=nothing") == 404
    assert status("/compare/rows?before=main&after=dev&table=shop.nothing") == 404
    assert status("/compare/rows?before=main&after=dev&table=shop.customers") == 400
    assert status("/compare/rows?before=main&table=shop.orders") == 400
    assert status("/compare/rows?before=main&after=wide&table=shop.many&page=1000") == 400


def test_hostile_values_stay_texts(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(hostile_lake(tmp_path / "lake")) as site,
        visiting(browser, site.url, enter=site.enter) as visitor,
    ):
        address = "before=main&after=dev&table=evil.rows"
        for path in (f"/compare?{address}", f"/compare/rows?{address}", f"/compare/rows?{address}&only=1"):
            page = visitor.open(path)
            expect(page.locator("main img, main script, main b")).to_have_count(0)
            assert len(page.content()) < 300_000, path
            visitor.check_width()
        assert HOSTILE in page.inner_text("main")


def test_large_table_is_counted_on_request(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.server.ui.compare._MOST_COMPARED", 10)
    repository = ab.init(tmp_path / "lake", durability="none")
    repository.load("a.b", pa.table({"id": list(range(50)), "n": [1] * 50}), primary_key=["id"])
    repository.branch_create("dev")
    repository.update("a.b", {"n": "2"}, "id < 30", branch="dev")
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/compare?before=main&after=dev")
        page.get_by_role("link", name="Count the rows").click()
        expect(page.get_by_role("row", name="a.b")).to_contain_text("±30")
        page.get_by_role("link", name="a.b").click()
        expect(page.locator("main")).to_contain_text("60 rows must be compared")
        page.get_by_role("link", name="Compare the rows").click()
        expect(page.locator("tbody tr")).to_have_count(30)
