"""What it costs to read through a repository: scans, one row by its key, and the history of a row.

Everything runs in this one process, the contestants by turns, so that whatever else the machine does hits all alike.
Ratios of medians are what counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from _comparison import Finding, medians, take_turns, to_section, working_folder, write_section

import anabranch as ab
from anabranch import testing
from anabranch.format.staging import IndexKind, VersionRef, index
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.history.entities import EntityChange
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import Changes, CommitKind, LogEntry
from anabranch.repo.repository import Repository
from anabranch.repo.write.publish import publish

KEY = "bench.orders"
OTHER = "bench.others"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("customer", pa.string()), ("day", pa.date32())])
ROWS = 1_000_000
WARM_UP = 5
FEW_COMMITS, MANY_COMMITS = 10, 2000
CHANGES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    history_rounds = max(chosen.rounds // 20, 5)
    with working_folder(chosen.folder) as folder:
        findings = [
            *compare_reading(folder / "lake", rounds=chosen.rounds),
            *compare_histories(folder, rounds=history_rounds),
        ]
    section = to_section(
        "Reading (`read.py`)",
        [
            f"Medians of {chosen.rounds} rounds (histories {history_rounds}), the",
            "contestants by turns in one process, on the same files. *Now* asks the branch for its head each time. The",
            f"history is that of a row that {CHANGES} commits changed.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pylance", "pyarrow", "obstore"),
        folder=folder,
    )
    sys.stdout.write(section)
    write_section("read", section)


def compare_reading(path: Path, *, rounds: int) -> list[Finding]:
    """Scan a table and look rows up, through a repository and with pylance on the same files."""
    repo = make_repository(path, rows=ROWS)
    entry = repo.snapshot().entries[TableKey.parse(KEY)]
    home = lance.dataset(repo.snapshot()[KEY].uri)
    kept = lance.dataset(home.uri, version=entry.version)
    wanted = random.Random(7)  # noqa: S311 - no secret
    some = {"columns": ["amount"], "filter": "id < 50000"}
    scans = medians(
        take_turns(
            {
                "all": lambda: repo.snapshot()[KEY].to_arrow(),
                "all, raw": kept.to_table,
                "some": lambda: repo.snapshot()[KEY].to_arrow(columns=["amount"], where="id < 50000"),
                "some, raw": lambda: kept.to_table(**some),
            },
            rounds=rounds,
            warm_up=WARM_UP,
        )
    )
    index_key(repo)
    entry = repo.snapshot().entries[TableKey.parse(KEY)]
    kept = lance.dataset(home.uri, version=entry.version)
    lookups = medians(
        take_turns(
            {
                "head": lambda: repo.entity_at(KEY, wanted.randrange(ROWS)),
                "version": lambda: repo.entity_at(KEY, wanted.randrange(ROWS), version=3),
                "raw": lambda: kept.to_table(filter=f"id = {wanted.randrange(ROWS)}").to_pylist(),
                "raw, opened": lambda: (
                    lance.dataset(home.uri, version=entry.version)
                    .to_table(filter=f"id = {wanted.randrange(ROWS)}")
                    .to_pylist()
                ),
            },
            rounds=rounds,
            warm_up=WARM_UP,
        )
    )
    size = f"{ROWS:,} rows"
    return [
        Finding(f"scan {size}", scans["all"], "raw pylance, handle kept", scans["all, raw"], "at most 1.05x"),
        Finding(
            "scan one column of 50,000 rows",
            scans["some"],
            "raw pylance, handle kept",
            scans["some, raw"],
            "at most 1.05x",
        ),
        Finding(
            f"`entity_at` now, indexed, {size}",
            lookups["head"],
            "raw pylance, handle kept",
            lookups["raw"],
            "at most 1.5x",
        ),
        Finding(
            f"`entity_at` a version, indexed, {size}",
            lookups["version"],
            "raw pylance, handle kept",
            lookups["raw"],
            "at most 1.5x",
        ),
        Finding(
            f"`entity_at` now, indexed, {size}",
            lookups["head"],
            "raw pylance, opened anew",
            lookups["raw, opened"],
            "-",
        ),
    ]


def compare_histories(folder: Path, *, rounds: int) -> list[Finding]:
    """The history of a row that changed five times, in histories that are short and long, by commits of any table."""
    repos = {
        "few": make_history(folder / "few", commits=FEW_COMMITS, key=KEY),
        "others": make_history(folder / "others", commits=MANY_COMMITS, key=OTHER),
        "many": make_history(folder / "many", commits=MANY_COMMITS, key=KEY),
    }
    contestants = {name: lambda repo=repo: check(repo.entity_history(KEY, 1)) for name, repo in repos.items()}
    took = medians(take_turns(contestants, rounds=rounds, warm_up=1))
    short = f"the same in {FEW_COMMITS} commits"
    return [
        Finding(
            f"`entity_history` in {MANY_COMMITS:,} commits, {FEW_COMMITS} of them to the table",
            took["others"],
            short,
            took["few"],
            "-",
        ),
        Finding(
            f"`entity_history` in {MANY_COMMITS:,} commits, all to the table", took["many"], short, took["few"], "-"
        ),
    ]


def check(changes: list[EntityChange]) -> None:
    if len(changes) != CHANGES:
        raise RuntimeError(f"{len(changes)} changes were found")


def make_repository(path: Path, *, rows: int) -> Repository:
    repo = ab.init(path, actor="bench")
    with repo.transaction(message="first") as tx:
        for key in (KEY, OTHER):
            tx.create_table(key, SCHEMA, primary_key=["id"])
        tx.append(KEY, make_rows(0, rows))
        tx.append(OTHER, make_rows(0, min(rows, 100)))
    return repo


def make_rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    columns = {
        "id": ids,
        "amount": np.random.default_rng(7).random(count),
        "customer": pa.array([f"customer {number % 1000}" for number in ids.tolist()]),
        "day": pa.array(ids % 10_000, pa.int32()).cast(pa.date32()),
    }
    return pa.table(columns, schema=SCHEMA)


def index_key(repo: Repository) -> None:
    """Build an index on the key, and commit it: version 3."""
    key = TableKey.parse(KEY)
    entry = repo.snapshot().entries[key]
    indexed = index(
        VersionRef(home=testing.config_of(repo).home_of(entry), version=entry.version), "id", IndexKind.BTREE
    )
    publish(
        testing.repo_store_of(repo),
        expected=testing.repo_store_of(repo).heads.get(BranchName(MAIN)),
        changes={key: replace(entry, version=indexed.version)},
        spec=CommitSpec(message="index", kind=CommitKind.CHANGE, metadata={}),
        rebase=refuse_rebase,
    )
    repo.sync_branch()


def refuse_rebase(head: LogEntry) -> Changes:
    raise RuntimeError(f"another writer moved {head.branch}")


def make_history(path: Path, *, commits: int, key: str) -> Repository:
    """A repository of so many commits, half of the first ones to the row that is asked for."""
    repo = make_repository(path, rows=1000)
    for number in range(commits):
        is_change = number < 2 * (CHANGES - 1) and number % 2 == 0
        with repo.transaction(message="one row") as tx:
            if is_change:
                tx.upsert(KEY, make_rows(1, 1).set_column(1, "amount", pa.array([float(number)])))
            else:
                tx.upsert(KEY if number < FEW_COMMITS else key, make_rows(2 + number % 50, 1))
    return repo


if __name__ == "__main__":
    main()
