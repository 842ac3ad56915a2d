"""Open a store, and copy objects between stores."""

import os
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from anabranch.errors import ObjectNotFoundError, StorageError
from anabranch.storage.local_store import LocalFolderStore
from anabranch.storage.objects import ObjectInfo, ObjectStore
from anabranch.storage.obstore_store import ObstoreBackedStore
from anabranch.storage.uris import is_local, join_uri, normalise_uri

__all__ = ["copy_between", "copy_verified", "find_object", "is_below_file", "open_files", "open_store"]


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store rooted at a URI. Nothing is requested or created before it is used."""
    root, options = normalise_uri(uri), dict(storage_options or {})
    if is_local(root):
        return LocalFolderStore(uri=root, storage_options=options)
    return ObstoreBackedStore(uri=root, storage_options=options)


def open_files(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open a folder of files that a user named, such as a file to load: symbolic links in it are followed."""
    store = open_store(uri, storage_options)
    return store.following_links() if isinstance(store, LocalFolderStore) else store


def find_object(store: ObjectStore, path: str) -> ObjectInfo | None:
    """What the store knows about an object; None if there is no such object."""
    try:
        return store.head(path)
    except ObjectNotFoundError:
        return None


def is_below_file(uri: str) -> bool:
    """Whether a local place is a file, or would lie below one, so that nothing can be put there."""
    path = Path(uri)
    return is_local(uri) and any(folder.is_file() for folder in (path, *path.parents))


def copy_between(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object from store to store, in pieces, and make sure that all of it arrived."""
    target.put_stream(target_path, source.stream(path))
    _require_all(source, path, target, target_path)


def _require_all(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    sent, arrived = source.head(path).size, target.head(target_path).size
    if sent != arrived:
        place = join_uri(target.uri, target_path)
        raise StorageError(f"{arrived} of {sent} bytes arrived at {place!r}", hint="try again")


def copy_verified(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object from store to store, then read it back and make sure that it is the same, byte for byte."""
    sent, arrived = blake2b(), blake2b()

    def read() -> Iterator[bytes]:
        for chunk in source.stream(path):
            sent.update(chunk)
            yield chunk

    target.put_stream(target_path, read())
    _require_all(source, path, target, target_path)
    for chunk in target.stream(target_path):
        arrived.update(chunk)
    if sent.digest() != arrived.digest():
        place = join_uri(target.uri, target_path)
        raise StorageError(f"the copy at {place!r} is not what was read from {path!r}", hint="try again")
