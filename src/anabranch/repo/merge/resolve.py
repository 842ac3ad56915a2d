"""Resolve conflicts of a merge, by a strategy or by resolvers for tables and columns."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.ids import TableKey
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.decisions import Decisions, parse_decisions
from anabranch.suggestions import suggest

__all__ = ["Cells", "Decide", "Resolution", "Resolver", "Strategy", "check_names", "parse_resolution"]

# The name of a resolver, or a function that returns the value for a conflict. NotImplemented leaves it unresolved.
Resolver = str | Callable[[Conflict], Any]

# The number of digits of the largest 64-bit integer.
_DIGITS_OF_INTEGERS = 20
_LATEST_BY = re.compile(r"latest_by\((.+)\)")


class Strategy(StrEnum):
    """What to do with conflicts that no resolver resolves."""

    FAIL = "fail"
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of one column that both sides changed. `conflicts` builds their conflicts when needed."""

    column: str
    base: pa.Array
    source: pa.Array
    target: pa.Array
    source_rows: pa.StructArray
    target_rows: pa.StructArray
    conflicts: Callable[[], Sequence[Conflict]]


# Returns the new values of cells, and which of them are resolved (None for all).
Decide = Callable[[Cells], tuple[pa.Array, pa.Array | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The strategy, and the resolvers by table (`bucket.table`), column, or both (`bucket.table.column`).

    `decisions` on single conflicts come first. `any_cell` and `any_row`, if set, decide what the resolvers leave open.
    The strategy comes last.
    """

    strategy: Strategy
    resolvers: Mapping[str, Resolver]
    decisions: Decisions = field(default_factory=Decisions)
    any_cell: Decide | None = None
    any_row: Callable[[Conflict], Any] | None = None

    @property
    def has_functions(self) -> bool:
        """Whether functions of the caller may be called to decide."""
        return any(callable(resolver) for resolver in self.resolvers.values())

    def for_column(self, table: TableKey, column: str) -> Decide | None:
        """Return the function that decides on cells of a column: decisions on them, resolvers, else the strategy.

        Return None if the cells stay unresolved.
        """
        others = self._for_all_cells(table, column)
        decided = self.decisions.for_conflicts(table, column)
        if decided is None:
            return others
        return _first_of(_by_function(decided, f"{table}.{column}", reads_json=True), others)

    def _for_all_cells(self, table: TableKey, column: str) -> Decide | None:
        for name in (f"{table}.{column}", column, str(table)):
            if name in self.resolvers:
                return _decider(self.resolvers[name], name)
        if self.any_cell is not None or self._side is None:
            return self.any_cell
        return _NAMED[self._side]

    def for_table(self, table: TableKey) -> str | None:
        """Return the side that decides on the columns and the existence of a table: 'source', 'target', or None."""
        resolver = self.resolvers.get(str(table))
        return resolver if isinstance(resolver, str) and resolver in ("source", "target") else self._side

    def for_schema(self, table: TableKey, column: str | None, values: Sequence[Any]) -> str | None:
        """Return the side that decides on the name, type, nulls or notes of a column: 'source', 'target', or None.

        `values` are those of the base, the source and the target.
        """
        decided = self.decisions.side_of(table, column, values)
        if decided is not None:
            return decided
        for name in () if column is None else (f"{table}.{column}", column):
            if self.resolvers.get(name) in ("source", "target"):
                return str(self.resolvers[name])
        return self.for_table(table)

    def for_row(self, table: TableKey) -> Callable[[Conflict], Any] | str | None:
        """Return the side, or the function that returns the row, for a row that one side deleted. None: unresolved."""
        resolver = self.resolvers.get(str(table))
        others = resolver if callable(resolver) else self.any_row or self.for_table(table)
        decided = self.decisions.for_conflicts(table, None)
        return others if decided is None else _row_decider(decided, others)

    @property
    def _side(self) -> str | None:
        return None if self.strategy is Strategy.FAIL else self.strategy.value


def parse_resolution(
    strategy: str, resolvers: Mapping[str, Any] | None, resolutions: Sequence[Mapping[str, Any]] | None = None
) -> Resolution:
    """Check a strategy, resolvers and decisions on single conflicts.

    Resolvers may be nested by table: {'bucket.table': {'column': 'max'}}.
    """
    if strategy not in list(Strategy):
        raise InvalidInputError(f"unknown strategy {strategy!r}", hint=f"use one of {', '.join(Strategy)}")
    flat: dict[str, Resolver] = {}
    if not isinstance(resolvers or {}, Mapping):
        raise InvalidInputError(
            f"resolvers must be a dict, got {resolvers!r}", hint="pass for example {'price': 'max'}"
        )
    for name, given in (resolvers or {}).items():
        if isinstance(given, Mapping):
            for column, resolver in given.items():
                _check(column, resolver)
                flat[f"{name}.{column}"] = resolver
        else:
            flat[name] = given
    for name, resolver in flat.items():
        _check(name, resolver)
    decisions = parse_decisions(resolutions)
    # A decision on all conflicts of a column or table is a resolver.
    return Resolution(strategy=Strategy(strategy), resolvers={**flat, **decisions.resolvers}, decisions=decisions)


def check_names(resolution: Resolution, tables: Mapping[str, Callable[[], Sequence[str]]]) -> None:
    """Raise InvalidInputError if a resolver or decision is for a table or column that does not exist.

    `tables` are the columns of all tables by their keys. They are read only if they are needed.
    """
    known: set[str] = set(tables)
    for name in sorted({*resolution.resolvers, *resolution.decisions.names()}):
        if name in tables:
            continue
        table = next((key for key in tables if name.startswith(f"{key}.")), None)
        # The name of a column may have dots, so that 'a.b.c' can also be a column of any table.
        searched = [table] if table is not None else list(tables)
        for key in searched:
            columns = tables[key]()
            known.update(f"{key}.{column}" for column in columns)
            known.update(() if table is not None else columns)
            if name in known:
                break
        else:
            hint = "name a table, a column, or a column of a table, such as 'shop.orders.price'"
            hint = suggest(name, sorted(known), hint)
            raise InvalidInputError(f"the resolver {name!r} matches no table and no column", hint=hint)


def _check(name: Any, resolver: Any) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(
            f"a resolver must be for a table or column name, got {name!r}",
            hint="pass for example 'bucket.table.column'",
        )
    if callable(resolver):
        return
    if not isinstance(resolver, str) or not (resolver in _NAMED or _LATEST_BY.fullmatch(resolver)):
        raise InvalidInputError(
            f"unknown resolver {resolver!r} for {name!r}",
            hint=f"use {', '.join(_NAMED)}, latest_by(column), or a function",
        )
    if resolver not in ("source", "target") and not resolver.startswith("latest_by") and _is_table(name):
        raise InvalidInputError(
            f"the resolver {resolver!r} is for columns, but {name!r} is a table",
            hint=f"pass a column, for example '{name}.amount'",
        )


def _is_table(name: str) -> bool:
    try:
        return name.count(".") == 1 and bool(TableKey.parse(name))
    except InvalidNameError:
        return False


def _decider(resolver: Resolver, name: str) -> Decide:
    if callable(resolver):
        return _by_function(resolver, name)
    found = _LATEST_BY.fullmatch(resolver)
    return _NAMED[resolver] if found is None else _latest_by(found[1])


def _source(cells: Cells) -> tuple[pa.Array, None]:
    return cells.source, None


def _target(cells: Cells) -> tuple[pa.Array, None]:
    return cells.target, None


def _max(cells: Cells) -> tuple[pa.Array, None]:
    return _computed(cells, "max", lambda: _extreme(cells, pc.max_element_wise, pc.greater)), None


def _min(cells: Cells) -> tuple[pa.Array, None]:
    return _computed(cells, "min", lambda: _extreme(cells, pc.min_element_wise, pc.less)), None


def _extreme(cells: Cells, choose: Callable[..., pa.Array], is_better: Callable[..., pa.Array]) -> pa.Array:
    try:
        return choose(cells.source, cells.target)
    except pa.ArrowNotImplementedError:  # Arrow can compare more types than it can take the maximum of.
        return pc.if_else(_is_ahead(cells.source, cells.target, is_better), cells.source, cells.target)


def _is_ahead(source: pa.Array, target: pa.Array, is_better: Callable[..., pa.Array]) -> pa.Array:
    """Return where the value of the source is the better one, or the only one that is not null."""
    is_only = pc.and_(pc.is_valid(source), pc.is_null(target))
    return pc.or_(pc.fill_null(is_better(source, target), pa.scalar(value=False)), is_only)


def _sum_delta(cells: Cells) -> tuple[pa.Array, None]:
    """Return the base plus both changes. Nulls count as 0."""

    def total() -> pa.Array:
        kind = _with_room(cells.target.type)
        filled = [pc.fill_null(array, pa.scalar(0, array.type)) for array in (cells.source, cells.target, cells.base)]
        source, target, base = (array if array.type == kind else array.cast(kind) for array in filled)
        return pc.add_checked(target, pc.subtract_checked(source, base))

    return _computed(cells, "sum_delta", total), None


def _with_room(kind: pa.DataType) -> pa.DataType:
    """Return a type in which the sum of a few of the largest numbers of a type fits."""
    if pa.types.is_integer(kind):
        return pa.decimal128(_DIGITS_OF_INTEGERS, 0)
    if pa.types.is_decimal128(kind):
        return pa.decimal256(kind.precision, kind.scale)
    return kind


def _concat(cells: Cells) -> tuple[pa.Array, None]:
    """Return the value of the target followed by that of the source: texts, bytes or lists."""

    def joined() -> pa.Array:
        if pa.types.is_list(cells.target.type) or pa.types.is_large_list(cells.target.type):
            pairs = zip(cells.target.to_pylist(), cells.source.to_pylist(), strict=True)
            return pa.array([[*(left or ()), *(right or ())] for left, right in pairs], cells.target.type)
        empty = pa.scalar("").cast(cells.target.type)
        left, right = pc.fill_null(cells.target, empty), pc.fill_null(cells.source, empty)
        return pc.binary_join_element_wise(left, right, empty)

    return _computed(cells, "concat", joined), None


def _latest_by(column: str) -> Decide:
    """Return the value of the side whose row has the greater value in a column. If they are equal, the target's."""

    def decide(cells: Cells) -> tuple[pa.Array, None]:
        if column not in cells.source_rows.type.names or column not in cells.target_rows.type.names:
            raise InvalidInputError(
                f"latest_by({column}): column {column!r} is not on both sides", hint="use a column that both sides have"
            )
        source, target = (pc.struct_field(rows, [column]) for rows in (cells.source_rows, cells.target_rows))
        name = f"latest_by({column})"
        is_later = _computed(cells, name, lambda: _is_ahead(source, target, pc.greater), check=False)
        return pc.if_else(is_later, cells.source, cells.target), None

    return decide


def _first_of(decide: Decide, others: Decide | None) -> Decide:
    """Return a decision that asks `others` about the cells that the first function leaves open."""
    if others is None:
        return decide

    def both(cells: Cells) -> tuple[pa.Array, pa.Array | None]:
        values, resolved = decide(cells)
        if resolved is None or resolved.false_count == 0:
            return values, None
        other_values, other_resolved = others(cells)
        is_first = np.asarray(resolved.to_numpy(zero_copy_only=False), dtype=bool)
        positions = np.arange(len(values)) + np.where(is_first, 0, len(values))
        chosen = pa.concat_arrays([values, other_values]).take(pa.array(positions))
        return chosen, None if other_resolved is None else pc.or_(resolved, other_resolved)

    return both


def _row_decider(
    decided: Callable[[Conflict], Any], others: Callable[[Conflict], Any] | str | None
) -> Callable[[Conflict], Any]:
    """Return a function that asks `others`, or takes that side, if no decision was made on a row."""

    def decide(conflict: Conflict) -> Any:
        answer = decided(conflict)
        if answer is not NotImplemented or others is None:
            return answer
        return others(conflict) if callable(others) else getattr(conflict, others)

    return decide


def _by_function(function: Callable[[Conflict], Any], name: str, *, reads_json: bool = False) -> Decide:
    """Return a decision that calls a function for each conflict. With `reads_json` it may return values as in JSON."""

    def decide(cells: Cells) -> tuple[pa.Array, pa.Array]:
        conflicts = cells.conflicts()
        answers = [function(conflict) for conflict in conflicts]
        resolved = pa.array([answer is not NotImplemented for answer in answers])
        # Copy a value that the function returned unchanged from its side: not every Arrow value survives in Python.
        sides = [_side_of(answer, conflict) for answer, conflict in zip(answers, conflicts, strict=True)]
        values = [
            answer if side is None and answer is not NotImplemented else None
            for answer, side in zip(answers, sides, strict=True)
        ]
        try:
            if reads_json:
                values = [_from_json(value, cells.target.type) for value in values]
            given = pa.array(values, cells.target.type)
        except (pa.ArrowException, OverflowError, ValueError) as err:
            raise InvalidInputError(
                f"the resolver of {name!r} returned a value that does not fit column {cells.column!r}: {err}",
                hint=f"return {cells.target.type}, None, or NotImplemented to leave the conflict unresolved",
            ) from err
        every = pa.concat_arrays([given, cells.base, cells.source, cells.target])
        chosen = [number + len(answers) * (side or 0) for number, side in enumerate(sides)]
        return every.take(pa.array(chosen, pa.int64())), resolved

    return decide


def _from_json(value: Any, kind: pa.DataType) -> Any:
    """Return a value that JSON or CSV has as text, such as a date, a decimal or bytes, in its own type."""
    if not isinstance(value, str) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64decode(value, validate=True)
    return pa.scalar(value).cast(kind).as_py()


def _side_of(answer: Any, conflict: Conflict) -> int | None:
    """Return 1, 2 or 3 if an answer is the value of the base, the source or the target. None for a new value."""
    sides = (conflict.base, conflict.source, conflict.target)
    return next((number for number, value in enumerate(sides, start=1) if answer is value), None)


def _computed(cells: Cells, name: str, compute: Callable[[], pa.Array], *, check: bool = True) -> pa.Array:
    try:
        found = compute()
        return found.cast(cells.target.type) if check else found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as err:
        raise InvalidInputError(
            f"the resolver {name!r} does not work on column {cells.column!r} of {cells.target.type}: {err}",
            hint="use another resolver, for example 'source' or 'target'",
        ) from err


_NAMED: dict[str, Decide] = {
    "source": _source,
    "target": _target,
    "max": _max,
    "min": _min,
    "sum_delta": _sum_delta,
    "concat": _concat,
}
