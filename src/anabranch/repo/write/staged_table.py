"""One table in a transaction: its former state, the staged changes, and their repetition on another version."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from anabranch.errors import KeyConflictError, SchemaMismatchError, WriteConflictError
from anabranch.format import scan, staging
from anabranch.format.home import Home
from anabranch.format.staging import KeyRows, VersionRef, WrittenFragment
from anabranch.format.staging.fragments import as_written
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import RepoConfig, homes_folder, owns
from anabranch.repo.log.entries import TableEntry


@dataclass(frozen=True, slots=True)
class Step:
    """One staged change. `again` repeats it on another version. None if it depends on the rows of its version.

    `added` is the number of rows that it adds to any version, if that is known and it changes no other rows.
    """

    name: str
    version_ref: VersionRef
    again: Callable[[VersionRef], VersionRef] | None = None
    added: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTable:
    """A table in a transaction. `origin` is its entry in the transaction's snapshot, None for a new table."""

    key: TableKey
    origin: TableEntry | None
    dataset: str
    version_ref: VersionRef
    head: int
    primary_key: tuple[str, ...]
    forked_from: tuple[str | None, int] | None
    steps: tuple[Step, ...] = ()
    # The number of rows, if it is known without reading the version.
    rows: int | None = None

    def then(self, step: Step, *, rows: int | None = None) -> "StagedTable":
        if self.rows is not None and step.added is not None:
            rows = self.rows + step.added
        return replace(self, version_ref=step.version_ref, steps=(*self.steps, step), rows=rows)

    def find_change(self, before: TableEntry | None) -> TableEntry | None:
        """Return the entry of the table, None if it has the state of `before`, as after a rename and a rename back."""
        if before is not None and self.origin == before and all(step.name == "rename" for step in self.steps):
            return None  # a fork that nothing was staged on
        entry = self.to_entry()
        # Staged changes have a version of their own.
        is_back = before is not None and before.version == entry.version and before.state == entry.state
        return None if is_back else entry

    def to_entry(self) -> TableEntry:
        return TableEntry(
            dataset=self.dataset,
            home=self.version_ref.home.branch,
            version=self.version_ref.version,
            head=self.head,
            primary_key=self.primary_key,
            rows=self.version_ref.count_rows() if self.rows is None else self.rows,
            forked_from=self.forked_from,
        )


def stage_existing(config: RepoConfig, branch: BranchName, key: TableKey, entry: TableEntry) -> StagedTable:
    """Prepare a table of the snapshot for writing on a branch. Fork it unless the branch owns its home."""
    version_ref = VersionRef(home=config.home_of(entry), version=entry.version)
    forked_from = entry.forked_from
    if owns(branch, entry.home):
        head = staging.settled_head(version_ref.home, published=entry.version, since=entry.head)
    else:
        version_ref = fork_home(config, branch, version_ref)
        head, forked_from = version_ref.version, (entry.home, entry.version)
    return StagedTable(
        key=key,
        origin=entry,
        dataset=entry.dataset,
        version_ref=version_ref,
        head=head,
        primary_key=entry.primary_key,
        forked_from=forked_from,
        rows=entry.rows,
    )


def fork_home(config: RepoConfig, branch: BranchName, version_ref: VersionRef) -> VersionRef:
    """Fork the home of a version for a branch."""
    # A new name for each fork. If two processes create one Lance branch, its head may be the version of neither, and a
    # crash in between blocks the name permanently.
    home: Home = staging.fork(version_ref, f"{homes_folder(branch)}/{config.new_id()}")
    return VersionRef(home=home, version=home.head_version())


def append_copied_step(staged_table: StagedTable, *, rows: pa.Table, may_exist: bool) -> Step:
    """Stage rows that were copied (`staging.copy_rows`) and whose keys were checked (`check_appended`)."""
    before = staged_table.version_ref
    after, written = staging.append_copied(before, rows)

    def again(other: VersionRef) -> VersionRef:
        unique_by = () if may_exist else staged_table.primary_key
        fragments = as_written(before, before.open(), written)
        return append_again(other, fragments, before=before, after=after, unique_by=unique_by)

    return Step("append", after, again, added=len(rows))


def append_step(version_ref: VersionRef, data: Any, *, primary_key: Sequence[str], may_exist: bool) -> Step:
    """Stage new rows. Refuse keys that are null, repeated or, unless `may_exist`, in the table already."""
    in_memory = isinstance(data, pa.Table)
    if in_memory:
        check_appended(version_ref, data, primary_key=primary_key, may_exist=may_exist)  # before anything is written
    fragments = staging.write_fragments(version_ref, data)
    return append_fragments_step(
        version_ref, fragments, primary_key=primary_key, may_exist=may_exist, keys_are_checked=in_memory
    )


def check_appended(version_ref: VersionRef, rows: pa.Table, *, primary_key: Sequence[str], may_exist: bool) -> None:
    """Refuse rows in memory whose keys are null or repeated, or in the table unless they may be there."""
    if primary_key:
        keys = staging.read_given_keys(version_ref, rows, primary_key)
        _check_keys(version_ref, keys, primary_key, may_exist=may_exist)


def append_fragments_step(
    version_ref: VersionRef,
    fragments: Sequence[WrittenFragment],
    *,
    primary_key: Sequence[str],
    may_exist: bool,
    keys_are_checked: bool = False,
) -> Step:
    """Like `append_step`, for rows that are written already."""
    staged = staging.append_fragments(version_ref, fragments)
    # The rows exist only in files, so that their keys are read back from the staged version.
    if primary_key and not keys_are_checked and staged != version_ref:
        keys = scan.appended_keys(version_ref, staged, primary_key)
        _check_keys(version_ref, keys, primary_key, may_exist=may_exist)

    def again(other: VersionRef) -> VersionRef:
        unique_by = () if may_exist else primary_key
        return append_again(other, fragments, before=version_ref, after=staged, unique_by=unique_by)

    return Step("append", staged, again)


def append_again(
    other: VersionRef,
    fragments: Sequence[WrittenFragment],
    *,
    before: VersionRef,
    after: VersionRef,
    unique_by: Sequence[str],
) -> VersionRef:
    """Stage rows that were appended between two versions on another one, without writing them again if possible."""
    _refuse_other_columns(before, other)
    if unique_by:
        # The keys were compared with `before` when they were appended, so only later rows can have them.
        _refuse_existing(other, scan.appended_keys(before, after, unique_by), unique_by, beyond=before)
    try:
        return staging.append_fragments(other, fragments)
    except SchemaMismatchError:
        # In another home or with other bases, the files cannot be used again, but the rows can.
        return staging.append(other, scan.read_appended(before, after))


def upsert_step(version_ref: VersionRef, data: pa.Table, *, keys: Sequence[str], primary_key: Sequence[str]) -> Step:
    def upserted(on: VersionRef) -> VersionRef:
        staged = staging.upsert(on, data, keys).version_ref
        if set(keys) != set(primary_key):
            # Rows that are new by other columns may have a null or existing primary key.
            check_unique(staged, primary_key)
        return staged

    def again(other: VersionRef) -> VersionRef:
        _refuse_other_columns(version_ref, other)
        return upserted(other)

    return Step("upsert", upserted(version_ref), again)


def upsert_fragments_step(
    version_ref: VersionRef, fragments: Sequence[WrittenFragment], *, columns: Sequence[str], primary_key: Sequence[str]
) -> Step:
    """Like `upsert_step`, for rows that are written already; only these columns of them count."""
    # Without files there is no staged version to read the rows from.
    if not fragments:
        return Step("upsert", version_ref, lambda other: other)
    rows = scan.read_appended(version_ref, staging.append_fragments(version_ref, fragments), columns=columns).read_all()
    return upsert_step(version_ref, rows, keys=primary_key, primary_key=primary_key)


def overwrite_step(version_ref: VersionRef, data: Any, *, unique_by: Sequence[str]) -> Step:
    """Stage a replacement of all rows, and of the columns if those of the data differ, with the same indices."""
    in_memory = isinstance(data, pa.Table)
    if in_memory and unique_by:
        staging.refuse_repeated(KeyRows.of_table(data, unique_by))  # before anything is written
    staged = staging.keep_notes(staging.overwrite(version_ref, data), of=version_ref)
    # A stream can be read only once, so that its keys are checked after it was written. Garbage collection removes the
    # files of a refused one.
    if not in_memory:
        check_unique(staged, unique_by)
    return Step("overwrite", staging.keep_indices(staged, of=version_ref))


def overwrite_fragments_step(
    version_ref: VersionRef, fragments: Sequence[WrittenFragment], *, schema: pa.Schema, unique_by: Sequence[str]
) -> Step:
    """Like `overwrite_step`, for rows that are written already."""
    staged = staging.keep_notes(staging.overwrite_fragments(version_ref, fragments, schema=schema), of=version_ref)
    check_unique(staged, unique_by)
    return Step("overwrite", staging.keep_indices(staged, of=version_ref))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenChange:
    """Rows of a version to remove, by their addresses in it, and written rows to add.

    `moved` rows keep the ids of removed rows, `fresh` ones are new. With `may_repeat_keys`, some added rows may have
    the key of another row.
    """

    read: VersionRef
    addresses: staging.Addresses
    moved: tuple[WrittenFragment, ...]
    fresh: tuple[WrittenFragment, ...]
    may_repeat_keys: bool


def replace_fragments_step(version_ref: VersionRef, change: WrittenChange, *, primary_key: Sequence[str]) -> Step:
    """Stage a change of single rows that are written already."""

    def replaced(on: VersionRef) -> VersionRef:
        _refuse_other_columns(version_ref, on)
        # Addresses mean the same rows only as long as no other commit has deleted, changed or moved them.
        staging.require_rows(change.read, on, change.addresses)
        if change.may_repeat_keys and primary_key:
            # Written rows must have different keys, and none that a row which stays has.
            left = staging.delete_rows(on, change.addresses).version_ref
            added = staging.append_fragments(left, (*change.moved, *change.fresh))
            _refuse_existing(left, scan.appended_keys(left, added, primary_key), primary_key)
        try:
            return staging.replace_written(on, addresses=change.addresses, moved=change.moved, fresh=change.fresh)
        except SchemaMismatchError as err:
            # Another commit wrote the table on this branch first, so its files are in another folder.
            raise WriteConflictError("its files were moved by another commit", hint="run the statement again") from err

    return Step("change of rows", replaced(version_ref), replaced)


def with_wanted_indices(staged_table: StagedTable) -> StagedTable:
    """Return a table with its wanted indices, if it has rows to build them from."""
    staged = staging.build_wanted(staged_table.version_ref)
    if staged == staged_table.version_ref:
        return staged_table
    return staged_table.then(Step("index", staged, staging.build_wanted, added=0))


def replayed(staged_table: StagedTable, theirs: TableEntry, version_ref: VersionRef) -> StagedTable:
    """Return the table with the same steps on top of the version that another writer published."""
    rows: int | None = theirs.rows
    for step in staged_table.steps:
        if step.again is None:
            problem = f"table '{staged_table.key}' was changed by another commit while this one did {step.name!r}"
            raise WriteConflictError(problem, hint="run the transaction again on the new state")
        with conflicts_named(staged_table.key):
            version_ref = step.again(version_ref)
        rows = None if rows is None or step.added is None else rows + step.added
    return replace(
        staged_table,
        origin=theirs,
        dataset=theirs.dataset,
        version_ref=version_ref,
        forked_from=theirs.forked_from,
        head=theirs.head,
        rows=rows,
    )


@contextmanager
def conflicts_named(key: TableKey) -> Iterator[None]:
    """Name the table in conflict errors: a commit may have many tables."""
    try:
        yield
    except (KeyConflictError, WriteConflictError) as err:
        raise err.reworded(f"table '{key}': {err.problem}") from err


def _refuse_other_columns(before: VersionRef, now: VersionRef) -> None:
    # On a version with other columns Lance accepts the same files, and then reads nulls or wrong columns from them.
    if not staging.has_same_fields(before, now):
        hint = "run the transaction again on the new state"
        raise WriteConflictError("the columns of the table were changed by another commit at the same time", hint=hint)


def _check_keys(version_ref: VersionRef, rows: KeyRows, keys: Sequence[str], *, may_exist: bool) -> None:
    if may_exist:
        staging.refuse_repeated(rows)
    else:
        _refuse_existing(version_ref, rows, keys)


def _refuse_existing(
    version_ref: VersionRef, rows: KeyRows, keys: Sequence[str], *, beyond: VersionRef | None = None
) -> None:
    existing = staging.find_taken_keys(version_ref, rows, keys, beyond=beyond)
    if existing is not None:
        number = "1 key already exists" if existing.count == 1 else f"{existing.count} keys already exist"
        hint = "change these rows with `upsert()`, or remove them from the data"
        raise KeyConflictError(f"{number} in the table, for example {existing.example}", hint=hint)


def check_unique(version_ref: VersionRef, keys: Sequence[str]) -> None:
    """Refuse a version in which a key occurs twice."""
    if keys:
        staging.refuse_repeated(scan.keys_of(version_ref, keys))
