"""The three tables that the race and kill tests write, and what must be in them after given commits.

A commit is known by its mark, which is its message and stands in every row it writes; so a reader of a row, through
the repository or with plain Lance, knows which commit it belongs to.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa

from anabranch.repo.repository import Repository
from anabranch.repo.transaction import Transaction

ORDERS, EVENTS, STOCK = "race.orders", "race.events", "race.stock"
TABLES = (ORDERS, EVENTS, STOCK)
SCHEMA = pa.schema([("id", pa.int64()), ("mark", pa.string())])
SHARED = -1  # the row of the stock that every commit changes

_OWN = "race.own_"

Rows = list[tuple[int, str]]


def mark_of(writer: int, number: int) -> str:
    return f"{writer}-{number}"


def new_table(mark: str) -> str:
    """The name of a table that one commit adds."""
    return f"race.new_{mark.replace('-', '_')}"


def own_table(writer: int) -> str:
    """The name of a table that one writer alone appends to."""
    return f"{_OWN}{writer}"


def create(repo: Repository) -> None:
    with repo.transaction(message="create the tables") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.create_table(EVENTS, SCHEMA)
        tx.create_table(STOCK, SCHEMA, primary_key=["id"])


def write(tx: Transaction, mark: str) -> None:
    """Append to a keyed and to a keyless table and upsert into a third, two rows each."""
    tx.append(ORDERS, rows(_orders(mark)))
    tx.append(EVENTS, rows(_orders(mark)))
    tx.upsert(STOCK, rows(_stock(mark)))


def commit(repo: Repository, mark: str, *, branch: str | None = None) -> None:
    with repo.transaction(branch, message=mark) as tx:
        write(tx, mark)


def rows(wanted: Rows) -> pa.Table:
    return pa.table({"id": [i for i, _ in wanted], "mark": [m for _, m in wanted]}, schema=SCHEMA)


def expected(marks: Sequence[str]) -> dict[str, Rows]:
    """The rows of each table after these commits."""
    appended = sorted(row for mark in marks for row in _orders(mark))
    stock: dict[int, str] = {}
    for mark in marks:
        stock.update(_stock(mark))
    return {ORDERS: appended, EVENTS: appended, STOCK: sorted(stock.items())}


def found(table: Any) -> Rows:
    """The rows of an Arrow table, in the order of `expected`."""
    return sorted(zip(table.column("id").to_pylist(), table.column("mark").to_pylist(), strict=True))


def marks(repo: Repository, ref: str = "main") -> list[str]:
    """The marks of the published commits, oldest first."""
    messages = [commit.message for commit in repo.list_commits(ref, limit=None)]
    return [message for message in reversed(messages) if re.fullmatch(r"\d+-\d+", message)]


def read(repo: Repository, ref: str = "main") -> dict[str, Rows]:
    snapshot = repo.snapshot_of(ref)
    return {key: found(snapshot[key].to_arrow()) for key in TABLES}


def homes(repo: Repository, ref: str = "main") -> dict[str, str]:
    """Where plain Lance finds each table of a branch."""
    roots = {str(key): (f"{repo.uri}/tables/{entry.dataset}", entry.home) for key, entry in _entries(repo, ref)}
    return {key: root if home is None else f"{root}/tree/{home}" for key, (root, home) in roots.items()}


def read_plain(path: str, storage_options: Mapping[str, str]) -> Rows:
    return found(lance.dataset(path, storage_options=dict(storage_options) or None).to_table())


def is_some_state(key: str, seen: Rows, published: Sequence[str]) -> bool:
    """Whether these are the rows of a table after one of the published commits, or before the first."""
    if key.startswith(_OWN):
        key, published = ORDERS, [mark for mark in published if mark.startswith(f"{key.removeprefix(_OWN)}-")]
    if key != STOCK:
        return seen == expected(published[: len(seen) // 2])[key]
    newest = dict(seen).get(SHARED)  # every commit writes it
    count = 0 if newest is None else published.index(newest) + 1 if newest in published else -1
    return count >= 0 and seen == expected(published[:count])[STOCK]


def _entries(repo: Repository, ref: str) -> Any:
    return repo.snapshot_of(ref).entries.items()


def _orders(mark: str) -> Rows:
    writer, _, number = mark.partition("-")
    first = (int(writer) * 10_000 + int(number)) * 2
    return [(first, mark), (first + 1, mark)]


def _stock(mark: str) -> Rows:
    return [(SHARED, mark), (int(mark.partition("-")[0]), mark)]
