"""Requests of the Spark catalog, sent over a Unix socket in frames: their arguments, rows and answers.

A frame is one byte for its kind, four bytes (big-endian) for the length of its content, and the content:

    J   a JSON object: the request, or the answer to it
    A   a piece of an Arrow IPC stream
    Z   the end of such a stream; empty
    E   an error, as a JSON object: `error` (the class), `problem` and `hint`

A connection carries one request: a J frame, which names the operation in `op`. If the request has rows, A frames and a
Z frame follow. The answer is a J frame, or for rows A frames and a Z frame. An E frame may come instead of any frame of
the answer, also after some rows. Closing the connection cancels the request. There is no other flow control than that
of the socket: the writer waits until the other side has read.

A table name in Spark SQL is `bucket.table`, then a state to read, then a metadata table.
"""

import base64
import io
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, InvalidNameError, TableNotFoundError
from anabranch.files.sources import ChunkStream
from anabranch.format.splits import Split
from anabranch.ids import TableKey
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.options import OpenRepository

_HEADER = 5
# Rows are sent in frames of this size at most, so that neither side holds many copies of a large batch.
_ROW_BYTES = 1 << 26
# A longer frame is a mistake. The request that ends a job of many tasks names all their files.
_MOST_BYTES = 1 << 30
# The maximum size of a batch in the memory of a JVM, which may have little memory outside its heap.
_BYTES_PER_BATCH = 64 << 20


class Frame(bytes, Enum):
    """The kinds of frames."""

    JSON = b"J"
    ARROW = b"A"
    END = b"Z"
    ERROR = b"E"


class ProtocolError(ConnectionError):
    """The other side does not follow the protocol, or has disconnected."""


class Frames:
    """Frames in both directions over one connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read_json(self) -> dict[str, Any]:
        """Read the request."""
        kind, content = self._read()
        if kind is not Frame.JSON:
            raise ProtocolError(f"a request begins with the frame {kind.value!r}")
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ProtocolError("a request is not a JSON object")
        return found

    def read_arrow(self) -> Iterator[bytes]:
        """Read the pieces of an Arrow stream up to its end."""
        while True:
            kind, content = self._read()
            if kind is Frame.END:
                return
            if kind is not Frame.ARROW:
                raise ProtocolError(f"rows are cut short by the frame {kind.value!r}")
            yield content

    def check_connected(self) -> None:
        """Raise ProtocolError if the other side has closed the connection, which cancels the request."""
        try:
            is_closed = not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # there is nothing to read
        if is_closed:
            raise ProtocolError("the request was cancelled")

    def send_json(self, answer: Mapping[str, Any]) -> None:
        self._send(Frame.JSON, json.dumps(answer).encode())

    def send_arrow(self, piece: Any) -> None:
        """Send bytes of an Arrow stream, in frames of bounded length."""
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), _ROW_BYTES):
            self._send(Frame.ARROW, view[start : start + _ROW_BYTES])

    def send_end(self) -> None:
        self._send(Frame.END, b"")

    def send_error(self, error: Mapping[str, str]) -> None:
        self._send(Frame.ERROR, json.dumps(error).encode())

    def _send(self, kind: Frame, content: Any) -> None:
        view = memoryview(content).cast("B")
        header = kind.value + len(view).to_bytes(4, "big")
        # One call for both parts, without a copy of the content. It may send only the beginning.
        sent = self._socket.sendmsg([header, view])
        if sent < _HEADER:
            self._socket.sendall(header[sent:])
            sent = _HEADER
        if sent < _HEADER + len(view):
            self._socket.sendall(view[sent - _HEADER :])

    def _read(self) -> tuple[Frame, bytes]:
        header = self._receive(_HEADER)
        try:
            kind = Frame(header[:1])
        except ValueError:
            raise ProtocolError(f"a frame has the kind {header[:1]!r}") from None
        length = int.from_bytes(header[1:], "big")
        if length > _MOST_BYTES:
            raise ProtocolError(f"a frame has {length} bytes")
        return kind, self._receive(length)

    def _receive(self, count: int) -> bytes:
        received = bytearray(count)
        view = memoryview(received)
        at = 0
        while at < count:
            got = self._socket.recv_into(view[at:])
            if not got:
                raise ProtocolError("the connection was closed in the middle of a request")
            at += got
        return bytes(received)


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
        return self.open(self["repo"], self.storage_options)

    def open(self, uri: str, storage_options: Mapping[str, str]) -> Repository:
        """Open a repository that the request names in another way."""
        return self._open_repository(uri, actor=self.get("actor"), storage_options=storage_options)

    def send_rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Send each batch of rows when it is ready. Cut large batches: a JVM needs memory for a whole batch."""
        self._frames.send_arrow(schema.serialize())
        for batch in batches:
            for piece in _cut(batch):
                self._frames.send_arrow(piece.serialize())
        self._frames.send_end()

    def unless_cancelled(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches until the JVM closes the connection. Otherwise that is detected only when rows are sent."""
        for batch in batches:
            self._frames.check_connected()
            yield batch

    def read_rows(self) -> pa.RecordBatchReader:
        """Read the rows that follow the request."""
        self._pieces = self._frames.read_arrow()
        # Buffered, because Arrow treats a short read as the end of the stream.
        return pa.ipc.open_stream(io.BufferedReader(ChunkStream(self._pieces)))

    def drain(self) -> None:
        """Read the remaining frames: Arrow stops at the end of the rows, before the last frame."""
        for _ in self._pieces:
            pass


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its pieces are small enough, or have one row."""
    if batch.nbytes <= _BYTES_PER_BATCH or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def split_from_json(found: Mapping[str, Any]) -> Split:
    return Split(fragments=tuple(found["fragments"]), offset=found["offset"], rows=found["rows"])


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def columns_of(texts: str = "", *, longs: str = "", flags: str = "") -> pa.Schema:
    """Return the columns of an answer by their types. The names are separated by spaces."""
    kinds = ((texts, pa.string()), (longs, pa.int64()), (flags, pa.bool_()))
    return pa.schema([(name, kind) for names, kind in kinds for name in names.split()])


def values_of(found: object, names: str, **others: Any) -> dict[str, Any]:
    """Return attributes of a value as columns of their names, which are separated by spaces, and other columns."""
    return {**{name: getattr(found, name) for name in names.split()}, **others}


METADATA_TABLES = ("history", "changes", "files", "refs", "nearest")
_BRANCH, _TAG, _COMMIT = "branch_", "tag_", "commit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table, the state to read, and the metadata table, if any.

    `branch` is the branch to write to; None for a state that never changes.
    """

    key: TableKey
    ref: str
    branch: str | None
    metadata: str | None = None


def name_of(request: Request) -> TableName:
    """Return the table that a request names, with the state of VERSION or TIMESTAMP AS OF."""
    return parse_name(
        _full_parts(request), branch=request["branch"], version=request.get("version"), time=request.get("time")
    )


def new_name_of(request: Request) -> TableKey:
    """Return the new name after RENAME TO."""
    return _parse_new_name(
        request["new_parts"], old=_full_parts(request), given=request["parts"], catalog=request["catalog"]
    )


def _full_parts(request: Request) -> list[str]:
    """Return the parts of a name with its bucket in front: after USE, `orders.history` may lack it.

    A table `history` of a bucket `orders` has precedence.
    """
    parts, namespace = request["parts"], request.get("namespace", [])
    if len(namespace) == 1 and len(parts) in (2, 3) and _is_selector(parts[-1]) and _is_selector(parts[1]):
        key = ".".join(parts[:2])
        if key not in EngineAccess(request.repository).published_snapshot_of(request["branch"]):
            return [*namespace, *parts]
    return list(parts)


def _is_selector(part: str) -> bool:
    """Return whether a part of a name may follow a table: a state, or a metadata table."""
    return part in METADATA_TABLES or part.startswith((_BRANCH, _TAG, _COMMIT))


def parse_name(parts: list[str], *, branch: str, version: str | None = None, time: int | None = None) -> TableName:
    """Parse `bucket.table[.branch_X | .tag_X | .commit_X][.history]`, with the state of VERSION or TIMESTAMP AS OF.

    `branch` is the default if the name has none. `time` is in microseconds since 1970.
    """
    key, selector, metadata = _split_name(parts)
    selector = f"{_BRANCH}{branch}" if selector is None else selector
    if selector.startswith(_BRANCH):
        return _on_branch(key, selector.removeprefix(_BRANCH), metadata, version=version, time=time)
    if version is not None or time is not None:
        raise InvalidNameError(
            f"{selector!r} is one state already, so that it has no version", hint="leave VERSION AS OF out"
        )
    ref = selector.removeprefix(_TAG).removeprefix(_COMMIT)
    return TableName(key=key, ref=ref, branch=None, metadata=metadata)


def _split_name(parts: list[str]) -> tuple[TableKey, str | None, str | None]:
    """Return the table, the state to read and the metadata table that a name has."""
    if len(parts) < 2:
        raise TableNotFoundError(f"{'.'.join(parts)!r} has no bucket", hint="name it 'bucket.table'")
    key, rest = TableKey.parse(".".join(parts[:2])), parts[2:]
    metadata = rest.pop() if rest and rest[-1] in METADATA_TABLES else None
    selector = rest.pop(0) if rest else None
    # Not as TableNotFoundError: Spark would replace it by its own error, without the hint.
    if rest:
        raise InvalidNameError(f"'{'.'.join(parts)}' has too many parts", hint="name it 'bucket.table.branch_dev'")
    if selector is not None and not selector.startswith((_BRANCH, _TAG, _COMMIT)):
        raise InvalidNameError(
            f"'{'.'.join(parts)}' ends with {selector!r}",
            hint=f"write {key}.branch_{selector} for a branch, or end it with tag_NAME, commit_ID, "
            f"{' or '.join([', '.join(METADATA_TABLES[:-1]), METADATA_TABLES[-1]])}",
        )
    return key, selector, metadata


def _parse_new_name(parts: list[str], *, old: list[str], given: list[str], catalog: str) -> TableKey:
    """Parse the name after RENAME TO: `table`, `bucket.table`, with the catalog before or the same branch after it.

    Spark prepends all parts of the given old name except the last one to a new name of one part.
    `old` is the old name with its bucket.
    """
    # From `bucket.table.branch_dev` and the name `new`, Spark makes `bucket.table.new`: the new name of the table is in
    # the position of the branch.
    if parts[:-1] == given[:-1] and not parts[-1].startswith(_BRANCH):
        return TableKey.parse(f"{old[0]}.{parts[-1]}")
    if len(given) < len(old) and parts[1:] == old[-1:]:
        parts = [old[0], *parts]  # after USE, `table.branch_dev`
    # Spark removes the catalog from the old name only.
    if len(parts) > 2 and parts[0] == catalog:
        parts = parts[1:]
    # The branch may be repeated. Another branch stays in the name and is refused: a rename does not move a table.
    if parts[2:] == old[2:3]:
        parts = parts[:2]
    if len(parts) != 2:
        raise InvalidInputError(
            f"a table cannot be renamed to '{'.'.join(parts)}'",
            hint="a rename stays in the catalog and on the branch: write RENAME TO bucket.table",
        )
    return TableKey.parse(".".join(parts))


def branch_of(name: TableName) -> str:
    """Return the branch to commit to. Refuse a state that never changes, and a metadata table."""
    if name.branch is None or name.metadata is not None:
        raise InvalidInputError(
            f"'{name.key}' at '{name.ref}' is read-only", hint=f"name a table of a branch, as in {name.key}.branch_main"
        )
    return name.branch


def _on_branch(key: TableKey, branch: str, metadata: str | None, *, version: str | None, time: int | None) -> TableName:
    if time is not None:
        moment = datetime.fromtimestamp(time / 1_000_000, UTC)
        return TableName(key=key, ref=f"{branch}@{{{moment.isoformat()}}}", branch=None, metadata=metadata)
    if version is None:
        return TableName(key=key, ref=branch, branch=branch, metadata=metadata)
    # A number is a version of the branch, as in 'main@v7'; anything else is a ref by itself.
    ref = f"{branch}@v{version}" if version.isascii() and version.isdigit() else version
    return TableName(key=key, ref=ref, branch=None, metadata=metadata)
