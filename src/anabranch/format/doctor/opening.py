"""Whether Lance itself opens every branch and every tag, and lists them: the last word after all other checks."""

from collections.abc import Callable, Iterator

import lance

from anabranch.errors import AnabranchError, NotFoundError, StorageDeniedError, StorageUnavailableError
from anabranch.format.doctor.census import Census
from anabranch.format.doctor.diagnosis import Diagnosis, label
from anabranch.format.doctor.findings import Finding, FindingKind
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.names import BRANCH_REFS, TAG_REFS, branch_ref_path, tag_ref_path
from anabranch.storage import in_parallel

__all__ = ["diagnose_opening"]


def diagnose_opening(root: Home, census: Census) -> Iterator[Diagnosis]:
    """Report every branch and tag that Lance cannot open and that no other finding explains."""
    damaged = {file.path for file, _ in census.damaged_manifests}
    homes = [None, *(name for name in census.layout.branches if census.newest_manifest(name) is not None)]
    sound = [name for name in homes if _path(census, name) not in damaged]
    for name, problem in zip(sound, in_parallel(lambda name: _opening_problem(root, name, None), sound), strict=True):
        if problem is not None and _is_there(root, None if name is None else branch_ref_path(name)):
            yield _unopenable(root.on(name).uri, f"Lance cannot open {label(name)}: {problem}")
    for tag in census.tag_refs:
        manifest = None if tag.info is None else census.manifest_of(tag.info.branch, tag.info.version)
        if tag.info is None or manifest is None or manifest.path in damaged or tag.info.branch not in sound:
            continue
        problem = _opening_problem(root, tag.info.branch, tag.info.version)
        if problem is not None and _is_there(root, tag_ref_path(tag.name)):
            yield _unopenable(tag.path, f"Lance cannot open tag {tag.name!r}: {problem}")
    if None in sound:
        yield from _unlisted(root, census)


def _path(census: Census, name: str | None) -> str | None:
    newest = census.newest_manifest(name)
    return None if newest is None else newest.path


def _opening_problem(root: Home, branch: str | None, version: int | None) -> str | None:
    """Open a version as any tool does: a branch through the dataset, not by its folder."""

    def open_it() -> object:
        opened = lance.dataset(root.root, storage_options=root.lance_options())
        return opened if branch is None and version is None else opened.checkout_version((branch, version))

    return _problem(root, open_it)


def _unlisted(root: Home, census: Census) -> Iterator[Diagnosis]:
    if all(ref.problem is None for ref in census.branch_refs):  # else reported, file by file
        yield from _unlistable(root, BRANCH_REFS, lambda: root.open().branches.list())
    if all(ref.problem is None for ref in census.tag_refs):
        yield from _unlistable(root, TAG_REFS, lambda: root.open().tags.list())


def _unlistable(root: Home, folder: str, read: Callable[[], object]) -> Iterator[Diagnosis]:
    # Lance fails if a ref is deleted while it lists them, so one failure is not enough.
    if _problem(root, read) is not None and (problem := _problem(root, read)) is not None:
        yield _unopenable(folder, f"Lance cannot list the refs in {folder!r}: {problem}")


def _problem(root: Home, call: Callable[[], object]) -> str | None:
    try:
        with lance_errors(root.root, root.storage_options):
            call()
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return err.problem
    return None


def _is_there(root: Home, path: str | None) -> bool:
    """Whether a ref still exists: one that was deleted since the census needs no finding."""
    try:
        return path is None or root.store().find_info(path) is not None
    except NotFoundError:
        return False


def _unopenable(subject: str, explanation: str) -> Diagnosis:
    finding = Finding(
        kind=FindingKind.UNOPENABLE,
        subject=subject,
        explanation=explanation,
        remedy="none: see the other findings, or restore the newest manifest from a backup",
    )
    return Diagnosis(finding=finding)
