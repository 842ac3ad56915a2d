"""Plan the steps from the current schema to the desired one. Nothing is read or changed here.

Each step has a text, a dict for JSON, and whether it may lose data.
"""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, ClassVar, Literal, TypeVar

from anabranch.column_types import is_widening
from anabranch.errors import InvalidInputError, InvalidSchemaError
from anabranch.format.staging.incoming import require_computable
from anabranch.ids import TableKey
from anabranch.repo.schema.state import Column, CurrentTable, Index, SchemaState, TableSchema, satisfies

_Name = TypeVar("_Name", TableKey, str)
_Property = Literal["type", "nullable", "default", "description"]
_PROPERTIES: tuple[_Property, ...] = ("type", "nullable", "default", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of one table. `table` is its new name."""

    table: TableKey
    kind: ClassVar[str]
    symbol: ClassVar[str] = "~"
    # The text, with fields of the step in braces.
    form: ClassVar[str] = ""

    @property
    def is_destructive(self) -> bool:
        """Whether data may be lost."""
        return self.kind in {"drop_table", "drop_column"}

    @property
    def text(self) -> str:
        """The change in one line, without the table."""
        return self.form.format(self)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the change, one line for each. Empty if `text` is complete."""
        return ()

    @property
    def details(self) -> dict[str, Any]:
        """The change as a dict, without the table."""
        # The first field is the table.
        values = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        about = {"table": str(self.table), "step": self.kind, "destructive": self.is_destructive, "text": self.text}
        return {**about, **self.details}

    def __str__(self) -> str:
        return f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Step):
    schema: TableSchema
    kind = "create_table"
    symbol = "+"
    form = "table"

    @property
    def parts(self) -> tuple[str, ...]:
        schema = self.schema
        key = [f"primary key: {', '.join(schema.primary_key)}"] if schema.primary_key else []
        columns = [f"column {column.name}: {column.summary}" for column in schema.columns]
        return (*columns, *key, *(f"index on {index.summary}" for index in schema.indices))

    @property
    def details(self) -> dict[str, Any]:
        columns = [{"name": column.name, "type": column.summary} for column in self.schema.columns]
        return {"columns": columns, "primary_key": list(self.schema.primary_key)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Step):
    rows: int
    kind = "drop_table"
    symbol = "-"

    @property
    def text(self) -> str:
        return f"table with {self.rows} {'row' if self.rows == 1 else 'rows'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(Step):
    was: TableKey
    kind = "rename_table"
    form = "renamed from {0.was}"

    @property
    def details(self) -> dict[str, Any]:
        return {"was": str(self.was)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn(Step):
    column: Column
    kind = "add_column"
    symbol = "+"
    form = "column {0.column.name}: {0.column.summary}"

    @property
    def details(self) -> dict[str, Any]:
        column = self.column
        return {"column": column.name, "type": column.type, "nullable": column.nullable, "default": column.default}


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn(Step):
    column: Column
    kind = "drop_column"
    symbol = "-"
    form = AddColumn.form

    @property
    def details(self) -> dict[str, Any]:
        return {"column": self.column.name, "type": self.column.type}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn(Step):
    column: str
    was: str
    kind = "rename_column"
    form = "column {0.column}: renamed from {0.was}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn(Step):
    """Change one property of a column. Another type is destructive unless it can hold every value of the old one.

    A new default is for new rows. Existing rows keep their values.
    """

    before: Column
    after: Column
    what: _Property

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "change_nullability" if self.what == "nullable" else f"change_{self.what}"

    @property
    def is_destructive(self) -> bool:
        return self.what == "type" and not is_widening(self.before.arrow.type, self.after.arrow.type)

    @property
    def text(self) -> str:
        before, after = self.before, self.after
        match self.what:
            case "type":
                change = f"{before.type} -> {after.type}"
            case "nullable":
                change = "takes nulls" if after.nullable else "not null"
            case "default":
                change = f"default {before.default or 'none'} -> {after.default or 'none'}"
            case "description":
                change = f"description {_quoted(before.description)} -> {_quoted(after.description)}"
        return f"column {after.name}: {change}"

    @property
    def details(self) -> dict[str, Any]:
        if self.what == "nullable":
            return {"column": self.after.name, "nullable": self.after.nullable}
        before, after = (getattr(column, self.what) for column in (self.before, self.after))
        return {"column": self.after.name, "before": before, "after": after}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePrimaryKey(Step):
    before: tuple[str, ...]
    after: tuple[str, ...]
    kind = "change_primary_key"

    @property
    def text(self) -> str:
        return f"primary key: {', '.join(self.before) or 'none'} -> {', '.join(self.after) or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDescription(Step):
    before: str | None
    after: str | None
    kind = "change_description"

    @property
    def text(self) -> str:
        return f"description {_quoted(self.before)} -> {_quoted(self.after)}"

    @property
    def details(self) -> dict[str, Any]:
        return {"column": None, "before": self.before, "after": self.after}


def _quoted(text: str | None) -> str:
    return "none" if text is None else repr(text if len(text) <= 40 else f"{text[:39]}…")


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexStep(Step):
    index: Index
    form = "index on {0.index.summary}"

    @property
    def details(self) -> dict[str, Any]:
        return {"column": self.index.column, "index": self.index.chosen_name, "type": self.index.kind.value}


class CreateIndex(_IndexStep):
    kind = "create_index"
    symbol = "+"


class BuildIndex(CreateIndex):
    """Build a declared index again: its column got another type, or the table had no rows before."""

    symbol = "~"
    form = "index on {0.index.summary}: built"


class DropIndex(_IndexStep):
    kind = "drop_index"
    symbol = "-"


def plan_schema(desired: SchemaState, current: Mapping[TableKey, CurrentTable]) -> tuple[Step, ...]:
    """Return the steps from the current tables to the desired ones.

    Tables of a desired bucket that are not in the desired schema are dropped. Tables of other buckets are not changed.
    """
    origins = _find_origins({table.key: table.was for table in desired.tables}, current)
    kept = {*desired.by_key, *origins.values()}
    dropped = [key for key in current.keys() - kept if key.bucket in desired.buckets]
    # Drops and renames come first: they free names that the steps after them may use.
    steps: list[Step] = [DropTable(table=key, rows=current[key].rows) for key in sorted(dropped)]
    steps += [RenameTable(table=new, was=old) for new, old in origins.items() if new != old]
    for table in desired.tables:
        if table.key in origins:
            steps += _plan_table(table, current[origins[table.key]])
        else:
            steps.append(CreateTable(table=table.key, schema=table))
    return tuple(steps)


def _find_origins(wanted: Mapping[_Name, _Name | None], current: Collection[_Name]) -> dict[_Name, _Name]:
    """Return the current name of each wanted table or column that exists. `wanted` has the earlier names.

    The renamed ones come first, in an order that frees names first. If the new name of a rename already exists, the
    rename was done before, unless that table or column is renamed away itself. So planning twice does not rename twice,
    and a cycle of names is not renamed at all.
    """
    found: dict[_Name, _Name] = {}
    # The names in use after the renames that were found so far.
    taken, size = set(current), -1
    # A rename may free the name that another one needs, so repeat until nothing is added.
    while size < len(found):
        size = len(found)
        for new, old in wanted.items():
            if old is not None and old in current and new not in taken:
                found[new] = old
                taken = taken - {old} | {new}
    # A table or column that is renamed away leaves its name to a new one.
    return found | {name: name for name in wanted if name in taken and name not in found}


def _plan_table(table: TableSchema, found: CurrentTable) -> list[Step]:
    before = {column.name: column for column in found.schema.columns}
    origins = _find_origins({column.name: column.was for column in table.columns}, before)
    steps = list(_plan_columns(table, before, origins))
    kept = {old: new for new, old in origins.items()}
    # If key columns are renamed, the key stays the same.
    key = tuple(kept.get(name, name) for name in found.schema.primary_key)
    # Before columns are dropped, because a column of the old key may be among them.
    if key != table.primary_key:
        steps.append(ChangePrimaryKey(table=table.key, before=key, after=table.primary_key))
    steps += [DropColumn(table=table.key, column=column) for name, column in before.items() if name not in kept]
    steps += _plan_indices(table, found, kept, steps)
    if table.description != found.schema.description:
        steps.append(ChangeDescription(table=table.key, before=found.schema.description, after=table.description))
    return steps


def _plan_columns(table: TableSchema, before: Mapping[str, Column], origins: Mapping[str, str]) -> Iterator[Step]:
    for new, old in origins.items():
        if new != old:
            yield RenameColumn(table=table.key, column=new, was=old)
    for column in table.columns:
        if column.name in origins:
            yield from _plan_column(table, before[origins[column.name]], column)
        else:
            yield AddColumn(table=table.key, column=column)


def _plan_column(table: TableSchema, before: Column, after: Column) -> Iterator[Step]:
    if before.type != after.type:
        # Checked here, so that a plan and a dry run refuse it too, and not only the apply.
        try:
            require_computable(before.arrow.type, after.arrow)
        except InvalidInputError:
            raise InvalidSchemaError(
                f"tables.{table.key}.columns.{after.name}: {before.type} cannot become {after.type}",
                hint="add a column with another name, copy the values, and drop this one",
            ) from None
    for what in _PROPERTIES:
        if getattr(before, what) != getattr(after, what):
            yield ChangeColumn(table=table.key, before=before, after=after, what=what)


def _plan_indices(table: TableSchema, found: CurrentTable, kept: dict[str, str], steps: list[Step]) -> list[Step]:
    """Plan the indices, after the steps of the columns. They follow renamed columns, and are dropped with theirs."""
    existing = [
        replace(index, column=kept[index.column], name=index.chosen_name)
        for index in found.schema.indices
        if index.column in kept
    ]
    matched = _match_indices(table.indices, existing)
    kept_names = {same.chosen_name for same in matched.values()}
    dropped = [DropIndex(table=table.key, index=index) for index in existing if index.chosen_name not in kept_names]
    retyped = {step.after.name for step in steps if isinstance(step, ChangeColumn) and step.what == "type"}
    return [*dropped, *_plan_built_indices(table, found, matched, retyped)]


def _plan_built_indices(
    table: TableSchema, found: CurrentTable, matched: Mapping[str, Index], retyped: Container[str]
) -> Iterator[Step]:
    """Plan the indices to create, and the existing ones to build again."""
    taken = {index.name for index in (*matched.values(), *table.indices)}
    for index in table.indices:
        same = matched.get(index.chosen_name)
        if same is None:
            yield CreateIndex(table=table.key, index=index if index.name else _with_unused_name(index, taken))
        # A new type needs a new index. Without rows, Lance cannot build an index.
        elif found.rows and (index.column in retyped or same.chosen_name in found.unbuilt):
            yield BuildIndex(table=table.key, index=replace(index, name=same.name))


def _match_indices(desired: Sequence[Index], existing: Sequence[Index]) -> dict[str, Index]:
    """Return the existing index for each desired one. An index whose name another desired index has does not match."""
    # An index whose name is declared is kept for that declaration, even if another one would match.
    reserved = {index.name for index in desired}
    free = {index.chosen_name: index for index in existing}
    found: dict[str, Index] = {}
    for index in desired:
        others = reserved - {index.name}
        name = next((name for name, other in free.items() if name not in others and satisfies(other, index)), None)
        if name is not None:
            found[index.chosen_name] = free.pop(name)
    return found


def _with_unused_name(index: Index, taken: Container[str | None]) -> Index:
    """Return an index with an unused name: an index that followed a renamed column may have the default name."""
    if index.chosen_name not in taken:
        return index
    names = (f"{index.column}_idx_{number}" for number in count(2))
    return replace(index, name=next(name for name in names if name not in taken))
