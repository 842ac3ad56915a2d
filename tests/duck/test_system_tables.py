"""What a repository shows about itself in SQL."""

import datetime as dt

import pytest

import anabranch as ab
from anabranch.duck.sources import SYSTEM_TABLES
from tests.duck.conftest import orders, rows


@pytest.mark.s3
def test_branches_are_listed(shop: ab.Repository) -> None:
    assert rows(shop, "SELECT name, parent, mode, version, created_by FROM branches ORDER BY name") == [
        ("dev", "main", "pinned", 2, "ada"),
        ("main", None, "pinned", 2, "ada"),
    ]
    (created,) = rows(shop, "SELECT created_at FROM branches WHERE name = 'dev'")[0]
    assert isinstance(created, dt.datetime)
    assert int(created.timestamp() * 1e6) == pytest.approx(shop.branch_get("dev").created_at, abs=2)


def test_only_what_a_branch_wrote_itself_is_a_table_of_the_branch(shop: ab.Repository) -> None:
    shop.branch_create_from("dev", "dev/deeper")
    sql = "SELECT branch, table_key, row_count FROM branch_tables ORDER BY ALL"
    assert rows(shop, sql) == [
        ("dev", "in_c_sales.orders", 4),
        ("main", "in_c_crm.customers", 2),
        ("main", "in_c_sales.orders", 3),
    ]
    with shop.transaction("dev/deeper") as tx:
        tx.append("in_c_sales.orders", orders(5))
    assert rows(shop, sql)[1] == ("dev/deeper", "in_c_sales.orders", 5)


def test_tables_are_those_of_the_ref(shop: ab.Repository) -> None:
    sql = "SELECT bucket, name, row_count, primary_key FROM tables WHERE bucket = 'in_c_sales'"
    assert rows(shop, sql) == [("in_c_sales", "orders", 3, ["id"])]
    assert rows(shop, sql, ref="dev") == [("in_c_sales", "orders", 4, ["id"])]
    assert rows(shop, sql, ref="main~1") == []


def test_commits_are_those_that_led_to_the_ref(shop: ab.Repository) -> None:
    sql = "SELECT message FROM commits ORDER BY created_at DESC, version DESC"
    assert rows(shop, sql, ref="dev") == [("more",), ("first",), ("Begin the repository",)]
    assert rows(shop, sql) == [("first",), ("Begin the repository",)]
    commit = shop.snapshot().commit
    sql = "SELECT commit_id, branch, actor, kind, tables, metadata['ticket'] FROM commits WHERE message = 'first'"
    tables = ["in_c_crm.customers", "in_c_sales.orders"]
    assert rows(shop, sql) == [(commit.graph_commit_id, "main", "ada", "change", tables, "7")]


def test_tags_and_refs_are_listed(shop: ab.Repository) -> None:
    assert rows(shop, "FROM tags") == []
    shop.tag_create("v1", ref="dev", description="the first")
    head = shop.snapshot_of("dev").id
    assert rows(shop, "SELECT name, commit_id, created_by, description FROM tags") == [("v1", head, "ada", "the first")]
    assert rows(shop, "SELECT name, kind, commit_id FROM refs ORDER BY ALL") == [
        ("dev", "branch", head),
        ("main", "branch", shop.snapshot().id),
        ("v1", "tag", head),
    ]


def test_history_and_data_are_joined(shop: ab.Repository) -> None:
    sql = """
        SELECT b.name, t.row_count FROM branches b JOIN branch_tables t ON b.name = t.branch
        JOIN commits AT 'dev' c ON c.commit_id = b.head_commit_id WHERE t.name = 'orders' ORDER BY 1
    """
    assert rows(shop, sql) == [("dev", 4), ("main", 3)]


@pytest.mark.parametrize("name", sorted(SYSTEM_TABLES))
def test_each_is_also_found_in_its_own_bucket(shop: ab.Repository, name: str) -> None:
    found = shop.sql(f"SELECT * FROM anabranch.{name}")
    assert found == shop.sql(f"SELECT * FROM {name}")
    assert found.schema.names == shop.sql(f"SELECT * FROM {name.upper()}").schema.names
