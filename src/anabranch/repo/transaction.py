"""One commit over many tables: staged step by step, published at once or not at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as pads

from anabranch.errors import (
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
    WriteConflictError,
)
from anabranch.format import staging
from anabranch.format.staging import ColumnChange, IndexKind, Notes, Pin, VectorOptions, WrittenFragment
from anabranch.format.staging.incoming import as_reader
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo import columns as shape
from anabranch.repo.checks import checked_metadata, require_names
from anabranch.repo.draft import (
    Draft,
    Step,
    append_fragments_step,
    append_step,
    one_time_step,
    overwrite_fragments_step,
    overwrite_step,
    replayed,
    upsert_fragments_step,
    upsert_step,
)
from anabranch.repo.engine import Rewriter
from anabranch.repo.models import BranchMode, CommitRecord, GraphCommit, LogEntry, TableEntry
from anabranch.repo.publish import Changes, Description, publish
from anabranch.repo.queue import Writer, queue_of_this_process
from anabranch.repo.records import Records
from anabranch.repo.snapshots import Table
from anabranch.repo.tables import check_primary_key, draft_existing, draft_new, owns, refuse_shared_home
from anabranch.repo.views import shown
from anabranch.repo.working import Work

__all__ = ["Transaction"]


class Transaction:
    """Changes to the tables of one branch, on top of the snapshot it began with.

    Use it as a context manager: leaving it publishes, an exception forgets everything. Reads inside it
    (`tx["bucket.table"]`) see its own writes.
    """

    def __init__(
        self,
        records: Records,
        *,
        branch: BranchName,
        about: Description,
        on_published: Callable[[LogEntry, Changes], None],
    ) -> None:
        self._context = records.context
        self._work = Work(self._context)
        self._records = replace(records, work=self._work)
        self._about = about
        self._on_published = on_published
        self._queue = queue_of_this_process()
        self._writer = Writer()
        self._begin(branch)
        self._drafts: dict[TableKey, Draft | None] = {}
        self._origins: dict[TableKey, TableEntry | None] = {}
        self._has_read = False
        self._is_open = True
        self.commit: GraphCommit | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._is_open:
            self.publish()
        self._close()

    # Reading

    def __getitem__(self, key: str) -> Table:
        """A table as this transaction has it."""
        self._require_open()
        parsed = TableKey.parse(key)
        self._has_read = True
        return Table(self._context, parsed, self._entry(parsed))

    def __contains__(self, key: str) -> bool:
        self._require_open()
        self._has_read = True
        return self._has(TableKey.parse(key))

    @property
    def branch(self) -> str:
        return str(self._head.branch)

    @property
    def base_commit_id(self) -> str:
        """The commit that this transaction sees, and builds on unless others are faster."""
        return self._head.head.commit.graph_commit_id

    @property
    def tables(self) -> tuple[str, ...]:
        self._require_open()
        self._has_read = True
        return tuple(sorted(str(key) for key in {*self._tables, *self._drafts} if self._has(key)))

    # Tables

    def create_table(self, key: str, schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> None:
        self._set(self._start(key), self.prepare_new(key, schema, primary_key=primary_key))

    def prepare(self, key: str) -> Draft:
        """Make a table ready for data files that others write, and change nothing.

        The draft can be pickled; this or a later transaction takes the files in by `append_fragments`,
        `upsert_fragments` or `overwrite_fragments`.
        """
        return self._draft(self._start(key))

    def prepare_new(self, key: str, schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> Draft:
        """Like `prepare`, for a table that is not there yet."""
        parsed = self._start(key)
        if self._has(parsed):
            raise TableExistsError(f"there is a table '{key}' already", hint="choose another name, or overwrite it")
        taken = {other: entry for other, entry in self._tables.items() if self._drafts.get(other, entry) is not None}
        taken |= {other: draft.to_entry() for other, draft in self._drafts.items() if draft is not None}
        return draft_new(
            self._context, self._head.home_branch, parsed, schema=schema, primary_key=primary_key, taken=taken
        )

    def drop_table(self, key: str) -> None:
        parsed = self._start(key)
        self._entry(parsed)
        self._set(parsed, None)

    def rename_table(self, key: str, new: str) -> None:
        """Give a table another name; its files stay where they are."""
        parsed, target = self._start(key), self._start(new)
        if self._has(target):
            raise TableExistsError(f"there is a table '{new}' already", hint="choose another name")
        draft = self._draft(parsed)
        self._set(parsed, None)
        self._set(target, replace(draft, key=target).then(one_time_step("rename", draft.pin)))

    # Rows

    def append(self, key: str, data: Any, *, check_keys: bool = True) -> None:
        """Add rows. With a primary key they must be new; `check_keys=False` trusts the caller that they are."""
        draft = self._draft(self._start(key))
        self._apply(
            draft, append_step(draft.pin, _readable(data), primary_key=draft.primary_key, may_exist=not check_keys)
        )

    def upsert(self, key: str, data: Any, *, keys: Sequence[str] | None = None) -> None:
        """Replace the rows of the same key and add the others; by the primary key unless other columns are named."""
        draft = self._draft(self._start(key))
        if keys is not None:
            require_names(keys)
        by = tuple(keys) if keys is not None else draft.primary_key
        if not by:
            raise InvalidInputError(f"table '{key}' has no primary key", hint="name the columns that are the key")
        rows = as_reader(data).read_all()
        self._apply(draft, upsert_step(draft.pin, rows, keys=by, primary_key=draft.primary_key))

    def update(self, key: str, assignments: Mapping[str, str], *, where: str | None = None) -> int:
        """Set columns to SQL expressions in the rows for which `where` is true; how many rows changed."""
        draft = self._draft(self._start(key))
        shape.require_expressions(assignments)
        for name in assignments:
            if name in draft.primary_key:
                raise InvalidInputError(
                    f"column {name!r} is part of the primary key of '{key}'", hint="delete the rows and append new ones"
                )
        changed = staging.update(draft.pin, assignments, where=where)
        self._apply(draft, one_time_step("update", changed.pin))
        return changed.updated

    def delete(self, key: str, where: str) -> int:
        """Delete the rows for which `where` is true; how many there were."""
        draft = self._draft(self._start(key))
        changed = staging.delete(draft.pin, where)
        self._apply(draft, one_time_step("delete", changed.pin))
        return changed.deleted

    def overwrite(self, key: str, data: Any) -> None:
        """Replace all rows, and the columns too if the data brings others."""
        draft = self._draft(self._start(key))
        rows = _readable(data)
        check_primary_key(draft.key, rows.schema, draft.primary_key)
        self._apply(draft, overwrite_step(draft.pin, rows, unique_by=draft.primary_key))

    # Data files that others wrote

    def append_fragments(
        self, prepared: Draft, fragments: Sequence[WrittenFragment], *, check_keys: bool = True
    ) -> None:
        """Like `append`, for rows that were written for a prepared table."""
        self._take_in(
            prepared,
            append_fragments_step(prepared.pin, fragments, primary_key=prepared.primary_key, may_exist=not check_keys),
        )

    def upsert_fragments(
        self, prepared: Draft, fragments: Sequence[WrittenFragment], *, columns: Sequence[str]
    ) -> None:
        """Like `upsert`, for rows that were written for a prepared table and have values in these columns."""
        if not prepared.primary_key:
            raise InvalidInputError(f"table '{prepared.key}' has no primary key", hint="append the rows")
        require_names(columns)
        self._take_in(
            prepared,
            upsert_fragments_step(prepared.pin, fragments, columns=columns, primary_key=prepared.primary_key),
        )

    def overwrite_fragments(self, prepared: Draft, fragments: Sequence[WrittenFragment], *, schema: pa.Schema) -> None:
        """Like `overwrite`, for rows that were written for a prepared table, each in this schema."""
        check_primary_key(prepared.key, schema, prepared.primary_key)
        self._take_in(
            prepared,
            overwrite_fragments_step(prepared.pin, fragments, schema=schema, unique_by=prepared.primary_key),
        )

    def _take_in(self, prepared: Draft, step: Step) -> None:
        """Go on with a table as it was prepared; where it has changed since, on top of that, if that can be."""
        key = self._start(str(prepared.key))
        if key in self._drafts:
            raise InvalidInputError(
                f"this transaction has changed table '{key}' already",
                hint="take the files in before, or in another one",
            )
        if step.pin == prepared.pin and prepared.origin is not None:
            return
        self._drafts[key] = prepared.then(step)
        self._origins[key] = prepared.origin
        if self._tables.get(key) != prepared.origin:
            self._rebase(self._head)

    # Columns, keys, indices

    def add_columns(self, key: str, columns: Mapping[str, str] | pa.Schema) -> None:
        """Add columns computed by SQL expressions, or, given a schema, empty ones."""
        self._change(key, lambda draft: shape.add_columns(draft, columns))

    def alter_columns(self, key: str, changes: Sequence[ColumnChange]) -> None:
        """Rename columns, change their type, or whether they may be null."""
        self._change(key, lambda draft: shape.alter_columns(draft, changes))

    def drop_columns(self, key: str, columns: Sequence[str]) -> None:
        self._change(key, lambda draft: shape.drop_columns(draft, columns))

    def set_primary_key(self, key: str, columns: Sequence[str]) -> None:
        """Make these columns the key, none of them for no key; refused where rows have nulls or repeat one."""
        self._change(key, lambda draft: shape.set_primary_key(draft, columns))

    def index(
        self,
        key: str,
        column: str,
        *,
        type: str = IndexKind.BTREE,  # noqa: A002 - Lance's name
        name: str | None = None,
        vector: VectorOptions | None = None,
    ) -> None:
        """Build an index over all rows, instead of one of the same name; it is called `{column}_idx` by default."""
        self._change(key, lambda draft: shape.index_column(draft, column, kind=type, name=name, vector=vector))

    def drop_index(self, key: str, name: str) -> None:
        self._change(key, lambda draft: shape.drop_index(draft, name))

    def compact(
        self, key: str, *, target_rows_per_fragment: int = staging.TARGET_ROWS, rewriter: Rewriter | None = None
    ) -> None:
        """Rewrite small and half-deleted fragments as larger ones, and build the indices again; the rows stay."""
        self._change(
            key,
            lambda draft: shape.compact(draft, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter),
        )

    def annotate(self, key: str, notes: Notes, *, columns: Mapping[str, Notes] | None = None) -> None:
        """Note texts by name beside a table and its columns, in the metadata of the Arrow schema; None removes one."""
        self._change(key, lambda draft: shape.annotate(draft, notes, columns=columns or {}))

    # Publishing

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Say more about the commit that is to be."""
        self._require_open()
        both = checked_metadata({**self._about.metadata, **checked_metadata(metadata)})
        self._about = replace(self._about, metadata=both)

    def publish(self) -> None:
        """Make all changes visible as one commit and end; without changes there is no commit."""
        self._require_open()
        try:
            self._records.require_awake()  # before anything is looked at that may be gone
            changes = self._changes()
            if not changes:
                return
            entry = publish(
                self._records,
                expected=self._head,
                changes=changes,
                about=self._about,
                rebase=self._rebase,
                main=self._main,
            )
            self.commit = entry.head.commit
            self._on_published(entry, self._changes())
        finally:
            self._close()

    def _changes(self) -> dict[TableKey, TableEntry | None]:
        changes: dict[TableKey, TableEntry | None] = {}
        for key, draft in self._drafts.items():
            origin = self._origins[key]
            if draft is None:
                if origin is not None:
                    changes[key] = None
            elif origin is None or not draft.is_still(origin):
                changes[key] = draft.to_entry()
        return changes

    def _rebase(self, head: LogEntry) -> Changes:
        """Bring the drafts onto a head that somebody else published."""
        tables = self._tables_on(head)
        for key in list(self._changes()):
            theirs, origin, draft = tables.get(key), self._origins[key], self._drafts[key]
            if draft is not None:
                refuse_shared_home(key, draft.to_entry(), tables, besides=self._drafts)
            if theirs == origin:
                continue
            is_new_here = origin is None or draft is None or draft.origin is None
            if theirs is None or draft is None or is_new_here or theirs.primary_key != draft.primary_key:
                raise WriteConflictError(
                    f"table '{key}' was created, dropped or replaced by another commit meanwhile",
                    hint="run the transaction again on the new state",
                )
            pin = Pin(home=self._context.home_of(theirs), version=theirs.version)
            if not owns(head.home_branch, theirs.home):
                raise WriteConflictError(
                    f"table '{key}' was reset by another commit meanwhile",
                    hint="run the transaction again on the new state",
                )
            self._drafts[key] = replayed(draft, theirs, pin)
            self._origins[key] = theirs
        self._head, self._tables = head, tables
        return self._changes()

    def _tables_on(self, head: LogEntry) -> dict[TableKey, TableEntry]:
        """The tables of a head; on a live branch with main as this transaction saw it first."""
        if head.state.mode is BranchMode.LIVE and self._main is not None:
            head = shown(head, self._main)
        return self._records.commits.tables_of(head.head)

    # Drafts

    def _begin(self, branch: BranchName) -> None:
        self._departures = self._queue.departures  # before the head: who leaves in between is noticed, not missed
        self._head = self._records.heads.get(branch)
        is_live = self._head.state.mode is BranchMode.LIVE
        self._main: CommitRecord | None = self._records.heads.get(BranchName(MAIN)).head if is_live else None
        self._tables = self._tables_on(self._head)

    def _start(self, key: str) -> TableKey:
        self._require_open()
        parsed = TableKey.parse(key)
        self._queue.take(self._writer, (self._context.root, str(self._head.branch), str(parsed)))
        if self._queue.departures != self._departures and not self._drafts and not self._has_read:
            # Others in this process may have moved the branch; nothing here hangs on the old state yet.
            self._begin(self._head.branch)
        return parsed

    def _draft(self, key: TableKey) -> Draft:
        draft = self._drafts.get(key)
        if draft is None:
            draft = draft_existing(self._context, self._head.home_branch, key, self._entry(key))
        return draft

    def _change(self, key: str, change: Callable[[Draft], Draft]) -> None:
        before = self._draft(self._start(key))
        after = change(before)
        if after != before:
            self._set(after.key, after)

    def _apply(self, draft: Draft, step: Step) -> None:
        if step.pin != draft.pin:
            self._set(draft.key, draft.then(step))

    def _set(self, key: TableKey, draft: Draft | None) -> None:
        self._origins.setdefault(key, self._tables.get(key))
        self._drafts[key] = draft

    def _has(self, key: TableKey) -> bool:
        return self._drafts[key] is not None if key in self._drafts else key in self._tables

    def _entry(self, key: TableKey) -> TableEntry:
        draft = self._drafts.get(key)
        if draft is not None:
            return draft.to_entry()
        if key in self._drafts or key not in self._tables:
            raise TableNotFoundError(
                f"there is no table '{key}' on branch '{self._head.branch}'",
                hint="create it, or list the tables to see which exist",
            )
        return self._tables[key]

    def _require_open(self) -> None:
        if not self._is_open:
            raise InvalidInputError("this transaction has ended", hint="begin another one")

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._queue.leave(self._writer)
            self._work.end()


def _readable(data: Any) -> pa.Table | pa.RecordBatchReader:
    """What is in memory as a table, so that it can be checked before it is written; what streams as a stream."""
    if isinstance(data, pa.Table):
        return data
    streams = isinstance(data, pa.RecordBatchReader | pads.Dataset | pads.Scanner)
    reader = as_reader(data)
    return reader if streams else reader.read_all()
