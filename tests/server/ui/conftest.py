"""A UI that listens, and a real browser that fails the test on any error or request to another host."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright
from starlette.applications import Starlette

import anabranch as ab
from anabranch.server.app import listen
from anabranch.server.ui.local import ENTER_PATH, create_local_app
from anabranch.server.ui.requests import OneTimeToken
from anabranch.server.ui.sql import limited_processes

CHROMIUM = Path("/usr/bin/chromium")
MISSING_CHROMIUM = "chromium is not installed: apt-get install chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests with a browser in one worker: they share one browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("ui"))


@contextmanager
def listening(make_app: "AppFactory") -> Iterator[str]:
    """Serve an application in a thread, and yield its address."""
    socket = listen(host="127.0.0.1", port=0)
    port = socket.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(make_app(port), log_level="warning", access_log=False, ws="none"))

    def run() -> None:
        with asyncio.Runner() as runner:
            runner.run(server.serve(sockets=[socket]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        socket.close()


class AppFactory:
    """Makes the UI of a repository for the port that it will have."""

    def __init__(self, repository: ab.Repository) -> None:
        self.repository = repository
        self.token = OneTimeToken()

    def __call__(self, port: int) -> Starlette:
        return create_local_app(self.repository, port=port, token=self.token)


@dataclass(frozen=True)
class LocalSite:
    """The UI of a repository, and the address with the one-time token."""

    url: str
    enter: str
    repository: ab.Repository

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Yield a client with a session, as a browser has it after it opened the printed address."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            assert client.get(self.enter).status_code == 303
            yield client


@contextmanager
def serving(repository: ab.Repository) -> Iterator[LocalSite]:
    factory = AppFactory(repository)
    with listening(factory) as url:
        yield LocalSite(url=url, enter=f"{url}{ENTER_PATH}?token={factory.token.value}", repository=repository)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(MISSING_CHROMIUM)
    limited_processes().start()  # what the SQL console needs: it takes seconds, and longer on a busy machine
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visitor:
    """A browser window, and everything in it that must not happen."""

    page: Page
    site: str
    problems: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser reports the status of an error page that a test asked for.
        if message.type in ("error", "warning") and "the server responded with a status of 4" not in message.text:
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.site).netloc:
            self.problems.append(f"request to {request.url}")

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.site}{path}")
        return self.page

    def open_finished(self, path: str) -> None:
        """Open a page. If it loads itself again until long work has finished, wait for that."""
        for _ in range(60):  # the service lets each request wait for a second
            answer = self.page.goto(f"{self.site}{path}")
            if answer is None or "refresh" not in answer.headers:
                return

    def check_accessible(self, *, only: str | None = None) -> None:
        """Fail on serious findings of axe, by all of its rules or by one."""
        options = {"resultTypes": ["violations"]} | ({} if only is None else {"runOnly": [only]})
        found = Axe().run(self.page, options=options).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        summary = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious]
        assert not summary, summary

    def check_width(self) -> None:
        """Fail if the page is wider than the window: only regions inside it may scroll sideways."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{self.page.url} is {wide} pixels too wide"


@contextmanager
def visiting(browser: Browser, site: str, *, enter: str | None = None, **options: object) -> Iterator[Visitor]:
    """Yield a browser window of its own that has entered the site."""
    context: BrowserContext = browser.new_context(**options)  # type: ignore[arg-type]
    context.set_default_timeout(15_000)
    context.set_default_navigation_timeout(60_000)
    try:
        visitor = Visitor(page=context.new_page(), site=site)
        visitor.watch()
        if enter is not None:
            visitor.page.goto(enter)
        yield visitor
        assert not visitor.problems, visitor.problems
    finally:
        context.close()
