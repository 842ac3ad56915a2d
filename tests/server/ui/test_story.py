"""The story of the README by clicks only: branch, load, compare, merge with conflicts, see the graph, undo."""

from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect

import anabranch as ab
from tests.server.ui.conftest import serving, visiting


def load(page: Page, file: Path, *, branch: str) -> None:
    """Load a file into a branch, from the page of the table."""
    page.get_by_role("link", name="Branches", exact=True).click()
    page.get_by_role("link", name=branch, exact=True).first.click()
    page.get_by_role("rowheader", name="shop.orders").get_by_role("link").click()
    page.get_by_role("link", name="Load a file").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(f"into shop.orders on {branch}.")


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_story_works_by_clicks(browser: Browser, tmp_path: Path, options: dict[str, bool]) -> None:
    repository = ab.init(tmp_path / "shop", actor="ada", durability="none")
    orders = pa.table({"id": [1, 2, 3], "item": ["tea", "cup", "pot"], "amount": [12.5, 8.0, 25.0], "stock": [5, 5, 5]})
    repository.load("shop.orders", orders, primary_key=["id"], message="Load the shop")
    of_dev, of_main = tmp_path / "dev.csv", tmp_path / "main.csv"
    of_dev.write_text("id,item,amount,stock\n2,cup,9.5,9\n4,jug,30.0,1\n")
    of_main.write_text("id,item,amount,stock\n2,cup,7.0,7\n")
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter, **options) as visitor:
        page = visitor.page

        # Create a branch.
        page.get_by_role("link", name="Branches", exact=True).click()
        new = page.get_by_role("region", name="New branch")
        new.get_by_label("Name").fill("dev")
        new.get_by_role("button", name="Create branch").click()
        expect(page.get_by_role("status")).to_have_text("Branch dev was created.")

        # Load a CSV file into it, and another one into main.
        load(page, of_dev, branch="dev")
        load(page, of_main, branch="main")

        # Compare, and see a changed cell.
        page.get_by_role("link", name="Compare", exact=True).first.click()
        page.get_by_label("To", exact=True).fill("dev")
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("rowheader", name="shop.orders").get_by_role("link").click()
        changed = page.get_by_role("row", name="updated")
        expect(changed.locator("del").first).to_contain_text("7.0")
        expect(changed.locator("ins").first).to_contain_text("9.5")
        page.get_by_role("link", name="All tables").click()
        page.get_by_role("link", name="Merge dev into main").click()

        # Meet two conflicts: decide one by a rule and one by hand, then merge.
        expect(page.get_by_text("0 of 2 decided")).to_be_visible()
        page.get_by_label("Table or column").select_option("shop.orders.stock")
        page.get_by_label("Rule", exact=True).select_option("max")
        page.get_by_role("button", name="Add the rule").click()
        expect(page.get_by_text("1 of 2 decided")).to_be_visible()
        page.get_by_label('Decision for shop.orders {"id": 2} amount').select_option("source")
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("dev was merged into main.")
        merged = {"id": 2, "item": "cup", "amount": 9.5, "stock": 9}
        assert repository.entity_at("shop.orders", 2, ref="main") == merged
        assert len(repository.table("shop.orders", "main")) == 4

        # Open the graph.
        page.get_by_role("link", name="Graph", exact=True).first.click()
        expect(page.get_by_text("Merge dev into main").first).to_be_visible()
        expect(page.locator("svg").first).to_be_visible()

        # Undo the merge.
        page.get_by_role("link", name="Storage", exact=True).click()
        page.get_by_role("link", name="The reflog").click()
        page.get_by_role("button", name="Undo the last movement").click()
        expect(page.get_by_role("status")).to_be_visible()
        undone = repository.entity_at("shop.orders", 2, ref="main")
        assert undone == {"id": 2, "item": "cup", "amount": 7.0, "stock": 7}
