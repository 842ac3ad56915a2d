"""Schemas that are applied during other writes: no write is lost, and one schema change happens at a time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BusyError, SchemaMismatchError, WriteConflictError
from anabranch.ids import new_ulid
from anabranch.repo.refs.protection import holding_schema_lock
from tests.handles import open_with
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, ids, nothing_changes, raw, rows, table

COLUMNS = {"id": "int64", "v": "string"}


def with_orders(**columns: Any) -> dict[str, Any]:
    orders = {"primary_key": ["id"], "columns": {**COLUMNS, **columns}}
    return {"tables": {"in_c_sales": {"orders": orders, "customers": {"columns": COLUMNS}}}}


def disturbed(repo: ab.Repository, *acts: Callable[[ab.Repository], object]) -> ab.Repository:
    """A handle whose commits race with another process, one act for each: all is staged by then, and nothing published.

    The first id is the lock's; each one after it is a commit's, which is asked for when all is staged.
    """
    pending = [lambda _: None, *acts]

    def new_id() -> str:
        if pending:
            pending.pop(0)(testing.open(repo))
        return new_ulid()

    return open_with(replace(testing.config_of(repo), new_id=new_id), branch=repo.branch)


def test_rows_that_come_concurrently_are_in_the_new_schema(lake: ab.Repository) -> None:
    handle = disturbed(lake, lambda other: append(other, 4), lambda other: append(other, 5))
    result = handle.schema_apply(with_orders(n={"type": "int8", "default": "1"}))
    assert result.commit is not None
    assert [(row["id"], row["n"]) for row in rows(lake.snapshot_of("main")[ORDERS])] == [(i, 1) for i in range(1, 6)]
    assert [commit.kind.value for commit in lake.list_commits(limit=3)] == ["schema_apply", "change", "change"]


def test_main_gets_rows_while_the_schema_of_a_branch_changes(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    handle = disturbed(lake, *[lambda other, number=number: append(other, number) for number in range(4, 9)])
    result = handle.schema_apply(with_orders(n={"type": "int8", "default": "1"}), branch="dev")
    assert result.commit is not None
    assert rows(lake.snapshot_of("dev")[ORDERS]) == [{"id": i + 1, "v": v, "n": 1} for i, v in enumerate("abc")]
    main = lake.snapshot_of("main")[ORDERS]
    assert main.schema.names == ["id", "v"]
    assert {1, 2, 3, 4} <= set(ids(main)) == {row["id"] for row in rows(raw(lake))}


def test_schema_is_planned_again_after_a_concurrent_commit(lake: ab.Repository) -> None:
    def add_the_same(other: ab.Repository) -> None:
        with other.transaction() as tx:
            tx.add_columns(ORDERS, pa.schema([("n", pa.int8())]))

    result = disturbed(lake, add_the_same).schema_apply(with_orders(n="int8", m="int8"))
    assert [step.text for step in result.plan.steps] == ["column m: int8"]
    assert lake.schema_plan(with_orders(n="int8", m="int8")).is_empty


def test_schema_that_concurrent_rows_do_not_fit_is_refused(lake: ab.Repository) -> None:
    def append_null(other: ab.Repository) -> None:
        with other.transaction() as tx:
            tx.append(ORDERS, pa.table({"id": [4]}))

    with pytest.raises(SchemaMismatchError, match="holds 1 null"):
        disturbed(lake, append_null).schema_apply(with_orders(v="string not null"))
    assert lake.schema_plan(with_orders()).is_empty
    # A failed apply leaves the way free.
    assert another(lake).schema_apply(with_orders(n="int8")).commit is not None


def test_writes_to_other_tables_continue(lake: ab.Repository) -> None:
    def write(other: ab.Repository) -> None:
        append(other, 30, key=CUSTOMERS)

    disturbed(lake, write).schema_apply(with_orders(n="int8"))
    assert ids(lake, CUSTOMERS) == [10, 20, 30]
    assert lake.snapshot_of("main")[ORDERS].schema.names == ["id", "v", "n"]


def test_append_with_an_old_schema_is_refused(lake: ab.Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    another(lake).schema_apply(with_orders(n="int8"))
    with pytest.raises(WriteConflictError, match="columns of the table were changed"):
        tx.commit()
    # A note is not a column: rows that were written before it are as good after it.
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        another(lake).schema_apply(with_orders(n={"type": "int8", "description": "A number"}))
    assert ids(lake) == [1, 2, 3, 4]
    assert lake.schema_show()[ORDERS].columns[2].description == "A number"


def test_an_append_does_not_slip_past_a_new_primary_key(lake: ab.Repository) -> None:
    schema = with_orders()
    schema["tables"]["in_c_sales"]["customers"]["primary_key"] = ["id"]
    tx = lake.transaction()
    tx.append(CUSTOMERS, table(10))
    another(lake).schema_apply(schema)
    with pytest.raises(WriteConflictError):
        tx.commit()
    assert ids(lake, CUSTOMERS) == [10, 20]


def test_one_schema_change_at_a_time(lake: ab.Repository) -> None:
    with holding_schema_lock(testing.repo_store_of(lake)), nothing_changes(lake):
        with pytest.raises(BusyError, match="'ada' is applying a schema change"):
            another(lake).schema_apply(with_orders(n="int8"))
        # What changes nothing needs no turn.
        assert another(lake).schema_apply(with_orders()).commit is None
        assert another(lake).schema_apply(with_orders(n="int8"), dry_run=True).commit is None
        assert not another(lake).schema_plan(with_orders(n="int8")).is_empty
    assert another(lake).schema_apply(with_orders(n="int8")).commit is not None


@pytest.mark.s3
def test_many_at_once_each_make_their_schema_true_or_report_that_they_were_late(lake: ab.Repository) -> None:
    def apply(number: int) -> int | None:
        try:
            another(lake).schema_apply(with_orders(n={"type": "int64", "default": str(number)}), allow_destructive=True)
        except BusyError:
            return None
        return number

    with ThreadPoolExecutor(4) as threads:
        done = [number for number in threads.map(apply, range(4)) if number is not None]
    assert done
    column = lake.schema_show()[ORDERS].find_column("n")
    assert column is not None
    assert int(column.default or -1) in done
    kinds = [commit.kind.value for commit in lake.list_commits(limit=10)]
    assert kinds.count("schema_apply") == len(done)
