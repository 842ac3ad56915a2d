"""The object store as the rest of the product sees it, over obstore."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.exceptions import InvalidPathError as InvalidObstorePath
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store
from obstore.store import ObjectStore as ObstoreStore

from anabranch.errors import (
    AnabranchError,
    InvalidInputError,
    InvalidPathError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)
from anabranch.storage.options import client_settings, redact
from anabranch.storage.uris import is_local, join_uri, normalise_uri, split_uri

__all__ = [
    "ObjectInfo",
    "ObjectStore",
    "copy_between",
    "copy_verified",
    "find_object",
    "is_below_file",
    "open_store",
]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its path below the store's root, its size, and when the store last saw it written."""

    path: str
    size: int
    modified: datetime


class ObjectStore(Protocol):
    """One root and the objects below it. Paths are relative to the root and use `/`."""

    @property
    def uri(self) -> str: ...

    @property
    def lists_sorted(self) -> bool:
        """Whether listings come in the order of their paths: on object stores, not on local disk."""
        ...

    def get(self, path: str) -> bytes:
        """Raise ObjectNotFoundError if there is no such object."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Raise ObjectNotFoundError if there is no such object."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Some bytes of an object, which must have that many."""
        ...

    def stream(self, path: str) -> Iterator[bytes]:
        """The object in pieces, for what may not fit into memory."""
        ...

    def put(self, path: str, data: bytes) -> None: ...

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        """Put an object in pieces; it appears whole, after the last one."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Raise ObjectExistsError if there is such an object; of many callers one succeeds."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below a folder, in no promised order on local disk and sorted elsewhere."""
        ...

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        """The folders right below a folder; local disk also shows those that became empty."""
        ...

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """The objects right in a folder, not those in folders below it."""
        ...

    def delete(self, path: str) -> None:
        """Do nothing if there is no such object."""
        ...

    def copy(self, source: str, target: str) -> None: ...


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store rooted at a URI. Nothing is requested or created before it is used."""
    return _Store(uri=normalise_uri(uri), storage_options=dict(storage_options or {}))


class _Store:
    def __init__(self, *, uri: str, storage_options: dict[str, str]) -> None:
        self.uri = uri
        self.lists_sorted = not is_local(uri)
        self._options = storage_options

    def __repr__(self) -> str:
        return f"ObjectStore({self.uri!r})"

    def get(self, path: str) -> bytes:
        with self._errors(path):
            return bytes(obstore.get(self._backend, path).bytes())

    def head(self, path: str) -> ObjectInfo:
        with self._errors(path):
            meta = obstore.head(self._backend, path)
        return ObjectInfo(path=path, size=meta["size"], modified=meta["last_modified"])

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._errors(path):
            return bytes(obstore.get_range(self._backend, path, start=start, length=length))

    def stream(self, path: str) -> Iterator[bytes]:
        with self._errors(path):
            for chunk in obstore.get(self._backend, path).stream():
                yield bytes(chunk)

    def put(self, path: str, data: bytes) -> None:
        self._make_root()
        with self._errors(path):
            obstore.put(self._backend, path, data)

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        self._make_root()
        with self._errors(path):
            # Not obstore.put with an iterator: it panics when the iterator itself reads from a store.
            writer = obstore.open_writer(self._backend, path)
            for chunk in chunks:
                writer.write(chunk)
            writer.close()

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._make_root()
        with self._errors(path):
            obstore.put(self._backend, path, data, mode="create")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if self._is_missing_folder:
            return
        with self._errors(prefix, folder=True):
            for batch in obstore.list(self._backend, prefix or None):
                for meta in batch:
                    yield ObjectInfo(path=meta["path"], size=meta["size"], modified=meta["last_modified"])

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        if self._is_missing_folder:
            return ()
        with self._errors(prefix, folder=True):
            return tuple(obstore.list_with_delimiter(self._backend, prefix or None)["common_prefixes"])

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        if self._is_missing_folder:
            return ()
        with self._errors(prefix, folder=True):
            found = obstore.list_with_delimiter(self._backend, prefix or None)["objects"]
        return tuple(ObjectInfo(path=meta["path"], size=meta["size"], modified=meta["last_modified"]) for meta in found)

    def delete(self, path: str) -> None:
        try:
            with self._errors(path):
                obstore.delete(self._backend, path)
        except ObjectNotFoundError:
            return

    def copy(self, source: str, target: str) -> None:
        with self._errors(target), self._errors(source):
            obstore.copy(self._backend, source, target)

    @property
    def _is_missing_folder(self) -> bool:
        return is_local(self.uri) and not Path(self.uri).is_dir()

    def _make_root(self) -> None:
        if is_local(self.uri):
            with self._errors("", folder=True):
                Path(self.uri).mkdir(parents=True, exist_ok=True)

    @cached_property
    def _backend(self) -> ObstoreStore:
        if is_local(self.uri):
            if self._is_missing_folder:
                raise FileNotFoundError(self.uri)  # obstore would call it a generic error
            return LocalStore(prefix=self.uri)
        try:
            return _remote_backend(self.uri, self._options)
        except (BaseError, OSError, TypeError, ValueError) as err:
            raise InvalidInputError(
                f"the storage options cannot open {self.uri!r}: {_words_of(err, self._options)}",
                hint="correct the storage options",
            ) from None

    @contextmanager
    def _errors(self, path: str, *, folder: bool = False) -> Iterator[None]:
        # obstore would drop slashes at the ends and reach another object than the one named.
        segments = (path.removesuffix("/") if folder else path).split("/")
        if not {"", ".", ".."}.isdisjoint(segments) and not (folder and not path):
            raise InvalidPathError(
                f"the path {path!r} names nothing below {self.uri!r}", hint="use a relative path without '.' and '..'"
            )
        try:
            yield
        except (BaseError, OSError, ValueError) as err:
            raise _translate(err, place=join_uri(self.uri, path), options=self._options) from None


def _remote_backend(uri: str, options: Mapping[str, str]) -> ObstoreStore:
    scheme, bucket, path = split_uri(uri)
    settings = client_settings(options)
    kind: Callable[..., ObstoreStore] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    return kind(
        bucket,
        prefix=path or None,
        config=settings.config,
        client_options=settings.client_options,
        retry_config={"max_retries": settings.max_retries, "retry_timeout": settings.retry_timeout},
    )


def _words_of(err: Exception, options: Mapping[str, str]) -> str:
    """What the store said, without the server's XML and the dump of its internals that obstore appends."""
    return redact(re.split(r"\n\nDebug source:|: <\?xml", str(err))[0], options)


def _translate(err: Exception, *, place: str, options: Mapping[str, str]) -> AnabranchError:
    said = _words_of(err, options)
    match err:
        case FileNotFoundError():
            return ObjectNotFoundError(f"there is no object {place!r}", hint="check the path")
        case AlreadyExistsError():
            return ObjectExistsError(f"the object {place!r} exists already", hint="choose another path")
        case PermissionDeniedError() | UnauthenticatedError() | PermissionError():
            return StorageDeniedError(f"the store refused access to {place!r}", hint="check the credentials")
        case InvalidObstorePath() | ValueError() | FileExistsError() | NotADirectoryError():
            return InvalidPathError(f"the path {place!r} cannot be used: {said}", hint="correct the path")
    # The rest is told apart by its prose alone: a writer in pieces raises plain OSErrors.
    if "403 Forbidden" in said or "401 Unauthorized" in said:
        return StorageDeniedError(f"the store refused access to {place!r}", hint="check the credentials")
    if "NoSuchBucket" in str(err):
        return ObjectNotFoundError(f"the bucket of {place!r} does not exist", hint="check the bucket's name")
    if re.search(r"Filenames containing|Not a directory|Is a directory|File name too long|KeyTooLong", said):
        return InvalidPathError(f"the path {place!r} cannot be used: {said}", hint="correct the path")
    if "error sending request" in said or "timed out" in said:
        return StorageUnavailableError(
            f"the store of {place!r} cannot be reached: {said}", hint="check the endpoint and try again"
        )
    return StorageError(f"a request for {place!r} failed: {said}", hint="see the store's own message above")


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
