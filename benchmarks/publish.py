"""What it costs to publish a commit, to make a branch and to open a snapshot, beside other table formats.

Everything runs in this one process, the contestants by turns, so that whatever else the machine does hits all alike.
Ratios of medians are what counts; they go into the section of this benchmark in RESULTS.md.
"""

import argparse
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import deltalake
import lance
import pyarrow as pa
from _comparison import Finding, medians, take_turns, to_section, working_folder, write_section
from _delay import DelayingProxy
from pyiceberg.catalog.sql import SqlCatalog

import anabranch as ab
from anabranch import testing
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import Changes, CommitKind, LogEntry, TableEntry
from anabranch.repo.repository import Repository
from anabranch.repo.write.publish import Attempt
from anabranch.testing import CountingStore

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
ROW = pa.table({"id": [1], "amount": [1.0]}, schema=SCHEMA)
WARM_UP = 10
MANY_TABLES = 1000
TABLES_OF_A_COMMIT = 8
DELAY_SECONDS = 0.03
FEW_COMMITS, MANY_COMMITS = 10, 2000


class AcknowledgingStore(CountingStore):
    """Remember when a branch's log last got an entry: from then on a commit is published."""

    acknowledged = 0.0

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        answer = send()
        if operation == "put_if_absent" and path.startswith("_versions/"):
            self.acknowledged = time.perf_counter()
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder:
        findings = [
            *compare_appends(folder, rounds=chosen.rounds),
            *compare_durability(folder, rounds=chosen.rounds),
            *compare_branches(folder, rounds=chosen.rounds),
            *compare_opening(folder, rounds=chosen.rounds),
            *compare_at_latency(folder / "s3", rounds=max(3, chosen.rounds // 10)),
        ]
    rounds = f"Medians of {chosen.rounds} rounds, the contestants by turns in one process."
    section = to_section(
        "Publishing, branching, opening (`publish.py`)",
        [
            f"{rounds} Every append adds one row of two",
            "columns to a table and commits it: raw pylance opening the dataset by its path each time, and on a handle",
            "that is kept; pyiceberg with an SQLite catalog; deltalake on a table that is kept. *Published* is when",
            "the log entry is put, *settled* when plain Lance readers see the rows too and the call returns.",
            'These appends do not wait for the disk (`durability="none"`), as raw Lance, pyiceberg and deltalake do',
            "not. A *durable* commit (the default) survives a power loss. Beside it: SQLite, one row in one",
            "transaction with `synchronous=FULL`. *Behind 30 ms* is a real S3 server on loopback whose requests arrive",
            "30 ms later; there the milliseconds of requests are their number.",
        ],
        [finding.to_row() for finding in findings],
        packages=("pylance", "pyarrow", "obstore", "pyiceberg", "deltalake"),
        folder=folder,
    )
    sys.stdout.write(section)
    write_section("publish", section)


def compare_appends(folder: Path, *, rounds: int) -> list[Finding]:
    """Commit one row after the other to a table of each kind."""
    repo, store = make_repository(folder / "lake")
    published: list[float] = []

    def append_to_ours() -> None:
        began = time.perf_counter()
        with repo.transaction(message="one row") as tx:
            tx.append("bench.orders", ROW)
        published.append(store.acknowledged - began)

    contestants: dict[str, Callable[[], None]] = {
        "settled": append_to_ours,
        "raw pylance, by path": append_by_path(folder / "by_path.lance"),
        "raw pylance, handle kept": append_by_handle(folder / "by_handle.lance"),
        "pyiceberg": append_to_iceberg(folder / "iceberg"),
        "deltalake": append_to_delta(folder / "delta"),
    }
    timings = take_turns(contestants, rounds=rounds, warm_up=WARM_UP)
    took = medians({**timings, "published": published[WARM_UP:]})
    aims = {
        ("published", "raw pylance, by path"): "at most 2x",
        ("published", "raw pylance, handle kept"): "at most 2x",
        ("settled", "raw pylance, by path"): "at most 1.6x",
        ("settled", "raw pylance, handle kept"): "-",
        ("published", "pyiceberg"): "at most 1/10",
        ("settled", "pyiceberg"): "at most 1/10",
        ("settled", "deltalake"): "-",
    }
    return [
        Finding(f"append one row, until {what}", took[what], against, took[against], aim)
        for (what, against), aim in aims.items()
    ]


def compare_durability(folder: Path, *, rounds: int) -> list[Finding]:
    """Commit one row to each of some tables, with and without waiting for the disk."""
    database = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE orders (id INTEGER, amount REAL)")
    contestants: dict[str, Callable[[], None]] = {
        "SQLite FULL": lambda: ignore(database.execute("INSERT INTO orders VALUES (1, 1.0)"))
    }
    by_path = [append_by_path(folder / f"raw{number}.lance") for number in range(TABLES_OF_A_COMMIT)]

    def append_to_all() -> None:
        for append in by_path:
            append()

    contestants["raw"] = append_to_all
    for tables in (1, TABLES_OF_A_COMMIT):
        for durability in ("full", "none"):
            path = folder / f"durability-{durability}-{tables}"
            contestants[f"{durability} {tables}"] = append_to_tables(path, tables=tables, durability=durability)
    took = medians(take_turns(contestants, rounds=rounds, warm_up=WARM_UP))
    database.close()
    many = f"one row to each of {TABLES_OF_A_COMMIT} tables, durable"
    return [
        Finding("append one row, durable", took["full 1"], "without durability", took["none 1"], "at most 1.6x"),
        Finding(
            many,
            took[f"full {TABLES_OF_A_COMMIT}"],
            "without durability",
            took[f"none {TABLES_OF_A_COMMIT}"],
            "at most 1.3x",
        ),
        Finding("append one row, durable", took["full 1"], "SQLite FULL", took["SQLite FULL"], "-"),
        Finding(
            f"one row to each of {TABLES_OF_A_COMMIT} tables",
            took[f"none {TABLES_OF_A_COMMIT}"],
            f"{TABLES_OF_A_COMMIT} raw appends by path",
            took["raw"],
            "at most 1.2x",
        ),
        Finding(
            many, took[f"full {TABLES_OF_A_COMMIT}"], f"{TABLES_OF_A_COMMIT} raw appends by path", took["raw"], "-"
        ),
    ]


def append_to_tables(path: Path, *, tables: int, durability: str) -> Callable[[], None]:
    repo = ab.init(path, actor="bench", durability=durability)
    keys = [f"bench.t{number}" for number in range(tables)]
    with repo.transaction(message="first") as tx:
        for key in keys:
            tx.create_table(key, SCHEMA)

    def append() -> None:
        with repo.transaction(message="one row") as tx:
            for key in keys:
                tx.append(key, ROW)

    return append


def compare_branches(folder: Path, *, rounds: int) -> list[Finding]:
    """Branch a whole repository, and one Lance dataset."""
    repo, _ = make_repository(folder / "branched")
    add_tables(repo, MANY_TABLES)
    dataset = lance.write_dataset(SCHEMA.empty_table(), str(folder / "branched.lance"))
    numbers = count()
    contestants = {
        "ours": lambda: repo.branch_create(f"b{next(numbers)}"),
        "raw": lambda: dataset.create_branch(f"b{next(numbers)}"),
    }
    took = medians(take_turns(contestants, rounds=rounds, warm_up=0))
    what = f"branch a repository of {MANY_TABLES:,} tables"
    return [Finding(what, took["ours"], "raw `create_branch` of one table", took["raw"], "at most 2x")]


def compare_opening(folder: Path, *, rounds: int) -> list[Finding]:
    """Open a repository and its newest snapshot, early and late in its history."""
    findings = []
    for tables in (1, MANY_TABLES):
        contestants = {}
        for commits in (FEW_COMMITS, MANY_COMMITS):
            repo, _ = make_repository(folder / f"opened-{tables}-{commits}")
            add_tables(repo, tables)
            add_commits(repo, tables=tables, until=commits)
            contestants[repo.uri] = lambda uri=repo.uri: ab.open(uri).snapshot()
        early, late = medians(take_turns(contestants, rounds=rounds, warm_up=0)).values()
        what = f"open a snapshot of {tables:,} table{'s' if tables > 1 else ''} after {MANY_COMMITS:,} commits"
        findings.append(Finding(what, late, f"the same after {FEW_COMMITS} commits", early, "flat"))
    return findings


def compare_at_latency(folder: Path, *, rounds: int) -> list[Finding]:
    """Append and merge on a real S3 server that is far away."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.s3_server import s3_server

    with s3_server(folder) as options:
        proxy = DelayingProxy(int(options["aws_endpoint"].rpartition(":")[2]))
        with proxy.running() as port:
            lake = FarLake(proxy, {**options, "aws_endpoint": f"http://127.0.0.1:{port}"})
            return lake.compare(rounds=rounds)


class FarLake:
    """A repository of some tables, and raw datasets, behind a proxy."""

    def __init__(self, proxy: DelayingProxy, options: dict[str, str]) -> None:
        self._proxy, self._options = proxy, options
        self._repo = ab.init("s3://lake/far", storage_options=options)
        self._keys = [f"bench.t{number}" for number in range(TABLES_OF_A_COMMIT)]
        self._raw = [f"s3://lake/raw{number}.lance" for number in range(TABLES_OF_A_COMMIT)]
        self._branches = count()
        with self._repo.transaction(message="first") as tx:
            for key in self._keys:
                tx.create_table(key, SCHEMA)
        for uri in self._raw:
            lance.write_dataset(SCHEMA.empty_table(), uri, storage_options=options, enable_stable_row_ids=True)

    def compare(self, *, rounds: int) -> list[Finding]:
        contestants: dict[str, Callable[[], None]] = {
            "one": lambda: self._append(self._keys[:1]),
            "many": lambda: self._append(self._keys),
            "raw": self._append_raw,
        }
        for append in contestants.values():
            append()
        self._proxy.seconds = DELAY_SECONDS
        took = medians(take_turns(contestants, rounds=rounds, warm_up=1))
        self._proxy.requests = 0
        self._append(self._keys[:1])
        requests = self._proxy.requests
        merged = {tables: [self._merge(self._keys[:tables]) for _ in range(rounds)] for tables in (1, len(self._keys))}
        merges = medians({str(tables): timings[1:] for tables, timings in merged.items()})
        eight = f"{TABLES_OF_A_COMMIT} tables"
        return [
            Finding("requests of one row, until settled, behind 30 ms", requests, "one request", 1, "at most 12x"),
            Finding(
                f"one row to each of {eight}, behind 30 ms", took["many"], "raw appends", took["raw"], "at most 0.6x"
            ),
            Finding(
                f"merge of {eight}, behind 30 ms", merges[str(len(self._keys))], "of one", merges["1"], "at most 2.5x"
            ),
        ]

    def _append(self, keys: list[str]) -> None:
        with self._repo.transaction(message="one row") as tx:
            for key in keys:
                tx.append(key, ROW)

    def _append_raw(self) -> None:
        for uri in self._raw:
            lance.write_dataset(ROW, uri, mode="append", storage_options=self._options)

    def _merge(self, keys: list[str]) -> float:
        """Change tables on main and on a branch, and return how long the merge took."""
        self._proxy.seconds = 0
        name = f"b{next(self._branches)}"
        self._repo.branch_create(name)
        branch = ab.open("s3://lake/far", branch=name, storage_options=self._options)
        with branch.transaction(message="one row") as tx:
            for key in keys:
                tx.append(key, ROW)
        self._append(keys)
        self._proxy.seconds = DELAY_SECONDS
        began = time.perf_counter()
        self._repo.merge(name, into="main")
        return time.perf_counter() - began


def append_by_path(path: Path) -> Callable[[], None]:
    lance.write_dataset(SCHEMA.empty_table(), str(path), enable_stable_row_ids=True)
    return lambda: ignore(lance.write_dataset(ROW, str(path), mode="append"))


def append_by_handle(path: Path) -> Callable[[], None]:
    dataset = lance.write_dataset(SCHEMA.empty_table(), str(path), enable_stable_row_ids=True)
    return lambda: ignore(dataset.insert(ROW))


def append_to_iceberg(path: Path) -> Callable[[], None]:
    path.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}/warehouse")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.orders", schema=SCHEMA)
    return lambda: table.append(ROW)


def append_to_delta(path: Path) -> Callable[[], None]:
    table = deltalake.DeltaTable.create(str(path), schema=deltalake.Schema.from_arrow(SCHEMA))
    return lambda: deltalake.write_deltalake(table, ROW, mode="append")


def make_repository(path: Path) -> tuple[Repository, AcknowledgingStore]:
    """Make a repository with one empty table. Return it and the store that it writes to."""
    made = ab.init(path, actor="bench", durability="none")
    store = AcknowledgingStore(testing.store_of(made))
    repo = Repository(replace(testing.config_of(made), store=store), engines=made._engines)
    with repo.transaction(message="first") as tx:
        tx.create_table("bench.orders", SCHEMA)
    return repo, store


def add_tables(repo: Repository, tables: int) -> None:
    publish_all(repo, [{key_of(number): entry_of(number, commit=1) for number in range(tables)}])


def add_commits(repo: Repository, *, tables: int, until: int) -> None:
    made = len(repo.list_commits(limit=None))
    publish_all(repo, [{key_of(n % tables): entry_of(n % tables, commit=n)} for n in range(made, until)])


def publish_all(repo: Repository, many: list[Changes]) -> None:
    """Make real commits of table entries that point to nothing: here no table is opened."""
    spec = CommitSpec(message="nightly load", kind=CommitKind.LOAD, metadata={})
    head = testing.repo_store_of(repo).heads.get(BranchName(MAIN))
    for changes in many:
        head = Attempt(testing.repo_store_of(repo), head, changes, spec, refuse_rebase).put().entry


def refuse_rebase(head: LogEntry) -> Changes:
    raise RuntimeError(f"another writer moved {head.branch}")


def key_of(number: int) -> TableKey:
    return TableKey.parse(f"bench.table_{number:04d}")


def entry_of(number: int, *, commit: int) -> TableEntry:
    return TableEntry(
        dataset=f"bench/table_{number:04d}.lance",
        home=None,
        version=(1 << 63) + commit,
        head=commit,
        primary_key=("id",),
        rows=1000,
    )


def ignore(_: object) -> None:
    """Give up a result that is not needed."""


if __name__ == "__main__":
    main()
