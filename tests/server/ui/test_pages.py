"""Each page in a real browser: reachable, accessible, narrow, without JavaScript, and safe with hostile texts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.server.ui.conftest import LocalSite, Visitor, serving, visiting
from tests.server.ui.lakes import hostile_lake, shop

# "{commit}" is the newest commit of dev.
PAGES = [
    "/",
    "/branches",
    "/branches?deleted=yes",
    "/graph",
    "/graph?actor=ada",
    "/commits/{commit}",
    "/runs",
    "/runs/{run}",
    "/lineage/{table}",
    "/reflog?branch=dev",
    "/storage?show=storage",
    "/storage?show=gc&keep_last=1",
    "/storage?show=doctor",
    "/tables/{table}",
    "/tables/{table}/schema",
    "/tables/shop.orders/row?key=[2]",
    "/load",
    "/compare?before=main&after=dev",
    "/compare/rows?before=main&after=dev&table=shop.orders",
    "/merge?source=dev&into=main",
    "/sql?sql=SELECT+*+FROM+shop.orders",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    with serving(shop(tmp_path_factory.mktemp("lake") / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, site: LocalSite) -> Iterator[Visitor]:
    with visiting(browser, site.url, enter=site.enter) as found:
        yield found


def filled(site: LocalSite, path: str) -> str:
    """Return a path with the ids of its lake."""
    repository = site.repository
    return path.format(
        commit=repository.branch_get("dev").head_commit_id,
        run=repository.run_list()[0].id,
        table=repository.tables()[0],
    )


@pytest.mark.parametrize("path", PAGES)
def test_page_is_accessible_and_fits_a_phone(visitor: Visitor, site: LocalSite, path: str) -> None:
    visitor.page.set_viewport_size({"width": 360, "height": 800})
    visitor.open_finished(filled(site, path))
    visitor.check_width()
    visitor.check_accessible()
    visitor.page.emulate_media(color_scheme="dark")
    try:
        visitor.check_accessible(only="color-contrast")
    finally:
        visitor.page.emulate_media(color_scheme="light")
    assert not visitor.problems


def test_pages_are_readable_at_twice_the_size(browser: Browser, site: LocalSite) -> None:
    """A browser that zooms to 200 % on a window of 1280 pixels lays pages out for 640, with two pixels for each."""
    with serving(site.repository) as own:
        window = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}
        with visiting(browser, own.url, enter=own.enter, **window) as visitor:
            for path in PAGES:
                visitor.open(filled(site, path))
                visitor.check_width()
                # Text grows alone, too, where a visitor chose a larger font.
                visitor.page.evaluate("document.documentElement.style.fontSize = '28px'")
                visitor.check_width()


def test_hostile_texts_stay_texts(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    repository = hostile_lake(tmp_path_factory.mktemp("evil") / "lake")
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        for path in PAGES:
            page = visitor.open(filled(site, path))
            expect(page.locator("main img")).to_have_count(0)
            expect(page.locator("main script")).to_have_count(0)
            assert len(page.content()) < 300_000, path
            visitor.check_width()
        assert not visitor.problems
