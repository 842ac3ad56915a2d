"""Read, split, join and change manifest files.

The file ends with 8 bytes that give the position of the protobuf message (after 4 bytes of length), 4 bytes of format
version and `LANC`. Whatever lies before the message (index and transaction sections) is found by offsets from the start
of the file, so a message may change its length without harm.

Whole manifests are changed here where Lance has no operation: another version number, other base paths.
`put_next_version` makes such a change one more version of a home. The manifest is put under the next number if nothing
is there yet, which is a strict compare-and-set. Its transaction is a Restore: Lance lets no concurrent writer land on
top of a Restore, so a writer that planned on what was changed here fails and reads again.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from uuid import UUID, uuid4

from anabranch.errors import BusyError, ConflictError, ObjectExistsError
from anabranch.format.home import Home, is_staged
from anabranch.format.layout import messages
from anabranch.format.layout.listing import ManifestName, manifest_of_path
from anabranch.format.layout.messages import damaged

_MAGIC = b"LANC"
# Position of the message, format version and mark: see above.
_FOOTER = 16
# The parent of a column. Other fields are inside of columns.
NO_PARENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BasePath:
    """Another location for files of a dataset."""

    id: int
    path: str
    name: str | None
    is_dataset_root: bool


def read_manifest(data: bytes, *, name: str = "manifest") -> messages.Manifest:
    """Read the message of a manifest; `name` is for the error's message."""
    start, size = _message_span(data, name)
    return messages.Manifest.parse(data[start : start + size], called(name))


def base_paths_of(manifest: messages.Manifest) -> tuple[BasePath, ...]:
    return tuple(
        BasePath(
            id=base.id,
            path=base.path,
            name=base.name if base.HasField("name") else None,
            is_dataset_root=base.is_dataset_root,
        )
        for base in manifest.base_paths
    )


def indices_in(data: bytes, manifest: messages.Manifest, name: str) -> tuple[bytes, ...]:
    """Return the descriptions of indices, which are in a section before the message: it has only their position."""
    if not manifest.HasField("index_section"):
        return ()
    found = read_section(data, manifest.index_section, name)
    return tuple(messages.IndexSection.parse(found, called(name)).indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The contents of a version by its manifest: the fields of the schema, and the fragments with deletions.

    `next_row_id` is the number of rows that were ever inserted: an update keeps the id of its row.

    Files never change and names are never used again, so equal descriptions mean equal contents.
    """

    fields: tuple[bytes, ...]
    fragments: frozenset[bytes]
    next_row_id: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, without the fields inside them."""
        fields = (messages.Field.parse(description, "field") for description in self.fields)
        return tuple(found.name for found in fields if found.parent_id == NO_PARENT)

    def find_fragment(self, like: bytes) -> bytes | None:
        """Return the fragment with the same data files as another one. Rows may have been deleted since, or before."""
        return _find_fragment(self.fragments, _data_files(like))


def read_contents(data: bytes, *, name: str = "manifest") -> Contents:
    manifest = read_manifest(data, name=name)
    return Contents(
        fields=tuple(manifest.fields), fragments=frozenset(manifest.fragments), next_row_id=manifest.next_row_id
    )


def has_fragment(data: bytes, like: bytes, *, fields: tuple[bytes, ...], name: str = "manifest") -> bool:
    """Return whether a manifest has these fields of the schema, and a fragment with the same data files as another one.

    It takes a fraction of the time of `read_contents`: most manifests without the fragment are not parsed.
    """
    files = _data_files(like)
    if files not in data:
        return False
    manifest = read_manifest(data, name=name)
    # With other fields of the schema, the same files show other columns.
    return tuple(manifest.fields) == fields and _find_fragment(manifest.fragments, files) is not None


def _find_fragment(fragments: Iterable[bytes], files: bytes) -> bytes | None:
    # A search in the bytes rules out most fragments before one is parsed.
    return next((found for found in fragments if files in found and _data_files(found) == files), None)


def _data_files(description: bytes) -> bytes:
    """Return the part of a fragment's description that names its data files and overlays, as it is written there."""
    fragment = messages.Fragment.parse(description, "fragment")
    return messages.Fragment(files=fragment.files, overlays=fragment.overlays).SerializeToString()


def fragment_id(description: bytes) -> int:
    return messages.FragmentId.parse(description, "fragment").id


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestParts:
    """A manifest file taken apart: the fragments by their ids, and the `message` without them, which is never changed.

    `prefix` and `suffix` are what is before and after the message.
    """

    message: messages.Manifest = field(repr=False)
    fragments: Mapping[int, bytes] = field(repr=False)
    indices: tuple[bytes, ...] = field(repr=False)
    prefix: bytes = field(repr=False)
    suffix: bytes = field(repr=False)
    footer: bytes = field(repr=False)
    # The largest id that a fragment ever had; -1 if there was none.
    last_fragment_id: int = -1


def read_parts(data: bytes, *, name: str) -> ManifestParts:
    """Take a manifest apart."""
    start, size = _message_span(data, name)
    described = data[start : start + size]
    message = messages.Manifest.parse(described, called(name))
    ids = (fragment.id for fragment in messages.FragmentIds.parse(described, called(name)).fragments)
    fragments = dict(zip(ids, message.fragments, strict=True))
    message.ClearField("fragments")
    return ManifestParts(
        message=message,
        fragments=fragments,
        indices=indices_in(data, message, name),
        prefix=data[: start - 4],
        suffix=data[start + size : -_FOOTER],
        footer=data[-8:],
        last_fragment_id=message.max_fragment_id if message.HasField("max_fragment_id") else -1,
    )


def join_manifest(parts: ManifestParts) -> bytes:
    """Return the bytes of a manifest."""
    # A message followed by another one of its type is a message with the fields of both.
    fragments = messages.Manifest(fragments=parts.fragments.values())
    message = parts.message.SerializeToString() + fragments.SerializeToString()
    position = struct.pack("<Q", len(parts.prefix))
    return b"".join((parts.prefix, struct.pack("<I", len(message)), message, parts.suffix, position, parts.footer))


def with_message(data: bytes, message: messages.Manifest, *, added: bytes = b"", name: str) -> bytes:
    """Return a manifest with another message, and with `added` after its sections: none of the others may move."""
    start, size = _message_span(data, name)
    parts = ManifestParts(
        message=message,
        fragments={},
        indices=(),
        prefix=data[: start - 4] + added,
        suffix=data[start + size : -_FOOTER],
        footer=data[-8:],
    )
    return join_manifest(parts)


def inline_transaction(parts: ManifestParts) -> bytes | None:
    """Return the transaction that a manifest contains; None if it is in a file of its own."""
    if not parts.message.HasField("transaction_section"):
        return None
    return read_section(parts.prefix, parts.message.transaction_section, f"of version {parts.message.version}")


def read_section(data: bytes, position: int, name: str) -> bytes:
    """Return the section at a position, where its length comes first."""
    start = position + 4
    size = struct.unpack("<I", data[position:start])[0] if start <= len(data) else 0
    # Checked, because a slice beyond the end is shorter, and may still be a message.
    if start + size > len(data):
        raise damaged(called(name), "one of its sections lies outside the file")
    return data[start : start + size]


def has_mark(data: bytes) -> bool:
    """Return whether a manifest is complete. After a power loss a file may be empty or full of zeros."""
    return len(data) >= _FOOTER and data[-4:] == _MAGIC


def _message_span(data: bytes, name: str) -> tuple[int, int]:
    """Return where the protobuf message of a manifest begins, after its length, and its size."""
    if not has_mark(data):
        raise damaged(called(name), "it does not end with the mark of a Lance file")
    (position,) = struct.unpack("<Q", data[-16:-8])
    # Positions are checked first: a slice beyond the end is shorter, without an error.
    if position + 4 > len(data) - _FOOTER:
        raise damaged(called(name), "its message lies outside the file")
    (size,) = struct.unpack("<I", data[position : position + 4])
    if position + 4 + size > len(data) - _FOOTER:
        raise damaged(called(name), "its message is longer than the file")
    return position + 4, size


def called(name: str) -> str:
    """Return the name of a manifest for errors."""
    return f"manifest {name!r}"


_ATTEMPTS = 10
# The bit of the feature flags that requires a client to know base paths.
_HAS_BASE_PATHS = 16


def with_version(data: bytes, version: int, *, name: str = "manifest") -> bytes:
    """Return the manifest with another version number."""
    message = read_manifest(data, name=name)
    message.version = version
    return with_message(data, message, name=name)


def with_base_paths(data: bytes, change: Callable[[BasePath], BasePath], *, name: str = "manifest") -> bytes:
    """Return the manifest with changed base paths, or the same bytes if none changes."""
    message = read_manifest(data, name=name)
    old = base_paths_of(message)
    new = tuple(map(change, old))
    if new == old:
        return data
    for base, changed in zip(message.base_paths, new, strict=True):
        # Only name and path ever change.
        base.path = changed.path
        base.ClearField("name")
        if changed.name is not None:
            base.name = changed.name
    return with_message(data, message, name=name)


def with_base(data: bytes, path: str, *, is_dataset_root: bool, name: str = "manifest") -> bytes:
    """Return the manifest with one more base without a name. Lance itself adds only one such base."""
    message = read_manifest(data, name=name)
    if any(base.path == path for base in message.base_paths):
        return data
    number = max((base.id for base in message.base_paths), default=0) + 1
    message.base_paths.append(messages.BasePath(id=number, path=path, is_dataset_root=is_dataset_root))
    message.reader_feature_flags |= _HAS_BASE_PATHS
    message.writer_feature_flags |= _HAS_BASE_PATHS
    return with_message(data, message, name=name)


def without_base(data: bytes, path: str, *, name: str = "manifest") -> bytes:
    """Return the manifest without one base path. Raise ConflictError if a file is in that base."""
    message = read_manifest(data, name=name)
    removed = {base.id for base in message.base_paths if base.path == path}
    if not removed:
        return data
    # A file in the removed base would have no address left, and readers would look for it below the root.
    if _has_files_in(removed, data, message, name):
        raise ConflictError(
            f"the newest version, {message.version}, has files in {path!r}",
            hint="another writer put them there: move them and try again",
        )
    kept = [base for base in message.base_paths if base.id not in removed]
    message.ClearField("base_paths")
    message.base_paths.extend(kept)
    if not kept:
        _clear_flags(message)
    return with_message(data, message, name=name)


def _has_files_in(bases: Collection[int], data: bytes, message: messages.Manifest, name: str) -> bool:
    fragments = (messages.Fragment.parse(fragment, called(name)) for fragment in message.fragments)
    files = chain(*map(_files_of, fragments), _parsed_indices(data, message, name))
    return any(file.HasField("base_id") and file.base_id in bases for file in files)


def _parsed_indices(data: bytes, message: messages.Manifest, name: str) -> list[messages.Index]:
    return [messages.Index.parse(index, called(name)) for index in indices_in(data, message, name)]


def _files_of(fragment: messages.Fragment) -> Iterator[messages.DataFile | messages.DeletionFile]:
    yield from fragment.files
    yield from (overlay.data_file for overlay in fragment.overlays)
    if fragment.HasField("deletion_file"):
        yield fragment.deletion_file


def _clear_flags(message: messages.Manifest) -> None:
    """Clear the feature flags that state that bases exist."""
    message.reader_feature_flags &= ~_HAS_BASE_PATHS
    message.writer_feature_flags &= ~_HAS_BASE_PATHS


def without_base_paths(data: bytes, *, name: str = "manifest") -> bytes:
    """Return the manifest for a dataset with all files in its own root, without base paths."""
    message = read_manifest(data, name=name)
    fragments = [messages.Fragment.parse(fragment, called(name)) for fragment in message.fragments]
    for fragment in fragments:
        for file in _files_of(fragment):
            file.ClearField("base_id")
    message.ClearField("fragments")
    message.fragments.extend(fragment.SerializeToString() for fragment in fragments)
    message.ClearField("base_paths")
    _clear_flags(message)
    return _with_own_indices(data, message, name)


def inherited_indices(data: bytes, *, name: str = "manifest") -> set[str]:
    """Return the UUIDs of the indices that are in a base."""
    indices = _parsed_indices(data, read_manifest(data, name=name), name)
    return {str(UUID(bytes=index.uuid.uuid)) for index in indices if index.HasField("base_id")}


def with_own_indices(data: bytes, *, name: str = "manifest") -> bytes:
    """Return the manifest with all indices in the home's own folder."""
    return _with_own_indices(data, read_manifest(data, name=name), name) if inherited_indices(data, name=name) else data


def _with_own_indices(data: bytes, message: messages.Manifest, name: str) -> bytes:
    """Return the manifest with another message and an index section without bases."""
    if not message.HasField("index_section"):
        return with_message(data, message, name=name)
    section = messages.IndexSection.parse(read_section(data, message.index_section, name), called(name))
    indices = _parsed_indices(data, message, name)
    for index in indices:
        index.ClearField("base_id")
    section.ClearField("indices")
    section.indices.extend(index.SerializeToString() for index in indices)
    return _with_section(data, message, "index_section", section.SerializeToString(), name=name)


def _with_section(data: bytes, message: messages.Manifest, which: str, section: bytes, *, name: str) -> bytes:
    start, _ = _message_span(data, name)
    setattr(message, which, start - 4)
    return with_message(data, message, added=struct.pack("<I", len(section)) + section, name=name)


def put_next_version(home: Home, change: Callable[[bytes], bytes]) -> int:
    """Change the newest manifest of a home and put it as the next version; return the newest version.

    `change` gets the bytes of a manifest and may raise. If it returns them as they are, no version is made. It is
    called again if another writer was faster.
    """
    store = home.store()
    prefix = f"{home.folder}/_versions".lstrip("/")
    for _ in range(_ATTEMPTS):
        found = [(info.path, manifest_of_path(info.path)) for info in store.list(prefix)]
        ordinary = {name.version: (path, name) for path, name in found if name and not is_staged(name.version)}
        newest = max(ordinary)
        path, name = ordinary[newest]
        data = store.get(path)
        changed = change(data)
        # This or another process has made the change already. Another version would only cost space.
        if changed == data:
            return newest
        following = ManifestName(version=newest + 1, scheme=name.scheme)
        try:
            store.put_if_absent(f"{prefix}/{following}", _as_restore(changed, newest, name=path))
        # The put is the compare-and-set: another writer made this version, so change what it made.
        except ObjectExistsError:
            continue
        return newest + 1
    raise BusyError(f"other writers keep writing to {home.uri!r}", hint="try again when they are done")


def _as_restore(data: bytes, version: int, *, name: str) -> bytes:
    """Return the manifest as the next version, with a transaction that restores the version before."""
    uuid = str(uuid4())
    transaction = messages.Transaction(read_version=version, uuid=uuid, restore=messages.Restore(version=version))
    message = read_manifest(data, name=name)
    message.version = version + 1
    message.transaction_file = f"{version}-{uuid}.txn"
    return _with_section(data, message, "transaction_section", transaction.SerializeToString(), name=name)
