"""What a garbage collection found and did."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CollectedObject", "GcReport", "GcStage"]


class GcStage(StrEnum):
    """What a garbage collection is at, for whoever shows its progress."""

    READING = "reading the history"
    SWEEPING = "going through the tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedObject:
    """One object that nobody needs: its path below the repository's root, its bytes, and why."""

    path: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What was freed, or in a dry run would be.

    `commits` are those whose tables cannot be read any more, `branches` and `runs` those that were over and are ended
    now. `damaged` are files that retained commits need and that are not there: of such tables nothing is deleted.
    `waiting_since` is given where work alive holds back what is younger, in microseconds.
    """

    dry_run: bool
    commits: tuple[str, ...]
    branches: tuple[str, ...]
    runs: tuple[str, ...]
    objects: tuple[CollectedObject, ...]
    damaged: tuple[str, ...]
    retained_commits: int
    tables: int
    waiting_since: int | None = None

    @property
    def bytes(self) -> int:
        """How many bytes that is in all."""
        return sum(found.bytes for found in self.objects)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """How many objects, and bytes, there are for each reason."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.objects:
            count, size = found.get(each.reason, (0, 0))
            found[each.reason] = count + 1, size + each.bytes
        return dict(sorted(found.items()))
