"""Cleanup: plan it, and remove files in an order in which an interruption does no harm.

Manifests are removed first, oldest first, so that no version exists in part. Then the dataset is read again, because a
branch or tag may have been made from such a version in between. Files are removed last. An interruption leaves files
that no version needs, which the next cleanup finds again.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from anabranch.errors import ObjectNotFoundError, StorageError
from anabranch.format.bases import check_bases, get_target, has_manifest, label
from anabranch.format.doctor.findings_and_repairs import store_time
from anabranch.format.home import Home, is_staged, refuse_managed
from anabranch.format.layout.listing import (
    VERSION_HINT,
    Layout,
    LayoutFile,
    LayoutKind,
    VersionKey,
    layout,
    manifests_of,
    version_order,
)
from anabranch.format.layout.manifest import BasePath
from anabranch.format.retention import (
    BaseFile,
    CleanupReason,
    CleanupReport,
    Progress,
    RemovedFile,
    Retention,
    UnusedInBase,
    choose_versions,
    files_of_dataset,
    files_of_others,
    read_record,
    read_versions,
    referenced_versions,
    write_record,
)
from anabranch.ids import MAIN
from anabranch.storage import iter_in_parallel, open_parent, open_store
from anabranch.storage.uris import follow_links, join_uri, normalise_uri, relative_to

# Why a file that no kept version needs is removed. Kinds that no manifest names, directly or by a folder, are never
# called unused.
_REASONS = {
    LayoutKind.TEMPORARY: CleanupReason.UNFINISHED,
    LayoutKind.PENDING_MANIFEST: CleanupReason.UNFINISHED,
    LayoutKind.DATA: CleanupReason.UNUSED,
    LayoutKind.BLOB: CleanupReason.UNUSED,
    LayoutKind.DELETION: CleanupReason.UNUSED,
    LayoutKind.INDEX: CleanupReason.UNUSED,
    LayoutKind.TRANSACTION: CleanupReason.UNUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files to remove: `manifests` first, oldest first, then `files` below the root, then `in_bases`.

    `kept` are the versions that stay, and `too_young` those of them that stay only because they are young.
    `unused` are all files in bases that no kept version needs, whether they are removed now or not. `absent` are those
    that do not exist.
    """

    kept: frozenset[VersionKey]
    too_young: frozenset[VersionKey]
    manifests: Mapping[VersionKey, LayoutFile] = field(default_factory=dict)
    files: tuple[RemovedFile, ...] = ()
    in_bases: tuple[RemovedFile, ...] = ()
    unused: frozenset[BaseFile] = frozenset()
    absent: frozenset[BaseFile] = frozenset()
    unused_in_bases: tuple[UnusedInBase, ...] = ()
    damaged: tuple[str, ...] = ()


def make_plan(
    root: Home, retention: Retention, *, now: datetime, bases: Sequence[str], clones: Collection[Home]
) -> Plan:
    """Find the versions that are not kept and the files that no kept version needs."""
    survey = _Survey(root, retention, now)
    # Compare addresses. A base that is a dataset of its own is refused.
    targets = [get_target(root, survey.bases, name) for name in ([bases] if isinstance(bases, str) else bases)]
    chosen = {follow_links(normalise_uri(base.path)): base for base in targets if base is not None}
    # The addresses of files that other datasets need.
    protected = frozenset().union(*map(files_of_dataset, clones), files_of_others(root, survey.bases) if chosen else ())
    # A version that cannot be read may need any file, so nothing is removed.
    return survey.nothing() if survey.damaged else survey.plan(chosen, protected)


class _Survey:
    """The facts about all versions of one dataset, read once."""

    def __init__(self, root: Home, retention: Retention, now: datetime) -> None:
        self._root = root
        self._horizon = now - retention.grace
        self._files: Layout = layout(root)
        self._manifests = manifests_of(self._files)
        tagged, by_branches = referenced_versions(root, self._files)
        self._kept, self._too_young = choose_versions(self._manifests, tagged | by_branches, retention, now=now)
        self._needs = read_versions(root, self._files, skips_damaged=True)
        # The branches of a dataset that was copied here read the original. Until it is relocated, the files that
        # they will need look unused.
        for key, needs in self._needs.items():
            if self._manifests[key].has_ref:
                check_bases(root.on(key[0]), needs.bases)
        self.damaged = tuple(sorted(set(self._iter_damage(tagged))))

    @property
    def bases(self) -> tuple[BasePath, ...]:
        """All bases of all versions, those of main's newest version first."""
        # Older versions may list a base of the same path under another name or id.
        newest_first = sorted(self._needs, key=lambda key: (key[0] is not None, is_staged(key[1]), -key[1]))
        found: dict[str, BasePath] = {}
        for key in newest_first:
            for base in self._needs[key].bases:
                found.setdefault(base.path, base)
        return tuple(found.values())

    def plan(self, chosen: Mapping[str, BasePath], protected: frozenset[str]) -> Plan:
        doomed = {key: self._manifests[key] for key in sorted(self._manifests.keys() - self._kept, key=version_order)}
        unused = self._unused_in_bases()
        # A file that a clone or source needs stays on the record. A later cleanup removes it when the other dataset no
        # longer does.
        removable = frozenset(file for file in unused if file[1] not in protected)
        found = [self._find_in_base(path, removable) for path in sorted(chosen)]
        return Plan(
            manifests=doomed,
            files=tuple(self._iter_files(doomed, self._needed_below(protected))),
            in_bases=tuple(file for removed, _ in found for file in removed),
            unused=unused,
            absent=frozenset(file for _, absent in found for file in absent),
            unused_in_bases=tuple(self._iter_left(chosen, unused)),
            kept=self._kept,
            too_young=self._too_young,
        )

    def nothing(self) -> Plan:
        return Plan(kept=frozenset(self._manifests), too_young=self._too_young, damaged=self.damaged)

    def _iter_damage(self, tagged: Collection[VersionKey]) -> Iterator[str]:
        """Yield the missing or unreadable files of kept versions, and the missing tagged versions."""
        there = {file.path for file in self._files.files}
        for key in self._kept:
            manifest = self._manifests[key]
            if not manifest.has_ref:
                continue
            if key not in self._needs:
                yield manifest.path
                continue
            # A version can be read without its transaction file.
            yield from (path for path in self._needs[key].below - there if "_transactions/" not in path)
        for branch, version in tagged:
            if (branch, version) not in self._manifests:
                yield f"{self._root.on(branch).folder}/version {version}".lstrip("/")

    def _iter_files(self, doomed: Mapping[VersionKey, LayoutFile], needed: set[str]) -> Iterator[RemovedFile]:
        gone = {file.path for file in doomed.values()}
        for file in self._files.files:
            # A young file may belong to a commit in flight, and a tree without a ref to a branch in creation.
            if file.path in needed or file.path in gone or not file.has_ref or file.modified > self._horizon:
                continue
            if (reason := _REASONS.get(file.kind)) is not None:
                yield RemovedFile(path=file.path, bytes=file.size, reason=reason)

    def _needed_below(self, protected: frozenset[str]) -> set[str]:
        needed: set[str] = set()
        for key in self._kept & self._needs.keys():
            needed |= self._needs[key].below
        real = follow_links(self._root.root)
        others = [below for uri in protected if (below := relative_to(uri, real))]
        needed.update(others)
        # Another dataset names an index by its folder and large values by their data file, so files in these are
        # needed, too.
        needed.update(_inside((file.path for file in self._files.files), others))
        return needed

    def _unused_in_bases(self) -> frozenset[BaseFile]:
        """Return the files in bases that a version of this dataset named and that no kept version needs."""
        # Files of versions that an earlier cleanup removed, which no manifest names now.
        named = set(read_record(self._root.store()))
        needed: set[BaseFile] = set()
        for key, needs in self._needs.items():
            named |= needs.elsewhere
            if key in self._kept:
                needed |= needs.elsewhere
        return frozenset(named - needed)

    def _find_in_base(self, path: str, unused: Iterable[BaseFile]) -> tuple[list[RemovedFile], list[BaseFile]]:
        """Return the unused files in one base that are old enough to be removed, and those that do not exist."""
        here = {below: (kind, uri) for kind, uri in unused if (below := relative_to(uri, path))}
        listed = {info.path: info for info in open_store(path, self._root.storage_options).list()} if here else {}
        inside = _inside(listed, here)
        found = [listed[name] for name in sorted((here.keys() & listed.keys()) | inside.keys())]
        removed = [
            RemovedFile(path=join_uri(path, info.path), bytes=info.size, reason=CleanupReason.UNUSED)
            for info in found
            if info.modified <= self._horizon
        ]
        # An index exists if its folder has a file. The folder itself is not listed.
        absent = here.keys() - listed.keys() - set(inside.values())
        return removed, [here[name] for name in absent]

    def _iter_left(self, chosen: Mapping[str, BasePath], unused: frozenset[BaseFile]) -> Iterator[UnusedInBase]:
        """Count unused files by base, without the bases that are cleaned and those that are other datasets."""
        by_path = {follow_links(base.path.rstrip("/")): base for base in self.bases}
        for path, base in sorted(by_path.items()):
            files = sum(1 for _, uri in unused if relative_to(uri, path))
            if path in chosen or files == 0:
                continue
            # The source of a clone has the id 0. Each dataset cleans its own files.
            is_dataset = base.id == 0 or has_manifest(open_store(path, self._root.storage_options))
            if not is_dataset:
                yield UnusedInBase(name=label(base), path=base.path, files=files)


def _inside(paths: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Map each path in the folder of an index, or of large values beside a data file, to that index or data file."""
    folders = {file.removesuffix(".lance"): file for file in files}
    found = {}
    for path in paths:
        # Every folder above the file is looked up, which takes less time than a comparison with each of the files.
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (file := folders.get("/".join(parts[:depth]))) is not None:
                found[path] = file
    return found


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
    survey = partial(make_plan, root, retention, now=now, bases=bases, clones=others)
    plan = survey()
    if dry_run or plan.damaged:
        return _report(plan, dry_run=dry_run)
    done = _Sweep(root, plan, progress)
    if plan.unused:
        # Record them before the manifests are removed: only these name the files, and after a crash they would be
        # unknown.
        write_record(root.store(), read_record(root.store()) | plan.unused)
    done.remove_manifests()
    # Versions that were made from a removed one name its files themselves, and are found by reading all again.
    left = survey()
    if not left.damaged:
        done.remove_files(left)
        write_record(root.store(), left.unused - left.absent - done.gone(left.unused))
        root.forget()
    return replace(_report(left, dry_run=False), files=tuple(done.removed), versions=_named(done.versions))


def _now(root: Home, *, dry_run: bool) -> datetime:
    """Return the time of the store's clock, or of the local clock for a dry run on a read-only store."""
    try:
        return store_time(root)
    except StorageError:
        if not dry_run:
            raise
        return datetime.now(UTC)


def _report(plan: Plan, *, dry_run: bool) -> CleanupReport:
    manifests = map(_removed_version, plan.manifests.values())
    return CleanupReport(
        dry_run=dry_run,
        versions=_named(plan.manifests),
        files=(*manifests, *plan.files, *plan.in_bases),
        kept=len(plan.kept),
        too_young=len(plan.too_young),
        unused_in_bases=plan.unused_in_bases,
        damaged=plan.damaged,
    )


def _removed_version(manifest: LayoutFile) -> RemovedFile:
    return RemovedFile(path=manifest.path, bytes=manifest.size, reason=CleanupReason.VERSION)


def _named(keys: Iterable[VersionKey]) -> tuple[tuple[str, int], ...]:
    return tuple((branch or MAIN, version) for branch, version in keys)


class _Sweep:
    def __init__(self, root: Home, plan: Plan, progress: Progress) -> None:
        self._root = root
        self._store = root.store()
        self._plan = plan
        self._progress = progress
        self._total = len(plan.manifests) + len(plan.files) + len(plan.in_bases)
        self.removed: list[RemovedFile] = []
        self.versions: list[VersionKey] = []

    def remove_manifests(self) -> None:
        self._progress(0, self._total)
        saved: dict[VersionKey, bytes] = {}
        # Renew before the first manifest is removed: a gap and an old hint must never exist together.
        self._renew_hints()
        for key, file in self._plan.manifests.items():
            # Concurrent cleanups remove the same versions.
            with suppress(ObjectNotFoundError):
                saved[key] = zlib.compress(self._store.get(file.path), level=1)
            self._store.delete(file.path)
            self._done(_removed_version(file))
        restored = self._restore_referenced(saved)
        self.versions = [key for key in self._plan.manifests if key not in restored]

    def _renew_hints(self) -> None:
        """Write the newest version into the version hints of the branches that lose versions."""
        # Versions that this product puts do not move the hint. From an old one, a writer that read an older version
        # would find the gap that this cleanup makes, and write its rows below the newest version.
        for branch in {branch for branch, _ in self._plan.manifests}:
            path = f"{self._root.on(branch).folder}/{VERSION_HINT}".lstrip("/")
            newest = max(number for other, number in self._plan.kept if other == branch and not is_staged(number))
            # Without a hint Lance lists the versions, so none is created here.
            if self._store.find_info(path) is None:
                continue
            try:
                self._store.put(path, json.dumps({"version": newest}).encode(), durable=False)
            except StorageError:
                self._store.delete(path)  # a full disk: without a hint, Lance lists the versions

    def _restore_referenced(self, saved: Mapping[VersionKey, bytes]) -> set[VersionKey]:
        """Restore, from memory, versions that got a tag or branch after the plan was made. Their files still exist."""
        tagged, by_branches = referenced_versions(self._root, layout(self._root))
        restored = set((tagged | by_branches) & saved.keys())
        paths = {self._plan.manifests[key].path: saved[key] for key in restored}
        for path, data in paths.items():
            self._store.put(path, zlib.decompress(data))
        self.removed = [file for file in self.removed if file.path not in paths]
        return restored

    def remove_files(self, left: Plan) -> None:
        """Remove the files that both plans name."""
        still = {*left.files, *left.in_bases}
        files = [file for file in (*self._plan.files, *self._plan.in_bases) if file in still]
        for file in iter_in_parallel(self._remove, files):
            self._done(file)

    def _remove(self, file: RemovedFile) -> RemovedFile:
        # Paths in bases are whole addresses.
        if file.path.startswith("/") or "://" in file.path:
            store, name = open_parent(file.path, self._root.storage_options)
            store.delete(name)
        else:
            self._store.delete(file.path)
        return file

    def gone(self, files: Iterable[BaseFile]) -> frozenset[BaseFile]:
        """Return the given files in bases that were removed, and index folders that lost a file."""
        paths = {file.path for file in self.removed}
        folders = {path.rpartition("/")[0] for path in paths}
        return frozenset(file for file in files if file[1] in paths or file[1] in folders)

    def _done(self, file: RemovedFile) -> None:
        self.removed.append(file)
        self._progress(len(self.removed), self._total)
