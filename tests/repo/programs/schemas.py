"""What processes do to schemas, until they are killed or at the same time as others."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch import testing
from anabranch.repo.refs.protection import holding_schema_lock
from anabranch.repo.repository import Repository

OLD = {"first": ["id", "mark"], "second": ["id", "mark"]}
NEW = {"first": ["id", "label", "price"], "second": ["id", "mark", "note"], "third": ["id"]}


def bucket_of(name: str) -> str:
    return f"b_{name.replace('-', '_')}"


def create_old(repo: Repository, bucket: str) -> None:
    """Make two tables with a row each."""
    rows = pa.table({"id": pa.array([1], pa.int64()), "mark": ["x"]})
    with repo.transaction(message=bucket) as tx:
        for table in OLD:
            tx.create_table(f"{bucket}.{table}", rows.schema, primary_key=["id"])
            tx.append(f"{bucket}.{table}", rows)


def desired(bucket: str) -> dict[str, Any]:
    """A schema that changes both tables, in several ways, and adds a third."""
    label, price = {"type": "string", "was": "mark"}, {"type": "double", "default": "1.5"}
    first = {
        "columns": {"id": "int64", "label": label, "price": price},
        "primary_key": ["id"],
        "indices": [{"column": "price", "type": "btree"}],
    }
    second = {"columns": {"id": "int64", "mark": "string", "note": "string"}, "primary_key": ["id"]}
    return {"tables": {bucket: {"first": first, "second": second, "third": {"columns": {"id": "int64"}}}}}


def apply(repo: Repository, name: str) -> None:
    repo.schema_apply(desired(bucket_of(name)), message=name)


def hold_alone(repo: Repository, name: str) -> None:
    """Hold the lock, and make sure that no other process does."""
    mine = Path(f"{repo.uri}-{name}.held")
    with holding_schema_lock(testing.repo_store_of(repo)):
        os.close(os.open(mine, os.O_CREAT | os.O_EXCL))
        mine.unlink()


def _apply(uri: str, name: str) -> None:
    apply(ab.open(uri), name)


def _hold(uri: str, _: str) -> None:
    with holding_schema_lock(testing.repo_store_of(ab.open(uri))):
        pass


SCENARIOS: dict[str, Callable[[str, str], None]] = {"apply a schema": _apply, "hold the schema lock": _hold}
