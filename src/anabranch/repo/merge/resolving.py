"""Who decides where two sides of a merge contradict each other: a strategy, or a resolver of a table or column."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.ids import TableKey
from anabranch.repo.merge.conflicts import Conflict

__all__ = ["Cells", "Decide", "Resolution", "Resolver", "Strategy", "parse_resolution"]

# The name of a resolver, or a function of a conflict that gives the value; NotImplemented leaves it as it is.
Resolver = str | Callable[[Conflict], Any]

_DIGITS_OF_INTEGERS = 20
_LATEST_BY = re.compile(r"latest_by\((.+)\)")


class Strategy(StrEnum):
    """What becomes of conflicts that nothing else resolves."""

    FAIL = "fail"
    SOURCE_WINS = "source-wins"
    DEST_WINS = "dest-wins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of one column that both sides changed: their values, and the conflicts they are, made when needed."""

    column: str
    base: pa.Array
    source: pa.Array
    target: pa.Array
    source_rows: pa.StructArray
    target_rows: pa.StructArray
    conflicts: Callable[[], Sequence[Conflict]]


# What the cells become, and which of them are resolved (None for all).
Decide = Callable[[Cells], tuple[pa.Array, pa.Array | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The strategy, and the resolvers by table (`bucket.table`), column, or both (`bucket.table.column`).

    What they leave open goes to `any_cell` and `any_row`, if there are, and only then to the strategy.
    """

    strategy: Strategy
    resolvers: Mapping[str, Resolver]
    any_cell: Decide | None = None
    any_row: Callable[[Conflict], Any] | None = None

    def for_column(self, table: TableKey, column: str) -> Decide | None:
        """Who decides on a cell: the nearest resolver, else the strategy; None for nobody."""
        for name in (f"{table}.{column}", column, str(table)):
            if name in self.resolvers:
                return _decider(self.resolvers[name], name)
        if self.any_cell is not None or self._side is None:
            return self.any_cell
        return _NAMED[self._side]

    def for_table(self, table: TableKey) -> str | None:
        """Which side is right about the table's shape, or whether it is there: 'source', 'target', or None."""
        resolver = self.resolvers.get(str(table))
        return resolver if isinstance(resolver, str) and resolver in ("source", "target") else self._side

    def for_row(self, table: TableKey) -> Callable[[Conflict], Any] | str | None:
        """Who decides on a row that one side deleted: a side, a function that gives the row, or None for nobody."""
        resolver = self.resolvers.get(str(table))
        return resolver if callable(resolver) else self.any_row or self.for_table(table)

    @property
    def _side(self) -> str | None:
        return {Strategy.SOURCE_WINS: "source", Strategy.DEST_WINS: "target"}.get(self.strategy)


def parse_resolution(strategy: str, resolvers: Mapping[str, Any] | None) -> Resolution:
    """Check what a caller gave; resolvers may be nested by table, {'bucket.table': {'column': 'max'}}."""
    if strategy not in list(Strategy):
        raise InvalidInputError(f"there is no strategy {strategy!r}", hint=f"use one of {', '.join(Strategy)}")
    flat: dict[str, Resolver] = {}
    if not isinstance(resolvers or {}, Mapping):
        raise InvalidInputError(f"{resolvers!r} names no resolvers", hint="give a dict such as {'price': 'max'}")
    for name, given in (resolvers or {}).items():
        if isinstance(given, Mapping):
            for column, resolver in given.items():
                _check(column, resolver)
                flat[f"{name}.{column}"] = resolver
        else:
            flat[name] = given
    for name, resolver in flat.items():
        _check(name, resolver)
    return Resolution(strategy=Strategy(strategy), resolvers=flat)


def _check(name: Any, resolver: Any) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"{name!r} names no table or column", hint="use text such as 'bucket.table.column'")
    if callable(resolver):
        return
    if not isinstance(resolver, str) or not (resolver in _NAMED or _LATEST_BY.fullmatch(resolver)):
        raise InvalidInputError(
            f"there is no resolver {resolver!r} for {name!r}",
            hint=f"use {', '.join(_NAMED)}, latest_by(column), or a function",
        )
    if resolver not in ("source", "target") and not resolver.startswith("latest_by") and _is_table(name):
        raise InvalidInputError(
            f"the resolver {resolver!r} decides on single columns, and {name!r} is a table",
            hint=f"name a column, such as '{name}.amount'",
        )


def _is_table(name: str) -> bool:
    try:
        return name.count(".") == 1 and bool(TableKey.parse(name))
    except InvalidNameError:
        return False


def _decider(resolver: Resolver, name: str) -> Decide:
    if callable(resolver):
        return _asking(resolver, name)
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
    except pa.ArrowNotImplementedError:  # Arrow compares more types than it knows the greatest of
        return pc.if_else(_is_ahead(cells.source, cells.target, is_better), cells.source, cells.target)


def _is_ahead(source: pa.Array, target: pa.Array, is_better: Callable[..., pa.Array]) -> pa.Array:
    """Where the source's value is the better one, or the only one."""
    is_only = pc.and_(pc.is_valid(source), pc.is_null(target))
    return pc.or_(pc.fill_null(is_better(source, target), pa.scalar(value=False)), is_only)


def _sum_delta(cells: Cells) -> tuple[pa.Array, None]:
    """The base plus both changes; nulls count as 0."""

    def total() -> pa.Array:
        kind = _with_room(cells.target.type)
        filled = [pc.fill_null(array, pa.scalar(0, array.type)) for array in (cells.source, cells.target, cells.base)]
        source, target, base = (array if array.type == kind else array.cast(kind) for array in filled)
        return pc.add_checked(target, pc.subtract_checked(source, base))

    return _computed(cells, "sum_delta", total), None


def _with_room(kind: pa.DataType) -> pa.DataType:
    """A type in which sums of a few numbers fit, though the numbers themselves may be as large as they can."""
    if pa.types.is_integer(kind):
        return pa.decimal128(_DIGITS_OF_INTEGERS, 0)
    if pa.types.is_decimal128(kind):
        return pa.decimal256(kind.precision, kind.scale)
    return kind


def _concat(cells: Cells) -> tuple[pa.Array, None]:
    """What the target has, then what the source has: texts, bytes or lists."""

    def joined() -> pa.Array:
        if pa.types.is_list(cells.target.type) or pa.types.is_large_list(cells.target.type):
            pairs = zip(cells.target.to_pylist(), cells.source.to_pylist(), strict=True)
            return pa.array([[*(left or ()), *(right or ())] for left, right in pairs], cells.target.type)
        empty = pa.scalar("").cast(cells.target.type)
        left, right = pc.fill_null(cells.target, empty), pc.fill_null(cells.source, empty)
        return pc.binary_join_element_wise(left, right, empty)

    return _computed(cells, "concat", joined), None


def _latest_by(column: str) -> Decide:
    """The value of the side whose row has the greater value in a column; of equals, the target's."""

    def decide(cells: Cells) -> tuple[pa.Array, None]:
        if column not in cells.source_rows.type.names or column not in cells.target_rows.type.names:
            raise InvalidInputError(
                f"latest_by({column}) names a column that is not on both sides", hint="name one that is"
            )
        source, target = (pc.struct_field(rows, [column]) for rows in (cells.source_rows, cells.target_rows))
        name = f"latest_by({column})"
        is_later = _computed(cells, name, lambda: _is_ahead(source, target, pc.greater), check=False)
        return pc.if_else(is_later, cells.source, cells.target), None

    return decide


def _asking(function: Callable[[Conflict], Any], name: str) -> Decide:
    def decide(cells: Cells) -> tuple[pa.Array, pa.Array]:
        conflicts = cells.conflicts()
        answers = [function(conflict) for conflict in conflicts]
        resolved = pa.array([answer is not NotImplemented for answer in answers])
        # A value of one of the sides is taken as it is there: Python may only have a text for it.
        sides = [_side_of(answer, conflict) for answer, conflict in zip(answers, conflicts, strict=True)]
        values = [
            answer if side is None and answer is not NotImplemented else None
            for answer, side in zip(answers, sides, strict=True)
        ]
        try:
            given = pa.array(values, cells.target.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as err:
            raise InvalidInputError(
                f"the resolver of {name!r} gave a value that column {cells.column!r} does not take: {err}",
                hint=f"return {cells.target.type}, None, or NotImplemented to leave a conflict as it is",
            ) from err
        every = pa.concat_arrays([given, cells.base, cells.source, cells.target])
        chosen = [number + len(answers) * (side or 0) for number, side in enumerate(sides)]
        return every.take(pa.array(chosen, pa.int64())), resolved

    return decide


def _side_of(answer: Any, conflict: Conflict) -> int | None:
    """1, 2 or 3 if an answer is what the base, the source or the target has; None for a new value."""
    sides = (conflict.base, conflict.source, conflict.target)
    return next((number for number, value in enumerate(sides, start=1) if answer is value), None)


def _computed(cells: Cells, name: str, compute: Callable[[], pa.Array], *, check: bool = True) -> pa.Array:
    try:
        found = compute()
        return found.cast(cells.target.type) if check else found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as err:
        raise InvalidInputError(
            f"the resolver {name!r} does not work on column {cells.column!r} of {cells.target.type}: {err}",
            hint="choose another, such as 'source' or 'target'",
        ) from err


_NAMED: dict[str, Decide] = {
    "source": _source,
    "target": _target,
    "max": _max,
    "min": _min,
    "sum_delta": _sum_delta,
    "concat": _concat,
}
