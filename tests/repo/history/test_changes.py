"""The changes of one table, commit by commit."""

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import ENGINES
from anabranch.duck.comparer import default_comparer
from anabranch.errors import InvalidInputError, InvalidNameError, NotFoundError, NotInHistoryError, TableNotFoundError
from anabranch.repo.history.changes import CommitChanges
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.history.diff import TableChangeKind, find_appended_rows
from anabranch.repo.repository import Repository
from tests.conftest import Location
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, ids, table
from tests.repo.test_budgets import PAGE, commit, entry_of, key_of, open_counted

Reported = list[tuple[str, list[tuple[str, Any, Any]]]]


def reported(steps: Iterator[CommitChanges]) -> Reported:
    """The message of each commit, and its rows."""
    return [(step.commit.message, sorted(_rows(step), key=repr)) for step in steps]


def _rows(step: CommitChanges) -> Iterator[tuple[str, Any, Any]]:
    for row in step.iter_rows():
        before, after = (side and tuple(side.values()) for side in (row.before, row.after))
        yield row.change.value, before, after


def messages(steps: Iterator[CommitChanges]) -> list[str]:
    return [step.commit.message for step in steps]


def put(repo: ab.Repository, number: int, v: str, branch: str | None = None) -> str:
    """Upsert one order, with its value as the message; the id of the commit."""
    with repo.transaction(branch, message=v) as tx:
        tx.upsert(ORDERS, table(number, v=v))
    assert tx.published is not None
    return tx.published.graph_commit_id


@pytest.mark.s3
def test_each_commit_is_reported_with_its_rows_oldest_first(lake: ab.Repository) -> None:
    put(lake, 2, "z")
    append(lake, 30, key=CUSTOMERS)
    with lake.transaction(message="fewer") as tx:
        tx.delete(ORDERS, "id in (1, 3)")
        tx.append(ORDERS, table(4))
    assert reported(lake.changes(ORDERS)) == [
        ("first", [("inserted", None, (1, "a")), ("inserted", None, (2, "b")), ("inserted", None, (3, "c"))]),
        ("z", [("updated", (2, "b"), (2, "z"))]),
        ("fewer", [("deleted", (1, "a"), None), ("deleted", (3, "c"), None), ("inserted", None, (4, "d"))]),
    ]
    assert messages(lake.changes(CUSTOMERS)) == ["first", "append (30,)"]


def test_a_step_has_its_commit_its_counts_and_its_rows_in_arrow(lake: ab.Repository) -> None:
    put(lake, 2, "z")
    _, step = lake.changes(ORDERS)
    assert step.commit == lake.get_commit("main")
    assert step.counts == TableCounts(inserted=0, updated=1, deleted=0)
    assert step.diff.change is TableChangeKind.CHANGED
    assert step.changed == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=step.commit.created_at)
    assert step.to_arrow().to_pylist() == [
        {
            "commit": step.commit.graph_commit_id,
            "version": step.commit.manifest_version,
            "time": step.changed,
            "change": "updated",
            "columns": ["v"],
            "before": {"id": 2, "v": "b"},
            "after": {"id": 2, "v": "z"},
        }
    ]
    with pytest.raises(FrozenInstanceError):
        step.commit = step.commit  # type: ignore[misc]


def test_range_excludes_since_and_includes_until(lake: ab.Repository) -> None:
    one, two, three = (put(lake, 1, v) for v in ("one", "two", "three"))
    assert messages(lake.changes(ORDERS, since=one)) == ["two", "three"]
    assert messages(lake.changes(ORDERS, until=two)) == ["first", "one", "two"]
    assert messages(lake.changes(ORDERS, since=one, until=two)) == ["two"]
    assert messages(lake.changes(ORDERS, since=three)) == []
    assert messages(lake.changes(ORDERS, since="main~2", until="main~1")) == ["two"]
    lake.tag_create("v1", ref=one)
    assert messages(lake.changes(ORDERS, since="v1", until="main@v4")) == ["two"]


def test_the_bound_branch_is_the_end_by_default(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    put(lake, 1, "on main")
    put(lake, 1, "on dev", branch="dev")
    assert messages(lake.changes(ORDERS)) == ["first", "on main"]
    assert messages(lake.changes(ORDERS, until="dev")) == ["first", "on dev"]
    lake.sync_branch("dev")
    assert messages(lake.changes(ORDERS)) == ["first", "on dev"]


def test_concurrent_commits_of_others_are_reported(lake: ab.Repository) -> None:
    other = ab.open(lake.uri, storage_options=lake.storage_options)
    lake.snapshot()
    put(other, 1, "theirs")
    assert messages(lake.changes(ORDERS)) == ["first", "theirs"]


@pytest.mark.parametrize("key", [ORDERS, CUSTOMERS])
def test_rows_that_were_only_rewritten_are_not_reported(lake: ab.Repository, key: str) -> None:
    append(lake, 5, key=key)
    lake.compact()
    lake.index(key, "id", type="btree")
    with lake.transaction(message="the same") as tx:
        tx.update(key, {"v": "v"}, where="true")
    assert messages(lake.changes(key)) == ["first", "append (5,)"]
    assert len(lake.list_commits(table=key)) == 5


def test_without_a_key_rows_are_reported_as_often_as_they_changed(lake: ab.Repository) -> None:
    first = lake.snapshot().id
    with lake.transaction(message="twice") as tx:
        tx.append(CUSTOMERS, table(7, 7))
    with lake.transaction(message="other") as tx:
        tx.update(CUSTOMERS, {"v": "'x'"}, where="id = 20")
        tx.delete(CUSTOMERS, "id = 7")
    assert reported(lake.changes(CUSTOMERS, since=first)) == [
        ("twice", [("inserted", None, (7, "g")), ("inserted", None, (7, "g"))]),
        ("other", [("deleted", (7, "g"), None), ("deleted", (7, "g"), None), ("updated", (20, "t"), (20, "x"))]),
    ]


@pytest.mark.parametrize("key", [ORDERS, CUSTOMERS])
def test_rows_that_came_alone_need_no_comparison(lake: ab.Repository, key: str) -> None:
    append(lake, 4, 5, key=key)
    with lake.transaction(message="mixed") as tx:
        tx.append(key, table(6))
        tx.update(key, {"v": "'x'"}, where="id = 5")
    with lake.transaction(message="column") as tx:
        tx.append(key, table(7))
        tx.add_columns(key, {"twice": "id * 2"})
    _, appended, mixed, column = lake.changes(key)
    new = find_appended_rows(appended.diff)
    assert new is not None
    assert [row for batch in new.read() for row in batch.to_pylist()] == table(4, 5).to_pylist()
    assert find_appended_rows(mixed.diff) is None
    assert find_appended_rows(column.diff) is None


def test_columns_come_and_go_from_step_to_step(lake: ab.Repository) -> None:
    with lake.transaction(message="more") as tx:
        tx.add_columns(ORDERS, {"twice": "id * 2"})
    with lake.transaction(message="empty") as tx:
        tx.add_columns(ORDERS, pa.schema([("note", pa.string())]))
    with lake.transaction(message="fewer") as tx:
        tx.drop_columns(ORDERS, ["v", "note"])
    steps = list(lake.changes(ORDERS))
    assert [[(each.change, each.column) for each in step.diff.columns] for step in steps] == [
        [],
        [("added", "twice")],
        [("added", "note")],
        [("removed", "v"), ("removed", "note")],
    ]
    assert [step.counts.total for step in steps] == [3, 3, 0, 3]
    assert reported(iter(steps))[1][1][0] == ("updated", (1, "a"), (1, "a", 2))
    assert reported(iter(steps))[3][1][0] == ("updated", (1, "a", 2, None), (1, 2))


def test_drop_and_new_table_of_the_same_name_are_two_steps(lake: ab.Repository) -> None:
    with lake.transaction(message="drop") as tx:
        tx.drop_table(ORDERS)
    with lake.transaction(message="again") as tx:
        tx.create_table(ORDERS, SCHEMA)
        tx.append(ORDERS, table(7))
    with lake.transaction(message="at once") as tx:
        tx.drop_table(ORDERS)
        tx.create_table(ORDERS, SCHEMA)
        tx.append(ORDERS, table(7, 8))
    assert [(step.commit.message, step.diff.change.value, step.counts) for step in lake.changes(ORDERS)] == [
        ("first", "added", TableCounts(inserted=3, updated=0, deleted=0)),
        ("drop", "removed", TableCounts(inserted=0, updated=0, deleted=3)),
        ("again", "added", TableCounts(inserted=1, updated=0, deleted=0)),
        ("at once", "changed", TableCounts(inserted=1, updated=0, deleted=0)),
    ]
    assert messages(lake.changes(ORDERS, until="main~2")) == ["first", "drop"]


def test_changes_of_a_renamed_table_are_listed_by_its_names(lake: ab.Repository) -> None:
    with lake.transaction(message="rename") as tx:
        tx.rename_table(ORDERS, "out.orders")
        tx.append("out.orders", table(4))
        tx.append(CUSTOMERS, table(40))
    append(lake, 5, key="out.orders")
    first, gone = lake.changes(ORDERS)
    assert gone.counts == TableCounts(inserted=0, updated=0, deleted=3)
    assert (gone.renamed_from, gone.renamed_to) == (None, "out.orders")
    come, more = lake.changes("out.orders")
    assert [(step.diff.change.value, step.counts.inserted) for step in (come, more)] == [("added", 4), ("changed", 1)]
    assert (come.renamed_from, come.renamed_to) == (ORDERS, None)
    assert (first.renamed_from, more.renamed_from) == (None, None)
    with lake.transaction() as tx:
        tx.drop_table("out.orders")
        tx.create_table("out.new", SCHEMA)
    assert [step.renamed_to for step in lake.changes("out.orders")] == [None, None, None]


def test_transactions_of_a_run_are_one_step(lake: ab.Repository) -> None:
    run = lake.begin_run(message="nightly")
    for number in (4, 5):
        with run.transaction() as tx:
            tx.append(ORDERS, table(number))
    append(lake, 30, key=CUSTOMERS)
    run.publish()
    steps = list(lake.changes(ORDERS))
    assert [step.counts.inserted for step in steps] == [3, 2]
    assert steps[1].commit.kind == "publish_run"


def test_a_merge_is_one_step_seen_from_the_branch_it_went_into(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    put(lake, 1, "one", branch="dev")
    put(lake, 4, "two", branch="dev")
    put(lake, 2, "main")
    lake.merge("dev", into="main")
    merged = [("inserted", None, (4, "two")), ("updated", (1, "a"), (1, "one"))]
    assert [rows for _, rows in reported(lake.changes(ORDERS))][1:] == [[("updated", (2, "b"), (2, "main"))], merged]
    put(lake, 5, "after")
    assert messages(lake.changes(ORDERS, since="main~1")) == ["after"]
    with pytest.raises(NotInHistoryError, match="is not in the history of 'main'"):
        lake.changes(ORDERS, since="dev")  # it led to main, but main was never there


def test_revert_and_cherry_pick_are_steps_like_others(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    picked = append(lake, 9, branch="dev").graph_commit_id
    lake.cherry_pick(picked)
    lake.revert("main")
    changes = [(step.commit.kind.value, step.counts.inserted, step.counts.deleted) for step in lake.changes(ORDERS)]
    assert changes == [("change", 3, 0), ("cherry_pick", 1, 0), ("revert", 0, 1)]


def test_after_a_reset_the_history_is_what_the_branch_has_now(lake: ab.Repository) -> None:
    first = lake.snapshot().id
    lost = put(lake, 1, "lost")
    lake.reset("main", to=first)
    kept = put(lake, 1, "kept")
    assert messages(lake.changes(ORDERS)) == ["first", "kept"]
    assert messages(lake.changes(ORDERS, since=first)) == ["kept"]
    assert messages(lake.changes(ORDERS, until=lost)) == ["first", "lost"]
    with pytest.raises(NotInHistoryError, match=f"commit {lost} is not in the history of 'main'") as caught:
        lake.changes(ORDERS, since=lost)
    assert f"since='{first}'" in caught.value.hint
    lake.tag_create("lost", ref=lost)
    with pytest.raises(NotInHistoryError, match=rf"commit {lost} \('lost'\) is not in the history of '{kept}'"):
        lake.changes(ORDERS, since="lost", until=kept)


def test_wrong_refs_and_tables_are_refused_before_anything_is_read(lake: ab.Repository) -> None:
    first = lake.snapshot().id
    put(lake, 1, "one")
    with pytest.raises(InvalidInputError, match=f"'main' comes after '{first}'"):
        lake.changes(ORDERS, since="main", until=first)
    for refs in ({"since": "nowhere"}, {"until": "nowhere"}, {"since": "main@v99"}, {"until": "main~99"}):
        with pytest.raises(NotFoundError):
            lake.changes(ORDERS, **refs)
    for refs in ({}, {"since": first}, {"until": first}):
        with pytest.raises(TableNotFoundError, match=r"there is no table 'in_c_sales\.nothing'"):
            lake.changes("in_c_sales.nothing", **refs)
    with pytest.raises(InvalidNameError):
        lake.changes("no key")
    with pytest.raises(InvalidInputError):
        lake.changes(ORDERS, since="__run__01K00000000000000000000000")


def test_a_branch_made_from_another_begins_with_the_history_of_that(lake: ab.Repository) -> None:
    first = lake.snapshot().id
    put(lake, 1, "main")
    lake.branch_create("dev")
    put(lake, 1, "too late")
    put(lake, 1, "dev", branch="dev")
    assert messages(lake.changes(ORDERS, since=first, until="dev")) == ["main", "dev"]
    versions = [step.commit.generation for step in lake.changes(ORDERS, until="dev")]
    assert versions == sorted(versions)


def test_a_live_branch_shows_with_its_own_commits_what_main_did_before_them(lake: ab.Repository) -> None:
    first = lake.snapshot().id
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4)
    assert messages(lake.changes(ORDERS, since=first, until="dev")) == []
    append(lake, 30, key=CUSTOMERS, branch="dev")
    append(lake, 5)
    append(lake, 6, branch="dev")
    append(lake, 7)
    assert reported(lake.changes(ORDERS, since=first, until="dev")) == [
        ("append (30,)", [("inserted", None, (4, "d"))]),
        ("append (6,)", [("inserted", None, (5, "e")), ("inserted", None, (6, "f"))]),
    ]
    lake.branch_pull("dev", ORDERS)
    lake.branch_freeze("dev")
    append(lake, 8)
    append(lake, 9, branch="dev")
    assert reported(lake.changes(ORDERS, since=first, until="dev"))[2:] == [
        ("Pull in_c_sales.orders", [("deleted", (6, "f"), None), ("inserted", None, (7, "g"))]),
        ("append (9,)", [("inserted", None, (9, "i"))]),
    ]
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5, 7, 9]


def test_a_frozen_branch_shows_with_the_freeze_what_it_took_from_main(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, key=CUSTOMERS, branch="dev")
    append(lake, 4)
    lake.branch_freeze("dev")
    assert reported(lake.changes(ORDERS, until="dev"))[1:] == [("Freeze dev", [("inserted", None, (4, "d"))])]


def feed(location: Location) -> tuple[Repository, Any]:
    repo, store = open_counted(location)
    return Repository(testing.config_of(repo), engines=replace(ENGINES, load_comparer=default_comparer)), store


def test_commits_of_other_tables_are_not_read(location: Location) -> None:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
    costs = {}
    made = 0
    for others in (10, 1000):
        since = repo.snapshot().id
        append(repo, others)
        # They point to nothing, so that opening one of their tables fails.
        commit(repo, ({key_of(n % 5): entry_of(n % 5, version=n)} for n in range(made, made + others)))
        made += others
        repo.sync_branch("main")
        append(repo, others + 1)
        counted, store = feed(location)
        assert [step.counts.inserted for step in counted.changes(ORDERS, since=since)] == [1, 1]
        costs[others] = store.counts.total()
        assert {operation for operation, _ in store.requests} <= {"get", "list"}
    # A page of commits is one request; all else costs the same.
    assert costs[1000] - costs[10] <= 1000 // PAGE + 1
    assert costs[10] < 12
