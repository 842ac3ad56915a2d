"""`anabranch table`."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.conftest import Location


@pytest.mark.s3
def test_tables_are_listed_with_their_rows(cli: Run, lake: ab.Repository) -> None:
    found = cli("table", "list", "--json").document
    assert found["commit_id"] == lake.head_commit_id_for_branch("main")
    customers, orders = found["tables"]
    assert list(orders) == ["table", "rows", "primary_key", "dataset", "home", "version"]
    assert (customers["table"], customers["rows"], customers["primary_key"]) == (CUSTOMERS, 0, [])
    assert (orders["table"], orders["rows"], orders["primary_key"]) == (ORDERS, 3, ["id"])
    assert (orders["dataset"], orders["home"]) == ("in_c_sales/orders.lance", None)
    entry = lake.snapshot()[ORDERS].entry
    assert orders["version"] == str(entry.version)


def test_tables_are_those_of_the_ref(cli: Run, lake: ab.Repository) -> None:
    (only,) = cli("table", "list", "--ref", "dev", "--json").document["tables"]
    assert (only["table"], only["rows"], only["home"].startswith("dev/")) == (ORDERS, 2, True)
    assert cli("table", "list", "--ref", "main~2", "--json").document["tables"] == []
    assert cli("table", "list", "--ref", "main~2").out == "no tables\n"


def test_people_read_a_table_of_tables(cli: Run, lake: ab.Repository) -> None:
    rows = [line.split() for line in cli("table", "list").out.splitlines()[2:]]
    assert rows == [[CUSTOMERS, "0", "-"], [ORDERS, "3", "id"]]


@pytest.mark.s3
def test_a_table_is_shown_with_its_columns_and_location(cli: Run, lake: ab.Repository, location: Location) -> None:
    shown = cli("table", "show", ORDERS, "--ref", "dev", "--json").document
    listed = cli("table", "list", "--ref", "dev", "--json").document
    assert shown["schema"] == [
        {"name": "id", "type": "int64", "nullable": True},
        {"name": "item", "type": "string", "nullable": True},
        {"name": "price", "type": "float64", "nullable": True},
    ]
    assert listed["tables"] == [{key: shown[key] for key in listed["tables"][0]}]
    assert shown["commit_id"] == listed["commit_id"]
    assert lance.dataset(shown["uri"], storage_options=location.storage_options or None).count_rows() == 2
    text = cli("table", "show", ORDERS, "--ref", "dev").out
    for part in (ORDERS, shown["uri"], shown["commit_id"][:14], "int64", "nullable"):
        assert part in text


def test_the_history_of_a_table_shows_its_rows(cli: Run, lake: ab.Repository) -> None:
    found = cli("table", "history", ORDERS, "--ref", "dev", "--json").document
    assert (found["table"], found["ref"], found["has_more"]) == (ORDERS, "dev", False)
    assert [(commit["message"].partition("\n")[0], commit["rows"]) for commit in found["commits"]] == [
        ("Fix a price", 2),
        ("Load orders", 3),
    ]
    with lake.transaction(message="Drop it") as tx:
        tx.drop_table(ORDERS)
    lines = cli("table", "history", ORDERS).out.splitlines()[2:]
    cells = [line.split() for line in lines]
    assert [(row[0], row[4], row[5]) for row in cells] == [
        (short(lake, "main"), "change", "-"),
        (short(lake, "main~2"), "load", "3"),
    ]
    newest = cli("table", "history", ORDERS, "-n", "1")
    assert newest.out.startswith("the newest 1 commit; --limit shows more\n")


def test_a_lance_table_is_taken_in_with_its_key(cli: Run, lake: ab.Repository, table: str) -> None:
    adopted = cli("table", "adopt", "in_c_sales.ids", table, "--primary-key", "id", "-b", "dev")
    assert adopted.out == f"adopted in_c_sales.ids with 4 rows on dev at {short(lake, 'dev')}\n"
    assert lake.snapshot_of("dev")["in_c_sales.ids"].primary_key == ("id",)
    assert "in_c_sales.ids" not in lake.snapshot_of("main")


def test_settling_what_is_settled_changes_nothing(cli: Run, lake: ab.Repository) -> None:
    settled = cli("table", "settle", ORDERS, "-b", "dev")
    assert settled.out == f"settled {ORDERS} on dev: Lance tools see what was published\n"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["show", "no.such"], "table_not_found", 3),
        (["show", "orders"], "invalid_name", 2),
        (["show", CUSTOMERS, "--ref", "dev"], "table_not_found", 3),
        (["history", "no.such"], "table_not_found", 3),
        (["history", ORDERS, "--ref", "nope"], "branch_not_found", 3),
        (["adopt", ORDERS], "not_found", 3),
        (["adopt", ORDERS, "-b", "nope"], "branch_not_found", 3),
        (["adopt", ORDERS, "--primary-key", "id"], "invalid_input", 2),
        (["adopt", "a.b", "/no/such/location"], "dataset_not_found", 3),
        (["settle", "no.such"], "table_not_found", 3),
        (["list", "--ref", "nope"], "branch_not_found", 3),
    ],
)
def test_what_is_not_there_is_an_error(
    cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int
) -> None:
    assert cli("table", *args, "--json").error["code"] == code
    assert cli("table", *args).code == exit_code


def test_tables_are_created_renamed_and_dropped(cli: Run, lake: ab.Repository) -> None:
    new, renamed = "in_c_sales.notes", "in_c_sales.memos"
    made = cli("table", "create", new, "id=int64", "price=decimal(10, 2)", "--primary-key", "id")
    assert made.out.startswith(f"created {new} with 2 columns on main at ")
    table = lake.snapshot_of("main")[new]
    assert (table.schema.names, table.primary_key, str(table.schema.field("price").type)) == (
        ["id", "price"],
        ("id",),
        "decimal128(10, 2)",
    )
    assert cli("table", "create", new, "id=int64", "--json").error["code"] == "table_exists"
    assert cli("table", "create", "a.b", "id=int65", "--json").error["code"] == "invalid_input"
    done = cli("table", "rename", new, renamed, "--json").document
    assert (done["table"], done["commit"]["message"]) == (renamed, f"Rename {new} to {renamed}")
    assert cli("table", "drop", renamed, "-m", "Tidy").code == 0
    assert renamed not in lake.tables("main")
    assert lake.list_commits("main", limit=1)[0].message == "Tidy"
    assert cli("table", "drop", renamed, "--json").error["code"] == "table_not_found"


def test_types_are_spelled_alike_everywhere(run: Run, folder: Path) -> None:
    run("init", "shop")
    kinds = {"id": "int64", "price": "decimal(10, 2)", "share": "float64", "day": "date32", "v": "vector(2)"}
    typed = [f"{name}={kind}" for name, kind in kinds.items()]
    run("table", "create", "s.t", *typed, "--primary-key", "id")
    run("switch", "-c", "dev")
    repo = ab.open(folder / "shop")
    with repo.transaction("dev") as tx:
        tx.add_columns("s.t", pa.schema([("cost", pa.decimal128(8, 1))]))

    shown = run("table", "show", "s.t", "--ref", "main", "--json").document
    assert {one["name"]: one["type"] for one in shown["schema"]} == kinds
    dataset = run("dataset", "show", "shop/tables/s/t.lance", "--json").document
    assert {one["name"]: one["type"] for one in dataset["schema"]} == kinds
    applied = run("schema", "show", "--ref", "main", "--json").document["tables"]["s"]["t"]["columns"]
    assert {name: kind.removesuffix(" not null") for name, kind in applied.items()} == kinds
    assert "decimal(8, 1)" in run("diff", "main", "dev").out
    assert "decimal(10, 2)" in repo["s.t"]._repr_html_()
    refused = run("row", "update", "s.t", "--set", "share='x'", "--where", "true")
    assert "column 'share' was expected to be float64 and was found to be string" in refused.err
