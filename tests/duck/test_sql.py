"""SQL over the tables of a repository."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.duck.engine import default_engine
from anabranch.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    InvalidExpressionError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    TableNotFoundError,
    TooSlowError,
)
from tests.duck.conftest import orders, rows


@pytest.mark.s3
def test_tables_of_one_snapshot_are_joined(shop: ab.Repository) -> None:
    answer = shop.sql(
        """
        SELECT country, sum(amount) AS total
        FROM in_c_sales.orders AS o JOIN in_c_crm.customers AS c ON o.customer = c.name
        GROUP BY country ORDER BY total
        """
    )
    assert isinstance(answer, pa.Table)
    assert answer.to_pylist() == [{"country": None, "total": 20.0}, {"country": "UK", "total": 40.0}]


def test_the_ref_is_the_bound_branch_as_it_is_now_unless_given(shop: ab.Repository) -> None:
    shop.snapshot()
    other = ab.open(shop.uri, storage_options=shop.storage_options)
    with other.transaction() as tx:
        tx.append("in_c_sales.orders", orders(5))
    count = "SELECT count(*) FROM in_c_sales.orders"
    assert rows(shop, count) == [(4,)]
    assert rows(shop, count, ref="dev") == [(4,)]
    assert rows(shop, count, ref="main~1") == [(3,)]
    assert rows(shop, count, ref="main@v2") == [(3,)]
    assert rows(shop, count, ref=shop.snapshot().id) == [(3,)]
    shop.tag_create("v1", ref="main~1")
    assert rows(shop, count, ref="v1") == [(3,)]
    bound = ab.open(shop.uri, branch="dev", storage_options=shop.storage_options)
    assert rows(bound, "SELECT max(id) FROM in_c_sales.orders") == [(4,)]


def test_a_query_without_tables_is_answered(shop: ab.Repository) -> None:
    assert rows(shop, "SELECT 1 + 1, 'a'") == [(2, "a")]
    assert rows(shop, "VALUES (1), (2)") == [(1,), (2,)]
    assert rows(shop, "SELECT * FROM range(3)") == [(0,), (1,), (2,)]
    assert rows(shop, "SELECT unnest([1, 2]);") == [(1,), (2,)]
    assert rows(shop, "SELECT list_transform([1, 2], lambda x: x + 1)") == [([2, 3],)]


def test_no_rows_still_have_a_schema(shop: ab.Repository) -> None:
    answer = shop.sql("SELECT * FROM in_c_sales.orders WHERE id > 100")
    assert answer.num_rows == 0
    assert answer.schema == shop.snapshot()["in_c_sales.orders"].schema


def test_parameters_are_given_by_position_or_by_name(shop: ab.Repository) -> None:
    by_position = "SELECT id FROM in_c_sales.orders WHERE customer = ? AND amount > ?"
    assert rows(shop, by_position, params=["Ada", 10.0]) == [(3,)]
    assert rows(shop, by_position, params=("Ada' OR 1=1 --", 0)) == []
    assert rows(shop, "SELECT id FROM in_c_sales.orders WHERE id = $wanted", params={"wanted": 2}) == [(2,)]


@pytest.mark.parametrize("params", [[], [1, 2], {"other": 1}, [object()], ["\ud800"]])
def test_wrong_parameters_are_refused(shop: ab.Repository, params: object) -> None:
    with pytest.raises(InvalidExpressionError):
        shop.sql("SELECT id FROM in_c_sales.orders WHERE id = ?", params=params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "params"), [(None, None), (b"SELECT 1", None), ("SELECT '\ud800'", None), ("SELECT ?", "x")]
)
def test_what_is_not_text_is_refused(shop: ab.Repository, sql: object, params: object) -> None:
    with pytest.raises(InvalidInputError):
        shop.sql(sql, params=params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "in_c_sales.orders",
        '"in_c_sales"."orders"',
        '"in_c_sales.orders"',
        "'in_c_sales.orders'",
        "IN_C_SALES.Orders",
        "in_c_sales /* the shop */ . -- all\n orders",
    ],
)
def test_a_table_may_be_spelled_in_many_ways(shop: ab.Repository, name: str) -> None:
    assert rows(shop, f"SELECT max(orders.id) FROM {name}") == [(3,)]
    assert rows(shop, f"SELECT max(o.id) FROM {name} AS o") == [(3,)]


def test_columns_may_be_named_with_table_and_bucket(shop: ab.Repository) -> None:
    assert rows(shop, "SELECT in_c_sales.orders.id FROM in_c_sales.orders WHERE orders.id = 2") == [(2,)]


def test_tables_are_found_wherever_a_query_can_name_them(shop: ab.Repository) -> None:
    table = "in_c_sales.orders"
    assert rows(shop, f"SELECT (SELECT max(id) FROM {table})") == [(3,)]
    assert rows(shop, f"SELECT 1 WHERE EXISTS (FROM {table})") == [(1,)]
    assert rows(shop, f"SELECT id FROM {table} UNION ALL SELECT -id FROM {table} ORDER BY 1 LIMIT 1") == [(-3,)]
    assert rows(shop, f"WITH a AS (FROM {table}), b AS (FROM a) SELECT count(*) FROM b") == [(3,)]
    assert rows(shop, f"FROM {table} SELECT count(*)") == [(3,)]
    assert rows(
        shop, f"SELECT id FROM (PIVOT {table} ON customer IN ('Ada') USING sum(amount)) ORDER BY id LIMIT 1"
    ) == [(1,)]
    assert rows(shop, f"SELECT n FROM {table} o, LATERAL (SELECT o.id * 2 AS n) ORDER BY n LIMIT 1") == [(2,)]
    sql = f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t, {table} WHERE n = id) SELECT max(n) FROM t"
    assert rows(shop, sql) == [(4,)]


def test_a_common_table_expression_hides_a_system_table_but_no_table(shop: ab.Repository) -> None:
    assert rows(shop, "WITH branches AS (SELECT 7) FROM branches") == [(7,)]
    assert rows(shop, "WITH orders AS (SELECT 7) SELECT count(*) FROM in_c_sales.orders") == [(3,)]
    assert rows(shop, "WITH branches AS (SELECT name FROM branches) SELECT count(*) FROM branches") == [(2,)]
    assert rows(shop, "WITH BRANCHES AS (SELECT 7) FROM Branches, (SELECT count(*) FROM anabranch.branches)") == [
        (7, 2)
    ]


def test_describe_and_summarize_report_about_a_table(shop: ab.Repository) -> None:
    assert rows(shop, "SELECT column_name, column_type FROM (DESCRIBE in_c_sales.orders)") == [
        ("id", "BIGINT"),
        ("customer", "VARCHAR"),
        ("amount", "DOUBLE"),
    ]
    assert shop.sql("SUMMARIZE in_c_sales.orders").column("max").to_pylist() == ["3", "Bob", "30.0"]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("FROM in_c_sales.order", TableNotFoundError, "'in_c_sales.order' in 'main'; did you mean 'in_c_sales.orders'"),
        ("FROM zzz.zzz", TableNotFoundError, "'zzz.zzz' in 'main'; SELECT [*] FROM tables"),
        ("FROM orders", TableNotFoundError, "'orders' in 'main'"),
        ("FROM in_c_sales.orders AT 'gone'", BranchNotFoundError, "gone"),
        ("FROM in_c_sales.orders AT 'main~99'", CommitNotFoundError, "main~99"),
        ("FROM in_c_sales.orders AT 'main@v99'", NotFoundError, "99"),
        ("FROM in_c_sales.orders AT ''", InvalidNameError, "ref ''"),
        ("SELECT nope FROM in_c_sales.orders", InvalidExpressionError, '"nope" not found'),
        ("SELECT nope(id) FROM in_c_sales.orders", InvalidExpressionError, "nope"),
        ("SELEC 1", InvalidExpressionError, "SELEC"),
        ("SELECT id FROM in_c_sales.orders WHERE customer::INT = 1", InvalidExpressionError, "Ada|Bob"),
        ("", InvalidExpressionError, "no SQL statement"),
        ("-- nothing", InvalidExpressionError, "no SQL statement"),
    ],
)
def test_errors_name_what_is_wrong(shop: ab.Repository, sql: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        shop.sql(sql)
    assert "query " not in str(caught.value)
    assert "LINE 1" not in str(caught.value)


def test_an_unknown_ref_is_named(shop: ab.Repository) -> None:
    with pytest.raises(BranchNotFoundError, match="gone"):
        shop.sql("FROM in_c_sales.orders", ref="gone")


def test_a_damaged_table_is_reported_as_such(shop: ab.Repository) -> None:
    store = testing.store_of(shop)
    for found in store.list("tables/in_c_sales/orders.lance/data"):
        store.delete(found.path)
    with pytest.raises(ab.AnabranchError) as caught:
        shop.sql("SELECT id FROM in_c_sales.orders")
    assert caught.value.code == "damaged_file"


def test_buckets_may_have_names_that_mean_something_to_the_engine(shop: ab.Repository) -> None:
    names = ["main", "temp", "system", "memory", "information_schema", "pg_catalog", "anabranch", "a-b", "query"]
    with shop.transaction() as tx:
        for name in names:
            tx.create_table(f"{name}.tables", pa.schema([("x", pa.int64())]))
            tx.append(f"{name}.tables", pa.table({"x": [1]}))
    for name in names:
        assert rows(shop, f'SELECT x FROM "{name}".tables') == [(1,)]
    assert rows(shop, "SELECT count(*) FROM tables") == [(2 + len(names),)]


def test_tables_whose_names_differ_in_case_are_distinguished(shop: ab.Repository) -> None:
    with shop.transaction() as tx:
        tx.create_table("in_c_sales.Orders", pa.schema([("x", pa.int64())]))
        tx.append("in_c_sales.Orders", pa.table({"x": [9]}))
    assert rows(shop, "SELECT x, max(id) FROM in_c_sales.Orders AS a, in_c_sales.orders AS b GROUP BY x") == [(9, 3)]
    with pytest.raises(InvalidExpressionError, match=r"in_c_sales\.Orders or in_c_sales\.orders"):
        shop.sql("FROM in_c_sales.ORDERS")


def test_answers_can_be_read_batch_by_batch(shop: ab.Repository) -> None:
    reader = shop.sql_reader("SELECT range AS n FROM range(1_000_000_000_000)")
    assert reader.schema == pa.schema([("n", pa.int64())])
    assert reader.read_next_batch().column("n")[0].as_py() == 0


def test_an_error_in_the_middle_of_an_answer_is_one_of_ours(shop: ab.Repository) -> None:
    reader = shop.sql_reader(
        "SELECT CASE WHEN range < 5_000_000 THEN 1 ELSE error('too far') END FROM range(5_000_001)"
    )
    with pytest.raises(InvalidExpressionError, match="too far"):
        reader.read_all()


def test_nothing_is_left_of_a_query_read_or_not(shop: ab.Repository) -> None:
    shop.sql("FROM in_c_sales.orders")
    shop.sql_reader("FROM in_c_sales.orders")
    with pytest.raises(InvalidExpressionError):
        shop.sql("SELECT error('no') FROM in_c_sales.orders")
    half = shop.sql_reader("SELECT o.id FROM in_c_sales.orders o, range(10_000_000)")
    half.read_next_batch()
    del half
    gc.collect()
    session = default_engine().database.session()
    found = session.connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    session.close()
    assert sorted(found) == [("memory",), ("system",), ("temp",)]


def test_many_threads_ask_at_once(shop: ab.Repository) -> None:
    def ask(number: int) -> list[tuple[int, int]]:
        ref = "dev" if number % 2 else "main"
        return rows(shop, "SELECT count(*), ? FROM in_c_sales.orders", ref=ref, params=[number])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(64))) == [[(4 if number % 2 else 3, number)] for number in range(64)]


def test_the_engine_is_loaded_by_the_first_query(shop: ab.Repository) -> None:
    script = f"""
import sys
import anabranch as ab
repo = ab.open({shop.uri!r}, storage_options={dict(shop.storage_options)!r})
repo.snapshot()["in_c_sales.orders"].to_arrow()
print(sorted({{"duckdb", "sqlglot"}} & set(sys.modules)))
repo.sql("SELECT count(*) FROM in_c_sales.orders")
print(sorted({{"duckdb", "sqlglot"}} & set(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:2] == ["[]", "['duckdb']"]


def test_a_filter_that_arrow_has_no_words_for_is_answered_all_the_same(shop: ab.Repository) -> None:
    where = "id = 1 OR id IS NOT DISTINCT FROM 2"
    answer = shop.sql(f"SELECT id FROM in_c_sales.orders WHERE {where} ORDER BY id")
    assert answer["id"].to_pylist() == [1, 2]


def test_a_statement_that_takes_too_long_is_stopped(shop: ab.Repository) -> None:
    forever = "SELECT count(*) FROM range(100000000000) a, range(100000000000) b WHERE a.range + b.range < 0"
    with pytest.raises(TooSlowError, match=r"more than 0\.2 seconds"):
        shop.sql(forever, timeout=0.2)
    with pytest.raises(TooSlowError):
        for _ in shop.sql_reader("SELECT range FROM range(100000000000)", timeout=0.2):
            pass
    assert rows(shop, "SELECT 1") == [(1,)]
    batches = shop.sql_reader("SELECT range FROM range(5000)", batch_rows=100)
    assert {len(batch) for batch in batches} <= set(range(1, 101)), "batches are small"
    assert shop.sql("SELECT 1 AS one", timeout=60).to_pylist() == [{"one": 1}]


@pytest.mark.parametrize("timeout", [0, -1, True, "1"])
def test_a_timeout_is_a_positive_number(shop: ab.Repository, timeout: float) -> None:
    with pytest.raises(InvalidInputError, match="is not a number of seconds"):
        shop.sql("SELECT 1", timeout=timeout)
