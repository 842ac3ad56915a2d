"""Match rows by their keys and compare their values, in memory, with Arrow and numpy.

The results are those of SQL: a null key matches nothing, and two nulls, two NaNs, and 0.0 and -0.0 are equal values.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
# Numbers that are equal exactly if the values are.
Codes = npt.NDArray[np.int64]
# Row numbers. -1 means a row that does not exist.
Positions = npt.NDArray[np.int64]

# Less than any code that `encode` returns, and than any row id or address.
NO_CODE = -(1 << 63)

# Codes above this could overflow when they are combined with another column.
_MOST_CODES = 1 << 62

# The types that Arrow compares, hashes and sorts.
_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal128,
    pa.types.is_decimal256,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)


def can_match(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be part of a key here."""
    if isinstance(kind, pa.BaseExtensionType):
        return can_match(kind.storage_type)
    return can_match(kind.value_type) if pa.types.is_dictionary(kind) else _is_plain(kind)


@lru_cache(maxsize=256)
def _is_plain(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _PLAIN)


def can_compare(kind: pa.DataType) -> bool:
    """Return whether values of this type can be compared here."""
    if isinstance(kind, pa.BaseExtensionType):
        return can_compare(kind.storage_type)
    if pa.types.is_nested(kind):
        return all(can_compare(kind.field(number).type) for number in range(kind.num_fields))
    return pa.types.is_null(kind) or can_match(kind)


# Keys


def encode(sides: Sequence[Sequence[pa.Array]], *, nulls_match: bool = False) -> list[Codes]:
    """Return a number for each row of each side. Rows with equal values in all columns have the same number.

    Unless `nulls_match`, a row with a null has a number of its own. Every side has the same columns.
    """
    if not nulls_match and (numbers := _own_numbers(sides)) is not None:
        return numbers
    ends = np.cumsum([len(columns[0]) for columns in sides])
    total = int(ends[-1])
    codes: Codes = np.zeros(total, dtype=np.int64)
    has_null = np.zeros(total, dtype=bool)
    for arrays in zip(*sides, strict=True):
        column = pa.concat_arrays([_hashable(array) for array in arrays])
        indices = column.dictionary_encode().indices
        has_null |= _mask(indices.is_null())
        codes = _combine(codes, _numbers(pc.fill_null(indices, -1)) + 1)
    if not nulls_match:
        # Negative numbers, one for each row: a null equals nothing, not even another null.
        codes[has_null] = -1 - np.arange(np.count_nonzero(has_null))
    return np.split(codes, ends[:-1])


def _own_numbers(sides: Sequence[Sequence[pa.Array]]) -> list[Codes] | None:
    """Return the values of a single column of whole numbers: they are codes themselves. Else None."""
    is_number = all(len(columns) == 1 and pa.types.is_integer(columns[0].type) for columns in sides)
    if not is_number or any(column.null_count for [column] in sides):
        return None
    # The bits of large unsigned numbers are those of negative ones, which no other value has.
    numbers = [column.to_numpy().astype(np.int64, copy=False) for [column] in sides]
    # Callers use the least number for rows that do not exist.
    return None if any(NO_CODE in own for own in numbers) else numbers


def _combine(codes: Codes, more: Codes) -> Codes:
    size = int(more.max(initial=0)) + 1
    if int(codes.max(initial=0)) >= _MOST_CODES // size:
        # Numbered again without gaps, so that the product fits into 64 bits.
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes * size + more


def order_of(columns: Sequence[pa.Array]) -> Positions:
    """Return the rank of each row, by the values of the columns in ascending order. Nulls are last."""
    names = [str(number) for number in range(len(columns))]
    table = pa.table([_hashable(column) for column in columns], names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    ranks = np.empty(len(table), dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(table))
    return ranks


def _hashable(array: pa.Array) -> pa.Array:
    """Return a column in a form in which equal values have the same bytes."""
    array = _plain(array)
    if not pa.types.is_floating(array.type):
        return array
    # There are several NaNs, and two zeros: the sum of -0.0 and 0.0 is 0.0.
    not_a_number, zero = (pa.scalar(value, array.type) for value in (float("nan"), 0.0))
    return pc.if_else(pc.is_nan(array), not_a_number, pc.add(array, zero))


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    # Arrow has no hash and no comparison of float16.
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


# Joins


def left_join(left: Codes, right: Codes) -> tuple[Positions, Positions]:
    """Return the pairs of rows with equal codes as two arrays. A row of the left without a partner has -1 beside it."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    partners = np.searchsorted(ordered, left, side="right") - first
    times = np.maximum(partners, 1)
    rows = np.repeat(np.arange(len(left)), times)
    # The first, second, ... partner of each row.
    number = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    found = np.full(len(rows), -1, dtype=np.int64)
    has_partner = partners[rows] > 0
    found[has_partner] = order[(first[rows] + number)[has_partner]]
    return rows, found


def full_join(left: Codes, right: Codes) -> tuple[Positions, Positions]:
    """Like `left_join`. The rows of the right without a partner follow, with -1 beside them."""
    rows, found = left_join(left, right)
    is_single = np.ones(len(right), dtype=bool)
    is_single[found[found >= 0]] = False
    single = np.flatnonzero(is_single)
    return np.concatenate([rows, np.full(len(single), -1)]), np.concatenate([found, single])


def take_or_null(array: pa.Array, positions: Positions) -> pa.Array:
    """Return the values at positions. The value at -1 is null."""
    return array.take(pa.array(positions, mask=positions < 0))


# Rows without keys


def cancel_equal(codes: Sequence[Codes], ids: Sequence[Codes] | None) -> list[Positions]:
    """Return the rows of two sides that are left after equal rows were removed, as often as both sides have them.

    `codes` are equal for equal rows. Rows that also have the same id are removed first: of several equal rows, the one
    that changed is left.
    """
    rows = [np.arange(len(own)) for own in codes]
    if ids is not None:
        rows = _remove_common(rows, codes, ids)
    ids = [np.zeros(len(own), dtype=np.int64) for own in codes] if ids is None else ids
    copies = [_number_copies(code[own], number[own]) for code, number, own in zip(codes, ids, rows, strict=True)]
    return _remove_common(rows, [code[own] for code, own in zip(codes, rows, strict=True)], copies)


def _remove_common(rows: Sequence[Positions], codes: Sequence[Codes], others: Sequence[Codes]) -> list[Positions]:
    """Remove the rows whose two numbers are those of a row of the other side."""
    numbers = np.unique(np.concatenate(others), return_inverse=True)[1].astype(np.int64)
    left, right = np.split(_combine(np.concatenate(codes), numbers), [len(codes[0])])
    return [rows[0][~np.isin(left, right)], rows[1][~np.isin(right, left)]]


def _number_copies(codes: Codes, ids: Codes) -> Codes:
    """Number the rows with the same code: 0, 1, 2..., in the order of their ids."""
    order = np.lexsort((ids, codes))
    ordered = codes[order]
    numbers = np.empty(len(codes), dtype=np.int64)
    numbers[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered, side="left")
    return numbers


# Values


def differ(one: pa.Array, other: pa.Array) -> Mask:
    """Return where the values of two columns of the same type differ."""
    found = np.zeros(len(one), dtype=bool)
    if one.equals(other):
        return found
    one, other = _plain(one), _plain(other)
    if pa.types.is_null(one.type):
        return found
    is_null, other_is_null = _mask(one.is_null()), _mask(other.is_null())
    found = is_null ^ other_is_null
    both = ~is_null & ~other_is_null
    if not pa.types.is_nested(one.type):
        unequal = pc.not_equal(one, other)
        # NaN is unequal to itself in Arrow. Two NaNs are the same value here.
        if pa.types.is_floating(one.type):
            unequal = pc.and_not(unequal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
        found[both] = _mask(pc.fill_null(unequal, pa.scalar(value=False)))[both]
    elif pa.types.is_struct(one.type):
        # `flatten` applies the nulls of the struct to its fields; `field` would show what is below a null.
        for part, other_part in zip(one.flatten(), other.flatten(), strict=True):
            found |= both & differ(part, other_part)
    else:
        found |= _lists_differ(one, other, np.flatnonzero(both))
    return found


def _lists_differ(one: pa.Array, other: pa.Array, rows: Positions) -> Mask:
    """Compare the lists or maps of some rows, where both are not null."""
    found = np.zeros(len(one), dtype=bool)
    lists, other_lists = (_as_lists(array).take(pa.array(rows)) for array in (one, other))
    lengths, other_lengths = (_numbers(pc.list_value_length(array)) for array in (lists, other_lists))
    same = lengths == other_lengths
    found[rows[~same]] = True
    # Only lists of equal length are compared by their values, so that both sides have the same number of values.
    values, other_values = (pc.list_flatten(array.filter(pa.array(same))) for array in (lists, other_lists))
    owners = np.repeat(rows[same], lengths[same])
    found[owners[differ(values, other_values)]] = True
    return found


def _as_lists(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _mask(array: pa.Array) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)


def _numbers(array: pa.Array) -> Codes:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
