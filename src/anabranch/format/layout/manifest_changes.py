"""Changes of whole manifests that Lance has no operation for: another version number, other base paths.

`put_next_version` makes such a change one more version of a home. The manifest is put under the next number if nothing
is there yet, which is a strict compare-and-set. Its transaction is a Restore: Lance lets no concurrent writer land on
top of a Restore, so a writer that planned on what was changed here fails and reads again.
"""

import struct
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

from anabranch.errors import BusyError, ConflictError, ObjectExistsError
from anabranch.format.home import Home, is_staged
from anabranch.format.layout import messages
from anabranch.format.layout.manifest import (
    BasePath,
    base_paths_of,
    called,
    message_span,
    read_message,
    read_outline,
    read_section,
    with_message,
)
from anabranch.format.layout.names import ManifestName, manifest_of_path

__all__ = [
    "inherited_indices",
    "put_next_version",
    "with_base_paths",
    "with_own_indices",
    "with_version",
    "without_base",
    "without_base_paths",
]

_ATTEMPTS = 10
# The bit of the feature flags that requires a client to know base paths.
_HAS_BASE_PATHS = 16


def with_version(data: bytes, version: int, *, name: str = "manifest") -> bytes:
    """The same manifest under another version number."""
    message = read_message(data, name)
    message.version = version
    return with_message(data, message, name=name)


def with_base_paths(data: bytes, change: Callable[[BasePath], BasePath], *, name: str = "manifest") -> bytes:
    """The same manifest with each base path changed; the very same bytes if nothing does."""
    message = read_message(data, name)
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


def without_base(data: bytes, path: str, *, name: str = "manifest") -> bytes:
    """The same manifest without one base path; raise ConflictError if a file is in that base."""
    message = read_message(data, name)
    removed = {base.id for base in message.base_paths if base.path == path}
    if not removed:
        return data
    # A file in the removed base would have no address left, and readers would look for it below the root.
    if any(file.HasField("base_id") and file.base_id in removed for file in _files_in(data, name)):
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


def _files_in(data: bytes, name: str) -> Iterator[messages.DataFile | messages.DeletionFile | messages.Index]:
    """Yield what may name a base: the files of fragments, and the indices."""
    outline = read_outline(data, name=name)
    for fragment in outline.fragments:
        yield from _files_of(messages.Fragment.parse(fragment, called(name)))
    for index in outline.indices:
        yield messages.Index.parse(index, called(name))


def _files_of(fragment: messages.Fragment) -> Iterator[messages.DataFile | messages.DeletionFile]:
    yield from fragment.files
    yield from (overlay.data_file for overlay in fragment.overlays)
    if fragment.HasField("deletion_file"):
        yield fragment.deletion_file


def _clear_flags(message: messages.Manifest) -> None:
    """The feature flags of readers and writers state that there are bases."""
    message.reader_feature_flags &= ~_HAS_BASE_PATHS
    message.writer_feature_flags &= ~_HAS_BASE_PATHS


def without_base_paths(data: bytes, *, name: str = "manifest") -> bytes:
    """The same manifest for a dataset that has all files in its own root: no base path, and no file that names one."""
    message = read_message(data, name)
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
    """The UUIDs of the indices that are in a base."""
    indices = (messages.Index.parse(index, called(name)) for index in read_outline(data, name=name).indices)
    return {str(UUID(bytes=index.uuid.uuid)) for index in indices if index.HasField("base_id")}


def with_own_indices(data: bytes, *, name: str = "manifest") -> bytes:
    """The same manifest with all indices in the home's own folder."""
    return _with_own_indices(data, read_message(data, name), name) if inherited_indices(data, name=name) else data


def _with_own_indices(data: bytes, message: messages.Manifest, name: str) -> bytes:
    """The manifest with another message, and with an index section in which no index names a base."""
    if not message.HasField("index_section"):
        return with_message(data, message, name=name)
    section = messages.IndexSection.parse(read_section(data, message.index_section, name), called(name))
    indices = [messages.Index.parse(index, called(name)) for index in section.indices]
    for index in indices:
        index.ClearField("base_id")
    section.ClearField("indices")
    section.indices.extend(index.SerializeToString() for index in indices)
    return _with_section(data, message, "index_section", section.SerializeToString(), name=name)


def _with_section(data: bytes, message: messages.Manifest, which: str, section: bytes, *, name: str) -> bytes:
    start, _ = message_span(data, name)
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
        # The change was made before, by this or by another process. Another version would only cost space.
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
    """The manifest as the version after another, with a transaction that restores that one."""
    uuid = str(uuid4())
    transaction = messages.Transaction(read_version=version, uuid=uuid, restore=messages.Restore(version=version))
    message = read_message(data, name)
    message.version = version + 1
    message.transaction_file = f"{version}-{uuid}.txn"
    return _with_section(data, message, "transaction_section", transaction.SerializeToString(), name=name)
