"""Files that are damaged, missing, or of no use to anybody."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from anabranch.format.doctor.census import Census, Damage, VersionFacts
from anabranch.format.doctor.contents import FileProblem, WrongFile
from anabranch.format.doctor.diagnosis import Diagnosis, Surroundings, label
from anabranch.format.doctor.findings import Finding, FindingKind
from anabranch.format.doctor.remedies import RemoveFiles
from anabranch.format.home import branch_folder
from anabranch.format.layout.files import FileKind
from anabranch.format.layout.listing import LayoutKind
from anabranch.format.layout.names import ManifestName, ManifestScheme, tag_ref_path

__all__ = ["diagnose_files"]

_MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST})
_MENTIONED = frozenset({LayoutKind.DATA, LayoutKind.BLOB, LayoutKind.DELETION, LayoutKind.INDEX})
_FROM_BACKUP = "restore it from a backup"
_NUMBERED = re.compile(r"(?:^|/)_versions/([0-9]{1,30})\.manifest$")


def diagnose_files(census: Census, surroundings: Surroundings) -> Iterator[Diagnosis]:
    yield from _damaged_manifests(census)
    yield from _stray_manifests(census)
    yield from _wrong_files(surroundings)
    yield from _unchecked_bases(surroundings)
    yield from _broken_tags(census)
    yield from _stale_bases(census)
    yield from _orphans(census)
    yield from _temporary_files(census)
    yield from _strangers(census)


def _damaged_manifests(census: Census) -> Iterator[Diagnosis]:
    for file, damage in census.damaged_manifests:
        if not file.has_ref:
            continue  # part of a tree that is reported as a whole
        finding = Finding(
            kind=FindingKind.DAMAGED_MANIFEST,
            subject=file.path,
            explanation=f"version {ManifestName.parse(file.name).version} of {label(file.branch)}: {damage.problem}",
            remedy=_FROM_BACKUP,
            paths=(file.path,),
        )
        yield Diagnosis(finding=finding)


def _stray_manifests(census: Census) -> Iterator[Diagnosis]:
    """Files that Lance takes for manifests by their names, and that cannot be any: it refuses the whole folder.

    A name is a version in 20 digits, counted down, or, in datasets of old, the version itself; a folder has one kind.
    """
    for branch in (None, *census.layout.branches):
        own = census.layout.of_branch(branch)
        schemes = {ManifestName.parse(file.name).scheme for file in own if file.kind is LayoutKind.MANIFEST}
        for file in own:
            is_version = file.kind is LayoutKind.MANIFEST
            is_mixed = is_version and len(schemes) > 1 and ManifestName.parse(file.name).scheme is ManifestScheme.V1
            is_odd = file.kind is LayoutKind.STRANGER and _is_numbered(file.path)
            if not is_mixed and not is_odd:
                continue
            finding = Finding(
                kind=FindingKind.STRAY_MANIFEST,
                subject=file.path,
                explanation=f"Lance takes it for a version of {label(branch)}, and its name is not one of this folder",
                remedy="none: move the file out of the folder",
                paths=(file.path,),
            )
            yield Diagnosis(finding=finding)


def _is_numbered(path: str) -> bool:
    """Whether Lance reads a version out of a file's name: any number of 64 bits."""
    match = _NUMBERED.search(path)
    return match is not None and int(match[1]) < 1 << 64


def _wrong_files(surroundings: Surroundings) -> Iterator[Diagnosis]:
    for wrong in surroundings.contents.wrong:
        is_missing = wrong.problem is FileProblem.MISSING
        finding = Finding(
            kind=_kind_of(wrong),
            subject=wrong.file.path,
            explanation=_explain_missing(wrong.versions) if is_missing else wrong.explanation,
            remedy=_FROM_BACKUP,
            paths=tuple(facts.path for facts in wrong.versions) if is_missing else (wrong.file.path,),
        )
        yield Diagnosis(finding=finding)


def _kind_of(wrong: WrongFile) -> FindingKind:
    if wrong.problem is FileProblem.MISSING:
        return FindingKind.MISSING_FILE
    is_deletion = wrong.file.kind is FileKind.DELETION
    return FindingKind.DAMAGED_DELETION_FILE if is_deletion else FindingKind.WRONG_SIZE


def _explain_missing(versions: Sequence[VersionFacts]) -> str:
    others = f" and {len(versions) - 1} more" if len(versions) > 1 else ""
    return f"version {versions[0].version} of {label(versions[0].branch)}{others} cannot be read without it"


def _unchecked_bases(surroundings: Surroundings) -> Iterator[Diagnosis]:
    for folder, problem in sorted(surroundings.contents.unchecked.items()):
        finding = Finding(
            kind=FindingKind.UNCHECKED_BASE,
            subject=folder,
            explanation=f"its files cannot be checked: {problem}",
            remedy="none: make it reachable and run doctor again",
        )
        yield Diagnosis(finding=finding)


def _broken_tags(census: Census) -> Iterator[Diagnosis]:
    existing = {
        (file.branch, ManifestName.parse(file.name).version)
        for file in census.layout.files
        if file.kind in _MANIFESTS and file.has_ref
    }
    for tag in census.tags.values():
        if isinstance(tag, Damage) or (tag.branch, tag.version) in existing:
            continue
        finding = Finding(
            kind=FindingKind.BROKEN_TAG,
            subject=tag_ref_path(tag.name),
            explanation=f"tag {tag.name!r} stands for version {tag.version} of {label(tag.branch)}, which is gone",
            remedy="none: delete the tag, or move it to a version that exists",
            paths=(tag_ref_path(tag.name),),
        )
        yield Diagnosis(finding=finding)


def _stale_bases(census: Census) -> Iterator[Diagnosis]:
    for name, problem in sorted(census.stale_bases.items()):
        finding = Finding(
            kind=FindingKind.STALE_BASE,
            subject=branch_folder(name),
            explanation=problem,
            remedy="none: relocate the dataset if it was moved or copied here",
        )
        yield Diagnosis(finding=finding)
    older: dict[str, list[VersionFacts]] = defaultdict(list)
    for facts in census.versions:
        if facts.stale_base is not None and facts.branch is not None and facts.branch not in census.stale_bases:
            older[facts.branch].append(facts)
    for name, stale in sorted(older.items()):
        numbers = ", ".join(str(facts.version) for facts in sorted(stale, key=lambda facts: facts.version))
        finding = Finding(
            kind=FindingKind.STALE_BASE,
            subject=branch_folder(name),
            explanation=f"{stale[0].stale_base}; only in older versions ({numbers}): a relocation was interrupted",
            remedy="none: relocate the dataset again",
            paths=tuple(sorted(facts.path for facts in stale)),
        )
        yield Diagnosis(finding=finding)


def _orphans(census: Census) -> Iterator[Diagnosis]:
    """Files that no readable manifest mentions; those of unreferenced trees are reported with their tree."""
    known = {file.path for facts in census.versions for file in facts.files}
    orphans: dict[str | None, list[str]] = defaultdict(list)
    for file in census.layout.files:
        if file.has_ref and file.kind in _MENTIONED and file.named_path not in known:
            orphans[file.branch].append(file.path)
    for branch, paths in orphans.items():
        finding = Finding(
            kind=FindingKind.ORPHAN_FILES,
            subject=branch_folder(branch) if branch is not None else census.layout.root,
            explanation=f"{len(paths)} files of {label(branch)} are in no readable manifest of this dataset",
            remedy="none: they may be about to be committed, or be used by a clone",
            paths=tuple(paths),
        )
        yield Diagnosis(finding=finding)


def _temporary_files(census: Census) -> Iterator[Diagnosis]:
    """Refs are written in a moment; a data file may be written for hours, so nobody can say that its writer is dead."""
    files = [file for file in census.layout.files if file.kind is LayoutKind.TEMPORARY and file.has_ref]
    refs = tuple(file for file in files if file.path.startswith("_refs/"))
    others = tuple(file for file in files if file not in refs)
    for group, said in ((refs, "a repair removes them"), (others, "none: remove them when nobody is writing")):
        if group:
            finding = Finding(
                kind=FindingKind.TEMPORARY_FILES,
                subject=census.layout.root,
                explanation=f"{len(group)} half-written files: a crash left them, or they are being written",
                remedy=said,
                paths=tuple(file.path for file in group),
                repairable=group is refs,
            )
            yield Diagnosis(finding=finding, remedy=RemoveFiles(files=group) if group is refs else None)


def _strangers(census: Census) -> Iterator[Diagnosis]:
    if paths := tuple(file.path for file in census.layout.strangers):
        finding = Finding(
            kind=FindingKind.STRANGERS,
            subject=census.layout.root,
            explanation=f"{len(paths)} files whose place or name is none that Lance gives",
            remedy="none: they are left alone",
            paths=paths,
        )
        yield Diagnosis(finding=finding)
