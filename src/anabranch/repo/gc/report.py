"""The report of a garbage collection."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CollectedObject", "GcReport", "GcStage"]


class GcStage(StrEnum):
    """What a garbage collection counts: the two parts of the history that it reads first, then tables."""

    READING = "history"
    SWEEPING = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedObject:
    """One unneeded object: its path below the repository's root, its size in bytes, and the reason."""

    path: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a garbage collection deleted, or what it would delete in a dry run.

    `commits` are the collected commits: their tables cannot be read any more. `branches` are the deleted branches past
    their expiry time, `runs` the expired runs that were marked as failed. `damaged` are missing files that retained
    commits need; nothing is deleted in such a table. `waiting_since` is set if active work prevents the deletion of
    younger files: the time when the work began, in microseconds.
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
        """The total size of the objects in bytes."""
        return sum(found.bytes for found in self.objects)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """The number of objects and their bytes, by reason."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.objects:
            count, size = found.get(each.reason, (0, 0))
            found[each.reason] = count + 1, size + each.bytes
        return dict(sorted(found.items()))
