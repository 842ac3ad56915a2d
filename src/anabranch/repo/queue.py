"""Writers of one table in one process wait for each other instead of preparing work that is lost.

Only a courtesy: whoever cannot wait safely goes on, and publishing decides.
"""

import threading
from dataclasses import dataclass, field

__all__ = ["WriterQueue", "queue_of_this_process"]

# The repository's root, the branch and the table.
Key = tuple[str, str, str]

_PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class _Turn:
    thread: int
    holder: int


@dataclass(slots=True)
class WriterQueue:
    """Who is writing what. Keys are taken in their order, so that two writers never wait for each other."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _turns: dict[Key, _Turn] = field(default_factory=dict)

    def take(self, holder: int, key: Key) -> bool:
        """Wait for a key's turn; whether there was a wait. Gives up where waiting could last for ever."""
        with self._changed:
            if not self._is_taken(holder, key):
                self._turns.setdefault(key, _Turn(threading.get_ident(), holder))
                return False
            held = [other for other, turn in self._turns.items() if turn.holder == holder]
            if any(other > key for other in held) or self._turns[key].thread == threading.get_ident():
                return False
            waited = self._changed.wait_for(lambda: key not in self._turns, timeout=_PATIENCE_SECONDS)
            if waited:
                self._turns[key] = _Turn(threading.get_ident(), holder)
            return waited

    def release(self, holder: int) -> None:
        with self._changed:
            for key in [key for key, turn in self._turns.items() if turn.holder == holder]:
                del self._turns[key]
            self._changed.notify_all()

    def _is_taken(self, holder: int, key: Key) -> bool:
        turn = self._turns.get(key)
        return turn is not None and turn.holder != holder


_QUEUE = WriterQueue()


def queue_of_this_process() -> WriterQueue:
    return _QUEUE
