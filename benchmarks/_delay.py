"""A proxy on loopback that makes a server far away: what clients send arrives later, answers come at once."""

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager

__all__ = ["DelayingProxy"]

CHUNK = 1 << 16
REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) \S+ HTTP/1\.1\r\n")


class DelayingProxy:
    """Passes bytes on after `seconds`, and counts the requests among them.

    The delay is that of a line, not of a queue: a request of many packets is as late as its first one.
    """

    def __init__(self, port: int) -> None:
        self.seconds = 0.0
        self.requests = 0
        self._server_port = port

    @contextmanager
    def running(self) -> Iterator[int]:
        """Listen on a port until the end."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)
        server = asyncio.run_coroutine_threadsafe(starting, loop).result()
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            # Clients keep connections open: the thread ends with the process.
            loop.call_soon_threadsafe(server.close)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._server_port, limit=CHUNK)
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        await _until_one_ends(
            self._receive(client_in, line), _send_when_due(line, server_out), _pass_on(server_in, client_out)
        )
        for writer in (client_out, server_out):
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader, line: asyncio.Queue[tuple[float, bytes]]) -> None:
        while data := await reader.read(CHUNK):
            self.requests += REQUEST.match(data) is not None
            line.put_nowait((asyncio.get_running_loop().time() + self.seconds, data))


async def _send_when_due(line: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    while True:
        due, data = await line.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        writer.write(data)
        await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


async def _until_one_ends(*coroutines: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
