"""The metadata of the rows of a fragment: which rows are deleted, and the versions of the others.

A deletion file has the deleted rows, as offsets into the fragment.

Row versions are the versions in which rows were created and last updated. Lance stamps a row with the read version plus
one. A row that was staged on a staged version gets a number of about 1e19, which plain readers cannot use. A settled
manifest carries ordinary numbers: those of the ordinary version before it for rows that did not change, and its own for
the others.
"""

import json
import secrets
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import DeletionFile, RowIdMeta, RowIdSequence
from pyroaring import BitMap

from anabranch.errors import DamagedFileError, NotFoundError, ObjectNotFoundError
from anabranch.format.bases import bases_of
from anabranch.format.home import BoundedCache, Home, HomeKey, new_home_cache
from anabranch.format.layout import messages
from anabranch.format.layout.listing import DeletionFileName, DeletionKind
from anabranch.format.layout.messages import damaged
from anabranch.format.layout.needed_files import FileKind, resolve_path
from anabranch.storage import open_parent

Offsets = npt.NDArray[np.uint32]
# By the random numbers in the names of the files, which are not used again. The weight is the number of offsets.
_OFFSETS: BoundedCache[HomeKey, Offsets] = new_home_cache(limit=4096, capacity=1_000_000)
_IN_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


def read_deletion_file(data: bytes, *, name: str) -> Offsets:
    """Read the sorted row offsets, in the format of the name's extension."""
    match DeletionFileName.parse(name.rpartition("/")[2]).kind:
        case DeletionKind.ARROW:
            return _read_arrow(data, name)
        case DeletionKind.BITMAP:
            return _read_bitmap(data, name)


def deleted_offsets(home: Home, version: int | None, fragment_id: int) -> Offsets:
    """Return the deleted rows of a fragment of a version. The deletion file may be in any home or base."""
    dataset = home.open(version)
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    if fragment_id not in fragments:
        raise NotFoundError(
            f"version {dataset.version} of {home.uri!r} has no fragment {fragment_id}",
            hint=f"it has {len(fragments)} fragments, up to {max(fragments, default=None)}",
        )
    return offsets_in(home, dataset, fragments[fragment_id])


def offsets_in(home: Home, dataset: lance.LanceDataset, fragment: lance.LanceFragment) -> Offsets:
    """Return the deleted rows of a fragment of an open version. The contents of deletion files are cached."""
    file = fragment.metadata.deletion_file
    if file is None:
        return np.empty(0, dtype=np.uint32)
    key = (home, file.id)
    known = _OFFSETS.find(key)
    if known is not None:
        return known
    name = file.path(fragment.fragment_id).rpartition("/")[2]
    bases = {base.id: base for base in bases_of(dataset)}
    uri = resolve_path(name, FileKind.DELETION, file.base_id, bases=bases, dataset_root=home.uri)
    store, path = open_parent(uri, home.storage_options)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        raise DamagedFileError(
            f"the deletion file {uri!r} is missing", hint="restore it from a backup, or run doctor on the dataset"
        ) from None
    offsets = read_deletion_file(data, name=name)
    # A truncated file may be valid. Without this check, deleted rows would reappear without an error.
    if file.num_deleted_rows not in (None, len(offsets)):
        raise _damaged(uri, f"it holds {len(offsets)} offsets, and its manifest records {file.num_deleted_rows}")
    _OFFSETS.keep(key, offsets, weight=len(offsets))
    return offsets


def write_deletion_file(home: Home, read_version: int, fragment_id: int, offsets: Offsets) -> DeletionFile:
    """Write the sorted offsets of all deleted rows of a fragment, as a bitmap, and return its description."""
    number = secrets.randbits(63)
    name = DeletionFileName(
        fragment_id=fragment_id, read_version=read_version, id=str(number), kind=DeletionKind.BITMAP
    )
    # An array of the same numbers: the bitmap would take those of numpy one by one.
    bitmap = BitMap(array("I", offsets.astype(np.uint32).tobytes()))
    # Publishing syncs it with the other new files of the commit.
    home.store().put(f"{home.folder}/_deletions/{name}".lstrip("/"), bitmap.serialize(), durable=False)
    _OFFSETS.keep((home, number), offsets, weight=len(offsets))
    return DeletionFile(read_version, number, "bitmap", len(offsets), None)


def _read_arrow(data: bytes, name: str) -> Offsets:
    try:
        # One small column: threads would cost more than they save.
        table = pa.ipc.open_file(pa.BufferReader(data), options=_IN_ONE_THREAD).read_all()
        # Arrow does not check the contents of buffers when it reads them.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as err:
        raise _damaged(name, f"it is not an Arrow file: {err}") from err
    if [field.type for field in table.schema] != [pa.uint32()] or table.column(0).null_count:
        raise _damaged(name, f"it holds {table.schema.to_string(show_field_metadata=False)!r} instead of row offsets")
    offsets = np.sort(table.column(0).to_numpy())  # Lance writes them in any order
    return np.unique(offsets) if np.any(offsets[1:] == offsets[:-1]) else offsets


def _read_bitmap(data: bytes, name: str) -> Offsets:
    try:
        bitmap = BitMap.deserialize(data)
    except (IndexError, ValueError) as err:  # an index error for an empty file
        raise _damaged(name, f"it is not a Roaring bitmap: {err}") from err
    offsets = np.asarray(bitmap.to_array(), dtype=np.uint32)
    # A damaged bitmap may be read to its end and still contradict itself.
    if len(offsets) != len(bitmap) or np.any(offsets[1:] <= offsets[:-1]):
        raise _damaged(name, "its Roaring bitmap contradicts itself")
    return offsets


def _damaged(name: str, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"deletion file {name!r} is damaged: {problem}", hint="restore it from a backup, or run doctor on the dataset"
    )


# Row versions

Fragments = Mapping[int, bytes]
Numbers = npt.NDArray[np.uint64]
# The fragments of the version before, and of the base, in which rows that moved are searched.
Searched = tuple[Sequence[bytes], Sequence[bytes]]

# The fields of a fragment with row versions.
_UPDATED, _CREATED = "last_updated", "created"
_STAGED = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the row versions of a new ordinary version, `number`, follow from: ids from `next_row_id` on are new."""

    next_row_id: int
    number: int


def settled_fragment(
    description: bytes, before: bytes | None, base: bytes | None, basis: Basis, rows: Searched
) -> bytes:
    """Return a changed fragment with ordinary row versions: those of the version before, or the new one's number.

    `before` and `base` are its earlier descriptions, and `rows` are the fragments that rows may have moved from.
    """
    fragment = messages.Fragment.parse(description, "fragment")
    if not fragment.HasField("row_ids"):
        return description  # Without stable row ids Lance keeps no row versions.
    old = messages.Fragment.parse(before or b"", "fragment")
    known = messages.Fragment.parse(base or b"", "fragment")
    changed: list[str] = []
    new: dict[str, bytes] = {}
    for name in (_UPDATED, _CREATED):
        if not fragment.HasField(name):
            continue
        # Sequences that did not change since the base are those of the version before.
        if old.HasField(name) and getattr(fragment, name) == getattr(known, name):
            new[name] = getattr(old, name)
        else:
            changed.append(name)
    if changed:
        new |= _computed(fragment, changed, basis, rows)
    return _with(description, fragment, new)


def _computed(fragment: messages.Fragment, changed: list[str], basis: Basis, rows: Searched) -> dict[str, bytes]:
    segments = messages.RowIds.parse(fragment.row_ids, "row ids").segments
    row_ids = np.concatenate([np.empty(0, np.uint64), *map(_numbers, segments)])
    own = np.uint64(basis.number)
    if len(row_ids) == 0 or int(row_ids.min()) >= basis.next_row_id:
        return dict.fromkeys(changed, messages.encode_run(0, len(row_ids), basis.number))
    before, base = (_find_rows(fragments, row_ids) for fragments in rows)
    new: dict[str, bytes] = {}
    if _CREATED in changed:
        new[_CREATED] = _encode(np.where(before.found, before.created, own))
    if _UPDATED in changed:
        updated = _decode(fragment.last_updated)
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
    found = np.zeros(len(row_ids), dtype=bool)
    created, updated = np.zeros(len(row_ids), np.uint64), np.zeros(len(row_ids), np.uint64)
    for description in fragments:  # A row that is in several fragments is alive in the newest.
        fragment = messages.Fragment.parse(description, "fragment")
        at, rows = _positions(fragment, row_ids)
        here = at >= 0
        found |= here
        for versions, into in ((fragment.created, created), (fragment.last_updated, updated)):
            ends, numbers = _runs(versions)
            # Versions are found by the position of a row, so runs for another number of rows are not used.
            if ends[-1] == rows:
                into[here] = numbers[np.searchsorted(ends, at[here], side="right")]
    return _Found(found, created, updated)


def _positions(fragment: messages.Fragment, row_ids: Numbers) -> tuple[npt.NDArray[np.int64], int]:
    """Return where rows are in a fragment, -1 if they are not, and the number of its rows."""
    # A fragment of appended rows has one range of ids, which is not expanded.
    at = np.full(len(row_ids), -1, dtype=np.int64)
    rows = 0
    for segment in messages.RowIds.parse(fragment.row_ids, "row ids").segments:
        ids = find_range(segment)
        if ids is not None:
            here = (row_ids >= np.uint64(ids.start)) & (row_ids < np.uint64(ids.stop))
            at[here] = (row_ids[here] - np.uint64(ids.start)).astype(np.int64) + rows
            rows += len(ids)
            continue
        own = _numbers(segment)
        if len(own):
            # The ids of moved rows are in any order, so a sorted copy is searched.
            order = np.argsort(own, kind="stable")
            nearest = order[np.minimum(np.searchsorted(own[order], row_ids), len(own) - 1)]
            here = own[nearest] == row_ids
            at[here] = nearest[here] + rows
            rows += len(own)
    return at, rows


def _clamped(description: bytes, number: int, source: bytes | None) -> bytes:
    """Return a fragment with ordinary row versions: its own, or those of another description of it."""
    fragment = messages.Fragment.parse(description, "fragment")
    other = fragment if source is None else messages.Fragment.parse(source, "fragment")
    new: dict[str, bytes] = {}
    for name in (_UPDATED, _CREATED):
        if not fragment.HasField(name):
            continue
        encoded = getattr(other if other.HasField(name) else fragment, name)
        versions = _decode(encoded)
        # Staging records its own random id (above 2^63) as the version of new rows. Readers would take it for a
        # far future.
        if len(versions) and int(versions.max()) >= _STAGED:
            encoded = _encode(np.where(versions >= np.uint64(_STAGED), np.uint64(number), versions))
        if encoded != getattr(fragment, name):
            new[name] = encoded
    return _with(description, fragment, new)


def _with(description: bytes, fragment: messages.Fragment, new: Mapping[str, bytes]) -> bytes:
    """Return a fragment with other row versions. Without any, its description stays the same: it is compared."""
    for name, versions in new.items():
        setattr(fragment, name, versions)
    return fragment.SerializeToString() if new else description


def find_range(segment: messages.Segment) -> range | None:
    """Return the numbers of a segment if they are one range, as the ids of appended rows are."""
    return range(segment.range.start, segment.range.end) if segment.HasField("range") else None


def _numbers(segment: messages.Segment) -> Numbers:
    """Return the numbers of a segment. Ranges are decoded here, the other four encodings by Lance."""
    ids = find_range(segment)
    if ids is not None:
        return np.arange(ids.start, ids.stop, dtype=np.uint64)
    described = json.dumps({"Inline": list(messages.RowIds(segments=[segment]).SerializeToString())})
    try:
        whole = RowIdMeta.from_json(described)  # type: ignore[misc, call-arg] # Lance's stub takes it for a method.
        return np.asarray(RowIdSequence.from_inline_metadata(whole).to_pyarrow().to_numpy(), dtype=np.uint64)
    except (OSError, RuntimeError, ValueError) as err:
        raise damaged("a fragment", f"its row ids cannot be decoded: {err}") from err


def _decode(versions: bytes) -> Numbers:
    """Return the version of each row from runs of equal versions."""
    ends, numbers = _runs(versions)
    return np.repeat(numbers, np.diff(ends, prepend=0))


def _runs(versions: bytes) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return where runs of rows with the same version end, and their versions. The first run is empty."""
    # With an empty run in front, there is a last end even if no version is recorded.
    lengths, numbers = [0], [0]
    try:
        for run in messages.RowVersions.parse(versions, "row versions").runs:
            ids = find_range(run.span)
            lengths.append(len(_numbers(run.span)) if ids is None else len(ids))
            numbers.append(run.version)
        return np.cumsum(lengths, dtype=np.int64), np.array(numbers, dtype=np.uint64)
    except OverflowError:
        raise damaged("a fragment", "a row version has too many rows") from None


def _encode(versions: Numbers) -> bytes:
    if not len(versions):
        return b""
    starts = [0, *(np.flatnonzero(versions[1:] != versions[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(versions)]
    return b"".join(
        messages.encode_run(start, end, int(versions[start])) for start, end in zip(starts, ends, strict=True)
    )


def clamped_all(fragments: Fragments, source: Fragments, number: int) -> dict[int, bytes]:
    """Return the fragments with ordinary row versions: their own, or those of another manifest of the same state."""
    return {key: _clamped(description, number, source.get(key)) for key, description in fragments.items()}
