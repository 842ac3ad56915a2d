"""What garbage collection is to keep."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.repo.log.config import RepoConfig

__all__ = ["DEFAULT_GRACE", "Policy", "checked_policy", "safe_grace"]

DEFAULT_GRACE = timedelta(days=1)
# Work that was silent for two leases does not publish any more; the third is for slow stores.
_LEASES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much history stays readable, and for how long what became unreachable does.

    Without `keep_newer_than` and `keep_last` the whole history of every branch is kept; with one of them, what it
    names, and with both, what either names. The newest commit of a branch, tags and clones are always kept.
    """

    keep_newer_than: timedelta | None = None
    keep_last: int | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_newer_than is None and self.keep_last is None


def safe_grace(context: RepoConfig) -> timedelta:
    """The shortest time after which work that gave no sign of life is surely over."""
    return context.lease * _LEASES


def checked_policy(
    context: RepoConfig, *, keep_newer_than: timedelta | None, keep_last: int | None, grace: timedelta | None
) -> Policy:
    shortest = safe_grace(context)
    grace = max(DEFAULT_GRACE, shortest) if grace is None else _duration(grace, "grace")
    if grace < shortest:
        raise InvalidInputError(
            f"a grace of {grace} is shorter than work may be silent for",
            hint=f"give at least {shortest}, so that nothing is taken from work in flight",
        )
    if keep_last is not None:
        keep_last = checked_number(keep_last, "number of commits to keep", hint="give a whole number from 1 on")
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} commits", hint="give a number from 1 on")
    newer = None if keep_newer_than is None else _duration(keep_newer_than, "keep_newer_than")
    return Policy(keep_newer_than=newer, keep_last=keep_last, grace=grace)


def _duration(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta) or value < timedelta():
        raise InvalidInputError(f"{name} is {value!r}, which is no duration", hint="give a datetime.timedelta")
    return value
