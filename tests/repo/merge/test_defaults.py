"""A column with a default fills the rows of the other side, in both directions of a merge."""

from functools import partial

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError, SchemaMismatchError
from anabranch.format.staging import DEFAULT
from anabranch.ids import TableKey
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.write.table_changes import annotate
from tests.repo.conftest import CUSTOMERS, ORDERS, append, nothing_changes

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


def add_to_key(repo: ab.Repository, *key: str) -> None:
    """Make a new column with a default a part of the key on a branch, and append two rows without it on main."""
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"w": "id"})
        tx.annotate(ORDERS, {}, columns={"w": {DEFAULT: "7"}})
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", nullable=False)])
        tx.set_primary_key(ORDERS, key)
    append(repo, 4)
    append(repo, 5)


@pytest.mark.parametrize("into", ["main", "dev"])
def test_default_is_a_part_of_a_new_key(lake: ab.Repository, into: str) -> None:
    add_to_key(lake, "w", "id")
    planned = lake.merge({"main": "dev", "dev": "main"}[into], into=into, dry_run=True).plan
    assert planned.is_clean
    assert lake.merge({"main": "dev", "dev": "main"}[into], into=into).plan.tables == planned.tables
    assert weights(lake, into) == {1: 1, 2: 2, 3: 3, 4: 7, 5: 7}


@pytest.mark.parametrize("into", ["main", "dev"])
def test_dry_run_finds_a_default_that_repeats_a_new_key(lake: ab.Repository, into: str) -> None:
    add_to_key(lake, "w")
    source = {"main": "dev", "dev": "main"}[into]
    planned = lake.merge(source, into=into, dry_run=True).plan
    with nothing_changes(lake), pytest.raises(MergeConflictError) as caught:
        lake.merge(source, into=into)
    assert planned.conflicts == caught.value.conflicts != ()


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


def retype(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", type=pa.int8())])


def default(repo: ab.Repository, branch: str, text: str | None) -> None:
    with repo.transaction(branch) as tx:
        tx.annotate(ORDERS, {}, columns={"w": {DEFAULT: text}})


def noted_default(repo: ab.Repository, branch: str) -> bytes | None:
    return (repo.table(ORDERS, branch).schema.field("w").metadata or {}).get(DEFAULT.encode())


@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.parametrize("strategy", ["source", "target"])
def test_default_that_does_not_fit_the_new_type_is_a_conflict(lake: ab.Repository, into: str, strategy: str) -> None:
    add_weight(lake, "main")
    lake.branch_create("dev")
    retype(lake, "main")
    default(lake, "dev", "300")
    source = {"main": "dev", "dev": "main"}[into]
    planned = lake.merge(source, into=into, dry_run=True).plan
    assert [(one.column, one.base) for one in planned.conflicts] == [("w", "7")]
    assert "300" in planned.conflicts[0].problem
    with pytest.raises(MergeConflictError) as caught:
        lake.merge(source, into=into)
    assert caught.value.conflicts == planned.conflicts
    lake.merge(source, into=into, strategy=strategy)
    assert lake.table(ORDERS, into).schema.field("w").type == pa.int8()
    wins = into if strategy == "target" else source
    assert noted_default(lake, into) == (b"7" if wins == "main" else None)
    append(lake, 9, branch=into)


@pytest.mark.parametrize("into", ["main", "dev"])
def test_default_of_null_does_not_fit_a_column_without_nulls(lake: ab.Repository, into: str) -> None:
    add_weight(lake, "main")
    lake.update(ORDERS, {"w": "1"}, where="w IS NULL")
    lake.branch_create("dev")
    default(lake, "dev", "NULL")
    with lake.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", nullable=False)])
    planned = lake.merge({"main": "dev", "dev": "main"}[into], into=into, dry_run=True).plan
    assert [one.column for one in planned.conflicts] == ["w"]
    with pytest.raises(MergeConflictError) as caught:
        lake.merge({"main": "dev", "dev": "main"}[into], into=into)
    assert caught.value.conflicts == planned.conflicts


@pytest.mark.parametrize("text", ["'abc'", "300", "this is ( not sql", "missing_column + 1"])
def test_a_recorded_default_that_does_not_fit_is_a_conflict(lake: ab.Repository, text: str) -> None:
    """Other tools and earlier releases could record it."""
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"w": "arrow_cast(7, 'Int8')"})
        note = partial(annotate, notes={}, columns={"w": {DEFAULT: text}})
        table_writes(tx).change_tables({TableKey.parse(ORDERS): note})
    append(lake, 4)
    planned = lake.merge("dev", dry_run=True).plan
    assert [one.column for one in planned.conflicts] == ["w"]
    with pytest.raises(MergeConflictError) as caught:
        lake.merge("dev")
    assert caught.value.conflicts == planned.conflicts
    lake.merge("dev", strategy="source")
    assert weights(lake, "main") == {1: 7, 2: 7, 3: 7, 4: None}
    assert noted_default(lake, "main") is None


@pytest.mark.parametrize("text", ["'abc'", "300", "this is ( not sql", "missing_column + 1"])
def test_a_default_that_does_not_fit_is_refused(lake: ab.Repository, text: str) -> None:
    add_weight(lake, "main")
    retype(lake, "main")
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="the default of column 'w' does not fit"):
        default(lake, "main", text)
    field = pa.field("w", pa.int8(), metadata={DEFAULT: text})
    error = pytest.raises(SchemaMismatchError, match="the default of column 'w' does not fit")
    with nothing_changes(lake), error, lake.transaction() as tx:
        tx.create_table("s.new", pa.schema([field]))


def test_a_change_that_the_default_does_not_fit_is_refused(lake: ab.Repository) -> None:
    add_weight(lake, "main", default="300")
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="the default of column 'w' does not fit"):
        retype(lake, "main")
    lake.update(ORDERS, {"w": "1"}, where="w IS NULL")
    default(lake, "main", "NULL")
    error = pytest.raises(SchemaMismatchError, match="the default of column 'w' does not fit")
    with nothing_changes(lake), error, lake.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="w", nullable=False)])
