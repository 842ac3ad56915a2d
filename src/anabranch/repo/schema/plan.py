"""Plan the steps from the current schema to the desired one. Nothing is read or changed here."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError, InvalidSchemaError
from anabranch.format.staging.incoming import require_computable
from anabranch.ids import TableKey
from anabranch.repo.schema.state import Column, CurrentTable, Index, SchemaState, TableSchema, satisfies
from anabranch.repo.schema.steps import (
    AddColumn,
    ChangeDefault,
    ChangeDescription,
    ChangeNullability,
    ChangePrimaryKey,
    ChangeType,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameTable,
    Step,
)
from anabranch.repo.schema.widening import is_widening

__all__ = ["SchemaPlan", "plan_schema"]

_Name = TypeVar("_Name", TableKey, str)


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


def plan_schema(desired: SchemaState, current: Mapping[TableKey, CurrentTable]) -> tuple[Step, ...]:
    """Return the steps from the current tables to the desired ones.

    Tables of a desired bucket that are not in the desired schema are dropped. Tables of other buckets are not changed.
    """
    renames = _renames(
        {table.key: table.was for table in desired.tables if table.was is not None}, exists=current.__contains__
    )
    moved = set(renames.values())
    dropped = [key for key in current if _is_dropped(key, desired, moved=moved)]
    # Drops and renames come first: they free names that the steps after them may use.
    steps: list[Step] = [DropTable(table=key, rows=current[key].rows) for key in sorted(dropped)]
    steps += [RenameTable(table=new, was=old) for new, old in renames.items()]
    for table in desired.tables:
        if table.key in renames:
            steps += _plan_table(table, current[renames[table.key]])
        # A table that is renamed away leaves its name to a new table.
        elif table.key in current and table.key not in moved:
            steps += _plan_table(table, current[table.key])
        else:
            steps.append(CreateTable(table=table.key, schema=table))
    return tuple(steps)


def _is_dropped(key: TableKey, desired: SchemaState, *, moved: set[TableKey]) -> bool:
    return key.bucket in desired.buckets and key not in desired.by_key and key not in moved


def _renames(requested: Mapping[_Name, _Name], *, exists: Callable[[_Name], bool]) -> dict[_Name, _Name]:
    """Return the renames that are still needed as {new name: old name}, in an order that frees names first.

    If the new name already exists, the rename was done before, unless that table or column is renamed away itself. So
    planning twice does not rename twice, and a cycle of names is not renamed at all.
    """
    found: dict[_Name, _Name] = {}
    has_grown = True
    # A rename may free the name that another one needs, so repeat until nothing is added.
    while has_grown:
        has_grown = False
        for new, old in requested.items():
            is_free = not exists(new) or new in found.values()
            if new not in found and exists(old) and is_free:
                found[new] = old
                has_grown = True
    return found


def _plan_table(table: TableSchema, found: CurrentTable) -> list[Step]:
    before = {column.name: column for column in found.schema.columns}
    renames = _renames(
        {column.name: column.was for column in table.columns if column.was is not None}, exists=before.__contains__
    )
    steps: list[Step] = [RenameColumn(table=table.key, column=new, was=old) for new, old in renames.items()]
    origins = _origins(table, before, renames)
    retyped: set[str] = set()
    for column in table.columns:
        origin = origins.get(column.name)
        if origin is None:
            steps.append(AddColumn(table=table.key, column=column))
            continue
        if origin.type != column.type:
            retyped.add(column.name)
        steps += _plan_column(table, origin, column)
    kept = {origin.name: name for name, origin in origins.items()}
    # Before columns are dropped, because a column of the old key may be among them.
    steps += _plan_primary_key(table, found.schema.primary_key, kept)
    steps += [DropColumn(table=table.key, column=column) for name, column in before.items() if name not in kept]
    steps += _plan_indices(table, found, kept, retyped=retyped)
    if table.description != found.schema.description:
        steps.append(
            ChangeDescription(table=table.key, column=None, before=found.schema.description, after=table.description)
        )
    return steps


def _origins(table: TableSchema, before: Mapping[str, Column], renames: Mapping[str, str]) -> dict[str, Column]:
    """Return the current column of each desired column. New columns are not included."""
    moved = set(renames.values())
    found: dict[str, Column] = {}
    for column in table.columns:
        if column.name in renames:
            found[column.name] = before[renames[column.name]]
        elif column.name in before and column.name not in moved:
            found[column.name] = before[column.name]
    return found


def _plan_column(table: TableSchema, before: Column, after: Column) -> Iterable[Step]:
    if before.type != after.type:
        yield _plan_type(table, before, after)
    if before.nullable != after.nullable:
        yield ChangeNullability(table=table.key, column=after.name, nullable=after.nullable)
    if before.default != after.default:
        yield ChangeDefault(table=table.key, column=after.name, before=before.default, after=after.default)
    if before.description != after.description:
        yield ChangeDescription(table=table.key, column=after.name, before=before.description, after=after.description)


def _plan_type(table: TableSchema, before: Column, after: Column) -> ChangeType:
    try:
        old, new = before.arrow.type, after.arrow.type
        # Checked here, so that a plan and a dry run refuse it too, and not only the apply.
        require_computable(old, after.arrow)
    except InvalidInputError:
        raise InvalidSchemaError(
            f"tables.{table.key}.columns.{after.name}: {before.type} cannot become {after.type}",
            hint="add a column with another name, copy the values, and drop this one",
        ) from None
    return ChangeType(
        table=table.key, column=after.name, before=before.type, after=after.type, widens=is_widening(old, new)
    )


def _plan_primary_key(table: TableSchema, before: Sequence[str], kept: Mapping[str, str]) -> list[Step]:
    # If key columns are renamed, the key stays the same.
    followed = tuple(kept.get(name, name) for name in before)
    if followed == table.primary_key:
        return []
    return [ChangePrimaryKey(table=table.key, before=followed, after=table.primary_key)]


def _plan_indices(table: TableSchema, found: CurrentTable, kept: Mapping[str, str], *, retyped: set[str]) -> list[Step]:
    """Plan the indices. They follow renamed columns, and are dropped with their columns."""
    existing = [
        replace(index, column=kept[index.column], name=index.chosen_name)
        for index in found.schema.indices
        if index.column in kept
    ]
    matched = _match_indices(table.indices, existing)
    kept_names = {same.chosen_name for same in matched.values()}
    taken = kept_names | {index.name for index in table.indices if index.name is not None}
    created: list[Step] = []
    for index in table.indices:
        same = matched.get(index.chosen_name)
        if same is None:
            created.append(CreateIndex(table=table.key, index=index if index.name else _with_unused_name(index, taken)))
        # A new type needs a new index. Without rows, Lance cannot build an index.
        elif found.rows and (index.column in retyped or same.chosen_name in found.unbuilt):
            created.append(CreateIndex(table=table.key, index=replace(index, name=same.name), is_rebuilt=True))
    dropped = [index for index in existing if index.chosen_name not in kept_names]
    return [*(DropIndex(table=table.key, index=index) for index in dropped), *created]


def _match_indices(desired: Sequence[Index], existing: Sequence[Index]) -> dict[str, Index]:
    """Return the existing index for each desired one. An index whose name another desired index has does not match."""
    # An index whose name is declared is kept for that declaration, also if another one would match.
    reserved = {index.name for index in desired if index.name is not None}
    free = {index.chosen_name: index for index in existing}
    found: dict[str, Index] = {}
    for index in desired:
        fits = (n for n, other in free.items() if satisfies(other, index) and (n == index.name or n not in reserved))
        name = next(fits, None)
        if name is not None:
            found[index.chosen_name] = free.pop(name)
    return found


def _with_unused_name(index: Index, taken: Container[str]) -> Index:
    """Return an index with an unused name: an index that followed a renamed column may have the default name."""
    if index.chosen_name not in taken:
        return index
    names = (f"{index.column}_idx_{number}" for number in count(2))
    return replace(index, name=next(name for name in names if name not in taken))
