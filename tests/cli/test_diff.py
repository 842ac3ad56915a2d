"""`anabranch diff`."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, ORDERS_SCHEMA, Run
from tests.command_line import invoke


@pytest.fixture
def changed(lake: ab.Repository) -> ab.Repository:
    """On dev, order 3 is gone; then order 2 got a price, and there is an order 4."""
    with lake.transaction("dev", message="More") as tx:
        tx.upsert(ORDERS, pa.table({"id": [2, 4], "item": [None, "oil"], "price": [2.5, 7.0]}, schema=ORDERS_SCHEMA))
    return lake


@pytest.mark.s3
def test_counts_and_columns_are_shown_by_default(cli: Run, changed: ab.Repository) -> None:
    with changed.transaction("dev") as tx:
        tx.add_columns(ORDERS, pa.schema([("note", pa.string())]))
    answer = cli("diff", "main~1", "dev")
    assert (answer.code, answer.err) == (0, "")
    words = [line.split() for line in answer.out.splitlines()]
    assert ["table", "change", "inserted", "updated", "deleted"] in words
    assert [ORDERS, "changed", "1", "1", "1"] in words
    assert ["added", "note", "-", "string"] in words
    assert "oil" not in answer.out
    assert "note" not in cli("diff", "main~1", "dev", "--stat").out
    assert "inserted" not in cli("diff", "main~1", "dev", "--schema").out


@pytest.mark.usefixtures("changed")
def test_rows_are_shown_with_the_cells_that_changed(cli: Run) -> None:
    answer = cli("diff", "main~1", "dev", "--rows")
    first, *lines = answer.out.splitlines()
    assert first == ORDERS
    assert sorted(lines) == ["+ id=4, item=oil, price=7.0", "- id=3, item=salt, price=null", "~ id=2, price: 2.0 → 2.5"]
    lines = cli("diff", "dev", "main", "--rows", "--table", ORDERS, "--limit", "1").out.splitlines()
    assert lines[-1] == "and 2 rows more; --limit shows more"
    assert len(lines) == 3


@pytest.mark.usefixtures("changed")
def test_rows_and_cells_have_their_colours_in_a_terminal(reach: list[str]) -> None:
    args = ["diff", "main~1", "dev", "--rows", *reach]
    lines = invoke(*args, is_coloured=True).out.splitlines()
    red, green, yellow, end = (f"\x1b[{code}m" for code in (31, 32, 33, 0))
    assert sorted(lines[1:]) == sorted(
        [
            f"{green}+ id=4, item=oil, price=7.0{end}",
            f"{red}- id=3, item=salt, price=null{end}",
            f"{yellow}~{end} id=2, price: {red}2.0{end} → {green}2.5{end}",
        ]
    )


def test_the_current_branch_is_the_newer_side(cli: Run, changed: ab.Repository) -> None:
    head = changed.snapshot_of("main").id
    assert cli("diff", "dev", "--json").document["after"] == head
    assert cli("switch", "dev").code == 0
    assert cli("diff", "main", "--json").document["before"] == head


def test_programs_get_all_in_one_document(cli: Run, changed: ab.Repository) -> None:
    with changed.transaction("dev") as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="item", name="what")])
        tx.rename_table(ORDERS, "out.orders")
    document = cli("diff", "main", "dev", "--rows", "--json").document
    gone, renamed = document["tables"]
    assert (gone["table"], gone["change"], gone["rows"]) == (CUSTOMERS, "removed", [])
    assert (renamed["table"], renamed["renamed_from"], renamed["change"]) == ("out.orders", ORDERS, "changed")
    assert renamed["columns"] == [{"change": "renamed", "column": "what", "before": "item", "after": "what"}]
    assert [renamed[name] for name in ("inserted", "updated", "deleted")] == [1, 1, 1]
    assert {
        "change": "updated",
        "columns": ["price"],
        "before": {"id": 2, "item": None, "price": 2.0},
        "after": {"id": 2, "what": None, "price": 2.5},
    } in renamed["rows"]
    assert "rows" not in cli("diff", "main", "dev", "--json").document["tables"][0]


def test_the_exit_code_shows_whether_anything_differs(cli: Run, lake: ab.Repository) -> None:
    assert cli("diff", "main", "main", "--exit-code").code == 0
    assert cli("diff", "main", "main").out == "nothing differs\n"
    assert cli("diff", "main", "dev").code == 0
    assert cli("diff", "main", "dev", "--exit-code").code == 1
    assert cli("diff", "main", "dev", "--exit-code", "--table", CUSTOMERS).code == 1
    lake.branch_create("same")
    with lake.transaction("same") as tx:
        tx.update(ORDERS, {"item": "item"}, where="true")
    assert cli("diff", "main", "same", "--exit-code").code == 0


@pytest.mark.usefixtures("lake")
def test_what_is_not_there_is_named(cli: Run) -> None:
    assert cli("diff", "nowhere", "--json").error["message"].startswith("there is no")
    assert "x.y" in cli("diff", "main", "--table", "x.y", "--json").error["message"]


def test_values_cannot_steer_a_terminal(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction("dev") as tx:
        tx.update(ORDERS, {"item": "'\x1b[2J'"}, where="id = 1")
    assert "item: tea → \\x1b[2J" in cli("diff", "main~1", "dev", "--rows").out


def test_stat_shows_tables_and_rows_by_their_entries(cli: Run, changed: ab.Repository) -> None:
    with changed.transaction("dev") as tx:
        tx.rename_table(ORDERS, "out.orders")
    answer = cli("diff", "main", "dev", "--stat")
    words = [line.split() for line in answer.out.splitlines()]
    assert ["table", "change", "rows", "before", "rows", "after"] in words
    assert [CUSTOMERS, "removed", "0", "-"] in words
    assert [ORDERS, "→", "out.orders", "changed", "3", "3"] in words
    gone, renamed = cli("diff", "main..dev", "--stat", "--json").document["tables"]
    assert (gone["table"], gone["change"], gone["rows_after"]) == (CUSTOMERS, "removed", None)
    assert renamed == {
        "table": "out.orders",
        "change": "changed",
        "renamed_from": ORDERS,
        "rows_before": 3,
        "rows_after": 3,
    }
    assert cli("diff", "main", "dev", "--stat", "--exit-code").code == 1
    same = cli("diff", "main", "main", "--stat", "--exit-code")
    assert (same.code, same.out) == (0, "nothing differs\n")


def test_without_arguments_a_branch_is_compared_with_its_parent(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    (changed,) = cli("diff", "--json").document["tables"]
    assert (changed["table"], changed["deleted"]) == (ORDERS, 1)
    assert cli("diff").out == cli("diff", "main...dev").out
    cli("switch", "main")
    answer = cli("diff")
    assert (answer.code, answer.err.splitlines()[0]) == (2, "error: branch 'main' has no parent to compare with")
    assert lake.branch == "main"


def test_a_diff_is_written_as_one_page(cli: Run, lake: ab.Repository, folder: Path) -> None:
    lake.append(ORDERS, [{"id": 8, "item": "<script>alert(1)</script>", "price": 1.0}], branch="dev")
    assert cli("diff", "main...dev", "--html", "diff.html").out == "wrote the diff to diff.html\n"
    page = (folder / "diff.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "&lt;script&gt;alert(1)" in page
    assert all(word not in page for word in ("<script", "http://", "https://", "src="))


def test_equal_columns_are_named_as_equal(cli: Run, lake: ab.Repository) -> None:
    cli("row", "delete", ORDERS, "--where", "id = 1")
    assert cli("diff", "main~1", "main", "--schema").out == "no differences in columns\n"


def test_large_blobs_are_shortened(cli: Run, lake: ab.Repository) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("photo")])
    for size in (1_000_000, 1_000_001):
        rows = pa.table([pa.array([1]), lance.blob_array([b"\x01" * size])], schema=schema)
        if size == 1_000_000:
            lake.load("shop.photos", rows, primary_key=["id"])
        else:
            lake.upsert("shop.photos", rows)
    answer = cli("diff", "main~1", "main", "--rows")
    assert (answer.code, answer.err) == (0, "")
    assert "(1000000 bytes) → 0x0101" in answer.out
    assert len(answer.out) < 1_000
