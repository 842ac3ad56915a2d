"""The manifest of a staged version that has other rows than the version it was made from, and the same columns.

It is the manifest of that version with fragments removed, added, or given another deletion file, as Lance writes it
for an Append, or for a Delete and an Append at once. Lance's own commit takes several times as long, and needs two
versions for the latter, or an Update that reads the id of every row.
"""

import json
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance.fragment import RowIdSequence

from anabranch.format.layout.row_versions import encode_run
from anabranch.format.layout.settled_manifest import SettledParts, inline_transaction, join_manifest, property_fields
from anabranch.format.layout.wire import (
    bytes_field,
    bytes_fields,
    iter_fields,
    made_field,
    packed_field,
    varint_field,
)

if TYPE_CHECKING:
    from lance.fragment import DataFile, DeletionFile, FragmentMetadata

__all__ = ["UPDATED_FIELDS", "ChangedRows", "staged_manifest"]

# A property of the transaction of an update: the ids of the fields that it changed. Rows and other fields stay.
UPDATED_FIELDS = "anabranch.updated_fields"

# Field numbers of Lance's Manifest.
_VERSION, _INDEX_SECTION, _TIMESTAMP, _READER_FLAGS, _WRITER_FLAGS = 3, 6, 7, 9, 10
_MAX_FRAGMENT_ID, _TRANSACTION_FILE, _NEXT_ROW_ID, _TRANSACTION_SECTION = 11, 12, 14, 23
# The bits of the flags: some fragment has a deletion file; rows have stable ids.
_HAS_DELETIONS, _HAS_ROW_IDS = 1, 2
# Field numbers of its Transaction, and of the fragments in the operations.
_READ_VERSION, _UUID, _APPEND, _UPDATE = 1, 2, 100, 108
_APPENDED, _REMOVED_IDS, _UPDATED_FRAGMENTS, _NEW_FRAGMENTS = 1, 1, 2, 3
# Field numbers of its DataFragment.
_ID, _DATA_FILE, _DELETION_FILE, _PHYSICAL_ROWS, _ROW_IDS, _LAST_UPDATED, _CREATED = 1, 2, 3, 4, 5, 7, 9
_RANGE = 1
_LARGEST_VERSION = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Fragments that lost rows, the ids of those that lost all rows, and new ones.

    The first rows of a written fragment may have ids, which the fragment records; the others are new and get ids here.
    `is_append` states that the written rows may be appended again to another version, whatever rows that one has.
    `updated_fields` are given if every row that was cut is written again with the same values in all other fields.
    """

    cut: Sequence["FragmentMetadata"] = ()
    removed: Sequence[int] = ()
    written: Sequence["FragmentMetadata"] = ()
    is_append: bool = False
    updated_fields: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    """A new fragment, the ids that its first rows have, as Lance encodes them, and the number of its other rows."""

    metadata: "FragmentMetadata"
    given_ids: bytes
    new_rows: int

    @classmethod
    def of(cls, metadata: "FragmentMetadata") -> "_Written":
        found = metadata.row_id_meta
        if found is None:
            return cls(metadata, b"", metadata.physical_rows)
        given = bytes(json.loads(found.json())["Inline"])
        return cls(metadata, given, metadata.physical_rows - len(RowIdSequence.from_inline_metadata(found)))


def staged_manifest(
    base: SettledParts, change: ChangedRows, *, read_version: int, version: int, uuid: str
) -> tuple[SettledParts, bytes] | None:
    """Return the manifest of a version with changed rows, its parts and its bytes.

    Return None if Lance must write it: for a table with indices, whose coverage it decides on, and for one without
    stable row ids.
    """
    numbers = {part.number: part.value for part in base.others if isinstance(part.value, int)}
    former = inline_transaction(base)
    # All that lies before the message is the transaction: indices and dictionaries are found by their positions there.
    has_other_sections = len(base.prefix) != (0 if former is None else len(former) + 4)
    if _INDEX_SECTION in numbers or has_other_sections or not numbers.get(_READER_FLAGS, 0) & _HAS_ROW_IDS:
        return None
    cut = {one.id: _with_deletions(base.fragments[one.id], one.deletion_file) for one in change.cut}
    written = [_Written.of(metadata) for metadata in change.written]
    added, next_row_id = _new_fragments(base, written, read_version)
    removed = set(change.removed)
    fragments = {key: value for key, value in {**base.fragments, **cut}.items() if key not in removed} | added
    last_id = max(base.max_fragment_id, *fragments, -1)
    # Transactions have new fragments without their id, and without the ids of new rows.
    described = [_described(one.metadata, one.given_ids) for one in written]
    if change.is_append:
        operation = bytes_field(_APPEND, bytes_fields(_APPENDED, described))
    else:
        operation = _update(change, cut.values(), described)
    transaction = varint_field(_READ_VERSION, read_version) + bytes_field(_UUID, uuid.encode()) + operation
    flags = _HAS_DELETIONS if cut else 0
    timestamp = _now()
    own = (
        made_field(_VERSION, version),
        made_field(_TIMESTAMP, timestamp),
        made_field(_READER_FLAGS, numbers.get(_READER_FLAGS, 0) | flags),
        made_field(_WRITER_FLAGS, numbers.get(_WRITER_FLAGS, 0) | flags),
        *((made_field(_MAX_FRAGMENT_ID, last_id),) if last_id >= 0 else ()),
        made_field(_TRANSACTION_FILE, f"{read_version}-{uuid}.txn".encode()),
        made_field(_NEXT_ROW_ID, next_row_id),
        made_field(_TRANSACTION_SECTION, 0),
    )
    replaced = {part.number for part in own}
    parts = replace(
        base,
        others=(*(part for part in base.others if part.number not in replaced), *own),
        # Without the transaction of the base, or manifests would grow with each step.
        prefix=struct.pack("<I", len(transaction)) + transaction,
        version=version,
        fragments=fragments,
        timestamp=timestamp,
        next_row_id=next_row_id,
        max_fragment_id=last_id,
    )
    return parts, join_manifest(parts)


def _new_fragments(base: SettledParts, written: Sequence[_Written], read_version: int) -> tuple[dict[int, bytes], int]:
    """Return the written fragments by their new ids, and the next row id after those of their new rows."""
    next_row_id, last_id = base.next_row_id, max(base.max_fragment_id, *base.fragments, -1)
    found = {}
    for one in written:
        row_ids = one.given_ids + _range_of_ids(next_row_id, one.new_rows)
        next_row_id, last_id = next_row_id + one.new_rows, last_id + 1
        found[last_id] = _new_fragment(one.metadata, last_id, row_ids, read_version)
    return found, next_row_id


def _now() -> bytes:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return varint_field(1, seconds) + varint_field(2, nanoseconds)


def _update(change: ChangedRows, cut: Iterable[bytes], described: Sequence[bytes]) -> bytes:
    properties = {UPDATED_FIELDS: " ".join(map(str, change.updated_fields))} if change.updated_fields else {}
    removed = b"".join(varint_field(_REMOVED_IDS, key) for key in change.removed)
    updated = bytes_fields(_UPDATED_FRAGMENTS, cut)
    fragments = removed + updated + bytes_fields(_NEW_FRAGMENTS, described)
    return property_fields(properties) + bytes_field(_UPDATE, fragments)


def _new_fragment(metadata: "FragmentMetadata", number: int, row_ids: bytes, read_version: int) -> bytes:
    # As Lance does: rows are created and updated in the version after the one that was read. Settling replaces it.
    version = min(read_version + 1, _LARGEST_VERSION)
    run = encode_run(0, metadata.physical_rows, version)
    versions = bytes_field(_LAST_UPDATED, run) + bytes_field(_CREATED, run)
    return (varint_field(_ID, number) if number else b"") + _described(metadata, row_ids) + versions


def _described(metadata: "FragmentMetadata", row_ids: bytes) -> bytes:
    """Return a fragment without an id."""
    files = bytes_fields(_DATA_FILE, map(_data_file, metadata.files))
    ids = bytes_field(_ROW_IDS, row_ids) if row_ids else b""
    return files + varint_field(_PHYSICAL_ROWS, metadata.physical_rows) + ids


def _data_file(file: "DataFile") -> bytes:
    # Fields of a data file: 1 path, 2 fields, 3 their columns, 4 and 5 the version of its format, 6 bytes, 7 base.
    optional = (4, file.file_major_version), (5, file.file_minor_version), (6, file.file_size_bytes)
    # The public `path` of a file defines a class each time.
    path = bytes_field(1, file._path.encode())
    described = path + packed_field(2, file.fields) + packed_field(3, file.column_indices)
    described += b"".join(varint_field(number, value) for number, value in optional if value)
    return described if file.base_id is None else described + varint_field(7, file.base_id)


def _with_deletions(fragment: bytes, deletions: "DeletionFile | None") -> bytes:
    assert deletions is not None  # noqa: S101 - rows were deleted
    # Fields of a deletion file: 1 its format, 0 for Arrow and 1 for a bitmap, 2 the version that was read, 3 a random
    # number, 4 the number of deleted rows, 7 its base.
    values = (
        (1, int(deletions.file_type == "bitmap")),
        (2, deletions.read_version),
        (3, deletions.id),
        (4, deletions.num_deleted_rows),
    )
    described = b"".join(varint_field(number, value) for number, value in values if value)
    if deletions.base_id is not None:
        described += varint_field(7, deletions.base_id)
    kept = [field for field in iter_fields(fragment, "fragment") if field.number != _DELETION_FILE]
    # In the order of Lance: settling finds fragments that did not change by a comparison of their bytes.
    fields = sorted([*kept, made_field(_DELETION_FILE, described)], key=lambda field: field.number)
    return b"".join(field.raw for field in fields)


def _range_of_ids(start: int, rows: int) -> bytes:
    """Return a segment of new ids; nothing without rows."""
    if not rows:
        return b""
    limits = (varint_field(1, start) if start else b"") + varint_field(2, start + rows)
    return bytes_field(1, bytes_field(_RANGE, limits))
