"""HTTP connections that must send the head of a request, and the rest of a refused body, in time."""

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch.server.settings import Limits

__all__ = ["make_protocol"]

_CROWDED_SECONDS = 1.0
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """An HTTP connection with a time limit for the head of each request, which uvicorn does not have.

    The same limit holds for the rest of a body whose request was answered before it arrived completely. uvicorn
    discards that rest, so that the client reads the answer instead of a reset connection.
    While too many connections wait, each further one gets a shorter limit, so that they do not use up the open files.
    """

    limits: ClassVar[Limits]
    waiting: ClassVar[set["TimedProtocol"]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            if self._deadline is not None and not self._is_answered:
                self._stop_waiting()
        elif self.conn.trailing_data[0]:
            if self._deadline is None:  # the first part of the next head on a connection that was kept alive
                self._start_waiting()
        elif self._is_answered:
            # The rest of a refused body has arrived. uvicorn stopped its own timer when it did.
            self._stop_waiting()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._start_waiting()
        elif self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        # uvicorn's annotation leaves out that there is no cycle before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _start_waiting(self) -> None:
        self._stop_waiting()
        seconds = self.limits.head_seconds
        if len(self.waiting) >= self.limits.half_sent_heads:
            seconds = min(seconds, _CROWDED_SECONDS)
        self._deadline = self.loop.call_later(seconds, self._time_out)
        self.waiting.add(self)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.waiting.discard(self)

    def _time_out(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(_TIMED_OUT)
        self.transport.close()


def make_protocol(limits: Limits) -> type[TimedProtocol]:
    """Return the protocol of one server: its connections share the limits and the set of waiting ones."""
    return type("ServiceProtocol", (TimedProtocol,), {"limits": limits, "waiting": set()})
