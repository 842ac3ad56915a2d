"""The state of a run, which the log of its hidden branch stores: its phase, and the results of its checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch.ids import BranchName


class RunPhase(StrEnum):
    """The phase of a run. `expired` is not stored: it is a run whose lease has expired."""

    RUNNING = "running"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    ABORTED = "aborted"
    EXPIRED = "expired"


class CheckResult(StrEnum):
    """The result of a check of a run. `unknown` is that of a run that failed before results were recorded."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A check of a run and its result. The SQL is empty if the check is a function.

    `problem` states what a failed check found, such as the first rows.
    """

    name: str
    sql: str
    result: CheckResult
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run, which every entry of its hidden branch contains.

    `origin` is the commit that the run started from, and `main_id` that of main if its target is live. When the run is
    published, `published_after` is the version of the target after which its commit may be found, and `commit_id` is
    that commit. `outcomes` are the checks of the last attempt to publish it, recorded when the run ends.
    """

    target: BranchName
    target_created_as: int
    origin: str
    phase: RunPhase
    metadata: Mapping[str, str] = field(hash=False)
    main_id: str | None = None
    published_after: int | None = None
    commit_id: str | None = None
    error: str | None = None
    outcomes: tuple[CheckOutcome, ...] = ()

    @property
    def started_on(self) -> tuple[str, ...]:
        """The commits whose tables the run started with."""
        return (self.origin,) if self.main_id is None else (self.origin, self.main_id)
