"""Find the damage that crashes, races and other tools left in a dataset, and repair it if that is safe.

Here are the findings about damaged, missing and unused files, and about branches and tags that Lance cannot open.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from functools import partial

import lance

from anabranch.errors import AnabranchError, DatasetNotFoundError, StorageDeniedError, StorageUnavailableError
from anabranch.format.doctor.branches import FROM_BACKUP, diagnose_refs, diagnose_trees
from anabranch.format.doctor.findings_and_repairs import Case, DoctorReport, FindingKind, Repairs, examine, unknown_file
from anabranch.format.doctor.inventory import (
    Contents,
    Inventory,
    Progress,
    VersionFacts,
    check_contents,
    label,
    read_inventory,
)
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import (
    BRANCH_REFS,
    TAG_REFS,
    LayoutFile,
    LayoutKind,
    ManifestName,
    ManifestScheme,
    branch_ref_path,
    manifests_of,
    tag_ref_path,
)
from anabranch.storage import in_parallel

# Without transactions: a version can be read without its own, so an extra or missing one is not a finding.
_MENTIONED = frozenset({LayoutKind.DATA, LayoutKind.BLOB, LayoutKind.DELETION, LayoutKind.INDEX})
# More digits than Lance writes: it also reads numbers with leading zeros.
_NUMBERED = re.compile(r"(?:^|/)_versions/([0-9]{1,30})\.manifest$")


def diagnose_files(inventory: Inventory, contents: Contents, repairs: Repairs) -> Iterator[Case]:
    """Report files that are damaged, missing or not used."""
    yield from _damaged_manifests(inventory)
    yield from _stray_manifests(inventory)
    yield from _wrong_files(contents)
    yield from _unchecked_bases(contents)
    yield from _broken_tags(inventory)
    yield from _stale_bases(inventory)
    yield from _orphans(inventory)
    yield from _temporary_files(inventory, repairs)
    if paths := tuple(file.path for file in inventory.layout.unknown_files):
        yield unknown_file(inventory.layout.root, *paths)


def _damaged_manifests(inventory: Inventory) -> Iterator[Case]:
    for file, problem in inventory.damaged_manifests:
        if not file.has_ref:
            continue  # part of a tree that is reported as a whole
        yield Case(
            kind=FindingKind.DAMAGED_MANIFEST,
            subject=file.path,
            explanation=f"version {ManifestName.parse(file.name).version} of {label(file.branch)}: {problem}",
            remedy=FROM_BACKUP,
            paths=(file.path,),
        )


def _stray_manifests(inventory: Inventory) -> Iterator[Case]:
    """Report files that Lance reads as manifests, with names that are not valid here: it refuses the whole folder."""
    # A name is a version in 20 digits, counted down, or in old datasets the version itself. A folder has one kind.
    for branch in (None, *inventory.layout.branches):
        own = inventory.layout.of_branch(branch)
        schemes = {ManifestName.parse(file.name).scheme for file in own if file.kind is LayoutKind.MANIFEST}
        for file in own:
            if not _is_stray(file, is_mixed=len(schemes) > 1):
                continue
            yield Case(
                kind=FindingKind.STRAY_MANIFEST,
                subject=file.path,
                explanation=f"Lance takes it for a version of {label(branch)}, and its name is not one of this folder",
                remedy="none: move the file out of the folder",
                paths=(file.path,),
            )


def _is_stray(file: LayoutFile, *, is_mixed: bool) -> bool:
    """Return whether Lance reads a file as a manifest although its name is not one of its folder."""
    if file.kind is LayoutKind.MANIFEST:
        # Names of the old kind are not valid in a folder that has both kinds.
        return is_mixed and ManifestName.parse(file.name).scheme is ManifestScheme.V1
    # Lance reads any number of 64 bits as a version.
    number = _NUMBERED.search(file.path) if file.kind is LayoutKind.UNKNOWN else None
    return number is not None and int(number[1]) < 1 << 64


def _wrong_files(contents: Contents) -> Iterator[Case]:
    for wrong in contents.wrong:
        explanation, paths = wrong.explanation, [wrong.file.path]
        if wrong.is_missing:
            first, *others = wrong.versions
            more = f" and {len(others)} more" if others else ""
            explanation = f"version {first.version} of {label(first.branch)}{more} cannot be read without it"
            paths = [facts.path for facts in wrong.versions]
        yield Case(
            kind=wrong.kind, subject=wrong.file.path, explanation=explanation, remedy=FROM_BACKUP, paths=tuple(paths)
        )


def _unchecked_bases(contents: Contents) -> Iterator[Case]:
    for folder, problem in sorted(contents.unchecked.items()):
        yield Case(
            kind=FindingKind.UNCHECKED_BASE,
            subject=folder,
            explanation=f"its files cannot be checked: {problem}",
            remedy="none: make it reachable and run doctor again",
        )


def _broken_tags(inventory: Inventory) -> Iterator[Case]:
    existing = {key for key, file in manifests_of(inventory.layout).items() if file.has_ref}
    for tag in inventory.tags:
        if (tag.branch, tag.version) in existing:
            continue
        yield Case(
            kind=FindingKind.BROKEN_TAG,
            subject=tag_ref_path(tag.name),
            explanation=f"tag {tag.name!r} names version {tag.version} of {label(tag.branch)}, which is gone",
            remedy="none: delete the tag, or move it to a version that exists",
            paths=(tag_ref_path(tag.name),),
        )


def _stale_bases(inventory: Inventory) -> Iterator[Case]:
    for name, problem in sorted(inventory.stale_bases.items()):
        yield Case(
            kind=FindingKind.STALE_BASE,
            subject=branch_folder(name),
            explanation=problem,
            remedy="none: relocate the dataset if it was moved or copied here",
        )
    older: dict[str, list[VersionFacts]] = defaultdict(list)
    for facts in inventory.versions:
        # The newest version of these branches is right, so they open and only older versions are wrong.
        if facts.stale_base is not None and facts.branch is not None and facts.branch not in inventory.stale_bases:
            older[facts.branch].append(facts)
    for name, stale in sorted(older.items()):
        numbers = ", ".join(str(facts.version) for facts in sorted(stale, key=lambda facts: facts.version))
        yield Case(
            kind=FindingKind.STALE_BASE,
            subject=branch_folder(name),
            explanation=f"{stale[0].stale_base}; only in older versions ({numbers}): a relocation was interrupted",
            remedy="none: relocate the dataset again",
            paths=tuple(sorted(facts.path for facts in stale)),
        )


def _orphans(inventory: Inventory) -> Iterator[Case]:
    """Report files that no readable manifest names. Those of unreferenced trees are reported with their tree."""
    known = {file.path for facts in inventory.versions for file in facts.files}
    orphans: dict[str | None, list[str]] = defaultdict(list)
    for file in inventory.layout.files:
        # Large values and index files are named by their data file or folder.
        if file.has_ref and file.kind in _MENTIONED and file.named_path not in known:
            orphans[file.branch].append(file.path)
    for branch, paths in orphans.items():
        yield Case(
            kind=FindingKind.ORPHAN_FILES,
            subject=branch_folder(branch) if branch is not None else inventory.layout.root,
            explanation=f"{len(paths)} files of {label(branch)} are in no readable manifest of this dataset",
            remedy="none: they may be about to be committed, or be used by a clone",
            paths=tuple(paths),
        )


def _temporary_files(inventory: Inventory, repairs: Repairs) -> Iterator[Case]:
    """Report half-written files."""
    # A ref is written within seconds, but a data file for hours, so that its writer may still be running.
    refs: list[LayoutFile] = []
    others: list[LayoutFile] = []
    for file in inventory.layout.files:
        if file.kind is LayoutKind.TEMPORARY and file.has_ref:
            (refs if file.path.startswith("_refs/") else others).append(file)
    for subject, found, remedy, repair in (
        ("_refs", refs, "a repair removes them", partial(repairs.remove_files, refs)),
        (inventory.layout.root, others, "none: remove them when there are no writers", None),
    ):
        if found:
            yield Case(
                kind=FindingKind.TEMPORARY_FILES,
                subject=subject,
                explanation=f"{len(found)} half-written files: a crash left them, or they are being written",
                remedy=remedy,
                paths=tuple(file.path for file in found),
                repair=repair,
            )


def diagnose_opening(root: Home, inventory: Inventory) -> Iterator[Case]:
    """Report every branch and tag that Lance cannot open and that no other finding explains."""
    damaged = {file.path for file, _ in inventory.damaged_manifests}
    sound = [name for name in (None, *inventory.layout.branches) if _may_open(inventory, name, damaged)]
    for name, problem in zip(sound, in_parallel(lambda name: _opening_problem(root, name, None), sound), strict=True):
        if problem is not None and _is_there(root, None if name is None else branch_ref_path(name)):
            yield _unopenable(root.on(name).uri, f"Lance cannot open {label(name)}: {problem}")
    yield from _unopenable_tags(root, inventory, sound, damaged)
    if None in sound:
        yield from _unlisted(root, inventory)


def _may_open(inventory: Inventory, name: str | None, damaged: Collection[str]) -> bool:
    """Return whether no other finding explains why Lance cannot open a home."""
    manifests = inventory.ordinary_manifests(name)
    # A branch without manifests and a damaged newest manifest are findings of their own.
    return manifests[-1].path not in damaged if manifests else name is None


def _unopenable_tags(
    root: Home, inventory: Inventory, sound: Collection[str | None], damaged: Collection[str]
) -> Iterator[Case]:
    all_manifests = manifests_of(inventory.layout)
    for tag in inventory.tags:
        manifest = all_manifests.get((tag.branch, tag.version)) if tag.branch in sound else None
        if manifest is None or manifest.path in damaged:
            continue  # a finding of its own
        problem = _opening_problem(root, tag.branch, tag.version)
        path = tag_ref_path(tag.name)
        if problem is not None and _is_there(root, path):
            yield _unopenable(path, f"Lance cannot open tag {tag.name!r}: {problem}")


def _opening_problem(root: Home, branch: str | None, version: int | None) -> str | None:
    """Open a version like other tools: a branch through the dataset, not by its folder."""

    def open_it() -> object:
        opened = lance.dataset(root.root, storage_options=root.lance_options())
        return opened if branch is None and version is None else opened.checkout_version((branch, version))

    return _problem(root, open_it)


def _unlisted(root: Home, inventory: Inventory) -> Iterator[Case]:
    for folder, refs, read in (
        (BRANCH_REFS, inventory.branch_refs, lambda: root.open().branches.list()),
        (TAG_REFS, inventory.tag_refs, lambda: root.open().tags.list()),
    ):
        # A file that cannot be read is a finding of its own. Lance fails if a ref is deleted while it lists: try twice.
        is_explained = any(ref.problem is not None for ref in refs) or _problem(root, read) is None
        if not is_explained and (problem := _problem(root, read)) is not None:
            yield _unopenable(folder, f"Lance cannot list the refs in {folder!r}: {problem}")


def _problem(root: Home, call: Callable[[], object]) -> str | None:
    try:
        with root.errors():
            call()
    # Not damage: a report of damage for a network error could lead to a wrong repair.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return err.problem
    return None


def _is_there(root: Home, path: str | None) -> bool:
    """Return whether a ref still exists. A ref that was deleted since the inventory needs no finding."""
    return path is None or root.store().find_info(path) is not None


def _unopenable(subject: str, explanation: str) -> Case:
    return Case(
        kind=FindingKind.UNOPENABLE,
        subject=subject,
        explanation=explanation,
        remedy="none: see the other findings, or restore the newest manifest from a backup",
    )


# Far longer than a creator needs between the first manifest of a branch and its ref.
GRACE = timedelta(minutes=15)


def doctor(
    home: Home,
    *,
    repair: bool = False,
    grace: timedelta = GRACE,
    clones: Iterable[Home] = (),
    progress: Progress = lambda *_: None,
) -> DoctorReport:
    """Return the findings of a dataset, damaged or not. With `repair`, fix what is safe to fix first.

    A repair removes nothing that a branch, a tag or one of the given clones needs, nor what is younger than `grace` by
    the store's own clock, as it may be a branch in creation.
    """
    root = home.on(None)
    others = tuple(clones)
    # Each scan has its own repairs, because they compare ages with one time of the store.
    return examine(root.root, lambda: _scan(root, others, Repairs(root, grace), progress), repair=repair)


def _scan(root: Home, clones: Iterable[Home], repairs: Repairs, progress: Progress) -> list[Case]:
    inventory = read_inventory(root, progress=progress)
    # Versions in trees without a ref are reported with their tree.
    homes = {None, *(ref.name for ref in inventory.branch_refs)}
    known = [facts for facts in inventory.versions if facts.branch in homes]
    contents = check_contents(root, inventory.layout, known)
    return [
        *diagnose_refs(inventory, repairs),
        *diagnose_trees(inventory, repairs, clones={clone.uri: _base_paths(clone) for clone in clones}),
        *diagnose_files(inventory, contents, repairs),
        *diagnose_opening(root, inventory),
    ]


def _base_paths(clone: Home) -> tuple[str, ...]:
    try:
        return tuple({path for facts in read_inventory(clone).versions for path in facts.base_paths})
    except DatasetNotFoundError:
        return ()
