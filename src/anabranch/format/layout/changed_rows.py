"""Changed rows: deletion files, and the manifest of a staged version with other rows and the same columns.

A deletion file has the rows of a fragment that are gone, as offsets into the fragment. The manifest is that of the
version before with fragments removed, added, or given another deletion file, as Lance writes it for an Append, or for a
Delete and an Append at once. Lance's own commit takes several times as long, and needs two versions for the latter, or
an Update that reads the id of every row.
"""

import copy
import json
import secrets
import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import DeletionFile, RowIdSequence
from pyroaring import BitMap

from anabranch.errors import DamagedFileError, NotFoundError, ObjectNotFoundError
from anabranch.format.bases import bases_of
from anabranch.format.home import BoundedCache, Home, HomeKey, new_home_cache
from anabranch.format.layout import messages
from anabranch.format.layout.files import FileKind, resolve_path
from anabranch.format.layout.listing import DeletionFileName, DeletionKind
from anabranch.format.layout.manifest import ManifestParts
from anabranch.format.layout.settled_manifest import encode_run
from anabranch.storage import open_store

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata


# A property of the transaction of an update: the ids of the fields that it changed. Rows and other fields stay.
UPDATED_FIELDS = "anabranch.updated_fields"

# The bits of the feature flags: some fragment has a deletion file; rows have stable ids.
_HAS_DELETIONS, _HAS_ROW_IDS = 1, 2
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


def staged_manifest(
    base: ManifestParts, change: ChangedRows, *, read_version: int, version: int, uuid: str
) -> ManifestParts | None:
    """Return the manifest of a version with changed rows.

    Return None if Lance must write it: for a table with indices, whose coverage it decides on, and for one without
    stable row ids.
    """
    # Indices and dictionaries before the message are found by their positions. If the transaction is alone there, it
    # begins with the length of the rest.
    has_transaction = base.message.HasField("transaction_section") and base.message.transaction_section == 0
    size = 4 + int.from_bytes(base.prefix[:4], "little") if has_transaction else 0
    has_other_sections = len(base.prefix) != size
    has_row_ids = base.message.reader_feature_flags & _HAS_ROW_IDS
    if base.message.HasField("index_section") or has_other_sections or not has_row_ids:
        return None
    message = copy.deepcopy(base.message)
    message.version = version
    message.timestamp.seconds, message.timestamp.nanos = divmod(time.time_ns(), 1_000_000_000)
    message.transaction_file = f"{read_version}-{uuid}.txn"
    message.transaction_section = 0
    cut = {one.id: _with_deletions(base.fragments[one.id], one) for one in change.cut}
    if cut:
        message.reader_feature_flags |= _HAS_DELETIONS
        message.writer_feature_flags |= _HAS_DELETIONS
    # Transactions have new fragments without their id, and without the ids of new rows.
    written = [_described(metadata) for metadata in change.written]
    transaction = _transaction(change, cut, written)
    transaction.read_version, transaction.uuid = read_version, uuid
    removed = set(change.removed)
    fragments = {key: value for key, value in {**base.fragments, **cut}.items() if key not in removed}
    fragments |= _new_fragments(base, change.written, written, message, read_version)
    last_id = max(base.last_fragment_id, *fragments, -1)
    if last_id >= 0:
        message.max_fragment_id = last_id
    inline = transaction.SerializeToString()
    # Without the transaction of the base, or manifests would grow with each step.
    return replace(base, message=message, fragments=fragments, prefix=struct.pack("<I", len(inline)) + inline)


def _described(metadata: "FragmentMetadata") -> messages.Fragment:
    """Return a fragment without an id. It has the ids of those of its first rows that have some."""
    found = metadata.row_id_meta
    return messages.Fragment(
        files=[
            messages.DataFile(
                path=file._path,  # the public `path` of a file defines a class each time
                fields=file.fields,
                column_indices=file.column_indices,
                file_major_version=file.file_major_version,
                file_minor_version=file.file_minor_version,
                file_size_bytes=file.file_size_bytes,
                base_id=file.base_id,
            )
            for file in metadata.files
        ],
        physical_rows=metadata.physical_rows,
        row_ids=None if found is None else bytes(json.loads(found.json())["Inline"]),
    )


def _transaction(
    change: ChangedRows, cut: Mapping[int, bytes], written: Sequence[messages.Fragment]
) -> messages.Transaction:
    described = [fragment.SerializeToString() for fragment in written]
    if change.is_append:
        return messages.Transaction(append=messages.Append(fragments=described))
    update = messages.Update(
        removed_fragment_ids=change.removed, updated_fragments=cut.values(), new_fragments=described
    )
    updated = " ".join(map(str, change.updated_fields))
    properties = [messages.Property(key=UPDATED_FIELDS, value=updated)] if updated else []
    return messages.Transaction(properties=properties, update=update)


def _new_fragments(
    base: ManifestParts,
    metadata: Sequence["FragmentMetadata"],
    written: Sequence[messages.Fragment],
    message: messages.Manifest,
    read_version: int,
) -> dict[int, bytes]:
    """Return the written fragments by their new ids. Their new rows get the next ids of the manifest's message."""
    # As Lance does: rows are created and updated in the version after the one that was read. Settling replaces it.
    version = min(read_version + 1, _LARGEST_VERSION)
    first = max(base.last_fragment_id, *base.fragments, -1) + 1
    found = {}
    for number, (one, fragment) in enumerate(zip(metadata, written, strict=True), first):
        given = 0 if one.row_id_meta is None else len(RowIdSequence.from_inline_metadata(one.row_id_meta))
        if new_rows := fragment.physical_rows - given:
            ids = messages.Range(start=message.next_row_id, end=message.next_row_id + new_rows)
            # A list of segments followed by another one is the list of both.
            fragment.row_ids += messages.RowIds(segments=[messages.Segment(range=ids)]).SerializeToString()
            message.next_row_id += new_rows
        fragment.id = number
        fragment.last_updated = fragment.created = encode_run(0, fragment.physical_rows, version)
        found[number] = fragment.SerializeToString()
    return found


def _with_deletions(description: bytes, metadata: "FragmentMetadata") -> bytes:
    deletions = metadata.deletion_file
    assert deletions is not None  # noqa: S101 - rows were deleted
    fragment = messages.Fragment.parse(description, "fragment")
    fragment.deletion_file.CopyFrom(
        messages.DeletionFile(
            file_type=int(deletions.file_type == "bitmap"),
            read_version=deletions.read_version,
            id=deletions.id,
            num_deleted_rows=deletions.num_deleted_rows,
            base_id=deletions.base_id,
        )
    )
    return fragment.SerializeToString()


Offsets = npt.NDArray[np.uint32]
# By the random numbers in the names of the files, which are not used again. The weight is the number of offsets.
_OFFSETS: BoundedCache[HomeKey, Offsets] = new_home_cache(limit=4096, capacity=1_000_000)
_IN_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


def read_deletion_file(data: bytes, *, name: str) -> Offsets:
    """Read the sorted row offsets; the name's extension gives the format."""
    match DeletionFileName.parse(name.rpartition("/")[2]).kind:
        case DeletionKind.ARROW:
            return _read_arrow(data, name)
        case DeletionKind.BITMAP:
            return _read_bitmap(data, name)


def deleted_offsets(home: Home, version: int | None, fragment_id: int) -> Offsets:
    """The rows of a fragment that a version no longer has, whichever home or base holds the deletion file."""
    dataset = home.open(version)
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    if fragment_id not in fragments:
        raise NotFoundError(
            f"version {dataset.version} of {home.uri!r} has no fragment {fragment_id}",
            hint=f"it has {len(fragments)} fragments, up to {max(fragments, default=None)}",
        )
    return offsets_in(home, dataset, fragments[fragment_id])


def offsets_in(home: Home, dataset: lance.LanceDataset, fragment: lance.LanceFragment) -> Offsets:
    """The rows that a fragment of an open version no longer has. Those of a file are kept after it was read."""
    file = fragment.metadata.deletion_file
    if file is None:
        return np.empty(0, dtype=np.uint32)
    key = (home.recorded_root, home, file.id)
    known = _OFFSETS.find(key)
    if known is not None:
        return known
    name = file.path(fragment.fragment_id).rpartition("/")[2]
    bases = {base.id: base for base in bases_of(dataset)}
    uri = resolve_path(name, FileKind.DELETION, file.base_id, bases=bases, dataset_root=home.uri)
    offsets = read_deletion_file(_get(home, uri), name=name)
    # A file that is shorter than it was, and still valid, would bring deleted rows back without an error.
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
    _OFFSETS.keep((home.recorded_root, home, number), offsets, weight=len(offsets))
    return DeletionFile(read_version, number, "bitmap", len(offsets), None)


def _get(home: Home, uri: str) -> bytes:
    folder, _, name = uri.rpartition("/")
    try:
        return open_store(folder, home.storage_options).get(name)
    except ObjectNotFoundError:
        raise DamagedFileError(
            f"the deletion file {uri!r} is missing", hint="restore it from a backup, or run doctor on the dataset"
        ) from None


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
