"""Several refs in one query."""

import pytest

import anabranch as ab
from anabranch.duck.statement import mark_refs
from anabranch.errors import InvalidExpressionError
from tests.duck.conftest import orders, rows


@pytest.mark.s3
def test_a_query_compares_two_branches(shop: ab.Repository) -> None:
    sql = """
        SELECT d.id FROM in_c_sales.orders AT 'dev' AS d
        ANTI JOIN in_c_sales.orders AT 'main' AS m USING (id)
    """
    assert rows(shop, sql) == [(4,)]


def test_every_form_of_a_ref_may_be_asked_for(shop: ab.Repository) -> None:
    shop.tag_create("v1")
    commit = shop.snapshot_of("dev").id
    for ref, count in [("dev", 4), ("dev~1", 3), ("dev@v2", 4), ("v1", 3), (commit, 4), (commit[:12], 4)]:
        assert rows(shop, f"SELECT count(*) FROM in_c_sales.orders AT '{ref}'") == [(count,)]
    assert rows(shop, "SELECT count(*) FROM tables AT 'main~1'") == [(0,)]
    moment = "main@{2100-01-01T00:00:00Z}"
    assert rows(shop, f"SELECT count(*) FROM in_c_sales.orders AT '{moment}'") == [(3,)]


def test_each_spelling_of_a_table_takes_a_ref(shop: ab.Repository) -> None:
    for name in ("in_c_sales.orders", '"in_c_sales"."orders"', '"in_c_sales.orders"', "'in_c_sales.orders'"):
        for ref in ("AT 'dev'", "at'dev'", "At /* a comment */ 'dev'", "AT\n'dev'"):
            assert rows(shop, f"SELECT max(orders.id) FROM {name} {ref}") == [(4,)]
    assert rows(shop, "SELECT name FROM (DESCRIBE in_c_sales.orders AT 'dev') t(name) LIMIT 1") == [("id",)]
    assert rows(shop, "SELECT count(*) FROM commits AT 'dev', (FROM anabranch.commits AT 'main' LIMIT 1)") == [(3,)]


@pytest.mark.parametrize(
    "column",
    [
        "in_c_sales.orders.id",
        '"in_c_sales"."orders"."id"',
        "IN_C_SALES.Orders.ID",
        "orders.id",
        "in_c_sales.o.id",
        "o.id",
        "orders",
        "in_c_sales.orders.box.id",
    ],
)
@pytest.mark.parametrize("alias", ["", "AS o", "o", "AS orders", "o(id, customer, box)"])
def test_columns_are_qualified_alike_with_and_without_a_ref(shop: ab.Repository, column: str, alias: str) -> None:
    with shop.transaction("dev") as tx:
        tx.add_columns("in_c_sales.orders", {"box": "named_struct('id', id)"})

    def answer(table: str) -> object:
        try:
            return rows(shop, f"SELECT {column} FROM {table} {alias} ORDER BY ALL", ref="dev")
        except InvalidExpressionError as err:
            return err.problem.partition("\n")[0]

    assert answer("in_c_sales.orders AT 'dev'") == answer("in_c_sales.orders")


def test_columns_of_two_refs_are_distinguished_by_their_aliases(shop: ab.Repository) -> None:
    sql = """
        SELECT max(in_c_sales.orders.id), max(old.id), max(in_c_crm.customers.name)
        FROM in_c_sales.orders AT 'dev', in_c_sales.orders AT 'main' AS old, in_c_crm.customers AT 'dev~1'
    """
    assert rows(shop, sql) == [(4, 3, "Bob")]
    both = "FROM in_c_sales.orders AT 'dev' JOIN in_c_sales.orders AT 'main' USING (id)"
    assert rows(shop, f"SELECT id {both} ORDER BY id") == [(1,), (2,), (3,)]
    for column in ("orders.id", "in_c_sales.orders.id"):
        with pytest.raises(InvalidExpressionError, match="Ambiguous reference to table"):
            shop.sql(f"SELECT {column} {both}")


def test_refs_that_differ_in_case_only_are_two(shop: ab.Repository) -> None:
    shop.branch_create("DEV")
    sql = "SELECT (SELECT count(*) FROM in_c_sales.orders AT 'dev'), (SELECT count(*) FROM in_c_sales.orders AT 'DEV')"
    assert rows(shop, sql) == [(4, 3)]


def test_a_ref_of_the_query_and_of_a_table_go_together(shop: ab.Repository) -> None:
    sql = (
        "SELECT count(*) FROM in_c_sales.orders, (SELECT count(*) AS n FROM in_c_sales.orders AT 'main~0') WHERE n = 3"
    )
    assert rows(shop, sql, ref="dev") == [(4,)]


def test_words_in_strings_and_comments_are_left_alone(shop: ab.Repository) -> None:
    assert rows(shop, "SELECT 'in_c_sales.orders AT ''dev''' AS x") == [("in_c_sales.orders AT 'dev'",)]
    assert rows(shop, "SELECT max(id) FROM in_c_sales.orders -- AT 'dev'\n") == [(3,)]
    assert rows(shop, "SELECT max(id) FROM in_c_sales.orders /* AT 'dev' /* x */ AT 'dev' */") == [(3,)]
    assert rows(shop, "SELECT $$ in_c_sales.orders AT 'dev' $$") == [(" in_c_sales.orders AT 'dev' ",)]
    assert rows(shop, "SELECT 'é 😀', max(id) FROM in_c_sales.orders AT 'dev' WHERE 'é' < 'ü'") == [("é 😀", 4)]
    zone = "SELECT TIMESTAMP '2020-01-01 12:00:00' AT TIME ZONE 'UTC' = TIMESTAMPTZ '2020-01-01 12:00:00+00'"
    assert rows(shop, zone) == [(True,)]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM in_c_sales.orders AS o AT 'dev'",
        "FROM in_c_sales.orders o AT 'dev'",
        "SELECT 1 AT 'dev'",
        "FROM range(3) AT 'dev'",
        "FROM in_c_sales.orders AT (VERSION => 1)",
        "FROM in_c_sales.orders AT dev",
        "FROM in_c_sales.orders AT 'dev",
        "WITH x AS (SELECT 1) FROM x AT 'dev'",
    ],
)
def test_a_ref_in_the_wrong_position_is_refused(shop: ab.Repository, sql: str) -> None:
    with pytest.raises((InvalidExpressionError, ab.errors.TableNotFoundError)):
        shop.sql(sql)


def test_marks_are_put_where_tables_are() -> None:
    assert mark_refs("SELECT at FROM x.y") == "SELECT at FROM x.y"
    assert mark_refs("FROM x.y AT 'a/b' z") == 'FROM "x AT a/b".y z'
    assert mark_refs("FROM x.y AT 'a', x.y AT 'b'") == 'FROM "x AT a".y, "x AT b".y'
    assert mark_refs("FROM x.y AT 'say \"hi\"'") == 'FROM "x AT say ""hi""".y'


def test_one_query_sees_one_state_of_a_branch_however_it_names_it(shop: ab.Repository) -> None:
    """Another process commits between the moments at which the query looks up its refs."""
    other = ab.open(shop.uri, storage_options=shop.storage_options)
    asked: list[str] = []
    look_up = shop.snapshot_of

    def look_up_and_let_others_commit(ref: str) -> ab.Snapshot:
        found = look_up(ref)
        asked.append(ref)
        with other.transaction() as tx:
            tx.append("in_c_sales.orders", orders(100 + len(asked)))
        return found

    shop.snapshot_of = look_up_and_let_others_commit  # type: ignore[method-assign]
    sql = """
        SELECT (SELECT count(*) FROM in_c_sales.orders), (SELECT count(*) FROM in_c_sales.orders AT 'main'),
               (SELECT count(*) FROM in_c_sales.orders AT 'main~0'), (SELECT count(*) FROM commits AT 'main~1'),
               (SELECT count(*) FROM commits), (SELECT count(*) FROM in_c_sales.orders o WHERE o.id > 100)
    """
    assert rows(shop, sql) == [(3, 3, 3, 1, 2, 0)]


def test_the_commits_of_rows_and_cells_are_tables(shop: ab.Repository) -> None:
    with shop.transaction(message="Change a row") as tx:
        tx.set_primary_key("in_c_sales.orders", ["id"])
        tx.delete("in_c_sales.orders", "id = 2")
        tx.append("in_c_sales.orders", orders(2))
    blame = 'SELECT message FROM in_c_sales."orders$blame" b WHERE b.id = 2'
    found = shop.blame("in_c_sales.orders", where="id = 2").to_pylist()[0]["message"]
    assert rows(shop, blame) == [(found,)]
    assert rows(shop, """SELECT count(*) FROM "in_c_sales.ORDERS$BLAME" AT 'main'""") == [(3,)]
    cells = 'SELECT count(*), count(DISTINCT "column") FROM in_c_sales."orders$blame_cells"'
    columns = len(shop["in_c_sales.orders"].schema.names)
    assert rows(shop, cells) == [(3 * columns, columns)]
