"""The commits that a walk of the commit graph visits next, by descending generation."""

from collections import Counter
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

# From which of the two commits a commit was reached. A commit below a base is reached from both, but is not a base.
OURS, THEIRS = 1, 2
BOTH = OURS | THEIRS
BELOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """A commit to visit. If it is not read yet, `generation` is an upper bound."""

    commit_id: str
    generation: int


class CommitQueue:
    """Commits to visit by descending generation, each once, with the sides they were reached from."""

    def __init__(self) -> None:
        self.reached: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        # The number of queued commits for each combination of sides.
        self._queued: Counter[int] = Counter()

    @property
    def generation(self) -> int:
        """The highest generation that the next commit can have."""
        return -self._heap[0][0]

    def peek(self) -> str | None:
        return self._heap[0][1] if self._heap else None

    def add(self, tip: Tip, reached: int) -> None:
        before = self.reached.get(tip.commit_id)
        if before is None:
            heappush(self._heap, (-tip.generation, tip.commit_id))
        else:
            # It is still queued, because a commit is visited only after all of its descendants.
            self._queued[before] -= 1
        self.reached[tip.commit_id] = now = reached | (before or 0)
        self._queued[now] += 1

    def put_back(self, generation: int) -> None:
        """Queue the next commit again with its real generation, which is lower than the bound."""
        heapreplace(self._heap, (-generation, self._heap[0][1]))

    def drop(self) -> None:
        _, commit_id = heappop(self._heap)
        self._queued[self.reached[commit_id]] -= 1

    def has_one_sided(self) -> bool:
        """Return whether a commit is queued that only one side has reached so far."""
        return self._queued[OURS] > 0 or self._queued[THEIRS] > 0

    def can_meet(self) -> bool:
        """Return whether a common ancestor that is not below another one can still be found."""
        is_open = self._queued[OURS] > 0 and self._queued[THEIRS] > 0
        return bool(self._heap) and (self._queued[BOTH] > 0 or is_open)
