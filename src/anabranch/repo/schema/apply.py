"""Apply a desired schema: plan it on the newest state, check the rows, stage the tables, publish one commit."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from anabranch.errors import DestructiveChangeError, InvalidSchemaError, SchemaMismatchError, WriteConflictError
from anabranch.format import staging
from anabranch.format.staging import DESCRIPTION, ColumnChange
from anabranch.format.staging.expressions import quoted_column
from anabranch.format.staging.incoming import cast_computed
from anabranch.ids import TableKey
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.refs.protection import holding_schema_lock
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.schema.plan import (
    AddColumn,
    ChangeColumn,
    ChangePrimaryKey,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameTable,
    Step,
    plan_schema,
)
from anabranch.repo.schema.state import (
    Column,
    CurrentTable,
    SchemaState,
    TableSchema,
    built_indices,
    checkable,
    notes_of_columns,
    read_current,
)
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write import table_changes
from anabranch.repo.write.staged_table import StagedTable, check_unique

_Kind = TypeVar("_Kind", bound=Step)
_MAX_ATTEMPTS = 20
_DEFAULT_HINT = "write it in SQL; text in single quotes, such as default: \"'new'\""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    """The steps from a branch at a commit to a desired schema."""

    branch: str
    commit_id: str
    steps: tuple[Step, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not self.steps

    @property
    def destructive(self) -> tuple[Step, ...]:
        """The steps that may lose data."""
        return tuple(step for step in self.steps if step.is_destructive)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that change, by their new names."""
        return tuple(dict.fromkeys(str(step.table) for step in self.steps))

    def of_table(self, table: str) -> list[Step]:
        """List the steps that change one table."""
        return [step for step in self.steps if str(step.table) == table]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dict for JSON."""
        return {
            "branch": self.branch,
            "commit_id": self.commit_id,
            "is_empty": self.is_empty,
            "is_destructive": bool(self.destructive),
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaApplied:
    """The applied plan and its commit. The commit is None for a dry run, and if there was nothing to do."""

    plan: SchemaPlan
    commit: GraphCommit | None


def show_schema(snapshot: Snapshot) -> SchemaState:
    """Return the schema of all tables of a snapshot."""
    return SchemaState.of(table.schema for table in read_current(snapshot.values()).values())


def plan_on(snapshot: Snapshot, desired: SchemaState, *, branch: str) -> SchemaPlan:
    """Return the plan from a snapshot to a desired schema."""
    current = read_current(snapshot[key] for key in snapshot if _concerns(desired, TableKey.parse(key)))
    return SchemaPlan(branch=branch, commit_id=snapshot.id, steps=plan_schema(desired, current))


def apply_schema(
    repo_store: RepoStore,
    begin: Callable[[], Transaction],
    desired: SchemaState,
    *,
    allow_destructive: bool,
    dry_run: bool,
) -> SchemaApplied:
    """Plan, check and publish. If another writer changes the same tables concurrently, plan again on the new state."""
    # Without the lock: an empty plan must not fail because another process holds it.
    tried = _apply_once(begin(), desired, allow_destructive=allow_destructive, dry_run=True)
    if dry_run or tried.plan.is_empty:
        return tried
    config = repo_store.config
    with holding_schema_lock(repo_store):
        for losses in range(1, _MAX_ATTEMPTS):
            began = config.clock()
            try:
                return _apply_once(begin(), desired, allow_destructive=allow_destructive, dry_run=False)
            # The old plan is not used again: its tables or columns may be gone in the new state.
            except WriteConflictError:
                config.give_way(losses, config.clock() - began)
        return _apply_once(begin(), desired, allow_destructive=allow_destructive, dry_run=False)


def _apply_once(
    transaction: Transaction, desired: SchemaState, *, allow_destructive: bool, dry_run: bool
) -> SchemaApplied:
    with transaction as tx:
        tables = {key: tx[key] for key in tx.tables if _concerns(desired, TableKey.parse(key))}
        current = read_current(tables.values())
        plan = SchemaPlan(branch=tx.branch, commit_id=tx.base_commit_id, steps=plan_schema(desired, current))
        # Before the rows are read: the refusal does not depend on them.
        if plan.destructive and not allow_destructive:
            raise DestructiveChangeError(
                f"{len(plan.destructive)} of {len(plan.steps)} changes may lose data: "
                + "; ".join(f"{step.symbol} {step}" for step in plan.destructive),
                hint="pass `allow_destructive=True` to apply them; older commits keep the data",
            )
        _check_defaults(desired, plan)
        # Checked by reading only: staging would write data files.
        if dry_run:
            for key in plan.tables:
                _check_table(plan.of_table(key), tables, current)
        else:
            _stage(tx, plan, desired)
    return SchemaApplied(plan=plan, commit=tx.published)


def _concerns(desired: SchemaState, key: TableKey) -> bool:
    return key.bucket in desired.buckets or any(table.was == key for table in desired.tables)


def _check_defaults(desired: SchemaState, plan: SchemaPlan) -> None:
    for table in desired.tables:
        if str(table.key) not in plan.tables:
            continue
        defaults = {column.name: column.default for column in table.columns if column.default is not None}
        wrong = staging.find_wrong_default(checkable(table.columns), defaults)
        if wrong is not None:
            name, err = wrong
            # The hint of an error about an unknown column lists the columns, so keep it.
            hint = f"{err.hint}; {_DEFAULT_HINT}" if "column" in err.details else _DEFAULT_HINT
            raise InvalidSchemaError(f"tables.{table.key}.columns.{name}.default: {err.problem}", hint=hint) from err


# Checks of the rows for a dry run. When a plan is applied, each staged step checks its rows itself.


def _check_table(steps: list[Step], tables: Mapping[str, Table], current: Mapping[TableKey, CurrentTable]) -> None:
    """Raise SchemaMismatchError if the existing rows do not allow a step."""
    # Nothing is staged yet, so the rows are in the table with the old name.
    key = next((rename.was for rename in _of_kind(RenameTable, steps)), steps[0].table)
    if key not in current:
        return
    table = tables[str(key)]
    for step in steps:
        match step:
            case ChangeColumn(what="nullable", after=Column(nullable=False)):
                _check_no_nulls(step, table)
            case ChangeColumn(what="type", is_destructive=True):
                _check_values(step, table)
            case AddColumn(column=Column(nullable=False, default=None)) if current[key].rows:
                raise SchemaMismatchError(
                    f"tables.{step.table}.columns.{step.column.name}: cannot add a column that is not null to a table "
                    f"with {current[key].rows} rows",
                    hint="add a default, or make the column nullable",
                )
            case ChangePrimaryKey():
                _check_new_key(step, steps, table, current[key].schema)


def _check_no_nulls(step: ChangeColumn, table: Table) -> None:
    nulls = table.count_rows(where=f"{quoted_column(step.before.name)} IS NULL")
    if nulls:
        raise SchemaMismatchError(
            f"tables.{step.table}.columns.{step.after.name}: cannot set not null, because the column holds "
            f"{nulls} nulls",
            hint="replace the nulls first",
        )


def _check_values(step: ChangeColumn, table: Table) -> None:
    # Nulls are another check.
    field = step.after.arrow.with_nullable(True)  # noqa: FBT003 - Arrow's signature
    for batch in table.scan(columns=[step.before.name]):
        try:
            cast_computed(batch.column(0), field)
        except SchemaMismatchError as err:
            problem = f"tables.{step.table}.columns.{step.after.name}: {err.problem}"
            raise SchemaMismatchError(problem, hint=err.hint) from None


def _check_new_key(step: ChangePrimaryKey, steps: list[Step], table: Table, schema: TableSchema) -> None:
    renamed = {rename.column: rename.was for rename in _of_kind(RenameColumn, steps)}
    columns = [renamed.get(name, name) for name in step.after]
    # A column that does not exist yet has no values to check. Staging checks the key again.
    if all(schema.find_column(name) for name in columns):
        check_unique(table.version_ref, columns)


# Staging


def _stage(tx: Transaction, plan: SchemaPlan, desired: SchemaState) -> None:
    changed: dict[TableKey, list[Step]] = defaultdict(list)
    created: dict[TableKey, TableSchema] = {}
    for step in plan.steps:
        match step:
            # At once, because a changed or created table may take the name of one that goes.
            case DropTable():
                tx.drop_table(str(step.table))
            case RenameTable():
                tx.rename_table(str(step.was), str(step.table))
            case CreateTable():
                created[step.table] = step.schema
            case _:
                changed[step.table].append(step)
    schemas = desired.by_key
    changes = {key: partial(_change_table, table=schemas[key], steps=steps) for key, steps in changed.items()}
    table_writes(tx).change_tables(changes)
    # Create new tables last: if a step fails, no empty dataset is left behind.
    new = {key: (_schema_with_notes(table), table.primary_key) for key, table in created.items()}
    table_writes(tx).create_tables(new)


def _change_table(staged: StagedTable, *, table: TableSchema, steps: list[Step]) -> StagedTable:
    new_key = next(iter(_of_kind(ChangePrimaryKey, steps)), None)
    if new_key is not None:
        # Columns of a primary key cannot be changed or dropped.
        staged = table_changes.set_primary_key(staged, ())
    built = {index.chosen_name for index in built_indices(staged.version_ref)}
    for drop in _of_kind(DropIndex, steps):
        # An index that was declared for an empty table was never built, and exists as a note only.
        if drop.index.chosen_name in built:
            staged = table_changes.drop_index(staged, drop.index.chosen_name)
    changes = _column_changes(steps)
    if changes:
        staged = table_changes.alter_columns(staged, changes)
    # After the renames: a new column may take the name that a renamed one had.
    new = [step.column for step in _of_kind(AddColumn, steps)]
    staged = _add_computed_columns(_add_empty_columns(staged, new), new)
    if new_key is not None:
        staged = table_changes.set_primary_key(staged, new_key.after)
    staged = table_changes.drop_columns(staged, [step.column.name for step in _of_kind(DropColumn, steps)])
    # Last, because notes are set by the new names of the columns, and new columns need them too.
    staged = table_changes.annotate(staged, {DESCRIPTION: table.description}, columns=notes_of_columns(table))
    return _build_indices(staged, steps)


def _of_kind(kind: type[_Kind], steps: Iterable[Step]) -> list[_Kind]:
    return [step for step in steps if isinstance(step, kind)]


def _column_changes(steps: Iterable[Step]) -> list[ColumnChange]:
    """Return one change for each column, under its old name."""
    changes: dict[str, dict[str, Any]] = defaultdict(dict)
    for step in steps:
        match step:
            case RenameColumn():
                changes[step.was] |= {"name": step.column}
            case ChangeColumn(what="type"):
                changes[step.before.name] |= {"type": step.after.arrow.type}
            case ChangeColumn(what="nullable"):
                changes[step.before.name] |= {"nullable": step.after.nullable}
    return [ColumnChange(path=name, **change) for name, change in changes.items()]


def _add_empty_columns(staged: StagedTable, new: list[Column]) -> StagedTable:
    empty = [column for column in new if column.default is None]
    if not empty:
        return staged
    # Added with nulls. `_shape_columns` makes them not null, which is refused if the table has rows.
    schema = pa.schema([column.arrow.with_nullable(True) for column in empty])  # noqa: FBT003
    return _shape_columns(table_changes.add_columns(staged, schema), empty)


def _add_computed_columns(staged: StagedTable, new: list[Column]) -> StagedTable:
    """Add the columns with a default. A default may use another new column, which is added first."""
    pending = {
        column.name: staging.default_expression(column.default, column.arrow.type)
        for column in new
        if column.default is not None
    }
    while pending:
        # If none can be computed, adding them raises the reason.
        ready = staging.find_computable(staged.version_ref, pending) or pending
        staged = table_changes.add_columns(staged, ready)
        staged = _shape_columns(staged, [column for column in new if column.name in ready])
        pending = {name: expression for name, expression in pending.items() if name not in ready}
    return staged


def _shape_columns(staged: StagedTable, new: Iterable[Column]) -> StagedTable:
    """Set the types and the nullability of new columns."""
    found, changes = staged.version_ref.schema, []
    for column in new:
        kind = column.arrow.type if found.field(column.name).type != column.arrow.type else None
        if kind is not None or not column.nullable:
            changes.append(ColumnChange(path=column.name, type=kind, nullable=None if column.nullable else False))
    return table_changes.alter_columns(staged, changes) if changes else staged


def _build_indices(staged: StagedTable, steps: Iterable[Step]) -> StagedTable:
    if not staged.version_ref.count_rows():
        return staged  # Lance cannot build an index without rows. The note remains, and the next apply builds it.
    for index in (create.index for create in _of_kind(CreateIndex, steps)):
        name, kind = index.chosen_name, index.kind.value
        staged = table_changes.index_column(staged, index.column, kind=kind, name=name, vector=index.vector)
    return staged


def _schema_with_notes(table: TableSchema) -> pa.Schema:
    notes = notes_of_columns(table)
    fields = [
        field.with_metadata({name: text for name, text in notes[field.name].items() if text is not None})
        for field in table.arrow
    ]
    return pa.schema(fields, metadata=None if table.description is None else {DESCRIPTION: table.description})
