"""A column with a default fills the rows of the other side, whichever way the merge goes."""

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.format.staging import DEFAULT
from tests.repo.conftest import CUSTOMERS, ORDERS, append

WEIGHTS = {1: 7, 2: None, 3: 9}


def add_weight(
    repo: ab.Repository, branch: str, *, nullable: bool = True, default: str = "7", table: str = ORDERS
) -> None:
    """Add a column with a default. Order 3 gets another value, and order 2 has a null where that is allowed."""
    with repo.transaction(branch) as tx:
        tx.add_columns(ORDERS, {"w": "arrow_cast(7, 'Int32')"})
        tx.annotate(ORDERS, {}, columns={"w": {DEFAULT: default}})
        tx.update(ORDERS, {"w": "9"}, where="id = 3")
        if nullable:
            tx.update(ORDERS, {"w": "NULL"}, where="id = 2")
        else:
            tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", nullable=False)])


def weights(repo: ab.Repository, branch: str, table: str = ORDERS) -> dict[int, int | None]:
    return {row["id"]: row["w"] for row in repo.table(table, branch).to_arrow().to_pylist()}


@pytest.mark.parametrize("into", ["main", "dev"])
def test_default_fills_the_rows_of_the_other_side(lake: ab.Repository, into: str) -> None:
    lake.branch_create("dev")
    add_weight(lake, "dev")
    append(lake, 4)
    lake.update(ORDERS, {"v": "'new'"}, where="id = 2", branch="main")
    lake.merge({"main": "dev", "dev": "main"}[into], into=into)
    assert weights(lake, into) == {**WEIGHTS, 4: 7}
    assert lake.entity_at(ORDERS, 2, ref=into) == {"id": 2, "v": "new", "w": None}
    assert lake.table(ORDERS, into).schema.field("w").type == pa.int32()
    append(lake, 5, branch=into)
    assert weights(lake, into)[5] == 7


@pytest.mark.parametrize("into", ["main", "dev"])
def test_column_without_nulls_merges_if_it_has_a_default(lake: ab.Repository, into: str) -> None:
    lake.branch_create("dev")
    add_weight(lake, "dev", nullable=False)
    append(lake, 4)
    planned = lake.merge({"main": "dev", "dev": "main"}[into], into=into, dry_run=True).plan
    assert planned.is_clean
    assert lake.merge({"main": "dev", "dev": "main"}[into], into=into).plan.tables == planned.tables
    assert weights(lake, into) == {1: 7, 2: 7, 3: 9, 4: 7}
    assert not lake.table(ORDERS, into).schema.field("w").nullable


@pytest.mark.parametrize("into", ["main", "dev"])
def test_default_fills_rows_of_a_table_without_a_key(lake: ab.Repository, into: str) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(CUSTOMERS, {"w": "8"})
        tx.annotate(CUSTOMERS, {}, columns={"w": {DEFAULT: "7"}})
    append(lake, 30, key=CUSTOMERS)
    lake.merge({"main": "dev", "dev": "main"}[into], into=into)
    assert weights(lake, into, CUSTOMERS) == {10: 8, 20: 8, 30: 7}


def test_default_that_uses_another_column_leaves_nulls(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    add_weight(lake, "dev", default="id * 2")
    append(lake, 4)
    lake.merge("dev")
    assert weights(lake, "main") == {**WEIGHTS, 4: None}


def test_column_without_nulls_and_without_a_default_is_a_conflict(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"w": "7"})
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", nullable=False)])
    append(lake, 4)
    with pytest.raises(MergeConflictError, match="1 conflict"):
        lake.merge("dev")
