"""Open stores, copy objects between them, and read the clock of a store."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from anabranch.errors import StorageDeniedError, StorageError
from anabranch.storage.local_store import LocalFolderStore
from anabranch.storage.object_store import ObjectStore
from anabranch.storage.uris import is_local, join_uri, normalise_uri


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store at a URI. No request is sent and nothing is created before the store is used."""
    return open_root(normalise_uri(uri), tuple((storage_options or {}).items()))


def open_parent(uri: str, storage_options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """Open the store at the folder of a file, and return it with the name of the file."""
    folder, _, name = uri.rpartition("/")
    return open_store(folder, storage_options), name


@lru_cache(maxsize=256)
def open_root(root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Open the store at a normalised URI."""
    # One store per root is kept: a remote one takes about 10 ms to build, without other threads, and has connections.
    kind = LocalFolderStore if is_local(root) else ObjectStore
    return kind(uri=root, storage_options=dict(options))


def open_files(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open a folder of files that a user named, such as a file to load: symbolic links in it are followed."""
    store = open_store(uri, storage_options)
    return store.following_links() if isinstance(store, LocalFolderStore) else store


def is_below_file(uri: str) -> bool:
    """Return whether a local path is a file or is below one, so that nothing can be written there."""
    path = Path(uri)
    return is_local(uri) and any(folder.is_file() for folder in (path, *path.parents))


def copy_between(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object between stores in chunks. Raise StorageError if the copy has another size."""
    target.put_stream(target_path, source.stream(path))
    _check_size(source, path, target, target_path)


def _check_size(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    # A stream that ends early raises no error.
    sent, arrived = source.head(path).size, target.head(target_path).size
    if sent != arrived:
        location = join_uri(target.uri, target_path)
        raise StorageError(f"{arrived} of {sent} bytes arrived at {location!r}", hint="try again")


def copy_verified(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object between stores, then read it back. Raise StorageError if the copy is different."""
    sent = blake2b()

    def read() -> Iterator[bytes]:
        for chunk in source.stream(path):
            sent.update(chunk)
            yield chunk

    target.put_stream(target_path, read())
    _check_size(source, path, target, target_path)
    if sent.digest() != digest_of(target, target_path):
        location = join_uri(target.uri, target_path)
        raise StorageError(f"the copy at {location!r} differs from its source {path!r}", hint="try again")


def digest_of(store: ObjectStore, path: str) -> bytes:
    """Return the digest of an object's content."""
    digest = blake2b()
    for chunk in store.stream(path):
        digest.update(chunk)
    return digest.digest()


CLOCK = "_clock"


def store_time(store: ObjectStore) -> datetime:
    """Return the time of the store: that of an object written now. Without write access, return the local time."""
    try:
        # Ages of objects are compared with the store's own clock: that of this machine may be wrong by minutes.
        store.put(CLOCK, b"now\n", durable=False)
        return store.head(CLOCK).modified
    except StorageDeniedError:
        return datetime.now(UTC)
