"""The metadata of branches and tags: texts by key, in their ref files."""

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.clone.holds import refuse_hold
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.refs.branches import BranchInfo, get_branch
from anabranch.format.refs.tags import TagInfo, get_tag

__all__ = ["set_branch_metadata", "set_tag_metadata"]

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
    """Set keys of a tag's metadata and remove others; refused for a tag that holds a version for a clone."""
    refuse_hold(root, name)
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
