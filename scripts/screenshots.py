"""Take pictures of the web UI for the guide: each page in light, dark and narrow.

python -m scripts.screenshots [docs/img/ui] [--page NAME]
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.server.conftest import Running, make_token, new_project, ok
from tests.server.conftest import serving as serving_service
from tests.server.ui.conftest import CHROMIUM, LocalSite, serving
from tests.server.ui.lakes import shop

import anabranch as ab

# The name of the picture and the path of the page. "{commit}" is the newest commit of dev, "{run}" the newest run,
# "{made}" its commit, and "{failed}" the run before it.
PAGES: Mapping[str, str] = {
    "overview": "/",
    "branches": "/branches",
    "graph": "/graph",
    "commit": "/commits/{commit}",
    "table": "/tables/shop.orders",
    "schema": "/tables/shop.orders/schema",
    "history": "/tables/shop.orders/history",
    "row": "/tables/shop.orders/row?key=[2]&ref=dev",
    "load": "/load?table=shop.orders&branch=dev",
    "compare": "/compare?before=main&after=dev",
    "changes": "/compare/rows?before=main&after=dev&table=shop.orders",
    "merge": "/merge?source=dev&into=main",
    "sql": "/sql?sql=SELECT item, sum(amount) AS sold FROM shop.orders GROUP BY item ORDER BY item",
    "runs": "/runs",
    "run": "/runs/{run}",
    "failed-run": "/runs/{failed}",
    "provenance": "/commits/{made}",
    "lineage": "/lineage/shop.totals",
    "reflog": "/reflog?branch=dev",
    "storage": "/storage?show=storage",
}
# The pages of a service. "{project}" is the id of its project.
SERVICE_PAGES: Mapping[str, str] = {
    "projects": "/ui/",
    "tokens": "/ui/projects/{project}/tokens",
    "audit": "/ui/projects/{project}/audit",
    "jobs": "/ui/projects/{project}/jobs",
}
SIGN_IN, FIRST_STEPS = "sign-in", "first-steps"
NAMES = (*PAGES, *SERVICE_PAGES, SIGN_IN, FIRST_STEPS)
LOOKS: Mapping[str, Mapping[str, object]] = {
    # Low windows: a picture is as high as its page, and a short page has no empty space below it.
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 300}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 300}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 300}},
}
# Pages have few colours, so that a palette loses nothing that can be seen, and a picture is a third of the size.
_COLOURS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/img/ui", type=Path)
    parser.add_argument("--page", choices=NAMES, help="only this page")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    camera = Camera(arguments.folder, only=arguments.page)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        repository, empty = shop(Path(folder) / "shop"), ab.init(Path(folder) / "new", durability="none")
        with serving_service(Path(folder) / "data") as running:
            project = fill(running)
            for look in LOOKS:
                # Each look is a session of its own, and the address of a site works once.
                with serving(repository) as site:
                    take_lake(browser, site, camera, look)
                with serving(empty) as site, window(browser, look) as page:
                    page.goto(site.enter)
                    camera.take(page, FIRST_STEPS, look)
                take_service(browser, running, camera, look, project)
        browser.close()


class Camera:
    """Writes pictures to a folder, as small files."""

    def __init__(self, folder: Path, *, only: str | None) -> None:
        self._folder = folder
        self._only = only

    def takes(self, name: str) -> bool:
        return self._only in (None, name)

    def take(self, page: Page, name: str, look: str) -> None:
        if not self.takes(name):
            return
        path = self._folder / f"{name}-{look}.png"
        page.screenshot(path=path, full_page=True)
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def window(browser: Browser, look: str) -> Iterator[Page]:
    context = browser.new_context(**LOOKS[look])  # type: ignore[arg-type]
    try:
        yield context.new_page()
    finally:
        context.close()


def take_lake(browser: Browser, site: LocalSite, camera: Camera, look: str) -> None:
    repository = site.repository
    run, failed = repository.run_list(limit=2)
    ids = {
        "commit": repository.branch_get("dev").head_commit_id,
        "run": run.id,
        "made": run.commit_id,
        "failed": failed.id,
    }
    with window(browser, look) as page:
        page.goto(site.enter)
        for name, path in PAGES.items():
            if camera.takes(name):
                page.goto(site.url + path.format(**ids))
                # A page whose result is not there yet loads itself again.
                expect(page.get_by_role("status")).to_have_count(0, timeout=60_000)
                camera.take(page, name, look)


def fill(running: Running) -> str:
    """Make a project with some tokens, jobs and events, and return its id."""
    with running.client() as client:
        project = new_project(client, rows=3)
        branch = project.branch()
        project.insert(4, branch=branch)
        make_token(client, "read", project_id=project.id)
        make_token(client, "branch", project_id=project.id)
        ok(client.post(f"{project.table()}/export", json={}))
        return project.id


def take_service(browser: Browser, running: Running, camera: Camera, look: str, project: str) -> None:
    with window(browser, look) as page:
        page.goto(f"{running.url}/ui/")
        camera.take(page, SIGN_IN, look)
        page.get_by_label("Token").fill(running.secret)
        page.get_by_role("button", name="Sign in").click()
        for name, path in SERVICE_PAGES.items():
            if camera.takes(name):
                page.goto(running.url + path.format(project=project))
                camera.take(page, name, look)


if __name__ == "__main__":
    main()
