"""How values print, in a terminal and in a notebook."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.testing import CountingStore
from tests.conftest import Location
from tests.repo.conftest import CUSTOMERS, ORDERS, append
from tests.repo.test_budgets import open_counted

HOSTILE = '<script>alert("1")</script>\x1b[31m'


def test_a_table_prints_its_key_commit_rows_and_columns(lake: ab.Repository) -> None:
    orders, commit = lake[ORDERS], lake.snapshot().id
    assert repr(orders) == f"Table('in_c_sales.orders', commit='{commit}', rows=3, columns=['id', 'v'])"
    shown = orders._repr_html_()
    assert f"in_c_sales.orders at {commit}, 3 rows" in shown
    assert "<tr><td>id</td><td>int64</td>" in shown
    with lake.transaction() as tx:
        assert repr(tx[ORDERS]) == "Table('in_c_sales.orders', rows=3, columns=['id', 'v'])"


def test_a_table_of_many_columns_prints_the_first(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.wide", pa.schema([(f"c{number}", pa.int64()) for number in range(30)]))
    assert "'c9', ... 20 more])" in repr(repo["s.wide"])


def test_table_without_files_can_be_printed(lake: ab.Repository) -> None:
    orders = lake[ORDERS]
    for info in testing.store_of(lake).list("tables"):
        testing.store_of(lake).delete(info.path)
    assert repr(orders).endswith("rows=3)")
    assert "3 rows" in orders._repr_html_()


def test_a_snapshot_prints_its_tables(lake: ab.Repository) -> None:
    snapshot = lake.snapshot()
    assert repr(snapshot) == f"Snapshot('{snapshot.id}', version=2, tables=['{CUSTOMERS}', '{ORDERS}'])"
    assert f"<tr><td>{ORDERS}</td><td>3</td><td>id</td></tr>" in snapshot._repr_html_()


def test_commits_print_as_a_table(lake: ab.Repository) -> None:
    append(lake, 4)
    commits = lake.list_commits()
    lines = repr(commits).splitlines()
    assert lines[0].split() == ["commit", "created", "actor", "kind", "tables", "message"]
    assert lines[1].startswith(commits[0].graph_commit_id)
    assert lines[1].endswith("append (4,)")
    assert len(lines) == 4
    assert commits._repr_html_().count("<tr>") == 4
    assert repr(commits[:1]).splitlines()[1].split() == lines[1].split()
    assert commits == list(commits) == pickle.loads(pickle.dumps(commits))  # noqa: S301 - our own
    assert repr(lake.list_commits(limit=0)) == "[]"


def test_branches_tags_runs_movements_and_clones_print_as_tables(lake: ab.Repository, location: Location) -> None:
    lake.tag_create("v1", description="the first")
    lake.begin_run(message="nightly").abort()
    ab.clone(lake.uri, location / "clone", storage_options=location.storage_options)
    for found, shown, heading in (
        (lake.branch_list(), "main", "branch mode parent head commit created created by description"),
        (lake.tag_list(), "the first", "tag commit created created by description"),
        (lake.run_list(), "nightly", "run target state begun begun by message"),
        (lake.reflog(), "committed", "version event moved actor commit message"),
        (lake.clone_list(), "registered", "clone target kind state created created by"),
    ):
        lines = repr(found).splitlines()
        assert lines[0].split() == heading.split()
        assert shown in lines[1]
        assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d", lines[1])
        assert shown in found._repr_html_()


def test_long_lists_print_their_first_rows(lake: ab.Repository) -> None:
    many = type(lake.list_commits())([lake.list_commits()[0]] * 60)
    assert repr(many).splitlines()[-1] == "... and 10 more"
    assert len(repr(many).splitlines()) == 52
    assert "<p>... and 10 more</p>" in many._repr_html_()


def test_a_diff_prints_its_tables(lake: ab.Repository) -> None:
    append(lake, 4)
    diff = lake.diff("main~1", "main")
    title, head, row = repr(diff).splitlines()
    assert title == f"Diff of 1 table, from {diff.before.id} to {diff.after.id}"
    assert (head.split("   ")[0], row.split()) == ("table", [ORDERS, "changed", "3", "4"])
    assert f'<th scope="row">{ORDERS}</th>' in diff._repr_html_()
    assert repr(lake.diff("main", "main")).startswith("Diff of 0 tables")


def test_a_merge_plan_prints_its_tables(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    result = lake.merge("dev", "main", dry_run=True)
    title, _, row = repr(result.plan).splitlines()
    assert title.startswith("Merge of dev into main: ")
    assert title.endswith(", 0 conflicts")
    assert row.split()[0] == ORDERS
    assert row.split()[2:] == ["1", "0", "0", "0"]
    assert ORDERS in result.plan._repr_html_()
    assert repr(result).splitlines()[-1] == "commit: None"
    assert result._repr_html_() == result.plan._repr_html_()


def test_a_repository_prints_where_it_is(lake: ab.Repository) -> None:
    assert repr(lake) == f"Repository('{lake.uri}', branch='main')"
    assert lake.uri in lake._repr_html_()


def hostile_values(repo: ab.Repository) -> list[Any]:
    """A value of each kind that prints text which others chose."""
    with repo.transaction(message=HOSTILE) as tx:
        tx.create_table("s.t", pa.schema([(HOSTILE, pa.int64())]))
    repo.tag_create("v1", description=HOSTILE)
    repo.branch_create("dev", description=HOSTILE)
    repo.begin_run(message=HOSTILE).abort()
    return [repo["s.t"], repo.snapshot(), repo.list_commits(), repo.tag_list(), repo.branch_list(), repo.run_list()]


def test_hostile_text_is_escaped(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options, actor=HOSTILE)
    for value in [*hostile_values(repo), repo.reflog(), repo]:
        assert "\x1b" not in repr(value)
        shown = value._repr_html_()
        assert "&lt;script&gt;" in shown, type(value)
        assert "<script" not in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize(
    "show",
    [
        lambda repo: repo,
        lambda repo: repo.snapshot(),
        lambda repo: repo.diff("main~1", "main"),
        lambda repo: repo["s.one"],
    ],
    ids=["repository", "snapshot", "diff", "table"],
)
def test_printing_costs_no_requests(location: Location, show: Callable[[ab.Repository], Any]) -> None:
    made = ab.init(location / "lake", storage_options=location.storage_options)
    with made.transaction() as tx:
        tx.create_table("s.one", pa.schema([("id", pa.int64())]))
    repo, store = open_counted(location)
    value = show(repo)
    assert isinstance(store, CountingStore)
    store.reset()
    assert repr(value)
    assert value._repr_html_()
    assert store.total == 0


def test_conflicts_that_a_notebook_showed_can_still_be_iterated(tmp_path: Path) -> None:
    repo = ab.demo(tmp_path / "shop")
    found = repo.conflicts("sale")
    shown = found._repr_html_()  # type: ignore[attr-defined]
    assert "<td>shop.products</td><td>divergent_update</td><td>id=1</td><td>price</td>" in shown
    assert "<td>12.50</td><td>9.90</td><td>13.50</td>" in shown
    assert [conflict.column for conflict in found] == ["price"]
    storage = repo.storage_report()._repr_html_()
    assert "<caption>Storage by holder</caption>" in storage
    assert "<td>tag v1.0</td>" in storage
