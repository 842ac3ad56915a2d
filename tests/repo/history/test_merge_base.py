"""Merge bases, second parents, and differences since a merge base."""

import pytest

import anabranch as ab
from anabranch.errors import CommitNotFoundError, InvalidInputError
from tests.repo.conftest import CUSTOMERS, ORDERS, append, ids


def changed(diff: ab.Diff) -> dict[str, list[int]]:
    """The ids of the inserted rows by table."""
    found: dict[str, list[int]] = {}
    for row in diff.iter_rows():
        assert row.after is not None
        assert row.before is None
        found.setdefault(row.table, []).append(row.after["id"])
    return {key: sorted(rows) for key, rows in found.items()}


@pytest.mark.s3
def test_merge_base_is_the_commit_where_branches_parted_or_were_merged(lake: ab.Repository) -> None:
    parted = lake.snapshot().id
    lake.branch_create("dev")
    on_dev = append(lake, 4, branch="dev")
    append(lake, 30, key=CUSTOMERS)
    assert lake.merge_base("main", "dev").id == lake.merge_base("dev", "main").id == parted
    assert lake.merge_base("main", "main~1").id == lake.snapshot_of("main~1").id
    lake.merge("dev", "main")
    append(lake, 5, branch="dev")
    assert lake.merge_base("main", "dev") == on_dev
    assert [commit.id for commit in lake.merge_bases("main", "dev")] == [on_dev.id]


def test_criss_cross_merges_have_two_merge_bases(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    on_dev, on_main = append(lake, 4, branch="dev"), append(lake, 30, key=CUSTOMERS)
    lake.merge(on_dev.id, "main")
    lake.merge(on_main.id, "dev")
    found = [commit.id for commit in lake.merge_bases("main", "dev")]
    assert sorted(found) == sorted([on_dev.id, on_main.id])
    assert lake.merge_base("main", "dev").id == found[0]


@pytest.mark.s3
def test_second_parent_is_the_merged_commit(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5, branch="dev")
    append(lake, 30, key=CUSTOMERS)
    head = lake.snapshot_of("dev").id
    lake.merge("dev", "main")
    append(lake, 6)
    assert lake.snapshot_of("main~1^2").id == lake.get_commit("main^^2").id == head
    assert ids(lake.snapshot_of("main~1^2~1")) == [1, 2, 3, 4]
    assert lake.snapshot_of("main^1").id == lake.snapshot_of("main~1").id
    with pytest.raises(CommitNotFoundError, match=r"main\^2 does not exist: commit .* has one parent"):
        lake.snapshot_of("main^2")
    # The source is a commit of another branch, so the new branch has no parent branch.
    assert lake.branch_create("again", "main~1^2").parent is None
    lake.tag_create("merged", "main~1^2")
    assert lake.sql(f"FROM {ORDERS} AT 'main~1^2'").num_rows == 5


def test_range_is_the_same_as_two_refs(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    assert changed(lake.diff("main..dev")) == changed(lake.diff("main", "dev")) == {ORDERS: [4]}
    assert changed(lake.diff("..dev")) == {ORDERS: [4]}
    lake.switch("dev")
    assert changed(lake.diff("main..")) == {ORDERS: [4]}
    with pytest.raises(InvalidInputError, match=r"both the range 'main\.\.dev' and the ref 'dev' are given"):
        lake.diff("main..dev", "dev")


@pytest.mark.s3
def test_three_dots_leave_out_what_the_other_side_did(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5)
    append(lake, 30, key=CUSTOMERS)
    assert changed(lake.diff("main...dev")) == {ORDERS: [4]}
    assert changed(lake.diff("dev...main")) == changed(lake.diff("dev...")) == {ORDERS: [5], CUSTOMERS: [30]}
    base = lake.diff("main...dev").before
    assert base.id == lake.merge_base("main", "dev").id
    lake.merge("main", "dev")
    append(lake, 6, branch="dev")
    assert changed(lake.diff("main...dev")) == {ORDERS: [4, 6]}


def test_three_dots_compare_a_live_branch_with_the_main_that_it_forked(lake: ab.Repository) -> None:
    lake.branch_create("dev", mode="live")
    append(lake, 5)
    append(lake, 4, branch="dev")
    append(lake, 6)
    append(lake, 30, key=CUSTOMERS)
    assert changed(lake.diff("main...dev")) == {ORDERS: [4]}
    assert changed(lake.diff("dev...main")) == {ORDERS: [6]}


def test_three_dots_show_a_table_that_was_renamed_or_dropped(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.rename_table(ORDERS, "sales.sold")
        tx.drop_table(CUSTOMERS)
    append(lake, 5)
    renamed, dropped = sorted(lake.diff("main...dev").tables, key=lambda table: table.change)
    assert (renamed.key, renamed.renamed_from, renamed.counts.total) == ("sales.sold", ORDERS, 0)
    assert (dropped.key, dropped.change) == (CUSTOMERS, "removed")
