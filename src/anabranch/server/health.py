"""Whether the metadata database can be read, checked at most once a second."""

import asyncio
import logging
import time

import duckdb

from anabranch.server.metadata.database import Database

__all__ = ["HealthCheck"]

_log = logging.getLogger("anabranch.server")
_VALID_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


class HealthCheck:
    """Reads the database in a thread and keeps the result for a second, so that most requests cost no SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._check: asyncio.Task[bool] | None = None
        self._checked_at = 0.0

    async def is_healthy(self) -> bool:
        """Return whether the database answered within the last second, or answers now."""
        check = self._check
        if check is None or (check.done() and time.monotonic() - self._checked_at >= _VALID_SECONDS):
            # Not `run_in_threadpool`: its threads may all be busy with requests.
            check = self._check = asyncio.create_task(asyncio.to_thread(self._read))
        if not check.done():
            await asyncio.wait([check], timeout=_TIMEOUT_SECONDS)
        return check.done() and check.result()

    def _read(self) -> bool:
        try:
            self._database.read("SELECT 1")
        except duckdb.Error:
            _log.exception("the metadata database cannot be read")
            return False
        finally:
            self._checked_at = time.monotonic()
        return True
