"""The ways to decide on cells that both sides changed: the named resolvers, and functions of the caller."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError
from anabranch.format.arrow_types import shorten
from anabranch.format.compare.matching import Mask
from anabranch.json_values import json_value, value_from_json
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.merge.decisions import JsonValue

# The name of a resolver, or a function that returns the value for a conflict. NotImplemented leaves it unresolved.
Resolver = str | Callable[[Conflict], Any]
# By column, by table and column in one text, or nested by table.
Resolvers = Mapping[str, Resolver | Mapping[str, Resolver]]

# The number of digits of the largest 64-bit integer.
_DIGITS_OF_INTEGERS = 20
_LATEST_BY = re.compile(r"latest_by\((.+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of one column that both sides changed, or their values at one path.

    `rows` are the numbers of their rows, from which `build` makes the conflicts when they are needed.
    """

    column: str
    base: pa.Array
    source: pa.Array
    target: pa.Array
    source_rows: pa.StructArray
    target_rows: pa.StructArray
    rows: npt.NDArray[np.int64]
    build: "Callable[[Cells], Iterator[Conflict]]"
    path: str | None = None

    def __len__(self) -> int:
        return len(self.target)

    @property
    def sides(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        return self.base, self.source, self.target

    def conflicts(self) -> list[Conflict]:
        return list(self.build(self))

    def filter(self, mask: Mask) -> "Cells":
        arrays = ("base", "source", "target", "source_rows", "target_rows")
        filtered = {name: getattr(self, name).filter(pa.array(mask)) for name in arrays}
        return replace(self, rows=self.rows[mask], **filtered)


# Returns the new values of cells, and a mask of the resolved ones.
Decide = Callable[[Cells], tuple[pa.Array, Mask]]


def choose(values: pa.Array, others: pa.Array, is_other: Mask) -> pa.Array:
    """Return values, or other ones where the mask is set."""
    if not is_other.any():
        return values
    positions = np.arange(len(values))
    # Use `take`, because `if_else` does not support every type, for example UUIDs.
    return pa.concat_arrays([values, others]).take(pa.array(np.where(is_other, positions + len(values), positions)))


def put_at(values: pa.Array, positions: npt.NDArray[np.int64], others: pa.Array) -> pa.Array:
    """Return values with other ones at some positions."""
    chosen = np.arange(len(values))
    chosen[positions] = len(values) + np.arange(len(others))
    return pa.concat_arrays([values, others]).take(pa.array(chosen))


def leave_open(cells: Cells) -> tuple[pa.Array, Mask]:
    """Resolve no cell."""
    return cells.target, np.zeros(len(cells), dtype=bool)


def resolved_by(compute: Callable[[Cells], pa.Array]) -> Decide:
    """Return a decision that resolves all cells by the values that a function computes."""
    return lambda cells: (compute(cells), np.ones(len(cells), dtype=bool))


def decide_on_each(cells: Cells, mask: Mask, decide: Decide, others: Decide) -> tuple[pa.Array, Mask]:
    """Decide on the cells where the mask is set by one function, and on the other ones by another."""
    if mask.all():
        return decide(cells)
    values, resolved = others(cells.filter(~mask))
    if not mask.any():
        return values, resolved
    chosen, are_chosen = decide(cells.filter(mask))
    are_resolved = np.zeros(len(cells), dtype=bool)
    are_resolved[mask], are_resolved[~mask] = are_chosen, resolved
    order = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
    return pa.concat_arrays([chosen, values]).take(pa.array(order)), are_resolved


def first_of(decide: Decide, others: Decide) -> Decide:
    """Return a decision that calls `others` for the cells that the first function leaves unresolved."""

    def both(cells: Cells) -> tuple[pa.Array, Mask]:
        values, resolved = decide(cells)
        if resolved.all():
            return values, resolved
        if not resolved.any():
            return others(cells)
        # Functions of the caller are not called for cells that are decided.
        more, are_more = others(cells.filter(~resolved))
        left = np.flatnonzero(~resolved)
        return put_at(values, left, more), np.isin(np.arange(len(cells)), left[~are_more], invert=True)

    return both


def is_latest_by(resolver: str) -> bool:
    """Return whether a resolver takes the side whose row is the later one by a column."""
    return _LATEST_BY.fullmatch(resolver) is not None


def decider(resolver: Resolver, name: str) -> Decide:
    if callable(resolver):
        return by_function(resolver, name)
    found = _LATEST_BY.fullmatch(resolver)
    return NAMED[resolver] if found is None else _latest_by(found[1])


def _extreme(cells: Cells, *, choose: Callable[..., pa.Array], is_better: Callable[..., pa.Array]) -> pa.Array:
    try:
        return choose(cells.source, cells.target)
    except pa.ArrowNotImplementedError:  # Arrow can compare more types than it can take the maximum of.
        return pc.if_else(_is_ahead(cells.source, cells.target, is_better), cells.source, cells.target)


def _is_ahead(source: pa.Array, target: pa.Array, is_better: Callable[..., pa.Array]) -> pa.Array:
    """Return where the value of the source is the better one, or the only one that is not null."""
    # A comparison with null is null, but a value is ahead of no value.
    is_only = pc.and_(pc.is_valid(source), pc.is_null(target))
    return pc.or_(pc.fill_null(is_better(source, target), pa.scalar(value=False)), is_only)


def _sum_delta(cells: Cells) -> pa.Array:
    """Return the base plus both changes. Nulls count as 0."""
    # The sum of the three may exceed the type in between, although the result fits.
    kind = _with_room(cells.target.type)
    # A null counts as 0, so that the first value of a cell is a change by that value.
    filled = [pc.fill_null(array, pa.scalar(0, array.type)) for array in (cells.source, cells.target, cells.base)]
    source, target, base = (array if array.type == kind else array.cast(kind) for array in filled)
    return pc.add_checked(target, pc.subtract_checked(source, base))


def _with_room(kind: pa.DataType) -> pa.DataType:
    """Return a type in which the sum of a few of the largest numbers of a type fits."""
    if pa.types.is_integer(kind):
        return pa.decimal128(_DIGITS_OF_INTEGERS, 0)
    return pa.decimal256(kind.precision, kind.scale) if pa.types.is_decimal128(kind) else kind


def _concat(cells: Cells) -> pa.Array:
    """Return the value of the target followed by that of the source: texts, bytes or lists."""
    if pa.types.is_list(cells.target.type) or pa.types.is_large_list(cells.target.type):
        pairs = zip(cells.target.to_pylist(), cells.source.to_pylist(), strict=True)
        return pa.array([[*(left or ()), *(right or ())] for left, right in pairs], cells.target.type)
    empty = pa.scalar("").cast(cells.target.type)
    # A null on one side would make the joined value null, and lose that of the other side.
    left, right = pc.fill_null(cells.target, empty), pc.fill_null(cells.source, empty)
    return pc.binary_join_element_wise(left, right, empty)


def _latest_by(column: str) -> Decide:
    """Return the value of the side whose row has the greater value in a column. If they are equal, the target's."""
    name = f"latest_by({column})"

    def compute(cells: Cells) -> pa.Array:
        if column not in cells.source_rows.type.names or column not in cells.target_rows.type.names:
            hint = "use a column that both sides have"
            raise InvalidInputError(f"{name}: column {column!r} is not on both sides", hint=hint)
        source, target = (pc.struct_field(rows, [column]) for rows in (cells.source_rows, cells.target_rows))
        with _errors_of(name, cells):
            is_later = _is_ahead(source, target, pc.greater)
        return pc.if_else(is_later, cells.source, cells.target)

    return resolved_by(compute)


def row_decider(
    decided: Callable[[Conflict], Any], others: Callable[[Conflict], Any] | str | None
) -> Callable[[Conflict], Any]:
    """Return a function that calls `decided`. If that makes no decision, it calls `others`, or takes that side."""

    def decide(conflict: Conflict) -> Any:
        answer = decided(conflict)
        if answer is not NotImplemented or others is None:
            return answer
        return others(conflict) if callable(others) else getattr(conflict, others)

    return decide


def by_function(function: Callable[[Conflict], Any], name: str) -> Decide:
    """Return a decision that calls a function for each conflict. It may return a `JsonValue`."""

    def decide(cells: Cells) -> tuple[pa.Array, Mask]:
        conflicts = cells.conflicts()
        answers = [function(conflict) for conflict in conflicts]
        resolved = np.array([answer is not NotImplemented for answer in answers], dtype=bool)
        # Copy a value that the function returned unchanged from its side: not every Arrow value survives in Python.
        sides = [_side_of(answer, conflict) for answer, conflict in zip(answers, conflicts, strict=True)]
        column = cells.column if cells.path is None else f"{cells.column}.{cells.path}"
        field = pa.field(column, cells.target.type)
        try:
            given = pa.array(_new_values(answers, sides, conflicts, field), field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as err:
            raise InvalidInputError(
                f"the resolver of {name!r} returned a value that does not fit column {cells.column!r}: {err}",
                hint=f"return {show_type(cells.target.type)}, None, or NotImplemented to leave the conflict unresolved",
            ) from err
        every = pa.concat_arrays([given, cells.base, cells.source, cells.target])
        chosen = [number + len(answers) * side for number, side in enumerate(sides)]
        return every.take(pa.array(chosen, pa.int64())), resolved

    return decide


def decided_value(decided: JsonValue, field: pa.Field, conflict: Conflict) -> Any:
    """Return the value of a decision as a column takes it. Raise InvalidInputError if it does not fit."""
    try:
        found = value_from_json(decided.value, field.type)
        pa.array([found], field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as err:
        where = f"column '{field.name}', key {shorten(json_value(conflict.key))}"
        problem = f"cannot convert {shorten(decided.value)} to {show_type(field.type)} ({where})"
        raise InvalidInputError(problem, hint="correct the value of the decision") from err
    return found


def _side_of(answer: Any, conflict: Conflict) -> int:
    """Return 1, 2 or 3 if an answer is the value of the base, the source or the target. 0 for a new value."""
    sides = (conflict.base, conflict.source, conflict.target)
    return next((number for number, value in enumerate(sides, start=1) if answer is value), 0)


def _new_values(answers: list[Any], sides: list[int], conflicts: list[Conflict], field: pa.Field) -> list[Any]:
    """Return the new values among answers. None where one is the value of a side, or leaves a conflict unresolved."""
    values: list[Any] = []
    for answer, side, conflict in zip(answers, sides, conflicts, strict=True):
        if side or answer is NotImplemented:
            values.append(None)
        else:
            values.append(decided_value(answer, field, conflict) if isinstance(answer, JsonValue) else answer)
    return values


@contextmanager
def _errors_of(name: str, cells: Cells) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as err:
        raise InvalidInputError(
            f"the resolver {name!r} does not work on column {cells.column!r} of {show_type(cells.target.type)}: {err}",
            hint="use another resolver, for example 'source' or 'target'",
        ) from err


def _computed(name: str, compute: Callable[[Cells], pa.Array]) -> Decide:
    def computed(cells: Cells) -> pa.Array:
        with _errors_of(name, cells):
            return compute(cells).cast(cells.target.type)

    return resolved_by(computed)


_COMPUTED: dict[str, Callable[[Cells], pa.Array]] = {
    "max": partial(_extreme, choose=pc.max_element_wise, is_better=pc.greater),
    "min": partial(_extreme, choose=pc.min_element_wise, is_better=pc.less),
    "sum_delta": _sum_delta,
    "concat": _concat,
}
NAMED: dict[str, Decide] = {
    "source": resolved_by(lambda cells: cells.source),
    "target": resolved_by(lambda cells: cells.target),
    **{name: _computed(name, compute) for name, compute in _COMPUTED.items()},
}
