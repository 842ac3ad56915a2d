"""A proxy on loopback in front of an S3 server, which lets the nth request go wrong, Lance's own among them."""

import re
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from io import BufferedIOBase
from urllib.parse import urlsplit

_LONGEST_STALL_SECONDS = 30.0
_DELAY_SECONDS = 0.05


class Mishap(StrEnum):
    """What happens to a request."""

    ERROR_500 = "500"  # the server answers with it, and has done nothing
    ERROR_503 = "503"
    DROPPED = "dropped"  # the connection ends before the server hears of the request
    LOST_ANSWER = "lost_answer"  # the server has done it, and the connection ends before its answer
    STALLED = "stalled"  # nothing happens until the client gives up; then the server does it
    DELAYED = "delayed"  # it takes a while


@dataclass(slots=True)
class Plan:
    """Which request meets which mishap: the nth of those wanted, counted from 1."""

    nth: int = 0
    mishap: Mishap = Mishap.ERROR_500
    methods: frozenset[str] = frozenset()
    seen: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_reached(self) -> bool:
        return len(self.seen) >= self.nth > 0

    def judge(self, method: str, path: str) -> Mishap | None:
        if self.methods and method not in self.methods:
            return None
        with self._lock:
            self.seen.append(f"{method} {path}")
            return self.mishap if len(self.seen) == self.nth else None


@dataclass(slots=True)
class Meeting(Plan):
    """Holds the first request of each of some parties back until there is one of all of them.

    A function returns the party a request belongs to, None if it belongs to no party.
    """

    party_of: Callable[[str, str], str | None] = lambda _method, _path: None
    parties: int = 0
    arrived: set[str] = field(default_factory=set)
    has_failed: bool = False
    _all_are_there: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of_requests(cls, pattern: str, count: int) -> "Meeting":
        """A meeting of a given number of different requests that match a pattern, like `PUT .*/data/.*`."""
        wanted = re.compile(pattern)

        def party_of(method: str, path: str) -> str | None:
            return path if wanted.match(f"{method} {path}") else None

        return cls(party_of=party_of, parties=count)

    @property
    def is_held(self) -> bool:
        """Whether all parties were there at the same time."""
        return len(self.arrived) == self.parties and not self.has_failed

    def judge(self, method: str, path: str) -> Mishap | None:
        party = self.party_of(method, path)
        if party is None or self._all_are_there.is_set():
            return None
        with self._lock:
            self.arrived.add(party)
            if len(self.arrived) == self.parties:
                self._all_are_there.set()
        if not self._all_are_there.wait(timeout=60):
            self.has_failed = True
            self._all_are_there.set()
        return None


class Proxy:
    """Carries requests to one server. What goes wrong is the plan's; a new one can be given at any time."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self.server = (parts.hostname or "", parts.port or 80)
        self.plan = Plan()
        self.endpoint = ""


@contextmanager
def proxy_before(endpoint: str) -> Iterator[Proxy]:
    """A proxy that runs inside the context; its `endpoint` is the address to use instead."""
    proxy = Proxy(endpoint)

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            _Carrier(proxy, self.connection, self.rfile).run()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False  # clients keep connections open for later

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer as it came: its first line, and all of its bytes."""

    first: list[str]
    head: bytes
    body: bytes


class _Carrier:
    """One connection of a client, and one to the server for it."""

    def __init__(self, proxy: Proxy, client: socket.socket, incoming: BufferedIOBase) -> None:
        self._proxy = proxy
        self._client = client
        self._incoming = incoming

    def run(self) -> None:
        with socket.create_connection(self._proxy.server) as server, server.makefile("rb") as answers:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while (request := _read(self._incoming)) is not None:
                    if not self._carry(request, server, answers):
                        return
            except OSError:
                return  # a client that went away

    def _carry(self, request: _Message, server: socket.socket, answers: BufferedIOBase) -> bool:
        """Carry a request to the server and its answer back; whether the connection continues."""
        method, path = request.first[0], request.first[1]

        def ask() -> _Message | None:
            server.sendall(request.head + request.body)
            return _read(answers, is_answer_to=method)

        mishap = self._proxy.plan.judge(method, path)
        if mishap is not None and not self._let_happen(mishap, ask):
            return False
        answer = ask()
        if answer is None:
            return False
        self._client.sendall(answer.head + answer.body)
        return b"connection: close" not in answer.head.lower()

    def _let_happen(self, mishap: Mishap, ask: Callable[[], object]) -> bool:
        """Whether the request is to be carried as ever after this."""
        match mishap:
            case Mishap.ERROR_500 | Mishap.ERROR_503:
                head = f"HTTP/1.1 {mishap} Out of order\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                self._client.sendall(head.encode())
            case Mishap.LOST_ANSWER:
                ask()
            case Mishap.STALLED:
                select.select([self._client], [], [], _LONGEST_STALL_SECONDS)  # until the client hangs up
                ask()
            case Mishap.DELAYED:
                time.sleep(_DELAY_SECONDS)
                return True
            case Mishap.DROPPED:
                pass
        return False


def _read(stream: BufferedIOBase, *, is_answer_to: str | None = None) -> _Message | None:
    """The next message of a connection, None if there is none."""
    first = stream.readline()
    if not first.strip():
        return None
    lines = [first]
    while (line := stream.readline()).strip():
        lines.append(line)
    head = b"".join([*lines, line])
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    words = first.decode("latin-1").split()
    has_body = is_answer_to != "HEAD" and not (is_answer_to and words[1] in {"204", "304"})
    return _Message(first=words, head=head, body=_read_body(stream, fields) if has_body else b"")


def _read_body(stream: BufferedIOBase, fields: dict[bytes, bytes]) -> bytes:
    if fields.get(b"transfer-encoding", b"").lower() != b"chunked":
        return stream.read(int(fields.get(b"content-length", b"0")))
    pieces = []
    while True:
        size = stream.readline()
        piece = stream.read(int(size.split(b";")[0], 16) + 2)
        pieces += [size, piece]
        if int(size.split(b";")[0], 16) == 0:
            return b"".join(pieces)
