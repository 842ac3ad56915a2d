"""`anabranch changes`."""

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, ORDERS_SCHEMA, Run


@pytest.fixture
def changed(lake: ab.Repository) -> str:
    """On main, order 2 got a price and an order 4 came; then a column. The commit before both."""
    before = lake.snapshot_of("main").id
    with lake.transaction(message="More\n\nand why") as tx:
        tx.upsert(ORDERS, pa.table({"id": [2, 4], "item": [None, "oil"], "price": [2.5, 7.0]}, schema=ORDERS_SCHEMA))
    lake.compact()
    with lake.transaction(message="Notes") as tx:
        tx.add_columns(ORDERS, pa.schema([("note", pa.string())]))
    return before


@pytest.mark.s3
def test_commits_are_counted_by_default(cli: Run, lake: ab.Repository, changed: str) -> None:
    answer = cli("changes", ORDERS, "--since", changed)
    assert (answer.code, answer.err) == (0, "")
    words = [line.split() for line in answer.out.splitlines()]
    assert ["More", "changed", "1", "1", "0"] in [line[-5:] for line in words]
    assert ["Notes", "changed", "0", "0", "0"] in [line[-5:] for line in words]
    assert ["added", "note", "-", "string"] in words
    assert "oil" not in answer.out
    assert "ompact" not in answer.out
    assert answer.out == cli("changes", ORDERS, "--since", changed, "--stat").out
    assert len(cli("changes", ORDERS, "--json").document["commits"]) == len(list(lake.changes(ORDERS)))


def test_rows_are_shown_below_their_commit(cli: Run, lake: ab.Repository, changed: str) -> None:
    more = lake.get_commit("main~2").graph_commit_id
    first, *rows, last, notes = cli("changes", ORDERS, "--since", changed, "--rows").out.splitlines()
    assert first.startswith(more[:14])
    assert first.endswith(" More")
    assert sorted(rows) == ["+ id=4, item=oil, price=7.0", "~ id=2, price: 2.0 → 2.5"]
    assert last.endswith(" Notes")
    assert notes == "and 1 change of columns; --stat shows them"
    lines = cli("changes", ORDERS, "--until", f"{more}", "--rows", "--limit", "1").out.splitlines()
    assert lines[0].endswith("(table added)")
    assert lines[-1] == "and 1 row more; --limit shows more"


def test_programs_get_all_in_one_document(cli: Run, changed: str) -> None:
    document = cli("changes", ORDERS, "--since", changed, "--until", "main~2", "--rows", "--json").document
    assert document["table"] == ORDERS
    [commit] = document["commits"]
    assert (commit["message"], commit["change"], commit["inserted"]) == ("More\n\nand why", "changed", 1)
    assert {
        "change": "updated",
        "columns": ["price"],
        "before": {"id": 2, "item": None, "price": 2.0},
        "after": {"id": 2, "item": None, "price": 2.5},
    } in commit["rows"]
    assert "rows" not in cli("changes", ORDERS, "--json").document["commits"][0]


def test_the_current_branch_is_the_end(cli: Run, lake: ab.Repository, changed: str) -> None:
    with lake.transaction("dev", message="On dev") as tx:
        tx.delete(ORDERS, "id = 1")
    assert "On dev" not in cli("changes", ORDERS).out
    assert "On dev" in cli("changes", ORDERS, "--until", "dev").out
    assert cli("switch", "dev").code == 0
    assert "On dev" in cli("changes", ORDERS).out
    assert cli("changes", ORDERS, "--since", "dev").out == "nothing changed\n"
    assert cli("changes", ORDERS, "--since", "main", "--json").error["code"] == "not_in_history"
    assert (
        cli("changes", ORDERS, "--since", "dev", "--until", f"{changed}~1", "--json").error["code"] == "invalid_input"
    )
    assert cli("changes", "x.y").code == 3


def test_a_rename_is_reported_with_the_other_name(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(message="Rename") as tx:
        tx.rename_table(ORDERS, "out.orders")
    assert "renamed to out.orders" in cli("changes", ORDERS).out
    assert f"(table renamed from {ORDERS})" in cli("changes", "out.orders", "--rows").out
    [commit] = cli("changes", "out.orders", "--json").document["commits"]
    assert (commit["change"], commit["renamed_from"], commit["renamed_to"]) == ("added", ORDERS, None)
