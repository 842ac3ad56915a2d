"""The steps of a schema plan as values. Each has a text, a dict for JSON, and whether it may lose data."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from anabranch.ids import TableKey
from anabranch.repo.schema.state import Column, Index, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of one table. `table` is its new name."""

    table: TableKey
    kind: ClassVar[str]
    symbol: ClassVar[str] = "~"

    @property
    def is_destructive(self) -> bool:
        """Whether data may be lost."""
        return False

    @property
    def text(self) -> str:
        """The change in one line, without the table."""
        raise NotImplementedError

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
class _ValueChange(Step):
    """Change a property of a column, or of the table if there is no column."""

    column: str | None
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnChange(Step):
    column: Column

    @property
    def text(self) -> str:
        return f"column {self.column.name}: {self.column.summary}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexChange(Step):
    index: Index

    @property
    def text(self) -> str:
        return f"index on {self.index.summary}"

    @property
    def details(self) -> dict[str, Any]:
        return {"column": self.index.column, "index": self.index.chosen_name, "type": self.index.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Step):
    """Create a table."""

    schema: TableSchema
    kind = "create_table"
    symbol = "+"

    @property
    def text(self) -> str:
        return "table"

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
    """Drop a table."""

    rows: int
    kind = "drop_table"
    symbol = "-"

    @property
    def is_destructive(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"table with {self.rows} {'row' if self.rows == 1 else 'rows'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(Step):
    """Rename a table."""

    was: TableKey
    kind = "rename_table"

    @property
    def text(self) -> str:
        return f"renamed from {self.was}"

    @property
    def details(self) -> dict[str, Any]:
        return {"was": str(self.was)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn(_ColumnChange):
    """Add a column."""

    kind = "add_column"
    symbol = "+"

    @property
    def details(self) -> dict[str, Any]:
        column = self.column
        return {"column": column.name, "type": column.type, "nullable": column.nullable, "default": column.default}


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn(_ColumnChange):
    """Drop a column."""

    kind = "drop_column"
    symbol = "-"

    @property
    def is_destructive(self) -> bool:
        return True

    @property
    def details(self) -> dict[str, Any]:
        return {"column": self.column.name, "type": self.column.type}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn(Step):
    """Rename a column."""

    column: str
    was: str
    kind = "rename_column"

    @property
    def text(self) -> str:
        return f"column {self.column}: renamed from {self.was}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeType(_ValueChange):
    """Change the type of a column. It is destructive unless the new type can hold every value of the old one."""

    column: str
    before: str
    after: str
    widens: bool
    kind = "change_type"

    @property
    def is_destructive(self) -> bool:
        return not self.widens

    @property
    def text(self) -> str:
        return f"column {self.column}: {self.before} -> {self.after}"

    @property
    def details(self) -> dict[str, Any]:
        return {"column": self.column, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNullability(Step):
    """Change whether a column may be null."""

    column: str
    nullable: bool
    kind = "change_nullability"

    @property
    def text(self) -> str:
        return f"column {self.column}: {'takes nulls' if self.nullable else 'not null'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePrimaryKey(Step):
    """Change the primary key."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    kind = "change_primary_key"

    @property
    def text(self) -> str:
        return f"primary key: {', '.join(self.before) or 'none'} -> {', '.join(self.after) or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex(_IndexChange):
    """Create an index, or build a declared one again: its column got another type, or the table had no rows before."""

    is_rebuilt: bool = False
    kind = "create_index"

    @property
    def symbol(self) -> str:  # type: ignore[override]
        return "~" if self.is_rebuilt else "+"

    @property
    def text(self) -> str:
        return f"{super(CreateIndex, self).text}{': built' if self.is_rebuilt else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndex(_IndexChange):
    """Drop an index."""

    kind = "drop_index"
    symbol = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDescription(_ValueChange):
    """Change the description of the table or of a column."""

    kind = "change_description"

    @property
    def text(self) -> str:
        about = "description" if self.column is None else f"column {self.column}: description"
        return f"{about} {_quoted(self.before)} -> {_quoted(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDefault(_ValueChange):
    """Change the default for new rows. Existing rows keep their values."""

    column: str
    kind = "change_default"

    @property
    def text(self) -> str:
        return f"column {self.column}: default {self.before or 'none'} -> {self.after or 'none'}"


def _quoted(text: str | None) -> str:
    return "none" if text is None else repr(text if len(text) <= 40 else f"{text[:39]}…")
