"""What it costs to merge a branch, beside raw Lance's `merge_insert` of the same rows.

Both sides have changed: each round branches off, changes some rows of every table on the branch and others on main, and
then only the merge is timed. Everything runs in one process, the contestants by turns. Ratios of the least times of all
rounds count, and of processor times beside them; they go into the section of this benchmark in RESULTS.md. Merges of
one and of many tables are also compared on an S3 server behind a proxy that delays every request.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from _comparison import COST_HEADS, Cost, CostFinding, cost, least, to_section, working_folder, write_section
from _delay import DelayingProxy
from _figures import DELAY_SECONDS

import anabranch as ab
from anabranch.repo.repository import Repository

TABLES = 8
ROWS = 100_000
CHANGED = 50
GROWTH = 10
MANY_TABLES = 400
WIDE, NARROW, WIDE_CHANGED = 250, 10, 500
DELAYED_ROWS = 1_000
PARTS = ("rows", "more", "tables", "columns", "delayed")
WARM_UP = 2
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("units", pa.int32()),
        ("note", pa.string()),
    ]
)

Costs = dict[str, list[Cost]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"{', '.join(PARTS)}")
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    findings = []
    with working_folder(chosen.folder) as folder:
        for part in chosen.only:
            for found in measure(part, folder, chosen.rows, chosen.rounds):
                findings.append(found)
                sys.stderr.write(" | ".join(found.to_row()) + "\n")
            shutil.rmtree(folder / part, ignore_errors=True)
    section = to_section(
        "Merges (`merge.py`)",
        [
            f"The least times of {chosen.rounds} rounds, the contestants by turns in one process: {TABLES} tables of",
            f"{chosen.rows:,} rows, of each of which {CHANGED} scattered rows were changed on the branch and {CHANGED}",
            "others on main; `repo.merge` from the names of branches on, to a commit that raw readers see. Where both",
            "sides touched the same rows, each changed a column of its own, and half of the rows are the same.",
            "Raw Lance is `merge_insert` of the same rows into datasets of the same rows, one after the other.",
            'Merges do not wait for the disk (`durability="none"`), as raw Lance does not; a *durable* merge does.',
            f"*{GROWTH}x* are {chosen.rows * GROWTH:,} rows a table. Of each of the {MANY_TABLES} tables one row",
            f"was changed on both sides. The wide table has {WIDE} columns, the narrow one {NARROW};",
            f"{WIDE_CHANGED} rows were changed.",
            f"On S3, behind {DELAY_SECONDS * 1000:.0f} ms of delay a request, tables have {DELAYED_ROWS:,} rows.",
            "*Processor* is the ratio of processor times.",
        ],
        [finding.to_row() for finding in findings],
        heads=COST_HEADS,
        packages=("pylance", "pyarrow", "duckdb"),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run and tuple(chosen.only) == PARTS:
        write_section("merge", section)


def measure(part: str, folder: Path, rows: int, rounds: int) -> Iterator[CostFinding]:
    path = folder / part
    match part:
        case "rows":
            yield from compare_rows(path, rows=rows, rounds=rounds)
        case "more":
            yield from compare_more(path, rows=rows * GROWTH, rounds=rounds)
        case "tables":
            yield from compare_tables(path, rounds=min(rounds, 2))
        case "columns":
            yield from compare_columns(path, rows=rows, rounds=rounds)
        case _:
            yield from compare_delayed(path, rounds=max(rounds // 2, 2))


def compare_rows(folder: Path, *, rows: int, rounds: int) -> Iterator[CostFinding]:
    apart, same = Lake(folder / "apart", Shape(rows=rows)), Lake(folder / "same", Shape(rows=rows, shared=0.5))
    durable = Branches(ab.init(folder / "durable"), Shape(rows=rows))
    found: Costs = {}
    for number in range(rounds + WARM_UP):
        apart.change_both_sides(number)
        note(found, number, "merge", apart.merge)
        note(found, number, "raw", lambda n=number: apart.insert_raw(n))
        same.change_both_sides(number)
        note(found, number, "same", same.merge)
        note(found, number, "raw of same", lambda n=number: same.insert_raw(n))
        durable.change_both_sides(number)
        note(found, number, "plan", durable.plan)
        note(found, number, "durable", durable.merge)
    raw = f"{TABLES} raw `merge_insert`"
    yield CostFinding("merge", least(found["merge"]), raw, least(found["raw"]), "at most 0.9x")
    yield CostFinding("merge, dry run", least(found["plan"]), raw, least(found["raw"]), "-")
    yield CostFinding("merge, durable", least(found["durable"]), "merge", least(found["merge"]), "-")
    what = "merge, both sides touched half of the rows"
    yield CostFinding(what, least(found["same"]), raw, least(found["raw of same"]), "at most 1.3x")


def compare_more(folder: Path, *, rows: int, rounds: int) -> Iterator[CostFinding]:
    lake = Lake(folder, Shape(rows=rows))
    found: Costs = {}
    for number in range(rounds + WARM_UP):
        lake.change_both_sides(number)
        note(found, number, "merge", lake.merge)
        note(found, number, "raw", lambda n=number: lake.insert_raw(n))
    raw = f"{TABLES} raw `merge_insert`"
    yield CostFinding(f"merge, {GROWTH}x the rows", least(found["merge"]), raw, least(found["raw"]), "at most 0.3x")


def compare_tables(folder: Path, *, rounds: int) -> Iterator[CostFinding]:
    lake = Lake(folder, Shape(tables=MANY_TABLES, rows=100, changed=1))
    found: Costs = {}
    for number in range(rounds + 1):
        lake.change_both_sides(number)
        note(found, number + 1, "merge", lake.merge)
        note(found, number + 1, "raw", lambda n=number: lake.insert_raw(n))
    merge, raw = ({name: least(costs) for name, costs in found.items()}[name] for name in ("merge", "raw"))
    yield CostFinding(f"merge of {MANY_TABLES} tables", merge, f"{MANY_TABLES} raw `merge_insert`", raw, "-")
    each = Cost(merge.wall / MANY_TABLES, merge.processor / MANY_TABLES)
    yield CostFinding("one of these tables", each, "10 ms", Cost(0.01, 0.01), "at most 1x")


def compare_columns(folder: Path, *, rows: int, rounds: int) -> Iterator[CostFinding]:
    lakes = {
        columns: Lake(folder / str(columns), Shape(tables=1, rows=rows, changed=WIDE_CHANGED, columns=columns))
        for columns in (NARROW, WIDE)
    }
    found: Costs = {}
    for number in range(rounds + WARM_UP):
        for columns, lake in lakes.items():
            lake.change_both_sides(number)
            note(found, number, f"merge {columns}", lake.merge)
            note(found, number, f"raw {columns}", lambda n=number, lake=lake: lake.insert_raw(n))
    wide, narrow = least(found[f"merge {WIDE}"]), least(found[f"merge {NARROW}"])
    what = f"merge of {WIDE_CHANGED} rows of {WIDE} columns"
    yield CostFinding(what, wide, f"of {NARROW} columns", narrow, "at most 3x")
    yield CostFinding(what, wide, "raw `merge_insert`", least(found[f"raw {WIDE}"]), "-")


def compare_delayed(folder: Path, *, rounds: int) -> Iterator[CostFinding]:
    """Merge one table and many on an S3 server that is far away."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.s3_server import s3_server

    found: Costs = {}
    with s3_server(folder) as options:
        proxy = DelayingProxy(int(options["aws_endpoint"].rpartition(":")[2]))
        with proxy.running() as port:
            reached = {**options, "aws_endpoint": f"http://127.0.0.1:{port}"}
            lakes = {
                tables: Branches(
                    ab.init(f"s3://lake/{tables}", storage_options=reached), Shape(tables=tables, rows=DELAYED_ROWS)
                )
                for tables in (1, TABLES)
            }
            for number in range(rounds + 1):
                for tables, lake in lakes.items():
                    lake.change_both_sides(number)
                    proxy.seconds = DELAY_SECONDS
                    note(found, number + 1, str(tables), lake.merge)
                    proxy.seconds = 0.0
    what = f"merge of {TABLES} tables behind {DELAY_SECONDS * 1000:.0f} ms"
    yield CostFinding(what, least(found[str(TABLES)]), "merge of 1 table", least(found["1"]), "at most 2.5x")


def note(found: Costs, number: int, name: str, action: Callable[[], object]) -> None:
    """Run an action, and note its cost after the rounds to warm up."""
    took = cost(action)
    if number >= WARM_UP:
        found.setdefault(name, []).append(took)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The tables, and how many rows of each a side changes; `shared` is the share that both sides change."""

    tables: int = TABLES
    rows: int = ROWS
    changed: int = CHANGED
    columns: int = len(SCHEMA)
    shared: float = 0.0
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        more = [(f"more{number}", pa.float64()) for number in range(self.columns - len(SCHEMA))]
        object.__setattr__(self, "schema", pa.schema([*SCHEMA, *more]))

    def chosen(self, seed: int) -> np.ndarray:
        # No two rounds, and no two sides, change the same rows, unless they share some.
        step = self.rows // self.changed
        return np.arange(self.changed) * step + seed % step

    def sides(self, round_number: int) -> tuple[np.ndarray, np.ndarray]:
        ours, theirs = self.chosen(2 * round_number), self.chosen(2 * round_number + 1)
        count = int(self.changed * self.shared)
        return ours, np.concatenate([ours[:count], theirs[count:]])

    def some_rows(self, ids: np.ndarray, *, amount: float = 1.0, units: int = 0) -> pa.Table:
        columns = {
            "id": ids,
            "customer": pa.array([f"customer {number % 1000}" for number in ids.tolist()]),
            "amount": np.full(len(ids), amount),
            "units": np.full(len(ids), units, dtype=np.int32),
            "note": pa.array([f"note {number}" for number in ids.tolist()]),
        }
        for number in range(self.columns - len(SCHEMA)):
            columns[f"more{number}"] = np.random.default_rng(number).random(self.rows)[ids]
        return pa.table(columns, schema=self.schema)


class Branches:
    """A repository of some tables, and a branch to be merged."""

    def __init__(self, repo: Repository, shape: Shape) -> None:
        self._repo = repo
        self.shape = shape
        rows = shape.some_rows(np.arange(shape.rows))
        with repo.transaction() as tx:
            for number in range(shape.tables):
                tx.create_table(key(number), shape.schema, primary_key=["id"])
                tx.append(key(number), rows)

    def change_both_sides(self, round_number: int) -> None:
        self._branch = f"round{round_number}"
        self._repo.branch_create(self._branch)
        ours, theirs = self.shape.sides(round_number)
        # Rows are changed once, so the other column is as it was at first.
        changes = (
            (self._branch, self.shape.some_rows(ours, amount=round_number + 2.0)),
            ("main", self.shape.some_rows(theirs, units=round_number + 1)),
        )
        for branch, rows in changes:
            with self._repo.transaction(branch) as tx:
                for number in range(self.shape.tables):
                    tx.upsert(key(number), rows)

    def plan(self) -> None:
        self._repo.merge(self._branch, into="main", dry_run=True)

    def merge(self) -> None:
        result = self._repo.merge(self._branch, into="main")
        merged = sum(table.counts.updated for table in result.plan.tables)
        if merged != self.shape.tables * self.shape.changed:
            raise SystemExit(f"{merged} rows were merged, not {self.shape.tables * self.shape.changed}")


class Lake(Branches):
    """Branches beside raw datasets of the same rows."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        super().__init__(ab.init(folder / "lake", storage_options={"durability": "none"}), shape)
        rows = shape.some_rows(np.arange(shape.rows))
        paths = [str(folder / f"raw{number}.lance") for number in range(shape.tables)]
        self._raw = [lance.write_dataset(rows, path, enable_stable_row_ids=True) for path in paths]

    def insert_raw(self, round_number: int) -> None:
        rows = self.shape.some_rows(self.shape.chosen(2 * round_number), amount=float(round_number + 2))
        for dataset in self._raw:
            dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def key(number: int) -> str:
    return f"bench.orders{number}"


if __name__ == "__main__":
    main()
