"""A repository as plain dictionaries: small enough to be obviously right, so that it can judge the real one.

It raises the same kinds of errors as the real one, and refuses before it changes anything. Tables and commits are
compared by identity: a table that is the same object in two commits was not touched between them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import (
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    CommitNotFoundError,
    InvalidInputError,
    InvalidNameError,
    KeyConflictError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
    WriteConflictError,
)

__all__ = ["ModelCommit", "ModelEntry", "ModelRepository", "ModelTable", "ModelTransaction", "Row", "Value"]

Value = int | str | None
Row = Mapping[str, Value]
Condition = Callable[[Row], bool]
Expression = Callable[[Row], Value]

_HINT = "the model has no advice"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTable:
    """One state of a table. Each operation returns the next state, or the same one if it changes nothing.

    `shape` is another object after every operation on columns, even one that leaves the same names.
    """

    columns: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    shape: object = field(default_factory=object)

    def append(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        self._require_known(columns)
        self.require_new_keys(rows)
        return replace(self, rows=(*self.rows, *map(self._whole, rows))) if rows else self

    def upsert(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        if not self.primary_key:
            raise InvalidInputError("the table has no primary key", hint=_HINT)
        self._require_known(columns)
        self._require_good_keys(rows)
        given = {self.key_of(row): row for row in rows}
        present = {self.key_of(row) for row in self.rows}
        kept = tuple({**row, **given.get(self.key_of(row), {})} for row in self.rows)
        added = tuple(self._whole(row) for key, row in given.items() if key not in present)
        return replace(self, rows=(*kept, *added)) if rows else self

    def update(self, assignments: Mapping[str, Expression], where: Condition) -> "ModelTable":
        for name in assignments:
            if name in self.primary_key:
                raise InvalidInputError(f"{name!r} is part of the primary key", hint=_HINT)
        self._require_present(assignments)
        if not any(map(where, self.rows)):
            return self

        def changed(row: Row) -> Row:
            return {**row, **{name: value(row) for name, value in assignments.items()}} if where(row) else row

        return replace(self, rows=tuple(map(changed, self.rows)))

    def delete(self, where: Condition) -> "ModelTable":
        left = tuple(row for row in self.rows if not where(row))
        return replace(self, rows=left) if len(left) < len(self.rows) else self

    def overwrite(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        for name in self.primary_key:
            if name not in columns:
                raise SchemaMismatchError(f"the data has no {name!r}", hint=_HINT)
        self._require_good_keys(rows)
        return self._reshaped(tuple(columns), tuple(rows))

    def add_column(self, name: str, value: Expression) -> "ModelTable":
        if name in self.columns:
            raise InvalidNameError(f"there is a column {name!r}", hint=_HINT)
        rows = tuple({**row, name: value(row)} for row in self.rows)
        return self._reshaped((*self.columns, name), rows)

    def rename_column(self, old: str, new: str) -> "ModelTable":
        self._require_present([old])
        if new != old and new in self.columns:
            raise SchemaMismatchError(f"there is a column {new!r}", hint=_HINT)
        if new == old:
            return self

        def renamed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        rows = tuple(dict(zip(renamed(tuple(row)), row.values(), strict=True)) for row in self.rows)
        return replace(self._reshaped(renamed(self.columns), rows), primary_key=renamed(self.primary_key))

    def drop_column(self, name: str) -> "ModelTable":
        if name in self.primary_key:
            raise InvalidInputError(f"{name!r} is part of the primary key", hint=_HINT)
        self._require_present([name])
        left = tuple(column for column in self.columns if column != name)
        if not left:
            raise InvalidInputError("no column would be left", hint=_HINT)
        return self._reshaped(left, tuple({column: row[column] for column in left} for row in self.rows))

    def key_of(self, row: Row) -> tuple[Value, ...]:
        return tuple(row.get(name) for name in self.primary_key)

    def require_new_keys(self, rows: Sequence[Row]) -> None:
        self._require_good_keys(rows)
        present = {self.key_of(row) for row in self.rows}
        if self.primary_key and any(self.key_of(row) in present for row in rows):
            raise KeyConflictError("a key is there already", hint=_HINT)

    def _require_good_keys(self, rows: Sequence[Row]) -> None:
        keys = [self.key_of(row) for row in rows]
        if self.primary_key and (len(set(keys)) < len(keys) or any(None in key for key in keys)):
            raise KeyConflictError("a key is null or repeated", hint=_HINT)

    def _require_known(self, columns: Collection[str]) -> None:
        if not set(columns) <= set(self.columns):
            raise SchemaMismatchError(f"some of {columns!r} are not expected", hint=_HINT)

    _require_present = _require_known

    def _reshaped(self, columns: tuple[str, ...], rows: tuple[Row, ...]) -> "ModelTable":
        return replace(self, columns=columns, rows=rows, shape=object())

    def _whole(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelCommit:
    """All tables after one step. `version` and `incarnation` say which entry of which life of its branch made it."""

    branch: str
    version: int
    incarnation: int
    parent: "ModelCommit | None"
    tables: Mapping[str, ModelTable]
    changed: tuple[str, ...]

    def history(self) -> Iterator["ModelCommit"]:
        commit: ModelCommit | None = self
        while commit is not None:
            yield commit
            commit = commit.parent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelEntry:
    """One entry of a branch's log. `incarnation` is the number of the entry that created the branch."""

    commit: ModelCommit
    parent: str | None
    incarnation: int
    is_deleted: bool = False


# A change to a table, made again on another state of it; None if it would not mean the same there.
Again = Callable[[ModelTable], ModelTable] | None


def _refuse_again(table: ModelTable) -> ModelTable:
    raise WriteConflictError(f"{table!r} is another table", hint=_HINT)


@dataclass(slots=True, eq=False)
class ModelTransaction:
    """Tables as a transaction has them, and how each came about; a table that was dropped is None."""

    branch: str
    base: ModelEntry
    drafts: dict[str, ModelTable | None] = field(default_factory=dict)
    steps: dict[str, list[Callable[[ModelTable], ModelTable]]] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, ModelTable]:
        merged = {**self.base.commit.tables, **self.drafts}
        return {key: table for key, table in merged.items() if table is not None}

    def create_table(self, key: str, columns: Sequence[str], primary_key: Sequence[str]) -> None:
        self._refuse_taken(key)
        self._set(key, ModelTable(columns=tuple(columns), primary_key=tuple(primary_key)))

    def drop_table(self, key: str) -> None:
        self._get(key)
        self._set(key, None)

    def rename_table(self, key: str, new: str) -> None:
        self._refuse_taken(new)
        table = self._get(key)
        self._set(key, None)
        self._set(new, table)

    def append(self, key: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self._apply(key, self._get(key).append(columns, rows), lambda table: table.append(columns, rows))

    def upsert(self, key: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self._apply(key, self._get(key).upsert(columns, rows), lambda table: table.upsert(columns, rows))

    def change(self, key: str, change: Callable[[ModelTable], ModelTable]) -> None:
        """Any other operation: what it means depends on the rows it was made on."""
        self._apply(key, change(self._get(key)), None)

    def _apply(self, key: str, after: ModelTable, again: Again) -> None:
        before = self._get(key)

        def again_on_same_columns(table: ModelTable) -> ModelTable:
            if again is None or table.columns != before.columns:
                raise WriteConflictError(f"{key!r} was changed", hint=_HINT)
            return again(table)

        if after is not before:
            self._set(key, after, [*self.steps.get(key, []), again_on_same_columns])

    def _set(
        self, key: str, table: ModelTable | None, steps: Sequence[Callable[[ModelTable], ModelTable]] = (_refuse_again,)
    ) -> None:
        self.drafts[key] = table
        self.steps[key] = list(steps)

    def _get(self, key: str) -> ModelTable:
        if key not in self.tables:
            raise TableNotFoundError(f"there is no table {key!r}", hint=_HINT)
        return self.tables[key]

    def _refuse_taken(self, key: str) -> None:
        if key in self.tables:
            raise TableExistsError(f"there is a table {key!r}", hint=_HINT)


class ModelRepository:
    """Logs of branches, each a list of entries, and the commits by the ids that the real repository gave them."""

    def __init__(self, first_commit_id: str) -> None:
        first = ModelCommit(branch="main", version=1, incarnation=1, parent=None, tables={}, changed=())
        self.logs = {"main": [ModelEntry(commit=first, parent=None, incarnation=1)]}
        self.commits = {first_commit_id: first}

    def id_of(self, commit: ModelCommit) -> str:
        return next(commit_id for commit_id, known in self.commits.items() if known is commit)

    # Branches

    @property
    def branches(self) -> list[str]:
        return sorted(name for name in self.logs if self.is_live(name))

    def is_live(self, name: str) -> bool:
        return name in self.logs and not self.logs[name][-1].is_deleted

    def head(self, name: str) -> ModelEntry:
        if not self.is_live(name):
            raise BranchNotFoundError(f"there is no branch {name!r}", hint=_HINT)
        return self.logs[name][-1]

    def resolve(self, ref: str) -> tuple[ModelCommit, str | None]:
        """The commit of `main`, `main~2`, `main@v3` or a commit id, and the branch that it was found by."""
        if ref in self.commits:
            return self.commits[ref], None
        name, _, number = ref.partition("@v")
        if number:
            if not 0 < int(number) <= len(self.logs.get(name, ())):
                raise VersionNotFoundError(f"there is no {ref!r}", hint=_HINT)
            return self.logs[name][int(number) - 1].commit, name if self.is_live(name) else None
        name, _, back = ref.partition("~")
        history = list(self.head(name).commit.history())
        if int(back or 0) >= len(history):
            raise CommitNotFoundError(f"{ref!r} goes back too far", hint=_HINT)
        return history[int(back or 0)], name

    def branch_create_from(self, source: str, name: str) -> None:
        commit, parent = self.resolve(source)
        if self.is_live(name):
            raise BranchExistsError(f"there is a branch {name!r}", hint=_HINT)
        log = self.logs.setdefault(name, [])
        log.append(ModelEntry(commit=commit, parent=parent, incarnation=len(log) + 1))

    def branch_delete(self, name: str) -> None:
        if name == "main":
            raise InvalidInputError("main stays", hint=_HINT)
        entry = self.head(name)
        if any(self.head(other).parent == name for other in self.branches):
            raise BranchInUseError(f"{name!r} has descendants", hint=_HINT)
        self.logs[name].append(replace(entry, is_deleted=True))

    def branch_restore(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        if self.is_live(name):
            raise BranchExistsError(f"{name!r} is not deleted", hint=_HINT)
        entry = self.logs[name][-1]
        if entry.parent is not None and not self.is_live(entry.parent):
            raise BranchNotFoundError(f"the parent of {name!r} is gone", hint=_HINT)
        self.logs[name].append(replace(entry, is_deleted=False))

    # Transactions

    def begin(self, branch: str) -> ModelTransaction:
        return ModelTransaction(branch=branch, base=self.head(branch))

    def publish(self, tx: ModelTransaction) -> ModelCommit | None:
        """Commit a transaction on top of the branch as it is now; the caller records the commit's real id."""
        before = tx.base.commit.tables
        changes = {key: table for key, table in tx.drafts.items() if table is not before.get(key)}
        if not changes:
            return None
        head = self.head(tx.branch)
        if head.incarnation != tx.base.incarnation:
            raise BranchNotFoundError(f"{tx.branch!r} is another branch now", hint=_HINT)
        for key in changes:
            changes[key] = self._rebased(tx, key, head.commit.tables.get(key))
        return self._commit(tx.branch, head, changes)

    def _rebased(self, tx: ModelTransaction, key: str, theirs: ModelTable | None) -> ModelTable | None:
        origin, draft = tx.base.commit.tables.get(key), tx.drafts[key]
        if theirs is origin:
            return draft
        if theirs is None or origin is None or draft is None or theirs.primary_key != draft.primary_key:
            raise WriteConflictError(f"{key!r} was made or dropped", hint=_HINT)
        for again in tx.steps[key]:
            theirs = again(theirs)
        return theirs

    def _commit(self, branch: str, head: ModelEntry, changes: Mapping[str, ModelTable | None]) -> ModelCommit:
        merged = {**head.commit.tables, **changes}
        commit = ModelCommit(
            branch=branch,
            version=len(self.logs[branch]) + 1,
            incarnation=head.incarnation,
            parent=head.commit,
            tables={key: table for key, table in merged.items() if table is not None},
            changed=tuple(sorted(changes)),
        )
        self.logs[branch].append(replace(head, commit=commit))
        return commit
