"""The tags of one dataset: names for versions of any branch, in `_refs/tags/` at its root.

The metadata of tags and branches, texts by key in their ref files, is changed here as well. The versions of a branch
are listed with their tags, and one of them is made the newest again.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import lance

from anabranch.errors import (
    BusyError,
    InvalidInputError,
    InvalidPathError,
    TagExistsError,
    TagNotFoundError,
)
from anabranch.format.bases import bases_of, register_base
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.listing import MANAGED_TAG, manifest_path, tag_ref_path
from anabranch.format.refs.branches import (
    BranchInfo,
    Source,
    find_branch,
    find_ref,
    get_branch,
    list_branches,
    scan_refs,
)
from anabranch.format.refs.ref_files import (
    RefFile,
    RefKind,
    RefList,
    branch_name_of,
    metadata_of,
    parse_ref,
    whole_number,
)
from anabranch.ids import TagName
from anabranch.storage import put_once


@dataclass(frozen=True, slots=True, kw_only=True)
class TagInfo:
    """What a tag names. The branch None is main."""

    name: str
    branch: str | None
    version: int
    manifest_size: int
    created_at: datetime | None
    updated_at: datetime | None
    metadata: Mapping[str, str]


def list_tags(root: Home) -> RefList[TagInfo]:
    """List the tags that can be read; the list names the files that cannot."""
    return RefList.of(scan_tags(root))


def scan_tags(root: Home) -> tuple[RefFile[TagInfo], ...]:
    """Read every tag, and judge each file as Lance does."""
    return scan_refs(root, RefKind.TAG, parse_tag)


def find_tag(root: Home, name: str) -> TagInfo | None:
    """Return what a tag names, None if there is no such tag; raise if its file is damaged."""
    return find_ref(root, RefKind.TAG, name, parse_tag)


def parse_tag(name: str, data: bytes) -> TagInfo:
    """Read a tag in either spelling; raise KeyError or ValueError if something is missing."""
    fields = parse_ref(data)
    return TagInfo(
        name=name,
        branch=branch_name_of(fields.get("branch")),
        version=whole_number(fields["version"]),
        manifest_size=whole_number(fields["manifest_size"]),
        created_at=_moment(fields.get("created_at")),
        updated_at=_moment(fields.get("updated_at")),
        metadata=metadata_of(fields),
    )


def _moment(text: object) -> datetime | None:
    """Return a time, None if it is not one: a tag is of use without it, and doctor reports it."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)
    except ValueError:
        return None


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
    with lance_errors(root.root, root.storage_options):
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

    This is all that Lance offers against cleanup. It holds for the root, and not for branches. Pass `durable=False` if
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
    with lance_errors(root.root, root.storage_options):
        root.open().tags.update(name, reference)
    tag = get_tag(root, name)
    if _lost_its_branch(root, tag):
        # As in `create_tag`. The branch that the tag named before may be gone as well by now: nothing kept it.
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


# Ours: with one of these keys a tag would count as the hold of a clone.
_RESERVED = "anabranch."


def set_branch_metadata(
    root: Home, name: str, metadata: Mapping[str, str], *, unset: Iterable[str] = (), replace: bool = False
) -> BranchInfo:
    """Set keys of a branch's metadata and remove others; with `replace`, all other keys are removed."""
    before = get_branch(root, name).metadata
    after = _changed(before, metadata, unset, replace=replace)
    with lance_errors(root.root, root.storage_options):
        root.open().branches.replace_metadata(name, after)
    return get_branch(root, name)


def set_tag_metadata(
    root: Home, name: str, metadata: Mapping[str, str], *, unset: Iterable[str] = (), replace: bool = False
) -> TagInfo:
    """Set keys of a tag's metadata and remove others."""
    before = get_tag(root, name).metadata
    after = _changed(before, metadata, unset, replace=replace)
    with lance_errors(root.root, root.storage_options):
        root.open().tags.replace_metadata(name, after)
    return get_tag(root, name)


def _changed(before: Mapping[str, str], metadata: Any, unset: Iterable[str], *, replace: bool) -> dict[str, str]:
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be a mapping, got {metadata!r}", hint="give {'key': 'value'}")
    for key, value in metadata.items():
        _check(key, value)
    # A string is iterable as well: each of its characters would be a key.
    removed = [unset] if isinstance(unset, str) else list(unset)
    kept = {} if replace else {key: value for key, value in before.items() if key not in removed}
    return {**kept, **metadata}


def _check(key: object, value: object) -> None:
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
    with lance_errors(home.uri, home.storage_options):
        found = home.open().versions()
    return tuple(
        VersionInfo(
            version=int(one["version"]),
            created_at=_in_utc(one["timestamp"]),
            tags=tuple(tag.name for tag in tags if (tag.branch, tag.version) == (home.branch, one["version"])),
            branches=tuple(
                info.name
                for info in branches
                if (info.parent_branch, info.parent_version) == (home.branch, one["version"])
            ),
        )
        for one in sorted(found, key=lambda one: int(one["version"]))
    )


def _in_utc(time: Any) -> datetime:
    """The time of a version; Lance gives local time without a zone."""
    moment: datetime = time
    return moment.astimezone(UTC)


def restore_version(home: Home, version: int) -> int:
    """Make a version the newest again, as a new version, and return that; nothing is lost.

    Bases that were added since then are added again: Lance takes the old version's list.
    """
    if is_staged(version):
        raise InvalidInputError(
            f"version {version} of {home.uri!r} is staged and not part of its history", hint="give an ordinary version"
        )
    # Raises if the version is gone: Lance would restore a collected version and leave a head that cannot be read.
    home.open(version)
    head = home.open()
    with lance_errors(home.uri, home.storage_options):
        made = lance.LanceDataset.commit(
            head,
            lance.LanceOperation.Restore(version),
            read_version=head.version,
            storage_options=home.lance_options(),
            commit_message=f"restore version {version}",
        )
    if int(made.version) != int(head.version) + 1:
        # Lance restores whatever came in between. Make the other writer's version the newest again.
        with lance_errors(home.uri, home.storage_options):
            lance.LanceDataset.commit(
                made,
                lance.LanceOperation.Restore(int(made.version) - 1),
                read_version=made.version,
                storage_options=home.lance_options(),
            )
        raise BusyError(
            f"another writer changed {home.uri!r} at the same time, so version {version} was not restored",
            hint="read the newest version and try again",
        )
    listed = {base.path for base in bases_of(made)}
    for base in bases_of(head):
        if base.path not in listed:
            register_base(home, base)
    return home.head_version()
