"""What plain Lance sees at a table's root and at the homes of branches: the published rows, and nothing else."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.format.staging import ColumnChange
from anabranch.ids import BranchName
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import CommitKind
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.repository import Repository
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.publish import Attempt
from anabranch.repo.write.settle import settle_published
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, entry, ids, raw, rows, table

Change = Callable[[Transaction], object]

CHANGES: dict[str, Change] = {
    "append": lambda tx: tx.append(ORDERS, table(4, 5)),
    "upsert": lambda tx: tx.upsert(ORDERS, table(3, 4, v="new")),
    "update": lambda tx: tx.update(ORDERS, {"v": "'new'"}, where="id > 1"),
    "delete": lambda tx: tx.delete(ORDERS, "id = 2"),
    "overwrite": lambda tx: tx.overwrite(ORDERS, pa.table({"id": [7], "other": [1.5]})),
    "add columns": lambda tx: tx.add_columns(ORDERS, {"w": "id * 2"}),
    "rename a column": lambda tx: tx.alter_columns(ORDERS, [ColumnChange(path="v", name="w")]),
    "drop columns": lambda tx: tx.drop_columns(ORDERS, ["v"]),
}


@pytest.fixture(params=["main", "dev", "dev/deeper"])
def branch(request: pytest.FixtureRequest, lake: Repository) -> str:
    """A branch whose homes differ from those of the others: the root, a fork, and a fork of a fork."""
    name: str = request.param
    if name != "main":
        lake.branch_create("dev")
        append(lake, 100, branch="dev")
        append(lake, 30, branch="dev", key=CUSTOMERS)
    if name == "dev/deeper":
        lake.branch_create_from("dev", name)
    return name


def assert_plain_lance_agrees(lake: Repository, branch: str) -> None:
    snapshot = lake.snapshot_of(branch)
    for key in snapshot:
        seen = raw(lake, key, branch)
        seen.validate()  # type: ignore[no-untyped-call]
        assert seen.schema == snapshot[key].schema
        assert rows(seen) == rows(snapshot[key])
        assert seen.count_rows() == snapshot[key].count_rows()


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_each_change_is_seen_when_it_is_published_and_not_before(lake: Repository, branch: str, change: str) -> None:
    before = {name: rows(raw(lake, ORDERS, name)) for name in {"main", branch}}
    tx = lake.transaction(branch)
    CHANGES[change](tx)
    tx.append(CUSTOMERS, table(99))
    assert {name: rows(raw(lake, ORDERS, name)) for name in before} == before
    assert rows(tx[ORDERS]) != before[branch]
    tx.commit()
    assert rows(raw(lake, ORDERS, branch)) != before[branch]
    assert_plain_lance_agrees(lake, branch)
    if branch != "main":
        assert rows(raw(lake, ORDERS, "main")) == before["main"]


@pytest.mark.s3
def test_homes_are_where_lance_puts_branches(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    home = entry(lake, ORDERS, "dev").home
    assert home is not None
    root = raw(lake, ORDERS, "main")
    assert home in root.branches.list()
    assert rows(root.checkout_version((home, None))) == rows(lake.snapshot_of("dev")[ORDERS])
    assert raw(lake, ORDERS, "dev").uri.endswith(f"/tables/in_c_sales/orders.lance/tree/{home}")


def test_abandoned_changes_are_never_seen(lake: Repository, branch: str) -> None:
    before = ids(lake.snapshot_of(branch))
    with pytest.warns(ResourceWarning, match="dropped with changes"):
        lake.transaction(branch).append(ORDERS, table(4))
    with suppress(RuntimeError), lake.transaction(branch) as tx:
        tx.append(ORDERS, table(5))
        raise RuntimeError("changed my mind")
    assert_plain_lance_agrees(lake, branch)
    append(lake, 6, branch=branch)
    assert ids(lake.snapshot_of(branch)) == sorted([*before, 6])
    assert_plain_lance_agrees(lake, branch)


def test_new_table_is_empty_until_it_is_published(lake: Repository) -> None:
    tx = lake.transaction()
    tx.create_table("s.new", SCHEMA)
    tx.append("s.new", table(1))
    uri = testing.config_of(lake).home_of(tx["s.new"].entry).uri
    options = lake.storage_options
    assert ab.dataset(uri, storage_options=options).count_rows() == 0
    tx.commit()
    assert ab.dataset(uri, storage_options=options).count_rows() == 1


def append_without_settling(lake: Repository, number: int) -> Callable[[], object]:
    """Publish like a process that stops right after it, and return what it would have done next.

    Without durability: a durable commit links its settled manifests itself.
    """
    options = {**lake.storage_options, "durability": "none"}
    repo_store = RepoStore.of(replace(testing.config_of(lake), storage_options=options))
    spec = CommitSpec(message="", kind=CommitKind.CHANGE, metadata={})

    tx = Transaction(repo_store, branch=BranchName("main"), spec=spec, on_published=lambda _: None)
    tx.append(ORDERS, table(number))
    tables = tx._write_set
    published = Attempt(repo_store, tables.head, tables.changes(), spec, tables.rebase).put()
    tx.rollback()
    return lambda: settle_published(repo_store, published.entry.branch, published.changes)


def test_next_writer_settles_what_the_last_one_left(lake: Repository) -> None:
    append_without_settling(lake, 4)
    assert raw(lake).count_rows() == 3
    append(lake, 5)
    assert_plain_lance_agrees(lake, "main")


@pytest.mark.local
def test_commit_succeeds_if_its_prepared_manifest_is_removed(lake: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer that slept longer than a lease after the entry was put: gc has removed the temporary file."""
    link = os.link

    def link_and_sleep(source: str, target: str) -> None:
        link(source, target)
        if "/_versions/main/" in target:
            for left in Path(lake.uri, "tables").rglob("*#*"):
                left.unlink()

    monkeypatch.setattr(os, "link", link_and_sleep)
    append(lake, 4)
    assert ids(lake) == [1, 2, 3, 4]
    assert_plain_lance_agrees(lake, "main")


def test_settling_by_hand_brings_plain_lance_up_to_date(lake: Repository) -> None:
    append_without_settling(lake, 4)
    lake.settle(ORDERS)
    assert_plain_lance_agrees(lake, "main")


def test_slow_settler_leaves_no_older_version_on_top(lake: Repository) -> None:
    settle = append_without_settling(lake, 4)
    append(lake, 5)
    settle()
    assert_plain_lance_agrees(lake, "main")


def test_settlers_of_one_table_may_come_in_any_order(lake: Repository) -> None:
    for settle in reversed([append_without_settling(lake, number) for number in (4, 5, 6)]):
        settle()
        assert_plain_lance_agrees(lake, "main")
