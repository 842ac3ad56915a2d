"""The shop's pipeline on Spark, checked against the same questions asked of DuckDB, straight from the files."""

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import CheckFailedError

pytestmark = pytest.mark.spark

SHOP = Path(__file__).parents[2] / "examples" / "shop"
OUTPUTS = ["gold.customer_value", "gold.daily_revenue", "gold.product_ranking", "silver.customers", "silver.orders"]
# The cleaned orders, in words of its own: in whole hundredths of a cent, as DuckDB divides decimals as floats.
CLEAN = """
    SELECT id, customer_id, product_id, CAST(ordered_at AS date) AS day, channel, quantity,
           coalesce(lower(trim(status)), 'unknown') AS status,
           CASE WHEN lower(trim(status)) IN ('returned', 'cancelled') THEN 0
                ELSE (quantity * CAST(unit_price * 100 AS bigint) * (100 - coalesce(discount, 0)) + 50) // 100 END
           * CAST(0.01 AS decimal(3, 2)) AS amount
    FROM raw WHERE customer_id IS NOT NULL AND quantity > 0
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    command = [sys.executable, str(SHOP / "generate.py"), "--orders", "3000", "--late", "300", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def repo(files: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    """A lake with the shop's files, on whose branch dev the pipeline ran, and ran again after late orders."""
    repo = ab.init(tmp_path_factory.mktemp("lake") / "lake", actor="ada")
    repo.load("bronze.customers", str(files / "customers.csv"), primary_key=["id"])
    repo.load("bronze.products", str(files / "products.csv"), primary_key=["id"], schema={"price": "decimal(10, 2)"})
    repo.load("bronze.orders", str(files / "orders"), primary_key=["id"])
    repo.load("bronze.events", str(files / "events"), primary_key=["id"])
    repo.branch_create("dev")
    pipeline = ab.Pipeline.load(SHOP / "pipeline.py")
    pipeline.run(repo, branch="dev")
    repo.tag_create("first", ref="dev")
    repo.load("bronze.orders", str(files / "late-orders"), branch="dev")
    pipeline.run(repo, branch="dev", parameters={"top": 3})
    return repo


@pytest.fixture
def duck(files: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The files as views, the late orders among them."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW raw AS FROM read_parquet(['{files}/orders/*', '{files}/late-orders/*'])")
        connection.execute(f"CREATE VIEW customers AS FROM read_csv('{files}/customers.csv')")
        connection.execute(f"CREATE VIEW products AS FROM read_csv('{files}/products.csv')")
        connection.execute(f"CREATE VIEW events AS FROM read_parquet('{files}/events/*')")
        connection.execute(f"CREATE VIEW clean AS {CLEAN}")
        yield connection


def rows(repo: ab.Repository, key: str, *columns: str, ref: str = "dev") -> list[tuple[Any, ...]]:
    found = repo.snapshot_of(ref)[key].to_arrow(columns=list(columns)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def asked(duck: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return sorted(duck.execute(sql).fetchall())


def test_the_first_run_made_five_tables_in_one_commit(repo: ab.Repository) -> None:
    commit = repo.get_commit("first")
    assert sorted(commit.tables) == OUTPUTS
    assert (commit.parent_commit_id, commit.metadata["pipeline"]) == (repo.snapshot_of("main").id, "shop")
    assert not set(OUTPUTS) & set(repo.snapshot_of("main"))


def test_orders_are_cleaned_the_late_ones_too(repo: ab.Repository, duck: duckdb.DuckDBPyConnection) -> None:
    columns = ("id", "customer_id", "product_id", "day", "status", "channel", "quantity", "amount")
    found = rows(repo, "silver.orders", *columns)
    assert found == asked(duck, "SELECT id, customer_id, product_id, day, status, channel, quantity, amount FROM clean")
    assert isinstance(found[0][-1], Decimal)
    first = rows(repo, "silver.orders", "id", ref="first")
    assert first == [row for row in rows(repo, "silver.orders", "id") if row[0] < 3000]


def test_late_orders_were_appended_and_no_other_was_written_again(repo: ab.Repository) -> None:
    (diff,) = repo.diff("first", "dev", tables=["silver.orders"]).tables
    assert diff.rows_to_compare < 400
    assert (diff.counts.updated, diff.counts.deleted) == (0, 0)


def test_customers_have_one_spelling(repo: ab.Repository, duck: duckdb.DuckDBPyConnection) -> None:
    expected = asked(duck, "SELECT id, lower(email), coalesce(country, '??') FROM customers")
    found = rows(repo, "silver.customers", "id", "email", "country")
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_days_add_up(repo: ab.Repository, duck: duckdb.DuckDBPyConnection) -> None:
    assert rows(repo, "gold.daily_revenue", "day", "channel", "orders", "pieces", "revenue") == asked(
        duck,
        "SELECT day, channel, count(*), sum(quantity)::bigint, sum(amount) FROM clean GROUP BY ALL",
    )


def test_customers_are_ranked_in_their_country(repo: ab.Repository, duck: duckdb.DuckDBPyConnection) -> None:
    columns = ("customer_id", "country", "orders", "spent", "first_day", "last_day", "rank_in_country")
    assert rows(repo, "gold.customer_value", *columns) == asked(
        duck,
        """
        WITH spent AS (
            SELECT customer_id, count(*) AS orders, sum(amount) AS spent, min(day) AS first_day, max(day) AS last_day
            FROM clean GROUP BY customer_id HAVING count(*) >= 3
        )
        SELECT customer_id, coalesce(country, '??') AS country, orders, spent, first_day, last_day,
               row_number() OVER (PARTITION BY coalesce(country, '??') ORDER BY spent DESC, customer_id)
        FROM spent JOIN customers ON customers.id = customer_id
        """,
    )


def test_products_are_ranked_in_their_category(repo: ab.Repository, duck: duckdb.DuckDBPyConnection) -> None:
    expected = asked(
        duck,
        """
        WITH sold AS (
            SELECT category, product_id, sum(quantity)::bigint AS pieces, sum(amount) AS revenue
            FROM clean JOIN products ON products.id = product_id GROUP BY ALL
        )
        SELECT category, product_id, pieces, revenue,
               (SELECT count(*) FROM events e WHERE e.product_id = sold.product_id AND kind = 'view')
        FROM sold
        QUALIFY row_number() OVER (PARTITION BY category ORDER BY revenue DESC, product_id) <= 3
        """,
    )
    found = rows(repo, "gold.product_ranking", "category", "product_id", "pieces", "revenue", "views")
    assert found == expected
    assert len(rows(repo, "gold.product_ranking", "product_id", ref="first")) > len(found)


def test_the_lineage_shows_all_that_a_table_came_from(repo: ab.Repository) -> None:
    lineage = repo.lineage("gold.customer_value", "dev")
    assert {node.name for node in lineage.nodes if node.kind == "table"} == {
        *("gold.customer_value", "silver.orders", "silver.customers", "bronze.orders", "bronze.customers")
    }
    runs = {node.table: (node.name, node.commits) for node in lineage.nodes if node.kind == "pipeline"}
    assert runs == {
        "gold.customer_value": ("shop", 1),
        "silver.customers": ("shop", 1),
        "silver.orders": ("shop", 2),
    }
    loads = {node.table: node.commits for node in lineage.nodes if node.kind == "load"}
    assert loads == {"bronze.orders": 2, "bronze.customers": 1}


def test_an_order_without_a_customer_is_not_published(repo: ab.Repository) -> None:
    repo.branch_create_from("dev", "wrong")
    with repo.transaction("wrong", message="Lose a customer") as tx:
        lost = tx["silver.orders"].to_arrow(columns=["customer_id"], limit=1).to_pylist()[0]["customer_id"]
        tx.delete("bronze.customers", f"id = {lost}")
    before = repo.snapshot_of("wrong").id
    with pytest.raises(CheckFailedError, match="every order has a customer"):
        ab.Pipeline.load(SHOP / "pipeline.py").run(repo, branch="wrong")
    assert repo.snapshot_of("wrong").id == before
