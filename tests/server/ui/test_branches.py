"""The page of branches and tags, in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import anabranch as ab
from tests.server.ui.conftest import LocalSite, serving, visiting
from tests.server.ui.lakes import shop
from tests.server.ui.test_sessions import csrf_of


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(shop(tmp_path / "shop")) as found:
        yield found


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_branch_is_created_deleted_and_restored_by_clicks(
    browser: Browser, site: LocalSite, options: dict[str, bool]
) -> None:
    with visiting(browser, site.url, enter=site.enter, **options) as visitor:
        page = visitor.page
        page.get_by_role("link", name="Branches", exact=True).click()
        new = page.get_by_role("region", name="New branch")
        new.get_by_label("Name").fill("experiment")
        new.get_by_label("Expires after days").fill("7")
        new.get_by_role("button", name="Create branch").click()
        expect(page.get_by_role("status")).to_have_text("Branch experiment was created.")
        assert site.repository.branch_get("experiment").expires is not None
        page.get_by_label("Delete branch experiment").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Branch experiment was deleted.")
        page.get_by_role("link", name="Deleted branches").click()
        page.get_by_label("Restore branch experiment").click()
        expect(page.get_by_role("status")).to_have_text("Branch experiment was restored.")
    assert "experiment" in [branch.name for branch in site.repository.branch_list()]


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_branch_is_renamed_by_clicks_and_its_old_movements_are_found(
    browser: Browser, site: LocalSite, options: dict[str, bool]
) -> None:
    with visiting(browser, site.url, enter=site.enter, **options) as visitor:
        page = visitor.open("/branches")
        page.get_by_label("Rename branch dev", exact=True).click()
        page.get_by_label("New name of branch dev").fill("prices")
        page.get_by_role("button", name="Rename", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Branch dev was renamed to prices.")
        if not options:  # axe is a script
            visitor.check_accessible()
        visitor.open("/reflog?branch=prices")
        expect(page.get_by_role("row", name="renamed from dev")).to_be_visible()
        page.get_by_role("link", name="Its movements under this name").click()
        expect(page.get_by_role("row", name="renamed to prices")).to_be_visible()
        expect(page.get_by_role("row", name="committed").first).to_contain_text("Sell jugs")
        expect(page.get_by_role("button", name="Undo the last movement")).to_have_count(0)
        page.get_by_role("link", name="prices").click()
        expect(page.get_by_role("heading", name="Reflog of prices")).to_be_visible()
    assert len(site.repository.table("shop.orders", "prices")) == 4


def test_branch_is_not_renamed_without_a_right_name(site: LocalSite) -> None:
    site.repository.branch_create("release")
    site.repository.branch_protect("release")
    with site.client() as client:
        page = client.get("/branches").text
        assert 'aria-label="Rename branch main"' not in page
        assert 'aria-label="Rename branch release"' not in page
        form = {"csrf": csrf_of(client, "/branches")}
        for branch, new, status in (
            ("dev", "main", 400),
            ("dev", "", 400),
            ("dev", "a b", 400),
            ("dev", "release", 409),
            ("main", "other", 400),
            ("release", "other", 409),
            ("missing", "other", 404),
        ):
            answer = client.post("/branches/rename", data={**form, "branch": branch, "new": new})
            assert answer.status_code == status, (branch, new, answer.text)
    names = {branch.name for branch in site.repository.branch_list()}
    assert {"dev", "release"} <= names
    assert "other" not in names


def test_search_replaces_the_list(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/branches")
        page.get_by_label("Find a branch or tag").press_sequentially("prev")
        expect(page.get_by_role("row")).to_have_count(4)
        expect(page.get_by_role("rowheader", name="preview")).to_have_count(1)
        expect(page).to_have_url(f"{site.url}/branches?search=prev")


def test_long_list_is_paged(browser: Browser, tmp_path: Path) -> None:
    repository = ab.init(tmp_path / "lake", durability="none")
    for number in range(60):
        repository.branch_create(f"branch-{number:02}")
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/branches")
        branches = page.get_by_role("region", name="Branches", exact=True).last.get_by_role("rowheader")
        expect(branches).to_have_count(50)
        page.get_by_role("link", name="Next").click()
        expect(branches).to_have_count(11)
        assert branches.last.inner_text() == "main"


def test_branches_are_compared_with_main(browser: Browser, site: LocalSite) -> None:
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/branches")
        expect(page.get_by_role("row", name="dev")).to_contain_text("2 ahead, 4 behind")
        expect(page.get_by_role("row", name="preview")).to_contain_text("0 own tables")


def test_protected_branch_has_no_delete_button(browser: Browser, site: LocalSite) -> None:
    site.repository.branch_protect("dev")
    with visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/branches")
        expect(page.get_by_role("row", name="dev").get_by_text("protected")).to_have_count(1)
        expect(page.get_by_label("Delete branch dev")).to_have_count(0)
        expect(page.get_by_label("Delete branch preview")).to_have_count(1)


def test_deleted_and_renamed_branches_are_neither_counted_nor_suggested(tmp_path: Path) -> None:
    repository = ab.init(tmp_path / "lake", durability="none")
    for name in ("gone", "old"):
        repository.branch_create(name)
    repository.branch_delete("gone")
    repository.branch_rename("old", "new")
    with serving(repository) as site, site.client() as client:
        overview, compare = client.get("/").text, client.get("/compare").text
    count = re.search(r"<dt>Branches</dt><dd><a[^>]*>(\d+)</a>", overview)
    assert count is not None
    assert count[1] == "2"
    assert 'value="new"' in compare
    assert 'value="gone"' not in compare
    assert 'value="old"' not in compare


def test_deleted_tag_is_neither_counted_nor_suggested(tmp_path: Path) -> None:
    repository = shop(tmp_path / "shop")
    kept = len(repository.tag_list())
    repository.tag_create("gone")
    repository.tag_delete("gone")
    with serving(repository) as site, site.client() as client:
        page = client.get("/").text
    assert re.findall(r"<dt>Tags</dt><dd><a[^>]*>(\d+)<", page) == [str(kept)]
    assert 'value="gone"' not in page
