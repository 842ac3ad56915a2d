"""Indices that a branch or clone inherits, copied into its own folder.

Lance's compaction writes a changed index into the home's own folder, but records the base that the old index came from,
and the index cannot be read any more. An index that is in the own folder beforehand has no such base.
"""

from anabranch.errors import BusyError
from anabranch.format.home import Home
from anabranch.format.layout.files import FileKind, files_of_version
from anabranch.format.layout.manifest import inherited_indices, with_own_indices
from anabranch.format.layout.next_version import put_next_version
from anabranch.storage import copy_verified, in_parallel, open_store
from anabranch.storage.uris import join_uri

__all__ = ["copy_inherited_indices"]


def copy_inherited_indices(home: Home) -> bool:
    """Copy all inherited indices of the newest version, and put a version that reads the copies.

    Return whether there were any. Raise BusyError if another writer changed the indices.
    """
    needed = files_of_version(home, home.head_version()).files
    folders = {file.uri for file in needed if file.kind is FileKind.INDEX and file.base_id is not None}
    if not folders:
        return False
    target = open_store(home.uri, home.storage_options)

    def copy(uri: str) -> str:
        folder, _, uuid = uri.rpartition("/")
        source = open_store(folder, home.storage_options)
        for info in list(source.list(uuid)):
            copy_verified(source, info.path, target, join_uri(FileKind.INDEX.folder, info.path))
        return uuid

    copied = set(in_parallel(copy, folders))

    def change(data: bytes) -> bytes:
        if not inherited_indices(data) <= copied:
            raise BusyError(f"the indices of {home.uri!r} were changed by another writer", hint="try again")
        return with_own_indices(data)

    put_next_version(home, change)
    return True
