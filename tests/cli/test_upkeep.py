"""`anabranch compact` and `anabranch index`."""

import pyarrow as pa

import anabranch as ab
from tests.cli.conftest import ORDERS, Run, short


def test_compact_reports_what_it_did(cli: Run, lake: ab.Repository) -> None:
    for number in (7, 8):
        with lake.transaction() as tx:
            tx.append(ORDERS, pa.table({"id": [number]}))
    rows = lake.sync_branch()[ORDERS].count_rows()
    answer = cli("compact", ORDERS, "--json").document
    (table,) = answer["tables"]
    assert (table["table"], table["rows"], table["fragments_after"]) == (ORDERS, rows, 1)
    assert table["fragments_before"] >= 3
    assert answer["commit_id"] == lake.snapshot_of("main").id
    assert cli("compact", ORDERS, "--json").document["commit_id"] is None
    assert cli("compact").out.startswith("nothing to compact\n")


def test_index_shows_the_indices(cli: Run, lake: ab.Repository) -> None:
    answer = cli("index", ORDERS, "id", "--branch", "dev", "--name", "by_id", "--json").document
    assert answer["commit_id"] == lake.snapshot_of("dev").id
    (found,) = answer["indices"]
    assert (found["name"], found["columns"], found["type"]) == ("by_id", ["id"], "btree")
    shown = cli("index", ORDERS, "price", "--type", "btree").out
    assert shown.startswith(f"indexed price of {ORDERS} by commit {short(lake, 'main')}\n")
    assert "price_idx" in shown


def test_mistakes_are_named(cli: Run, lake: ab.Repository) -> None:
    assert lake.branch == "main"
    for args, code in (
        (["index", ORDERS, "nope"], "schema_mismatch"),
        (["index", ORDERS, "id", "--type", "hash"], "invalid_input"),
        (["index", ORDERS, "id", "--metric", "cosine"], "invalid_input"),
        (["index", "in_c_sales.nope", "id"], "table_not_found"),
        (["compact", "in_c_sales.nope"], "table_not_found"),
        (["compact", "--engine", "dask"], "invalid_input"),
        (["compact", "--branch", "nope"], "branch_not_found"),
    ):
        assert cli(*args, "--json").error["code"] == code
