"""The interface of an object store: objects, and the requests for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


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


class ObjectStore(Protocol):
    """One root and the objects below it. Paths are relative to the root and use `/`."""

    @property
    def uri(self) -> str: ...

    @property
    def lists_sorted(self) -> bool:
        """Whether listings are sorted by path: true for object stores, false for local disk."""
        ...

    def get(self, path: str) -> bytes:
        """Return the content of an object. Raise ObjectNotFoundError if it does not exist."""
        ...

    def find(self, path: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Return the size and time of an object. Raise ObjectNotFoundError if it does not exist."""
        ...

    def find_info(self, path: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it does not exist."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a range of bytes, which must lie within the object."""
        ...

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the object in chunks, for objects that may not fit into memory."""
        ...

    def put(self, path: str, data: bytes, *, durable: bool = True, is_hint: bool = False) -> None:
        """Put an object, or replace an existing one.

        `durable=False` is for objects whose loss does no harm: on local disk they are not synced. Readers can do
        without an object that `is_hint`: it is not synced either, and may be missing for a moment.
        """
        ...

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        """Put an object in chunks. It becomes visible, complete, after the last chunk."""
        ...

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        """Put an object. Raise ObjectExistsError if it exists: of several concurrent callers, one succeeds.

        On local disk, the files in `after` (absolute paths) become durable before the object gets its name.
        """
        ...

    def prepare(self, path: str, data: bytes) -> PreparedObject:
        """Prepare an object for `put_prepared`. On local disk its bytes are written under a temporary name."""
        ...

    def put_prepared(self, prepared: PreparedObject) -> None:
        """Put a prepared object. Raise ObjectExistsError if it exists.

        On local disk this does not wait for the disk: the caller syncs `prepared.file` before. A power loss can still
        lose the name of the object.
        """
        ...

    def discard(self, prepared: PreparedObject) -> None:
        """Delete the temporary file that `prepare` wrote."""
        ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make files (absolute paths) durable, and the folders that name them. Object stores need no such call."""
        ...

    def sync_folders(self, prefixes: Sequence[str]) -> None:
        """Make the deletions in folders durable. Object stores need no such call."""
        ...

    def sync_all(self) -> None:
        """Make everything below the root durable, after a large copy. Object stores need no such call."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below a folder: sorted by path on object stores, in any order on local disk."""
        ...

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the folders directly in a folder. On local disk, this includes empty folders."""
        ...

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Return the objects directly in a folder, without those in its subfolders."""
        ...

    def list_leftovers(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the temporary files of active and of killed writers below a prefix. The other listings omit them."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        ...

    def copy(self, source: str, target: str) -> None: ...
