"""Decisions on single conflicts: take a side, or set a value, for one cell or row."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.hints import suggest
from anabranch.ids import TableKey
from anabranch.json_values import json_value
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind

_SIDES = ("base", "source", "target")
# The last four are in the conflicts that the command line prints, so that these can be passed back.
_FIELDS = ("table", "key", "column", "path", "take", "value", *_SIDES, "kind", "problem", "hint", "decision")
# An entry with one of these is only for the conflict that was printed with them, which may not exist any more.
_PRINTED = frozenset({*_SIDES, "kind"})
_EXAMPLE = "{'table': 'shop.orders', 'key': {'id': 2}, 'column': 'amount', 'take': 'source'}"


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value in JSON form. It is converted when the type of its column is known."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """The names of a table in the base and on both sides, the one of the result first, and those of renamed columns.

    Resolvers may use any of them. If names were swapped, two columns have the same name: it means the column that has
    it in the result, and is left out here.
    """

    tables: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Iterable[TableKey], columns: Iterable[Iterable[str | None]] = ()) -> "TableNames":
        """Return the names of a table with these keys. `columns` are the names of each column on the sides."""
        groups = [{name for name in names if name is not None} for names in columns]
        used = Counter(chain.from_iterable(groups))
        found: dict[str, tuple[str, ...]] = {}
        for names in groups:
            # A name that two columns have on different sides is ambiguous, so it has no other names.
            own = tuple(sorted(name for name in names if used[name] == 1))
            if len(own) > 1:
                found.update(dict.fromkeys(own, own))
        return cls(tables=tuple(dict.fromkeys(map(str, keys))), columns=found)

    def of_column(self, name: str) -> tuple[str, ...]:
        """Return all names of a column, the given one first."""
        return (name, *(other for other in self.columns.get(name, ()) if other != name))

    def canonical(self, name: str) -> str:
        """Return one name of a column, which is the same for all its names."""
        return self.columns.get(name, (name,))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """The value of one conflict, and the entry that it comes from.

    It applies only while the sides have the `expected` values. Decisions that were kept have an `order`, from 1: of
    several that apply, the last one wins.
    """

    entry: Mapping[str, Any]
    expected: Mapping[str, Any]
    order: int = 0

    @property
    def take(self) -> str | None:
        return self.entry.get("take")

    def answer(self, conflict: Conflict) -> Any:
        """Return the decided value."""
        if self.take is not None:
            return getattr(conflict, self.take)
        value = self.entry["value"]
        return None if value is None else JsonValue(value)

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Return whether the sides have the values that were decided on."""
        return all(_in_json(values[side]) == value for side, value in self.expected.items())

    def contradicts(self, other: "_Decision") -> bool:
        """Return whether another decision on the same cell, row or column may apply too, and takes something else."""
        # A table may have been renamed between two attempts, and a decision by the new name does not replace the one by
        # the old name.
        if self.order and other.order:
            return False
        # They were made on different values, so that at most one of them applies.
        if any(self.expected[side] != other.expected[side] for side in self.expected.keys() & other.expected.keys()):
            return False
        ours, theirs = ((one.take, _in_json(one.entry.get("value"))) for one in (self, other))
        return ours != theirs


def _add(decisions: list[_Decision], new: _Decision) -> None:
    """Add a decision on a conflict. Raise InvalidInputError if it contradicts another one on it."""
    for known in decisions:
        if known.contradicts(new):
            raise InvalidInputError(
                f"two resolutions decide the same conflict: {dict(known.entry)!r} and {dict(new.entry)!r}",
                hint="pass one of them, or add the values of the sides that each of them is for",
            )
    decisions.append(new)


def _find(decisions: Iterable[_Decision], values: Mapping[str, Any]) -> _Decision | None:
    """Return the decision that was made on these values of the sides, the last one of several."""
    fitting = (decision for decision in decisions if decision.fits(values))
    return max(fitting, key=lambda decision: decision.order, default=None)


# A table and a column, None for rows or for the table itself.
_Subject = tuple[str, str | None]


def _full_name(subject: _Subject) -> str:
    table, column = subject
    return table if column is None else f"{table}.{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Decisions by table and column (None for rows).

    `resolvers` are the decisions without a key: they decide every conflict of a column or a table. `by_schema` are
    those on one conflict of a column or table itself: its entry has the values of the sides, but no key. `kept` reads
    the decisions of earlier attempts, which come after these. `record` is called with each conflict that was decided.
    `met` are the ids of the decisions whose conflict was found.
    """

    by_key: Mapping[_Subject, Sequence[_Decision]] = field(default_factory=dict)
    by_schema: Mapping[_Subject, Sequence[_Decision]] = field(default_factory=dict)
    resolvers: Mapping[str, str] = field(default_factory=dict)
    kept: "Callable[[], Decisions] | None" = None
    record: "Callable[[Conflict], None] | None" = None
    met: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.by_key or self.by_schema or self.resolvers)

    def names(self) -> set[str]:
        """Return the tables and columns that are decided on, as resolvers name them."""
        return set(map(_full_name, (*self.by_key, *self.by_schema)))

    def check_met(self) -> None:
        """Raise InvalidInputError if a decision on a cell or row has met no conflict. One on a printed conflict may."""
        for decision in (one for decisions in self.by_key.values() for one in decisions):
            if id(decision) not in self.met and _PRINTED.isdisjoint(decision.entry):
                hint = "correct its table, key, column and path, or leave it out"
                raise InvalidInputError(f"the resolution {dict(decision.entry)!r} matches no conflict", hint=hint)

    def side_of(self, names: TableNames, column: str | None, values: Sequence[Any]) -> str | None:
        """Return the side that was decided for a conflict of a column or table itself, with these values."""
        by_side = dict(zip(_SIDES, values, strict=True))
        for source in self._sources:
            found = _find(_on_subjects(source.by_schema, names, column), by_side)
            if found is not None:
                kind = found.entry.get("kind", ConflictKind.SCHEMA)
                problem = str(found.entry.get("problem", ""))
                self._note(Conflict(table=names.tables[0], kind=kind, column=column, **by_side, problem=problem), found)
                return found.take
        return None

    @property
    def _sources(self) -> "list[Decisions]":
        return [self] if self.kept is None else [self, self.kept()]

    def _note(self, conflict: Conflict, decision: _Decision) -> None:
        if self.record is not None:
            made = {name: decision.entry[name] for name in ("take", "value") if name in decision.entry}
            self.record(replace(conflict, decision=made))

    def for_conflicts(self, names: TableNames, column: str | None) -> Callable[[Conflict], Any] | None:
        """Return a function that decides on conflicts of a column, or of rows, or None if nothing was decided there."""
        decided = [_by_key(_on_subjects(source.by_key, names, column), names) for source in self._sources]
        if not any(decided):
            return None

        def answer(conflict: Conflict) -> Any:
            where = _key_text(conflict.key or {}, names), conflict.path
            values = {side: getattr(conflict, side) for side in _SIDES}
            # In this order: resolutions of the call come before those that were kept from an earlier merge.
            for known in decided:
                self.met.update(map(id, known.get(where, ())))
                if (decision := _find(known.get(where, ()), values)) is not None:
                    self._note(conflict, decision)
                    return decision.answer(conflict)
            return NotImplemented

        return answer


def _on_subjects(
    decisions: Mapping[_Subject, Sequence[_Decision]], names: TableNames, column: str | None
) -> list[_Decision]:
    """Return the decisions on a column, or on a table, by any of its names."""
    columns = (None,) if column is None else names.of_column(column)
    return [one for name in columns for table in names.tables for one in decisions.get((table, name), ())]


def _by_key(decisions: Sequence[_Decision], names: TableNames) -> dict[tuple[str, str | None], list[_Decision]]:
    """Return the decisions on rows or cells by the key and the path."""
    found: dict[tuple[str, str | None], list[_Decision]] = {}
    for decision in decisions:
        where = _key_text(decision.entry["key"], names), decision.entry.get("path")
        _add(found.setdefault(where, []), decision)
    return found


def parse_decisions(given: Sequence[Mapping[str, Any]] | None, *, are_kept: bool = False) -> Decisions:
    """Check a list of decisions. An entry without `take` and `value` decides nothing and is left out.

    Of decisions that were kept from earlier attempts, the last one on a conflict wins. Others must not contradict each
    other.
    """
    if given is None:
        return Decisions()
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise InvalidInputError(f"resolutions must be a list, got {given!r}", hint=f"pass for example [{_EXAMPLE}]")
    by_key: dict[_Subject, list[_Decision]] = {}
    by_schema: dict[_Subject, list[_Decision]] = {}
    for_all: dict[_Subject, list[_Decision]] = {}
    for subject, decision in _iter_decisions(given, are_kept=are_kept):
        if decision.entry.get("key") is not None:
            by_key.setdefault(subject, []).append(decision)
        else:
            decisions = for_all if _PRINTED.isdisjoint(decision.entry) else by_schema
            _add(decisions.setdefault(subject, []), decision)
    for (table, _), of_rows in by_key.items():
        _by_key(of_rows, TableNames(tables=(table,)))  # refuses contradictions before rows are read
    resolvers = {_full_name(subject): str(of_all[0].take) for subject, of_all in for_all.items()}
    return Decisions(by_key=by_key, by_schema=by_schema, resolvers=resolvers)


def _iter_decisions(given: Sequence[Mapping[str, Any]], *, are_kept: bool) -> Iterator[tuple[_Subject, _Decision]]:
    """Yield the decisions of entries, and what each is about."""
    for number, entry in enumerate(given, start=1):
        _check_fields(entry)
        if "take" not in entry and "value" not in entry:
            continue
        subject = str(TableKey.parse(entry["table"])), entry.get("column")
        expected = {side: _in_json(entry[side]) for side in _SIDES if side in entry}
        if entry.get("key") is None and entry.get("take") not in ("source", "target"):
            hint = "take 'source' or 'target'"
            raise InvalidInputError(f"the resolution {dict(entry)!r} has no key, so it cannot set a value", hint=hint)
        yield subject, _Decision(entry=entry, expected=expected, order=number if are_kept else 0)


def read_resolutions(data: bytes, *, name: str) -> list[dict[str, Any]]:
    """Read decisions from a file: CSV if its name ends with that, else JSON. An entry may have no decision."""
    try:
        text = data.decode()
        if name.lower().endswith(".csv"):
            lines = csv.DictReader(io.StringIO(text))
            return [_resolution_of(row, where=f"line {lines.line_num} of {name!r}") for row in lines]
        document = json.loads(text)
    # The service accepts such files, and deeply nested JSON exceeds the recursion limit of the parser.
    except (ValueError, RecursionError, csv.Error) as err:
        hint = "write a JSON list of conflicts, each with 'take' or 'value', or CSV with the key in JSON"
        raise InvalidInputError(f"the resolutions {name!r} cannot be read: {err}", hint=hint) from err
    found = document.get("conflicts") if isinstance(document, Mapping) else document
    if not isinstance(found, list):
        hint = "write a list of conflicts, or {'conflicts': [...]}"
        raise InvalidInputError(f"the resolutions {name!r} are not a list", hint=hint)
    return found


def _resolution_of(row: Mapping[str, str | None], *, where: str) -> dict[str, Any]:
    """Return a line of a CSV file as a resolution. Empty cells and other columns are left out: a null needs JSON.

    The key, and the value of a whole row, are JSON.
    """
    names = ("table", "key", "column", "path", "take", "value")
    found: dict[str, Any] = {name: text for name in names if (text := row.get(name))}
    for name in ("key",) if "column" in found else ("key", "value"):
        if name not in found:
            continue
        try:
            found[name] = json.loads(found[name])
        except (ValueError, RecursionError) as err:
            hint = 'write it as an object, such as {"id": 1}'
            raise InvalidInputError(f"the {name} in {where} is not JSON: {found[name][:100]!r}", hint=hint) from err
    return found


def _check_fields(entry: Any) -> None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("table"), str):
        raise InvalidInputError(f"a resolution must name its table, got {entry!r}", hint=f"pass for example {_EXAMPLE}")
    for name in entry:
        if name not in _FIELDS:
            hint = suggest(str(name), _FIELDS, f"use {', '.join(_FIELDS)}")
            raise InvalidInputError(f"unknown field {name!r} in the resolution {dict(entry)!r}", hint=hint)
    if "take" in entry and "value" in entry:
        raise InvalidInputError(f"the resolution {dict(entry)!r} has both take and value", hint="pass one of them")
    if "take" in entry and entry["take"] not in _SIDES:
        raise InvalidInputError(f"cannot take {entry['take']!r}", hint="use source, target or base")
    _check_cell(entry)


def _check_cell(entry: Mapping[str, Any]) -> None:
    column, key = entry.get("column"), entry.get("key")
    if column is not None and not isinstance(column, str):
        raise InvalidInputError(f"the column {column!r} is not a name", hint="pass the name of one column")
    if entry.get("path") is not None and (column is None or key is None or not isinstance(entry["path"], str)):
        hint = "pass a column, a key, and a path such as 'address.city'"
        raise InvalidInputError(f"the path {entry['path']!r} is not in a cell", hint=hint)
    if key is not None and not isinstance(key, Mapping):
        raise InvalidInputError(f"the key {key!r} is not a mapping", hint="pass for example {'id': 2}")


def _key_text(key: Mapping[str, Any], names: TableNames) -> str:
    """Return a key as text that is equal for a Python value and for its form in JSON, and for all names of a column."""
    return json.dumps({names.canonical(str(name)): _in_json(value) for name, value in key.items()}, sort_keys=True)


def _in_json(value: Any) -> Any:
    """Return a value in JSON form. Numbers of numpy and pandas count as those of Python."""
    if isinstance(value, float) and value == 0:
        return 0.0  # -0.0 is equal, but not as text
    plain = value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value
    try:
        return json_value(plain)
    except TypeError as err:
        raise InvalidInputError(f"{value!r} is not a value of a table", hint="pass a Python or JSON value") from err
