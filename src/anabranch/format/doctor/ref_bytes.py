"""Refs written again as Lance writes them, from what is left of them and from what a branch's first version says."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

from anabranch.format.refs.ref_files import RefKind, encode_ref, lineage_of, usable_fields
from anabranch.format.transactions import Origin

__all__ = ["branch_ref_bytes", "tag_ref_bytes"]


def branch_ref_bytes(
    origin: Origin, *, created_at: datetime, manifest_size: int, parent_ref: bytes = b"", damaged: bytes = b""
) -> bytes:
    """Write a branch's metadata: its parent from `origin`, all else from the damaged file where that is usable."""
    found = usable_fields(damaged, RefKind.BRANCH)
    lineage = lineage_of(damaged) or [*lineage_of(parent_ref), [origin.version, uuid4().hex]]
    return encode_ref(
        {
            "parentBranch": origin.branch,
            "identifier": {"version_mapping": lineage},
            "parentVersion": origin.version,
            "createAt": found.get("createAt", int(created_at.timestamp())),
            "manifestSize": found.get("manifestSize", manifest_size),
            "metadata": found.get("metadata", {}),
        }
    )


def tag_ref_bytes(*, branch: str | None, version: int, manifest_size: int, damaged: bytes) -> bytes:
    """Write a tag for a version of a branch, all else from the damaged file where that is usable."""
    found: Mapping[str, Any] = usable_fields(damaged, RefKind.TAG)
    return encode_ref(
        {
            "branch": branch,
            "version": version,
            "createdAt": found.get("createdAt"),
            "updatedAt": found.get("updatedAt"),
            "manifestSize": found.get("manifestSize", manifest_size),
            "metadata": found.get("metadata", {}),
        }
    )
