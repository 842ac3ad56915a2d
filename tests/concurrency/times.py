"""Which version of each branch was known at which time."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Known:
    """From a time on, every reader of a branch has to see this version or a later one."""

    branch: str
    number: int
    since: int


class Times:
    def __init__(self, known: Iterable[Known]) -> None:
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for one in known:
            found[one.branch].append((one.since, one.number))
        self._since: dict[str, list[int]] = {}
        self._highest: dict[str, list[int]] = {}
        for branch, times in found.items():
            times.sort()
            self._since[branch] = [since for since, _ in times]
            self._highest[branch] = list(accumulate((number for _, number in times), max))

    def known(self, branch: str, at: int) -> int:
        """The newest version that every process had to know of at a time; 0 if there was none."""
        index = bisect_right(self._since.get(branch, []), at)
        return self._highest[branch][index - 1] if index else 0
