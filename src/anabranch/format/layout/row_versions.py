"""The versions in which rows were created and last updated, as the fragments of a settled manifest state them.

Lance stamps a row with the read version plus one. For a row that was staged on a staged version that is a number of
about 1e19, which means nothing to a plain reader. A settled manifest carries ordinary numbers: those of the ordinary
version before it for rows that did not change, and its own for the others.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from lance.fragment import RowIdMeta, RowIdSequence

from anabranch.format.layout.wire import bytes_field, damaged, iter_fields, read_values, varint_field

__all__ = ["Basis", "clamped_fragments", "copied_fragments", "encode_run", "settled_fragments"]

Numbers = npt.NDArray[np.uint64]
# The fragments of the version before, and of the base, in which rows that moved are searched.
_Searched = tuple[Sequence[bytes], Sequence[bytes]]

# Field numbers of Lance's DataFragment: the row ids, and the versions of last update and of creation.
_ROW_IDS, _UPDATED, _CREATED = 5, 7, 9
# In a segment of row ids: the encoding as one range.
_RANGE = 1
_STAGED = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the row versions of a new ordinary version, `number`, follow from.

    `before` are the fragments of the ordinary version before it. `base` are those of the staged version that the
    ordinary version before it shows: the same rows, with staged row versions. If it shows none, both are the same.
    Rows with ids from `next_row_id` on are new.
    """

    before: Mapping[int, bytes]
    base: Mapping[int, bytes]
    next_row_id: int
    number: int


def settled_fragments(staged: Mapping[int, bytes], basis: Basis, changed: Sequence[int]) -> dict[int, bytes]:
    """Return the staged fragments with the row versions that plain readers of the ordinary version expect.

    All fragments but the `changed` ones are those of the base and of the version before.
    """
    # A row that moved to a new fragment has left an old one, so only fragments that changed are searched.
    left = basis.base.keys() - staged.keys()
    left |= {number for number in changed if number in basis.base and staged[number] != basis.base[number]}
    rows_before = [basis.before[number] for number in sorted(left) if number in basis.before]
    rows_base = [basis.base[number] for number in sorted(left)]
    settled = {number: basis.before.get(number, message) for number, message in staged.items()}
    for number in changed:
        message, before, base = staged[number], basis.before.get(number), basis.base.get(number)
        if before is None or message != base:
            settled[number] = _settled(message, before, base, basis, (rows_before, rows_base))
    return settled


def clamped_fragments(fragments: Mapping[int, bytes], number: int) -> dict[int, bytes]:
    """Return the fragments with each staged row version replaced by an ordinary one."""
    return {key: _clamped(message, number) for key, message in fragments.items()}


def copied_fragments(fragments: Mapping[int, bytes], source: Mapping[int, bytes], number: int) -> dict[int, bytes]:
    """Return the fragments with the row versions of another manifest of the same state, all ordinary ones."""
    return {
        key: _clamped(_with(message, _versions(source.get(key, b""))), number) for key, message in fragments.items()
    }


def _versions(message: bytes) -> dict[int, int | bytes]:
    return {field: value for field, value in read_values(message, "fragment").items() if field in (_UPDATED, _CREATED)}


def _settled(
    message: bytes,
    before: bytes | None,
    base: bytes | None,
    basis: Basis,
    rows: _Searched,
) -> bytes:
    values = read_values(message, "fragment")
    if not isinstance(values.get(_ROW_IDS), bytes):
        return message  # Without stable row ids Lance keeps no row versions.
    old = {} if before is None else read_values(before, "fragment")
    known = {} if base is None else read_values(base, "fragment")
    present = [field for field in (_UPDATED, _CREATED) if field in values]
    # Sequences that did not change since the base are those of the version before.
    changed = [field for field in present if field not in old or values[field] != known.get(field)]
    new = {field: old[field] for field in present if field not in changed}
    if changed:
        new |= _computed(values, changed, basis, rows)
    return _with(message, new)


def _computed(
    values: Mapping[int, int | bytes], changed: list[int], basis: Basis, rows: _Searched
) -> dict[int, int | bytes]:
    # Row ids from `next_row_id` on did not exist before, so all rows are new: no search is needed. This is every
    # append.
    new_rows = _find_range(values, first=basis.next_row_id)
    if new_rows is not None:
        return dict.fromkeys(changed, encode_run(0, len(new_rows), basis.number))
    row_ids = _row_ids(values)
    own = np.uint64(basis.number)
    if len(row_ids) == 0 or int(row_ids.min()) >= basis.next_row_id:
        return dict.fromkeys(changed, encode_run(0, len(row_ids), basis.number))
    before, base = (_find_rows(fragments, row_ids) for fragments in rows)
    new: dict[int, int | bytes] = {}
    if _CREATED in changed:
        new[_CREATED] = _encode(np.where(before.found, before.created, own))
    if _UPDATED in changed:
        updated = _decode(values[_UPDATED])
        if len(updated) != len(row_ids):
            raise damaged("a fragment", f"it has row versions for {len(updated)} of its {len(row_ids)} rows")
        # A row keeps its version only if staging did not touch it: then the staged value is still that of the base.
        kept = before.found & base.found & (base.updated == updated)
        new[_UPDATED] = _encode(np.where(kept, before.updated, own))
    return new


@dataclass(frozen=True, slots=True)
class _Found:
    found: npt.NDArray[np.bool_]
    created: Numbers
    updated: Numbers


def _find_rows(fragments: Sequence[bytes], row_ids: Numbers) -> _Found:
    """Find rows by their ids in some fragments."""
    found = np.zeros(len(row_ids), dtype=bool)
    created, updated = np.zeros(len(row_ids), np.uint64), np.zeros(len(row_ids), np.uint64)
    for message in fragments:  # A row that is in several fragments is alive in the newest.
        values = read_values(message, "fragment")
        at, rows = _positions(values, row_ids)
        here = at >= 0
        found |= here
        for field, into in ((_CREATED, created), (_UPDATED, updated)):
            ends, versions = _runs(values.get(field))
            # Versions are found by the position of a row, so runs for another number of rows are not used.
            if ends[-1] == rows:
                into[here] = versions[np.searchsorted(ends, at[here], side="right")]
    return _Found(found, created, updated)


def _positions(values: Mapping[int, int | bytes], row_ids: Numbers) -> tuple[npt.NDArray[np.int64], int]:
    """Return where rows are in a fragment, -1 if they are not, and the number of its rows.

    A fragment of appended rows has one range of ids, which is not expanded.
    """
    at = np.full(len(row_ids), -1, dtype=np.int64)
    rows = 0
    for segment in _segments(values):
        ids = _range_of(segment)
        if ids is not None:
            here = (row_ids >= np.uint64(ids.start)) & (row_ids < np.uint64(ids.stop))
            at[here] = (row_ids[here] - np.uint64(ids.start)).astype(np.int64) + rows
            rows += len(ids)
            continue
        own = _segment(segment)
        if len(own):
            # The ids of moved rows are in any order, so a sorted copy is searched.
            order = np.argsort(own, kind="stable")
            nearest = order[np.minimum(np.searchsorted(own[order], row_ids), len(own) - 1)]
            here = own[nearest] == row_ids
            at[here] = nearest[here] + rows
            rows += len(own)
    return at, rows


def _clamped(message: bytes, number: int) -> bytes:
    new: dict[int, int | bytes] = {}
    for field, value in read_values(message, "fragment").items():
        if field in (_UPDATED, _CREATED):
            versions = _decode(value)
            # Staging records its own random id (above 2^63) as the version of new rows. Readers would take it for a
            # far future.
            if len(versions) and int(versions.max()) >= _STAGED:
                new[field] = _encode(np.where(versions >= np.uint64(_STAGED), np.uint64(number), versions))
    return _with(message, new)


def _with(message: bytes, new: Mapping[int, int | bytes]) -> bytes:
    """The message with the values of some fields replaced."""
    if not new:
        return message
    fields = iter_fields(message, "fragment")
    return b"".join(
        bytes_field(field.number, value) if isinstance(value := new.get(field.number), bytes) else field.raw
        for field in fields
    )


def _row_ids(values: Mapping[int, int | bytes]) -> Numbers:
    found = [_segment(segment) for segment in _segments(values)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def _segments(values: Mapping[int, int | bytes]) -> list[bytes]:
    """Return the segments of the row ids of a fragment."""
    inline = values.get(_ROW_IDS)
    if not isinstance(inline, bytes):
        return []
    return [field.value for field in iter_fields(inline, "row ids") if isinstance(field.value, bytes)]


def _find_range(values: Mapping[int, int | bytes], *, first: int) -> range | None:
    """Return the row ids of a fragment if they are one range from `first` on, as those of appended rows are."""
    segments = _segments(values)
    found = _range_of(segments[0]) if len(segments) == 1 else None
    return found if found is not None and found.start >= first else None


def _range_of(segment: bytes) -> range | None:
    fields = tuple(iter_fields(segment, "row ids"))
    if len(fields) != 1 or fields[0].number != _RANGE or not isinstance(fields[0].value, bytes):
        return None
    limits = {limit.number: limit.value for limit in iter_fields(fields[0].value, "row ids")}
    # Protobuf leaves out a start of 0.
    return range(int(limits.get(1, 0)), int(limits.get(2, 0)))


def _segment(segment: bytes) -> Numbers:
    """The numbers of a segment. Lance has five encodings; ranges are read here, and it decodes the others itself."""
    ids = _range_of(segment)
    if ids is not None:
        return np.arange(ids.start, ids.stop, dtype=np.uint64)
    described = json.dumps({"Inline": list(bytes_field(1, segment))})
    try:
        whole = RowIdMeta.from_json(described)  # type: ignore[misc, call-arg] # Lance's stub takes it for a method.
        return np.asarray(RowIdSequence.from_inline_metadata(whole).to_pyarrow().to_numpy(), dtype=np.uint64)
    except (OSError, RuntimeError, ValueError) as err:
        raise damaged("a fragment", f"its row ids cannot be decoded: {err}") from err


def _decode(value: int | bytes | None) -> Numbers:
    """The version of each row, from runs of equal ones."""
    ends, versions = _runs(value)
    return np.repeat(versions, np.diff(ends, prepend=0))


def _runs(value: int | bytes | None) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return where runs of rows with the same version end, and their versions. The first run is empty."""
    # With an empty run in front, there is a last end even if no version is recorded.
    lengths, versions = [0], [0]
    for run in iter_fields(value, "row versions") if isinstance(value, bytes) else ():
        parts = read_values(run.value, "row versions") if isinstance(run.value, bytes) else {}
        span, version = parts.get(1), parts.get(2, 0)
        lengths.append(_count(span) if isinstance(span, bytes) else 0)
        versions.append(version if isinstance(version, int) else 0)
    try:
        return np.cumsum(lengths, dtype=np.int64), np.array(versions, dtype=np.uint64)
    except OverflowError:
        raise damaged("a fragment", "a row version has more than 64 bits") from None


def _count(segment: bytes) -> int:
    ids = _range_of(segment)
    return len(_segment(segment)) if ids is None else len(ids)


def _encode(versions: Numbers) -> bytes:
    if not len(versions):
        return b""
    starts = [0, *(np.flatnonzero(versions[1:] != versions[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(versions)]
    return b"".join(encode_run(start, end, int(versions[start])) for start, end in zip(starts, ends, strict=True))


def encode_run(start: int, end: int, version: int) -> bytes:
    """Encode one version for the rows from one position to another; without rows, return nothing."""
    if start == end:
        return b""
    span = (varint_field(1, start) if start else b"") + varint_field(2, end)
    return bytes_field(1, bytes_field(1, bytes_field(_RANGE, span)) + varint_field(2, version))
