"""What leads from the schema that there is to the one that is wanted: a plan, decided without touching anything."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError, InvalidSchemaError
from anabranch.format.staging.incoming import require_computable
from anabranch.ids import TableKey
from anabranch.repo.schema.current import CurrentTable
from anabranch.repo.schema.state import Column, Index, SchemaState, TableSchema
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
    """The steps from a branch, as of a commit, to a desired schema."""

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
        """The tables that change, by their names afterwards."""
        return tuple(dict.fromkeys(str(step.table) for step in self.steps))

    def of_table(self, key: str) -> tuple[Step, ...]:
        """The steps that change one table."""
        return tuple(step for step in self.steps if str(step.table) == key)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "branch": self.branch,
            "commit_id": self.commit_id,
            "is_empty": self.is_empty,
            "is_destructive": bool(self.destructive),
            "steps": [step.to_dict() for step in self.steps],
        }


def plan_schema(desired: SchemaState, current: Mapping[TableKey, CurrentTable]) -> tuple[Step, ...]:
    """The steps that make the current tables the desired ones.

    Tables of a desired bucket that are not desired are dropped; those of other buckets are left alone.
    """
    renames = _renames(
        {table.key: table.was for table in desired.tables if table.was is not None}, there=current.__contains__
    )
    moved = set(renames.values())
    gone = [key for key in current if _is_to_be_dropped(key, desired, moved=moved)]
    steps: list[Step] = [DropTable(table=key, rows=current[key].rows) for key in sorted(gone)]
    steps += [RenameTable(table=new, was=old) for new, old in renames.items()]
    for table in desired.tables:
        if table.key in renames:
            steps += _plan_table(table, current[renames[table.key]])
        elif table.key in current and table.key not in moved:
            steps += _plan_table(table, current[table.key])
        else:
            steps.append(CreateTable(table=table.key, schema=table))
    return tuple(steps)


def _is_to_be_dropped(key: TableKey, desired: SchemaState, *, moved: set[TableKey]) -> bool:
    return key.bucket in desired.buckets and key not in desired.by_key and key not in moved


def _renames(wanted: Mapping[_Name, _Name], *, there: Callable[[_Name], bool]) -> dict[_Name, _Name]:
    """Which of the renames are still to be done, {new name: old name}, those first that make room for others.

    A name that is there already was given long ago, unless what has it moves away itself; so a plan made twice does not
    rename twice, and a ring of names is left as it is.
    """
    found: dict[_Name, _Name] = {}
    is_growing = True
    while is_growing:
        is_growing = False
        for new, old in wanted.items():
            is_free = not there(new) or new in found.values()
            if new not in found and there(old) and is_free:
                found[new] = old
                is_growing = True
    return found


def _plan_table(table: TableSchema, found: CurrentTable) -> list[Step]:
    before = {column.name: column for column in found.schema.columns}
    renames = _renames(
        {column.name: column.was for column in table.columns if column.was is not None}, there=before.__contains__
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
    steps += _plan_primary_key(table, found.schema.primary_key, kept)
    steps += [DropColumn(table=table.key, column=column) for name, column in before.items() if name not in kept]
    steps += _plan_indices(table, found, kept, retyped=retyped)
    if table.description != found.schema.description:
        steps.append(
            ChangeDescription(table=table.key, column=None, before=found.schema.description, after=table.description)
        )
    return steps


def _origins(table: TableSchema, before: Mapping[str, Column], renames: Mapping[str, str]) -> dict[str, Column]:
    """The column that each desired one was; new ones are not in it."""
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
        require_computable(old, after.arrow)
    except InvalidInputError:
        raise InvalidSchemaError(
            f"tables.{table.key}.columns.{after.name}: {before.type} cannot become {after.type}",
            hint="add a column of another name, fill it, and drop this one",
        ) from None
    return ChangeType(
        table=table.key, column=after.name, before=before.type, after=after.type, widens=is_widening(old, new)
    )


def _plan_primary_key(table: TableSchema, before: Sequence[str], kept: Mapping[str, str]) -> list[Step]:
    # A key follows its columns when they are renamed.
    followed = tuple(kept.get(name, name) for name in before)
    if followed == table.primary_key:
        return []
    return [ChangePrimaryKey(table=table.key, before=followed, after=table.primary_key)]


def _plan_indices(table: TableSchema, found: CurrentTable, kept: Mapping[str, str], *, retyped: set[str]) -> list[Step]:
    """Indices follow their columns, too, and go with them."""
    there = [
        replace(index, column=kept[index.column], name=index.chosen_name)
        for index in found.schema.indices
        if index.column in kept
    ]
    matched = _matching(table.indices, there)
    kept_names = {same.chosen_name for same in matched.values()}
    taken = kept_names | {index.name for index in table.indices if index.name is not None}
    made: list[Step] = []
    for index in table.indices:
        same = matched.get(index.chosen_name)
        if same is None:
            made.append(CreateIndex(table=table.key, index=index if index.name else _freely_named(index, taken)))
        elif found.rows and (index.column in retyped or same.chosen_name in found.unbuilt):
            made.append(CreateIndex(table=table.key, index=replace(index, name=same.name), is_rebuilt=True))
    gone = [index for index in there if index.chosen_name not in kept_names]
    return [*(DropIndex(table=table.key, index=index) for index in gone), *made]


def _matching(wanted: Sequence[Index], there: Sequence[Index]) -> dict[str, Index]:
    """The index that each wanted one is already; one whose name is wanted for another is none."""
    reserved = {index.name for index in wanted if index.name is not None}
    free = {index.chosen_name: index for index in there}
    found: dict[str, Index] = {}
    for index in wanted:
        fits = (n for n, other in free.items() if index.asks_for(other) and (n == index.name or n not in reserved))
        name = next(fits, None)
        if name is not None:
            found[index.chosen_name] = free.pop(name)
    return found


def _freely_named(index: Index, taken: Container[str]) -> Index:
    """An index under a name that no other has: one that moved with its column may have kept the usual one."""
    if index.chosen_name not in taken:
        return index
    names = (f"{index.column}_idx_{number}" for number in count(2))
    return replace(index, name=next(name for name in names if name not in taken))
