"""SQL sees what is published, and nothing else."""

import lance
import pyarrow as pa

import anabranch as ab
from anabranch.format import staging
from tests.duck.conftest import orders, rows

COUNT = "SELECT count(*) FROM in_c_sales.orders"


def test_an_open_transaction_is_not_seen(shop: ab.Repository) -> None:
    with shop.transaction() as tx:
        tx.append("in_c_sales.orders", orders(5))
        tx.create_table("in_c_sales.refunds", pa.schema([("id", pa.int64())]))
        assert rows(shop, COUNT) == [(3,)]
        assert rows(shop, "SELECT count(*) FROM tables") == [(2,)]
    assert rows(shop, COUNT) == [(4,)]
    assert rows(shop, "SELECT count(*) FROM in_c_sales.refunds") == [(0,)]


def test_a_version_that_was_staged_and_left_is_not_seen(shop: ab.Repository) -> None:
    version_ref = shop.snapshot()["in_c_sales.orders"].version_ref
    stray = staging.append(version_ref, orders(99))
    assert stray.count_rows() == 4
    assert rows(shop, COUNT) == [(3,)]
    assert rows(shop, "SELECT count(*) FROM in_c_sales.orders AT 'dev' WHERE id = 99") == [(0,)]


def test_a_direct_write_by_another_tool_is_not_seen(shop: ab.Repository) -> None:
    home = shop.snapshot()["in_c_sales.orders"].version_ref.home
    lance.write_dataset(orders(98), home.uri, mode="append", storage_options=home.lance_options())
    assert rows(shop, COUNT) == [(3,)]


def test_rows_deleted_since_are_seen_where_they_were(shop: ab.Repository) -> None:
    with shop.transaction() as tx:
        tx.delete("in_c_sales.orders", "id = 2")
        tx.drop_table("in_c_crm.customers")
    assert rows(shop, "SELECT id FROM in_c_sales.orders ORDER BY id") == [(1,), (3,)]
    assert rows(shop, "SELECT count(*) FROM in_c_crm.customers AT 'main~1'") == [(2,)]
    sql = "SELECT old.id FROM in_c_sales.orders AT 'main~1' old ANTI JOIN in_c_sales.orders new USING (id)"
    assert rows(shop, sql) == [(2,)]


def test_columns_are_those_of_the_ref(shop: ab.Repository) -> None:
    with shop.transaction() as tx:
        tx.add_columns("in_c_sales.orders", {"double": "amount * 2"})
    assert rows(shop, "SELECT double FROM in_c_sales.orders WHERE id = 1") == [(20.0,)]
    assert "double" not in shop.sql("FROM in_c_sales.orders AT 'main~1'").schema.names


def test_an_answer_that_is_being_read_stays_what_it_was(shop: ab.Repository) -> None:
    reader = shop.sql_reader("SELECT o.id FROM in_c_sales.orders o, range(200_000)")
    seen = reader.read_next_batch().num_rows
    with shop.transaction() as tx:
        tx.delete("in_c_sales.orders", "id > 0")
    assert seen + reader.read_all().num_rows == 600_000
    assert rows(shop, COUNT) == [(0,)]


def test_a_live_branch_shows_main_until_it_writes(shop: ab.Repository) -> None:
    shop.branch_create_from("main", "view", mode="live")
    with shop.transaction() as tx:
        tx.append("in_c_sales.orders", orders(5))
    assert rows(shop, COUNT, ref="view") == [(4,)]
    with shop.transaction("view") as tx:
        tx.append("in_c_sales.orders", orders(6, 7))
    with shop.transaction() as tx:
        tx.append("in_c_sales.orders", orders(8))
    sql = f"SELECT ({COUNT} AT 'view'), ({COUNT}), ({COUNT} AT 'view~1')"
    past = shop.snapshot_of("view~1")["in_c_sales.orders"].count_rows()
    assert rows(shop, sql) == [(6, 5, past)]
    assert rows(shop, "SELECT table_key FROM branch_tables WHERE branch = 'view'") == [("in_c_sales.orders",)]
