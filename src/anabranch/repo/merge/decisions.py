"""Decisions on single conflicts: take a side, or set a value, for one cell or row."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.json_values import json_value
from anabranch.repo.merge.conflicts import Conflict
from anabranch.suggestions import suggest

__all__ = ["Decisions", "parse_decisions"]

_SIDES = ("base", "source", "target")
# `kind` and `problem` are in the conflicts that the command line prints, so that these can be passed back.
_FIELDS = ("table", "key", "column", "take", "value", *_SIDES, "kind", "problem")
_EXAMPLE = "{'table': 'shop.orders', 'key': {'id': 2}, 'column': 'amount', 'take': 'source'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """The value of one conflict. It applies only while the sides have the `expected` values."""

    take: str | None
    value: Any
    expected: Mapping[str, Any]

    def answer(self, conflict: Conflict) -> Any:
        """Return the decided value, or NotImplemented if the conflict is not the one that was decided."""
        if not self.fits({side: getattr(conflict, side) for side in _SIDES}):
            return NotImplemented
        return self.value if self.take is None else getattr(conflict, self.take)

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Return whether the sides have the values that were decided on."""
        return all(_in_json(values[side]) == value for side, value in self.expected.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Decisions by table and column (None for rows), then by key.

    `resolvers` are the decisions without a key: they decide every conflict of a column or a table. `by_schema` are
    those on one conflict of a column or table itself: its entry has the values of the sides, but no key.
    """

    by_key: Mapping[tuple[str, str | None], Mapping[str, _Decision]] = field(default_factory=dict)
    by_schema: Mapping[tuple[str, str | None], Sequence[_Decision]] = field(default_factory=dict)
    resolvers: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_key or self.by_schema or self.resolvers)

    def names(self) -> set[str]:
        """Return the tables and columns that are decided on, as resolvers name them."""
        return {table if column is None else f"{table}.{column}" for table, column in (*self.by_key, *self.by_schema)}

    def side_of(self, table: TableKey, column: str | None, values: Sequence[Any]) -> str | None:
        """Return the side that was decided for a conflict of a column or table itself, with these values."""
        for decision in self.by_schema.get((str(table), column), ()):
            if decision.fits(dict(zip(_SIDES, values, strict=True))):
                return decision.take
        return None

    def for_conflicts(self, table: TableKey, column: str | None) -> Callable[[Conflict], Any] | None:
        """Return a function that decides on conflicts of a column, or of rows, or None if nothing was decided there."""
        decided = self.by_key.get((str(table), column))
        if decided is None:
            return None

        def answer(conflict: Conflict) -> Any:
            found = decided.get(_key_text(conflict.key or {}))
            return NotImplemented if found is None else found.answer(conflict)

        return answer


def parse_decisions(given: Sequence[Mapping[str, Any]] | None) -> Decisions:
    """Check a list of decisions. An entry without `take` and `value` decides nothing and is left out."""
    if given is not None and (isinstance(given, str | Mapping) or not isinstance(given, Sequence)):
        raise InvalidInputError(f"resolutions must be a list, got {given!r}", hint=f"pass for example [{_EXAMPLE}]")
    by_key: dict[tuple[str, str | None], dict[str, _Decision]] = {}
    by_schema: dict[tuple[str, str | None], list[_Decision]] = {}
    resolvers: dict[str, str] = {}
    for entry in given or ():
        _check_fields(entry)
        if "take" not in entry and "value" not in entry:
            continue
        table, column, key = str(TableKey.parse(entry["table"])), entry.get("column"), entry.get("key")
        expected = {side: _in_json(entry[side]) for side in _SIDES if side in entry}
        decision = _Decision(take=entry.get("take"), value=entry.get("value"), expected=expected)
        if key is not None:
            by_key.setdefault((table, column), {})[_key_text(key)] = decision
        elif expected or "kind" in entry:
            _side_for_all(entry)
            by_schema.setdefault((table, column), []).append(decision)
        else:
            resolvers[table if column is None else f"{table}.{column}"] = _side_for_all(entry)
    return Decisions(by_key=by_key, by_schema=by_schema, resolvers=resolvers)


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
    column, key = entry.get("column"), entry.get("key")
    if column is not None and not isinstance(column, str):
        raise InvalidInputError(f"the column {column!r} is not a name", hint="pass the name of one column")
    if key is not None and not isinstance(key, Mapping):
        raise InvalidInputError(f"the key {key!r} is not a mapping", hint="pass for example {'id': 2}")


def _side_for_all(entry: Mapping[str, Any]) -> str:
    """Return the side that a decision without a key takes for all conflicts of its table or column."""
    if entry.get("take") not in ("source", "target"):
        raise InvalidInputError(
            f"the resolution {dict(entry)!r} has no key, so it cannot set a value", hint="take 'source' or 'target'"
        )
    return str(entry["take"])


def _key_text(key: Mapping[str, Any]) -> str:
    """Return a key as text that is equal for a Python value and for its form in JSON."""
    return json.dumps({str(name): _in_json(value) for name, value in key.items()}, sort_keys=True)


def _in_json(value: Any) -> Any:
    """Return a value as JSON holds it. Numbers of numpy and pandas count as those of Python."""
    plain = value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value
    try:
        return json_value(plain)
    except TypeError as err:
        raise InvalidInputError(f"{value!r} is not a value of a table", hint="pass a Python or JSON value") from err
