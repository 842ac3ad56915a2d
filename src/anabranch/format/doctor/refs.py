"""Refs that Lance refuses, and branches whose metadata is lost: decided here, written again elsewhere."""

from collections.abc import Iterator

from anabranch.format.doctor.census import Census
from anabranch.format.doctor.diagnosis import Diagnosis
from anabranch.format.doctor.findings import Finding, FindingKind
from anabranch.format.doctor.ref_bytes import branch_ref_bytes, tag_ref_bytes
from anabranch.format.doctor.remedies import WriteRef
from anabranch.format.layout.names import branch_ref_path, tag_ref_path
from anabranch.format.refs.branches import BranchInfo, parse_branch
from anabranch.format.refs.ref_files import RefFile, parse_ref, whole_number
from anabranch.format.refs.tags import TagInfo
from anabranch.format.transactions import Origin

__all__ = ["diagnose_refs", "rebuild_missing_ref"]

_FROM_BACKUP = "restore it from a backup"


def diagnose_refs(census: Census) -> Iterator[Diagnosis]:
    for branch in census.branch_refs:
        if branch.problem is not None:
            yield _damaged(branch, _repair_branch(census, branch), f"{_FROM_BACKUP}, or delete the branch")
    for tag in census.tag_refs:
        if tag.problem is not None:
            yield _damaged(tag, _repair_tag(census, tag), f"{_FROM_BACKUP}, or delete the tag")


def _damaged(ref: RefFile[BranchInfo] | RefFile[TagInfo], remedy: WriteRef | None, otherwise: str) -> Diagnosis:
    finding = Finding(
        kind=FindingKind.DAMAGED_REF,
        subject=ref.path,
        explanation=f"{ref.problem}; Lance cannot list its refs, nor delete a branch, while it is there",
        remedy="a repair writes it again as Lance does" if remedy is not None else f"none: {otherwise}",
        paths=(ref.path,),
        repairable=remedy is not None,
    )
    return Diagnosis(finding=finding, remedy=remedy)


def _repair_branch(census: Census, ref: RefFile[BranchInfo]) -> WriteRef | None:
    path = branch_ref_path(ref.name)
    if path != ref.path and any(other.path == path for other in census.branch_refs):
        return None  # which of the two is right is for the user to decide
    data = _branch_data(census, ref.name, _parent_of(ref), damaged=ref.data)
    return None if data is None else _write(ref, path, data)


def _parent_of(ref: RefFile[BranchInfo]) -> Origin | None:
    """What a branch was made from, as its metadata says, if that can be read."""
    try:
        info = ref.info or parse_branch(ref.name, ref.data)
    except (KeyError, ValueError):
        return None
    return Origin(branch=info.parent_branch, version=info.parent_version)


def rebuild_missing_ref(census: Census, branch: str) -> WriteRef | None:
    """Write the metadata of a branch that has none, if its first version says what it was made from."""
    data = _branch_data(census, branch, None)
    return None if data is None else WriteRef(path=branch_ref_path(branch), data=data, expected=None, instead_of=None)


def _branch_data(census: Census, branch: str, parent: Origin | None, *, damaged: bytes = b"") -> bytes | None:
    first = census.first_manifest(branch)
    versions = census.versions_of(branch)
    if parent is None and first is not None and versions and versions[0].path == first.path:
        parent = versions[0].cloned_from
    if parent is None or first is None:
        return None
    above = next((ref for ref in census.branch_refs if ref.name == parent.branch and ref.info is not None), None)
    if parent.branch is not None and above is None:
        return None  # its parent comes first
    return branch_ref_bytes(
        parent,
        created_at=first.modified,
        manifest_size=first.size,
        parent_ref=b"" if above is None else above.data,
        damaged=damaged,
    )


def _repair_tag(census: Census, ref: RefFile[TagInfo]) -> WriteRef | None:
    path = tag_ref_path(ref.name)
    if path != ref.path and any(other.path == path for other in census.tag_refs):
        return None
    place = _place_of(ref)
    manifest = None if place is None else census.manifest_of(*place)
    if place is None or manifest is None:
        return None
    branch, version = place
    data = tag_ref_bytes(branch=branch, version=version, manifest_size=manifest.size, damaged=ref.data)
    return None if data == ref.data else _write(ref, path, data)


def _place_of(ref: RefFile[TagInfo]) -> tuple[str | None, int] | None:
    """What a tag stands for, as far as that can be read."""
    if ref.info is not None:
        return ref.info.branch, ref.info.version
    try:
        fields = parse_ref(ref.data)
        branch, version = fields.get("branch"), whole_number(fields["version"])
    except (KeyError, ValueError):
        return None
    return (branch, version) if branch is None or isinstance(branch, str) else None


def _write(ref: RefFile[BranchInfo] | RefFile[TagInfo], path: str, data: bytes) -> WriteRef:
    is_elsewhere = path != ref.path
    return WriteRef(
        path=path,
        data=data,
        expected=None if is_elsewhere else ref.data,
        instead_of=ref.path if is_elsewhere else None,
    )
