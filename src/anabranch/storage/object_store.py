"""An object store: one root and the objects below it, by obstore; and the translation of obstore's errors."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from errno import EDQUOT, ENOSPC, EROFS
from functools import cached_property

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.exceptions import InvalidPathError as InvalidObstorePath
from obstore.store import AzureStore, GCSStore, S3Store
from obstore.store import ObjectStore as ObstoreStore

from anabranch.errors import (
    AnabranchError,
    InvalidInputError,
    InvalidPathError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from anabranch.storage.options import client_settings, redact
from anabranch.storage.requests import check_process
from anabranch.storage.uris import NO_NAMES, invalid_path, join_uri, split_uri


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its path below the store's root, its size in bytes, and the store's time of the last write."""

    path: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedObject:
    """An object that is ready to be put. `file` is the temporary file that holds its bytes, on local disk."""

    path: str
    data: bytes = field(repr=False)
    file: str | None = None


class ObjectStore:
    """One root and the objects below it: here a bucket, or a folder in one. Paths are relative to it and use `/`.

    An object is durable when the store answers, so the sync methods do nothing.
    """

    # Whether listings are sorted by path.
    lists_sorted = True

    def __init__(self, *, uri: str, storage_options: dict[str, str]) -> None:
        self.uri = uri
        self._options = storage_options

    def __repr__(self) -> str:
        return f"ObjectStore({self.uri!r})"

    def get(self, path: str) -> bytes:
        """Return the content of an object. Raise ObjectNotFoundError if it does not exist."""
        data = self.find(path)
        if data is None:
            raise self._translate(FileNotFoundError(path), path)
        return data

    def find(self, path: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        with self._errors(path):
            try:
                return bytes(obstore.get(self._backend, path).bytes())
            except FileNotFoundError:
                return None

    def head(self, path: str) -> ObjectInfo:
        """Return the size and time of an object. Raise ObjectNotFoundError if it does not exist."""
        with self._errors(path):
            return self._read_info(path)

    def find_info(self, path: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it does not exist."""
        with self._errors(path):
            try:
                return self._read_info(path)
            except FileNotFoundError:
                return None

    def _read_info(self, path: str) -> ObjectInfo:
        meta = obstore.head(self._backend, path)
        return ObjectInfo(path=path, size=meta["size"], modified=meta["last_modified"])

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a range of bytes, which must lie within the object."""
        with self._errors(path):
            return bytes(obstore.get_range(self._backend, path, start=start, length=length))

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the object in chunks, for objects that may not fit into memory."""
        with self._errors(path):
            for chunk in obstore.get(self._backend, path).stream():
                yield bytes(chunk)

    def put(self, path: str, data: bytes, *, durable: bool = True, is_hint: bool = False) -> None:  # noqa: ARG002
        """Put an object, or replace an existing one.

        `durable=False` is for objects whose loss does no harm: on local disk they are not synced. Readers can do
        without an object that `is_hint`: it is not synced either, and may be missing for a moment.
        """
        with self._errors(path):
            obstore.put(self._backend, path, data)

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        """Put an object in chunks. It becomes visible, complete, after the last chunk."""
        with self._errors(path):
            # Do not pass the iterator to obstore.put: it panics if the iterator itself reads from a store.
            writer = obstore.open_writer(self._backend, path)
            for chunk in chunks:
                writer.write(chunk)
            writer.close()

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        durable: bool = True,  # noqa: ARG002
        after: Sequence[str] = (),  # noqa: ARG002
    ) -> None:
        """Put an object. Raise ObjectExistsError if it exists: of several concurrent callers, one succeeds.

        On local disk, the files in `after` (absolute paths) become durable before the object gets its name.
        """
        with self._errors(path):
            obstore.put(self._backend, path, data, mode="create")

    def prepare(self, path: str, data: bytes) -> PreparedObject:
        """Prepare an object for `put_prepared`. On local disk its bytes are written under a temporary name."""
        return PreparedObject(path=path, data=data)

    def put_prepared(self, prepared: PreparedObject) -> None:
        """Put a prepared object. Raise ObjectExistsError if it exists.

        This does not wait for a local disk: the caller syncs `prepared.file` before. A power loss can lose the name.
        """
        self.put_if_absent(prepared.path, prepared.data)

    def discard(self, prepared: PreparedObject) -> None:
        """Delete the temporary file that `prepare` wrote."""

    def sync(self, paths: Sequence[str], *, names: bool = True) -> None:
        """Make files (absolute paths) durable, and the folders that name them. Object stores need no such call.

        Without `names`, only their bytes, for files that get their names later.
        """

    def sync_folders(self, prefixes: Sequence[str]) -> None:
        """Make the deletions in folders durable. Object stores need no such call."""

    def sync_all(self) -> None:
        """Make everything below the root durable, after a large copy. Object stores need no such call."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below a folder: sorted by path on object stores, in any order on local disk."""
        with self._errors(prefix, folder=True):
            for batch in obstore.list(self._backend, prefix or None):
                for meta in batch:
                    yield ObjectInfo(path=meta["path"], size=meta["size"], modified=meta["last_modified"])

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the folders directly in a folder. On local disk, this includes empty folders."""
        with self._errors(prefix, folder=True):
            return tuple(obstore.list_with_delimiter(self._backend, prefix or None)["common_prefixes"])

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Return the objects directly in a folder, without those in its subfolders."""
        with self._errors(prefix, folder=True):
            found = obstore.list_with_delimiter(self._backend, prefix or None)["objects"]
        return tuple(ObjectInfo(path=meta["path"], size=meta["size"], modified=meta["last_modified"]) for meta in found)

    def list_leftovers(self, prefix: str = "") -> Iterator[ObjectInfo]:  # noqa: ARG002 - object stores have none
        """Yield the temporary files of active and of killed writers below a prefix. The other listings omit them."""
        return iter(())

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        try:
            with self._errors(path):
                obstore.delete(self._backend, path)
        # Local disk and some stores report a missing object. Others do not, and callers need the same answer.
        except ObjectNotFoundError:
            return

    @cached_property
    def _backend(self) -> ObstoreStore:
        try:
            scheme, bucket, path = split_uri(self.uri)
            settings = client_settings(self._options)
            kind: Callable[..., ObstoreStore] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
            return kind(
                bucket,
                prefix=path or None,
                config=settings.config,
                client_options=settings.client_options,
                retry_config={"max_retries": settings.max_retries, "retry_timeout": settings.retry_timeout},
            )
        except (BaseError, OSError, TypeError, ValueError) as err:
            raise InvalidInputError(
                f"cannot open {self.uri!r} with these storage options: {_message_of(err, self._options)}",
                hint="correct the storage options",
            ) from None

    @contextmanager
    def _errors(self, path: str, *, folder: bool = False) -> Iterator[None]:
        """Check a path, and translate the errors of a request for it."""
        try:
            self._check(path, folder=folder)
            yield
        except (BaseError, OSError, ValueError) as err:
            raise self._translate(err, path) from None

    def _translate(self, err: Exception, path: str) -> AnabranchError:
        location, message = join_uri(self.uri, path), _message_of(err, self._options)
        return _translate_type(err, location, message) or _translate_message(str(err), location, message)

    def _check(self, path: str, *, folder: bool = False) -> None:
        check_process()
        # The root itself is listed by an empty path.
        if path or not folder:
            names = (path.removesuffix("/") if folder else path).split("/")
            if not NO_NAMES.isdisjoint(names):
                raise invalid_path("/".join(names), root=self.uri)


def _message_of(err: Exception, options: Mapping[str, str]) -> str:
    """Return the message of the store, without the server's XML and the debug output that obstore appends."""
    return redact(re.split(r"\n\nDebug source:|: <\?xml", str(err))[0], options)


def _translate_type(err: Exception, location: str, message: str) -> AnabranchError | None:
    match err:
        case OSError(errno=number) if number in {ENOSPC, EDQUOT}:
            return _full(location)
        case OSError(errno=number) if number == EROFS:
            return _read_only(location)
        case FileNotFoundError():
            return ObjectNotFoundError(f"there is no object {location!r}", hint="check the path")
        case AlreadyExistsError():
            return ObjectExistsError(f"the object {location!r} exists already", hint="choose another path")
        case PermissionDeniedError() | UnauthenticatedError() | PermissionError():
            return _denied(location)
        case InvalidObstorePath() | ValueError() | FileExistsError() | NotADirectoryError():
            return InvalidPathError(f"the path {location!r} cannot be used: {message}", hint="correct the path")
    return None


# obstore has no error types for these, so the texts of the operating system and of the stores decide.
_FULL = re.compile("No space left on device|Disk quota exceeded")
_DENIED = re.compile("403 Forbidden|401 Unauthorized")
_INVALID_PATH = re.compile("Filenames containing|Not a directory|Is a directory|File name too long|KeyTooLong")
_UNREACHABLE = re.compile("error sending request|timed out")


def _translate_message(whole: str, location: str, message: str) -> AnabranchError:
    """Translate by the message alone: the writer of `put_stream` raises plain OSErrors."""
    if _FULL.search(message):
        return _full(location)
    if "Read-only file system" in message:
        return _read_only(location)
    if _DENIED.search(message):
        return _denied(location)
    # In the XML of the answer, which is removed from the message.
    if "NoSuchBucket" in whole:
        return ObjectNotFoundError(f"the bucket of {location!r} does not exist", hint="check the bucket's name")
    if _INVALID_PATH.search(message):
        return InvalidPathError(f"the path {location!r} cannot be used: {message}", hint="correct the path")
    if _UNREACHABLE.search(message):
        return StorageUnavailableError(
            f"the store of {location!r} cannot be reached: {message}", hint="check the endpoint and try again"
        )
    return StorageError(f"a request for {location!r} failed: {message}", hint="see the message of the store")


def _denied(location: str) -> StorageDeniedError:
    return StorageDeniedError(f"the store refused access to {location!r}", hint="check the credentials")


def _full(location: str) -> StorageFullError:
    return StorageFullError(
        f"there is no space left to write {location!r}", hint="free space: gc and the deletion of branches still work"
    )


def _read_only(location: str) -> StorageDeniedError:
    return StorageDeniedError(f"the file system of {location!r} is read-only", hint="mount it with write access")
