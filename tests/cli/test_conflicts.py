"""`anabranch conflicts`."""

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, ORDERS_SCHEMA, Run
from tests.cli.merging import contest, heads, upsert, words

STOCK = "in_c_sales.stock"


@pytest.fixture
def contested(lake: ab.Repository) -> ab.Repository:
    contest(lake)
    return lake


@pytest.fixture
def crowded(lake: ab.Repository) -> ab.Repository:
    """In two tables, dev and main insert the same keys with other values: 25 and 5."""
    for branch, item in (("dev", "here"), ("main", "there")):
        upsert(lake, branch, *((number, item, None) for number in range(100, 125)))
        with lake.transaction(branch) as tx:
            tx.create_table(STOCK, ORDERS_SCHEMA, primary_key=["id"])
            rows = {"id": range(5), "item": [item] * 5, "price": [None] * 5}
            tx.append(STOCK, pa.table({name: list(values) for name, values in rows.items()}, schema=ORDERS_SCHEMA))
    return lake


@pytest.mark.s3
def test_conflicts_are_listed_and_nothing_is_changed(cli: Run, contested: ab.Repository) -> None:
    before = heads(contested)
    answer = cli("conflicts", "dev")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[0] == "2 conflicts"
    assert ["table", "kind", "key", "column", "base", "source", "(dev)", "target", "(main)"] in words(answer.out)
    assert [ORDERS, "divergent_update", "id=1", "price", "1.5", "1.7", "1.6"] in words(answer.out)
    assert "deleted" in next(line for line in answer.out.splitlines() if "delete_vs_update" in line)
    assert heads(contested) == before


def test_programs_get_them_in_one_document(cli: Run, contested: ab.Repository) -> None:
    document = cli("conflicts", "dev", "--into", "main", "--json").document
    assert list(document) == ["source", "into", "offset", "conflicts", "has_more"]
    assert [document[name] for name in ("source", "into", "offset", "has_more")] == ["dev", "main", 0, False]
    fields = ("table", "kind", "key", "column", "path", "base", "source", "target", "problem")
    expected = [
        {name: getattr(conflict, name) for name in fields} for conflict in contested.conflicts("dev", into="main")
    ]
    assert document["conflicts"] == expected
    assert {conflict["kind"] for conflict in expected} == {"divergent_update", "delete_vs_update"}


def test_pages_have_all_of_them_once(cli: Run, crowded: ab.Repository) -> None:
    expected = [(conflict.table, dict(conflict.key or {})) for conflict in crowded.conflicts("dev", into="main")]
    assert len(expected) == 30
    found: list[tuple[str, Any]] = []
    while True:
        page = cli("conflicts", "dev", "--limit", "12", "--offset", str(len(found)), "--json").document
        found += [(conflict["table"], conflict["key"]) for conflict in page["conflicts"]]
        if not page["has_more"]:
            break
    assert found == expected
    assert cli("conflicts", "dev").out.startswith("conflicts 1 to 20; --offset 20 shows more\n")
    assert cli("conflicts", "dev", "-n", "10", "--offset", "20").out.startswith(
        "conflicts 21 to 30; there are no more\n"
    )
    assert cli("conflicts", "dev", "--offset", "29").out.startswith("conflict 30; there are no more\n")
    assert cli("conflicts", "dev", "--offset", "30").out == "no conflicts\n"


@pytest.mark.usefixtures("crowded")
def test_they_are_counted_by_table_and_kind(cli: Run) -> None:
    answer = cli("conflicts", "dev", "--stat")
    assert answer.out.splitlines()[0] == "30 conflicts"
    assert [ORDERS, "divergent_insert", "25"] in words(answer.out)
    assert [STOCK, "divergent_insert", "5"] in words(answer.out)
    document = cli("conflicts", "dev", "--stat", "--table", STOCK, "--json").document
    assert document == {
        "source": "dev",
        "into": "main",
        "conflict_count": 5,
        "tables": [{"table": STOCK, "kind": "divergent_insert", "conflicts": 5}],
    }
    assert "orders" not in cli("conflicts", "dev", "--table", STOCK).out
    assert cli("conflicts", "dev", "--table", CUSTOMERS).out == "no conflicts\n"
    error = cli("conflicts", "dev", "--table", "no.such", "--json").error
    assert (error["code"], error["message"]) == ("table_not_found", "neither dev nor main has a table 'no.such'")


@pytest.mark.usefixtures("contested")
def test_only_what_strategies_and_resolvers_leave_is_listed(cli: Run) -> None:
    left = cli("conflicts", "dev", "--resolve", "price=max", "--json").document["conflicts"]
    assert [(conflict["kind"], conflict["key"]) for conflict in left] == [("delete_vs_update", {"id": 3})]
    assert cli("conflicts", "dev", "--strategy", "target").out == "no conflicts\n"
    assert cli("conflicts", "dev", "--strategy", "target", "--stat").out == "no conflicts\n"
    assert cli("conflicts", "dev", "--strategy", "luck", "--json").error["code"] == "invalid_input"


@pytest.mark.usefixtures("lake")
def test_what_is_merged_already_has_none(cli: Run) -> None:
    assert cli("conflicts", "dev").out == "no conflicts\n"
    assert cli("merge", "dev").code == 0
    assert cli("conflicts", "dev", "--json").document["conflicts"] == []
    assert cli("conflicts", "nope", "--json").error["code"] == "branch_not_found"
    assert cli("conflicts", "dev", "--into", "nope", "--json").error["code"] == "branch_not_found"


def test_rows_without_a_key_are_reported_too(cli: Run, lake: ab.Repository) -> None:
    key = "in_c_sales.notes"
    with lake.transaction() as tx:
        tx.create_table(key, pa.schema([("who", pa.string()), ("text", pa.string())]))
        tx.append(key, pa.table({"who": ["ada", "bob"], "text": ["a", "b"]}))
    lake.branch_create("notes")
    for branch, text in (("notes", "here"), ("main", "there")):
        with lake.transaction(branch) as tx:
            tx.update(key, {"text": f"'{text}'"}, where="who = 'ada'")
    (conflict,) = cli("conflicts", "notes", "--json").document["conflicts"]
    assert (conflict["column"], conflict["base"], conflict["source"], conflict["target"]) == (
        "text",
        "a",
        "here",
        "there",
    )
    assert "there" in cli("conflicts", "notes").out


def test_times_without_a_python_type_are_reported_as_text(cli: Run, lake: ab.Repository) -> None:
    key = "in_c_sales.eons"
    schema = pa.schema([("id", pa.int64()), ("fine", pa.timestamp("ns")), ("far", pa.timestamp("s"))])

    def row(number: int, far: int) -> pa.Table:
        return pa.table({"id": [number], "fine": [far], "far": [far * 10**11]}, schema=schema)

    with lake.transaction() as tx:
        tx.create_table(key, schema, primary_key=["id"])
        tx.append(key, pa.concat_tables([row(1, 1), row(2, 1)]))
    lake.branch_create("eons")
    with lake.transaction("eons") as tx:
        tx.upsert(key, row(1, 3))
        tx.delete(key, "id = 2")
    with lake.transaction() as tx:
        tx.upsert(key, pa.concat_tables([row(1, 4), row(2, 4)]))
    found = cli("conflicts", "eons", "--json").document["conflicts"]
    cells = {conflict["column"]: conflict for conflict in found}
    assert cells["fine"]["source"] == "1970-01-01T00:00:00.000000003"
    assert cells["far"]["source"] == "11476-08-15T05:20:00"
    assert cells[None]["target"]["fine"] == "1970-01-01T00:00:00.000000004"
    assert "11476-08-15T05:20:00" in cli("merge", "eons").err
