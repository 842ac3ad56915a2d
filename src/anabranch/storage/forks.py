"""Detect a forked child process. In it, the thread pools of obstore and Lance are dead, and a request would hang.

Only a child of a process that used them before the fork is affected: a parent that has imported everything but opened
nothing may fork. New handles in the child do not help, because the pools belong to the process.
"""

import os
from dataclasses import dataclass

from anabranch.errors import ForkError

__all__ = ["check_process"]


@dataclass(slots=True)
class _Process:
    has_used_threads: bool = False
    is_forked: bool = False

    def mark_forked(self) -> None:
        self.is_forked = self.is_forked or self.has_used_threads


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.mark_forked)


def check_process() -> None:
    """Raise ForkError if this process was forked from one that had used a store or a dataset."""
    if _PROCESS.is_forked:
        raise ForkError(
            f"process {os.getpid()} was forked after its parent had opened a repository or dataset",
            hint="start processes with multiprocessing.get_context('spawn'), or fork before anything is opened",
        )
    _PROCESS.has_used_threads = True
