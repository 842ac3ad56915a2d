"""Remove a base that no version uses from the list of bases.

Lance has no operation for it. A writer that is about to put files into the base must not land on a version that does
not list it, or its files cannot be found: the versions put here conflict with every concurrent write.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import ConflictError
from anabranch.format.bases.bases import get_base, get_target, label
from anabranch.format.cleanup.shared_files import read_record
from anabranch.format.cleanup.versions import VersionKey, manifests_of
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.files import FilesReader, VersionFiles
from anabranch.format.layout.listing import layout
from anabranch.format.layout.manifest import BasePath, without_base
from anabranch.format.layout.next_version import put_next_version
from anabranch.ids import MAIN
from anabranch.storage import in_parallel
from anabranch.storage.uris import follow_links, relative_to

__all__ = ["BaseRemoval", "remove_base"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRemoval:
    """A removed base, and the version of each branch that no longer lists it; in a dry run, the present versions.

    `unused_files` is the number of files that are left in the base: versions of this dataset named them, and none does
    any more.
    """

    base: BasePath
    versions: Mapping[str, int]
    unused_files: int
    dry_run: bool


def remove_base(root: Home, name: str, *, dry_run: bool = False) -> BaseRemoval:
    """Make new versions of main and of all branches that do not list a base; older versions still do.

    Raise ConflictError if any version that exists has files in the base.
    """
    needs = _read_all(root)
    newest = _newest_versions(needs)
    listed = [base for branch in sorted(newest, key=_main_first) for base in needs[branch, newest[branch]].bases]
    base = get_base(listed, name)
    get_target(root, [base], base.id)  # refuses the root of another dataset
    _refuse_used(root, base, needs, newest)
    versions: dict[str, int] = {}
    # Main is changed last: a root that only a branch lists counts as stale, so that a removal which is interrupted
    # leaves a state that the next one can read and finish.
    for branch in sorted(newest, key=_main_first, reverse=True):
        if _lists(needs[branch, newest[branch]], base):
            home, version = root.on(branch), newest[branch]
            versions[branch or MAIN] = version if dry_run else _put_without(home, base)
    place = _location(base)
    left = sum(1 for _, uri in read_record(root.store()) if relative_to(uri, place) is not None)
    return BaseRemoval(base=base, versions=versions, unused_files=left, dry_run=dry_run)


def _newest_versions(places: Iterable[VersionKey]) -> dict[str | None, int]:
    """Return the newest ordinary version of each branch."""
    newest: dict[str | None, int] = {}
    for branch, version in places:
        if not is_staged(version):
            newest[branch] = max(version, newest.get(branch, 0))
    return newest


def _main_first(branch: str | None) -> str:
    return branch or ""


def _put_without(home: Home, base: BasePath) -> int:
    return put_next_version(home, lambda data: without_base(data, base.path))


def _read_all(root: Home) -> dict[VersionKey, VersionFiles]:
    files = layout(root)
    reader = FilesReader(root, files)
    # A tree without a ref is what a crash left, or a branch in creation. Doctor decides on it.
    manifests = {place: file for place, file in manifests_of(files).items() if file.has_ref}
    return dict(zip(manifests, in_parallel(reader.read, manifests.values()), strict=True))


def _refuse_used(
    root: Home, base: BasePath, needs: Mapping[VersionKey, VersionFiles], newest: Mapping[str | None, int]
) -> None:
    place = _location(base)
    # All versions, not only the newest: older ones are still read, and a restore makes them the newest.
    users = [key for key, need in needs.items() if any(relative_to(uri, place) for _, uri in need.elsewhere)]
    if users:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} holds files of {_listed(users)}",
            hint="move the fragments to another base and clean up older versions first",
        )
    # Branches may inherit only from roots that main lists, in older versions too.
    if not base.is_dataset_root:
        return
    older = [place for place in needs if place[0] is not None and place[1] != newest[place[0]]]
    old = [place for place in older if _lists(needs[place], base)]
    if old:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} is a dataset root, and {_listed(old)} lists it",
            hint="clean up the older versions of the branch, or delete the branch, first",
        )


def _listed(places: Sequence[VersionKey]) -> str:
    branch, version = places[0]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"version {version} of {branch or MAIN!r}{more}"


def _lists(need: VersionFiles, base: BasePath) -> bool:
    return any(_location(other) == _location(base) for other in need.bases)


def _location(base: BasePath) -> str:
    return follow_links(base.path.rstrip("/"))
