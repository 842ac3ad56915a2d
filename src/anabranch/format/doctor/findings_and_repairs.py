"""The findings of doctor, of one dataset and of a whole repository: one type, one report, one way to repair.

`Repairs` are the repairs of a dataset: small steps that read the files again right before they change anything.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from uuid import uuid4

from anabranch.errors import BusyError, ConflictError, CorruptError, NotFoundError
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import (
    ALL_MANIFESTS,
    VERSION_HINT,
    LayoutFile,
    LayoutKind,
    branch_ref_path,
    manifest_of_path,
    pending_manifest_of_path,
)
from anabranch.format.refs.ref_files import camel_case, lineage_of
from anabranch.format.staging.manifests import Origin
from anabranch.storage import put_once

Repair = Callable[[], object]

# A repair can reveal further problems, such as those of a branch whose log or metadata can be read again.
_ROUNDS = 5


class Severity(StrEnum):
    """ERROR: something cannot be read. WARNING: leftovers that obstruct others. INFO: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class FindingKind(StrEnum):
    """The kinds of problems. The names are stable."""

    # A repository and its logs.
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
    UNFINISHED_RENAME = "unfinished_rename"
    DAMAGED_HISTORY = "damaged_history"
    DEAD_LEASE = "dead_lease"
    # The tables of a repository.
    MISSING_DATASET = "missing_dataset"
    SYMBOLIC_LINK = "symbolic_link"
    MISSING_HOME = "missing_home"
    MISSING_VERSION = "missing_version"
    MISSING_BASE = "missing_base"
    WRONG_ROW_COUNT = "wrong_row_count"
    UNREADABLE_ROWS = "unreadable_rows"
    DUPLICATE_KEYS = "duplicate_keys"
    NULL_KEYS = "null_keys"
    EXTERNAL_WRITE = "external_write"
    UNSETTLED_HOME = "unsettled_home"
    UNFINISHED_FORK = "unfinished_fork"
    # Datasets, those of a repository too.
    MISSING_REF = "missing_ref"
    DAMAGED_REF = "damaged_ref"
    BROKEN_TAG = "broken_tag"
    DAMAGED_MANIFEST = "damaged_manifest"
    MISSING_DATA_FILE = "missing_data_file"
    MISSING_DELETION_FILE = "missing_deletion_file"
    DAMAGED_DELETION_FILE = "damaged_deletion_file"
    MISSING_INDEX = "missing_index"
    DAMAGED_INDEX = "damaged_index"
    WRONG_SIZE = "wrong_size"
    STALE_BASE = "stale_base"
    UNCHECKED_BASE = "unchecked_base"
    UNKNOWN_FILE = "unknown_file"
    # Datasets that are examined by themselves.
    UNREFERENCED_TREE = "unreferenced_tree"
    ZOMBIE_TREE = "zombie_tree"
    MISSING_TREE = "missing_tree"
    MISMATCHED_TREE = "mismatched_tree"
    NO_ORDINARY_VERSION = "no_ordinary_version"
    STRAY_MANIFEST = "stray_manifest"
    UNOPENABLE = "unopenable"
    ORPHAN_FILES = "orphan_files"
    TEMPORARY_FILES = "temporary_files"

    @property
    def severity(self) -> Severity:
        """The severity of findings of this kind."""
        if self in _WARNINGS:
            return Severity.WARNING
        return Severity.INFO if self in _NOTES else Severity.ERROR


_WARNINGS = frozenset(
    {
        FindingKind.WRONG_ORDER,
        FindingKind.FUTURE_TIME,
        # Both names can be used, but a user who thinks that the branch was renamed would miss commits of the old one.
        FindingKind.UNFINISHED_RENAME,
        FindingKind.DAMAGED_HISTORY,
        FindingKind.EXTERNAL_WRITE,
        # The versions of a branch without metadata can be read, but Lance can neither list it nor branch from it. With
        # damaged metadata it is worse: Lance then lists no branch at all.
        FindingKind.MISSING_REF,
        FindingKind.UNCHECKED_BASE,
        FindingKind.UNREFERENCED_TREE,
        FindingKind.ZOMBIE_TREE,
        FindingKind.NO_ORDINARY_VERSION,
    }
)
# These do not make a report unclean: crashes and running writers leave them, and they do no harm.
_NOTES = frozenset(
    {
        FindingKind.DAMAGED_HINT,
        FindingKind.DAMAGED_COPY,
        FindingKind.DEAD_LEASE,
        # A crash right after a commit leaves this finding. Nothing is lost: the next commit to the table settles it.
        FindingKind.UNSETTLED_HOME,
        FindingKind.UNFINISHED_FORK,
        FindingKind.UNKNOWN_FILE,
        FindingKind.ORPHAN_FILES,
        FindingKind.TEMPORARY_FILES,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of a repository or of a dataset.

    `subject` is a path below the root that was examined, or the URI of a file in another location; `paths` are the
    files concerned. `remedy` states what a repair does or, if no repair is safe, what the user has to do. `needed_by`
    names what prevents a repair.

    In a repository, `refs` are the branches, tags, runs and versions of branches that cannot be read, or whose `tables`
    cannot be read, and `commits` are the ids of such commits.
    """

    kind: FindingKind
    subject: str
    explanation: str
    remedy: str
    tables: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    repairable: bool = False
    repaired: bool = False

    @property
    def severity(self) -> Severity:
        """The severity of this kind of finding."""
        return self.kind.severity


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """The findings, the most severe first. Those that were repaired are marked."""

    root: str
    findings: tuple[Finding, ...]

    @property
    def open(self) -> tuple[Finding, ...]:
        """The findings that were not repaired."""
        return tuple(finding for finding in self.findings if not finding.repaired)

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """The findings that were repaired."""
        return tuple(finding for finding in self.findings if finding.repaired)

    @property
    def is_clean(self) -> bool:
        """Whether all open findings are notes."""
        return all(finding.severity is Severity.INFO for finding in self.open)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The location of one state of a table: a version in a home of a dataset."""

    dataset: str
    home: str | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Finding):
    """A finding, its repair if there is a safe one, and the table states that cannot be read because of it.

    `repair` checks the problem again right before it writes, and returns False if it changed nothing.
    """

    repair: Repair | None = field(default=None, compare=False)
    placements: frozenset[Placement] = field(default_factory=frozenset)

    def to_finding(self, *, repaired: bool) -> Finding:
        """Return the finding for the report."""
        values = {one.name: getattr(self, one.name) for one in fields(Finding)}
        return Finding(**{**values, "repairable": self.repair is not None, "repaired": repaired})


def examine(root: str, scan: Callable[[], Sequence[Case]], *, repair: bool) -> DoctorReport:
    """Return the findings of a scan. With `repair`, run the repairs first, and scan again after each round of them."""
    found = scan()
    repaired: dict[tuple[FindingKind, str], Case] = {}
    for _ in range(_ROUNDS if repair else 0):
        done = _try_repairs(found)
        if not done:
            break
        repaired |= done
        found = scan()
    # A problem that is found again was not repaired, whatever its repair returned.
    for case in found:
        repaired.pop((case.kind, case.subject), None)
    findings = [case.to_finding(repaired=True) for case in repaired.values()]
    findings += [case.to_finding(repaired=False) for case in found]
    order = list(Severity)
    return DoctorReport(root=root, findings=tuple(sorted(findings, key=lambda one: order.index(one.severity))))


def _try_repairs(found: Sequence[Case]) -> dict[tuple[FindingKind, str], Case]:
    """Run the repairs of one scan, which check their cases again. Return the cases that were repaired."""
    done: dict[tuple[FindingKind, str], Case] = {}
    for case in found:
        # An earlier repair or a concurrent writer changed the state. The next scan reports what is left.
        with suppress(BusyError, ConflictError, CorruptError, NotFoundError):
            if case.repair is not None and case.repair() is not False:
                done[case.kind, case.subject] = case
    return done


def unknown_file(path: str, *more: str) -> Case:
    """Return the case of files whose names neither Anabranch nor Lance uses."""
    return Case(
        kind=FindingKind.UNKNOWN_FILE,
        subject=path,
        explanation="Anabranch and Lance do not use this name" if not more else f"{len(more)} files with unknown names",
        remedy="none: doctor does not change it, and it does no harm",
        paths=more,
    )


def store_time(root: Home) -> datetime:
    """Return the time of the store's own clock, with which the ages of its files are compared."""
    # It is that of a file that is written and removed here.
    store = root.store()
    path = f"_doctor-{uuid4().hex}"
    store.put(path, b"")
    try:
        return store.head(path).modified
    finally:
        store.delete(path)


class Repairs:
    """The repairs of one dataset. Each returns whether it changed anything.

    A repair does nothing if the dataset has changed since the diagnosis, or if a file that it would change is younger
    than `grace`: it may belong to a branch that is just being created.
    """

    def __init__(self, root: Home, grace: timedelta) -> None:
        self._root = root
        self._store = root.store()
        self._grace = grace

    @cached_property
    def _old(self) -> datetime:
        """Files that were modified up to this time may be changed."""
        return store_time(self._root) - self._grace

    def remove_tree(self, branch: str, files: Sequence[LayoutFile]) -> bool:
        """Remove the files of a tree without a ref.

        Manifests are removed first: what a crash leaves then blocks no new branch, and contains no version without its
        data. Lance writes the manifest of a new branch before its ref, so a young manifest may be a branch in creation.
        Younger files of other kinds are kept: a creator that has just taken the name may have written them.
        """
        manifests = [file for file in files if file.kind in ALL_MANIFESTS]
        # A tree without manifests is judged by its other files.
        if any(file.modified > self._old for file in manifests or files):
            return False
        # The ref was put after the scan: the branch has been created.
        if self._store.find_info(branch_ref_path(branch)) is not None:
            return False
        # A manifest that was written since the diagnosis, even under the same name, is an attempt to create the branch.
        if self._manifests(branch) != {file.path: file.modified for file in manifests}:
            return False
        # Remove the hint first, which names a manifest, then the manifests.
        hint = LayoutKind.VERSION_HINT
        self.remove_files(sorted(files, key=lambda one: (one.kind is not hint, one.kind not in ALL_MANIFESTS)))
        return True

    def remove_files(self, files: Sequence[LayoutFile]) -> bool:
        """Remove files that will never be read, if they are old."""
        old = [file for file in files if file.modified <= self._old]
        for file in old:
            self._store.delete(file.path)
        return bool(old)

    def remove_ref(self, branch: str) -> bool:
        """Remove the metadata of a branch without manifests."""
        path = branch_ref_path(branch)
        if self._is_young(path) or self._manifests(branch):
            return False
        self._store.delete(path)
        return True

    def drop_manifests(self, branch: str, paths: Sequence[str], seen: Sequence[str]) -> bool:
        """Remove the first manifests of creators that lost the race for the name of a branch.

        `seen` are all manifests of the branch at the diagnosis. A writer that has added one since builds on them.
        """
        present = self._manifests(branch)
        if set(present) != set(seen) or max(present.values()) > self._old:
            return False
        for path in paths:
            self._store.delete(path)
        # The hint names the newest version, which is gone now. Lance lists the versions if there is no hint.
        self._store.delete(f"{branch_folder(branch)}/{VERSION_HINT}")
        return True

    def correct_ref(self, branch: str, parent: Origin) -> bool:
        """Change the metadata of a branch to name the parent from which its files came."""
        path = branch_ref_path(branch)
        if self._is_young(path):
            return False
        data = self._store.get(path)
        fields = json.loads(data)
        for key, value in (("parent_branch", parent.branch), ("parent_version", parent.version)):
            # The file keeps its spelling. A field in both spellings would be ambiguous.
            fields[key if key in fields else camel_case(key)] = value
        if own := lineage_of(data):
            inherited = [] if parent.branch is None else lineage_of(self._store.get(branch_ref_path(parent.branch)))
            fields["identifier"]["version_mapping"] = [*inherited, [parent.version, own[-1][1]]]
        self._store.put(path, json.dumps(fields, indent=2).encode())
        return True

    def write_ref(self, path: str, data: bytes, *, expected: bytes | None, instead_of: str | None = None) -> bool:
        """Write a ref if it is still as `expected` (None: absent). Then remove the file that it replaces."""
        if any(self._is_young(changed) for changed in (path, instead_of) if changed is not None):
            return False
        if self._store.find(path) != expected:
            return False
        # A damaged ref is replaced. A missing one is put only if it is still absent: a creator may be writing it.
        if expected is not None:
            self._store.put(path, data)
        elif not put_once(self._store, path, data):
            return False
        if instead_of is not None:
            self._store.delete(instead_of)
        return True

    def _manifests(self, branch: str) -> dict[str, datetime]:
        """Return the manifests of a tree, pending ones too, and when each was written."""
        return {
            info.path: info.modified
            for info in self._store.list(f"{branch_folder(branch)}/_versions")
            if manifest_of_path(info.path) or pending_manifest_of_path(info.path)
        }

    def _is_young(self, path: str) -> bool:
        found = self._store.find_info(path)
        return found is not None and found.modified > self._old
