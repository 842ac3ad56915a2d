"""What an object store is to the rest of the product: objects, and the requests for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

__all__ = ["ObjectInfo", "ObjectStore", "PreparedObject"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its path below the store's root, its size, and when the store last saw it written."""

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

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Put an object, in place of one that is there.

        `durable=False` is for objects whose loss does no harm: on local disk they are not synced.
        """
        ...

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        """Put an object in pieces; it appears whole, after the last one."""
        ...

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        """Raise ObjectExistsError if there is such an object; of many callers one succeeds.

        On local disk, the files in `after` (absolute paths) become durable before the object gets its name.
        """
        ...

    def prepare(self, path: str, data: bytes) -> "PreparedObject":
        """Prepare an object for `put_prepared`. On local disk its bytes are written under a temporary name."""
        ...

    def put_prepared(self, prepared: "PreparedObject") -> None:
        """Put a prepared object. Raise ObjectExistsError if there is such an object.

        On local disk this does not wait for the disk: sync `prepared.file` before, and the name may still be lost.
        """
        ...

    def discard(self, prepared: "PreparedObject") -> None:
        """Remove what `prepare` wrote."""
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
        """Every object below a folder, in no promised order on local disk and sorted elsewhere."""
        ...

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        """The folders right below a folder; local disk also shows those that became empty."""
        ...

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """The objects right in a folder, not those in folders below it."""
        ...

    def list_leftovers(self) -> Iterator[ObjectInfo]:
        """Yield the temporary files of writers at work, and of those that were killed. No other listing has them."""
        ...

    def delete(self, path: str) -> None:
        """Do nothing if there is no such object."""
        ...

    def copy(self, source: str, target: str) -> None: ...
