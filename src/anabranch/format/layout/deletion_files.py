"""Deletion files: each has the rows of a fragment that are gone, as offsets into the fragment."""

import secrets
from array import array

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import DeletionFile
from pyroaring import BitMap

from anabranch.errors import DamagedFileError, NotFoundError, ObjectNotFoundError
from anabranch.format.bases import bases_of
from anabranch.format.home import BoundedCache, Home, HomeKey, new_home_cache
from anabranch.format.layout.files import FileKind, resolve_path
from anabranch.format.layout.listing import DeletionFileName, DeletionKind
from anabranch.storage import open_store

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
    key = (home, file.id)
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
    _OFFSETS.keep((home, number), offsets, weight=len(offsets))
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
