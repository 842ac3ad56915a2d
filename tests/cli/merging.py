"""Branches for the command line to merge."""

from typing import Any

import pyarrow as pa

import anabranch as ab
from tests.cli.conftest import ORDERS, ORDERS_SCHEMA


def rows_of(repo: ab.Repository, ref: str, key: str = ORDERS) -> list[tuple[Any, ...]]:
    """The rows of a table as tuples, sorted."""
    return sorted(tuple(row.values()) for row in repo.snapshot_of(ref)[key].to_arrow().to_pylist())


def heads(repo: ab.Repository) -> dict[str, str]:
    return {branch.name: branch.head_commit_id for branch in repo.branch_list()}


def upsert(repo: ab.Repository, branch: str, *rows: tuple[int, str | None, float | None]) -> None:
    with repo.transaction(branch, message=f"Change {branch}") as tx:
        tx.upsert(ORDERS, pa.Table.from_pylist([dict(zip(ORDERS_SCHEMA.names, row, strict=True)) for row in rows]))


def contest(repo: ab.Repository) -> None:
    """Let main and dev, which deleted order 3, change the same cell of order 1, and others that do not meet."""
    upsert(repo, "dev", (1, "tea", 1.7), (2, "oil", 2.0), (4, "nuts", 9.0))
    upsert(repo, "main", (1, "tea", 1.6), (2, None, 2.2), (3, "sea salt", None))


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]
