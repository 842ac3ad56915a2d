"""Tiering: moving the data files of fragments from base to base, without touching a row.

Files are copied and verified first; one commit then points the fragments to the copies. Row ids, row versions and
indices stay as they are, because the fragments do. The files that were left stay too: older versions, branches and
clones read them. Deletion files do not move (Lance keeps them with the home that deleted).

`copy_version` copies the files of a whole version to another home, for a table that is replaced by another one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from anabranch.errors import (
    BusyError,
    DamagedFileError,
    InvalidInputError,
    NotFoundError,
    ObjectExistsError,
    StorageError,
)
from anabranch.format.bases.bases import bases_of, get_target, label
from anabranch.format.cleanup.retention import CleanupReport
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.changed_rows import offsets_in
from anabranch.format.layout.files import FileKind, files_of_version, resolve_path
from anabranch.format.layout.manifest import BasePath
from anabranch.format.scan import filter_errors
from anabranch.format.staging.expressions import enclosed
from anabranch.format.staging.fragments import as_new_fragment
from anabranch.format.staging.rows import Addresses, delete_at, join_addresses
from anabranch.format.staging.version_ref import VersionRef, stage
from anabranch.storage import ObjectStore, copy_between, in_parallel, open_store
from anabranch.storage.uris import join_uri, normalise_uri

# Called with the number of data files that are done and their total.
Progress = Callable[[int, int], None]

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """What a move did, or in a dry run would do.

    `files` and `bytes` count what the moved fragments are made of, copied now or found there. `left_behind` are the
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
    partly_matching: tuple[int, ...]
    copies: tuple[tuple[str, str], ...]


def move_fragments(
    home: Home,
    *,
    to: str | int | None,
    where: str | None = None,
    ids: Sequence[int] | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> MoveReport:
    """Move the data files of fragments to a base, or with None or 'root' to the home's own root.

    Choose them by id, or by a predicate that every live row matches; those of which only some rows do are reported and
    stay. Interrupted, it leaves only copies that nothing points to, and the next run takes them up. A concurrent
    writer loses nothing: the plan is made again on their version. The files left behind are kept and reported.
    """
    if (where is None) == (ids is None):
        raise InvalidInputError("a move takes either a predicate or fragment ids", hint="give exactly one of the two")
    copier = DataFileCopier(home)
    for _ in range(_ATTEMPTS):
        dataset = home.open()
        plan = _plan(home, dataset, to, _choose(home, dataset, where, ids))
        if dry_run:
            copier.measure(plan.copies)
            return replace(_report(plan, copier, int(dataset.version)), dry_run=True)
        for done, (source, target) in enumerate(plan.copies):
            if progress is not None:
                progress(done, len(plan.copies))
            copier.copy(source, target)
        if progress is not None:
            progress(len(plan.copies), len(plan.copies))
        try:
            version = _repoint(home, dataset, plan)
        except BusyError:
            continue  # the copies stay good, the plan does not
        return _report(plan, copier, version)
    raise BusyError(f"others keep writing to the fragments of {home.uri!r}", hint="try again when they are done")


@dataclass(frozen=True, slots=True)
class _Choice:
    chosen: frozenset[int]
    partly: tuple[int, ...] = ()


def _choose(home: Home, dataset: lance.LanceDataset, condition: str | None, ids: Sequence[int] | None) -> _Choice:
    rows = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()}
    if condition is None:
        wanted = frozenset(ids or ())
        if unknown := sorted(wanted - rows.keys()):
            raise NotFoundError(
                f"dataset {home.uri!r} has no fragment {', '.join(map(str, unknown))} in version {dataset.version}",
                hint=f"it has {len(rows)} fragments, up to {max(rows, default=None)}",
            )
        return _Choice(wanted)
    matching: Counter[int] = Counter()
    with filter_errors(VersionRef(home=home, version=dataset.version), condition):
        for batch in dataset.scanner(columns=[], filter=enclosed(condition), with_row_address=True).to_batches():
            fragments, counts = np.unique(batch.column("_rowaddr").to_numpy() >> 32, return_counts=True)
            matching.update(dict(zip(fragments.tolist(), counts.tolist(), strict=True)))
    # A fragment moves as a whole. If only some of its rows match, the others would move against the caller's wish.
    whole = frozenset(number for number, count in matching.items() if count == rows[number])
    return _Choice(whole, tuple(sorted(matching.keys() - whole)))


def _plan(home: Home, dataset: lance.LanceDataset, to: str | int | None, choice: _Choice) -> _Plan:
    """Decide which files to copy; nothing is written."""
    bases = bases_of(dataset)
    target = get_target(home, bases, to)
    by_id = {base.id: base for base in bases}
    repointed, already_there, copies = [], [], []
    for fragment in dataset.get_fragments():
        if fragment.fragment_id not in choice.chosen:
            continue
        before = fragment.metadata.to_json()
        after = _with_base(before, None if target is None else target.id)
        places = zip(_locations(home, before, by_id), _locations(home, after, by_id), strict=True)
        # Compared by address: a fragment may name the same location by another base id.
        if pending := [(source, aim) for source, aim in places if source != aim]:
            repointed.append(FragmentMetadata.from_json(json.dumps(after)))
            copies.extend(pending)
        else:
            already_there.append(fragment.fragment_id)
    return _Plan(
        target=target,
        repointed=tuple(repointed),
        already_there=tuple(already_there),
        partly_matching=choice.partly,
        copies=tuple(copies),
    )


def _with_base(metadata: dict[str, Any], base_id: int | None) -> dict[str, Any]:
    """Return a fragment with all of its data files in one base; its deletion file and its overlays keep their own.

    Lance keeps the overlays of a fragment as they are when an Update changes it, so they cannot be moved.
    """
    return {**metadata, "files": [{**file, "base_id": base_id} for file in metadata["files"]]}


def _locations(home: Home, metadata: dict[str, Any], bases: Mapping[int, BasePath]) -> list[str]:
    return [
        normalise_uri(resolve_path(file["path"], FileKind.DATA, file["base_id"], bases=bases, dataset_root=home.uri))
        for file in metadata["files"]
    ]


def _repoint(home: Home, dataset: lance.LanceDataset, plan: _Plan) -> int:
    """Commit the fragments with their files in the target.

    Lance has no compare-and-set, but it lands an Update of fragments only on top of what does not touch them, and
    refuses otherwise.
    """
    if not plan.repointed:
        return int(dataset.version)
    with lance_errors(home.uri, home.storage_options):
        made = lance.LanceDataset.commit(
            dataset,
            lance.LanceOperation.Update(updated_fragments=list(plan.repointed)),
            read_version=dataset.version,
            storage_options=home.lance_options(),
            commit_message=f"move {len(plan.repointed)} fragments to {label(plan.target)}",
        )
    return int(made.version)


def _report(plan: _Plan, copier: "DataFileCopier", version: int) -> MoveReport:
    sizes = [copier.sizes[target] for _, target in plan.copies]
    return MoveReport(
        to=label(plan.target),
        version=version,
        moved=tuple(fragment.id for fragment in plan.repointed),
        already_there=plan.already_there,
        partly_matching=plan.partly_matching,
        files=sum(len(each) for each in sizes),
        bytes=sum(sum(each) for each in sizes),
        left_behind=tuple(source for source, _ in plan.copies),
    )


class DataFileCopier:
    """Copy data files with all that belongs to them, each once, and verify what arrived."""

    def __init__(self, home: Home) -> None:
        self._options = home.storage_options
        self._stores: dict[str, ObjectStore] = {}
        # The sizes of what is at a target by now: large blobs and the data file itself.
        self.sizes: dict[str, tuple[int, ...]] = {}

    def copy(self, source: str, target: str) -> None:
        if target not in self.sizes:
            (from_store, name), (to_store, _) = self._store_of(source), self._store_of(target)
            paths = _with_blobs(from_store, name)
            self.sizes[target] = tuple(_copy_verified(from_store, path, to_store) for path in paths)

    def measure(self, copies: Iterable[tuple[str, str]]) -> None:
        """Note the sizes of what would be copied."""
        for source, target in copies:
            store, name = self._store_of(source)
            self.sizes[target] = tuple(store.head(path).size for path in _with_blobs(store, name))

    def move(self, source: str, target: str) -> None:
        """Copy, then delete the source: for files that no version reads yet."""
        self.copy(source, target)
        store, name = self._store_of(source)
        for path in _with_blobs(store, name):
            store.delete(path)

    def _store_of(self, uri: str) -> tuple[ObjectStore, str]:
        folder, _, name = uri.rpartition("/")
        if folder not in self._stores:
            self._stores[folder] = open_store(folder, self._options)
        return self._stores[folder], name


def _with_blobs(store: ObjectStore, name: str) -> list[str]:
    """A data file after its large blobs, which are beside it in a folder of its name: it vouches for them."""
    return [*sorted(found.path for found in store.list(name.rpartition(".")[0])), name]


def _copy_verified(source: ObjectStore, path: str, target: ObjectStore) -> int:
    here, there = source.find_info(path), target.find_info(path)
    if here is None:
        raise DamagedFileError(
            f"the data file {join_uri(source.uri, path)!r} is missing", hint="run doctor on the dataset"
        )
    place = join_uri(target.uri, path)
    # A copy that an interrupted move left is used if its contents are right, so that a large move can be repeated.
    if there is None:
        sent = hashlib.blake2b()
        target.put_stream(path, _hashed(source.stream(path), sent))
        if target.head(path).size != here.size or _digest(target, path) != sent.digest():
            raise StorageError(f"what arrived at {place!r} is not what was sent", hint="delete it and move again")
    elif there.size != here.size or _digest(target, path) != _digest(source, path):
        # Never overwritten: a version may read it, and one of the two is damaged.
        raise ObjectExistsError(
            f"{place!r} exists and differs from {join_uri(source.uri, path)!r}",
            hint="find out which of the two is damaged and delete that one, then move again",
        )
    return here.size


def _hashed(chunks: Iterator[bytes], digest: "hashlib.blake2b") -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _digest(store: ObjectStore, path: str) -> bytes:
    digest = hashlib.blake2b()
    for chunk in store.stream(path):
        digest.update(chunk)
    return digest.digest()


def copy_version(source: VersionRef, *, onto: VersionRef) -> VersionRef:
    """Stage a table that holds the rows of another version and nothing else, in its schema; row ids are new.

    What was deleted from a fragment is deleted from its copy, by a second step: Lance takes no new fragment with a
    deletion file.
    """
    dataset = source.open()
    fragments = dataset.get_fragments()
    _copy_files(source, onto)
    copies = [FragmentMetadata.from_json(json.dumps(_copied(fragment))) for fragment in fragments]
    # The schema as Lance has it, since the files are tied to its field ids.
    staged = stage(onto.open(), onto, lance.LanceOperation.Overwrite(dataset.lance_schema, copies))
    copied = staged.open()
    gone = join_addresses(list(_iter_deleted(source, dataset, fragments, copied.get_fragments())))
    return delete_at(staged, copied, gone, predicate="rows deleted before the copy").version_ref


def _copied(fragment: lance.LanceFragment) -> dict[str, object]:
    found = as_new_fragment(fragment.metadata.to_json())
    files = [{**file, "base_id": None} for file in found["files"]]
    overlays = [{**one, "data_file": {**one["data_file"], "base_id": None}} for one in found["overlays"]]
    return {**found, "files": files, "overlays": overlays, "deletion_file": None}


def _iter_deleted(
    source: VersionRef,
    dataset: lance.LanceDataset,
    fragments: Sequence[lance.LanceFragment],
    copies: Sequence[lance.LanceFragment],
) -> Iterator[Addresses]:
    with lance_errors(source.home.uri, source.home.storage_options):
        for fragment, copy in zip(fragments, copies, strict=True):
            offsets = offsets_in(source.home, dataset, fragment).astype(np.uint64)
            yield np.uint64(copy.fragment_id) << np.uint64(32) | offsets


def _copy_files(source: VersionRef, onto: VersionRef) -> None:
    """Copy the data files to where the other home has its own; their names are unique."""
    needed = files_of_version(source.home, source.version).files
    places = {file.mention.name: file.uri for file in needed if file.kind is FileKind.DATA}
    store = open_store(join_uri(onto.home.uri, FileKind.DATA.folder), onto.home.storage_options)

    def copy(item: tuple[str, str]) -> None:
        path, uri = item
        folder, _, name = uri.rpartition("/")
        found = open_store(folder, source.home.storage_options)
        # The file is in this folder already: the source is a fork that inherited it from this home.
        if found.uri == store.uri and name == path:
            return
        for each in _with_blobs(found, name):
            copy_between(found, each, store, path if each == name else each)

    in_parallel(copy, places.items())
