"""One request of the catalog: its arguments, the ways to answer it, and version refs and schemas as JSON."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from anabranch.format.home import Home
from anabranch.format.splits import Split
from anabranch.format.staging import VersionRef
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.frames import Frames
from anabranch.spark.options import OpenRepository

__all__ = [
    "Request",
    "schema_from_text",
    "schema_to_text",
    "split_from_json",
    "split_to_json",
    "version_ref_from_json",
    "version_ref_to_json",
]


# The most that a batch should have in the memory of a JVM, which may have little of it beside its heap.
_BYTES_PER_BATCH = 64 << 20


class Request:
    """The arguments of a request, by name. An argument that is missing is an error of the catalog, a KeyError."""

    def __init__(self, arguments: Mapping[str, Any], frames: Frames, open_repository: OpenRepository) -> None:
        self._arguments = arguments
        self._frames = frames
        self._open_repository = open_repository
        self._pieces: Iterator[bytes] = iter(())

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        found = self._arguments.get(name)
        return default if found is None else found

    @property
    def storage_options(self) -> Mapping[str, str]:
        options: Mapping[str, str] = self.get("storage_options", {})
        return options

    @cached_property
    def repository(self) -> Repository:
        return self._open_repository(self["repo"], actor=self.get("actor"), storage_options=self.storage_options)

    def open(self, uri: str, storage_options: Mapping[str, str]) -> Repository:
        """Open a repository that the request names in another way."""
        return self._open_repository(uri, actor=self.get("actor"), storage_options=storage_options)

    def send_rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Answer with rows, each batch as soon as there is one. Large batches are cut: a JVM has to hold each whole."""
        self._frames.send_arrow(schema.serialize())
        for batch in batches:
            for piece in _cut(batch):
                self._frames.send_arrow(piece.serialize())
        self._frames.send_end()

    def unless_cancelled(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on until the JVM closes the connection: who does not send rows would not notice it."""
        for batch in batches:
            self._frames.check_connected()
            yield batch

    def read_rows(self) -> pa.RecordBatchReader:
        """Read the rows that follow the request."""
        self._pieces = self._frames.read_arrow()
        return pa.ipc.open_stream(pa.PythonFile(_Pieces(self._pieces), mode="r"))

    def drain(self) -> None:
        """Read what is left of the rows: Arrow knows their end before the frames do."""
        for _ in self._pieces:
            pass


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its pieces are not too large, or have one row."""
    if batch.nbytes <= _BYTES_PER_BATCH or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


class _Pieces:
    """Pieces of bytes as a file that is read from its beginning to its end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = memoryview(b"")
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        parts: list[memoryview] = []
        # A negative count asks for all bytes, and never becomes 0.
        missing = count
        while missing != 0:
            if not self._held:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._held = memoryview(piece)
            part = self._held if missing < 0 else self._held[:missing]
            self._held = self._held[len(part) :]
            parts.append(part)
            missing -= len(part) if missing > 0 else 0
        return b"".join(parts)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def version_ref_to_json(version_ref: VersionRef) -> dict[str, Any]:
    home = version_ref.home
    return {
        "root": home.root,
        "branch": home.branch,
        # As text: staged versions are larger than the integers that every JSON reader keeps exact.
        "version": str(version_ref.version),
        "recorded_root": home.recorded_root,
    }


def version_ref_from_json(found: Mapping[str, Any], storage_options: Mapping[str, str]) -> VersionRef:
    home = Home.at(found["root"], storage_options).on(found["branch"])
    home = replace(home, recorded_root=found["recorded_root"])
    return VersionRef(home=home, version=int(found["version"]))


def split_to_json(split: Split) -> dict[str, Any]:
    return {"fragments": list(split.fragments), "offset": split.offset, "rows": split.rows}


def split_from_json(found: Mapping[str, Any]) -> Split:
    return Split(fragments=tuple(found["fragments"]), offset=found["offset"], rows=found["rows"])


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
