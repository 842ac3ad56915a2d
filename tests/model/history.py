"""The parts of a history: commits, log entries, views and transactions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import TableExistsError, TableNotFoundError, WriteConflictError
from anabranch.format.staging import ColumnChange
from tests.model.table import Condition, Expression, ModelTable

_HINT = "the model has no advice"
Tables = Mapping[str, ModelTable]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelCommit:
    """All tables after a step. `version` is its log entry, and `incarnation` the entry that created its branch.

    `ground` are the tables right before it. On a live branch `below` is the state of main, all but the `own` tables are
    from there, and the `followed` ones were until this commit. `merged` is the second parent of a merge, and
    `merged_below` the state of main below it if it was live. `origins` are the commits that a table comes from if these
    are not the parents: a state of main, or the commit that it was pulled from.
    """

    branch: str
    version: int
    incarnation: int
    parent: "ModelCommit | None" = field(repr=False)
    tables: Tables = field(repr=False)
    changed: tuple[str, ...]
    ground: Tables = field(default_factory=dict, repr=False)
    followed: frozenset[str] = frozenset()
    merged: "ModelCommit | None" = field(default=None, repr=False)
    merged_below: "ModelCommit | None" = field(default=None, repr=False)
    origins: "Mapping[str, tuple[ModelCommit, ...]]" = field(default_factory=dict, repr=False)
    below: "ModelCommit | None" = field(default=None, repr=False)
    own: frozenset[str] = frozenset()

    @property
    def parents(self) -> "tuple[ModelCommit, ...]":
        return tuple(parent for parent in (self.parent, self.merged) if parent is not None)

    def history(self) -> Iterator["ModelCommit"]:
        commit: ModelCommit | None = self
        while commit is not None:
            yield commit
            commit = commit.parent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelEntry:
    """An entry of the log of a branch. `incarnation` is the number of the entry that created the branch.

    A live branch shows main except for its `own` tables. Its commit was made with the state `below` of main.
    """

    commit: ModelCommit
    parent: str | None
    incarnation: int
    is_deleted: bool = False
    is_protected: bool = False
    is_live: bool = False
    own: frozenset[str] = frozenset()
    below: ModelCommit | None = None

    def shown_on(self, main: ModelCommit) -> Tables:
        if not self.is_live:
            return self.commit.tables
        theirs = {key: table for key, table in main.tables.items() if key not in self.own}
        return theirs | {key: table for key, table in self.commit.tables.items() if key in self.own}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelView:
    """What a ref shows: a commit and its tables. On a live branch that moved below they differ: not `is_recorded`.

    `name` and `number` identify the log entry that was found, and `parent` is the parent of a branch made from it.
    All but the `own` tables of a live branch are from the state `below` of main.
    """

    commit: ModelCommit
    tables: Tables
    name: str | None = None
    number: int = 0
    parent: str | None = None
    is_head: bool = False
    is_live: bool = False
    is_recorded: bool = True
    below: ModelCommit | None = None
    own: frozenset[str] = frozenset()

    @classmethod
    def of_commit(cls, commit: ModelCommit, *, parent: str | None = None) -> "ModelView":
        return cls(commit=commit, tables=commit.tables, parent=parent, below=commit.below, own=commit.own)

    def origin(self, key: str) -> ModelCommit:
        """Return the commit that a table comes from."""
        return self.commit if self.below is None or key in self.own else self.below


# A change to a table that can be applied to another state of it.
Change = Callable[[ModelTable], ModelTable]


@dataclass(slots=True, eq=False)
class ModelTransaction:
    """Staged tables, and the changes that led to them. A dropped table is None.

    It has the methods of a real transaction. `ground` is the state that it began on, with `main` below a live branch.
    """

    branch: str
    base: ModelEntry
    main: ModelCommit | None
    ground: Tables
    drafts: dict[str, ModelTable | None] = field(default_factory=dict)
    steps: dict[str, list[Change]] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, ModelTable]:
        return {key: table for key, table in {**self.ground, **self.drafts}.items() if table is not None}

    def create_table(self, key: str, schema: pa.Schema, *, primary_key: Sequence[str]) -> None:
        self._refuse_taken(key)
        self._set(key, ModelTable.create(key, schema.names, primary_key, among=self.tables))

    def drop_table(self, key: str) -> None:
        self._get(key)
        self._set(key, None)

    def rename_table(self, key: str, new: str) -> None:
        self._refuse_taken(new)
        table = self._get(key)
        self._set(key, None)
        self._set(new, table)

    def append(self, key: str, data: pa.Table | pa.RecordBatchReader) -> None:
        rows = data if isinstance(data, pa.Table) else data.read_all()
        self._apply(key, lambda table: table.append(rows.column_names, rows.to_pylist()), is_repeatable=True)

    def upsert(self, key: str, data: pa.Table) -> None:
        self._apply(key, lambda table: table.upsert(data.column_names, data.to_pylist()), is_repeatable=True)

    def overwrite(self, key: str, data: pa.Table) -> None:
        self._apply(key, lambda table: table.overwrite(data.column_names, data.to_pylist()))

    def update(self, key: str, assignments: Mapping[str, Expression], *, where: Condition) -> None:
        self._apply(key, lambda table: table.update(assignments, where))

    def delete(self, key: str, where: Condition) -> None:
        self._apply(key, lambda table: table.delete(where))

    def add_columns(self, key: str, columns: Mapping[str, Expression] | pa.Schema) -> None:
        computed = columns if isinstance(columns, Mapping) else {name: lambda _: None for name in columns.names}
        ((name, value),) = computed.items()
        self._apply(key, lambda table: table.add_column(name, value))

    def alter_columns(self, key: str, changes: Sequence[ColumnChange]) -> None:
        (change,) = changes
        self._apply(key, lambda table: table.rename_column(change.path, change.name or ""))

    def drop_columns(self, key: str, columns: Sequence[str]) -> None:
        (name,) = columns
        self._apply(key, lambda table: table.drop_column(name))

    def _apply(self, key: str, change: Change, *, is_repeatable: bool = False) -> None:
        """Change a table. A repeatable change means the same on other rows, as long as the columns are the same."""
        before = self._get(key)

        def repeat(table: ModelTable) -> ModelTable:
            if not is_repeatable or table.columns != before.columns:
                raise WriteConflictError(f"{key!r} was changed", hint=_HINT)
            return change(table)

        after = change(before)
        if after is not before:
            self._set(key, after, [*self.steps.get(key, []), repeat])

    def _set(self, key: str, table: ModelTable | None, steps: Sequence[Change] | None = None) -> None:
        def refuse(_: ModelTable) -> ModelTable:
            raise WriteConflictError(f"{key!r} is another table", hint=_HINT)

        self.drafts[key] = table
        self.steps[key] = [refuse] if steps is None else list(steps)

    def _get(self, key: str) -> ModelTable:
        if key not in self.tables:
            raise TableNotFoundError(f"there is no table {key!r}", hint=_HINT)
        return self.tables[key]

    def _refuse_taken(self, key: str) -> None:
        if key in self.tables:
            raise TableExistsError(f"there is a table {key!r}", hint=_HINT)
