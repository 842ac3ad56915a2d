"""What each page of the web UI costs on a large lake: the time to its first byte, and its bytes.

The lake has 1,000 tables, 1,000 branches, 10,000 commits, a table of 10,000,000 rows and one of 2,000 columns. A branch
has changed every small table, so that a comparison and a merge have many tables. The pages are requested over HTTP from
a server in this process, by turns, after each was requested once.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import uvicorn
from _comparison import bold, to_section, working_folder, write_section

import anabranch as ab
from anabranch.repo.repository import Repository
from anabranch.server.app import listen
from anabranch.server.ui.local import ENTER_PATH, create_local_app
from anabranch.server.ui.requests import OneTimeToken

SMALL = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
LARGE, WIDE, MADE = "large.rows", "large.columns", "large.totals"
MOST_MILLISECONDS = 300
MOST_BYTES = 300_000
PACKAGES = ("pylance", "pyarrow", "starlette", "jinja2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the lake has."""

    tables: int
    branches: int
    commits: int
    rows: int
    columns: int
    runs: int = 100
    tags: int = 200


# The name of each page and its path. Names in braces are filled in from the lake.
PAGES: Mapping[str, str] = {
    "overview": "/",
    "overview, page 10": "/?page=10",
    "overview of a commit": "/?ref={old}",
    "overview with sizes": "/?size=1",
    "overview, search": "/?search=t99",
    "branches": "/branches",
    "branches, a later page": "/branches?after={middle}",
    "branches, search": "/branches?search=99",
    "deleted branches": "/branches?deleted=yes",
    "graph": "/graph",
    "graph, page 10": "/graph?page=10",
    "graph of main": "/graph?ref=main",
    "graph of a table": "/graph?table={small}",
    "graph of an actor": "/graph?actor=robot",
    "commit": "/commits/{head}",
    "commit of all tables": "/commits/{all_tables}",
    "table: 10M rows": f"/tables/{LARGE}",
    "table: last page": f"/tables/{LARGE}?page={{last_page}}",
    "table: filter": f"/tables/{LARGE}?where=id+%3D+7654321",
    "table: order": f"/tables/{LARGE}?sort=amount&desc=1",
    "table: at a time": f"/tables/{LARGE}?at={{time}}",
    "table: many columns": f"/tables/{WIDE}",
    "table: one row of 10M": f"/tables/{LARGE}/row?key=[7654321]",
    "table: row, many columns": f"/tables/{WIDE}/row?key=[3]",
    "table: schema": f"/tables/{LARGE}/schema",
    "table: schema, many columns": f"/tables/{WIDE}/schema",
    "table: history": "/tables/{small}/history",
    "table: value": f"/tables/{LARGE}/value?key=[7654321]&column=note",
    "load": "/load",
    "compare: form": "/compare",
    "compare: one branch": "/compare?before=main&after=b0500",
    "compare: all tables": "/compare?before=main&after=wide",
    "compare: 10M rows": "/compare?before=main&after=big",
    "compare: changed rows": f"/compare/rows?before=main&after=big&table={LARGE}",
    "merge: form": "/merge",
    "merge: one branch": "/merge?source=b0500&into=main",
    "merge: all tables": "/merge?source=wide&into=main",
    "merge: plan of all tables": "/merge?source=wide&into=main&plan=1",
    "merge: 10M rows": "/merge?source=big&into=main",
    "sql: form": "/sql",
    "sql: count of 10M rows": f"/sql?sql=SELECT+count(*)+FROM+{LARGE}",
    "sql: first rows": f"/sql?sql=SELECT+*+FROM+{LARGE}+LIMIT+500",
    "runs": "/runs",
    "run": "/runs/{run}",
    "lineage": f"/lineage/{MADE}",
    "reflog": "/reflog",
    "reflog, older": "/reflog?after=3000",
    "storage: form": "/storage",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--keep", type=Path, help="a folder for the lake, which is used again if it exists")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", help="only the pages whose names contain this text")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--branches", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=2000)
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    size = Size(
        tables=chosen.tables,
        branches=chosen.branches,
        commits=chosen.commits,
        rows=chosen.rows,
        columns=chosen.columns,
    )
    with working_folder(chosen.folder) as folder:
        path = chosen.keep or folder / "lake"
        if not path.exists():
            began = time.perf_counter()
            build(path, size)
            sys.stdout.write(f"built the lake in {time.perf_counter() - began:.0f} s\n")
        repository = ab.open(path, actor="ada")
        with serving(repository) as client:
            found = measure(client, repository, size, rounds=chosen.rounds, only=chosen.pages or "")
        section = to_section(
            "Pages of the web UI (`ui.py`)",
            [
                f"A lake with {size.tables:,} tables, {size.branches:,} branches, {size.commits:,} commits, a table of "
                f"{size.rows:,} rows and one of {size.columns:,} columns. Each page after one request of it. "
                f"Aims: the first byte after at most {MOST_MILLISECONDS} ms, at most {MOST_BYTES:,} bytes."
            ],
            [one.to_row() for one in found],
            heads=("page", "status", "least ms", "median ms", "processor ms", "first request ms", "bytes"),
            packages=PACKAGES,
            folder=folder,
        )
    sys.stdout.write(f"{section}\n")
    if not chosen.dry_run and not chosen.pages:
        write_section("ui", section)


# The lake


def build(path: Path, size: Size) -> None:
    """Make the lake. Commits are spread over tables and branches, and their times are those of their writes."""
    repository = ab.init(path, actor="ada", durability="none")
    with repository.transaction(message="Create the small tables") as tx:
        for number in range(size.tables - 3):
            tx.create_table(small(number), SMALL, primary_key=["id"])
    with repository.transaction(message="Load the large tables") as tx:
        create_large_tables(tx, size)
    repository.index(LARGE, "id")
    make_runs(repository, size.runs)
    make_commits(repository, size)
    for number in range(size.tags):
        repository.tag_create(f"v{number:04}", "main")
    change_large_table(repository, size)
    change_all_tables(repository, size)


def small(number: int) -> str:
    return f"small.t{number:03}"


def create_large_tables(tx: ab.Transaction, size: Size) -> None:
    tx.create_table(LARGE, SMALL, primary_key=["id"])
    notes = pa.array([f"note {number} of some length" for number in range(100)])
    for start in range(0, size.rows, 1_000_000):
        ids = np.arange(start, min(start + 1_000_000, size.rows))
        rows = pa.table({"id": ids, "amount": ids % 9973 * 0.5, "note": notes.take(pa.array(ids % 100))})
        tx.append(LARGE, rows.cast(SMALL), check_keys=False)
    names = [f"c{number:04}" for number in range(size.columns - 1)]
    tx.create_table(WIDE, pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)]), primary_key=["id"])
    tx.append(WIDE, pa.table({name: pa.array(range(100), pa.int64()) for name in ("id", *names)}), check_keys=False)


def make_runs(repository: Repository, count: int) -> None:
    """Publish the same table many times by a pipeline that reads a hundred tables."""
    with repository.transaction(message="Create the totals") as tx:
        tx.create_table(MADE, SMALL)
    outputs = {
        MADE: {"inputs": [small(number) for number in range(100)], "write": "rebuild", "rows": 1, "seconds": 0.5}
    }
    record = {"pipeline": "nightly", "pipeline.parameters": "{}", "pipeline.outputs": json.dumps(outputs)}
    for number in range(count):
        with repository.begin_run("main", message="Nightly", metadata=record) as run, run.transaction() as tx:
            tx.overwrite(MADE, one_row(number))


def make_commits(repository: Repository, size: Size) -> None:
    """Commit to main and to the branches by turns, while branches are created at the head of main of their time."""
    robot = ab.open(repository.uri, actor="robot")
    left, made = size.commits - size.runs - 6, 0
    for number in range(left):
        if number * (size.branches - 3) // left >= made:
            repository.branch_create(f"b{made:04}", mode="live" if made % 10 == 9 else "pinned")
            made += 1
        target = f"b{number * 31 % made:04}" if number % 2 else "main"
        writer = robot if number % 100 == 0 else repository
        key = small(number * 7919 % (size.tables - 3))
        with writer.transaction(target, message=f"Write {number} to {key}") as tx:
            tx.append(key, one_row(number), check_keys=False)


def one_row(number: int) -> pa.Table:
    return pa.table({"id": [number], "amount": [number * 0.5], "note": [f"row {number}"]}, schema=SMALL)


def change_large_table(repository: Repository, size: Size) -> None:
    """Change some rows of the large table on a branch and others on main. One is in conflict."""
    repository.branch_create("big")
    repository.update(LARGE, {"amount": "amount + 1"}, f"id % {max(1, size.rows // 200)} = 3", branch="big")
    repository.update(LARGE, {"amount": "amount + 2"}, "id = 3 or id = 4")


def change_all_tables(repository: Repository, size: Size) -> None:
    """Add a row to every small table, on a branch in one commit."""
    repository.branch_create("wide")
    with repository.transaction("wide", message="Change all tables") as tx:
        for number in range(size.tables - 3):
            tx.append(small(number), one_row(1 << 40), check_keys=False)


# The pages


@dataclass(slots=True, kw_only=True)
class PageCost:
    """The answers of one page: seconds to the first byte and of the processor, the first request apart."""

    name: str
    status: int = 0
    size: int = 0
    first: float = 0.0
    waited: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def to_row(self) -> tuple[str, ...]:
        least, median = min(self.waited) * 1000, statistics.median(self.waited) * 1000
        return (
            self.name,
            bold(str(self.status), when=self.status != 200),
            bold(f"{least:.0f}", when=least > MOST_MILLISECONDS),
            f"{median:.0f}",
            f"{min(self.processor) * 1000:.0f}",
            f"{self.first * 1000:.0f}",
            bold(f"{self.size:,}", when=self.size > MOST_BYTES),
        )


def measure(client: httpx.Client, repository: Repository, size: Size, *, rounds: int, only: str) -> list[PageCost]:
    names = names_in(repository, size)
    pages = {name: path.format(**names) for name, path in PAGES.items() if only in name}
    found = {name: PageCost(name=name) for name in pages}
    for number in range(rounds + 1):
        for name, path in pages.items():
            began, processor = time.perf_counter(), time.process_time()
            with client.stream("GET", path) as answer:
                chunks = answer.iter_raw()
                received = len(next(chunks))
                waited, used = time.perf_counter() - began, time.process_time() - processor
                received += sum(map(len, chunks))
            cost = found[name]
            cost.status, cost.size = answer.status_code, received
            if number:
                cost.waited.append(waited)
                cost.processor.append(used)
            else:
                cost.first = waited
    return list(found.values())


def names_in(repository: Repository, size: Size) -> dict[str, object]:
    old = repository.list_commits("main", limit=1000)[-1]
    return {
        "old": old.id,
        "time": old.created.strftime("%Y-%m-%dT%H:%M:%S"),
        "middle": f"b{size.branches // 2:04}",
        "small": small(5),
        "head": repository.branch_get("b0001").head_commit_id,
        "all_tables": repository.branch_get("wide").head_commit_id,
        "last_page": size.rows // 50,
        "run": repository.run_list(limit=1)[0].id,
    }


@contextmanager
def serving(repository: Repository) -> Iterator[httpx.Client]:
    """Serve the pages in a thread, and yield a client with a session."""
    token, socket = OneTimeToken(), listen(host="127.0.0.1", port=0)
    port = socket.getsockname()[1]
    app = create_local_app(repository, port=port, token=token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, ws="none"))
    thread = threading.Thread(target=_runner(server, socket), daemon=True)
    gc.freeze()  # as the commands do
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            client.get(f"{ENTER_PATH}?token={token.value}")
            yield client
    finally:
        server.should_exit = True
        thread.join()
        socket.close()


def _runner(server: uvicorn.Server, socket: object) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner() as runner:
            runner.run(server.serve(sockets=[socket]))  # type: ignore[list-item]

    return run


if __name__ == "__main__":
    main()
