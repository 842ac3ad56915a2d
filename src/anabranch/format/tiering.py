"""Tiering: move the data files of fragments from base to base. Rows do not change.

Files are copied and verified first; one commit then points the fragments to the copies. Row ids, row versions and
indices stay as they are, because the fragments do. The old files stay, too: older versions, branches and clones read
them. Deletion files do not move (Lance keeps them with the home that deleted).

A base that no version uses any more can be removed from the list of bases. Lance has no operation for it. A writer that
is about to put files into the base must not land on a version that does not list it, or its files cannot be found: the
versions put here conflict with every concurrent write.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from anabranch.errors import (
    BusyError,
    ConflictError,
    DamagedFileError,
    InvalidInputError,
    NotFoundError,
    ObjectExistsError,
)
from anabranch.format.bases import bases_of, get_base, get_target, label
from anabranch.format.home import Home, VersionRef, is_staged
from anabranch.format.layout.listing import VersionKey, layout, version_order
from anabranch.format.layout.manifest import BasePath, put_next_version, without_base
from anabranch.format.layout.needed_files import FileKind, VersionFiles, resolve_path
from anabranch.format.retention import CleanupReport, Progress, read_record, read_versions
from anabranch.format.scan import filter_errors
from anabranch.format.staging.expressions import enclosed
from anabranch.ids import MAIN
from anabranch.storage import ObjectStore, copy_verified, open_parent
from anabranch.storage.store import digest_of
from anabranch.storage.uris import follow_links, join_uri, normalise_uri, relative_to

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """The result of a move or of its dry run.

    `files` and `bytes` count the files of the moved fragments, copied now or before. `left_behind` are the
    copies that stay for older versions; `pruned` is what a cleanup after the move removed.
    """

    to: str
    version: int
    moved: tuple[int, ...]
    already_there: tuple[int, ...]
    partly_matching: tuple[int, ...]
    files: int
    bytes: int
    left_behind: tuple[str, ...]
    dry_run: bool = False
    pruned: CleanupReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    target: BasePath | None
    repointed: tuple[FragmentMetadata, ...]
    already_there: tuple[int, ...]
    copies: tuple[tuple[str, str], ...]


def move_fragments(
    home: Home,
    *,
    to: str | int | None,
    where: str | None = None,
    ids: Sequence[int] | None = None,
    progress: Progress = lambda *_: None,
    dry_run: bool = False,
) -> MoveReport:
    """Move the data files of fragments to a base, or with None or 'root' to the home's own root.

    Choose them by id, or by a predicate that all of their live rows match. Fragments with only some matching rows are
    reported and stay. An interrupted move leaves only unreferenced copies, which the next run uses. A concurrent writer
    loses nothing: the plan is made again on its version. The files left behind are kept and reported.
    """
    if (where is None) == (ids is None):
        raise InvalidInputError("a move takes either a predicate or fragment ids", hint="give exactly one of the two")
    copier = DataFileCopier(home)
    for _ in range(_ATTEMPTS):
        dataset = home.open()
        chosen, partly = _choose(home, dataset, where, ids)
        plan = _plan(home, dataset, to, chosen)
        if dry_run:
            copier.measure(plan.copies)
            return replace(_report(plan, partly, copier, int(dataset.version)), dry_run=True)
        for done, (source, target) in enumerate(plan.copies):
            progress(done, len(plan.copies))
            copier.copy(source, target)
        progress(len(plan.copies), len(plan.copies))
        try:
            version = _repoint(home, dataset, plan)
        except BusyError:
            continue  # the copies stay valid, the plan does not
        return _report(plan, partly, copier, version)
    raise BusyError(f"others keep writing to the fragments of {home.uri!r}", hint="try again when they are done")


def _choose(
    home: Home, dataset: lance.LanceDataset, condition: str | None, ids: Sequence[int] | None
) -> tuple[frozenset[int], tuple[int, ...]]:
    """Return the fragments to move, and those with only some matching rows."""
    rows = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()}
    if condition is None:
        wanted = frozenset(ids or ())
        if unknown := sorted(wanted - rows.keys()):
            raise NotFoundError(
                f"dataset {home.uri!r} has no fragment {', '.join(map(str, unknown))} in version {dataset.version}",
                hint=f"it has {len(rows)} fragments, up to {max(rows, default=None)}",
            )
        return wanted, ()
    matching: Counter[int] = Counter()
    with filter_errors(VersionRef(home=home, version=dataset.version), condition):
        for batch in dataset.scanner(columns=[], filter=enclosed(condition), with_row_address=True).to_batches():
            fragments, counts = np.unique(batch.column("_rowaddr").to_numpy() >> 32, return_counts=True)
            matching.update(dict(zip(fragments.tolist(), counts.tolist(), strict=True)))
    # A fragment moves as a whole. If only some of its rows match, the caller did not choose the others.
    whole = frozenset(number for number, count in matching.items() if count == rows[number])
    return whole, tuple(sorted(matching.keys() - whole))


def _plan(home: Home, dataset: lance.LanceDataset, to: str | int | None, chosen: frozenset[int]) -> _Plan:
    """Plan the files to copy. Nothing is written."""
    bases = bases_of(dataset)
    target = get_target(home, bases, to)
    by_id = {base.id: base for base in bases}
    repointed, already_there, copies = [], [], []
    for fragment in dataset.get_fragments():
        if fragment.fragment_id not in chosen:
            continue
        before = fragment.metadata.to_json()
        # The deletion file and overlays stay. Overlays cannot be moved: Lance does not change them when an Update
        # changes the fragment.
        base_id = None if target is None else target.id
        after = {**before, "files": [{**file, "base_id": base_id} for file in before["files"]]}
        locations = zip(_locations(home, before, by_id), _locations(home, after, by_id), strict=True)
        # Compared by address: a fragment may name the same location by another base id.
        if pending := [(source, aim) for source, aim in locations if source != aim]:
            repointed.append(FragmentMetadata.from_json(json.dumps(after)))
            copies.extend(pending)
        else:
            already_there.append(fragment.fragment_id)
    return _Plan(target=target, repointed=tuple(repointed), already_there=tuple(already_there), copies=tuple(copies))


def _locations(home: Home, metadata: dict[str, Any], bases: Mapping[int, BasePath]) -> list[str]:
    return [
        normalise_uri(resolve_path(file["path"], FileKind.DATA, file["base_id"], bases=bases, dataset_root=home.uri))
        for file in metadata["files"]
    ]


def _repoint(home: Home, dataset: lance.LanceDataset, plan: _Plan) -> int:
    """Commit the fragments with their files in the target."""
    # Lance has no compare-and-set, but it refuses an Update of fragments if a concurrent change concerns them.
    if not plan.repointed:
        return int(dataset.version)
    with home.errors():
        made = lance.LanceDataset.commit(
            dataset,
            lance.LanceOperation.Update(updated_fragments=list(plan.repointed)),
            read_version=dataset.version,
            storage_options=home.lance_options(),
            commit_message=f"move {len(plan.repointed)} fragments to {label(plan.target)}",
        )
    return int(made.version)


def _report(plan: _Plan, partly: tuple[int, ...], copier: "DataFileCopier", version: int) -> MoveReport:
    sizes = [copier.sizes[target] for _, target in plan.copies]
    return MoveReport(
        to=label(plan.target),
        version=version,
        moved=tuple(fragment.id for fragment in plan.repointed),
        already_there=plan.already_there,
        partly_matching=partly,
        files=sum(len(each) for each in sizes),
        bytes=sum(sum(each) for each in sizes),
        left_behind=tuple(source for source, _ in plan.copies),
    )


class DataFileCopier:
    """Copies data files with their large blobs, each once, and verifies the copies."""

    def __init__(self, home: Home) -> None:
        self._options = home.storage_options
        # The sizes of the existing files of a target: large blobs and the data file itself.
        self.sizes: dict[str, tuple[int, ...]] = {}

    def copy(self, source: str, target: str) -> None:
        if target not in self.sizes:
            from_store, name = open_parent(source, self._options)
            to_store, _ = open_parent(target, self._options)
            self.sizes[target] = tuple(_copy_once(from_store, path, to_store) for path in _with_blobs(from_store, name))

    def measure(self, copies: Iterable[tuple[str, str]]) -> None:
        """Record the sizes of the files that would be copied."""
        for source, target in copies:
            store, name = open_parent(source, self._options)
            self.sizes[target] = tuple(store.head(path).size for path in _with_blobs(store, name))

    def move(self, source: str, target: str) -> None:
        """Copy files that no version reads yet, then delete the source."""
        self.copy(source, target)
        store, name = open_parent(source, self._options)
        for path in _with_blobs(store, name):
            store.delete(path)


def _with_blobs(store: ObjectStore, name: str) -> list[str]:
    """Return the large blobs of a data file, then the file: if it exists, its blobs are complete."""
    return [*sorted(found.path for found in store.list(name.rpartition(".")[0])), name]


def _copy_once(source: ObjectStore, path: str, target: ObjectStore) -> int:
    here, there = source.find_info(path), target.find_info(path)
    if here is None:
        raise DamagedFileError(
            f"the data file {join_uri(source.uri, path)!r} is missing", hint="run doctor on the dataset"
        )
    # A copy that an interrupted move left is used if its contents are right, so that a large move can be repeated.
    if there is None:
        copy_verified(source, path, target, path)
    elif there.size != here.size or digest_of(target, path) != digest_of(source, path):
        # Never overwritten: a version may read it, and one of the two is damaged.
        raise ObjectExistsError(
            f"{join_uri(target.uri, path)!r} exists and differs from {join_uri(source.uri, path)!r}",
            hint="find out which of the two is damaged and delete that one, then move again",
        )
    return here.size


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRemoval:
    """A removed base, and the version of each branch that no longer lists it; in a dry run, the present versions.

    `unused_files` is the number of files that are left in the base: versions of this dataset named them, and none does
    any more.
    """

    base: BasePath
    versions: Mapping[str, int]
    unused_files: int
    dry_run: bool


def remove_base(root: Home, name: str, *, dry_run: bool = False) -> BaseRemoval:
    """Make new versions, which do not list a base, of main and of all branches. Older versions still list it.

    Raise ConflictError if any version that exists has files in the base.
    """
    files = layout(root)
    # A tree without a ref was left by a crash, or is a branch in creation. Doctor decides.
    needs = read_versions(root, replace(files, files=tuple(file for file in files.files if file.has_ref)))
    newest = _newest_versions(needs)
    base = get_base(chain.from_iterable(needs[key].bases for key in newest.items()), name)
    get_target(root, [base], base.id)  # refuses the root of another dataset
    _refuse_used(root, base, needs)
    _refuse_inherited(root, base, needs, newest)
    versions: dict[str, int] = {}
    # Main is changed last. In the other order, an interrupted removal would leave a root that only branches list. It
    # would count as stale, and the next removal could not finish.
    for branch, version in reversed(newest.items()):
        if _lists(needs[branch, version], base):
            versions[branch or MAIN] = (
                version if dry_run else put_next_version(root.on(branch), lambda data: without_base(data, base.path))
            )
    folder = _location(base)
    left = sum(relative_to(uri, folder) is not None for _, uri in read_record(root.store()))
    return BaseRemoval(base=base, versions=versions, unused_files=left, dry_run=dry_run)


def _newest_versions(keys: Iterable[VersionKey]) -> dict[str | None, int]:
    """Return the newest ordinary version of each branch, main first."""
    # In this order, a newer version of a branch comes later and replaces the older ones.
    return {branch: version for branch, version in sorted(keys, key=version_order) if not is_staged(version)}


def _refuse_used(root: Home, base: BasePath, needs: Mapping[VersionKey, VersionFiles]) -> None:
    folder = _location(base)
    # All versions, not only the newest: older ones are still read, and a restore makes them the newest.
    users = [key for key, need in needs.items() if any(relative_to(uri, folder) for _, uri in need.elsewhere)]
    if users:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} holds files of {_listed(users)}",
            hint="move the fragments to another base and clean up older versions first",
        )


def _refuse_inherited(
    root: Home, base: BasePath, needs: Mapping[VersionKey, VersionFiles], newest: Mapping[str | None, int]
) -> None:
    # Branches may inherit only from roots that main lists, in older versions too.
    if not base.is_dataset_root:
        return
    older = [key for key in needs if key[0] is not None and key[1] != newest.get(key[0])]
    old = [key for key in older if _lists(needs[key], base)]
    if old:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} is a dataset root, and {_listed(old)} lists it",
            hint="clean up the older versions of the branch, or delete the branch, first",
        )


def _listed(keys: Sequence[VersionKey]) -> str:
    branch, version = keys[0]
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"version {version} of {branch or MAIN!r}{more}"


def _lists(need: VersionFiles, base: BasePath) -> bool:
    return any(_location(other) == _location(base) for other in need.bases)


def _location(base: BasePath) -> str:
    return follow_links(base.path.rstrip("/"))
