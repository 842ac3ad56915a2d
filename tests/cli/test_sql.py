"""`anabranch sql`."""

import pytest

import anabranch as ab
from tests.cli.conftest import Run

ALL = "SELECT id, item, price FROM in_c_sales.orders ORDER BY id"


@pytest.mark.s3
def test_the_document_has_columns_and_rows(cli: Run, lake: ab.Repository) -> None:
    assert cli("sql", ALL, "--json").document == {
        "ref": "main",
        "columns": ["id", "item", "price"],
        "rows": [
            {"id": 1, "item": "tea", "price": 1.5},
            {"id": 2, "item": None, "price": 2.0},
            {"id": 3, "item": "salt", "price": None},
        ],
    }
    dev = cli("sql", "SELECT count(*) AS n FROM in_c_sales.orders", "--ref", "dev", "--json").document
    assert (dev["ref"], dev["rows"]) == ("dev", [{"n": 2}])


def test_people_read_a_table(cli: Run, lake: ab.Repository) -> None:
    lines = [line.split() for line in cli("sql", ALL).out.splitlines()]
    assert lines[0] == ["id", "item", "price"]
    assert lines[2:] == [["1", "tea", "1.5"], ["2", "null", "2.0"], ["3", "salt", "null"]]
    assert cli("sql", "FROM in_c_sales.orders WHERE id > 9").out == "no rows\n"


def test_wide_rows_have_a_line_for_each_column(cli: Run, lake: ab.Repository) -> None:
    text = cli("sql", "--wide", f"{ALL} LIMIT 2").out
    assert [line.split() for line in text.splitlines()] == [
        *([], ["row", "1"], ["id", "1"], ["item", "tea"], ["price", "1.5"]),
        *([], ["row", "2"], ["id", "2"], ["item", "null"], ["price", "2.0"]),
    ]
    assert cli("sql", "--wide", "FROM in_c_sales.orders WHERE id > 9").out == "no rows\n"


def test_csv_has_a_header_even_without_rows(cli: Run, lake: ab.Repository) -> None:
    assert cli("sql", "--csv", ALL).out == "id,item,price\n1,tea,1.5\n2,,2.0\n3,salt,\n"
    assert cli("sql", "--csv", "SELECT id FROM in_c_sales.orders WHERE id > 9").out == "id\n"


@pytest.mark.parametrize("given", [["-"], []])
def test_the_statement_may_come_from_stdin(cli: Run, lake: ab.Repository, given: list[str]) -> None:
    answer = cli("sql", *given, "--csv", typed="SELECT id\nFROM in_c_sales.orders\nWHERE id = 2;\n")
    assert answer.out == "id\n2\n"


def test_a_statement_asks_several_refs_and_the_repository_itself(cli: Run, lake: ab.Repository) -> None:
    gone = "SELECT id FROM in_c_sales.orders ANTI JOIN in_c_sales.orders AT 'dev' USING (id)"
    assert cli("sql", gone, "--json").document["rows"] == [{"id": 3}]
    assert cli("sql", "SELECT name FROM branches ORDER BY name", "--csv").out == "name\ndev\nmain\n"


def test_the_current_branch_is_asked(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    assert cli("sql", "SELECT count(*) AS n FROM in_c_sales.orders", "--csv").out == "n\n2\n"
    lake.branch_delete("dev")
    assert "and it is the current branch of this folder" in cli("sql", "SELECT 1").err


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT INTERVAL 1 DAY AS x",
        "SELECT MAP {'a': 1} AS x",
        "SELECT 170141183460469231731687303715884105727::HUGEINT AS x",
        "SELECT 'a'::ENUM ('a', 'b') AS x",
        "SELECT '101'::BIT AS x",
        "SELECT NULL AS x",
        "SELECT TIMESTAMP_NS '2026-11-15 10:00:00.123456789' AS x",
        "SELECT TIME '10:00:00' AS x, uuid() AS y, '[1]'::JSON AS z",
    ],
)
def test_every_type_can_be_shown(cli: Run, lake: ab.Repository, sql: str) -> None:
    for form in (["--json"], ["--csv"], ["--wide"], []):
        answer = cli("sql", sql, *form)
        assert (answer.code, answer.err) == (0, "")
        assert "x" in answer.out


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["selec 1"], "invalid_expression", 2),
        (["SELECT no_such FROM in_c_sales.orders"], "invalid_expression", 2),
        (["FROM no.such"], "table_not_found", 3),
        (["FROM in_c_sales.orders AT 'nope'"], "branch_not_found", 3),
        (["FROM in_c_sales.orders", "--ref", "main~99"], "commit_not_found", 3),
        (["SELECT 1 AS a, 2 AS a"], "invalid_input", 2),
        (["SELECT 1", "--csv"], "invalid_input", 2),
        (["SELECT 1", "--wide"], "invalid_input", 2),
    ],
)
def test_what_cannot_be_asked_is_an_error(
    cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int
) -> None:
    answer = cli("sql", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)


def test_columns_of_one_name_are_for_people(cli: Run, lake: ab.Repository) -> None:
    assert cli("sql", "SELECT 1 AS a, 2 AS a", "--csv").out == "a,a\n1,2\n"


def test_sql_writes_nothing(cli: Run, lake: ab.Repository) -> None:
    before = lake.head_commit_id_for_branch("main")
    for sql in (
        "DELETE FROM in_c_sales.orders",
        "CREATE TABLE t (a INT)",
        "COPY (SELECT 1) TO 'x.csv'",
        "SELECT 1; SELECT 2",
    ):
        assert cli("sql", sql).code == 2
    assert lake.head_commit_id_for_branch("main") == before
