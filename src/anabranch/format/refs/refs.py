"""The refs of one dataset: find branches and tags, change tags, and change the metadata of both.

Tags are names for versions of any branch, in `_refs/tags/` at the root; metadata are texts by key in the ref files. The
versions of a branch are listed with their tags, and one of them is made the newest again.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import lance

from anabranch.errors import (
    BranchNotFoundError,
    BusyError,
    DamagedFileError,
    InvalidInputError,
    InvalidPathError,
    ObjectNotFoundError,
    TagExistsError,
    TagNotFoundError,
)
from anabranch.format.bases import bases_of, register_base
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.listing import (
    BRANCH_REFS,
    MANAGED_TAG,
    TAG_REFS,
    branch_of_ref_path,
    branch_ref_path,
    manifest_path,
    tag_of_ref_path,
    tag_ref_path,
)
from anabranch.format.refs.ref_files import (
    RefFile,
    RefKind,
    RefList,
    branch_name_of,
    metadata_of,
    parse_ref,
    ref_problem,
    whole_number,
)
from anabranch.ids import MAIN, TagName
from anabranch.storage import in_parallel, put_once

# A position in a dataset's history: branch (None for main) and version (None for the newest).
Source = tuple[str | None, int | None]

Info = TypeVar("Info")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo:
    """A branch's metadata. The parent branch None is main."""

    name: str
    parent_branch: str | None
    parent_version: int
    created_at: datetime
    manifest_size: int
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagInfo:
    """The target of a tag. The branch None is main."""

    name: str
    branch: str | None
    version: int
    manifest_size: int
    created_at: datetime | None
    updated_at: datetime | None
    metadata: Mapping[str, str]


def scan_branches(root: Home, *, names: Collection[str] | None = None) -> tuple[RefFile[BranchInfo], ...]:
    """Read the metadata of every branch, or of those of some names, and judge each file as Lance does."""
    return _scan(root, RefKind.BRANCH, parse_branch, names)


def scan_tags(root: Home) -> tuple[RefFile[TagInfo], ...]:
    """Read every tag, and judge each file as Lance does."""
    return _scan(root, RefKind.TAG, _parse_tag, None)


def _scan(
    root: Home, kind: RefKind, parse: Callable[[str, bytes], Info], names: Collection[str] | None
) -> tuple[RefFile[Info], ...]:
    """Read every ref file of a kind, without those deleted since the listing."""
    folder, name_of, _ = _SPELLINGS[kind]
    store = root.store()
    listed = [(info.path, name_of(info.path)) for info in store.list(folder)]
    wanted = [(path, name) for path, name in listed if name is not None and (names is None or name in names)]

    def read(file: tuple[str, str]) -> RefFile[Info] | None:
        path, name = file
        try:
            return _judged(path, name, store.get(path), kind, parse)
        except ObjectNotFoundError:
            return None

    found = (file for file in in_parallel(read, wanted) if file is not None)
    return tuple(sorted(found, key=lambda file: (file.name, file.path)))


def _judged(path: str, name: str, data: bytes, kind: RefKind, parse: Callable[[str, bytes], Info]) -> RefFile[Info]:
    # A name can be quoted in several ways, and Lance opens only the file that its own quoting leads to.
    expected, info = _SPELLINGS[kind][2](name), None
    if expected != path:
        looked_for = f"Lance looks for the {kind} {name!r} in {expected!r}"
        return RefFile(path=path, name=name, data=data, info=None, problem=looked_for)
    problem = ref_problem(data, kind)
    if problem is None and kind is RefKind.TAG and expected != f"{TAG_REFS}/{name}.json":
        problem = f"Lance can neither list tags nor delete branches beside a tag named {name!r}"
    try:
        info = parse(name, data)
    except (KeyError, ValueError) as err:
        problem = problem or str(err)
    return RefFile(path=path, name=name, data=data, info=info, problem=problem)


def find_branch(root: Home, name: str) -> BranchInfo | None:
    """Return a branch's metadata in either spelling, or None if it does not exist. Raise an error if it is damaged."""
    return _find(root, RefKind.BRANCH, name, parse_branch)


def find_tag(root: Home, name: str) -> TagInfo | None:
    """Return the target of a tag, or None if it does not exist. Raise an error if its file is damaged."""
    return _find(root, RefKind.TAG, name, _parse_tag)


def _find(root: Home, kind: RefKind, name: str, parse: Callable[[str, bytes], Info]) -> Info | None:
    path = _SPELLINGS[kind][2](name)
    try:
        data = root.store().get(path)
    # No file can have a name that is too long.
    except (InvalidPathError, ObjectNotFoundError):
        return None
    try:
        return parse(name, data)
    except (KeyError, ValueError) as err:
        raise DamagedFileError(
            f"{kind} {name!r} of {root.root!r} has damaged metadata in {path!r}: {ref_problem(data, kind) or err}",
            hint="run doctor with repair on the dataset",
        ) from err


_SPELLINGS = {
    RefKind.BRANCH: (BRANCH_REFS, branch_of_ref_path, branch_ref_path),
    RefKind.TAG: (TAG_REFS, tag_of_ref_path, tag_ref_path),
}


def parse_branch(name: str, data: bytes) -> BranchInfo:
    """Read a branch's metadata in either spelling; raise KeyError or ValueError if something is missing."""
    fields = parse_ref(data)
    # Lance accepts times so late that no date can show them, which become the last one.
    seconds, last = whole_number(fields["create_at"]), datetime.max.replace(tzinfo=UTC)
    return BranchInfo(
        name=name,
        parent_branch=branch_name_of(fields.get("parent_branch")),
        parent_version=whole_number(fields["parent_version"]),
        created_at=datetime.fromtimestamp(seconds, UTC) if seconds < last.timestamp() else last,
        manifest_size=whole_number(fields["manifest_size"]),
        metadata=metadata_of(fields),
    )


def _parse_tag(name: str, data: bytes) -> TagInfo:
    fields = parse_ref(data)
    return TagInfo(
        name=name,
        branch=branch_name_of(fields.get("branch")),
        version=whole_number(fields["version"]),
        manifest_size=whole_number(fields["manifest_size"]),
        created_at=_time(fields.get("created_at")),
        updated_at=_time(fields.get("updated_at")),
        metadata=metadata_of(fields),
    )


def _time(text: object) -> datetime | None:
    """Return a time, or None if it is invalid: a tag can be used without it, and doctor reports it."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)
    except ValueError:
        return None


def list_branches(root: Home) -> RefList[BranchInfo]:
    """List the branches whose metadata can be read; the list names the files that cannot."""
    return RefList.of(scan_branches(root))


def get_branch(root: Home, name: str) -> BranchInfo:
    info = find_branch(root, name)
    if info is None and name == MAIN:
        raise BranchNotFoundError(
            f"branch 'main' of {root.root!r} has no metadata", hint="it is the dataset itself; ask about that"
        )
    if info is None:
        raise no_branch(root, name)
    return info


def no_branch(root: Home, name: str) -> BranchNotFoundError:
    return BranchNotFoundError(
        f"dataset {root.root!r} has no branch {name!r}", hint="list its branches to see which exist"
    )


def list_tags(root: Home) -> RefList[TagInfo]:
    """List the tags that can be read; the list names the files that cannot."""
    return RefList.of(scan_tags(root))


def get_tag(root: Home, name: str) -> TagInfo:
    tag = find_tag(root, name)
    if tag is None:
        raise TagNotFoundError(f"dataset {root.root!r} has no tag {name!r}", hint="list its tags to see which exist")
    return tag


def create_tag(root: Home, name: str, source: Source) -> TagInfo:
    TagName.parse_new(name)
    if find_tag(root, name) is not None:
        raise TagExistsError(
            f"dataset {root.root!r} has a tag {name!r} already", hint="update it, or choose another name"
        )
    reference = _existing(root, source)
    with root.errors():
        root.open().tags.create(name, reference)
    tag = get_tag(root, name)
    if _lost_its_branch(root, tag):
        # The branch was deleted at the same time. Its deletion lists the tags after the ref is gone, as we look for
        # the ref after the tag is there, so one of the two sees the other.
        delete_tag(root, name)
        get_branch(root, str(tag.branch))
    return tag


def _lost_its_branch(root: Home, tag: TagInfo) -> bool:
    return tag.branch is not None and find_branch(root, tag.branch) is None


def mark_managed(root: Home, version: int, *, at: datetime, durable: bool = True) -> None:
    """Tag the first version of a managed table: native cleanup then refuses to remove versions, unless it is forced.

    Lance offers no other protection against cleanup. It covers the root, but not branches. Pass `durable=False` if
    the tag is synced later, together with the first version.
    """
    moment = at.isoformat().replace("+00:00", "Z")
    fields: dict[str, object] = {
        "branch": None,
        "version": version,
        "createdAt": moment,
        "updatedAt": moment,
        "manifestSize": root.store().head(manifest_path(version)).size,
        "metadata": {},
    }
    put_once(root.store(), tag_ref_path(MANAGED_TAG), json.dumps(fields).encode(), durable=durable)


def update_tag(root: Home, name: str, source: Source) -> TagInfo:
    former, path = get_tag(root, name), tag_ref_path(name)
    data = root.store().get(path)
    reference = _existing(root, source)
    with root.errors():
        root.open().tags.update(name, reference)
    tag = get_tag(root, name)
    if _lost_its_branch(root, tag):
        # As in `create_tag`. The branch that the tag named before may also be deleted by now.
        root.store().put(path, data)
        if _lost_its_branch(root, former):
            delete_tag(root, name)
        get_branch(root, str(tag.branch))
    return tag


def delete_tag(root: Home, name: str) -> None:
    """Delete a tag, also one that cannot be read, or whose name Lance cannot list."""
    path = tag_ref_path(name)
    try:
        is_there = root.store().find_info(path) is not None
    # The name is too long for a file, so there is no such tag.
    except InvalidPathError:
        is_there = False
    if not is_there:
        get_tag(root, name)  # raises TagNotFoundError
    root.store().delete(path)


def _existing(root: Home, source: Source) -> tuple[str | None, int]:
    branch, version = source
    if branch is not None:
        get_branch(root, branch)
    return branch, root.on(branch).open(version).version


# Reserved keys: a tag with one of them would count as the hold of a clone.
_RESERVED = "anabranch."


def set_branch_metadata(
    root: Home, name: str, metadata: Mapping[str, str], *, unset: Iterable[str] = (), replace: bool = False
) -> BranchInfo:
    """Set keys of a branch's metadata and remove others; with `replace`, all other keys are removed."""
    after = _changed(get_branch(root, name).metadata, metadata, unset, replace=replace)
    with root.errors():
        root.open().branches.replace_metadata(name, after)
    return get_branch(root, name)


def set_tag_metadata(
    root: Home, name: str, metadata: Mapping[str, str], *, unset: Iterable[str] = (), replace: bool = False
) -> TagInfo:
    """Set keys of a tag's metadata and remove others."""
    after = _changed(get_tag(root, name).metadata, metadata, unset, replace=replace)
    with root.errors():
        root.open().tags.replace_metadata(name, after)
    return get_tag(root, name)


def _changed(before: Mapping[str, str], metadata: Any, unset: Iterable[str], *, replace: bool) -> dict[str, str]:
    _check_metadata(metadata)
    # A string is iterable as well: each of its characters would be a key.
    removed = [unset] if isinstance(unset, str) else list(unset)
    kept = {} if replace else {key: value for key, value in before.items() if key not in removed}
    return {**kept, **metadata}


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be a mapping, got {metadata!r}", hint="give {'key': 'value'}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInputError(f"metadata {key!r}: {value!r} is not text", hint="give texts as keys and values")
        if not key or key.startswith(_RESERVED):
            raise InvalidInputError(
                f"metadata key {key!r} is not usable", hint=f"give a key that does not start with {_RESERVED!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """One ordinary version: its number, its time by the writer's clock, its tags, and the branches made from it."""

    version: int
    created_at: datetime
    tags: tuple[str, ...]
    branches: tuple[str, ...]


def list_versions(home: Home) -> tuple[VersionInfo, ...]:
    """List the versions of a branch, oldest first."""
    tags, branches = list_tags(home.on(None)), list_branches(home.on(None))
    with home.errors():
        found: Any = home.open().versions()
    return tuple(
        VersionInfo(
            version=int(one["version"]),
            created_at=one["timestamp"].astimezone(UTC),  # Lance gives local time without a zone
            tags=tuple(tag.name for tag in tags if (tag.branch, tag.version) == (home.branch, one["version"])),
            branches=tuple(
                info.name
                for info in branches
                if (info.parent_branch, info.parent_version) == (home.branch, one["version"])
            ),
        )
        for one in sorted(found, key=lambda one: int(one["version"]))
    )


def restore_version(home: Home, version: int) -> int:
    """Make an older version the newest again, as a new version, and return it. Nothing is lost.

    Bases that were added since then are added again: Lance takes the old version's list.
    """
    if is_staged(version):
        raise InvalidInputError(
            f"version {version} of {home.uri!r} is staged and not part of its history", hint="give an ordinary version"
        )
    # Raises if the version is gone: Lance would restore a collected version and leave a head that cannot be read.
    home.open(version)
    head = home.open()
    made = _commit_restore(home, head, version)
    if int(made.version) != int(head.version) + 1:
        # A concurrent write came in between. Make the version of that writer the newest again.
        _commit_restore(home, made, int(made.version) - 1)
        raise BusyError(
            f"another writer changed {home.uri!r} at the same time, so version {version} was not restored",
            hint="read the newest version and try again",
        )
    listed = {base.path for base in bases_of(made)}
    for base in bases_of(head):
        if base.path not in listed:
            register_base(home, base.path, name=base.name, is_dataset_root=base.is_dataset_root)
    return home.head_version()


def _commit_restore(home: Home, newest: lance.LanceDataset, version: int) -> lance.LanceDataset:
    with home.errors():
        return lance.LanceDataset.commit(
            newest,
            lance.LanceOperation.Restore(version),
            read_version=newest.version,
            storage_options=home.lance_options(),
            commit_message=f"restore version {version}",
        )
