"""The tags of one dataset: names for versions of any branch, in `_refs/tags/` at its root."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anabranch.errors import (
    DamagedFileError,
    InvalidPathError,
    ObjectNotFoundError,
    TagExistsError,
    TagNotFoundError,
)
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.names import tag_of_ref_path, tag_ref_path
from anabranch.format.refs import Source, get_branch, read_ref
from anabranch.ids import TagName
from anabranch.storage import in_parallel

__all__ = ["TagInfo", "create_tag", "delete_tag", "find_tag", "get_tag", "list_tags", "update_tag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagInfo:
    """What a tag stands for. The branch None is main."""

    name: str
    branch: str | None
    version: int
    manifest_size: int
    created_at: datetime | None
    updated_at: datetime | None
    metadata: Mapping[str, str]


def list_tags(root: Home) -> tuple[TagInfo, ...]:
    paths = [info.path for info in root.store().list("_refs/tags")]
    names = sorted(name for path in paths if (name := tag_of_ref_path(path)) is not None)
    return tuple(tag for tag in in_parallel(lambda name: find_tag(root, name), names) if tag is not None)


def find_tag(root: Home, name: str) -> TagInfo | None:
    path = tag_ref_path(name)
    try:
        fields = read_ref(root, path)
    except (InvalidPathError, ObjectNotFoundError):
        return None  # also for a name that is too long for any file
    try:
        return TagInfo(
            name=name,
            branch=fields.get("branch"),
            version=int(fields["version"]),
            manifest_size=int(fields["manifest_size"]),
            created_at=_time(fields.get("created_at")),
            updated_at=_time(fields.get("updated_at")),
            metadata=dict(fields.get("metadata") or {}),
        )
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedFileError(
            f"tag {name!r} of {root.root!r} has damaged metadata in {path!r}: {err!r}", hint="run doctor on the dataset"
        ) from err


def _time(text: Any) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def get_tag(root: Home, name: str) -> TagInfo:
    tag = find_tag(root, name)
    if tag is None:
        raise TagNotFoundError(f"dataset {root.root!r} has no tag {name!r}", hint="list its tags to see which exist")
    return tag


def create_tag(root: Home, name: str, source: Source) -> TagInfo:
    TagName.parse(name)
    if find_tag(root, name) is not None:
        raise TagExistsError(
            f"dataset {root.root!r} has a tag {name!r} already", hint="update it, or choose another name"
        )
    reference = _existing(root, source)
    with lance_errors(root.root, root.storage_options):
        root.open().tags.create(name, reference)
    return get_tag(root, name)


def update_tag(root: Home, name: str, source: Source) -> TagInfo:
    get_tag(root, name)
    reference = _existing(root, source)
    with lance_errors(root.root, root.storage_options):
        root.open().tags.update(name, reference)
    return get_tag(root, name)


def delete_tag(root: Home, name: str) -> None:
    get_tag(root, name)
    with lance_errors(root.root, root.storage_options):
        root.open().tags.delete(name)


def _existing(root: Home, source: Source) -> tuple[str | None, int]:
    branch, version = source
    if branch is not None:
        get_branch(root, branch)
    return branch, root.on(branch).open(version).version
