"""What appends put between two versions, found again from the versions themselves."""

import json
from collections.abc import Mapping
from typing import Any

import lance

from anabranch.format.home import is_staged
from anabranch.format.staging.external_versions import find_transaction
from anabranch.format.staging.fragments import WrittenFragment, fingerprint, has_same_fields
from anabranch.format.staging.version_ref import VersionRef

__all__ = ["as_written", "find_appended"]

# What a version records of a fragment beyond its files: on another version Lance sets it again.
_GIVEN_BY_THE_VERSION = ("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")


def find_appended(before: VersionRef, after: VersionRef) -> tuple[WrittenFragment, ...] | None:
    """The fragments that appends added since `before`, as they were written; None if more than that was done.

    `after` may be in a fork of the home that `before` is of.
    """
    older, newer = before.open(), after.open()
    # With metadata: a changed default or description is a change that another version must not lose.
    if not (has_same_fields(before, after) and older.schema.equals(newer.schema, check_metadata=True)):
        return None
    # A step that built or dropped an index leaves the fragments as they are.
    if _index_ids(older) != _index_ids(newer):
        return None
    known = {found["id"]: found for found in _fragments(older)}
    current = _fragments(newer)
    kept = [found for found in current if found["id"] in known]
    added = [found for found in current if found["id"] not in known]
    # An append keeps every older fragment untouched. A missing or different one means another kind of change.
    if len(kept) < len(known) or any(_content(found) != _content(known[found["id"]]) for found in kept):
        return None
    if any(found["deletion_file"] is not None for found in added) or not _only_appends(before, after, newer):
        return None
    against = fingerprint(after, newer, newer.lance_schema)
    return tuple(
        WrittenFragment(metadata=json.dumps(as_written(found)), rows=found["physical_rows"], fingerprint=against)
        for found in added
    )


def _only_appends(before: VersionRef, after: VersionRef, newer: lance.LanceDataset) -> bool:
    """Whether each step from one version to the other was an append.

    The fragments do not show it: an upsert of new keys, or an overwrite of nothing, leaves just what an append does.
    """
    version = after.version
    # Staged versions form a chain by their read versions. The chain ends at an ordinary version.
    while is_staged(version) and version != before.version:
        step = find_transaction(after.home, newer, version)
        if step is None or not isinstance(step.operation, lance.LanceOperation.Append):
            return False
        version = step.read_version
    # In a fork, the chain ends at the fork's first ordinary version, which has another number than `before`. The
    # fragments were compared above.
    return version == before.version or before.home != after.home


def _fragments(dataset: lance.LanceDataset) -> list[dict[str, Any]]:
    return [fragment.metadata.to_json() for fragment in dataset.get_fragments()]


def _content(fragment: Mapping[str, Any]) -> object:
    """The rows of a fragment: its files, wherever they are read from, and what was deleted or laid over them."""
    files = [[file["path"], file["fields"]] for file in fragment["files"]]
    # A fork reads the same file through a base, so the base differs where the rows do not.
    deleted = fragment["deletion_file"] and {k: v for k, v in fragment["deletion_file"].items() if k != "base_id"}
    return [files, deleted, fragment["overlays"]]


def as_written(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment as it was before a version took it in."""
    return {**fragment, "id": 0, **dict.fromkeys(_GIVEN_BY_THE_VERSION)}


def _index_ids(dataset: lance.LanceDataset) -> set[str]:
    return {str(segment.uuid) for found in dataset.describe_indices() for segment in found.segments}
