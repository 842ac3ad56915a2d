"""Compare keys by their hashes in bounded memory: new rows may have too many keys for the memory.

Hashes find the few rows that may have equal keys. These rows are read again and compared by value.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import KeyConflictError

_Words = npt.NDArray[np.uint64]

# 256 MB of hashes at a time. With more rows, each pass over them takes a part of the range of hashes.
_HASHES_PER_PASS = 1 << 25
# Rows that may have equal keys are read again, for this number of hashes at a time.
_COMPARED_HASHES = 1 << 16
_COUNT = "__count"

# The constants of SplitMix64.
_STEP, _FIRST_FACTOR, _SECOND_FACTOR = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_FIRST_SHIFT, _SECOND_SHIFT, _THIRD_SHIFT, _HALF = map(np.uint64, (30, 27, 31, 32))
_WORD_BYTES = 8
# The mask that keeps the first n bytes of a word.
_FIRST_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(_WORD_BYTES + 1)], dtype=np.uint64)
# Longer values are hashed one by one.
_MOST_WORDS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """The keys of rows, which can be read several times."""

    read: Callable[[], Iterator[pa.RecordBatch]]
    count: int

    @classmethod
    def of_table(cls, rows: pa.Table, keys: Sequence[str]) -> "KeyRows":
        selected = rows.select(list(keys))
        return cls(read=lambda: iter(selected.to_batches()), count=len(rows))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.read())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """The number of keys that were found, and one of them."""

    count: int
    example: dict[str, Any]


def find_repeated(rows: KeyRows, *, hashes_per_pass: int = _HASHES_PER_PASS) -> FoundKeys | None:
    """Find keys that several rows have. Refuse a key with a null."""
    count, example = 0, None
    for hashes in _passes(rows, hashes_per_pass):
        repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        count += len(repeated)
        example = example or _find_example(repeated, lambda some: repeated_in(_rows_of(rows, some)))
    return None if example is None else FoundKeys(count=count, example=example)


def find_shared(rows: KeyRows, others: KeyRows, *, hashes_per_pass: int = _HASHES_PER_PASS) -> FoundKeys | None:
    """Find keys that some of the other rows have, too."""

    def shared_by(hashes: _Words) -> pa.Table:
        found = _rows_of(rows, hashes)
        return found.join(_rows_of(others, hashes), keys=found.column_names, join_type="left semi")

    count, example = 0, None
    for hashes in _passes(rows, hashes_per_pass):
        shared = _shared_hashes(hashes, others)
        count += len(shared)
        example = example or _find_example(shared, shared_by)
    return None if example is None else FoundKeys(count=count, example=example)


def hash_rows(batch: pa.RecordBatch) -> _Words:
    """Hash each row. Rows of the same types that are equal have equal hashes."""
    hashes = np.zeros(batch.num_rows, dtype=np.uint64)
    for column in batch.columns:
        values = _plain(column)
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            _add_bytes(hashes, values)
        else:
            for words in _fixed_words(values):
                hashes[:] = _mixed(hashes, words)
    return hashes


def _passes(rows: KeyRows, hashes_per_pass: int) -> Iterator[_Words]:
    """Yield the sorted hashes of all rows, a part of their range at a time."""
    parts = max(1, -(-rows.count // hashes_per_pass))
    for part in range(parts):
        found = []
        for batch in rows.read():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if column.null_count:
                    raise KeyConflictError(f"the key column {name!r} has nulls in the data", hint="fill them")
            hashes = hash_rows(batch)
            # The upper half of a hash selects the pass. Equal keys have equal hashes, so they meet in the same pass.
            found.append(hashes if parts == 1 else hashes[((hashes >> _HALF) * np.uint64(parts)) >> _HALF == part])
        joined = np.concatenate(found) if found else np.empty(0, dtype=np.uint64)
        # Free the parts before the sort: they take as much memory as the joined hashes.
        del found
        joined.sort()
        yield joined


def _shared_hashes(hashes: _Words, others: KeyRows) -> _Words:
    if not len(hashes):
        return hashes
    # A table by the first bits of a hash answers most lookups at the cost of one access to memory.
    shift = np.uint64(64 - min(28, max(10, len(hashes).bit_length() + 3)))
    is_possible = np.zeros(1 << (64 - int(shift)), dtype=bool)
    is_possible[hashes >> shift] = True
    found = []
    for batch in others.read():
        given = hash_rows(batch)
        given = given[is_possible[given >> shift]]
        positions = np.minimum(np.searchsorted(hashes, given), len(hashes) - 1)
        found.append(given[hashes[positions] == given])
    return np.unique(np.concatenate(found)) if found else hashes[:0]


def _find_example(hashes: _Words, find: Callable[[_Words], pa.Table]) -> dict[str, Any] | None:
    """Return the first key that `find` confirms, or None if different keys only have equal hashes."""
    for start in range(0, len(hashes), _COMPARED_HASHES):
        confirmed = find(hashes[start : start + _COMPARED_HASHES])
        if len(confirmed):
            example: dict[str, Any] = confirmed.slice(0, 1).to_pylist()[0]
            return example
    return None


def _rows_of(rows: KeyRows, hashes: _Words) -> pa.Table:
    found: list[pa.RecordBatch] = []
    for batch in rows.read():
        is_wanted = np.isin(hash_rows(batch), hashes)
        # The first batch is kept even if it becomes empty: a table needs its schema.
        if not found or is_wanted.any():
            found.append(batch.filter(pa.array(is_wanted)))
    return pa.Table.from_batches(found)


def repeated_in(rows: pa.Table) -> pa.Table:
    """Return the rows that occur more than once, each of them once."""
    counted = (
        rows.group_by(rows.column_names).aggregate([([], "count_all")]).rename_columns([*rows.column_names, _COUNT])
    )
    return counted.filter(pc.greater(counted.column(_COUNT), 1)).drop([_COUNT])


def _mixed(hashes: _Words, words: _Words) -> _Words:
    """Mix another word into each hash, as SplitMix64 does with its state."""
    mixed = hashes * _STEP + words
    mixed ^= mixed >> _FIRST_SHIFT
    mixed *= _FIRST_FACTOR
    mixed ^= mixed >> _SECOND_SHIFT
    mixed *= _SECOND_FACTOR
    mixed ^= mixed >> _THIRD_SHIFT
    return mixed


def _plain(values: pa.Array) -> pa.Array:
    """Return the values of a key column as bytes, or in a type of a fixed width."""
    kind = values.type
    # Arrow packs booleans into bits, and a word is made of whole bytes.
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_large_string(kind):
        return values.cast(pa.large_binary())
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return values.cast(pa.binary())
    return values


def _fixed_words(values: pa.Array) -> Iterator[_Words]:
    """Yield the words of values that all have one width."""
    width = values.type.bit_width // 8
    content = values.buffers()[1]
    # Wider values, such as decimals, are several words.
    lane = min(width, _WORD_BYTES)
    lanes = np.frombuffer(content, dtype=f"<i{lane}", count=(values.offset + len(values)) * width // lane)
    lanes = lanes.reshape(-1, width // lane)[values.offset :]
    for number in range(lanes.shape[1]):
        yield lanes[:, number].astype(np.int64).view(np.uint64)


def _add_bytes(hashes: _Words, values: pa.Array) -> None:
    """Mix values of different lengths into hashes, eight bytes of all of them at a time."""
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, content = values.buffers()
    ends = np.frombuffer(offsets, dtype=width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    lengths = np.diff(ends)
    # The last word is padded with zeros. Without the length, values that differ in trailing zeros would collide.
    hashes[:] = _mixed(hashes, lengths.view(np.uint64))
    # A word that starts at the last byte reads seven more.
    padded = np.zeros(ends[-1] - ends[0] + _WORD_BYTES, dtype=np.uint8)
    # Arrow may have no buffer at all if all values are empty.
    if len(padded) > _WORD_BYTES:
        padded[:-_WORD_BYTES] = np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
    starts = ends - ends[0]
    # Words at every byte, not only at every eighth one.
    words = np.ndarray(shape=(len(padded) - _WORD_BYTES + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    rows = np.flatnonzero(lengths)
    for number in range(_MOST_WORDS):
        if not len(rows):
            return
        left = np.minimum(lengths[rows] - number * _WORD_BYTES, _WORD_BYTES)
        hashes[rows] = _mixed(hashes[rows], words[starts[rows] + number * _WORD_BYTES] & _FIRST_BYTES[left])
        rows = rows[lengths[rows] > (number + 1) * _WORD_BYTES]
    for row in rows.tolist():
        digest = hashlib.blake2b(padded[starts[row] : starts[row + 1]].tobytes(), digest_size=_WORD_BYTES).digest()
        hashes[row] = _mixed(hashes[row : row + 1], np.frombuffer(digest, dtype=np.uint64))[0]
