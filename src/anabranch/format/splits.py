"""Cut a pinned version into parts that processes with the version ref can read concurrently."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering

from anabranch.format.bases import fragments_of_base
from anabranch.format.home import VersionRef, fragment_bytes
from anabranch.format.scan import filter_errors
from anabranch.format.staging.expressions import check_predicate, enclosed
from anabranch.format.staging.incoming import require_columns

# Every part costs an engine a tenth of a second or more before its first row.
_ROWS_PER_SPLIT = 1 << 21
_BYTES_PER_SPLIT = 256 << 20
# Engines take larger batches than Lance's own faster, as long as they are not large in bytes. Lance decodes several at
# a time, so that a scan holds a multiple of this.
_ROWS_PER_BATCH = 1 << 15
_BYTES_PER_BATCH = 32 << 20
# The size of text and of nested values is not in the metadata: it is estimated from this number of rows.
_SAMPLED_ROWS = 8
# Lance decodes a whole batch into one array of text, which holds at most 2 GB.
_OVERFLOW = "Offset overflow"
# Reduce the batch size by a large factor: each attempt reads the rows from the start again.
_FEWER_ROWS = 16
# Values up to this size are read together with a filter's columns: looking them up row by row costs more.
_NARROW_BITS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One column to sort by."""

    column: str
    is_ascending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns and rows to read, by default all. With `bases`, only rows whose files are in these bases.

    `limit` is the maximum number of rows of each split: the first in `order`, if that is given.
    """

    columns: tuple[str, ...] | None = None
    filter: str | None = None
    bases: tuple[str, ...] = ()
    limit: int | None = None
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Whole fragments, or a number of rows of one after an offset."""

    fragments: tuple[int, ...]
    offset: int = 0
    rows: int | None = None


def selected_schema(version_ref: VersionRef, selection: Selection) -> pa.Schema:
    """Return the requested columns in their order. Refuse a missing column, and an invalid filter."""
    opened = version_ref.open()
    schema = opened.schema
    if selection.filter is not None:
        with filter_errors(version_ref, selection.filter):
            check_predicate(opened, selection.filter)
    if selection.columns is None:
        return schema
    require_columns(schema, selection.columns)
    return pa.schema([schema.field(name) for name in selection.columns])


def plan_splits(
    version_ref: VersionRef,
    selection: Selection,
    *,
    rows_per_split: int = _ROWS_PER_SPLIT,
    bytes_per_split: int = _BYTES_PER_SPLIT,
) -> list[Split]:
    """Plan splits of about that size. Small fragments share one. A large one is cut, unless a filter or limit is given.

    Lance counts offsets after a filter, so every part of a cut fragment would be filtered from the start.
    """
    splits: list[Split] = []
    held: list[int] = []
    held_rows = held_bytes = 0
    can_cut = selection.filter is None and selection.limit is None
    for fragment in _enough_fragments(_fragments(version_ref, selection.bases), selection):
        rows, size = int(fragment.count_rows()), fragment_bytes(fragment)
        parts = max(-(-rows // rows_per_split), -(-size // bytes_per_split))
        if parts > 1 and can_cut:
            splits += _cut(fragment.fragment_id, rows, parts)
            continue
        # Close the split before it grows over the limit, but never leave it empty: one large fragment is a split.
        if held and (held_rows + rows > rows_per_split or held_bytes + size > bytes_per_split):
            splits.append(Split(fragments=tuple(held)))
            held, held_rows, held_bytes = [], 0, 0
        held.append(fragment.fragment_id)
        held_rows, held_bytes = held_rows + rows, held_bytes + size
    if held:
        splits.append(Split(fragments=tuple(held)))
    return splits


def read_split(version_ref: VersionRef, split: Split, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Read the rows of a split."""
    with filter_errors(version_ref, selection.filter):
        opened = version_ref.open()
        found = [opened.get_fragment(number) for number in split.fragments]
        fragments = [fragment for fragment in found if fragment is not None]
        if not fragments:
            return  # Lance would read all fragments if none were given
        yield from _scan(opened, fragments, split, selection)


def _scan(
    opened: lance.LanceDataset, fragments: list[lance.LanceFragment], split: Split, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """Scan in batches of bounded size; where the estimate is too high for Lance, with fewer rows at a time."""
    batch_rows = _batch_rows(opened.schema, fragments, split, selection)
    delivered = 0
    while True:
        # A scan returns its rows in the same order each time, so rows that were delivered are skipped by their number.
        skipped = delivered
        try:
            for batch in _scanner(opened, fragments, split, selection, batch_rows).to_batches():
                fresh = batch.slice(min(skipped, batch.num_rows))
                skipped -= batch.num_rows - fresh.num_rows
                if fresh.num_rows:
                    delivered += fresh.num_rows
                    yield fresh
        except pa.ArrowInvalid as err:
            if _OVERFLOW not in str(err) or batch_rows == 1:
                raise
            batch_rows = max(1, batch_rows // _FEWER_ROWS)
        else:
            return


def _scanner(
    opened: lance.LanceDataset,
    fragments: list[lance.LanceFragment],
    split: Split,
    selection: Selection,
    batch_rows: int,
) -> lance.LanceScanner:
    return opened.scanner(
        columns=None if selection.columns is None else list(selection.columns),
        filter=None if selection.filter is None else enclosed(selection.filter),
        fragments=fragments,
        offset=split.offset if split.rows is not None else None,
        limit=min((limit for limit in (split.rows, selection.limit) if limit is not None), default=None),
        batch_size=batch_rows,
        # Read only for the rows that a filter keeps.
        late_materialization=None if selection.filter is None else _wide_columns(opened.schema, selection),
        order_by=[ColumnOrdering(one.column, one.is_ascending, one.nulls_first) for one in selection.order] or None,
        # Without a column, Lance reads nothing unless the ids are requested.
        with_row_id=selection.columns == (),
    )


def _enough_fragments(fragments: Sequence[lance.LanceFragment], selection: Selection) -> Iterator[lance.LanceFragment]:
    """Leave out the fragments that are not needed to reach a limit."""
    rows = 0
    for fragment in fragments:
        yield fragment
        rows += int(fragment.count_rows())
        # Without a filter and an order, any rows may be returned if they are enough.
        takes_any_rows = selection.filter is None and not selection.order
        if selection.limit is not None and takes_any_rows and rows >= selection.limit:
            return


def _fragments(version_ref: VersionRef, bases: Sequence[str]) -> list[lance.LanceFragment]:
    if not bases:
        return list(version_ref.open().get_fragments())
    found = {f.fragment_id: f for base in bases for f in fragments_of_base(version_ref.home, base, version_ref.version)}
    return [found[number] for number in sorted(found)]


def _chosen(schema: pa.Schema, selection: Selection) -> list[pa.Field]:
    return [field for field in schema if selection.columns is None or field.name in selection.columns]


def _wide_columns(schema: pa.Schema, selection: Selection) -> list[str]:
    chosen = _chosen(schema, selection)
    return [one.name for one in chosen if not _has_fixed_width(one.type) or one.type.bit_width > _NARROW_BITS]


def _has_fixed_width(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _batch_rows(schema: pa.Schema, fragments: Sequence[lance.LanceFragment], split: Split, selection: Selection) -> int:
    """Return the number of rows of a batch with about the intended size in memory."""
    chosen = _chosen(schema, selection)
    fixed = sum(field.type.bit_width for field in chosen if _has_fixed_width(field.type)) // 8
    sampled = [field.name for field in chosen if not _has_fixed_width(field.type)]
    row_bytes = fixed + (_sampled_bytes(fragments, split, sampled) if sampled else 0)
    return int(min(max(_BYTES_PER_BATCH // max(row_bytes, 1), 1), _ROWS_PER_BATCH))


def _sampled_bytes(fragments: Sequence[lance.LanceFragment], split: Split, columns: list[str]) -> int:
    """Estimate the bytes of a row in these columns: those of the widest of a few rows."""
    # The sizes of the files do not show it: compression may have made them a thousand times smaller than the values.
    fragment = fragments[len(fragments) // 2]
    rows = int(fragment.count_rows()) if split.rows is None else split.rows
    # One row is enough if each row fills a batch by itself.
    wanted = 1 if fragment_bytes(fragment) > rows * _BYTES_PER_BATCH else _SAMPLED_ROWS
    count = min(wanted, rows)
    if not count:
        return 0
    taken = fragment.take([split.offset + rows * number // count for number in range(count)], columns=columns)
    found = (batch.slice(number, 1) for batch in taken.to_batches() for number in range(batch.num_rows))
    return max((int(row.nbytes) for row in found), default=0)


def _cut(fragment: int, rows: int, parts: int) -> list[Split]:
    starts = [rows * part // parts for part in range(parts + 1)]
    return [Split(fragments=(fragment,), offset=start, rows=end - start) for start, end in pairwise(starts)]
