"""A proxy in front of an S3 server that holds requests back until some of them are under way at the same time."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["GatheringProxy"]

_CHUNK = 1 << 16


class GatheringProxy:
    """Pass bytes on. While `gather` runs, hold requests that match a pattern until a number of them have arrived.

    A program that sends them one after the other waits for ever, and its test fails by its timeout.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._pattern: re.Pattern[bytes] | None = None
        self._missing = 0
        self._complete = asyncio.Event()

    @contextmanager
    def running(self) -> Iterator[int]:
        """Listen on a port until the end."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        server = asyncio.run_coroutine_threadsafe(starting, loop).result()
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            loop.call_soon_threadsafe(server.close)

    @contextmanager
    def gather(self, pattern: str, count: int) -> Iterator[None]:
        """Hold requests whose first line matches until there are `count`; fail if there were fewer."""
        self._pattern, self._missing, self._complete = re.compile(pattern.encode()), count, asyncio.Event()
        yield
        assert self._missing <= 0, f"{self._missing} of {count} requests {pattern!r} did not come"
        self._pattern = None

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._server_port, limit=_CHUNK)
        await asyncio.gather(
            self._pass_on(client_in, server_out, is_request=True), self._pass_on(server_in, client_out)
        )

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool = False
    ) -> None:
        while data := await reader.read(_CHUNK):
            if is_request and self._pattern is not None and self._pattern.match(data.split(b"\r\n", 1)[0]):
                self._missing -= 1
                if self._missing == 0:
                    self._complete.set()
                await self._complete.wait()
            writer.write(data)
            await writer.drain()
        writer.close()
