"""Relocate a dataset that was moved or copied: rewrite the paths of inherited files in its manifests.

Main needs no change, because its own files are found at any location. Branches record the dataset's root, and clones
their source, as absolute paths. Only these paths change, manifest by manifest, each replaced in one step.

The source of a clone that was moved has a hold that names the former address. A clone that was copied shares the hold
of the original, and would lose its files when the original is dropped. `record_clone` corrects both.
"""

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import lance

from anabranch.errors import AnabranchError, BaseNotFoundError, InvalidInputError
from anabranch.format.bases import base_location, is_dataset, list_bases, source_roots
from anabranch.format.clone.holds import Hold, list_holds, new_hold_id, record_address, take_hold
from anabranch.format.home import Home
from anabranch.format.layout.listing import ManifestScheme, manifest_of_path, pending_manifest_of_path
from anabranch.format.layout.manifest import BasePath, base_paths_of, read_manifest, with_base_paths
from anabranch.format.refs.refs import find_tag
from anabranch.format.staging.manifests import Origin, find_transaction
from anabranch.storage import ObjectStore, in_parallel
from anabranch.storage.uris import is_local, join_uri, normalise_uri, relative_to


class HoldOutcome(StrEnum):
    """The change of a clone's hold in its source."""

    UNCHANGED = "unchanged"
    UPDATED = "updated"
    ADDED = "added"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChange:
    """The hold of a relocated clone in its source.

    UPDATED: it named the former address of a clone that was moved. ADDED: the clone had no hold of its own, because it
    was copied or was made by another tool. NOT_FOUND: the source cannot be read or changed, or the version that the
    clone was made from is unknown; `tag` is then None and `problem` is the reason.
    """

    source: str
    tag: str | None
    outcome: HoldOutcome
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexplainedBase:
    """A root that a branch inherits files from, that main does not list, and that was not this dataset's own root."""

    branch: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocateReport:
    """The outcome for each manifest, by its path below the root, and for each changed base path.

    `holds` are the changes of the source's record of this dataset, if it is a clone. In a dry run nothing is changed,
    and the report lists the changes to make.
    """

    root: str
    changes: Mapping[str, str]
    rewritten: tuple[str, ...]
    unchanged: tuple[str, ...]
    unexplained: tuple[UnexplainedBase, ...]
    holds: tuple[HoldChange, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    path: str
    branch: str | None
    order: tuple[bool, bool, int]
    bases: tuple[BasePath, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    on_main: Mapping[str, str]
    on_branches: Mapping[str, str]
    first: Collection[_Manifest]
    unexplained: frozenset[UnexplainedBase]

    def move(self, manifest: _Manifest, base: BasePath) -> BasePath:
        moves = self.on_main if manifest.branch is None else self.on_branches
        return replace(base, path=moves.get(base.path, base.path))

    @property
    def changes(self) -> dict[str, str]:
        return {old: new for old, new in {**self.on_main, **self.on_branches}.items() if old != new}


def relocate(
    new_root: Home,
    *,
    mapping: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    dry_run: bool = False,
) -> RelocateReport:
    """Make a dataset at a new address read that address only, and record the address in the source of a clone.

    Branches are turned from the dataset's former root to the new one. `mapping` (old prefix to new) is for other paths
    that moved, on main too: tiers, or the source of a clone. Run it while there are no writers; after an interruption,
    or a write in between, run it again. `progress` is called with the number of manifests rewritten and to rewrite.
    """
    root = new_root.on(None)
    root.open()
    manifests = _read_manifests(root.store())
    checked = _checked_mapping(mapping or {}, manifests)
    report = _rewrite(root, manifests, checked, progress=progress, dry_run=dry_run)
    # Use the bases after the rewrite: a mapped source is searched at its new address.
    bases = [replace(base, path=report.changes.get(base.path, base.path)) for base in list_bases(root)]
    return replace(report, holds=record_clone(root, bases, dry_run=dry_run))


def relocate_with(new_root: Home, moved: Mapping[str, str]) -> RelocateReport:
    """Make a dataset that was moved together with others read the new location. Other paths stay unchanged.

    `moved` (old prefix to new) names the folders that moved and may hold bases of this dataset, or none.
    """
    root = new_root.on(None)
    # A folder that was moved into itself: paths below its new location have been changed already.
    inside = {new: new for old, new in moved.items() if relative_to(new, old) is not None}
    return _rewrite(root, _read_manifests(root.store()), {**moved, **inside})


def _rewrite(
    root: Home,
    manifests: tuple[_Manifest, ...],
    mapping: Mapping[str, str],
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
    dry_run: bool = False,
) -> RelocateReport:
    store = root.store()
    plan = _plan(root.root, manifests, mapping)
    changed = [manifest for manifest in manifests if any(plan.move(manifest, base) != base for base in manifest.bases)]
    # The first manifests show the former root. They change last, so that a second run finds it as well.
    changed.sort(key=lambda manifest: manifest in plan.first)
    for done, manifest in enumerate(() if dry_run else changed, start=1):
        data = store.get(manifest.path)
        # One put replaces the whole manifest, so a reader sees the old paths or the new ones. A second run after a
        # crash finds the rest.
        store.put(manifest.path, with_base_paths(data, partial(plan.move, manifest), name=manifest.path))
        progress(done, len(changed))
    # Handles of this process still have the old paths.
    root.forget()
    rewritten = tuple(sorted(manifest.path for manifest in changed))
    return RelocateReport(
        root=root.root,
        changes=plan.changes,
        rewritten=rewritten,
        unchanged=tuple(sorted({manifest.path for manifest in manifests} - set(rewritten))),
        unexplained=tuple(sorted(plan.unexplained, key=lambda base: (base.branch, base.path))),
        dry_run=dry_run,
    )


def _read_manifests(store: ObjectStore) -> tuple[_Manifest, ...]:
    """Read every manifest of every home, with or without a ref, before anything is written."""
    found = [info.path for folder in ("_versions", "tree") for info in store.list(folder)]
    return tuple(manifest for manifest in in_parallel(partial(_read, store), found) if manifest is not None)


def _read(store: ObjectStore, path: str) -> _Manifest | None:
    finished, pending = manifest_of_path(path), pending_manifest_of_path(path)
    name = finished or pending
    if name is None:
        return None
    home = path.rpartition("/")[0].removesuffix("_versions").strip("/")
    return _Manifest(
        path=path,
        branch=home.removeprefix("tree/") or None,
        # Staged and unfinished ones last, then by version: the first is the one that the branch began with.
        order=(name.scheme is ManifestScheme.DETACHED, finished is None, name.version),
        bases=base_paths_of(read_manifest(store.get(path), name=path)),
    )


def _checked_mapping(mapping: Mapping[str, str], manifests: Iterable[_Manifest]) -> dict[str, str]:
    known = set(map(_spelled, _base_paths(manifests)))
    checked: dict[str, str] = {}
    for old, new in mapping.items():
        # pylance records relative paths unchanged, and they are used unchanged.
        source = _spelled(old) if _any_below(known, _spelled(old)) else normalise_uri(old)
        target = normalise_uri(new)
        if source == target:
            raise InvalidInputError(f"base path {old!r} is mapped to itself", hint="leave it out of the mapping")
        # The target alone is known after an earlier run.
        if not _any_below(known, source) and not _any_below(known, target):
            raise BaseNotFoundError(
                f"no base path is {old!r} or is below it",
                hint=f"the base paths are: {', '.join(sorted(known)) or 'none'}",
            )
        checked[source] = target
    for path in known:
        moved = moved_path(path, checked)
        # A second run would move this path again, so an interrupted relocation could not be repeated.
        if moved_path(moved, checked) != moved:
            raise InvalidInputError(
                f"base path {path!r} would move to {moved!r}, which the mapping moves again",
                hint="map each base by its whole path, or relocate in two steps",
            )
    return checked


def _any_below(paths: Iterable[str], prefix: str) -> bool:
    return any(relative_to(path, prefix) is not None for path in paths)


def _plan(root: str, manifests: Iterable[_Manifest], mapping: Mapping[str, str]) -> _Plan:
    """Decide the new path of each base path, from all manifests at once."""
    main = [manifest for manifest in manifests if manifest.branch is None]
    branches = [manifest for manifest in manifests if manifest.branch is not None]
    on_main = {path: moved_path(path, mapping) for path in _base_paths(main)}
    listed = set(map(_spelled, on_main.values()))

    def is_stale(path: str) -> bool:
        return relative_to(_spelled(path), root) is None and _spelled(path) not in listed

    first: dict[str | None, _Manifest] = {}
    for manifest in sorted(branches, key=lambda manifest: manifest.order):
        first.setdefault(manifest.branch, manifest)
    former = dict.fromkeys(_former_roots(root, first, mapping, is_stale), root)
    on_branches: dict[str, str] = {}
    for path in _base_paths(branches):
        moved = moved_path(path, mapping)
        on_branches[path] = moved_path(moved, former) if is_stale(moved) else moved
    return _Plan(
        on_main=on_main,
        on_branches=on_branches,
        first=frozenset(first.values()),
        # The roots from which branches would still read files outside of the dataset.
        unexplained=frozenset(
            UnexplainedBase(branch=manifest.branch, path=base.path)
            for manifest in branches
            for base in manifest.bases
            if manifest.branch is not None and base.is_dataset_root and is_stale(on_branches[base.path])
        ),
    )


def _base_paths(manifests: Iterable[_Manifest]) -> set[str]:
    return {base.path for manifest in manifests for base in manifest.bases}


def _former_roots(
    root: str, first: Mapping[str | None, _Manifest], mapping: Mapping[str, str], is_stale: Callable[[str], bool]
) -> set[str]:
    """Return the former roots of the dataset, from the time when its branches were made."""
    # A branch begins with a nameless base for the root and, if it has a parent branch, one for `{root}/tree/{parent}`.
    # If more than one base could be the root, none is taken: only the user knows which one was.
    former: set[str] = set()
    for manifest in first.values():
        roots = {_spelled(moved_path(base.path, mapping)): base for base in manifest.bases if base.is_dataset_root}
        nameless = []
        for path in filter(is_stale, roots):
            parent = next((name for name in first if path.endswith(f"/tree/{name}")), None)
            if parent is not None:
                former.add(path.removesuffix(f"/tree/{parent}"))
            elif roots[path].name is None:
                nameless.append(path)
        # If the branch lists the present root already, a nameless base is something else, such as the source of a
        # clone.
        if len(nameless) == 1 and root not in roots:
            former.update(nameless)
    return former


def moved_path(path: str, prefixes: Mapping[str, str]) -> str:
    """Return the path with its longest matching prefix replaced, or the same path."""
    # The longest prefix first: a folder may have moved elsewhere than the folder around it.
    for old in sorted(prefixes, key=len, reverse=True):
        rest = relative_to(_spelled(path), old)
        if rest is not None:
            return join_uri(prefixes[old], rest) if rest else prefixes[old]
    return path


def _spelled(path: str) -> str:
    """Return a normalised base path. A relative path stays relative: the folder it starts from is unknown."""
    if is_local(path) and not path.startswith("/"):
        return posixpath.normpath(path)
    return base_location(path)


def record_clone(clone: Home, bases: Iterable[BasePath], *, dry_run: bool = False) -> tuple[HoldChange, ...]:
    """Make the source of a shallow clone hold the version that the clone reads, under the clone's present address.

    `bases` are those of the clone's main branch. The answer is empty for a dataset that is not a clone. An error in the
    source is reported, not raised: the clone itself has been relocated by then.
    """
    known = tuple(bases)
    made = _clone_operation(clone)
    recorded = None if made is None else made.ref_path.rstrip("/").partition("/tree/")[0]
    options = clone.storage_options
    roots = source_roots(clone, known, lambda _, root: root == recorded or bool(is_dataset(root, options)))
    if not roots:
        return ()
    # A clone of a clone inherits from several datasets, and only the last of them holds it.
    source = Home.at(recorded if recorded in roots else roots[-1], clone.storage_options)
    try:
        names = {base.name for base in known if base.name is not None}
        return (_record(source, clone, names, made, dry_run=dry_run),)
    except AnabranchError as err:
        return (HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=err.problem),)


def _clone_operation(clone: Home) -> lance.LanceOperation.Clone | None:
    """Return the operation that made the clone, from its oldest version. None if that version was removed."""
    try:
        with clone.errors():
            # Only the oldest version has the Clone operation, which names the source.
            first = min(int(ref["version"]) for ref in clone.open().version_refs())
        made = find_transaction(clone, clone.open(first), first)
    except AnabranchError:
        return None
    return made.operation if made is not None and isinstance(made.operation, lance.LanceOperation.Clone) else None


def _record(
    source: Home, clone: Home, names: Collection[str], made: lance.LanceOperation.Clone | None, *, dry_run: bool
) -> HoldChange:
    holds = list_holds(source)
    for hold in holds:
        # The source has this address of the clone: there was no move, or it is recorded already.
        if hold.clone_uri == clone.root:
            return HoldChange(source=source.root, tag=hold.name, outcome=HoldOutcome.UNCHANGED)
    own = [hold for hold in holds if hold.name in names]
    origins = [*map(_kept, own), *_origins(source, names, made)]
    # A hold that the clone names is its own. Otherwise each hold of the version that it was made from may be.
    candidates = own or [hold for hold in holds if _kept(hold) in origins]
    # If the store of the address in the hold cannot be reached, assume that the dataset exists.
    moved = [h for h in candidates if h.clone_uri is None or is_dataset(h.clone_uri, clone.storage_options) is False]
    if len(moved) == 1:
        if not dry_run:
            record_address(source, moved[0].name, clone.root)
        return HoldChange(source=source.root, tag=moved[0].name, outcome=HoldOutcome.UPDATED)
    if not origins:
        problem = "the version that the clone was made from is not known"
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=problem)
    branch, version = origins[0].branch, origins[0].version
    if dry_run:
        source.on(branch).open(version)  # fails as the hold would
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.ADDED)
    # The original still exists, or several clones of one version moved: an extra hold does no harm.
    hold = take_hold(source, branch=branch, version=version, clone_uri=clone.root, hold_id=new_hold_id())
    return HoldChange(source=source.root, tag=hold.name, outcome=HoldOutcome.ADDED)


def _origins(source: Home, names: Iterable[str], made: lance.LanceOperation.Clone | None) -> list[Origin]:
    """Return the versions from which a clone may have been made, by its first transaction or the name of a tag."""
    if made is not None:
        return [Origin(branch=made.ref_name, version=made.ref_version)]
    tags = (find_tag(source, name) for name in sorted(names))
    return [Origin(branch=tag.branch, version=tag.version) for tag in tags if tag is not None]


def _kept(hold: Hold) -> Origin:
    return Origin(branch=hold.kept_branch, version=hold.kept_version)
