"""Which rows two versions of a table may differ in, found from their manifests and deletion files alone.

A fragment is its data files: two branches give different fragments the same id, and a column that is added gives a
fragment one file more. So fragments that share a file hold the same rows in the same order; they differ by what was
deleted from them, and by columns whose files differ. All other fragments are new, or gone. Of a shared fragment where
columns came or went, only those are read, to find the rows that have something in them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.format.deletions import Offsets, offsets_in
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.pin import Pin
from anabranch.storage.parallel import in_parallel

__all__ = [
    "ColumnPair",
    "Difference",
    "Part",
    "Reshaped",
    "all_parts",
    "compare_versions",
    "count_parts",
    "find_filled",
    "iter_parts",
]

_ROW_ID = "_rowid"
_FRAGMENTS_AT_ONCE = 16
# Above this share of a fragment's rows, to read all of them and choose is faster than to take them one by one.
_MANY = 1 / 32

_Place = frozenset[tuple[int, str]]
_Shared = tuple[lance.LanceFragment, lance.LanceFragment]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one fragment: those at some offsets into it, or, where offsets are None, all that it still has.

    Lance counts only the rows that are not deleted; `positions` are the offsets as it counts them.
    """

    fragment: int
    rows: int
    offsets: Offsets | None = None
    positions: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPair:
    """A column of the older version, and what it is in the newer; None where it was added or dropped."""

    older: str | None
    newer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshaped:
    """A fragment that both versions have, and the columns that only one of them has in it."""

    older: int
    newer: int
    dropped: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The rows of the older version that the newer one may not have as they were, and the other way round.

    A row that was rewritten is in both, whether it was changed or not. The rows that both have of reshaped fragments
    are in neither: `find_filled` tells which of them differ.
    """

    columns: tuple[ColumnPair, ...]
    older: tuple[Part, ...]
    newer: tuple[Part, ...]
    reshaped: tuple[Reshaped, ...] = ()


def compare_versions(older: Pin, newer: Pin) -> Difference:
    """Find what may differ; nothing is read of fragments that both have, but for deletion files that differ."""
    old, new = _Version(older), _Version(newer)
    shared, left, right = _match_fragments(old, new)
    columns = _pair_columns(old, new, shared)
    parts_of_old = [_whole(fragment) for fragment in left]
    parts_of_new = [_whole(fragment) for fragment in right]
    reshaped = []
    for fragment, other in shared:
        differing = _differing_columns(old, fragment, new, other, columns)
        if differing is None or any(pair.older is not None and pair.newer is not None for pair in differing):
            parts_of_old.append(_whole(fragment))
            parts_of_new.append(_whole(other))
            continue
        if differing:
            reshaped.append(_reshaped(fragment, other, differing))
        if _deletion(fragment) != _deletion(other):
            before, after = old.deleted(fragment), new.deleted(other)
            parts_of_old += _some(fragment, np.setdiff1d(after, before), deleted=before)
            parts_of_new += _some(other, np.setdiff1d(before, after), deleted=after)
    return Difference(columns=columns, older=tuple(parts_of_old), newer=tuple(parts_of_new), reshaped=tuple(reshaped))


def find_filled(older: Pin, newer: Pin, difference: Difference) -> tuple[tuple[Part, Part], ...]:
    """The rows that both versions have of reshaped fragments and that are not null where columns came or went.

    No other column is read.
    """
    if not difference.reshaped:
        return ()
    old, new = _Version(older), _Version(newer)
    found: list[tuple[Part, Part]] = []
    with lance_errors(older.home.uri, older.home.storage_options):
        for pair in difference.reshaped:
            fragment, other = old.by_id[pair.older], new.by_id[pair.newer]
            before, after = old.deleted(fragment), new.deleted(other)
            filled = np.union1d(
                _filled_offsets(fragment, pair.dropped, deleted=before),
                _filled_offsets(other, pair.added, deleted=after),
            )
            both = np.setdiff1d(filled, np.union1d(before, after), assume_unique=True)
            found += zip(_some(fragment, both, deleted=before), _some(other, both, deleted=after), strict=True)
    return tuple(found)


def all_parts(pin: Pin) -> tuple[Part, ...]:
    return tuple(_whole(fragment) for fragment in pin.open().get_fragments())


def count_parts(parts: Iterable[Part]) -> int:
    return sum(part.rows for part in parts)


def iter_parts(pin: Pin, parts: Sequence[Part], *, with_row_ids: bool) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts, if asked for with `_rowid` behind the columns."""
    dataset = pin.open()
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    whole = [fragments[part.fragment] for part in parts if part.offsets is None]
    with lance_errors(pin.home.uri, pin.home.storage_options):
        if whole:
            yield from dataset.scanner(fragments=whole, with_row_id=with_row_ids).to_reader()
        some = [(fragments[part.fragment], part.positions) for part in parts if part.positions is not None]
        for start in range(0, len(some), _FRAGMENTS_AT_ONCE):
            at_once = some[start : start + _FRAGMENTS_AT_ONCE]
            for taken in in_parallel(lambda one: _take(*one, with_row_ids=with_row_ids), at_once):
                yield from taken.to_batches()


class _Version:
    """A version with its fragments, and where each column of a fragment lies."""

    def __init__(self, pin: Pin) -> None:
        self._pin = pin
        self._dataset = pin.open()
        self.fragments = self._dataset.get_fragments()
        self.by_id = {fragment.fragment_id: fragment for fragment in self.fragments}
        tree = FieldTree.of(self._dataset.lance_schema)
        self._families = {field.name: tree.family(field) for field in tree.top_level()}

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._families)

    def place(self, fragment: lance.LanceFragment, column: str) -> _Place:
        """Where a column's data lie in a fragment: its fields, with their files; nowhere if all are null."""
        family = self._families[column]
        return frozenset(
            (number, file.path) for file in fragment.metadata.files for number in file.fields if number in family
        )

    def deleted(self, fragment: lance.LanceFragment) -> Offsets:
        return offsets_in(self._pin.home, self._dataset, fragment)


def _match_fragments(
    old: _Version, new: _Version
) -> tuple[list[_Shared], list[lance.LanceFragment], list[lance.LanceFragment]]:
    """The fragments that both have, those that only the older has, and those that only the newer has."""
    by_file = {path: fragment for fragment in new.fragments for path in _paths(fragment)}
    shared: list[_Shared] = []
    left: list[lance.LanceFragment] = []
    matched: set[int] = set()
    for fragment in old.fragments:
        other = next((by_file[path] for path in _paths(fragment) if path in by_file), None)
        if other is None or other.fragment_id in matched:
            left.append(fragment)
        else:
            matched.add(other.fragment_id)
            shared.append((fragment, other))
    return shared, left, [fragment for fragment in new.fragments if fragment.fragment_id not in matched]


def _pair_columns(old: _Version, new: _Version, shared: Sequence[_Shared]) -> tuple[ColumnPair, ...]:
    """Which column became which: the one whose data it has, by whatever name, else the one whose name it has."""
    found: dict[str, str] = {}
    for fragment, other in shared:
        if len(found) == len(new.columns):
            break
        there = {place: name for name in old.columns if (place := old.place(fragment, name))}
        for name in new.columns:
            place = new.place(other, name)
            if name not in found and place in there and there[place] not in found.values():
                found[name] = there[place]
    for name in new.columns:
        if name not in found and name in old.columns and name not in found.values():
            found[name] = name
    pairs = [ColumnPair(older=found.get(name), newer=name) for name in new.columns]
    gone = [ColumnPair(older=name, newer=None) for name in old.columns if name not in found.values()]
    return (*pairs, *gone)


def _differing_columns(
    old: _Version,
    fragment: lance.LanceFragment,
    new: _Version,
    other: lance.LanceFragment,
    columns: Sequence[ColumnPair],
) -> list[ColumnPair] | None:
    """The columns of a shared fragment that have other data, None if any may; one that is not there is all null."""
    if _overlays(fragment) != _overlays(other):
        return None
    differing = []
    for pair in columns:
        before = frozenset() if pair.older is None else old.place(fragment, pair.older)
        after = frozenset() if pair.newer is None else new.place(other, pair.newer)
        if before != after:
            differing.append(pair)
    return differing


def _reshaped(fragment: lance.LanceFragment, other: lance.LanceFragment, pairs: Sequence[ColumnPair]) -> Reshaped:
    return Reshaped(
        older=fragment.fragment_id,
        newer=other.fragment_id,
        dropped=tuple(pair.older for pair in pairs if pair.older is not None),
        added=tuple(pair.newer for pair in pairs if pair.newer is not None),
    )


def _filled_offsets(fragment: lance.LanceFragment, columns: Sequence[str], *, deleted: Offsets) -> Offsets:
    """Where any of the columns is not null."""
    if not columns:
        return np.empty(0, dtype=np.uint32)
    alive = np.setdiff1d(np.arange(fragment.physical_rows, dtype=np.uint32), deleted, assume_unique=True)
    filled = np.zeros(len(alive), dtype=bool)
    table = fragment.scanner(columns=list(columns)).to_table()
    for column in table.columns:
        filled |= pc.is_valid(column).to_numpy()
    return alive[filled]


def _some(fragment: lance.LanceFragment, offsets: Offsets, *, deleted: Offsets) -> list[Part]:
    """The rows at offsets, none of which is deleted, as a part, if there are any."""
    if not len(offsets):
        return []
    whole = _whole(fragment)
    if len(offsets) == whole.rows:
        return [whole]
    positions = offsets.astype(np.int64) - np.searchsorted(deleted, offsets)
    return [Part(fragment.fragment_id, len(offsets), offsets, positions)]


def _whole(fragment: lance.LanceFragment) -> Part:
    return Part(fragment.fragment_id, fragment.metadata.num_rows)


def _paths(fragment: lance.LanceFragment) -> list[str]:
    return [file.path for file in fragment.metadata.files]


def _deletion(fragment: lance.LanceFragment) -> str | None:
    """What tells a deletion file from others of its fragment, whatever the fragment's number is."""
    found = fragment.metadata.deletion_file
    return None if found is None else str(found.path(fragment.fragment_id)).rpartition("/")[2].partition("-")[2]


def _overlays(fragment: lance.LanceFragment) -> list[object]:
    overlays: list[object] = fragment.metadata.to_json()["overlays"]
    return overlays


def _take(fragment: lance.LanceFragment, positions: npt.NDArray[np.int64], *, with_row_ids: bool) -> pa.Table:
    if len(positions) > fragment.metadata.num_rows * _MANY:
        return fragment.scanner(with_row_id=with_row_ids).to_table().take(positions)
    taken = fragment.take(positions.tolist())
    if not with_row_ids:
        return taken
    # Row ids are no column of the files; to read all of a fragment costs little.
    row_ids = fragment.scanner(columns=[], with_row_id=True).to_table().column(_ROW_ID)
    return taken.append_column(_ROW_ID, row_ids.take(positions))
