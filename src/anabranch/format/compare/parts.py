"""Rows of a version by their positions: whole fragments, some rows of one, or single addresses."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, groupby

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from anabranch.format.arrow_types import WITH_BYTES, read_blobs
from anabranch.format.home import BoundedCache, HomeKey, VersionRef, new_home_cache
from anabranch.format.layout.fragment_rows import Offsets, find_range, offsets_in
from anabranch.format.layout.messages import RowIds
from anabranch.format.staging.fragments import FragmentOutline
from anabranch.storage.requests import in_parallel


class Fragments:
    """An opened version with its fragments by their ids."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self.dataset = dataset
        self.by_id = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        # Lance builds metadata each time, so they are kept, as is what a fragment is made of: a history compares each
        # version with two others. Not methods: a cache that knows this object would keep the handle alive.
        by_id, metadata = self.by_id, cache(lambda number: by_id[number].metadata)
        self.metadata: Callable[[int], FragmentMetadata] = metadata
        self.outline: Callable[[int], FragmentOutline] = cache(lambda number: FragmentOutline.of(metadata(number)))

    @cached_property
    def by_file(self) -> dict[str, int]:
        """The ids of the fragments by the paths of their data files."""
        return {path: number for number in self.by_id for path, _ in self.outline(number).files}


_KEPT: BoundedCache[HomeKey, Fragments] = new_home_cache(limit=2048, capacity=20_000)


def fragments_of(version_ref: VersionRef) -> Fragments:
    """Open a version to read rows from its fragments. Those of a staged version, which never changes, are kept."""
    dataset = version_ref.open_to_read()
    if not version_ref.is_staged:
        return Fragments(dataset)
    key = version_ref.home, version_ref.version
    found = _KEPT.find(key)
    # The handle was opened again, after a relocation for example, and the kept fragments have the old paths.
    if found is None or found.dataset is not dataset:
        found = Fragments(dataset)
        _KEPT.keep(key, found, weight=len(found.by_id))
    return found


ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"
_FRAGMENTS_AT_ONCE = 16
# Above this share of a fragment's rows, to read all of them and choose is faster than to take them one by one.
_MANY = 1 / 32
# Up to this number of rows in a fragment, to take them is faster than a scan.
_FEW = 1_000
_OFFSET_BITS = np.uint64(32)
_OFFSET_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one fragment: those at some offsets, or without offsets all that are not deleted.

    `positions` are the offsets as Lance counts them, without deleted rows.
    """

    fragment: int
    rows: int
    offsets: Offsets | None = None
    positions: npt.NDArray[np.int64] | None = None


def whole_part(fragment: FragmentMetadata) -> Part:
    return Part(fragment.id, fragment.num_rows)


def part_of(fragment: FragmentMetadata, offsets: Offsets, *, deleted: Offsets) -> list[Part]:
    """Return the rows at offsets, which are not deleted, as a part. The list is empty without offsets."""
    if not len(offsets):
        return []
    whole = whole_part(fragment)
    if len(offsets) == whole.rows:
        return [whole]
    # Lance skips deleted rows when it counts: subtract those before each offset.
    positions = offsets.astype(np.int64) - np.searchsorted(deleted, offsets)
    return [Part(fragment.id, len(offsets), offsets, positions)]


def all_parts(version_ref: VersionRef) -> tuple[Part, ...]:
    fragments = fragments_of(version_ref)
    return tuple(whole_part(fragments.metadata(number)) for number in fragments.by_id)


def count_parts(parts: Iterable[Part]) -> int:
    return sum(part.rows for part in parts)


def join_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the same rows with one part for each fragment."""
    joined: dict[int, Part] = {}
    for part in parts:
        other = joined.get(part.fragment)
        joined[part.fragment] = part if other is None else _joined(other, part)
    return tuple(joined.values())


def _joined(one: Part, other: Part) -> Part:
    """Return the rows of two parts of a fragment. Positions grow with offsets, so both are merged in the same way."""
    # A part without offsets has all rows of the fragment, and so those of the other part.
    if one.offsets is None or other.offsets is None or one.positions is None or other.positions is None:
        return one if one.offsets is None else other
    offsets, first = np.unique(np.concatenate([one.offsets, other.offsets]), return_index=True)
    return Part(one.fragment, len(offsets), offsets, np.concatenate([one.positions, other.positions])[first])


def are_apart(parts: Iterable[Part], others: Iterable[Part]) -> bool:
    """Return whether parts and other parts of the same version have no row in common."""
    by_fragment: dict[int, list[Part]] = {}
    for other in others:
        by_fragment.setdefault(other.fragment, []).append(other)
    for part in parts:
        for other in by_fragment.get(part.fragment, ()):
            # Without offsets, it has all rows of the fragment.
            if part.offsets is None or other.offsets is None:
                return False
            if len(np.intersect1d(part.offsets, other.offsets, assume_unique=True)):
                return False
    return True


def are_in_parts(addresses: npt.NDArray[np.uint64], parts: Sequence[Part]) -> npt.NDArray[np.bool_]:
    """Return which rows at addresses are in one of the parts."""
    whole = [part.fragment for part in parts if part.offsets is None]
    found = np.zeros(len(addresses), dtype=bool)
    if whole:
        found |= np.isin(addresses >> _OFFSET_BITS, whole)
    some = [_addresses(part.fragment, part.offsets) for part in parts if part.offsets is not None]
    if not some or not len(addresses):
        return found
    wanted = np.sort(np.concatenate(some))
    at = np.minimum(np.searchsorted(wanted, addresses), len(wanted) - 1)
    found |= wanted[at] == addresses
    return found


def _addresses(fragment: int, offsets: Offsets) -> npt.NDArray[np.uint64]:
    return np.uint64(fragment) << _OFFSET_BITS | offsets.astype(np.uint64)


def split_parts(parts: Sequence[Part], *, rows: int) -> list[tuple[Part, ...]]:
    """Split parts into groups of about a given number of rows. No part is divided."""
    ends = accumulate(part.rows for part in parts)
    groups = groupby(zip(parts, ends, strict=True), key=lambda found: (found[1] - 1) // rows)
    return [tuple(part for part, _ in group) for _, group in groups]


def iter_parts(
    version_ref: VersionRef,
    parts: Sequence[Part],
    *,
    columns: Sequence[str] | None = None,
    with_row_ids: bool = False,
    with_addresses: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read all or some columns of rows. If requested, `_rowid` and `_rowaddr` follow."""
    fragments = fragments_of(version_ref)
    parts = [_with_offsets(part, fragments) for part in parts]
    whole = [fragments.by_id[part.fragment] for part in parts if part.offsets is None]
    some = [part for part in parts if part.offsets is not None]
    blobs = [name for name in version_ref.blob_columns if columns is None or name in columns]
    names = None if columns is None else list(columns)
    if names is None and blobs:
        names = version_ref.schema.names
    wanted = [name for name, is_wanted in ((ROW_ID, with_row_ids), (ROW_ADDRESS, with_addresses)) if is_wanted]

    def read(part: Part) -> pa.Table:
        return _take(fragments, part, names, blobs, wanted)

    with version_ref.home.errors():
        if whole:
            yield from fragments.dataset.scanner(
                columns=names,
                fragments=whole,
                with_row_id=with_row_ids,
                with_row_address=with_addresses,
                **(WITH_BYTES if blobs else {}),
            ).to_reader()
        # A few fragments at a time: all of their rows are in memory until they are yielded.
        for start in range(0, len(some), _FRAGMENTS_AT_ONCE):
            for taken in in_parallel(read, some[start : start + _FRAGMENTS_AT_ONCE]):
                yield from taken.to_batches()


def _with_offsets(part: Part, fragments: Fragments) -> Part:
    """Return a small whole part as one with offsets: to take its rows costs less than to plan a scan."""
    # With deletions the offsets are not known without reading a file, which costs more than a scan.
    if part.offsets is not None or part.rows > _FEW or fragments.metadata(part.fragment).deletion_file is not None:
        return part
    offsets = np.arange(part.rows, dtype=np.uint32)
    return Part(part.fragment, part.rows, offsets, offsets.astype(np.int64))


def read_row_ids(version_ref: VersionRef, parts: Sequence[Part]) -> tuple[npt.NDArray[np.uint64], ...]:
    """Return the addresses of the rows of parts, in ascending order, and their row ids. No column is read."""
    numbers: list[tuple[npt.NDArray[np.uint64], ...]] = [(np.empty(0, dtype=np.uint64),) * 2]
    for batch in iter_parts(version_ref, parts, columns=[], with_row_ids=True, with_addresses=True):
        found = (batch.column(name).to_numpy(zero_copy_only=False) for name in (ROW_ADDRESS, ROW_ID))
        numbers.append(tuple(column.astype(np.uint64) for column in found))
    addresses, row_ids = map(np.concatenate, zip(*numbers, strict=True))
    order = np.argsort(addresses)
    return addresses[order], row_ids[order]


def select_rows(
    parts: Sequence[Part], addresses: npt.NDArray[np.uint64], is_kept: npt.NDArray[np.bool_]
) -> tuple[Part, ...]:
    """Return the parts with some of their rows. `addresses` are those of all rows of the parts, in ascending order."""
    owners, offsets = addresses >> _OFFSET_BITS, (addresses & _OFFSET_MASK).astype(np.uint32)
    selected: list[Part] = []
    for part in join_parts(parts):
        is_own = owners == np.uint64(part.fragment)
        kept = np.flatnonzero(is_kept[is_own])
        if len(kept) == part.rows:
            selected.append(part)
        elif len(kept):
            # Without positions, the part has all rows of the fragment that are not deleted, as Lance counts them.
            positions = kept if part.positions is None else part.positions[kept]
            selected.append(Part(part.fragment, len(kept), offsets[is_own][kept], positions))
    return tuple(selected)


def take_at(
    version_ref: VersionRef,
    addresses: npt.NDArray[np.uint64],
    *,
    columns: Sequence[str] | None = None,
    parts: Sequence[Part] = (),
) -> pa.Table:
    """Read all or some columns of the rows at addresses, in their order.

    If the rows are in `parts`, deletion files need not be read again.
    """
    known = _known_positions(parts)
    fragments = fragments_of(version_ref)
    schema = version_ref.row_schema
    names = schema.names if columns is None else list(columns)
    blobs = [name for name in version_ref.blob_columns if name in names]
    grouped = _Addresses(addresses)

    def read(group: tuple[int, Offsets]) -> pa.Table:
        number, offsets = group
        if number in known:
            all_offsets, all_positions = known[number]
            positions = all_positions[np.searchsorted(all_offsets, offsets)]
        else:
            deleted = offsets_in(version_ref.home, fragments.dataset, fragments.by_id[number])
            positions = offsets.astype(np.int64) - np.searchsorted(deleted, offsets)
        return _take(fragments, Part(number, len(offsets), offsets, positions), names, blobs)

    with version_ref.home.errors():
        found = in_parallel(read, grouped.groups)
    if not found:
        return pa.schema([schema.field(name) for name in names]).empty_table()
    rows = pa.concat_tables(found) if len(found) > 1 else found[0]
    return rows if grouped.order is None else rows.take(pa.array(grouped.order))


def _known_positions(parts: Sequence[Part]) -> dict[int, tuple[Offsets, npt.NDArray[np.int64]]]:
    """Return offsets and positions by fragment. Two parts of one fragment are left out: each has only some of them."""
    times = Counter(part.fragment for part in parts)
    only = (part for part in parts if times[part.fragment] == 1)
    return {p.fragment: (p.offsets, p.positions) for p in only if p.offsets is not None and p.positions is not None}


def row_ids_at(version_ref: VersionRef, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the row ids at addresses, in their order. The manifest has them, so no file is read."""
    if not len(addresses):
        return np.empty(0, dtype=np.uint64)
    fragments, grouped = fragments_of(version_ref), _Addresses(addresses)
    found = [_ids_at(fragments.metadata(number), offsets).to_numpy() for number, offsets in grouped.groups]
    row_ids: npt.NDArray[np.uint64] = np.concatenate([np.empty(0, dtype=np.uint64), *found])
    return row_ids if grouped.order is None else row_ids[grouped.order]


class _Addresses:
    """Row addresses by fragment. `order` sorts rows that were read group by group into the order of the addresses."""

    def __init__(self, addresses: npt.NDArray[np.uint64]) -> None:
        # None if they are in order already, as those of a merge most often are.
        self.order: npt.NDArray[np.int64] | None = None
        if np.any(addresses[1:] < addresses[:-1]):
            order = np.argsort(addresses, kind="stable")
            # The inverse of the sort: where each row of the caller is after it.
            self.order = np.argsort(order, kind="stable")
            addresses = addresses[order]
        owners = addresses >> _OFFSET_BITS
        starts = np.flatnonzero(owners[1:] != owners[:-1]) + 1
        offsets = np.split((addresses & _OFFSET_MASK).astype(np.uint32), starts)
        owned = owners[[0, *starts]].tolist() if len(owners) else []
        self.groups = list(zip(owned, offsets, strict=False))


def _take(
    fragments: Fragments, part: Part, columns: list[str] | None, blobs: Sequence[str], wanted: Sequence[str] = ()
) -> pa.Table:
    """Read some rows of a fragment, with the `wanted` of row ids and addresses after the columns."""
    assert part.offsets is not None  # noqa: S101 - whole fragments are scanned
    assert part.positions is not None  # noqa: S101
    if blobs and columns is not None:
        return _take_with_blobs(fragments, part, columns, blobs, wanted)
    fragment, metadata = fragments.by_id[part.fragment], fragments.metadata(part.fragment)
    found = {}
    if ROW_ID in wanted:
        # `take` returns no row ids: it reads their name as the name of a column.
        found[ROW_ID] = _ids_at(metadata, part.offsets)
    if ROW_ADDRESS in wanted:
        found[ROW_ADDRESS] = pa.array(_addresses(part.fragment, part.offsets), pa.uint64())
    if columns == []:
        return pa.table(found)  # `take` of no columns gives no rows
    rows = metadata.num_rows
    if part.rows > rows * _MANY and rows > _FEW:
        taken = fragment.scanner(columns=columns).to_table().take(part.positions)
    else:
        taken = fragment.take(part.positions.tolist(), columns=columns)
    for name, numbers in found.items():
        taken = taken.append_column(name, numbers)
    return taken


def _take_with_blobs(
    fragments: Fragments, part: Part, columns: list[str], blobs: Sequence[str], wanted: Sequence[str]
) -> pa.Table:
    assert part.offsets is not None  # noqa: S101 - whole fragments are scanned
    # Lance cannot read blobs by offset, and a scan would read the blobs of all rows.
    read = {name: read_blobs(fragments.dataset, name, _addresses(part.fragment, part.offsets)) for name in blobs}
    rest = _take(fragments, part, [name for name in columns if name not in read], (), wanted)
    order = [*columns, *wanted]
    return pa.table([read[name] if name in read else rest.column(name) for name in order], names=order)


def _ids_at(fragment: FragmentMetadata, offsets: Offsets) -> pa.Array:
    """Return the ids of some rows. A range of ids is not expanded first."""
    found = fragment.row_id_meta
    assert found is not None  # noqa: S101 - every table has stable row ids
    segments = RowIds.parse(bytes(json.loads(found.json())["Inline"]), "the row ids of a fragment").segments
    # Where rows were only appended, the ids follow each other one by one.
    ids = find_range(segments[0]) if len(segments) == 1 else None
    if ids is None:
        return RowIdSequence.from_inline_metadata(found).to_pyarrow().take(pa.array(offsets))
    return pa.array(offsets.astype(np.uint64) + np.uint64(ids.start), pa.uint64())
