"""Let something happen at the worst moment: after a handle read a branch, before it puts the next entry."""

from collections.abc import Callable

import anabranch as ab
from anabranch import testing
from anabranch.repo.log.config import now_in_microseconds


def raced_by(repo: ab.Repository, act: Callable[[ab.Repository], object]) -> ab.Repository:
    """A handle whose next movement races with another writer: a movement reads the clock right before its put."""
    pending = [act]

    def clock() -> int:
        if pending:
            pending.pop()(testing.open(repo))
        return now_in_microseconds()

    return testing.open(repo, clock=clock, branch=repo.branch)
