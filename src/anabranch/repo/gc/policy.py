"""The retention policy of garbage collection, and its report."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.repo.log.config import RepoConfig

__all__ = [
    "CollectedObject",
    "DEFAULT_GRACE",
    "GcReport",
    "GcStage",
    "Policy",
    "checked_policy",
    "safe_grace",
]

DEFAULT_GRACE = timedelta(days=1)
# Work whose lease was not renewed for two lease durations does not publish. The third is a margin for slow stores.
_LEASE_DURATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much history stays readable, and how long unreachable data stays (`grace`).

    Without `keep_newer_than` and `keep_last`, the whole history of every branch is kept. With one or both of them,
    every commit that at least one of them covers is kept. The newest commit of every branch and the commits of tags
    and clones are always kept.
    """

    keep_newer_than: timedelta | None = None
    keep_last: int | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_newer_than is None and self.keep_last is None


def safe_grace(config: RepoConfig) -> timedelta:
    """Return the shortest grace period after which a lease has certainly expired."""
    return config.lease * _LEASE_DURATIONS


def checked_policy(
    config: RepoConfig, *, keep_newer_than: timedelta | None, keep_last: int | None, grace: timedelta | None
) -> Policy:
    """Return the policy, or raise InvalidInputError if a value is out of range."""
    shortest = safe_grace(config)
    grace = max(DEFAULT_GRACE, shortest) if grace is None else _duration(grace, "grace")
    if grace < shortest:
        raise InvalidInputError(
            f"a grace period of {grace} is shorter than a lease lasts, so files of active work could be deleted",
            hint=f"pass a grace period of at least {shortest}",
        )
    if keep_last is not None:
        keep_last = checked_number(keep_last, "number of commits to keep", hint="pass an integer of at least 1")
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} commits", hint="pass an integer of at least 1")
    newer = None if keep_newer_than is None else _duration(keep_newer_than, "keep_newer_than")
    return Policy(keep_newer_than=newer, keep_last=keep_last, grace=grace)


def _duration(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta) or value < timedelta():
        raise InvalidInputError(
            f"{name} must be a duration of 0 or more, got {value!r}",
            hint="pass a datetime.timedelta, such as timedelta(days=30)",
        )
    return value


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
