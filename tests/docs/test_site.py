"""The guide is a site: every page is in it, every link leads somewhere, and no other host is asked for anything."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.docs.pages import ROOT
from tests.server.ui.conftest import CHROMIUM, MISSING_CHROMIUM

PICTURES = sorted((ROOT / "docs" / "img").glob("*.svg"))
# Every other picture is drawn by a benchmark.
DRAWN = [picture for picture in PICTURES if not picture.name.startswith("growth-")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_in_it_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert pages >= {Path("tutorial"), Path("cli"), Path("api"), Path("operations")}
    for page in pages:
        folder = page.parent if page.name == "index" else page
        assert (site / folder / "index.html").is_file()


def test_options_do_not_break_after_a_hyphen(site: Path) -> None:
    tutorial = (site / "tutorial" / "index.html").read_text()
    assert '<code><span class="word">--primary-key</span> id</code>' in tutorial
    assert re.search(r'<code><span class="word">--storage-option</span> durability=none</code>', tutorial)


def test_a_dark_page_has_the_dark_pictures_of_the_ui(site: Path) -> None:
    for page in ("ui", "tour"):
        shown = set(
            re.findall(r'<img [^>]*src="\.\./([^"#]+)#only-(light|dark)"', (site / page / "index.html").read_text())
        )
        assert {look for _, look in shown} == {"light", "dark"}
        assert all((site / picture).is_file() for picture, _ in shown)


def test_decisions_are_in_their_index() -> None:
    decisions = ROOT / "docs" / "adr"
    linked = set(re.findall(r"\]\((0[^)]+)\)", (decisions / "index.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in decisions.glob("0*.md")}


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)|<link[^>]+href=\"(https?:[^\"]+)", page.read_text()
        )
        assert not loaded, page


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert len(local) > 15
    assert [link for link in local if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("picture", DRAWN, ids=lambda picture: picture.stem)
def test_picture_is_readable_on_light_and_dark(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert 'class="back"' in text, "a page may be dark where the system is light"
    assert "<title" in text
    assert "<desc" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


# These are written from the code.
GENERATED = {ROOT / "docs" / name for name in ("api.md", "cli.md")}
HAND_WRITTEN = sorted({*(ROOT / "docs").glob("*.md"), ROOT / "README.md"} - GENERATED)


def _measure(site: Path, script: str, *, width: int) -> dict[str, int]:
    """Return the answer of a script for each page of the site, in a window of this width."""
    if not CHROMIUM.exists():
        pytest.skip(MISSING_CHROMIUM)
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800})
        for file in site.rglob("index.html"):
            page.goto(file.as_uri(), wait_until="load")
            found[str(file.parent.relative_to(site))] = page.evaluate(script)
        browser.close()
    assert len(found) > 40
    return found


@pytest.mark.proof
def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    """Code and tables scroll by themselves; the page does not."""
    widths = _measure(site, "document.documentElement.scrollWidth", width=390)
    assert {name: width for name, width in widths.items() if width > 390} == {}


@pytest.mark.proof
def test_no_code_and_no_table_scrolls_on_a_desktop(site: Path) -> None:
    scrolling = """[...document.querySelectorAll('.md-content pre code, .md-typeset__scrollwrap')]
        .filter(each => each.scrollWidth > each.clientWidth + 1).length"""
    assert {name: count for name, count in _measure(site, scrolling, width=1280).items() if count} == {}


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.stem)
def test_code_fits_a_page(page: Path) -> None:
    assert [line for line in _code(page) if len(line) > 84] == []


def _code(page: Path) -> Iterator[str]:
    """Yield the lines of code and of commands, and not what commands print."""
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*).*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        is_console = language == "console"
        parts = re.findall(r"^\$ (?:.*\\\n)*.*", block, re.MULTILINE) if is_console else [block]
        for part in parts:
            yield from part.splitlines()
