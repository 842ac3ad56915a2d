"""SQL over `bucket.table` names: what it reads, and how it reads over views."""

import pytest

from anabranch.pipelines.statements import StatementError, parse_statement


@pytest.mark.parametrize(
    ("sql", "inputs"),
    [
        ("SELECT 1", ()),
        ("SELECT * FROM a.b", ("a.b",)),
        ("SELECT * FROM a.b AS x JOIN c.d y ON x.id = y.id", ("a.b", "c.d")),
        ("SELECT * FROM c.d, a.b", ("c.d", "a.b")),
        ("SELECT * FROM a.b JOIN a.b AS again USING (id)", ("a.b",)),
        ("SELECT * FROM `a`.`b-c`", ("a.b-c",)),
        ("WITH t AS (SELECT * FROM a.b), u AS (SELECT * FROM t) SELECT * FROM u JOIN c.d", ("a.b", "c.d")),
        # A common table expression does not hide the table that only shares its last name.
        ("WITH b AS (SELECT * FROM a.b) SELECT * FROM B", ("a.b",)),
        ("SELECT * FROM (SELECT id FROM a.b WHERE id IN (SELECT id FROM c.d)) t", ("a.b", "c.d")),
        ("SELECT (SELECT max(id) FROM a.b) AS top", ("a.b",)),
        ("SELECT id FROM a.b UNION ALL SELECT id FROM c.d EXCEPT SELECT id FROM e.f", ("a.b", "c.d", "e.f")),
        ("SELECT * FROM a.b WHERE EXISTS (SELECT 1 FROM c.d WHERE d.id = b.id)", ("a.b", "c.d")),
        ("SELECT x FROM range(10) r LATERAL VIEW explode(array(1)) t AS x", ()),
        ("SELECT 'FROM c.d' AS text FROM a.b -- FROM e.f\n", ("a.b",)),
        ("FROM a.b SELECT id", ("a.b",)),
        ("SELECT t.s.f FROM a.b AS t", ("a.b",)),
    ],
)
def test_the_tables_of_a_statement_are_its_inputs(sql: str, inputs: tuple[str, ...]) -> None:
    assert parse_statement(sql).inputs == inputs


@pytest.mark.parametrize(
    ("sql", "over_views"),
    [
        ("SELECT id FROM a.b", "SELECT id FROM `v1` AS `b`"),
        ("SELECT b.id FROM a.b JOIN c.d x", "SELECT b.id FROM `v1` AS `b` JOIN `v2` x"),
        ("SELECT a.b.id, d.id FROM a.b, c.d", "SELECT b.id, d.id FROM `v1` AS `b`, `v2` AS `d`"),
        # The whole name of another thing stays as it is.
        ("SELECT a.b.id FROM c.d AS a", "SELECT a.b.id FROM `v2` AS a"),
        ("SELECT ' a.b ' AS t FROM a . `b` /* a.b */", "SELECT ' a.b ' AS t FROM `v1` AS `b` /* a.b */"),
        ("SELECT * FROM a.b TABLESAMPLE (10 ROWS)", "SELECT * FROM `v1` TABLESAMPLE (10 ROWS)"),
        (
            "WITH b AS (SELECT 'é', * FROM a.b) SELECT * FROM b",
            "WITH b AS (SELECT 'é', * FROM `v1` AS `b`) SELECT * FROM b",
        ),
    ],
)
def test_only_the_names_of_tables_change(sql: str, over_views: str) -> None:
    assert parse_statement(sql).over({"a.b": "v1", "c.d": "v2"}) == over_views


def test_parameters_are_found_and_text_is_not() -> None:
    statement = parse_statement("SELECT ':no' AS t, :least + 1 FROM a.b WHERE day >= :since AND :since < now()")
    assert statement.parameters == ("least", "since")


def test_a_problem_names_the_line_of_the_statement() -> None:
    with pytest.raises(StatementError) as caught:
        parse_statement("SELECT 1\nFROM a.b\nWHERE (id\n")
    assert caught.value.line == 3
    with pytest.raises(StatementError) as caught:
        parse_statement("SELECT 1\nFROM\n  orders")
    assert caught.value.line == 3
