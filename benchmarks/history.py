"""What it costs to ask who changed a row, beside a Dolt implementation, and what many tables cost.

- The history of one row after many commits to its table, by the number of changes of the row.
- `blame` of a large table after many commits.
- Both beside `doltlite` (Dolt's history in SQLite's interface) on the same rows and commits, if it is installed. It
  replaces the SQLite of its process, so it runs in a process of its own, which reports the time of each query.
- Many tables created in one transaction beside `write_dataset` of as many empty tables, and the snapshot of many tables
  beside that of one.

Ratios of medians are what counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import lance
import pyarrow as pa
from _comparison import Finding, medians, seconds, take_turns, to_section, working_folder, write_section

import anabranch as ab
from anabranch.repo.repository import Repository

KEY = "bench.rows"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("note", pa.string())])
# Each commit changes this number of rows.
CHANGED = 50
ROW = 7
PEER = """
import json, sys, time
import doltlite, sqlite3
rows, commits, changed, row, path = *map(int, sys.argv[1:5]), sys.argv[5]
made = sqlite3.connect(path)
made.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, note TEXT)")
made.executemany("INSERT INTO t VALUES (?, 0, 'x')", ((number,) for number in range(rows)))
made.execute("SELECT dolt_commit('-A', '-m', 'first')").fetchall()
for number in range(1, commits):
    ids = [(number, (number * 7919 + at * 104729) % rows) for at in range(changed)]
    made.executemany("UPDATE t SET v = ? WHERE id = ?", ids)
    made.execute("SELECT dolt_commit('-A', '-m', 'next')").fetchall()
took = {}
for name, query in (
    ("blame", "SELECT * FROM dolt_blame_t"),
    ("history", f"SELECT * FROM dolt_diff_t WHERE to_id = {row} OR from_id = {row}"),
):
    times = []
    for _ in range(3):
        began = time.perf_counter()
        made.execute(query).fetchall()
        times.append(time.perf_counter() - began)
    took[name] = sorted(times)[1] * 1000
print(json.dumps(took))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=2000, help="commits before the history of a row")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table to blame")
    parser.add_argument("--blame-commits", type=int, default=200)
    parser.add_argument("--peer-rows", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=2000, help="tables to create; half of them for the snapshot")
    parser.add_argument("--peer-python", help="a Python with doltlite; this one by default")
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="run these parts and only print the section")
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder:
        findings = [finding for name in chosen.only or PARTS for finding in PARTS[name](folder, chosen)]
    section = to_section(
        "History and many tables (`history.py`)",
        [
            f"Medians of {chosen.rounds} rounds. The history of a row is read by a new handle each time, after",
            f"{chosen.commits:,} commits to its table. `blame` is of {chosen.rows:,} rows after {chosen.blame_commits}",
            f"commits that changed {CHANGED} rows each; beside doltlite the table has {chosen.peer_rows:,} rows.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pylance", "pyarrow", "duckdb"),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run and not chosen.only:
        write_section("history", section)


def make(folder: Path, *, rows: int, commits: int, changed: int) -> Repository:
    """Make a table whose commits change scattered rows: `ROW` in the first and last, the next row in the first only."""
    repo = ab.init(folder)
    with repo.transaction(message="first") as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table({"id": range(rows), "v": [0] * rows, "note": ["x"] * rows}, schema=SCHEMA))
    for number in range(1, commits):
        ids = sorted({(number * 7919 + at * 104729) % rows for at in range(changed)} - {ROW, ROW + 1})
        if number == commits - 1:
            ids = sorted({*ids, ROW})
        with repo.transaction(message="next") as tx:
            tx.upsert(KEY, pa.table({"id": ids, "v": [number] * len(ids), "note": ["x"] * len(ids)}, schema=SCHEMA))
    return repo


def history(folder: Path, *, commits: int, rounds: int) -> list[Finding]:
    make(folder, rows=10_000, commits=commits, changed=1)
    contestants = {
        "changed": lambda: len(ab.open(folder).entity_history(KEY, ROW)),
        "middle": lambda: len(ab.open(folder).entity_history(KEY, (commits // 2 * 7919) % 10_000)),
        "unchanged": lambda: len(ab.open(folder).entity_history(KEY, ROW + 1)),
        "log": lambda: len(ab.open(folder).list_commits(limit=None)),
    }
    took = medians(take_turns(contestants, rounds=rounds, warm_up=1))
    return [
        Finding("history of a row, two changes", took["changed"], "100 ms", 100, "at most 1x"),
        Finding("history of a row, changed in the middle", took["middle"], "100 ms", 100, "at most 1x"),
        Finding("history of a row, one change", took["unchanged"], "100 ms", 100, "at most 1x"),
        Finding("history of a row, one change", took["unchanged"], "the list of the commits", took["log"], "-"),
    ]


def large_blame(folder: Path, *, rows: int, commits: int) -> list[Finding]:
    repo = make(folder, rows=rows, commits=commits, changed=CHANGED)
    took = seconds(lambda: repo.blame(KEY)) * 1000
    cells = seconds(lambda: repo.blame(KEY, columns=["v"])) * 1000
    return [
        Finding("blame of all rows", took, "5 s", 5000, "at most 1x"),
        Finding("blame of the cells of a column", cells, "blame of all rows", took, "-"),
    ]


def beside_peer(folder: Path, chosen: argparse.Namespace) -> list[Finding]:
    if chosen.peer_python is None and find_spec("doltlite") is None:
        return []
    given = [chosen.peer_rows, chosen.blame_commits, CHANGED, ROW, folder / "peer.db"]
    answer = subprocess.run(  # noqa: S603 - this program itself
        [chosen.peer_python or sys.executable, "-c", PEER, *map(str, given)], capture_output=True, text=True, check=True
    )
    peer = json.loads(answer.stdout.splitlines()[-1])
    repo = make(folder / "beside", rows=chosen.peer_rows, commits=chosen.blame_commits, changed=CHANGED)
    contestants = {"blame": lambda: repo.blame(KEY), "history": lambda: repo.entity_history(KEY, ROW)}
    took = medians(take_turns(contestants, rounds=chosen.rounds, warm_up=0))
    return [
        Finding("blame beside doltlite", took["blame"], "`dolt_blame_t`", peer["blame"], "-"),
        Finding("history of a row beside doltlite", took["history"], "`dolt_diff_t` of the row", peer["history"], "-"),
    ]


def many_tables(folder: Path, *, tables: int, rounds: int) -> list[Finding]:
    def create_raw() -> None:
        for number in range(tables):
            uri = str(folder / "raw" / f"t{number}.lance")
            lance.write_dataset(SCHEMA.empty_table(), uri, enable_stable_row_ids=True)

    def create(root: Path, count: int) -> None:
        with ab.init(root).transaction(message="create") as tx:
            for number in range(count):
                tx.create_table(f"bench.t{number}", SCHEMA, primary_key=["id"])

    raw, ours = seconds(create_raw) * 1000, seconds(lambda: create(folder / "many", tables)) * 1000
    for count in (1, tables // 2):
        create(folder / f"tables{count}", count)
        with ab.open(folder / f"tables{count}").transaction(message="use") as tx:
            tx.append("bench.t0", pa.table({"id": [1], "v": [1], "note": ["x"]}, schema=SCHEMA))
    opened = {count: lambda n=count: ab.open(folder / f"tables{n}").snapshot() for count in (1, tables // 2)}
    took = medians(take_turns({str(count): run for count, run in opened.items()}, rounds=rounds * 20, warm_up=5))
    return [
        Finding(f"{tables} tables created in one transaction", ours, "`write_dataset` of each", raw, "at most 2x"),
        Finding(f"snapshot of {tables // 2} tables", took[str(tables // 2)], "of one table", took["1"], "at most 2x"),
    ]


PARTS: Mapping[str, Callable[[Path, argparse.Namespace], list[Finding]]] = {
    "history": lambda folder, chosen: history(folder / "long", commits=chosen.commits, rounds=chosen.rounds),
    "blame": lambda folder, chosen: large_blame(folder / "large", rows=chosen.rows, commits=chosen.blame_commits),
    "peer": beside_peer,
    "tables": lambda folder, chosen: many_tables(folder, tables=chosen.tables, rounds=chosen.rounds),
}


if __name__ == "__main__":
    main()
