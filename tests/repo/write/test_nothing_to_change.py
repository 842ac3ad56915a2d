"""What changes nothing makes no commit, not even of a table that was forked to be written."""

import anabranch as ab
from anabranch.format.staging import ColumnChange
from tests.repo.conftest import ORDERS, table


def test_a_table_renamed_and_renamed_back_on_a_branch_is_not_a_change(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.rename_table(ORDERS, "in_c_sales.other")
        tx.rename_table("in_c_sales.other", ORDERS)
    assert tx.published is None


def test_a_table_changed_and_renamed_back_on_a_branch_is_a_change(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.rename_table(ORDERS, "in_c_sales.other")
        tx.append("in_c_sales.other", table(4))
        tx.rename_table("in_c_sales.other", ORDERS)
    assert tx.published is not None
    assert lake.snapshot_of("dev")[ORDERS].count_rows() == 4


def test_a_column_that_keeps_its_name_is_not_a_change(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "fix", mode="live")
    with lake.transaction("fix") as tx:
        tx.alter_columns(ORDERS, [ColumnChange(path="v", name="v")])
    assert tx.published is None
    assert lake.branch_get("fix").own_tables == ()
