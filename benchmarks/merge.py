"""What it costs to merge a branch, beside raw Lance's `merge_insert` of the same rows, and with ten times the rows.

Both sides have changed: each round branches off, changes some rows of every table on the branch and others on main, and
then only the merge is timed. Everything runs in one process, the contestants by turns. Ratios of medians are what
counts; they go into the section of this benchmark in RESULTS.md. Merges of one and of many tables are also compared on
an S3 server behind a proxy that delays every request.
"""

import argparse
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from _comparison import Finding, medians, seconds, to_section, working_folder, write_section
from _delay import DelayingProxy
from _figures import DELAY_SECONDS

import anabranch as ab
from anabranch.repo.repository import Repository

TABLES = 8
ROWS = 100_000
CHANGED = 50
GROWTH = 10
DELAYED_ROWS = 1_000
NAMES = ("merge", "merge of more", "plan", "raw", "raw of more", "take", "take of more")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("units", pa.int32()),
        ("note", pa.string()),
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only-delayed", action="store_true", help="only merges behind a delay; prints the section")
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder:
        findings = compare_delayed(folder, rounds=max(chosen.rounds // 3, 1))
        if not chosen.only_delayed:
            findings = [*compare(folder, rows=chosen.rows, rounds=chosen.rounds), *findings]
    section = to_section(
        "Merges (`merge.py`)",
        [
            f"Medians of {chosen.rounds} rounds, the contestants by turns in one process: {TABLES} tables of",
            f"{chosen.rows:,} rows, of each of which {CHANGED} scattered rows were changed on the branch and {CHANGED}",
            "others on main; `repo.merge` from the names of branches on, to a commit that raw readers see.",
            f"Raw Lance is {TABLES} times `merge_insert` of the same {CHANGED} rows into a dataset of the same rows;",
            "raw `take` reads as many rows by where they lie, as a merge does with the base's and the target's.",
            f"On S3, behind {DELAY_SECONDS * 1000:.0f} ms of delay a request, tables have {DELAYED_ROWS:,} rows.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pylance", "pyarrow", "duckdb"),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run and not chosen.only_delayed:
        write_section("merge", section)


def compare(folder: Path, *, rows: int, rounds: int) -> list[Finding]:
    small = Lake(folder / "small", rows=rows)
    large = Lake(folder / "large", rows=rows * GROWTH)
    timings: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(rounds + 2):
        for lake, more in ((small, ""), (large, " of more")):
            lake.change_both_sides(number)
            if not more:
                timings["plan"].append(seconds(lake.plan))
            timings[f"merge{more}"].append(seconds(lake.merge))
            timings[f"raw{more}"].append(seconds(lambda lake=lake, n=number: lake.insert_raw(n)))
            timings[f"take{more}"].append(seconds(lambda lake=lake, n=number: lake.take_raw(n)))
    found = medians({name: times[2:] for name, times in timings.items()})
    return [
        Finding("merge", found["merge"], f"{TABLES} raw `merge_insert`", found["raw"], "report"),
        Finding("merge, dry run", found["plan"], f"{TABLES} raw `merge_insert`", found["raw"], "report"),
        Finding(f"merge, {GROWTH}x the rows", found["merge of more"], "merge", found["merge"], "at most 1.3x"),
        Finding(f"raw, {GROWTH}x the rows", found["raw of more"], "raw", found["raw"], "report"),
        Finding(f"raw `take`, {GROWTH}x the rows", found["take of more"], "raw `take`", found["take"], "report"),
    ]


def compare_delayed(folder: Path, *, rounds: int) -> list[Finding]:
    """Merge one table and many on an S3 server that is far away."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.s3_server import s3_server

    timings: dict[int, list[float]] = {1: [], TABLES: []}
    with s3_server(folder / "s3") as options:
        proxy = DelayingProxy(int(options["aws_endpoint"].rpartition(":")[2]))
        with proxy.running() as port:
            reached = {**options, "aws_endpoint": f"http://127.0.0.1:{port}"}
            branches = {
                tables: Branches(
                    ab.init(f"s3://lake/{tables}", storage_options=reached), tables=tables, rows=DELAYED_ROWS
                )
                for tables in timings
            }
            for number in range(rounds + 1):
                for tables, lake in branches.items():
                    lake.change_both_sides(number)
                    proxy.seconds = DELAY_SECONDS
                    timings[tables].append(seconds(lake.merge))
                    proxy.seconds = 0.0
    found = medians({str(tables): times[1:] for tables, times in timings.items()})
    what = f"merge of {TABLES} tables behind {DELAY_SECONDS * 1000:.0f} ms"
    return [Finding(what, found[str(TABLES)], "merge of 1 table", found["1"], "at most 2.5x")]


class Branches:
    """A repository of some tables, and a branch to be merged."""

    def __init__(self, repo: Repository, *, tables: int, rows: int) -> None:
        self._repo = repo
        self._tables = tables
        self._rows = rows
        with repo.transaction() as tx:
            for number in range(tables):
                tx.create_table(key(number), SCHEMA, primary_key=["id"])
                tx.append(key(number), some_rows(np.arange(rows)))

    def change_both_sides(self, round_number: int) -> None:
        self._branch = f"round{round_number}"
        self._repo.branch_create(self._branch)
        for branch, seed in ((self._branch, 2 * round_number), ("main", 2 * round_number + 1)):
            with self._repo.transaction(branch) as tx:
                for number in range(self._tables):
                    tx.upsert(key(number), some_rows(self._chosen(seed), amount=float(seed)))

    def _chosen(self, seed: int) -> np.ndarray:
        # No two rounds, and no two sides, change the same rows.
        step = self._rows // CHANGED
        return np.arange(CHANGED) * step + seed % step

    def plan(self) -> None:
        self._repo.merge(self._branch, into="main", dry_run=True)

    def merge(self) -> None:
        result = self._repo.merge(self._branch, into="main")
        merged = sum(table.counts.updated for table in result.plan.tables)
        if merged != self._tables * CHANGED:
            raise SystemExit(f"{merged} rows were merged, not {self._tables * CHANGED}")


class Lake(Branches):
    """Branches beside raw datasets of the same rows."""

    def __init__(self, folder: Path, *, rows: int) -> None:
        super().__init__(ab.init(folder / "lake"), tables=TABLES, rows=rows)
        self._raw = []
        for number in range(TABLES):
            path = str(folder / f"raw{number}.lance")
            self._raw.append(lance.write_dataset(some_rows(np.arange(rows)), path, enable_stable_row_ids=True))
        self._as_written = [dataset.get_fragments()[0] for dataset in self._raw]

    def insert_raw(self, round_number: int) -> None:
        rows = some_rows(self._chosen(2 * round_number), amount=float(round_number))
        for dataset in self._raw:
            dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def take_raw(self, round_number: int) -> None:
        for fragment in self._as_written:
            fragment.take(self._chosen(2 * round_number).tolist())


def key(number: int) -> str:
    return f"bench.orders{number}"


def some_rows(ids: np.ndarray, *, amount: float = 1.0) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "customer": pa.array([f"customer {number % 1000}" for number in ids.tolist()]),
            "amount": np.full(len(ids), amount),
            "units": (ids % 7).astype(np.int32),
            "note": pa.array([f"note {number}" for number in ids.tolist()]),
        },
        schema=SCHEMA,
    )


if __name__ == "__main__":
    main()
