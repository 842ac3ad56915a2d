"""The retention policy: how much history garbage collection keeps."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.repo.log.config import RepoConfig

__all__ = ["DEFAULT_GRACE", "Policy", "checked_policy", "safe_grace"]

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
            f"{name} must be a duration of 0 or more, got {value!r}", hint="pass a datetime.timedelta"
        )
    return value
