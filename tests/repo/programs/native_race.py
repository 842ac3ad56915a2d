"""Write to one table beside others, by this product or by plain Lance, each writer in a range of ids of its own.

Called with one JSON object. Before each step it prints `ready` and waits for a line, so that all writers do their steps
at the same time. In the end it prints one JSON object with the rows that its range must hold.
"""

import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import lance
import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError

TABLE = "shop.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
_RANGE = 1_000_000


def rows(found: dict[int, str]) -> pa.Table:
    return pa.table({"id": pa.array(found, pa.int64()), "v": pa.array(found.values(), pa.string())})


class Writer:
    """One writer: its rows, and what it did and met."""

    def __init__(self, number: int, steps: int) -> None:
        self.first = (number + 1) * _RANGE
        self.next = self.first
        self.steps = steps
        self.rows: dict[int, str] = {}
        self.counts: dict[str, int] = {}
        self.random = random.Random(number)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def new(self, size: int) -> dict[int, str]:
        self.next += size
        return {number: f"new {number}" for number in range(self.next - size, self.next)}

    def plans(self) -> Iterator[tuple[str, dict[int, str]]]:
        """Plan each step when all writers are ready for it."""
        for step in range(self.steps):
            print("ready", flush=True)  # noqa: T201
            sys.stdin.readline()
            yield self.plan(step)

    def plan(self, step: int) -> tuple[str, dict[int, str]]:
        """Choose the next change: its kind, and the rows that it writes or deletes."""
        kind = ("append", "merge", "update", "delete")[step % 4] if self.rows else "append"
        if kind == "append":
            return kind, self.new(2)
        chosen = self.random.choice(sorted(self.rows))
        if kind == "merge":
            return kind, {chosen: f"merged {step}", **self.new(1)}
        return kind, {chosen: f"updated {step}"}

    def done(self, kind: str, changed: dict[int, str]) -> None:
        self.count(kind)
        for number, value in changed.items():
            if kind == "delete":
                del self.rows[number]
            else:
                self.rows[number] = value

    def report(self) -> dict[str, Any]:
        return {"rows": {str(number): value for number, value in self.rows.items()}, "counts": self.counts}


def write_natively(writer: Writer, uri: str, options: dict[str, str]) -> None:
    table: Any = lance.dataset(uri, storage_options=options or None)
    for kind, changed in writer.plans():
        while not try_natively(writer, table, kind, changed):
            pass
        writer.done(kind, changed)


def try_natively(writer: Writer, table: Any, kind: str, changed: dict[int, str]) -> bool:
    table.checkout_latest()
    try:
        change_natively(table, kind, changed)
    except OSError as err:
        # Native writers also meet each other; what Lance calls a conflict is tried again.
        writer.count("failed by Restore" if "Restore" in str(err) else "conflicts")
        if not is_conflict(str(err)):
            raise
        return False
    return True


def change_natively(table: Any, kind: str, changed: dict[int, str]) -> None:
    number, value = next(iter(changed.items()))
    match kind:
        case "append":
            table.insert(rows(changed))
        case "merge":
            table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(changed))
        case "update":
            table.update({"v": f"'{value}'"}, where=f"id = {number}")
        case "delete":
            table.delete(f"id = {number}")


def is_conflict(text: str) -> bool:
    return any(word in text for word in ("conflict", "concurrent", "Too many"))


def commit(writer: Writer, uri: str, options: dict[str, str]) -> None:
    repo = ab.open(uri, storage_options=options)

    def change(kind: str, changed: dict[int, str]) -> None:
        number, value = next(iter(changed.items()))
        with repo.transaction() as tx:
            match kind:
                case "append":
                    tx.append(TABLE, rows(changed))
                case "merge":
                    tx.upsert(TABLE, rows(changed))
                case "update":
                    tx.update(TABLE, {"v": f"'{value}'"}, where=f"id = {number}")
                case "delete":
                    tx.delete(TABLE, f"id = {number}")

    for kind, changed in writer.plans():
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            retried(writer, partial(change, kind, changed))
        writer.done(kind, changed)
        if met:
            writer.count("warnings")
            adopt(writer, repo)


def adopt(writer: Writer, repo: ab.Repository) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            repo.adopt(TABLE)
            writer.count("adopted")
        except ab.errors.NotFoundError:
            writer.count("adopted by the other")
        except ab.errors.ConflictError:
            writer.count("adopted later")  # The next commit warns again.


def retried(writer: Writer, work: Callable[[], None]) -> None:
    while True:
        try:
            return work()
        except AnabranchError as err:
            if not err.retryable:
                raise
            writer.count("retries")


def main() -> None:
    given = json.loads(sys.argv[1])
    writer = Writer(given["number"], given["steps"])
    work = write_natively if given["native"] else commit
    work(writer, given["uri"], given["options"])
    print(json.dumps(writer.report()), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
