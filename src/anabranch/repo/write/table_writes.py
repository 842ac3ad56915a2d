"""How engines write to the tables of a transaction: data files of other processes, and many tables at once."""

import threading
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import require_names
from anabranch.format.staging import WrittenFragment
from anabranch.ids import TableKey
from anabranch.repo.write.columns import Rewriter, compact
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.staged_table import (
    StagedTable,
    Step,
    WrittenChange,
    append_fragments_step,
    overwrite_fragments_step,
    replace_fragments_step,
    upsert_fragments_step,
)
from anabranch.repo.write.write_set import Change, WriteSet, atomic
from anabranch.storage import in_parallel

__all__ = ["TableWrites"]


class TableWrites:
    """Writes to the tables of one transaction. `start` begins a change of a table, `lock` is that of the transaction.

    A table is prepared, which changes nothing, and other processes write data files for it. A prepared table can be
    pickled. The same or a later transaction takes the files in.
    """

    def __init__(self, write_set: WriteSet, start: Callable[[str], TableKey], lock: threading.RLock) -> None:
        self._write_set = write_set
        self._start = start
        self._lock = lock

    @atomic
    def prepare(self, key: str) -> StagedTable:
        """Make a table ready for data files."""
        return self._write_set.get(self._start(key))

    @atomic
    def prepare_new(self, key: str, schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> StagedTable:
        """Make a table that does not exist yet ready for data files."""
        return self._write_set.new_table(self._start(key), schema, primary_key)

    @atomic
    def append_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, check_keys: bool = True
    ) -> None:
        """Append rows that were written for a prepared table."""
        self._take_in(
            prepared,
            append_fragments_step(
                prepared.version_ref, fragments, primary_key=prepared.primary_key, may_exist=not check_keys
            ),
        )

    @atomic
    def upsert_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, columns: Sequence[str]
    ) -> None:
        """Upsert rows that were written for a prepared table and have values in these columns."""
        if not prepared.primary_key:
            raise InvalidInputError(f"table '{prepared.key}' has no primary key", hint="append the rows")
        require_names(columns)
        self._take_in(
            prepared,
            upsert_fragments_step(prepared.version_ref, fragments, columns=columns, primary_key=prepared.primary_key),
        )

    @atomic
    def overwrite_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, schema: pa.Schema
    ) -> None:
        """Replace all rows by those that were written for a prepared table, each in this schema."""
        check_primary_key(prepared.key, schema, prepared.primary_key)
        self._take_in(
            prepared,
            overwrite_fragments_step(prepared.version_ref, fragments, schema=schema, unique_by=prepared.primary_key),
        )

    @atomic
    def replace_fragments(self, prepared: StagedTable, change: WrittenChange) -> None:
        """Remove rows of a prepared table by their addresses, and add rows that were written for it."""
        self._take_in(prepared, replace_fragments_step(prepared.version_ref, change, primary_key=prepared.primary_key))

    @atomic
    def compact(self, key: str, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None) -> None:
        """Rewrite small fragments of a table as larger ones, by a rewriter, or else in this process."""
        before = self.prepare(key)
        after = compact(before, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter)
        if after != before:
            self._write_set.put(after.key, after)

    @atomic
    def change_tables(self, changes: Mapping[TableKey, Change]) -> None:
        """Change tables at the same time, each by its function."""
        # In the order of the keys: the queue of writers relies on it, so that no two threads wait for each other.
        for key in sorted(changes):
            self._start(str(key))
        self._write_set.change_all(changes)

    @atomic
    def create_tables(self, tables: Mapping[TableKey, tuple[pa.Schema, Sequence[str]]]) -> None:
        """Create empty tables at the same time, each with a schema and a primary key."""
        # In the order of the keys, as above.
        for key in sorted(tables):
            self._start(str(key))
        for staged_table in in_parallel(lambda key: self._write_set.new_table(key, *tables[key]), tables):
            self._write_set.put(staged_table.key, staged_table)

    def _take_in(self, prepared: StagedTable, step: Step) -> None:
        self._start(str(prepared.key))
        self._write_set.take_in(prepared, step)
