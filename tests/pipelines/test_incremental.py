"""Where an incremental output continues from, by what the commits of a branch show."""

import json

import pytest

import anabranch as ab
from anabranch.pipelines.provenance import find_last_builds, input_snapshot, iter_new_rows, seen_input
from tests.pipelines.conftest import ORDERS, orders


def build(repo: ab.Repository, branch: str, *outputs: str, pipeline: str = "shop") -> str:
    """A commit as a pipeline leaves one; it makes the outputs that are not there."""
    before = repo.snapshot_of(branch)
    metadata = {
        "pipeline": pipeline,
        "pipeline.input": before.id,
        "pipeline.outputs": json.dumps({key: {"inputs": [ORDERS]} for key in outputs}),
    }
    with repo.transaction(branch, metadata=metadata) as tx:
        for key in outputs:
            if key not in before:
                tx.create_table(key, orders(0, 1).schema, primary_key=["id"])
            tx.upsert(key, orders(0, 1, amount=float(len(repo.list_commits(branch, limit=None)))))
    assert tx.published is not None
    return tx.published.graph_commit_id


def last(repo: ab.Repository, branch: str, *outputs: str) -> dict[str, str]:
    found = find_last_builds(repo.snapshot_of(branch), pipeline="shop", outputs=outputs)
    return {key: commit.graph_commit_id for key, commit in found.items()}


def test_the_newest_commit_counts_that_built_the_output(lake: ab.Repository) -> None:
    assert last(lake, "dev", "gold.a") == {}
    build(lake, "dev", "gold.a", "gold.b")
    second = build(lake, "dev", "gold.a", "gold.c")
    third = build(lake, "dev", "gold.b")
    build(lake, "dev", "gold.a", pipeline="another")
    with lake.transaction("dev") as tx:
        tx.append("gold.a", orders(50, 51))
    assert last(lake, "dev", "gold.a", "gold.b", "gold.d") == {"gold.a": second, "gold.b": third}
    assert last(lake, "main", "gold.a") == {}


def test_a_branch_that_went_back_continues_from_there(lake: ab.Repository) -> None:
    first = build(lake, "dev", "gold.a")
    build(lake, "dev", "gold.a")
    lake.branch_create_from(first, "old")
    assert last(lake, "old", "gold.a") == {"gold.a": first}
    lake.reset("dev", to=first)
    assert last(lake, "dev", "gold.a") == {"gold.a": first}


def test_a_table_that_was_dropped_is_built_from_all(lake: ab.Repository) -> None:
    build(lake, "dev", "gold.a")
    with lake.transaction("dev") as tx:
        tx.drop_table("gold.a")
    assert last(lake, "dev", "gold.a") == {}


def test_what_was_merged_in_counts(lake: ab.Repository) -> None:
    """The outputs came with the merge; so their rows are not to be built again."""
    built = build(lake, "dev", "gold.a")
    with lake.transaction("main") as tx:
        tx.append(ORDERS, orders(20, 22))
    lake.merge("dev", into="main")
    with lake.transaction("main") as tx:
        tx.append(ORDERS, orders(22, 23))
    assert last(lake, "main", "gold.a") == {"gold.a": built}
    before = input_snapshot(lake, lake.get_commit(built))
    batches = iter_new_rows(ORDERS, before=before, after=lake.snapshot_of("main"))
    assert sorted(value for batch in batches for value in batch.column("id").to_pylist()) == [20, 21, 22]


def test_an_output_of_the_same_commit_was_seen_as_it_was_published(lake: ab.Repository) -> None:
    commit = lake.get_commit(build(lake, "dev", "gold.a"))
    assert seen_input(lake, commit, "gold.a").id == commit.graph_commit_id
    assert seen_input(lake, commit, ORDERS).id == commit.parent_commit_id


@pytest.mark.s3
def test_new_rows_are_those_that_came_or_changed(lake: ab.Repository) -> None:
    before = lake.snapshot_of("dev")
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(100, 101))
        tx.update(ORDERS, {"amount": "7"}, where="id = 3")
        tx.delete(ORDERS, "id = 4")
        tx.update(ORDERS, {"amount": "amount"}, where="id = 5")
    found = [
        row
        for batch in iter_new_rows(ORDERS, before=before, after=lake.snapshot_of("dev"))
        for row in batch.to_pylist()
    ]
    assert sorted((row["id"], row["amount"]) for row in found) == [(3, 7.0), (100, 100.0)]
    assert list(iter_new_rows(ORDERS, before=before, after=before)) == []
