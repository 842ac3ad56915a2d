"""Let something happen at the worst moment: after a handle read a branch, before it puts the next entry."""

from collections.abc import Callable
from dataclasses import replace

import anabranch as ab
from anabranch.repo.log.config import now_in_microseconds
from tests.handles import open_with


def raced_by(repo: ab.Repository, act: Callable[[ab.Repository], object]) -> ab.Repository:
    """A handle whose next movement races with another writer: a movement reads the clock right before its put."""
    pending = [act]

    def clock() -> int:
        if pending:
            pending.pop()(open_with(repo._config))
        return now_in_microseconds()

    return open_with(replace(repo._config, clock=clock), branch=repo.branch)
