"""Plan the steps from the current schema to the desired one. Nothing is read or changed here."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa

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
    kept = desired.by_key.keys() | moved
    dropped = [key for key in current if key.bucket in desired.buckets and key not in kept]
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
    # If key columns are renamed, the key stays the same.
    key = tuple(kept.get(name, name) for name in found.schema.primary_key)
    # Before columns are dropped, because a column of the old key may be among them.
    if key != table.primary_key:
        steps.append(ChangePrimaryKey(table=table.key, before=key, after=table.primary_key))
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


_UNITS = ("s", "ms", "us", "ns")
# For floats of a number of bits, the largest integer type that they represent exactly, in bits.
_EXACT_BITS = {16: 8, 32: 16, 64: 32}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_types = pa.types


def is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether every value of `before` is a value of `after`, so that no value can be lost or fail to convert."""
    if before == after or _types.is_null(before):
        return True
    # A dictionary is only an encoding: its values decide.
    if _types.is_dictionary(before):
        return is_widening(before.value_type, after)
    return any(is_before(before) and keeps(before, after) for is_before, keeps in _RULES)


def _integer(before: pa.DataType, after: pa.DataType) -> bool:
    bits, is_signed = before.bit_width, _types.is_signed_integer(before)
    if _types.is_integer(after):
        if is_signed == _types.is_signed_integer(after):
            return bool(after.bit_width >= bits)
        # A wider signed type holds all unsigned values. No unsigned type holds negative ones.
        return not is_signed and bool(after.bit_width > bits)
    if _types.is_floating(after):
        return bool(bits <= _EXACT_BITS[after.bit_width])
    if _types.is_decimal(after):
        # The largest unsigned integer of 64 bits has 20 digits, the largest signed one has 19.
        digits = _DIGITS[bits] + (1 if bits == 64 and not is_signed else 0)
        return bool(after.precision - after.scale >= digits)
    return False


def _floating(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_floating(after) and after.bit_width >= before.bit_width)


def _decimal(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(
        _types.is_decimal(after)
        and after.scale >= before.scale
        and after.precision - after.scale >= before.precision - before.scale
    )


def _text(_: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_large_string(after))


def _bytes(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_large_binary(after) or (_types.is_binary(after) and _types.is_fixed_size_binary(before)))


def _date(before: pa.DataType, after: pa.DataType) -> bool:
    if _types.is_timestamp(after):
        # Nanosecond timestamps end in the year 2262, so they cannot hold every date.
        return after.tz is None and after.unit != "ns"
    return bool(_types.is_date64(after) and _types.is_date32(before))


def _timestamp(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_timestamp(after) and after.tz == before.tz and _is_finer(before, after))


def _time(before: pa.DataType, after: pa.DataType) -> bool:
    # A day has few enough nanoseconds, unlike a timestamp or a duration.
    return bool(_types.is_time(after) and _UNITS.index(after.unit) >= _UNITS.index(before.unit))


def _duration(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_duration(after) and _is_finer(before, after))


def _is_finer(before: pa.DataType, after: pa.DataType) -> bool:
    # In nanoseconds, 64 bits hold only 292 years in each direction.
    return after.unit != "ns" and _UNITS.index(after.unit) >= _UNITS.index(before.unit)


def _list(before: pa.DataType, after: pa.DataType) -> bool:
    if not _is_list(after) or not _keeps_field(before.value_field, after.value_field):
        return False
    if _types.is_fixed_size_list(after):
        return _types.is_fixed_size_list(before) and bool(after.list_size == before.list_size)
    # The offsets of a large list may be larger than the 32 bits of a list.
    return bool(_types.is_large_list(after) or not _types.is_large_list(before))


def _struct(before: pa.DataType, after: pa.DataType) -> bool:
    if not _types.is_struct(after) or [f.name for f in before] != [f.name for f in after]:
        return False
    return all(_keeps_field(one, other) for one, other in zip(before, after, strict=True))


def _keeps_field(before: pa.Field, after: pa.Field) -> bool:
    return (after.nullable or not before.nullable) and is_widening(before.type, after.type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_types.is_binary(kind) or _types.is_fixed_size_binary(kind))


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]], ...] = (
    (_types.is_integer, _integer),
    (_types.is_floating, _floating),
    (_types.is_decimal, _decimal),
    (_types.is_string, _text),
    (_is_bytes, _bytes),
    (_types.is_date, _date),
    (_types.is_timestamp, _timestamp),
    (_types.is_time, _time),
    (_types.is_duration, _duration),
    (_is_list, _list),
    (_types.is_struct, _struct),
)
