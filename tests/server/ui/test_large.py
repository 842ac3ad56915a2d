"""What a page shows at once and what on request, and that what is cached follows every change."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from tests.server.ui.conftest import LocalSite, serving
from tests.server.ui.lakes import shop

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    with serving(shop(tmp_path / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ab.Repository, httpx.Client]]:
    """A lake of 120 tables and branches, and its visitor. The branch `all` has changed all tables."""
    repository = ab.init(tmp_path_factory.mktemp("lake") / "wide", actor="ada", durability="none")
    with repository.transaction(message="Tables") as tx:
        for number in range(120):
            tx.create_table(f"s.t{number:03}", SCHEMA, primary_key=["id"])
    for number in range(120):
        repository.branch_create(f"b{number:03}")
    repository.branch_create("all")
    with repository.transaction("all", message="All") as tx:
        for number in range(120):
            tx.append(f"s.t{number:03}", [{"id": 1, "n": number}])
    with serving(repository) as found, found.client() as client:
        yield repository, client


def text(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_drift_of_a_live_branch_follows_main(site: LocalSite) -> None:
    repository = site.repository
    repository.append("shop.orders", [{"id": 9, "item": "mug", "amount": 1.0}], branch="preview")
    with site.client() as client:
        assert "1 own table" in text(client, "/branches")
        assert "drifted" not in text(client, "/branches")
        repository.append("shop.orders", [{"id": 8, "item": "can", "amount": 2.0}])
        assert "± 1 drifted" in text(client, "/branches")
        repository.branch_pull("preview", "shop.orders")
        assert "drifted" not in text(client, "/branches")


def test_numbers_of_commits_follow_both_branches(site: LocalSite) -> None:
    with site.client() as client:
        assert "2 ahead, 4 behind" in text(client, "/branches")
        site.repository.delete("shop.orders", "id = 1", message="less")
        assert "2 ahead, 5 behind" in text(client, "/branches")
        site.repository.delete("shop.orders", "id = 1", branch="dev", message="less")
        assert "3 ahead, 5 behind" in text(client, "/branches")


def test_rows_in_an_order_follow_the_table(site: LocalSite) -> None:
    path = "/tables/shop.orders?sort=amount&desc=1"
    with site.client() as client:
        assert "99.0" not in text(client, path)
        site.repository.append("shop.orders", [{"id": 9, "item": "gem", "amount": 99.0}])
        assert "99.0" in text(client, path)
        assert "gem" in text(client, "/tables/shop.orders/row?key=[9]")
        site.repository.update("shop.orders", {"item": "'ring'"}, "id = 9")
        assert "ring" in text(client, "/tables/shop.orders/row?key=[9]")


def test_plan_follows_both_branches(site: LocalSite) -> None:
    path = "/merge?source=dev&into=main"
    with site.client() as client:
        assert "0 of 1 decided" in text(client, path)
        site.repository.update("shop.orders", {"amount": "9.5"}, "id = 2")
        assert "Conflicts" not in text(client, path)


def test_kept_decisions_are_listed_and_deleted(site: LocalSite) -> None:
    conflict = next(iter(site.repository.conflicts("dev", "main")))
    decision = {"table": conflict.table, "key": conflict.key, "column": conflict.column, "take": "source"}
    site.repository.update("shop.customers", {"name": "'A'"}, "id = 1", branch="dev")
    site.repository.update("shop.customers", {"name": "'B'"}, "id = 1")
    with pytest.raises(MergeConflictError):
        site.repository.merge("dev", "main", resolutions=[decision], keep_decisions=True)
    with site.client() as client:
        page = text(client, "/merge?source=dev&into=main")
        assert "Kept decisions" in page
        assert "1 of 2 decided" in page or "0 of 1 decided" in page
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        answer = client.post("/merge/forget", data={"csrf": csrf, "source": "dev", "into": "main"})
        assert answer.status_code == 303
        assert "Kept decisions" not in text(client, "/merge?source=dev&into=main")
    assert site.repository.decision_list("dev", "main") == []


def test_small_lake_shows_sizes_at_once_and_a_large_one_on_request(
    site: LocalSite, wide: tuple[ab.Repository, httpx.Client]
) -> None:
    with site.client() as client:
        assert '<th scope="col" class="num">Size</th>' in text(client, "/")
    assert '<th scope="col" class="num">Size</th>' not in text(wide[1], "/")
    assert '<th scope="col" class="num">Size</th>' in text(wide[1], "/?size=1")


def test_plan_of_many_tables_is_made_on_request(wide: tuple[ab.Repository, httpx.Client]) -> None:
    _, client = wide
    page = text(client, "/merge?source=all&into=main")
    assert "has changed 120 tables" in page
    assert "/merge/apply" not in page
    page = text(client, "/merge?source=all&into=main&plan=1")
    assert "1 to 50 of 120" in page
    assert "s.t119" in text(client, "/merge?source=all&into=main&plan=1&tables=3")


def test_tables_of_a_commit_and_a_comparison_come_in_pages(wide: tuple[ab.Repository, httpx.Client]) -> None:
    repository, client = wide
    commit = repository.branch_get("all").head_commit_id
    for path in (f"/commits/{commit}", "/compare?before=main&after=all"):
        page = text(client, path)
        assert "1 to 25 of 120" in page
        assert ("s.t024" in page, "s.t025" in page) == (True, False)
        later = text(client, f"{path}{'&' if '?' in path else '?'}page=5")
        assert "s.t119" in later


def test_lists_of_branches_and_tags_come_in_pages_and_are_searched(wide: tuple[ab.Repository, httpx.Client]) -> None:
    repository, client = wide
    repository.branch_create("gone")
    repository.branch_delete("gone")
    for number in range(60):
        repository.tag_create(f"v{number:02}")
    page = text(client, "/branches")
    assert ("b048" in page, "b070" in page) == (True, False)
    assert "b070" in text(client, "/branches?after=b048")
    page = text(client, "/branches?search=B11")
    assert ("b119" in page, "b048" in page) == (True, False)
    page = text(client, "/branches?search=V5")
    assert ("v59" in page, "v49" in page) == (True, False)
    assert "v59" in text(client, "/branches?tags_after=v49")
    page = text(client, "/branches?deleted=yes")
    assert ("gone" in page, "b001" in page.partition("<main")[2].partition("Tags")[0]) == (True, False)


def test_older_movements_and_commits_are_on_later_pages(tmp_path: Path) -> None:
    repository = ab.init(tmp_path / "lake", actor="ada", durability="none")
    repository.load("a.b", [{"id": 1}], primary_key=["id"])
    for number in range(110):
        repository.append("a.b", [{"id": number + 2}], message=f"append {number}")
    with serving(repository) as site, site.client() as client:
        page = text(client, "/reflog")
        assert ("append 109" in page, "append 5<" in page) == (True, False)
        older = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        page = text(client, older)
        assert "append 5<" in page
        assert "/reflog/undo" not in page
        page = text(client, "/graph")
        assert ("append 109" in page, "append 5<" in page) == (True, False)
        page = text(client, "/graph?page=2")
        assert ("append 109" in page, "append 5<" in page) == (False, True)


def test_table_of_many_columns_is_shown_in_parts(tmp_path: Path) -> None:
    repository = ab.init(tmp_path / "lake", actor="ada", durability="none")
    repository.load("a.b", pa.table({f"c{number:04}": [number] for number in range(1500)}), primary_key=["c0000"])
    with serving(repository) as site, site.client() as client:
        for path in ("/tables/a.b", "/tables/a.b/schema", "/tables/a.b/row?key=[0]", "/sql?sql=SELECT * FROM a.b"):
            page = text(client, path)
            assert len(page) < 60_000, path
            assert ("c0019" in page, "c1400" in page) == (True, False), path
        assert "c1400" in text(client, "/tables/a.b?columns=71")
