"""Take pictures of the web UI for the guide: each page in light, dark and narrow.

python -m scripts.screenshots [docs/img/ui] [--page NAME]
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from tests.ui.conftest import CHROMIUM, LocalSite, serving
from tests.ui.lakes import shop

# The name of the picture and the path of the page. "{commit}" is the newest commit of dev.
PAGES: Mapping[str, str] = {
    "overview": "/",
    "branches": "/branches",
    "graph": "/graph",
    "commit": "/commits/{commit}",
    "table": "/tables/shop.orders",
    "row": "/tables/shop.orders/row?key=[2]&ref=dev",
    "load": "/load?table=shop.orders&branch=dev",
    "compare": "/compare?before=main&after=dev",
    "changes": "/compare/rows?before=main&after=dev&table=shop.orders",
    "merge": "/merge?source=dev&into=main",
    "sql": "/sql?sql=SELECT item, sum(amount) AS sold FROM shop.orders GROUP BY item ORDER BY item",
    "runs": "/runs",
    "lineage": "/lineage/shop.totals",
    "reflog": "/reflog?branch=dev",
    "storage": "/storage?show=storage",
}
LOOKS: Mapping[str, Mapping[str, object]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 700}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 700}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 700}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/img/ui", type=Path)
    parser.add_argument("--page", choices=PAGES, help="only this page")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        repository = shop(Path(folder) / "shop")
        for look, options in LOOKS.items():
            # Each look is a session of its own, and the address of a site works once.
            with serving(repository) as site:
                take(browser, site, arguments.folder, look=look, options=options, only=arguments.page)
        browser.close()


def take(
    browser: Browser, site: LocalSite, folder: Path, *, look: str, options: Mapping[str, object], only: str | None
) -> None:
    context = browser.new_context(**options)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(site.enter)
    commit = site.repository.branch_get("dev").head_commit_id
    for name, path in PAGES.items():
        if only in (None, name):
            page.goto(site.url + path.format(commit=commit))
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
    context.close()


if __name__ == "__main__":
    main()
