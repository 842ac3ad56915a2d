"""The frames that the Spark catalog and this process exchange over a Unix socket.

A frame is one byte for its kind, four bytes (big-endian) for the length of its content, and the content:

    J   a JSON object: the request, or the answer to it
    A   a piece of an Arrow IPC stream
    Z   the end of such a stream; empty
    E   an error, as a JSON object: `error` (the class), `problem` and `hint`

A connection carries one request: a J frame, which names the operation in `op`. Where the request brings rows, A frames
and a Z frame follow it. The answer is a J frame, or A frames and a Z frame where it brings rows. An E frame may come
instead of any frame of the answer, also after some rows. Closing the connection cancels the request. There is no
other flow control than that of the socket: who writes waits until the other side has read.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

_HEADER = 5
# Rows are sent in frames of this size at most, so that neither side holds many copies of a large batch.
_ROW_BYTES = 1 << 26
# A longer frame is a mistake. The request that ends a job of many tasks names all their files.
_MOST_BYTES = 1 << 30


class Frame(bytes, Enum):
    """The kinds of frames."""

    JSON = b"J"
    ARROW = b"A"
    END = b"Z"
    ERROR = b"E"


class ProtocolError(ConnectionError):
    """The other side does not follow the protocol, or has gone."""


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
