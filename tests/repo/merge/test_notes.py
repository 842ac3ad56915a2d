"""Descriptions and defaults are merged like everything else."""

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.format.staging import DEFAULT, DESCRIPTION, notes_of
from tests.repo.conftest import ORDERS, append, ids, table


def reported(repo: ab.Repository, ref: str = "main") -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    schema = repo.snapshot_of(ref)[ORDERS].schema
    return notes_of(schema.metadata), {field.name: notes_of(field.metadata) for field in schema}


def annotate(repo: ab.Repository, branch: str, text: str, *, default: str | None = None) -> None:
    with repo.transaction(branch) as tx:
        tx.annotate(ORDERS, {DESCRIPTION: text}, columns={"v": {DEFAULT: default}} if default else {})


@pytest.mark.parametrize("has_moved", [False, True])
def test_notes_come_with_a_merge_whether_the_target_moved_or_not(lake: ab.Repository, *, has_moved: bool) -> None:
    lake.branch_create("dev")
    annotate(lake, "dev", "all orders", default="'none'")
    if has_moved:
        append(lake, 4)
    lake.merge("dev", into="main")
    assert reported(lake) == ({DESCRIPTION: "all orders"}, {"id": {}, "v": {DEFAULT: "'none'"}})
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": [9]}))
    assert lake.entity_at(ORDERS, 9) == {"id": 9, "v": "none"}


def test_notes_of_a_new_column_come_with_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, pa.schema([("w", pa.int64())]))
        tx.annotate(ORDERS, {}, columns={"w": {DESCRIPTION: "weight"}})
    append(lake, 4)
    lake.merge("dev", into="main")
    assert reported(lake)[1]["w"] == {DESCRIPTION: "weight"}


def test_notes_that_both_changed_are_a_conflict(lake: ab.Repository) -> None:
    annotate(lake, "main", "orders")
    lake.branch_create("dev")
    annotate(lake, "dev", "their orders")
    annotate(lake, "main", "our orders")
    with pytest.raises(MergeConflictError) as caught:
        lake.merge("dev", into="main")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.base, conflict.source, conflict.target) == (
        "schema",
        "orders",
        "their orders",
        "our orders",
    )
    lake.merge("dev", into="main", strategy="source")
    assert reported(lake)[0] == {DESCRIPTION: "their orders"}
    assert ids(lake) == sorted(table(1, 2, 3).column("id").to_pylist())


def test_dry_run_of_a_squash_counts_a_change_of_notes(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    annotate(lake, "dev", "all orders")
    append(lake, 4)
    planned = lake.merge("dev", into="main", squash=True, dry_run=True).plan
    assert planned == lake.merge("dev", into="main", squash=True).plan
    assert reported(lake)[0] == {DESCRIPTION: "all orders"}
