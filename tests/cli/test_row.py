"""`anabranch row`."""

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run


def rows(lake: ab.Repository) -> list[dict[str, object]]:
    found = lake.snapshot_of("main")[ORDERS].to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_each_command_makes_one_commit(cli: Run, lake: ab.Repository) -> None:
    before = len(lake.list_commits("main", limit=None))
    inserted = cli("row", "insert", ORDERS, '{"id": 7, "item": "ink", "price": 3}', '{"id": 8}', "--actor", "eve")
    assert inserted.out.startswith(f"inserted 2 rows into {ORDERS} on main at ")
    assert rows(lake)[-2:] == [{"id": 7, "item": "ink", "price": 3.0}, {"id": 8, "item": None, "price": None}]
    updated = cli("row", "update", ORDERS, "--set", "price=price * 2", "--set", "item='pen'", "--where", "id = 7")
    assert updated.out.startswith("updated 1 row of ")
    assert rows(lake)[-2] == {"id": 7, "item": "pen", "price": 6.0}
    deleted = cli("row", "delete", ORDERS, "--where", "id > 6", "-m", "Remove", "--json").document
    assert (deleted["table"], deleted["branch"], deleted["rows"]) == (ORDERS, "main", 2)
    assert (deleted["commit"]["message"], len(rows(lake))) == ("Remove", 3)
    newest = lake.list_commits("main", limit=None)
    assert (len(newest) - before, newest[2].actor_id, newest[2].message) == (3, "eve", f"Insert 2 rows in {ORDERS}")


@pytest.mark.parametrize(("kind", "literal"), [("date", "'2026-02-01'"), ("timestamp", "'2026-02-01 10:00:00'")])
def test_text_for_date_names_the_literal_that_works(cli: Run, lake: ab.Repository, kind: str, literal: str) -> None:
    types = {"date": pa.date32(), "timestamp": pa.timestamp("us")}
    with lake.transaction() as tx:
        tx.create_table("shop.events", pa.schema([("id", pa.int64()), ("start", types[kind])]), primary_key=["id"])
        tx.append(
            "shop.events",
            pa.table(
                {"id": [1], "start": pa.array([0], pa.int32() if kind == "date" else pa.int64()).cast(types[kind])}
            ),
        )
    update = ("row", "update", "shop.events", "--where", "true", "--set")
    error = cli(*update, f"start={literal}", "--json").error
    assert (error["code"], error["hint"]) == ("schema_mismatch", f'use --set "start={kind} {literal}"')
    # Without quotes, the dashes of a date subtract.
    date = literal.strip("'").partition(" ")[0]
    assert cli(*update, f"start={date}", "--json").error["hint"] == f"use --set \"start={kind} '{date}'\""
    assert cli(*update, f"start={kind} {literal}").out.startswith("updated 1 row of shop.events")


def test_rows_come_from_stdin_and_replace_others(cli: Run, lake: ab.Repository) -> None:
    typed = '{"id": 1, "item": "oil"}\n\n[{"id": 9, "item": null}]\n'
    assert cli("row", "insert", ORDERS, "--upsert", typed=typed).code == 0
    assert [row["item"] for row in rows(lake)] == ["oil", None, "salt", None]


def test_nothing_that_matches_makes_no_commit(cli: Run, lake: ab.Repository) -> None:
    head = lake.snapshot_of("main").id
    answer = cli("row", "delete", ORDERS, "--where", "id = 99")
    assert (answer.code, answer.out) == (0, "no rows match; main did not change\n")
    assert lake.snapshot_of("main").id == head


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["update", ORDERS, "--set", "price=1"], "--where is missing"),
        (["delete", ORDERS], "--where is missing"),
        (["delete", ORDERS, "--where", " "], "--where is missing"),
        (["insert", ORDERS, "{id: 1}"], "'{id: 1}' is not JSON"),
        (["insert", ORDERS, "7"], "7 is not a JSON object"),
        (["insert", ORDERS, '{"idd": 1}'], f"table '{ORDERS}' has no column 'idd'"),
        (["insert", ORDERS, '{"id": "x"}'], "cannot convert 'x' to int64 (column 'id')"),
        (["update", ORDERS, "--set", "price", "--where", "true"], "--set 'price' is not of the form COLUMN=SQL"),
    ],
)
def test_wrong_input_changes_nothing(cli: Run, lake: ab.Repository, args: list[str], problem: str) -> None:
    head = lake.snapshot_of("main").id
    answer = cli("row", *args)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {problem}"), answer.err
    assert lake.snapshot_of("main").id == head
