"""Cleanup: make a plan, and carry it out in an order that an interruption cannot harm.

Manifests go first, oldest first: a version that is half removed does not exist any more. Then the dataset is read
again, because a branch or tag may have been made from such a version in between. Files go last. An interruption leaves
files that no version needs, which the next cleanup finds again.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from anabranch.errors import ObjectNotFoundError, StorageError
from anabranch.format.cleanup.plan import BaseFile, Plan, make_plan
from anabranch.format.cleanup.report import CleanupReason, CleanupReport, RemovedFile, Retention
from anabranch.format.cleanup.shared_files import read_record, write_record
from anabranch.format.cleanup.versions import VersionKey, referenced_versions
from anabranch.format.doctor.repairs import store_time
from anabranch.format.home import Home, is_staged, refuse_managed
from anabranch.format.layout.listing import layout
from anabranch.format.layout.names import VERSION_HINT
from anabranch.ids import MAIN
from anabranch.storage import iter_in_parallel, open_store

__all__ = ["Progress", "cleanup"]

# Called with the number of files that are done and their total.
Progress = Callable[[int, int], None]


def cleanup(
    home: Home,
    retention: Retention,
    *,
    bases: Sequence[str] = (),
    clones: Iterable[Home] = (),
    dry_run: bool = False,
    progress: Progress = lambda *_: None,
) -> CleanupReport:
    """Remove the versions of a dataset that are not kept, and the files that no kept version needs.

    `bases` names the bases that only this dataset writes to: files are removed there too, if a version of this dataset
    named them. `clones` are clones that this dataset does not know, made by another tool. Raise InvalidInputError for a
    table of a repository.
    """
    root = home.on(None)
    root.open()
    refuse_managed(root, "a cleanup", instead="gc")
    others = tuple(clones)
    now = _now(root, dry_run=dry_run)
    plan = make_plan(root, retention, now=now, bases=bases, clones=others)
    if dry_run or plan.damaged:
        return _report(plan, dry_run=dry_run)
    done = _Sweep(root, plan, progress)
    if plan.unused:
        # Before the manifests are removed: only they name these files, and a crash would make the files unknown for
        # good.
        write_record(root.store(), read_record(root.store()) | plan.unused)
    done.remove_manifests()
    # Versions that were made from a removed one name its files themselves, and are found by reading all again.
    left = make_plan(root, retention, now=now, bases=bases, clones=others)
    if left.damaged:
        return replace(_report(left, dry_run=False), files=done.removed, versions=done.versions)
    done.remove_files(left)
    write_record(root.store(), left.unused - left.absent - done.gone(left.unused))
    root.forget()
    return replace(_report(left, dry_run=False), files=done.removed, versions=done.versions)


def _now(root: Home, *, dry_run: bool) -> datetime:
    """The store's clock; a dry run on a read-only store uses this machine's."""
    try:
        return store_time(root)
    except StorageError:
        if not dry_run:
            raise
        return datetime.now(UTC)


def _report(plan: Plan, *, dry_run: bool) -> CleanupReport:
    manifests = tuple(
        RemovedFile(path=file.path, bytes=file.size, reason=CleanupReason.VERSION) for file in plan.manifests.values()
    )
    return CleanupReport(
        dry_run=dry_run,
        versions=_named(plan.manifests),
        files=(*manifests, *plan.files, *plan.in_bases),
        kept=len(plan.versions.kept),
        too_young=len(plan.versions.too_young),
        unused_in_bases=plan.unused_in_bases,
        damaged=plan.damaged,
    )


def _named(places: Iterable[VersionKey]) -> tuple[tuple[str, int], ...]:
    return tuple((branch or MAIN, version) for branch, version in places)


class _Sweep:
    """The removal of what a plan names."""

    def __init__(self, root: Home, plan: Plan, progress: Progress) -> None:
        self._root = root
        self._store = root.store()
        self._plan = plan
        self._progress = progress
        self._total = len(plan.manifests) + len(plan.files) + len(plan.in_bases)
        self._removed: list[RemovedFile] = []
        self._versions: list[VersionKey] = []

    @property
    def removed(self) -> tuple[RemovedFile, ...]:
        return tuple(self._removed)

    @property
    def versions(self) -> tuple[tuple[str, int], ...]:
        return _named(self._versions)

    def remove_manifests(self) -> None:
        self._progress(0, self._total)
        saved: dict[VersionKey, bytes] = {}
        # Before the first manifest is removed, because the gap must never exist beside an old hint.
        self._renew_hints()
        for place, file in self._plan.manifests.items():
            # Concurrent cleanups remove the same versions.
            with suppress(ObjectNotFoundError):
                saved[place] = zlib.compress(self._store.get(file.path), level=1)
            self._store.delete(file.path)
            self._done(RemovedFile(path=file.path, bytes=file.size, reason=CleanupReason.VERSION))
        restored = self._restore_referenced(saved)
        self._versions = [place for place in self._plan.manifests if place not in restored]

    def _renew_hints(self) -> None:
        """Let the version hints of branches that lose versions name the newest version.

        Versions that this product puts do not move the hint. From an old one, a writer that read an older version would
        find the gap that this cleanup makes, and write its rows below the newest version.
        """
        for branch in {branch for branch, _ in self._plan.manifests}:
            path = f"{self._root.on(branch).folder}/{VERSION_HINT}".lstrip("/")
            kept = self._plan.versions.kept
            newest = max(number for other, number in kept if other == branch and not is_staged(number))
            # Without a hint Lance lists the versions, so none is created here.
            if self._store.find_info(path) is not None:
                self._put_hint(path, newest)

    def _put_hint(self, path: str, version: int) -> None:
        try:
            self._store.put(path, json.dumps({"version": version}).encode(), durable=False)
        except StorageError:
            self._store.delete(path)  # a full disk: without a hint, Lance lists the versions

    def _restore_referenced(self, saved: Mapping[VersionKey, bytes]) -> set[VersionKey]:
        """Put back versions that were tagged or branched from since the plan was made; their files are still there."""
        referenced = referenced_versions(self._root, layout(self._root))
        # A tag or branch may have been created after the plan. Its version is restored from memory; no file of it was
        # removed yet.
        restored = referenced.all & saved.keys()
        paths = {self._plan.manifests[place].path: saved[place] for place in restored}
        for path, data in paths.items():
            self._store.put(path, zlib.decompress(data))
        self._removed = [file for file in self._removed if file.path not in paths]
        return set(restored)

    def remove_files(self, left: Plan) -> None:
        """Remove what the first plan named and the second one still does."""
        still = {*left.files, *left.in_bases}
        files = [file for file in (*self._plan.files, *self._plan.in_bases) if file in still]
        for file in iter_in_parallel(self._remove, files):
            self._done(file)

    def _remove(self, file: RemovedFile) -> RemovedFile:
        # Paths in bases are whole addresses.
        if file.path.startswith("/") or "://" in file.path:
            folder, _, name = file.path.rpartition("/")
            open_store(folder, self._root.storage_options).delete(name)
        else:
            self._store.delete(file.path)
        return file

    def gone(self, files: Iterable[BaseFile]) -> frozenset[BaseFile]:
        """Those of some files in bases that were removed, and index folders of which anything was."""
        paths = {file.path for file in self._removed}
        folders = {path.rpartition("/")[0] for path in paths}
        return frozenset(file for file in files if file[1] in paths or file[1] in folders)

    def _done(self, file: RemovedFile) -> None:
        self._removed.append(file)
        self._progress(len(self._removed), self._total)
