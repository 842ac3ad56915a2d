"""The pages of one table: rows, schema, history, one row, whole values, and loading a file."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import anabranch as ab
from tests.server.ui.conftest import LocalSite, Visitor, serving, visiting
from tests.server.ui.lakes import HOSTILE, hostile_lake, shop

_LONG = "line one\n" + "x" * 5000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSite]:
    repository = shop(tmp_path_factory.mktemp("lake") / "shop")
    rows = [
        {
            "n": n,
            "vector": [n + 0.5] * 768,
            "blob": bytes(range(200)),
            "note": _LONG if n == 0 else "short",
            "tags": ["a"],
        }
        for n in range(120)
    ]
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("vector", pa.list_(pa.float32(), 768)),
            ("blob", pa.binary()),
            ("note", pa.string()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    repository.load("shop.vectors", pa.Table.from_pylist(rows, schema))
    with serving(repository) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, site: LocalSite) -> Iterator[Visitor]:
    with visiting(browser, site.url, enter=site.enter) as found:
        yield found


def cells_of(visitor: Visitor, row: int) -> list[str]:
    return visitor.page.get_by_role("row").nth(row + 1).get_by_role("cell").all_inner_texts()


def test_rows_are_filtered_sorted_and_paged(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.vectors")
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("51 to 100 of 120")).to_be_visible()
    assert cells_of(visitor, 0)[1] == "50"
    page.get_by_label("Rows where").fill("n >= 100 AND n < 110")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("row")).to_have_count(11)
    page.get_by_role("columnheader", name="n int64").get_by_role("link").click()
    page.get_by_role("columnheader", name="n ▲").get_by_role("link").click()
    expect(page.get_by_role("columnheader", name="n ▼")).to_have_attribute("aria-sort", "descending")
    assert cells_of(visitor, 0)[1] == "109"
    visitor.check_accessible()
    assert not visitor.problems


def test_chosen_columns_are_shown(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.orders")
    page.get_by_text("Choose columns").click()
    page.get_by_role("checkbox", name="item").check()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("columnheader")).to_have_count(3)
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert [head.partition("\n")[0] for head in heads[1:]] == ["id", "item"], "the key is always there"


def test_bad_filter_is_explained_beside_its_field(visitor: Visitor) -> None:
    for where in ("nothing = 1", "amount >", "repeat('x', 1000000000) = 'x'", "amount = (SELECT 1)"):
        page = visitor.open("/tables/shop.orders")
        page.get_by_label("Rows where").fill(where)
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("alert")).to_contain_text("Hint")
        expect(page.get_by_label("Rows where")).to_have_value(where)


def test_ref_is_a_branch_a_tag_a_commit_or_a_time(visitor: Visitor, site: LocalSite) -> None:
    page = visitor.open("/tables/shop.orders")
    commit = site.repository.list_commits("dev", limit=1)[0].graph_commit_id
    for ref, rows in (("dev", 4), ("v1.0", 3), (commit, 4), ("main", 2)):
        page.get_by_label("Branch, tag or commit").fill(ref)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("row")).to_have_count(rows + 1)
    page.get_by_label("At the time (UTC)").fill(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_label("Branch, tag or commit")).to_have_value(re.compile(r"main@\{"))
    expect(page.get_by_role("row")).to_have_count(3)


def test_large_values_are_shortened_and_shown_whole(visitor: Visitor, site: LocalSite) -> None:
    page = visitor.open("/tables/shop.vectors")
    shown = cells_of(visitor, 0)
    assert shown[2].startswith("[0.5, 0.5, 0.5, 0.5, …")
    assert "768 items" in shown[2]
    assert "200 B" in shown[3]
    assert "line one↵x" in shown[4]
    page.get_by_role("link", name="5,009 characters").click()
    assert page.locator("pre").inner_text() == _LONG
    visitor.check_accessible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == _LONG
    page.get_by_role("link", name="The row", exact=True).click()
    expect(page.get_by_role("rowheader")).to_have_count(5)
    answer = page.request.get(f"{site.url}/tables/shop.vectors/value.txt?position=1&column=note")
    assert answer.headers["content-disposition"].startswith("attachment")


def test_row_has_its_history(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.orders")
    page.get_by_label("Open row 2").click()
    history = page.get_by_role("region", name="History of the row")
    changed = history.get_by_role("row").nth(1)
    expect(changed).to_contain_text("± updated")
    expect(changed.locator("del")).to_contain_text("8.0")
    expect(changed.locator("ins")).to_contain_text("7.0")
    expect(history.get_by_role("row").nth(2)).to_contain_text("+ inserted")
    visitor.check_accessible()


def test_schema_lists_columns_and_indices(visitor: Visitor, site: LocalSite) -> None:
    site.repository.index("shop.customers", "name")
    page = visitor.open("/tables/shop.customers/schema")
    expect(page.get_by_role("region", name="Columns of shop.customers").get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("region", name="Indices of shop.customers")).to_contain_text("2 of 2")
    visitor.check_accessible()


def test_history_lists_the_commits_of_the_table(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.orders/history?ref=dev")
    assert "Sell jugs" in page.inner_text("main")
    assert "Load the shop" in page.inner_text("main")
    page.get_by_role("link", name="Rows", exact=True).click()
    expect(page.get_by_role("row")).to_have_count(5)


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False}], ids=["scripts", "no scripts"])
def test_file_is_loaded_into_a_branch(browser: Browser, tmp_path: Path, options: dict[str, bool]) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id,item,amount\n2,cup,9.75\n5,plate,3.5\n")
    with (
        serving(shop(tmp_path / "shop")) as site,
        visiting(browser, site.url, enter=site.enter, **options) as visitor,
    ):
        page = visitor.open("/tables/shop.orders?ref=dev")
        page.get_by_role("link", name="Load a file").click()
        if not options:
            visitor.check_accessible()
        page.get_by_label("File").set_input_files(file)
        page.get_by_role("button", name="Load").click()
        expect(page.get_by_role("status")).to_have_text("Loaded 2 rows of orders.csv into shop.orders on dev.")
        expect(page.get_by_role("row", name="plate")).to_be_visible()
        assert site.repository.list_commits("dev", limit=1)[0].message == "Load orders.csv into shop.orders"
        assert site.repository.entity_at("shop.orders", 2, ref="main") == {"id": 2, "item": "cup", "amount": 7.0}


def test_new_table_is_loaded_with_a_key(tmp_path: Path) -> None:
    with serving(ab.init(tmp_path / "lake", durability="none")) as site, site.client() as client:
        csrf = client.get("/load").text.partition('name="csrf" value="')[2].partition('"')[0]
        data = {"csrf": csrf, "table": "a.b", "branch": "main", "primary_key": "id"}
        answer = client.post("/import", data=data, files={"file": ("x.csv", b"id,n\n1,2\n")})
        assert answer.headers["location"] == "/tables/a.b?ref=main"
        assert site.repository["a.b"].primary_key == ("id",)
        broken = client.post("/import", data=data, files={"file": ("../x.csv", b"id,n\n2,nothing\n")})
        assert broken.status_code == 400
        assert "x.csv" in broken.text
        assert gettempdir() not in broken.text
        forged = client.post("/import", data={**data, "csrf": "x"}, files={"file": ("x.csv", b"id,n\n3,4\n")})
        assert forged.status_code == 403
        assert client.post("/import", data=data).status_code == 400
        assert len(site.repository["a.b"]) == 1


def test_hostile_values_stay_texts(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(hostile_lake(tmp_path / "lake")) as site,
        visiting(browser, site.url, enter=site.enter) as visitor,
    ):
        page = visitor.open("/tables/evil.rows")
        assert "\\u202eevil" in page.inner_text("main"), "a direction character is spelt out"
        paths = [
            "/tables/evil.rows",
            "/tables/evil.rows/schema",
            "/tables/evil.rows/history",
            *(page.get_by_label(f"Open row {n}").get_attribute("href") for n in (1, 2)),
            page.get_by_role("link", name="100,000 characters").first.get_attribute("href"),
        ]
        for path in paths:
            visitor.open(str(path))
            expect(page.locator("main img, main script")).to_have_count(0)
            assert len(page.content()) < 300_000, path
            visitor.check_width()
        assert HOSTILE in visitor.open("/tables/evil.rows").inner_text("main")
        assert not visitor.problems


def test_wide_table_is_paged_by_columns(browser: Browser, tmp_path: Path) -> None:
    repository = ab.init(tmp_path / "lake", durability="none")
    columns = {f"column_{n:03}": [f"value {n}"] * 60 for n in range(120)}
    repository.load("a.wide", pa.table({"id": list(range(60)), **columns}), primary_key=["id"])
    with serving(repository) as site, visiting(browser, site.url, enter=site.enter) as visitor:
        page = visitor.open("/tables/a.wide")
        expect(page.get_by_role("columnheader")).to_have_count(21)
        page.get_by_label("Pages of columns").get_by_role("link", name="Next").click()
        expect(page.get_by_role("columnheader", name="column_020")).to_be_visible()
        expect(page.get_by_role("columnheader", name="id int64")).to_be_visible()
        page.get_by_label("Columns named").fill("_11")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("columnheader")).to_have_count(12)
        for path in ("/tables/a.wide", "/tables/a.wide/schema", "/tables/a.wide/row?key=[3]"):
            assert len(visitor.open(path).content()) < 300_000


def test_strange_addresses_are_refused(visitor: Visitor, site: LocalSite) -> None:
    def status(address: str) -> int:
        return visitor.page.request.get(f"{site.url}{address}").status

    for address in (
        "/tables/shop.orders/row?key=2",
        "/tables/shop.orders/row?key=[1,2]",
        '/tables/shop.orders/row?key=["x"]',
        "/tables/shop.orders/row?key=" + "[" * 3000,
        "/tables/shop.orders/value?key=[2]&column=nothing",
        "/tables/shop.orders?column=nothing",
        "/tables/shop.orders?sort=nothing",
        "/tables/shop.orders?sort=id&page=100000",
        "/tables/shop.vectors?sort=vector",
    ):
        assert status(address) == 400, address
    assert status("/tables/shop.nothing") == 404
    assert status("/tables/shop.orders/value?key=[99]&column=item") == 404
    assert status("/tables/shop.orders/row?key=[99]") == 200
    assert status("/tables/shop.orders?page=1000000") == 200
