"""A repository beside a raw Lance dataset of the same rows, both of which grow."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.format import home
from anabranch.repo.repository import Repository
from anabranch.storage import store as stores
from anabranch.storage.options import lance_options
from anabranch.testing import CountingStore

__all__ = ["KEY", "Lake", "counted_requests", "put_back_afterwards", "row", "some_rows"]

KEY = "bench.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
ROWS_AT_ONCE = 1_000_000
TABLES_AT_ONCE = 50
COMMITS_BETWEEN_COMPACTIONS = 100
# Ids of rows that are added one at a time, above those of all others.
FIRST_ADDED = 1 << 40


class Lake:
    """A table with an index on its key, in a repository and as a dataset that only pylance writes."""

    def __init__(self, root: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.uri = f"{root}/lake"
        self.raw_uri = f"{root}/raw.lance"
        self.storage_options = dict(storage_options or {})
        self.rows = self.commits = self.branches = 0
        self.tables = 1
        self._added = FIRST_ADDED

    def open(self) -> Repository:
        """A new handle, for which Lance opens every table anew as well."""
        home._STAGED.forget(lambda _: True)
        return ab.open(self.uri, storage_options=self.storage_options, actor="bench")

    def open_raw(self, branch: str | None = None) -> lance.LanceDataset:
        uri = self.raw_uri if branch is None else f"{self.raw_uri}/tree/{branch}"
        return lance.dataset(uri, storage_options=self.lance_options())

    def lance_options(self) -> dict[str, str] | None:
        return lance_options(self.storage_options) if self.storage_options else None

    def begin(self, *, rows: int) -> None:
        repo = ab.init(self.uri, storage_options=self.storage_options, actor="bench")
        with repo.transaction(message="first") as tx:
            tx.create_table(KEY, SCHEMA, primary_key=["id"])
        empty = SCHEMA.empty_table()
        lance.write_dataset(empty, self.raw_uri, enable_stable_row_ids=True, storage_options=self.lance_options())
        self.grow_rows(rows)

    def grow_rows(self, until: int) -> None:
        """Append rows to the table in one commit, and index them all."""
        if until == self.rows:
            return
        repo, raw = self.open(), self.open_raw()
        with repo.transaction(message="rows") as tx:
            for start in range(self.rows, until, ROWS_AT_ONCE):
                tx.append(KEY, some_rows(start, min(start + ROWS_AT_ONCE, until)), check_keys=False)
        for start in range(self.rows, until, ROWS_AT_ONCE):
            raw.insert(some_rows(start, min(start + ROWS_AT_ONCE, until)))
        repo.index(KEY, "id")
        raw.create_scalar_index("id", "BTREE", replace=True)
        self.rows = until

    def grow_commits(self, until: int) -> None:
        """Append one row in every commit, with a compaction now and then and at the end."""
        repo, raw = self.open(), self.open_raw()
        for number in range(self.commits + 1, until + 1):
            one = self.new_row()
            with repo.transaction(message="one row") as tx:
                tx.append(KEY, one, check_keys=False)
            raw.insert(one)
            if number % COMMITS_BETWEEN_COMPACTIONS == 0 or number == until:
                repo.compact([KEY])
                raw.optimize.compact_files()
                raw.optimize.optimize_indices()
        self.commits = until

    def grow_branches(self, until: int) -> None:
        """Make branches, each with one row of its own in the table."""
        repo, raw = self.open(), self.open_raw()
        for number in range(self.branches, until):
            one, name = self.new_row(), f"grown{number}"
            repo.branch_create(name)
            with repo.transaction(name, message="one row") as tx:
                tx.append(KEY, one, check_keys=False)
            raw.create_branch(name)
            self.open_raw(name).insert(one)
        self.branches = until

    def grow_tables(self, until: int) -> None:
        """Make more tables of a row each."""
        repo = self.open()
        for start in range(self.tables, until, TABLES_AT_ONCE):
            with repo.transaction(message="tables") as tx:
                for number in range(start, min(start + TABLES_AT_ONCE, until)):
                    tx.create_table(f"bench.table{number}", SCHEMA, primary_key=["id"])
                    tx.append(f"bench.table{number}", row(number))
        self.tables = until

    def new_row(self) -> pa.Table:
        """A row whose key no other one has."""
        self._added += 1
        return row(self._added)


def row(number: int) -> pa.Table:
    return some_rows(number, number + 1)


def some_rows(start: int, end: int) -> pa.Table:
    ids = np.arange(start, end)
    notes = pa.array([f"note {number} of some length" for number in range(100)])
    return pa.table({"id": ids, "amount": ids * 0.5, "note": notes.take(pa.array(ids % 100))}, schema=SCHEMA)


@contextmanager
def put_back_afterwards(folder: Path) -> Iterator[None]:
    """Keep a folder as it is, whatever is written to it meanwhile.

    Lance's branches name their place, so that a copy has to lie where the original was. Nobody writes into a file that
    is there, so that links do for copies.
    """
    kept = folder.with_name(f"{folder.name}-kept")
    folder.rename(kept)
    shutil.copytree(kept, folder, copy_function=os.link)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        kept.rename(folder)


@contextmanager
def counted_requests() -> Iterator[list[CountingStore]]:
    """Every store that is opened meanwhile, with what it was asked; Lance's own requests go past them."""
    opened: list[CountingStore] = []

    def open_counted(root: str, options: tuple[tuple[str, str], ...]) -> CountingStore:
        opened.append(CountingStore(plain(root, options)))
        return opened[-1]

    plain = stores.open_root
    # Both modules have a name of their own for it.
    stores.open_root = home.open_root = open_counted  # type: ignore[assignment]
    try:
        yield opened
    finally:
        stores.open_root = home.open_root = plain
