"""Check branches and tags: refs that Lance refuses, lost metadata, and branches whose files and metadata differ.

The repairs are in `findings`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from anabranch.format.doctor.findings_and_repairs import Case, FindingKind, Repair, Repairs
from anabranch.format.doctor.inventory import Inventory, VersionFacts, label, read_partial_inventory
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.layout.listing import (
    ALL_MANIFESTS,
    BRANCH_REFS,
    TAG_REFS,
    Layout,
    LayoutFile,
    LayoutKind,
    branch_ref_path,
    manifests_of,
    tag_ref_path,
)
from anabranch.format.refs.ref_files import (
    RefFile,
    RefKind,
    encode_branch,
    encode_ref,
    parse_ref,
    usable_fields,
    whole_number,
)
from anabranch.format.refs.refs import BranchInfo, TagInfo, parse_branch, scan_branches
from anabranch.format.staging.manifests import Origin

FROM_BACKUP = "restore it from a backup"


AnyRef = RefFile[BranchInfo] | RefFile[TagInfo]


def diagnose_refs(inventory: Inventory, repairs: Repairs) -> Iterator[Case]:
    """Report the refs that Lance refuses."""
    for branch in inventory.branch_refs:
        if branch.problem is not None:
            repair = _repair_branch(inventory, branch, repairs)
            yield _damaged(branch, repair, f"{FROM_BACKUP}, or delete the branch")
    for tag in inventory.tag_refs:
        if tag.problem is not None:
            yield _damaged(tag, _repair_tag(inventory, tag, repairs), f"{FROM_BACKUP}, or delete the tag")


def _damaged(ref: AnyRef, repair: Repair | None, otherwise: str) -> Case:
    return Case(
        kind=FindingKind.DAMAGED_REF,
        subject=ref.path,
        explanation=f"{ref.problem}; Lance cannot list its refs, nor delete a branch, while it is there",
        remedy="a repair writes it again as Lance does" if repair is not None else f"none: {otherwise}",
        paths=(ref.path,),
        repair=repair,
    )


def _repair_branch(inventory: Inventory, ref: RefFile[BranchInfo], repairs: Repairs) -> Repair | None:
    data = _branch_data(inventory, ref.name, _parent_of(ref), damaged=ref.data)
    return None if data is None else _write(ref, branch_ref_path(ref.name), data, inventory.branch_refs, repairs)


def _parent_of(ref: RefFile[BranchInfo]) -> Origin | None:
    try:
        return _origin_of(ref.info or parse_branch(ref.name, ref.data))
    except (KeyError, ValueError):
        return None


def _origin_of(info: BranchInfo) -> Origin:
    return Origin(branch=info.parent_branch, version=info.parent_version)


def rebuild_missing_ref(inventory: Inventory, branch: str, repairs: Repairs) -> Repair | None:
    """Return the repair of a branch without metadata, if its first version records what it was created from."""
    data = _branch_data(inventory, branch, None)
    return None if data is None else partial(repairs.write_ref, branch_ref_path(branch), data, expected=None)


def _branch_data(inventory: Inventory, branch: str, parent: Origin | None, *, damaged: bytes = b"") -> bytes | None:
    """Return the metadata of a branch, given its parent if that is known; None if it cannot be found."""
    manifests = inventory.ordinary_manifests(branch)
    if not manifests:
        return None
    first = manifests[0]
    # The metadata first: native cleanup may have removed the manifest that the branch began with.
    parent = parent or _recorded_origin(inventory, branch, first)
    if parent is None:
        return None
    above = None if parent.branch is None else inventory.find_readable_ref(parent.branch)
    if parent.branch is not None and above is None:
        return None  # the parent has to be repaired first
    return encode_branch(
        parent_branch=parent.branch,
        parent_version=parent.version,
        created_at=first.modified,
        manifest_size=first.size,
        parent_ref=b"" if above is None else above.data,
        damaged=damaged,
    )


def _recorded_origin(inventory: Inventory, branch: str, first: LayoutFile) -> Origin | None:
    versions = inventory.versions_of(branch)
    # If the first manifest cannot be read, later ones do not show the creation.
    return versions[0].cloned_from if versions and versions[0].path == first.path else None


def _repair_tag(inventory: Inventory, ref: RefFile[TagInfo], repairs: Repairs) -> Repair | None:
    target = _target_of(ref)
    manifest = None if target is None else manifests_of(inventory.layout).get(target)
    if target is None or manifest is None:
        return None
    # All but the target comes from the damaged file, where that is usable.
    found = usable_fields(ref.data, RefKind.TAG)
    data = encode_ref(
        {
            "branch": target[0],
            "version": target[1],
            "createdAt": found.get("createdAt"),
            "updatedAt": found.get("updatedAt"),
            "manifestSize": found.get("manifestSize", manifest.size),
            "metadata": found.get("metadata", {}),
        }
    )
    # The contents are right: Lance refuses the name of the tag, and a repair must not rename it.
    return None if data == ref.data else _write(ref, tag_ref_path(ref.name), data, inventory.tag_refs, repairs)


def _target_of(ref: RefFile[TagInfo]) -> tuple[str | None, int] | None:
    if ref.info is not None:
        return ref.info.branch, ref.info.version
    try:
        fields = parse_ref(ref.data)
        branch, version = fields.get("branch"), whole_number(fields["version"])
    except (KeyError, ValueError):
        return None
    return (branch, version) if branch is None or isinstance(branch, str) else None


def _write(ref: AnyRef, path: str, data: bytes, others: Iterable[AnyRef], repairs: Repairs) -> Repair | None:
    is_elsewhere = path != ref.path
    if is_elsewhere and any(other.path == path for other in others):
        return None  # the user has to decide which of the two is right
    return partial(
        repairs.write_ref,
        path,
        data,
        expected=None if is_elsewhere else ref.data,
        instead_of=ref.path if is_elsewhere else None,
    )


def find_ref_repair(root: Home, files: Layout, branch: str, ref: RefFile[BranchInfo] | None) -> Repair | None:
    """Return the repair of a branch without metadata (`ref` is None), or with metadata that Lance refuses.

    None if the branch's files do not record what it was made from, or if that does not exist.
    """
    # The other branches may have any number of files.
    own = replace(files, files=tuple(files.of_branch(branch)))
    ordinary = [version for _, version in manifests_of(own) if not is_staged(version)]
    if not ordinary:
        return None
    inventory = replace(read_partial_inventory(root, own, {(branch, min(ordinary))}), branch_refs=scan_branches(root))
    repairs = Repairs(root, timedelta(0))
    return rebuild_missing_ref(inventory, branch, repairs) if ref is None else _repair_branch(inventory, ref, repairs)


# Files with rows, or made from rows: a tree that has one was written to.
_CONTENT = frozenset({LayoutKind.DATA, LayoutKind.BLOB, LayoutKind.DELETION, LayoutKind.INDEX, LayoutKind.MEM_WAL})


def diagnose_trees(inventory: Inventory, repairs: Repairs, *, clones: Mapping[str, Sequence[str]]) -> Iterator[Case]:
    """Compare the files of branches with their metadata; `clones` are the base paths of known clones."""
    users = _users_of_trees(inventory, clones)
    yield from _missing_trees(inventory, users, repairs)
    yield from _mismatched_trees(inventory, repairs)
    yield from _unreferenced_trees(inventory, users, repairs)
    yield from _branches_without_ordinary_version(inventory)


def _users_of_trees(inventory: Inventory, clones: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Return the users of each tree: tags, child branches, clones, and homes that read its files."""
    trees = {file.branch for file in inventory.layout.files if file.branch is not None}
    users: dict[str, set[str]] = defaultdict(set)
    for tag in inventory.tags:
        if tag.branch is not None:
            users[tag.branch].add(f"tag {tag.name!r}")
    for info in inventory.branches:
        if info.parent_branch is not None:
            users[info.parent_branch].add(f"branch {info.name!r}")
    for clone, paths in clones.items():
        for tree in _trees_of(paths, trees):
            users[tree].add(f"clone {clone!r}")
    _add_readers(inventory, users, trees)
    return users


def _add_readers(inventory: Inventory, users: dict[str, set[str]], trees: Iterable[str]) -> None:
    """Add the homes that read files of a tree. Start from all live homes: a tree that is read is live, too."""
    # Base paths are compared by their ends: those of a dataset that was moved name its old location until a relocation.
    base_paths: dict[str | None, set[str]] = defaultdict(set)
    for facts in inventory.versions:
        base_paths[facts.branch].update(facts.base_paths)
    pending: list[str | None] = [None, *inventory.layout.branches, *users]
    seen: set[str | None] = set()
    # A tree that is read may read another one, so the search continues from each tree that it finds.
    while pending:
        home = pending.pop()
        if home in seen:
            continue
        seen.add(home)
        for tree in _trees_of(base_paths[home], trees) - {home}:
            users[tree].add(label(home))
            pending.append(tree)


def _trees_of(base_paths: Iterable[str], trees: Iterable[str]) -> set[str]:
    return {tree for path in base_paths for tree in trees if path.rstrip("/").endswith(f"/{branch_folder(tree)}")}


def _doubt(inventory: Inventory) -> str | None:
    """Return the reason why the needed files are unknown. Then nothing is removed."""
    for tag in inventory.tag_refs:
        # A damaged tag, manifest or ref may name any tree, so nothing is removed while there is one.
        if tag.info is None:
            return f"the tag in {tag.path!r} is damaged and may name it"
    for file, _ in inventory.damaged_manifests:
        if file.has_ref:
            return f"the manifest {file.path!r} is damaged and may need it"
    for file in inventory.layout.unknown_files:
        if file.path.startswith((f"{BRANCH_REFS}/", f"{TAG_REFS}/")):
            return f"{file.path!r} may be a ref under another spelling"
    return None


def _unreferenced_trees(inventory: Inventory, users: Mapping[str, set[str]], repairs: Repairs) -> Iterator[Case]:
    doubt = _doubt(inventory)
    for name in inventory.layout.unreferenced_trees:
        needed_by = tuple(sorted(users.get(name, ())))
        is_untouched = _is_untouched(inventory, name)
        # Lance leaves all files of a branch that it deletes if another branch lies inside its folder.
        is_leftover = is_untouched or any(other.startswith(f"{name}/") for other in inventory.layout.branches)
        rebuilt = rebuild_missing_ref(inventory, name, repairs) if needed_by or not is_leftover else None
        if rebuilt is not None:
            yield _missing_ref(name, rebuilt, needed_by)
        else:
            kind = FindingKind.UNREFERENCED_TREE if is_untouched else FindingKind.ZOMBIE_TREE
            yield _leftover_tree(inventory, name, kind, needed_by, doubt, repairs)


def _leftover_tree(
    inventory: Inventory, name: str, kind: FindingKind, needed_by: tuple[str, ...], doubt: str | None, repairs: Repairs
) -> Case:
    """Return the case of a tree to remove, unless it is needed or in doubt."""
    own = tuple(file for file in inventory.layout.of_branch(name) if file.kind is not LayoutKind.UNKNOWN)
    explanation, remedy = _TREES[kind]
    if needed_by:
        remedy = _in_use(needed_by)
    elif doubt:
        remedy = f"none for now: {doubt}"
    return Case(
        kind=kind,
        subject=branch_folder(name),
        explanation=explanation.format(name=name),
        remedy=remedy,
        paths=tuple(file.path for file in own),
        needed_by=needed_by,
        repair=None if needed_by or doubt else partial(repairs.remove_tree, name, own),
    )


def _in_use(needed_by: Sequence[str]) -> str:
    return f"none while it is in use: delete {', '.join(needed_by)} first"


def _is_untouched(inventory: Inventory, name: str) -> bool:
    """Return whether a tree is unchanged since its creation: without own files, and without later versions."""
    if any(file.kind in _CONTENT for file in inventory.layout.of_branch(name)):
        return False
    return all(facts.cloned_from is not None for facts in inventory.versions if facts.branch == name)


def _missing_ref(name: str, rebuilt: Repair, needed_by: tuple[str, ...]) -> Case:
    """Return the case of a branch without metadata that has its first version, and own rows or users."""
    # A deletion removes the first version right after the metadata, so an interrupted deletion leaves no first version.
    return Case(
        kind=FindingKind.MISSING_REF,
        subject=branch_ref_path(name),
        explanation=f"branch {name!r} has all of its files but no metadata, and cannot be listed or branched from",
        remedy="a repair writes it again from the branch's first version; then delete the branch if it is not wanted",
        paths=(branch_ref_path(name),),
        needed_by=needed_by,
        repair=rebuilt,
    )


# The explanation of a tree without metadata, and its repair.
_TREES = {
    FindingKind.UNREFERENCED_TREE: (
        "files of a branch {name!r} without its metadata: the creation broke off, or the deletion did; the name cannot"
        " be used again",
        "a repair removes its files, once they are old enough that no process can still be creating the branch",
    ),
    FindingKind.ZOMBIE_TREE: (
        "files of a branch {name!r} that was deleted: its deletion left them, or a program wrote to it afterwards",
        "a repair removes its files, and with them the rows that only this branch had; to keep them, restore the"
        " branch's metadata from a backup",
    ),
}


def _missing_trees(inventory: Inventory, users: Mapping[str, set[str]], repairs: Repairs) -> Iterator[Case]:
    for name in inventory.layout.branches:
        files = inventory.layout.of_branch(name)
        if any(file.kind in ALL_MANIFESTS for file in files):
            continue
        needed_by = tuple(sorted(users.get(name, ())))
        has_content = any(file.kind in _CONTENT for file in files)
        if needed_by:
            remedy = _in_use(needed_by)
        # The data files may be all that is left of the branch's rows, so the branch is not removed by a repair.
        elif has_content:
            remedy = "restore its manifests from a backup, or delete the branch: its data files are still there"
        else:
            remedy = "a repair removes its metadata, which frees the name"
        is_removable = not needed_by and not has_content
        yield Case(
            kind=FindingKind.MISSING_TREE,
            subject=branch_ref_path(name),
            explanation=f"branch {name!r} has metadata but no manifest below {branch_folder(name)!r}",
            remedy=remedy,
            paths=(branch_ref_path(name),),
            needed_by=needed_by,
            repair=partial(repairs.remove_ref, name) if is_removable else None,
        )


def _mismatched_trees(inventory: Inventory, repairs: Repairs) -> Iterator[Case]:
    """Report trees with first manifests of several creators: the last ref counts, but the newest manifest opens."""
    repair: Repair | None
    for info in inventory.branches:
        versions = inventory.versions_of(info.name)
        # Lance writes the name of the branch into its manifests, so another name means a copied file.
        copied = next((facts for facts in versions if facts.own_branch not in (None, info.name)), None)
        origins = [facts.cloned_from for facts in versions if facts.cloned_from is not None]
        if copied is not None:
            problem = f"its version {copied.version} belongs to branch {copied.own_branch!r}"
            remedy, repair = "none: find out who put it there, then delete the branch", None
        elif origins and origins[-1] != _origin_of(info):
            problem = f"it opens as a copy of version {origins[-1].version} of {label(origins[-1].branch)}"
            remedy, repair = _mismatch_remedy(inventory, info, origins[-1], repairs)
        else:
            continue
        source = f"version {info.parent_version} of {label(info.parent_branch)}"
        yield Case(
            kind=FindingKind.MISMATCHED_TREE,
            subject=branch_folder(info.name),
            explanation=f"branch {info.name!r} was made from {source}, by its metadata, but {problem}",
            remedy=remedy,
            paths=(branch_ref_path(info.name),),
            repair=repair,
        )


def _mismatch_remedy(
    inventory: Inventory, info: BranchInfo, origin: Origin, repairs: Repairs
) -> tuple[str, Repair | None]:
    if losers := _losing_manifests(inventory, info):
        seen = tuple(file.path for file in inventory.layout.of_branch(info.name) if file.kind in ALL_MANIFESTS)
        return (
            "a repair removes the manifests that other creators of the same name left; nothing was built on them",
            partial(repairs.drop_manifests, info.name, losers, seen),
        )
    if origin.branch is None or inventory.find_readable_ref(origin.branch) is not None:
        return (
            "a repair corrects the metadata to what the branch is a copy of; no version is touched",
            partial(repairs.correct_ref, info.name, origin),
        )
    return f"none: its true parent {origin.branch!r} has no readable metadata", None


def _losing_manifests(inventory: Inventory, info: BranchInfo) -> tuple[str, ...]:
    """Return the manifests that hide the true first version of the branch, unless a version was built on them."""
    versions = inventory.versions_of(info.name)
    right = next((facts for facts in versions if facts.cloned_from == _origin_of(info)), None)
    if right is None:
        return ()
    above = [facts for facts in versions if facts.version > right.version]
    return () if _may_be_built_on(inventory, info.name, above) else tuple(facts.path for facts in above)


def _may_be_built_on(inventory: Inventory, branch: str, versions: Iterable[VersionFacts]) -> bool:
    """Return whether a version, a tag or a child branch may be built on one of these versions of a branch."""
    # An unreadable version may be built on any of them.
    if any(file.branch == branch for file, _ in inventory.damaged_manifests):
        return True
    held = {(tag.branch, tag.version) for tag in inventory.tags}
    held |= {(child.parent_branch, child.parent_version) for child in inventory.branches}
    # A version that was not made by branching was written on top of the one before it.
    return any(facts.cloned_from is None or (branch, facts.version) in held for facts in versions)


def _branches_without_ordinary_version(inventory: Inventory) -> Iterator[Case]:
    for name in inventory.layout.branches:
        kinds = {file.kind for file in inventory.layout.of_branch(name)}
        if LayoutKind.DETACHED_MANIFEST in kinds and LayoutKind.MANIFEST not in kinds:
            yield Case(
                kind=FindingKind.NO_ORDINARY_VERSION,
                subject=branch_folder(name),
                explanation=f"branch {name!r} was forked from a staged version and has no ordinary version yet",
                remedy="none, as it can be read by the staged version's number; delete the branch and fork again",
            )
