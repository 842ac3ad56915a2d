"""Unknown names: the error names the one that was probably meant, and what exists."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    NotFoundError,
    SchemaMismatchError,
    TableNotFoundError,
    TagNotFoundError,
)
from tests.conftest import Location
from tests.repo.conftest import ORDERS, table
from tests.repo.test_budgets import begin, open_counted

TYPO = "in_c_sales.ordesr"


@pytest.mark.parametrize(
    "use",
    [
        lambda repo: repo[TYPO],
        lambda repo: repo.snapshot()[TYPO],
        lambda repo: repo.sql(f"FROM {TYPO}"),
        lambda repo: repo.entity_at(TYPO, 1),
        lambda repo: repo.lineage(TYPO),
        lambda repo: repo.diff("main~1", "main", tables=[TYPO]),
        lambda repo: repo.settle(TYPO),
        lambda repo: repo.compact([TYPO]),
        lambda repo: repo.export(TYPO, "out.csv"),
        lambda repo: repo.storage_report(tables=[TYPO]),
        lambda repo: repo.branch_pull("dev", TYPO),
    ],
)
def test_an_unknown_table_gets_a_suggestion(lake: ab.Repository, use: Callable[[ab.Repository], Any]) -> None:
    lake.branch_create("dev")
    with pytest.raises(TableNotFoundError, match=f"did you mean '{ORDERS}'") as caught:
        use(lake)
    assert TYPO in caught.value.problem


def test_a_key_without_its_bucket_gets_a_suggestion(lake: ab.Repository) -> None:
    with pytest.raises(ab.InvalidNameError, match=f"table name 'orders' has no bucket; did you mean '{ORDERS}'"):
        lake["orders"]


def test_an_unknown_table_of_a_transaction_gets_a_suggestion(lake: ab.Repository) -> None:
    with pytest.raises(TableNotFoundError, match=f"did you mean '{ORDERS}'"), lake.transaction() as tx:
        tx.append(TYPO, table(4))


def test_an_unknown_column_gets_a_suggestion(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.add_columns(ORDERS, {"amount": "1.0"})
    orders = lake[ORDERS]
    with pytest.raises(
        SchemaMismatchError, match=r"there is no column 'amonut'; did you mean 'amount'. the columns are"
    ):
        orders.to_arrow(columns=["amonut"])
    with pytest.raises(ab.AnabranchError, match="there is no column 'amonut'; did you mean 'amount'"):
        orders.to_arrow(where="amonut > 1")
    changes: tuple[Callable[[ab.Transaction], None], ...] = (
        lambda tx: tx.drop_columns(ORDERS, ["amonut"]),
        lambda tx: tx.alter_columns(ORDERS, [ab.ColumnChange(path="amonut", name="a")]),
        lambda tx: tx.set_primary_key(ORDERS, ["amonut"]),
        lambda tx: tx.index(ORDERS, "amonut"),
        lambda tx: tx.append(ORDERS, pa.table({"id": [4], "amonut": [1.0]})),
    )
    for change in changes:
        with pytest.raises(ab.AnabranchError, match=r"'amonut'.*did you mean 'amount'"), lake.transaction() as tx:
            change(tx)


def test_an_unknown_branch_gets_a_suggestion(lake: ab.Repository) -> None:
    lake.branch_create("development")
    for use in (
        lambda: lake.branch_get("developmnet"),
        lambda: lake.transaction("developmnet"),
        lambda: lake.sync_branch("developmnet"),
        lambda: lake.reflog("developmnet"),
        lambda: lake.branch_delete("developmnet"),
        lambda: lake.snapshot_of("developmnet"),
        lambda: lake.snapshot_of("Development~1"),
        lambda: lake.sql(f"FROM {ORDERS}", "developmnet"),
        lambda: lake.snapshot_of("developmnet@{2026-01-01}"),
    ):
        with pytest.raises(BranchNotFoundError, match="did you mean 'development'"):
            use()


def test_an_unknown_tag_gets_a_suggestion(lake: ab.Repository) -> None:
    lake.tag_create("release-1")
    with pytest.raises(TagNotFoundError, match="did you mean 'release-1'"):
        lake.tag_get("relaese-1")
    with pytest.raises(TagNotFoundError, match="did you mean 'release-1'"):
        lake.tag_delete("relaese-1")
    with pytest.raises(NotFoundError, match="did you mean 'release-1'"):
        lake.snapshot_of("relaese-1")


def test_what_was_deleted_is_not_suggested(lake: ab.Repository) -> None:
    lake.branch_create("development")
    lake.branch_delete("development")
    lake.tag_create("release-1")
    lake.tag_delete("release-1")
    for use in (
        lambda: lake.branch_get("developmnet"),
        lambda: lake.snapshot_of("developmnet"),
        lambda: lake.tag_get("relaese-1"),
        lambda: lake.snapshot_of("relaese-1"),
    ):
        with pytest.raises(NotFoundError) as caught:
            use()
        assert "did you mean" not in caught.value.hint


@pytest.mark.s3
def test_open_refuses_an_unknown_branch_with_those_that_exist(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    options = lake.storage_options
    assert ab.open(lake.uri, branch="dev", storage_options=options).branch == "dev"
    with pytest.raises(BranchNotFoundError, match="there is no branch 'nope'; the branches are 'dev', 'main'"):
        ab.open(lake.uri, branch="nope", storage_options=options)
    lake.branch_delete("dev")
    with pytest.raises(BranchNotFoundError, match="branch 'dev' was deleted; restore it"):
        ab.open(lake.uri, branch="dev", storage_options=options)


def test_a_suggestion_costs_few_requests_however_many_branches_there_are(location: Location) -> None:
    begin(location, tables=1)
    made = ab.open(location / "lake", storage_options=location.storage_options)
    for number in range(40):
        made.branch_create(f"feature-{number}")
    repo, store = open_counted(location)
    repo.snapshot()
    store.reset()
    with pytest.raises(BranchNotFoundError, match=r"did you mean 'feature-\d+'. list the branches"):
        repo.branch_get("faeture-1")
    assert store.total <= 2 + 1 + 2 * 13
