"""The main writes as they can be done over and over to one lake on S3, and what each has promised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anabranch as ab
from tests.faults.lakes import State
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, rows, table

WIDE = "in_c_sales.wide"
Rows = list[dict[str, Any]]


def fill_remote(repo: ab.Repository) -> None:
    with repo.transaction(message="first") as tx:
        for key in (ORDERS, CUSTOMERS, WIDE):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, table(1, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWrite:
    """A write of a number, what is done before it, and what it makes of the rows of its table.

    It reads main, or the branch of that number. One that is `quiet` makes no commit.
    """

    act: Callable[[ab.Repository, int], object]
    prepare: Callable[[ab.Repository, int], object] = lambda _repo, _n: None
    promise: Callable[[Rows, int], Rows] = lambda before, _n: before
    key: Callable[[int], str] = lambda _n: ORDERS
    branch: Callable[[int], str] = lambda _n: "main"
    quiet: bool = False

    def look(self, repo: ab.Repository, number: int) -> State:
        snapshot = repo.snapshot_of(self.branch(number))
        key = self.key(number)
        return {"version": snapshot.version, "rows": rows(snapshot[key]) if key in snapshot else []}

    def after(self, before: State, number: int) -> State:
        promised = sorted(self.promise(before["rows"], number), key=repr)
        return {"version": before["version"] + (0 if self.quiet else 1), "rows": promised}


def _changing(change: Callable[[ab.Transaction, int], object], branch: Callable[[int], str] = lambda _n: "main") -> Any:
    def act(repo: ab.Repository, number: int) -> None:
        with repo.transaction(branch(number), message=f"written {number}") as tx:
            change(tx, number)

    return act


def _row(number: int, v: str) -> dict[str, Any]:
    return {"id": number, "v": v}


def _with(before: Rows, *new: dict[str, Any]) -> Rows:
    ids = {row["id"] for row in new}
    return [*(row for row in before if row["id"] not in ids), *new]


def _diverge(repo: ab.Repository, number: int) -> None:
    """Change another row on both sides."""
    repo.branch_create(f"m{number}")
    with repo.transaction(f"m{number}", message="theirs") as tx:
        tx.upsert(ORDERS, table(100 + number, v="merged"))
    append(repo, 10_000 + number)


def _begin_run(repo: ab.Repository, number: int) -> None:
    run = repo.begin_run("main", message=f"run {number}")
    with run.transaction(message="step") as tx:
        tx.append(ORDERS, table(100 + number, v="run"))


def _publish_run(repo: ab.Repository, number: int) -> None:
    found = next(info for info in repo.run_list(limit=None) if info.message == f"run {number}")
    repo.run_get(found.id).publish()


def _create(tx: ab.Transaction, number: int) -> None:
    tx.create_table(f"in_c_sales.t{number}", SCHEMA, primary_key=["id"])
    tx.append(f"in_c_sales.t{number}", table(1, v="new"))


def _more(repo: ab.Repository, number: int) -> None:
    append(repo, 100 + 2 * number)
    append(repo, 101 + 2 * number)


REMOTE_WRITES: dict[str, RemoteWrite] = {
    "append": RemoteWrite(
        act=_changing(lambda tx, n: tx.append(ORDERS, table(100 + n, v="new"))),
        promise=lambda before, n: _with(before, _row(100 + n, "new")),
    ),
    "update": RemoteWrite(
        act=_changing(lambda tx, n: tx.update(ORDERS, {"v": f"'u{n}'"}, where="id = 2")),
        promise=lambda before, n: _with(before, _row(2, f"u{n}")),
    ),
    "upsert": RemoteWrite(
        act=_changing(lambda tx, n: tx.upsert(ORDERS, table(1, 100 + n, v=f"u{n}"))),
        promise=lambda before, n: _with(before, _row(1, f"u{n}"), _row(100 + n, f"u{n}")),
    ),
    "delete": RemoteWrite(
        act=_changing(lambda tx, n: tx.delete(ORDERS, f"id = {100 + n}")),
        prepare=lambda repo, n: append(repo, 100 + n),
        promise=lambda before, n: [row for row in before if row["id"] != 100 + n],
    ),
    "fork": RemoteWrite(
        act=_changing(lambda tx, n: tx.append(ORDERS, table(100 + n, v="new")), lambda n: f"f{n}"),
        prepare=lambda repo, n: repo.branch_create(f"f{n}"),
        promise=lambda before, n: _with(before, _row(100 + n, "new")),
        branch=lambda n: f"f{n}",
    ),
    "merge": RemoteWrite(
        act=lambda repo, n: repo.merge(f"m{n}", into="main"),
        prepare=_diverge,
        promise=lambda before, n: _with(before, _row(100 + n, "merged")),
    ),
    "publish a run": RemoteWrite(
        act=_publish_run,
        prepare=_begin_run,
        promise=lambda before, n: _with(before, _row(100 + n, "run")),
    ),
    "create a table": RemoteWrite(
        act=_changing(_create), promise=lambda _before, _n: [_row(1, "new")], key=lambda n: f"in_c_sales.t{n}"
    ),
    "compact": RemoteWrite(act=lambda repo, _n: repo.compact([ORDERS]), prepare=_more),
    "index": RemoteWrite(act=lambda repo, _n: repo.index(ORDERS, "v")),
    "add a column": RemoteWrite(
        act=_changing(lambda tx, n: tx.add_columns(WIDE, {f"c{n}": "id * 2"})),
        promise=lambda before, n: [{**row, f"c{n}": row["id"] * 2} for row in before],
        key=lambda _n: WIDE,
    ),
    "gc": RemoteWrite(act=lambda repo, _n: repo.gc(keep_last=1), quiet=True),
}
