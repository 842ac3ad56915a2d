"""`anabranch cat`."""

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run
from tests.cli.test_main import in_a_process

ALL = [
    {"id": 1, "item": "tea", "price": 1.5},
    {"id": 2, "item": None, "price": 2.0},
    {"id": 3, "item": "salt", "price": None},
]


@pytest.mark.s3
def test_the_rows_are_printed(cli: Run, lake: ab.Repository) -> None:
    assert cli("cat", ORDERS, "--json").document == {
        "table": ORDERS,
        "commit_id": lake.head_commit_id_for_branch("main"),
        "columns": ["id", "item", "price"],
        "rows": ALL,
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        (["--ref", "dev"], ALL[:2]),
        (["--where", "price > 1.5"], ALL[1:2]),
        (["--where", "price IS NULL OR item = 'tea'"], [ALL[0], ALL[2]]),
        (["--where", "id > 99"], []),
        (["--where", "\"item\" <> 'salt'"], ALL[:1]),
        (["--columns", "price,id", "--limit", "1"], [{"price": 1.5, "id": 1}]),
        (["-c", " item ", "-n", "2", "--where", "id > 1"], [{"item": None}, {"item": "salt"}]),
    ],
)
def test_the_rows_are_those_asked_for(
    cli: Run, lake: ab.Repository, args: list[str], rows: list[dict[str, object]]
) -> None:
    found = cli("cat", ORDERS, *args, "--json").document["rows"]
    assert found == rows
    assert [list(row) for row in found] == [list(row) for row in rows]


def test_people_read_a_table(cli: Run, lake: ab.Repository) -> None:
    lines = [line.split() for line in cli("cat", ORDERS).out.splitlines()]
    assert lines[0] == ["id", "item", "price"]
    assert lines[2:] == [["1", "tea", "1.5"], ["2", "null", "2.0"], ["3", "salt", "null"]]
    assert cli("cat", CUSTOMERS).out == "no rows\n"


def test_twenty_rows_are_shown_unless_more_are_asked_for(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(message="Many") as tx:
        tx.append(CUSTOMERS, pa.table({"name": [f"c{number}" for number in range(25)]}))
    text = cli("cat", CUSTOMERS).out
    assert text.startswith("the first 20 rows; --limit shows more\n")
    assert "c19" in text
    assert "c20" not in text
    assert cli("cat", CUSTOMERS, "--json").document["has_more"] is True
    assert len(cli("cat", CUSTOMERS, "--limit", "25", "--json").document["rows"]) == 25
    assert cli("cat", CUSTOMERS, "--limit", "25", "--json").document["has_more"] is False
    assert len(cli("cat", CUSTOMERS, "--csv").out.splitlines()) == 26


@pytest.mark.s3
def test_csv_is_whole_and_readable(cli: Run, lake: ab.Repository) -> None:
    assert cli("cat", ORDERS, "--csv").out == "id,item,price\n1,tea,1.5\n2,,2.0\n3,salt,\n"
    assert cli("cat", ORDERS, "--csv", "-c", "price,id", "-n", "1").out == "price,id\n1.5,1\n"
    assert cli("cat", ORDERS, "--csv", "--where", "id > 99").out == "id,item,price\n"
    with lake.transaction(message="Odd") as tx:
        tx.append(CUSTOMERS, pa.table({"name": ['a,"b"\nc', ""]}))
    rows = list(csv.reader(io.StringIO(cli("cat", CUSTOMERS, "--csv").out)))
    assert rows == [["name"], ['a,"b"\nc'], [""]]


def test_data_cannot_steer_the_terminal(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(CUSTOMERS, pa.table({"name": ["\x1b[31mred", "[bold]plain[/bold]"]}))
    text = cli("cat", CUSTOMERS).out
    assert "\\x1b[31mred" in text
    assert "[bold]plain[/bold]" in text


@pytest.mark.parametrize(
    ("args", "code", "exit_code", "part"),
    [
        (["no.such"], "table_not_found", 3, "no.such"),
        ([ORDERS, "--where", "cost > 1"], "invalid_expression", 2, "cost"),
        ([ORDERS, "--where", "price >"], "invalid_expression", 2, "price >"),
        ([ORDERS, "--columns", "id,cost"], "schema_mismatch", 2, "'cost'"),
        ([ORDERS, "--ref", "nope"], "branch_not_found", 3, "nope"),
        ([ORDERS, "--limit", "0"], "usage", 2, "--limit"),
    ],
)
@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_what_cannot_be_read_is_an_error_and_nothing_is_printed(
    cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int, part: str, form: str
) -> None:
    answer = cli("cat", *args, form)
    assert (answer.code, answer.out) == (exit_code, "")
    assert part in answer.err
    assert cli("cat", *args, "--json").error["code"] == code


def test_a_real_process_prints_csv_to_a_pipe(lake: ab.Repository, reach: list[str]) -> None:
    answer = in_a_process("cat", ORDERS, "--csv", "--repo", lake.uri, *reach)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "id,item,price\n1,tea,1.5\n2,,2.0\n3,salt,\n"


def test_csv_and_json_do_not_go_together(cli: Run, lake: ab.Repository) -> None:
    answer = cli("cat", ORDERS, "--csv", "--json")
    assert (answer.code, answer.error["code"]) == (2, "invalid_input")


def test_a_name_in_double_quotes_is_a_column_for_every_command(cli: Run, lake: ab.Repository, folder: Path) -> None:
    for args in (["cat", ORDERS], ["export", ORDERS, str(folder / "orders.csv")]):
        refused = cli(*args, "--where", '"itm" IS NOT NULL')
        assert refused.code == 2
        assert "there is no column 'itm'" in refused.err
        assert "did you mean 'item'? the columns are id, item, price" in refused.err
    assert (
        cli("export", ORDERS, str(folder / "orders.csv"), "--where", "\"item\" <> 'salt'", "--json").document["rows"]
        == 1
    )
