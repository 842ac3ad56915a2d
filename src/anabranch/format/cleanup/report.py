"""What a cleanup is to keep, and what it found and did."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number

__all__ = [
    "DEFAULT_GRACE",
    "CleanupReason",
    "CleanupReport",
    "RemovedFile",
    "Retention",
    "UnusedInBase",
    "checked_retention",
]

# Longer than a write takes between its first data file and its commit.
DEFAULT_GRACE = timedelta(days=1)


class CleanupReason(StrEnum):
    """Why a file is removed."""

    VERSION = "version that is not kept"
    UNUSED = "file of no kept version"
    UNFINISHED = "unfinished write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which versions stay.

    Without `keep_last` and `keep_newer_than` every version stays; with one of them, the versions that it names; with
    both, the versions that either names. Nothing younger than `grace` is removed.
    """

    keep_last: int | None = None
    keep_newer_than: timedelta | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_last is None and self.keep_newer_than is None


def checked_retention(
    *, keep_last: int | None = None, keep_newer_than: timedelta | None = None, grace: timedelta | None = None
) -> Retention:
    """Check what a caller wants to keep."""
    if keep_last is not None:
        keep_last = checked_number(keep_last, "number of versions to keep", hint="give a whole number, at least 1")
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} versions", hint="give a number, at least 1")
    return Retention(
        keep_last=keep_last,
        keep_newer_than=None if keep_newer_than is None else _duration(keep_newer_than, "keep_newer_than"),
        grace=DEFAULT_GRACE if grace is None else _duration(grace, "grace"),
    )


def _duration(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta) or value < timedelta():
        raise InvalidInputError(f"{name} must be a duration, got {value!r}", hint="give a datetime.timedelta")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """One file; `path` is below the dataset's root, or a whole address for a file in a base."""

    path: str
    bytes: int
    reason: CleanupReason


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedInBase:
    """Files in a base that no kept version needs and that stay, because the base was not named for cleanup."""

    name: str
    path: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What was removed, or in a dry run would be.

    `versions` are the removed versions, each as (branch, version), and `kept` is the number of versions that stay.
    `too_young` is how many of these stay only because of the grace period. `damaged` are files that kept versions need
    and that are missing or unreadable: if there are any, nothing is removed.
    """

    dry_run: bool
    versions: tuple[tuple[str, int], ...]
    files: tuple[RemovedFile, ...]
    kept: int
    too_young: int
    unused_in_bases: tuple[UnusedInBase, ...]
    damaged: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all removed files."""
        return sum(file.bytes for file in self.files)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """The number of files, and their bytes, by reason."""
        found: dict[str, tuple[int, int]] = {}
        for file in self.files:
            count, size = found.get(file.reason, (0, 0))
            found[file.reason] = count + 1, size + file.bytes
        return dict(sorted(found.items()))
