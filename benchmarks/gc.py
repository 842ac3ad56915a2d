"""What garbage collection costs with many tables, a long history and many dead branches, beside listing the files.

Lakes of one shape each: tables of a few rows, commits of one row each to one table after the other, and branches with
one commit each that were deleted. Then everything is made two days old. A dry run reads and judges all that there is;
the real one, told to keep one commit, deletes. Ratios to a bare listing of the same files, and requests, are what
counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from _comparison import seconds, to_section, working_folder, write_section
from _lakes import counted_requests

import anabranch as ab
from anabranch.repo.repository import Repository
from anabranch.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
AT_ONCE = 50
DAYS = 2
HEADS = ("tables", "commits", "dead branches", "files", "versions", "list, ms", "dry run, ms", "ratio", "requests")
HEADS += ("files dead", "collect, ms", "requests")


@dataclass(frozen=True)
class Shape:
    tables: int
    commits: int
    dead: int = 0


SHAPES = (
    Shape(100, 100),
    Shape(1_000, 100),
    Shape(100, 1_000),
    Shape(1_000, 1_000),
    Shape(100, 100, dead=50),
    Shape(100, 100, dead=200),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder:
        rows = [measure(folder / f"lake{number}", shape, chosen.rounds) for number, shape in enumerate(SHAPES)]
    section = to_section(
        "Garbage collection (`gc.py`)",
        [
            f"Medians of {chosen.rounds} rounds, a bare listing of all files and the dry run by turns in one process.",
            "Each commit appends one row to one table; each dead branch had one such commit. *Versions* are the states",
            "of tables that retained commits have. The dry run keeps all history of main; *collect* then keeps one",
            "commit, once. Requests are all that go to the store; Lance opens no version of a table that has a key.",
        ],
        rows,
        heads=HEADS,
        packages=("pylance", "obstore"),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run:
        write_section("gc", section)


def measure(folder: Path, shape: Shape, rounds: int) -> tuple[str, ...]:
    build(folder, shape)
    store = open_store(str(folder), {})
    listing: list[float] = []
    looking: list[float] = []
    for _ in range(rounds):
        listing.append(seconds(lambda: sum(1 for _ in store.list())))
        looking.append(seconds(lambda: ab.open(folder).gc(dry_run=True)))
    with counted_requests() as stores:
        looked = ab.open(folder).gc(dry_run=True)
        told = sum(store.total for store in stores)
    files = sum(1 for _ in store.list())
    with counted_requests() as stores:
        began = time.perf_counter()
        freed = ab.open(folder).gc(keep_last=1)
        collecting = time.perf_counter() - began
        sent = sum(store.total for store in stores)
    if looked.damaged or freed.damaged or ab.open(folder).gc(keep_last=1, dry_run=True).objects:
        raise SystemExit("something is left, or damaged")
    shutil.rmtree(folder)
    sys.stderr.write(f"{shape}: done\n")
    listed, judged = (statistics.median(found) * 1000 for found in (listing, looking))
    versions = shape.tables + shape.commits
    numbers = (shape.tables, shape.commits, shape.dead, files, versions)
    return (
        *(f"{number:,}" for number in numbers),
        f"{listed:.0f}",
        f"{judged:.0f}",
        f"{judged / listed:.1f}x",
        f"{told:,}",
        f"{len(freed.objects):,}",
        f"{collecting * 1000:.0f}",
        f"{sent:,}",
    )


def build(folder: Path, shape: Shape) -> None:
    repo = ab.init(folder)
    for start in range(0, shape.tables, AT_ONCE):
        with repo.transaction() as tx:
            for number in range(start, min(start + AT_ONCE, shape.tables)):
                tx.create_table(key(number), SCHEMA, primary_key=["id"])
                tx.append(key(number), row(0))
    for number in range(shape.commits):
        append(repo, "main", key(number % shape.tables), number + 1)
    for number in range(shape.dead):
        name = f"dead{number}"
        repo.branch_create(name)
        append(repo, name, key(number % shape.tables), -1)
        repo.branch_delete(name)
    then = time.time() - DAYS * 86_400
    for path in folder.rglob("*"):
        os.utime(path, times=(then, then))


def append(repo: Repository, branch: str, table: str, number: int) -> None:
    with repo.transaction(branch) as tx:
        tx.append(table, row(number))


def key(number: int) -> str:
    return f"bench.t{number:04d}"


def row(number: int) -> pa.Table:
    return pa.table({"id": [number], "v": ["some text"]}, schema=SCHEMA)


if __name__ == "__main__":
    main()
