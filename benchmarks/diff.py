"""What it costs to compare two states of a table, beside reading both and joining them in DuckDB and in Spark.

Everything runs on the same files in one process, the contestants by turns; Spark's Java runs beside it. All of them
return the rows that differ, with their values before and after. Where a branch has rewritten every row, all are read:
by that our own two engines, in this process and on Spark's workers, are compared with the joins. Ratios of medians are
what counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
from _comparison import Finding, medians, take_turns, to_section, working_folder, write_section

import anabranch as ab
from anabranch.repo.repository import Repository

KEY = "bench.orders"
ROWS = 5_000_000
ROWS_AT_ONCE = 1_000_000
# Each branch changes one row in so many.
BRANCHES = {"1%": 100, "0.01%": 10_000}
# The first of them.
CHANGED = 7
# A smaller table, of which a branch changes a few rows.
SMALL_KEY, SMALL_ROWS, SMALL_EVERY = "bench.few", 1_000_000, 5_000
SMALL = "200 rows of 1,000,000"
# This one rewrites all rows and changes as many as the first.
REWRITTEN = "rewritten"
AIMS = {"1%": ("at most 1/10", "at most 1/40"), "0.01%": ("at most 1/20", "at most 1/80")}
SMALL_AIM = "at most 1/25"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("tax", pa.float64()),
        ("units", pa.int32()),
        ("day", pa.date32()),
        ("store", pa.int64()),
        ("note", pa.string()),
    ]
)
VALUES = SCHEMA.names[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out, as where it is not installed")
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    with_spark = not chosen.no_spark and find_spec("pyspark") is not None
    with working_folder(chosen.folder) as folder:
        repo = make_repository(folder / "lake", rows=chosen.rows)
        findings = compare(repo, rows=chosen.rows, rounds=chosen.rounds, with_spark=with_spark)
    section = to_section(
        "Differences (`diff.py`)",
        [
            f"Medians of {chosen.rounds} rounds, the contestants by turns in one process, on the same files:",
            f"{chosen.rows:,} rows of {len(SCHEMA)} columns, one of them changed in scattered rows. Each finds the",
            "rows that differ with all values before and after: `repo.diff(...).to_arrow()` from the names of refs on,",
            "the others by reading both versions and a full join on the key. A diff of updates reads the changed",
            "columns of the rows as they were, raw `take` all of them.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pylance", "pyarrow", "duckdb", *(["pyspark"] if with_spark else [])),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run:
        write_section("diff", section)


def compare(repo: Repository, *, rows: int, rounds: int, with_spark: bool) -> list[Finding]:
    contestants: dict[str, Callable[[], object]] = {}
    session = ab.spark_session() if with_spark else None
    for name, every in BRANCHES.items():
        expected = rows // every
        branch = f"every{every}"
        contestants[f"diff {name}"] = lambda b=branch, n=expected: check(diff(repo, b, engine="local"), n)
        contestants[f"take {name}"] = lambda e=every, n=expected: check(take_raw(repo, rows, e), n)
        contestants[f"count {name}"] = lambda b=branch, n=expected: check(count(repo, b), n)
        contestants[f"duckdb {name}"] = lambda b=branch, n=expected: check(join_in_duckdb(repo, b), n)
        if session is not None:
            contestants[f"spark {name}"] = lambda b=branch, n=expected: check(join_in_spark(session, repo, b), n)
    few = SMALL_ROWS // SMALL_EVERY
    contestants["diff few"] = lambda: check(diff(repo, "few", SMALL_KEY, engine="local"), few)
    contestants["duckdb few"] = lambda: check(join_in_duckdb(repo, "few", SMALL_KEY), few)
    changed = rows // BRANCHES["1%"]
    contestants["rewritten local"] = lambda: check(diff(repo, REWRITTEN, engine="local"), changed)
    contestants["rewritten duckdb"] = lambda: check(join_in_duckdb(repo, REWRITTEN), changed)
    if session is not None:
        contestants["rewritten spark"] = lambda: check(diff(repo, REWRITTEN, engine="spark"), changed)
        contestants["rewritten join"] = lambda: check(join_in_spark(session, repo, REWRITTEN), changed)
    took = medians(take_turns(contestants, rounds=rounds, warm_up=1))
    if session is not None:
        session.stop()
    findings = []
    for name, aims in AIMS.items():
        found = took[f"diff {name}"]
        what = f"diff, {name} changed"
        findings.append(Finding(what, found, "full join in DuckDB", took[f"duckdb {name}"], aims[0]))
        if session is not None:
            findings.append(Finding(what, found, "full join in Spark", took[f"spark {name}"], aims[1]))
        taken = took[f"take {name}"]
        findings.append(Finding(what, found, "raw `take` of these rows as they were", taken, "-"))
        findings.append(Finding(f"counts, {name} changed", took[f"count {name}"], "the rows themselves", found, "-"))
    findings.append(
        Finding(f"diff, {SMALL} changed", took["diff few"], "full join in DuckDB", took["duckdb few"], SMALL_AIM)
    )
    here = took["rewritten local"]
    findings.append(Finding("diff here, all rewritten", here, "full join in DuckDB", took["rewritten duckdb"], "-"))
    if session is not None:
        what, there = "diff on Spark, all rewritten", took["rewritten spark"]
        findings.append(Finding(what, there, "full join in Spark", took["rewritten join"], "-"))
        findings.append(Finding(what, there, "diff here", here, "-"))
    return findings


def check(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{found} rows differ, not {expected}")


def diff(repo: Repository, branch: str, key: str = KEY, *, engine: str = "auto") -> int:
    return len(repo.diff("main", branch, engine=engine).to_arrow()[key])


def count(repo: Repository, branch: str) -> int:
    return repo.diff("main", branch).summary()[KEY].updated


def take_raw(repo: Repository, rows: int, every: int) -> int:
    """Read the rows that a branch changed as main has them, which lie as they were written."""
    return int(lance.dataset(repo.snapshot()[KEY].uri).take(range(CHANGED, rows, every)).num_rows)


def join_in_duckdb(repo: Repository, branch: str, key: str = KEY) -> int:
    connection = duckdb.connect(":memory:")
    connection.register("o", repo.snapshot_of("main")[key].to_dataset())
    connection.register("n", repo.snapshot_of(branch)[key].to_dataset())
    differs = " OR ".join(f"o.{name} IS DISTINCT FROM n.{name}" for name in VALUES)
    found = connection.execute(
        f"SELECT o.*, n.* FROM o FULL JOIN n ON o.id = n.id WHERE o.id IS NULL OR n.id IS NULL OR {differs}"  # noqa: S608
    ).to_arrow_table()
    connection.close()
    return int(found.num_rows)


def join_in_spark(session: Any, repo: Repository, branch: str) -> int:
    """Read both versions by the same data source as everybody, and bring the rows that differ here as Arrow."""
    old, new = (session.read.format("anabranch").options(repo=repo.uri, ref=ref).load(KEY) for ref in ("main", branch))
    for name in SCHEMA.names:
        new = new.withColumnRenamed(name, f"new_{name}")
    differs = " OR ".join(f"NOT ({name} <=> new_{name})" for name in SCHEMA.names)
    found = old.join(new, old["id"] == new["new_id"], "full").where(differs)
    return int(found.toArrow().num_rows)


def make_repository(path: Path, *, rows: int) -> Repository:
    repo = ab.init(path, actor="bench")
    with repo.transaction(message="first") as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        for start in range(0, rows, ROWS_AT_ONCE):
            tx.append(KEY, make_rows(start, min(ROWS_AT_ONCE, rows - start)), check_keys=False)
    with repo.transaction(message="small") as tx:
        tx.create_table(SMALL_KEY, SCHEMA, primary_key=["id"])
        tx.append(SMALL_KEY, make_rows(0, SMALL_ROWS), check_keys=False)
    repo.branch_create("few")
    repo.update(SMALL_KEY, {"amount": "amount + 1"}, f"id % {SMALL_EVERY} = {CHANGED}", branch="few")
    for every in BRANCHES.values():
        repo.branch_create(f"every{every}")
        with repo.transaction(f"every{every}", message="some rows") as tx:
            tx.update(KEY, {"amount": "amount + 1"}, where=f"id % {every} = {CHANGED}")
    repo.branch_create(REWRITTEN)
    with repo.transaction(REWRITTEN, message="all rows") as tx:
        tx.update(KEY, {"amount": "amount + 1"}, where=f"id % {BRANCHES['1%']} = {CHANGED}")
        tx.update(KEY, {"units": "units"}, where="true")
    return repo


def make_rows(start: int, count: int) -> pa.Table:
    random = np.random.default_rng(start)
    ids = np.arange(start, start + count)
    names = pa.array([f"customer {number}" for number in range(1000)])
    notes = pa.array([f"note {number} of some length" for number in range(5000)])
    columns = {
        "id": ids,
        "customer": names.take(pa.array(random.integers(0, len(names), count))),
        "amount": random.random(count),
        "tax": random.random(count),
        "units": random.integers(0, 100, count).astype(np.int32),
        "day": pa.array(ids % 10_000, pa.int32()).cast(pa.date32()),
        "store": random.integers(0, 1 << 40, count),
        "note": notes.take(pa.array(random.integers(0, len(notes), count))),
    }
    return pa.table(columns, schema=SCHEMA)


if __name__ == "__main__":
    main()
