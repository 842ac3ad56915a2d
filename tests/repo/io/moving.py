"""A repository with something of everything, what can be read of it, and ways to move or copy its files."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.storage import copy_between, in_parallel, open_store
from tests.repo.conftest import CUSTOMERS, ORDERS, rows, table

Rows = list[dict[str, Any]]


def furnish(lake: ab.Repository) -> str:
    """Branches of branches, with and without own tables, a live one, a tag, indices, deletions and a run; its id."""
    lake.index(ORDERS, "id")
    lake.tag_create("v1")
    lake.branch_create("dev")
    lake.branch_create_from("dev", "dev/untouched")
    with lake.transaction("dev", message="on dev") as tx:
        tx.upsert(ORDERS, table(2, 4, v="dev"))
        tx.delete(ORDERS, "id = 1")
        tx.append(CUSTOMERS, table(30))
    lake.branch_create_from("dev", "dev/deeper")
    with lake.transaction("dev/deeper", message="deeper") as tx:
        tx.append(ORDERS, table(5))
        tx.add_columns(CUSTOMERS, {"w": "id * 2"})
    lake.tag_create("deep", ref="dev/deeper")
    lake.branch_create_from("main", "live", mode="live")
    with lake.transaction("live", message="live") as tx:
        tx.append(ORDERS, table(6))
    lake.history_sync()
    run = lake.begin_run("dev/deeper", message="not yet published")
    with run.transaction(message="step") as tx:
        tx.append(ORDERS, table(7))
        tx.create_table("in_c_sales.new", pa.schema([("id", pa.int64())]))
    return run.id


def read_all(repo: ab.Repository, run_id: str | None = None) -> dict[str, dict[str, Rows]]:
    """All rows that a repository shows, by any of its names."""
    refs = [*(branch.name for branch in repo.branch_list()), *(tag.name for tag in repo.tag_list())]
    refs += [commit.graph_commit_id for commit in repo.list_commits("dev/deeper", limit=None)]
    snapshots = {ref: repo.snapshot_of(ref) for ref in refs}
    if run_id is not None:
        snapshots["run"] = repo.run_get(run_id).snapshot()
    return {ref: {key: rows(snapshot[key]) for key in snapshot} for ref, snapshot in snapshots.items()}


def copy_objects(source: str, target: str, storage_options: Mapping[str, str]) -> None:
    """Copy all files as any tool would."""
    there, here = open_store(source, storage_options), open_store(target, storage_options)
    in_parallel(lambda info: copy_between(there, info.path, here, info.path), list(there.list()))


def remove_objects(root: str, storage_options: Mapping[str, str]) -> None:
    store = open_store(root, storage_options)
    in_parallel(lambda info: store.delete(info.path), list(store.list()))


def move_objects(source: str, target: str, storage_options: Mapping[str, str]) -> None:
    copy_objects(source, target, storage_options)
    remove_objects(source, storage_options)
