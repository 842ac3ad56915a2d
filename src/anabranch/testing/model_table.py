"""A table as plain rows: each state of it a value of its own."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import InvalidInputError, InvalidNameError, KeyConflictError, SchemaMismatchError

__all__ = ["ModelTable", "Row", "Value"]

Value = int | str | None
Row = Mapping[str, Value]
Condition = Callable[[Row], bool]
Expression = Callable[[Row], Value]

_HINT = "the model has no advice"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTable:
    """One state of a table. Each operation returns the next state, or the same one if it changes nothing.

    `shape` is another object after every operation on columns, even one that leaves the same names; `appended_to` is
    the state before, if the last operation was an append.
    """

    columns: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    shape: object = field(default_factory=object)
    appended_to: "ModelTable | None" = None

    def append(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        self._require_known(columns)
        self.require_new_keys(rows)
        return replace(self, rows=(*self.rows, *map(self._whole, rows)), appended_to=self) if rows else self

    def appended_since(self, before: "ModelTable") -> tuple[Row, ...] | None:
        """The rows that appends added to an earlier state; None if more than that was done."""
        table: ModelTable | None = self
        while table is not None and table is not before:
            table = table.appended_to
        return None if table is None else self.rows[len(before.rows) :]

    def upsert(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        if not self.primary_key:
            raise InvalidInputError("the table has no primary key", hint=_HINT)
        self._require_known(columns)
        self._require_good_keys(rows)
        given = {self.key_of(row): row for row in rows}
        present = {self.key_of(row) for row in self.rows}
        kept = tuple({**row, **given.get(self.key_of(row), {})} for row in self.rows)
        added = tuple(self._whole(row) for key, row in given.items() if key not in present)
        return self._next((*kept, *added)) if rows else self

    def update(self, assignments: Mapping[str, Expression], where: Condition) -> "ModelTable":
        for name in assignments:
            if name in self.primary_key:
                raise InvalidInputError(f"{name!r} is part of the primary key", hint=_HINT)
        self._require_present(assignments)
        if not any(map(where, self.rows)):
            return self

        def changed(row: Row) -> Row:
            return {**row, **{name: value(row) for name, value in assignments.items()}} if where(row) else row

        return self._next(tuple(map(changed, self.rows)))

    def delete(self, where: Condition) -> "ModelTable":
        left = tuple(row for row in self.rows if not where(row))
        return self._next(left) if len(left) < len(self.rows) else self

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

    def with_key(self, primary_key: tuple[str, ...]) -> "ModelTable":
        """The same rows under another key, which they must allow."""
        if primary_key == self.primary_key:
            return self
        keyed = replace(self, primary_key=primary_key, shape=object(), appended_to=None)
        keyed._require_good_keys(self.rows)
        return keyed

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
        return replace(self._next(rows), columns=columns, shape=object())

    def _next(self, rows: tuple[Row, ...]) -> "ModelTable":
        return replace(self, rows=rows, appended_to=None)

    def _whole(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}
