"""Tables that one side dropped: the other side changed them only if their content differs."""

from collections.abc import Callable

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, table


def compact(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.compact(ORDERS)


def build_index(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.index(ORDERS, "v")


def write_equal_rows(repo: ab.Repository, branch: str) -> None:
    rows = repo.table(ORDERS, branch).to_arrow()
    repo.overwrite(ORDERS, rows.take([2, 0, 3, 1]), branch=branch)


def update_and_undo(repo: ab.Repository, branch: str) -> None:
    repo.update(ORDERS, {"v": "'x'"}, where="id = 1", branch=branch)
    repo.update(ORDERS, {"v": "'a'"}, where="id = 1", branch=branch)


@pytest.mark.parametrize("change", [compact, build_index, write_equal_rows, update_and_undo])
@pytest.mark.parametrize("dropped_on", ["main", "dev"])
def test_table_with_the_same_content_is_dropped_without_a_conflict(
    lake: ab.Repository, change: Callable[[ab.Repository, str], None], dropped_on: str
) -> None:
    append(lake, 4)  # a second fragment, so that a compaction does something
    lake.branch_create("dev")
    other = {"main": "dev", "dev": "main"}[dropped_on]
    with lake.transaction(dropped_on) as tx:
        tx.drop_table(ORDERS)
    change(lake, other)
    lake.merge("dev")
    assert lake.tables() == [CUSTOMERS]


@pytest.mark.parametrize("dropped_on", ["main", "dev"])
def test_table_whose_notes_changed_is_not_dropped_without_a_conflict(lake: ab.Repository, dropped_on: str) -> None:
    lake.branch_create("dev")
    with lake.transaction(dropped_on) as tx:
        tx.drop_table(ORDERS)
    with lake.transaction({"main": "dev", "dev": "main"}[dropped_on]) as tx:
        tx.annotate(ORDERS, {"owner": "ada"})
    with pytest.raises(MergeConflictError, match="1 conflict"):
        lake.merge("dev")


def test_table_that_came_by_an_earlier_merge_is_dropped_without_a_conflict(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.create_table("out.new", SCHEMA, primary_key=["id"])
        tx.append("out.new", table(1, 2))
    lake.merge("dev")
    with lake.transaction("dev") as tx:
        tx.drop_table("out.new")
    lake.merge("dev")
    assert "out.new" not in lake.tables()


def test_identities_of_columns_are_not_content(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("in.words", pa.schema([("id", pa.int64()), ("x", pa.int64()), ("v", pa.string())]))
        tx.append("in.words", [{"id": 1, "x": 1, "v": "a"}])
        tx.drop_columns("in.words", ["x"])
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.drop_table("in.words")
    before = lake.table("in.words")
    lake.overwrite("in.words", before.to_arrow())  # the field id of v is another one, so its identity is noted
    assert before.schema.field("v").metadata != lake.table("in.words").schema.field("v").metadata
    lake.merge("dev")
    assert "in.words" not in lake.tables()
