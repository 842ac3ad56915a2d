"""The SQL console: it reads tables of any ref, in bounds, and cannot do anything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import LocalSite, Visitor, serving, visiting
from tests.ui.lakes import HOSTILE, hostile_lake, shop


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    with serving(shop(tmp_path_factory.mktemp("lake") / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, site: LocalSite) -> Iterator[Visitor]:
    with visiting(browser, site.url, enter=site.enter) as found:
        yield found


def run(visitor: Visitor, sql: str, *, ref: str = "main") -> None:
    page = visitor.open("/sql")
    page.get_by_label("One statement").fill(sql)
    page.get_by_label("At the branch, tag or commit").fill(ref)
    page.get_by_role("button", name="Run").click()


def rows_of(visitor: Visitor) -> list[list[str]]:
    result = visitor.page.get_by_role("region", name="Result")
    # Reading all rows does not wait for the page that the form leads to.
    expect(result).to_be_visible()
    rows = result.get_by_role("row").all()[1:]
    return [row.get_by_role("cell").all_inner_texts() for row in rows]


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_statement_is_answered_and_downloaded(browser: Browser, tmp_path: Path, options: dict[str, bool]) -> None:
    with (
        serving(shop(tmp_path / "shop")) as site,
        visiting(browser, site.url, enter=site.enter, **options) as visitor,
    ):
        visitor.page.get_by_role("link", name="SQL", exact=True).click()
        run(visitor, "SELECT id, item FROM shop.orders ORDER BY id", ref="dev")
        assert rows_of(visitor) == [["1", "tea"], ["2", "cup"], ["3", "pot"], ["4", "jug"]]
        if not options:
            visitor.check_accessible()
        with visitor.page.expect_download() as download:
            visitor.page.get_by_role("link", name="Download CSV").click()
        assert Path(download.value.path()).read_text() == "id,item\n1,tea\n2,cup\n3,pot\n4,jug\n"


def test_refs_are_joined_with_at(visitor: Visitor) -> None:
    run(
        visitor,
        "SELECT o.id, o.amount, n.amount FROM shop.orders AT 'v1.0' o JOIN shop.orders AT 'dev' n USING (id) "
        "WHERE o.amount <> n.amount",
    )
    assert rows_of(visitor) == [["2", "8.0", "9.5"]]


def test_error_has_a_hint_and_keeps_the_statement(visitor: Visitor) -> None:
    for sql in ("SELEC 1", "SELECT nothing FROM shop.orders", "SELECT * FROM shop.nothing", "SELECT 1; SELECT 2"):
        run(visitor, sql)
        expect(visitor.page.get_by_role("alert")).to_contain_text("Hint")
        expect(visitor.page.get_by_label("One statement")).to_have_value(sql)
    visitor.check_accessible()


def test_statement_cannot_write_or_read_files(visitor: Visitor, site: LocalSite, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n")
    target = tmp_path / "out.csv"
    commits = len(site.repository.list_commits(limit=None))
    for sql in (
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"COPY (SELECT 1) TO '{target}'",
        f"ATTACH '{target}' AS x",
        "DELETE FROM shop.orders",
        "INSERT INTO shop.orders VALUES (9, 'x', 1)",
        "UPDATE shop.orders SET amount = 0",
        "DROP TABLE shop.orders",
        "CREATE TABLE t AS SELECT 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('DELETE FROM shop.orders')",
    ):
        run(visitor, sql)
        expect(visitor.page.get_by_role("alert")).to_be_visible()
        address = f"{site.url}/sql.csv"
        assert visitor.page.request.get(address, params={"sql": sql}).status in (400, 404), sql
        assert "secret\n" not in visitor.page.inner_text("main"), sql
    assert not target.exists()
    assert len(site.repository.list_commits(limit=None)) == commits
    assert len(site.repository["shop.orders"]) == 2


def test_large_result_is_bounded(visitor: Visitor) -> None:
    run(visitor, "SELECT range AS n, repeat('x', 2000) AS long FROM range(1000000)")
    expect(visitor.page.get_by_text("The first 1,000 rows are shown.")).to_be_visible()
    assert len(visitor.page.content()) < 300_000
    columns = ", ".join(f"{n} AS c{n}" for n in range(100))
    run(visitor, f"SELECT {columns}")
    expect(visitor.page.get_by_text("The first 40 of 100 columns are shown.")).to_be_visible()
    sql = "SELECT repeat('x', 1000) FROM range(100000)"
    answer = visitor.page.request.get(f"{visitor.site}/sql.csv", params={"sql": sql})
    assert answer.status == 413
    assert not visitor.problems


def test_slow_statement_is_stopped(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.server.ui.sql._SECONDS", 0.2)
    run(visitor, "SELECT count(*) FROM range(100000000000) a, range(100000000000) b WHERE a.range + b.range < 0")
    expect(visitor.page.get_by_role("alert")).to_contain_text("0.2 seconds", timeout=15_000)


def test_hostile_values_stay_texts(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(hostile_lake(tmp_path / "lake")) as site,
        visiting(browser, site.url, enter=site.enter) as visitor,
    ):
        run(visitor, f"SELECT *, '{HOSTILE}' AS \"{HOSTILE}\" FROM evil.rows")
        page = visitor.page
        expect(page.locator("main img, main script")).to_have_count(0)
        assert HOSTILE in page.inner_text("main")
        assert len(page.content()) < 300_000
        visitor.check_width()
