"""What doctor reports: values that people read and programs match on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

__all__ = ["DoctorReport", "Finding", "FindingKind", "Report", "Reported", "Severity"]


class Severity(StrEnum):
    """ERROR: something cannot be read. WARNING: leftovers in the way of others. INFO: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class FindingKind(StrEnum):
    """The kinds of things that can be wrong with one dataset; the names are stable."""

    UNREFERENCED_TREE = "unreferenced_tree"
    ZOMBIE_TREE = "zombie_tree"
    MISSING_TREE = "missing_tree"
    MISMATCHED_TREE = "mismatched_tree"
    NO_ORDINARY_VERSION = "no_ordinary_version"
    DAMAGED_REF = "damaged_ref"
    MISSING_REF = "missing_ref"
    STRAY_MANIFEST = "stray_manifest"
    UNOPENABLE = "unopenable"
    DAMAGED_MANIFEST = "damaged_manifest"
    MISSING_FILE = "missing_file"
    WRONG_SIZE = "wrong_size"
    DAMAGED_DELETION_FILE = "damaged_deletion_file"
    UNCHECKED_BASE = "unchecked_base"
    BROKEN_TAG = "broken_tag"
    STALE_BASE = "stale_base"
    ORPHAN_FILES = "orphan_files"
    TEMPORARY_FILES = "temporary_files"
    STRANGERS = "strangers"

    @property
    def severity(self) -> Severity:
        """How bad things of this kind are."""
        return _SEVERITIES.get(self, Severity.ERROR)


_SEVERITIES = {
    FindingKind.UNREFERENCED_TREE: Severity.WARNING,
    FindingKind.ZOMBIE_TREE: Severity.WARNING,
    FindingKind.NO_ORDINARY_VERSION: Severity.WARNING,
    FindingKind.UNCHECKED_BASE: Severity.WARNING,
    FindingKind.ORPHAN_FILES: Severity.INFO,
    FindingKind.TEMPORARY_FILES: Severity.INFO,
    FindingKind.STRANGERS: Severity.INFO,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    `subject` is a path below the dataset root (a URI if it lies elsewhere), `paths` the files concerned. `remedy` says
    what a repair does, or what a person has to do where no repair is safe; `needed_by` who keeps a repair away.
    """

    kind: FindingKind
    subject: str
    explanation: str
    remedy: str
    paths: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    repairable: bool = False
    repaired: bool = False

    @property
    def severity(self) -> Severity:
        """How bad it is, which its kind says."""
        return self.kind.severity


class Reported(Protocol):
    """What every finding tells, whatever it is about."""

    @property
    def severity(self) -> Severity: ...

    @property
    def repairable(self) -> bool: ...

    @property
    def repaired(self) -> bool: ...


F = TypeVar("F", bound=Reported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[F]):
    """What was found, the worst first; what was repaired is marked so."""

    root: str
    findings: tuple[F, ...]

    @property
    def open(self) -> tuple[F, ...]:
        """What is still there."""
        return tuple(finding for finding in self.findings if not finding.repaired)

    @property
    def repaired(self) -> tuple[F, ...]:
        """The findings that were put right."""
        return tuple(finding for finding in self.findings if finding.repaired)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left but what is merely worth knowing."""
        return all(finding.severity is Severity.INFO for finding in self.open)


class DoctorReport(Report[Finding]):
    """What was found in one dataset."""

    __slots__ = ()
