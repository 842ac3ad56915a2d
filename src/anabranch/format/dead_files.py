"""Which files of a dataset are needed, and which are dead."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from anabranch.errors import CorruptError, DamagedFileError, NotFoundError
from anabranch.format.compare.difference import step_back
from anabranch.format.home import Home, VersionRef, is_staged
from anabranch.format.layout.listing import (
    MANAGED_TAG,
    MANIFESTS,
    Layout,
    LayoutFile,
    LayoutKind,
    ManifestName,
    VersionKey,
    branch_of_ref_path,
    branch_ref_path,
    lay_out,
    manifests_of,
    tag_ref_path,
    version_order,
)
from anabranch.format.layout.needed_files import FilesReader
from anabranch.format.refs.refs import BranchInfo, find_branch, list_tags
from anabranch.storage import in_parallel

# The homes of Anabranch are named `{branch}/{ulid}`.
_OWN_HOME = re.compile(r".+/[0-9A-HJKMNP-TV-Z]{26}")
_UNFINISHED = frozenset({LayoutKind.TEMPORARY, LayoutKind.PENDING_MANIFEST})
_MANAGED_PATH = tag_ref_path(MANAGED_TAG)
# No version has this number.
_NOWHERE: VersionKey = (None, -1)
# Homes at the end of a longer chain of forks count as equally deep.
_DEEPEST = 1_000
# The rank of files that are deleted first.
_FIRST = -1
# gc never deletes these.
_UNTOUCHED = frozenset({LayoutKind.UNKNOWN, LayoutKind.TAG_REF, LayoutKind.CLEANUP_RECORD, LayoutKind.MEM_WAL})


class DeadReason(StrEnum):
    """Why a file is dead."""

    VERSION = "version of no retained commit"
    ORPHAN = "file of no retained version"
    HOME = "home of no retained commit"
    DATASET = "table of no retained commit"
    FORK = "unfinished fork"
    UNFINISHED = "unfinished write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The versions of a dataset that others need.

    `keys` are versions that must stay readable. `since` is, for a home, the ordinary version from which its
    history is read. `without_key` are the versions whose descent must stay readable, since their rows have no key.
    """

    keys: frozenset[VersionKey] = frozenset()
    since: Mapping[str | None, int] = field(default_factory=dict)
    without_key: frozenset[VersionKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFile:
    """A file that is not needed; `path` is below the dataset's root. Those of a lower rank are deleted first."""

    path: str
    size: int
    reason: DeadReason
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The needed and the dead files of a dataset.

    `dead` is sorted by rank: an interrupted deletion leaves no version without its files.
    `missing` are needed files that do not exist. `users` are the files of each version, `sizes` the bytes of
    all files, and `external` the versions that external branches or tags need.
    """

    dead: tuple[DeadFile, ...]
    missing: tuple[str, ...]
    users: Mapping[VersionKey, frozenset[str]]
    sizes: Mapping[str, int]
    external: frozenset[VersionKey]
    is_needed: bool


def find_reach(root: Home, wanted: Wanted, *, horizon: datetime) -> Reach:
    """Find the files that the wanted versions need, and those that are dead.

    Files written after the horizon are never dead: they may belong to work that is not published yet.
    """
    return _Survey(root, wanted, horizon).find()


class _Survey:
    def __init__(self, root: Home, wanted: Wanted, horizon: datetime) -> None:
        self._root = root
        self._wanted = wanted
        self._horizon = horizon
        self._files: Layout = lay_out(root.root, root.store().list())
        self._manifests = manifests_of(self._files)
        self._reader = FilesReader(root, self._files)
        self._missing: list[str] = []

    def find(self) -> Reach:
        parents = self._parents()
        tagged, marked = self._tagged()
        wanted = self._wanted.keys | tagged
        homes = self._kept_homes({home for home, _ in wanted}, parents)
        external = tagged.union(key for key in self._manifests if _is_external(key[0]))
        kept = {*wanted, *self._kept_ordinary(homes), *external, *(marked if homes else ())}
        users = self._users(kept, lambda file: self._reader.read(file).below)
        chained = self._chained(self._wanted.without_key & users.keys()) - kept
        # Only their transactions are read, to find the versions that they were made from.
        users.update(self._users(chained, self._reader.read_own))
        kept |= chained
        needed = frozenset().union(*users.values())
        dead = sorted(self._iter_dead(homes, kept, needed, parents), key=lambda found: (found.rank, found.path))
        sizes = {file.path: file.size for file in self._files.files}
        # A version can be read without its transaction file, which a power loss or native cleanup may have removed.
        unfound = (path for path in needed if path not in sizes and "_transactions/" not in path)
        return Reach(
            dead=tuple(dead),
            missing=tuple(sorted({*self._missing, *unfound})),
            users=users,
            sizes=sizes,
            external=external,
            is_needed=bool(homes),
        )

    def _parents(self) -> dict[str, str | None]:
        """Return the home from which each home was forked. With damaged metadata, the whole dataset is kept."""
        found = in_parallel(self._branch, self._files.branches)
        return {info.name: info.parent_branch for info in found if info is not None}

    def _branch(self, name: str) -> BranchInfo | None:
        try:
            return find_branch(self._root, name)
        except (CorruptError, DamagedFileError):
            self._missing.append(branch_ref_path(name))
            return None

    def _tagged(self) -> tuple[frozenset[VersionKey], frozenset[VersionKey]]:
        """Return the versions that tags hold for clones and others, and the version that marks a managed dataset."""
        if not any(file.kind is LayoutKind.TAG_REF for file in self._files.files):
            return frozenset(), frozenset()
        tags = list_tags(self._root)
        # Nothing else records what an unreadable tag holds.
        self._missing.extend(file.path for file in tags.unreadable)
        tagged = frozenset((tag.branch, tag.version) for tag in tags if tag.name != MANAGED_TAG)
        marked = frozenset((tag.branch, tag.version) for tag in tags if tag.name == MANAGED_TAG)
        return tagged, marked & self._manifests.keys()

    def _kept_homes(self, used: set[str | None], parents: Mapping[str, str | None]) -> frozenset[str | None]:
        """The homes in use, those of external branches or of work in flight, and all that they were forked from."""
        # A young manifest may belong to a fork whose commit is not published yet.
        young = {file.branch for file in self._files.files if self._is_young(file) and file.kind in MANIFESTS}
        queue = [*used, *young, *filter(_is_external, self._files.branches)]
        kept: set[str | None] = set()
        while queue:
            home = queue.pop()
            if home not in kept:
                kept.add(home)
                # A fork reads data files of its parent's folder, so the parent stays, up to the root.
                queue.append(None if home is None else parents.get(home))
        return frozenset(kept)

    def _kept_ordinary(self, homes: frozenset[str | None]) -> Iterator[VersionKey]:
        """Yield the newest ordinary version of each home, and the versions from which external writes are searched."""
        versions: dict[str | None, list[int]] = defaultdict(list)
        for home, version in self._manifests:
            if home in homes and not is_staged(version):
                versions[home].append(version)
        for home, found in versions.items():
            newest = max(found)
            since = self._wanted.since.get(home, newest)
            # The newest stays in any case: without an ordinary version the home cannot be opened.
            yield from ((home, version) for version in found if version >= min(since, newest))

    def _users(
        self, keys: Iterable[VersionKey], read: Callable[[LayoutFile], frozenset[str]]
    ) -> dict[VersionKey, frozenset[str]]:
        """Return the paths of the files that each version needs, including its own, from its manifest."""
        ordered = sorted(keys, key=version_order)
        found = in_parallel(lambda key: self._files_of(key, read), ordered)
        return {key: files for key, files in zip(ordered, found, strict=True) if files is not None}

    def _files_of(self, key: VersionKey, read: Callable[[LayoutFile], frozenset[str]]) -> frozenset[str] | None:
        file = self._manifests.get(key)
        if file is None:
            self._missing.append(f"{self._root.on(key[0]).folder}/version {key[1]}".lstrip("/"))
            return None
        try:
            return read(file)
        except (CorruptError, DamagedFileError, NotFoundError):
            self._missing.append(file.path)
            return None

    def _chained(self, keys: frozenset[VersionKey]) -> set[VersionKey]:
        """Return the steps between wanted versions and the earlier wanted versions that they were made from."""
        found: set[VersionKey] = set()
        lost: set[VersionKey] = set()
        for key in sorted(keys, key=version_order):
            steps: list[VersionKey] = []
            here = self._step_before(key)
            # Steps that are known already end the walk, so that each step is visited once however many versions share
            # it.
            while here in self._manifests and not any(here in known for known in (self._wanted.keys, found, lost)):
                steps.append(here)
                here = self._step_before(here)
            leads_on = here in self._wanted.keys or here in found
            (found if leads_on else lost).update(steps)
        return found

    def _step_before(self, key: VersionKey) -> VersionKey:
        try:
            before = step_back(VersionRef(home=self._root.on(key[0]), version=key[1]))
        except (CorruptError, DamagedFileError):
            self._missing.append(self._manifests[key].path)
            return _NOWHERE
        return _NOWHERE if before is None else (before.home.branch, before.version)

    def _iter_dead(
        self,
        homes: frozenset[str | None],
        kept: set[VersionKey],
        needed: frozenset[str],
        parents: Mapping[str, str | None],
    ) -> Iterator[DeadFile]:
        shortened: set[str | None] = set()
        for file in self._files.files:
            # A young file may be referred to by a commit that is being published at this moment.
            if self._is_young(file) or (file.kind in _UNTOUCHED and file.path != _MANAGED_PATH):
                continue
            reason = self._reason(file, homes, kept, needed)
            if reason is not None:
                yield DeadFile(path=file.path, size=file.size, reason=reason, rank=_rank(file, parents))
            if reason is DeadReason.VERSION and file.kind is LayoutKind.MANIFEST:
                shortened.add(file.branch)
        yield from self._old_hints(shortened)

    def _old_hints(self, shortened: set[str | None]) -> Iterator[DeadFile]:
        """The version hints of homes that lose ordinary versions."""
        # A native writer that read an older version searches for newer ones from the hint on, and takes the first
        # number without a version. Our own versions do not move the hint, so it would write into the gap, below the
        # newest version, where no reader finds its rows. Without a hint it lists all versions.
        for file in self._files.files:
            if file.kind is LayoutKind.VERSION_HINT and file.branch in shortened and not self._is_young(file):
                yield DeadFile(path=file.path, size=file.size, reason=DeadReason.VERSION, rank=_FIRST)

    def _reason(
        self, file: LayoutFile, homes: frozenset[str | None], kept: set[VersionKey], needed: frozenset[str]
    ) -> DeadReason | None:
        if file.kind is LayoutKind.BRANCH_REF:
            return None if branch_of_ref_path(file.path) in homes else DeadReason.HOME
        if file.path in needed or (file.path == _MANAGED_PATH and homes):
            return None
        # Order matters: a dataset without any home is dead as a whole, with files that no other rule would name.
        if not homes:
            return DeadReason.DATASET
        if file.branch not in homes:
            return DeadReason.HOME if file.has_ref else DeadReason.FORK
        return self._reason_in_home(file, kept)

    def _reason_in_home(self, file: LayoutFile, kept: set[VersionKey]) -> DeadReason | None:
        """Return why a file of a home that stays is dead, if no version that stays needs the file."""
        if file.kind in _UNFINISHED:
            return DeadReason.UNFINISHED
        # gc does not delete versions or files of external branches.
        if file.kind is LayoutKind.VERSION_HINT or _is_external(file.branch):
            return None
        if file.kind in MANIFESTS:
            is_kept = (file.branch, ManifestName.parse(file.name).version) in kept
            return None if is_kept else DeadReason.VERSION
        return DeadReason.ORPHAN

    def _is_young(self, file: LayoutFile) -> bool:
        return file.modified >= self._horizon


def _rank(file: LayoutFile, parents: Mapping[str, str | None]) -> int:
    """Return the order of deletion: manifests, then the files that they name, then refs. A home precedes its parent."""
    home = branch_of_ref_path(file.path)
    if home is None:
        return 0 if file.kind in MANIFESTS else 1
    # Damaged metadata could make two branches parents of each other.
    ancestors: set[str] = set()
    above = parents.get(home)
    while above is not None and above not in ancestors:
        ancestors.add(above)
        above = parents.get(above)
    return 2 + _DEEPEST - min(_DEEPEST, len(ancestors))


def _is_external(home: str | None) -> bool:
    """Return whether a branch is external. Branches of Anabranch have names that end with a ULID."""
    return home is not None and _OWN_HOME.fullmatch(home) is None
