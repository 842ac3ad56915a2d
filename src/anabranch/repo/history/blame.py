"""Blame: the commit that last changed each row of a table, or each cell.

The commits of the table are compared with their parents, newest first, and only rows that may differ are read. The
newest commit that inserted or changed a row is the one to blame. A row that came by a merge, as the merged branch has
it, is blamed on the commit of that branch. A row that a merge combined from both sides is blamed on the merge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import check_columns, checked_limit, require_names
from anabranch.ids import TableKey
from anabranch.repo.history.comparer import RowComparer
from anabranch.repo.history.diff import RowChangeKind, TableDiff, pair_columns
from anabranch.repo.history.table_history import TableChange, iter_table_changes
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.entries import CommitRecord, GraphCommit
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.snapshot import Table
from anabranch.storage.requests import iter_in_parallel

# Comparisons run ahead of the result, and those after the last needed commit are wasted. So there are few.
_COMMITS_AT_A_TIME = 4
_INDEX = "__row"
# The columns of the result that describe a commit, with the attributes of the commit.
_COMMIT_FIELDS = (
    ("commit_id", "graph_commit_id", pa.string()),
    ("committed_at", "created", pa.timestamp("us", tz="UTC")),
    ("actor", "actor_id", pa.string()),
    ("message", "message", pa.string()),
)

Cells = npt.NDArray[np.int64]  # For each row and column the number of a commit, -1 while it is not known.
Names = dict[str, str]  # The columns of a state that the newest state has too, with their names there.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameSelection:
    """The rows to blame. With `cells` or `columns`, their cells are blamed one by one: all, or those of the columns."""

    where: str | None
    limit: int | None
    columns: Sequence[str] | None
    cells: bool


def blame_table(
    repo_store: RepoStore, record: CommitRecord, table: Table, selection: BlameSelection, comparer: RowComparer
) -> pa.Table:
    """Return the key of each row, or of each cell with the name of its column, and the commit that last changed it."""
    limit, columns = checked_limit(selection.limit, "rows"), selection.columns
    if columns is not None:
        require_names(columns)
        check_columns(columns, table.schema.names)
    elif selection.cells:
        columns = table.schema.names
    if not table.primary_key:
        hint = "set a primary key"
        raise InvalidInputError(f"table '{table.key}' has no primary key, so its rows cannot be followed", hint=hint)
    taken = sorted(set(table.primary_key) & {"column", *(name for name, _, _ in _COMMIT_FIELDS)})
    if taken:
        problem = f"the key column {taken[0]!r} of '{table.key}' has the name of a column of the result"
        raise InvalidInputError(problem, hint="rename the column")
    keys = table.to_arrow(columns=list(table.primary_key), where=selection.where, limit=limit)
    blame = _Blame(repo_store, TableKey.parse(table.key), keys, columns, comparer)
    blame.resolve(record, {name: name for name in table.schema.names}, blame.pending())
    return blame.to_arrow()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """The rows that one commit inserted or changed: their keys, kinds and columns, and how columns were called."""

    change: TableChange
    rows: pa.Table | None
    older_names: tuple[tuple[str, str], ...]


class _Blame:
    """The rows of the newest state, and the commit of each cell as far as it is known."""

    def __init__(
        self, repo_store: RepoStore, key: TableKey, keys: pa.Table, columns: Sequence[str] | None, comparer: RowComparer
    ) -> None:
        self._repo_store = repo_store
        self._key = key
        self._keys = keys
        self._cells = columns
        self._comparer = comparer
        self._found: Cells = np.full((len(keys), 1 if columns is None else len(columns)), -1, dtype=np.int64)
        self._commits: list[GraphCommit] = []
        self._rows = _RowIndex(keys)

    def pending(self) -> npt.NDArray[np.bool_]:
        return self._found < 0

    def resolve(self, record: CommitRecord, names: Names, wanted: npt.NDArray[np.bool_]) -> None:
        """Find the commits of the wanted cells along the first parents of a commit."""
        changes = iter_table_changes(self._repo_store, record, self._key)
        ids = [record.commit.graph_commit_id]
        with collected_errors(self._repo_store.config, lambda: ids):
            for changed in iter_in_parallel(self._compare, _until_created(changes), at_a_time=_COMMITS_AT_A_TIME):
                # Newer commits are asked first, and a cell keeps the first commit that is found.
                left = wanted & self.pending()
                if not left.any():
                    return
                ids.append(changed.change.commit.graph_commit_id)
                self._assign(changed, names, left)
                # One commit older, columns may have other names. A column that this commit added is not followed.
                names = {older: names[newer] for newer, older in changed.older_names if newer in names}

    def _assign(self, changed: _Changed, names: Names, left: npt.NDArray[np.bool_]) -> None:
        """Blame a commit for the wanted cells that it changed."""
        # Without rows to compare, the commit created the table or its first rows, and all that is left came with it.
        touched = left if changed.rows is None else left & self._mask(changed.rows, names)
        if not touched.any():
            return
        merged = changed.change.commit.merged_parent_commit_id
        if merged is not None:
            self._assign_merged(changed, names, touched, self._repo_store.commits.get(merged))
            touched = touched & self.pending()
        self._found[touched] = len(self._commits)
        self._commits.append(changed.change.commit)

    def _assign_merged(
        self, changed: _Changed, names: Names, touched: npt.NDArray[np.bool_], source: CommitRecord
    ) -> None:
        """Blame commits of the merged branch for the cells that the branch has with the same values."""
        entry = self._repo_store.commits.find_table(source, self._key)
        if entry is None:
            return
        beside = self._compare(replace(changed.change, before=entry))
        # The merged state had no rows, so that none came from it.
        if beside.rows is None:
            return
        same = touched & ~self._mask(beside.rows, names)
        if same.any():
            older = {older: names[newer] for newer, older in beside.older_names if newer in names}
            self.resolve(source, older, same)

    def _mask(self, rows: pa.Table, names: Names) -> npt.NDArray[np.bool_]:
        """Return which cells of the newest state the changed rows are about."""
        mask = np.zeros(self._found.shape, dtype=bool)
        older = {newest: name for name, newest in names.items()}
        at, which = self._rows.find(rows, [older.get(name) for name in self._keys.column_names])
        if self._cells is None:
            mask[at, 0] = True
            return mask
        kinds = rows["change"].combine_chunks().take(which)
        # An inserted row has no list of changed columns: all of its cells are new.
        mask[at[pc.equal(kinds, RowChangeKind.INSERTED.value).to_numpy(zero_copy_only=False)], :] = True
        changed = rows["columns"].combine_chunks().take(which)
        parents, flat = pc.list_parent_indices(changed).to_numpy(), pc.list_flatten(changed)
        for position, name in enumerate(self._cells):
            if name in older:
                mask[at[parents[pc.equal(flat, older[name]).to_numpy(zero_copy_only=False)]], position] = True
        return mask

    def _compare(self, change: TableChange) -> _Changed:
        # All rows are new then, and a comparison with nothing would read the whole table.
        if change.before is None or change.after is None or not change.before.rows:
            return _Changed(change=change, rows=None, older_names=())
        config = self._repo_store.config
        before, after = (Table(config, self._key, entry) for entry in (change.before, change.after))
        diff = TableDiff(str(self._key), before=before, after=after, load_comparer=lambda: self._comparer)
        older_names = tuple((pair.newer, pair.older) for pair in pair_columns(diff) if pair.newer and pair.older)
        return _Changed(change=change, rows=_read_changed(diff), older_names=older_names)

    def to_arrow(self) -> pa.Table:
        """Return the key and the commit of each row, or of each cell with the name of its column."""
        if self._cells is None:
            return _with_commits(self._keys, self._commits, self._found[:, 0])
        parts = []
        for position, name in enumerate(self._cells):
            named = self._keys.append_column("column", pa.array([name] * len(self._keys), pa.string()))
            parts.append(_with_commits(named, self._commits, self._found[:, position]))
        return pa.concat_tables(parts)


def _until_created(changes: Iterator[TableChange]) -> Iterator[TableChange]:
    """Yield the changes back to the one that created the table or its first rows: each row is blamed on one of them."""
    for change in changes:
        yield change
        if change.before is None or not change.before.rows:
            return


def _read_changed(diff: TableDiff) -> pa.Table:
    """Return the inserted and updated rows of a diff: `change`, `columns`, and the columns of the row after it."""
    reader, wanted = diff.iter_batches(), ["change", "columns", "after"]
    # Only what is needed is kept: the deleted rows and the values before may be large.
    kept = [
        batch.select(wanted).filter(pc.not_equal(batch.column("change"), RowChangeKind.DELETED.value))
        for batch in reader
    ]
    schema = pa.schema([reader.schema.field(name) for name in wanted])
    # This names the columns of the row `after.NAME`.
    return pa.Table.from_batches(kept, schema=schema).flatten()


class _RowIndex:
    """The rows of the newest state by their key."""

    def __init__(self, keys: pa.Table) -> None:
        self._keys = keys.append_column(_INDEX, pa.array(np.arange(len(keys), dtype=np.int64)))
        self._sorted: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = None
        if keys.num_columns == 1 and pa.types.is_integer(keys.schema.types[0]):
            values = keys.column(0).to_numpy()
            order = np.argsort(values, kind="stable")
            self._sorted = values[order], order

    def find(self, rows: pa.Table, names: Sequence[str | None]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the positions of the rows that exist in the newest state, and their positions in `rows`."""
        columns = []
        for name, field in zip(names, self._keys.schema, strict=False):
            column = _cast(rows[f"after.{name}"], field.type) if name is not None else None
            if column is None:
                return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
            columns.append(column)
        # Most keys are one column of integers. A binary search needs no hash table of all rows for each commit.
        if self._sorted is not None and columns[0].null_count == 0:
            values, order = self._sorted
            given = columns[0].to_numpy()
            # A key above all others would get a position behind the end.
            at = np.minimum(np.searchsorted(values, given), max(len(values) - 1, 0))
            which = np.flatnonzero(values[at] == given) if len(values) else np.empty(0, dtype=np.int64)
            return order[at[which]] if len(values) else which, which
        key_names = self._keys.column_names[:-1]
        given_rows = pa.table(columns, names=key_names).append_column("__given", pa.array(np.arange(len(rows))))
        joined = given_rows.join(self._keys, keys=key_names, join_type="inner")
        return joined[_INDEX].to_numpy(), joined["__given"].to_numpy()


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException:
        return None  # The column had another type, and its values cannot be those of the key.


def _with_commits(keys: pa.Table, commits: Sequence[GraphCommit], numbers: npt.NDArray[np.int64]) -> pa.Table:
    # Rows without a commit get nulls. A negative index is an error in `take`.
    at = pa.array(np.where(numbers < 0, 0, numbers), mask=numbers < 0)
    for name, attribute, kind in _COMMIT_FIELDS:
        values = [getattr(commit, attribute) for commit in commits]
        keys = keys.append_column(name, pa.array(values, kind).take(at))
    return keys
