"""A table as plain rows. Each state of it is an immutable value."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import InvalidInputError, InvalidNameError, KeyConflictError, SchemaMismatchError

Value = int | str | None
Row = Mapping[str, Value]
Condition = Callable[[Row], bool]
Expression = Callable[[Row], Value]

_HINT = "the model has no advice"


def new_ids(things: Sequence[object]) -> tuple[object, ...]:
    """Return a new identity for each row."""
    return tuple(object() for _ in things)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnId:
    """The identity of a column, and the name that it had at first."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTable:
    """One state of a table. Each operation returns the next state, or the same one if it changes nothing.

    `shape` is another object after every operation on columns, even one that leaves the same names. `made_from` is the
    state before, and `appended_to` too if the last operation was an append. `dataset` identifies the table under every
    name, `fields` its columns, and `row_ids` its rows. With `has_new_ids` all rows may have got new ids in this state.
    """

    columns: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    shape: object = field(default_factory=object, repr=False)
    appended_to: "ModelTable | None" = field(default=None, repr=False)
    dataset: object = field(default_factory=object)
    fields: tuple[object, ...] = field(default=(), repr=False)
    row_ids: tuple[object, ...] = field(default=(), repr=False)
    made_from: "ModelTable | None" = field(default=None, repr=False)
    has_new_ids: bool = False

    def __post_init__(self) -> None:
        if len(self.fields) != len(self.columns):
            object.__setattr__(self, "fields", tuple(map(ColumnId, self.columns)))

    @classmethod
    def create(
        cls, key: str, columns: Sequence[str], primary_key: Sequence[str], *, among: "Mapping[str, ModelTable]"
    ) -> "ModelTable":
        """Return an empty table, in the folder of its name unless a renamed table has that."""
        is_taken = any(table.dataset == key for table in among.values())
        dataset = object() if is_taken else key
        return cls(columns=tuple(columns), primary_key=tuple(primary_key), dataset=dataset)

    def append(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        self._require_known(columns)
        self.require_new_keys(rows)
        if not rows:
            return self
        after = self._next((*self.rows, *map(self._whole, rows)), (*self.row_ids, *new_ids(rows)))
        return replace(after, appended_to=self)

    def appended_since(self, before: "ModelTable") -> tuple[Row, ...] | None:
        """Return the rows that were appended to an earlier state. None if more was changed."""
        table: ModelTable | None = self
        while table is not None and table is not before:
            table = table.appended_to
        return None if table is None else self.rows[len(before.rows) :]

    def steps_since(self, before: "ModelTable") -> "list[ModelTable] | None":
        """Return the states after an earlier one up to this one. None if it was not made from that."""
        steps: list[ModelTable] = []
        table: ModelTable | None = self
        while table is not None and table is not before:
            steps.append(table)
            table = table.made_from
        return None if table is None else steps

    @property
    def root(self) -> "ModelTable":
        """The state in which the table was created."""
        table = self
        while table.made_from is not None:
            table = table.made_from
        return table

    def upsert(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        if not self.primary_key:
            raise InvalidInputError("the table has no primary key", hint=_HINT)
        self._require_known(columns)
        self._require_good_keys(rows)
        given = {self.key_of(row): row for row in rows}
        present = {self.key_of(row) for row in self.rows}
        kept = tuple({**row, **given.get(self.key_of(row), {})} for row in self.rows)
        added = tuple(self._whole(row) for key, row in given.items() if key not in present)
        return self._next((*kept, *added), (*self.row_ids, *new_ids(added))) if rows else self

    def update(self, assignments: Mapping[str, Expression], where: Condition) -> "ModelTable":
        for name in assignments:
            if name in self.primary_key:
                raise InvalidInputError(f"{name!r} is part of the primary key", hint=_HINT)
        self._require_present(assignments)
        if not any(map(where, self.rows)):
            return self

        def changed(row: Row) -> Row:
            return {**row, **{name: value(row) for name, value in assignments.items()}} if where(row) else row

        return self._next(tuple(map(changed, self.rows)), self.row_ids)

    def delete(self, where: Condition) -> "ModelTable":
        left = [(row, row_id) for row, row_id in zip(self.rows, self.row_ids, strict=True) if not where(row)]
        if len(left) == len(self.rows):
            return self
        return self._next(tuple(row for row, _ in left), tuple(row_id for _, row_id in left))

    def overwrite(self, columns: Sequence[str], rows: Sequence[Row]) -> "ModelTable":
        for name in self.primary_key:
            if name not in columns:
                raise SchemaMismatchError(f"the data has no {name!r}", hint=_HINT)
        self._require_good_keys(rows)
        known = dict(zip(self.columns, self.fields, strict=True))
        after = self._reshaped(tuple(columns), tuple(rows), tuple(known.get(name, ColumnId(name)) for name in columns))
        return replace(after, row_ids=new_ids(rows))

    def add_column(self, name: str, value: Expression) -> "ModelTable":
        if name in self.columns:
            raise InvalidNameError(f"there is a column {name!r}", hint=_HINT)
        rows = tuple({**row, name: value(row)} for row in self.rows)
        return self._reshaped((*self.columns, name), rows, (*self.fields, ColumnId(name)))

    def rename_column(self, old: str, new: str) -> "ModelTable":
        self._require_present([old])
        if new != old and new in self.columns:
            raise SchemaMismatchError(f"there is a column {new!r}", hint=_HINT)
        if new == old:
            return self

        def renamed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        rows = tuple(dict(zip(renamed(tuple(row)), row.values(), strict=True)) for row in self.rows)
        after = self._reshaped(renamed(self.columns), rows, self.fields)
        return replace(after, primary_key=renamed(self.primary_key))

    def drop_column(self, name: str) -> "ModelTable":
        if name in self.primary_key:
            raise InvalidInputError(f"{name!r} is part of the primary key", hint=_HINT)
        self._require_present([name])
        left = tuple(column for column in self.columns if column != name)
        if not left:
            raise InvalidInputError("no column would be left", hint=_HINT)
        fields = tuple(field for column, field in zip(self.columns, self.fields, strict=True) if column != name)
        return self._reshaped(left, tuple({column: row[column] for column in left} for row in self.rows), fields)

    def with_key(self, primary_key: tuple[str, ...]) -> "ModelTable":
        """Return the same rows with another key, which must be unique."""
        if primary_key == self.primary_key:
            return self
        keyed = replace(self._next(self.rows, self.row_ids), primary_key=primary_key, shape=object())
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

    def _reshaped(self, columns: tuple[str, ...], rows: tuple[Row, ...], fields: tuple[object, ...]) -> "ModelTable":
        return replace(self._next(rows, self.row_ids), columns=columns, fields=fields, shape=object())

    def _next(self, rows: tuple[Row, ...], row_ids: tuple[object, ...]) -> "ModelTable":
        return replace(self, rows=rows, row_ids=row_ids, appended_to=None, made_from=self, has_new_ids=False)

    def _whole(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}


def content_of(table: ModelTable) -> object:
    """Return what is equal for two states with the same content."""
    rows = Counter(tuple(row[name] for name in table.columns) for row in table.rows)
    return table.columns, table.primary_key, rows
