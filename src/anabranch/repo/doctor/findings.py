"""The findings of doctor: values for people to read and for programs to match on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch.format.doctor.findings import Report, Severity

__all__ = ["Case", "FindingKind", "Placement", "RepositoryFinding", "RepositoryReport", "Severity", "unknown_file"]


class FindingKind(StrEnum):
    """The kinds of problems. The names are stable."""

    MISSING_MARK = "missing_mark"
    DAMAGED_MARK = "damaged_mark"
    DAMAGED_COPY = "damaged_copy"
    DAMAGED_RECORD = "damaged_record"
    NEWER_FORMAT = "newer_format"
    MISSING_BRANCH = "missing_branch"
    LOG_GAP = "log_gap"
    DAMAGED_ENTRY = "damaged_entry"
    TORN_ENTRY = "torn_entry"
    MISPLACED_ENTRY = "misplaced_entry"
    WRONG_HINT = "wrong_hint"
    DAMAGED_HINT = "damaged_hint"
    MISSING_COMMIT = "missing_commit"
    DAMAGED_COMMIT = "damaged_commit"
    DIFFERENT_COMMIT = "different_commit"
    WRONG_ORDER = "wrong_order"
    FUTURE_TIME = "future_time"
    BROKEN_TAG = "broken_tag"
    MISSING_DATASET = "missing_dataset"
    SYMBOLIC_LINK = "symbolic_link"
    MISSING_HOME = "missing_home"
    MISSING_REF = "missing_ref"
    DAMAGED_REF = "damaged_ref"
    MISSING_VERSION = "missing_version"
    DAMAGED_MANIFEST = "damaged_manifest"
    MISSING_DATA_FILE = "missing_data_file"
    MISSING_DELETION_FILE = "missing_deletion_file"
    DAMAGED_DELETION_FILE = "damaged_deletion_file"
    MISSING_INDEX = "missing_index"
    DAMAGED_INDEX = "damaged_index"
    WRONG_SIZE = "wrong_size"
    STALE_BASE = "stale_base"
    MISSING_BASE = "missing_base"
    UNCHECKED_BASE = "unchecked_base"
    WRONG_ROW_COUNT = "wrong_row_count"
    UNREADABLE_ROWS = "unreadable_rows"
    DUPLICATE_KEYS = "duplicate_keys"
    NULL_KEYS = "null_keys"
    EXTERNAL_WRITE = "external_write"
    UNSETTLED_HOME = "unsettled_home"
    DAMAGED_HISTORY = "damaged_history"
    DEAD_LEASE = "dead_lease"
    UNFINISHED_FORK = "unfinished_fork"
    UNKNOWN_FILE = "unknown_file"

    @property
    def severity(self) -> Severity:
        """The severity of findings of this kind."""
        return _SEVERITIES.get(self, Severity.ERROR)


_SEVERITIES = {
    FindingKind.DAMAGED_HINT: Severity.INFO,
    FindingKind.DAMAGED_COPY: Severity.INFO,
    FindingKind.WRONG_ORDER: Severity.WARNING,
    FindingKind.FUTURE_TIME: Severity.WARNING,
    FindingKind.MISSING_REF: Severity.WARNING,
    FindingKind.DAMAGED_REF: Severity.WARNING,
    FindingKind.UNCHECKED_BASE: Severity.WARNING,
    FindingKind.EXTERNAL_WRITE: Severity.WARNING,
    # A crash right after a commit leaves this. Nothing is lost, and the next commit to the table settles it.
    FindingKind.UNSETTLED_HOME: Severity.INFO,
    FindingKind.DAMAGED_HISTORY: Severity.WARNING,
    FindingKind.DEAD_LEASE: Severity.INFO,
    FindingKind.UNFINISHED_FORK: Severity.INFO,
    FindingKind.UNKNOWN_FILE: Severity.INFO,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFinding:
    """One problem in a repository.

    `subject` is a path below the repository's root, `paths` are further files with the same problem. `refs` are the
    branches, tags, runs and versions of branches that cannot be read, or whose `tables` cannot be read. `commits` are
    the ids of such commits. `remedy` states what a repair does or, if no repair is safe, what the user has to do.
    """

    kind: FindingKind
    subject: str
    explanation: str
    remedy: str
    tables: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    repairable: bool = False
    repaired: bool = False

    @property
    def severity(self) -> Severity:
        """The severity of this kind of finding."""
        return self.kind.severity


class RepositoryReport(Report[RepositoryFinding]):
    """The findings of a whole repository, the most severe first."""

    __slots__ = ()

    @classmethod
    def of(cls, root: str, findings: Iterable[RepositoryFinding]) -> "RepositoryReport":
        order = list(Severity)
        return cls(root=root, findings=tuple(sorted(findings, key=lambda one: order.index(one.severity))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The location of one state of a table: a version in a home of a dataset."""

    dataset: str
    home: str | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A finding, its repair if there is a safe one, and the table states that cannot be read because of it.

    `repair` checks the problem again right before it writes, and returns whether it changed anything.
    """

    finding: RepositoryFinding
    repair: Callable[[], bool] | None = None
    placements: frozenset[Placement] = field(default_factory=frozenset)


def unknown_file(path: str) -> Case:
    """Return the case of a file or folder that does not belong to a repository."""
    finding = RepositoryFinding(
        kind=FindingKind.UNKNOWN_FILE,
        subject=path,
        explanation="Anabranch does not use this name",
        remedy="none: doctor does not change it, and it does no harm",
    )
    return Case(finding=finding)
