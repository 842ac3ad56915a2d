"""Let something happen at the worst moment: after a handle looked at a branch, before it puts the next entry."""

from collections.abc import Callable
from dataclasses import replace

import anabranch as ab
from anabranch.repo.log.config import now_in_microseconds
from tests.handles import open_with


def meanwhile(repo: ab.Repository, act: Callable[[ab.Repository], object]) -> ab.Repository:
    """A handle whose next movement somebody else's crosses; whoever moves asks for the time right before the put."""
    pending = [act]

    def clock() -> int:
        if pending:
            pending.pop()(open_with(repo._config))
        return now_in_microseconds()

    return open_with(replace(repo._config, clock=clock), branch=repo.branch)
