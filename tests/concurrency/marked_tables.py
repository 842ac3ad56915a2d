"""Three keyed tables that hold the same rows after every commit, whatever it was, so that half a commit shows.

A row's mark names the call that wrote it last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction

TABLES = ("shared.orders", "shared.events", "shared.stock")
SCHEMA = pa.schema([("id", pa.int64()), ("mark", pa.string())])
COMMON = 12  # ids below are changed by all members; those above are made by one
FIRST_OWN = 1000
EARLIER = 3

Rows = dict[int, str]
NO_TABLE: Rows = {-1_000_000: "no table"}


class Do(StrEnum):
    """What a change does to rows."""

    APPEND = "append"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"
    PRUNE = "prune"  # deletes all rows that are not common


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the same rows in each table."""

    do: Do
    ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, reported: Mapping[str, Any]) -> "Change":
        return cls(Do(reported["do"]), tuple(reported["ids"]))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def create(repo: Repository) -> None:
    """Make the tables, and the first branches."""
    with repo.transaction(message="create the tables") as tx:
        for key in TABLES:
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, _rows(range(COMMON), "first"))
    for number in range(EARLIER):  # so that few come back to before there were tables
        with repo.transaction(message="earlier") as tx:
            write(tx, [Change(Do.UPSERT, (number,))], "earlier", is_crooked=False)
    for name in ("b0", "b1"):
        repo.branch_create(name)
    repo.branch_create_from("main", "l0", mode="live")


def write(tx: Transaction, changes: Sequence[Change], mark: str, *, is_crooked: bool) -> None:
    """Make the changes in each table; the crooked way, each table in another way with the same rows in the end."""
    for change in changes:
        for number, key in enumerate(TABLES):
            _write_one(tx, key, change, mark, way=number if is_crooked else 0)


def _write_one(tx: Transaction, key: str, change: Change, mark: str, *, way: int) -> None:
    named = f"id IN ({', '.join(map(str, change.ids))})"
    match change.do:
        case Do.APPEND if way == 2:
            tx.upsert(key, _rows(change.ids, mark))
        case Do.APPEND:
            tx.append(key, _rows(change.ids, mark))
        case Do.UPSERT if way == 1:
            tx.delete(key, named)
            tx.append(key, _rows(change.ids, mark))
        case Do.UPSERT:
            tx.upsert(key, _rows(change.ids, mark))
        case Do.UPDATE:
            tx.update(key, {"mark": f"'{mark}'"}, where=named)
        case Do.DELETE:
            tx.delete(key, named)
        case Do.PRUNE:
            tx.delete(key, f"id >= {FIRST_OWN}")


def applied(rows: Rows, changes: Sequence[Change], mark: str) -> Rows:
    """The rows of a table after the changes."""
    after = dict(rows)
    for change in changes:
        match change.do:
            case Do.APPEND | Do.UPSERT:
                after.update(dict.fromkeys(change.ids, mark))
            case Do.UPDATE:
                after.update({i: mark for i in change.ids if i in after})
            case Do.DELETE:
                after = {i: found for i, found in after.items() if i not in change.ids}
            case Do.PRUNE:
                after = {i: found for i, found in after.items() if i < FIRST_OWN}
    return after


def read(snapshot: Snapshot) -> dict[str, Rows]:
    """The rows of each table; a row that is there twice shows under a key of its own, and a missing table as a row."""
    found = {}
    for key in TABLES:
        if key not in snapshot:
            found[key] = dict(NO_TABLE)
            continue
        table = snapshot[key].to_arrow()
        rows: Rows = {}
        for i, mark in zip(table.column("id").to_pylist(), table.column("mark").to_pylist(), strict=True):
            rows[i if i not in rows else -1 - i] = mark
        found[key] = rows
    return found


def digest(rows: Rows) -> str:
    """A short name for just these rows."""
    return blake2b(repr(sorted(rows.items())).encode(), digest_size=8).hexdigest()


def digests(contents: Mapping[str, Rows]) -> dict[str, str]:
    return {key: digest(rows) for key, rows in contents.items()}


def _rows(ids: Sequence[int] | range, mark: str) -> pa.Table:
    return pa.table({"id": list(ids), "mark": [mark] * len(ids)}, schema=SCHEMA)
