"""A new branch from any version, staged ones too."""

from anabranch.errors import BranchExistsError, CorruptError
from anabranch.format.home import Home
from anabranch.format.layout.settled_manifest import ordinary_manifest
from anabranch.format.refs.branches import clone_version, put_branch, read_parent
from anabranch.format.staging.external_versions import Origin, find_origin, restored_version
from anabranch.format.staging.manifests import repair_newest
from anabranch.format.staging.version_ref import VersionRef
from anabranch.storage import put_once

__all__ = ["fork", "give_ordinary_version"]


def fork(source: VersionRef, branch: str) -> Home:
    """Make a Lance branch that starts at the pinned version; no data is copied.

    Use a name that no other process uses at the same time: of two forks of one name Lance may mix the halves. That is
    noticed afterwards and raised.
    """
    target = source.home.on(branch)
    target.refuse_links()
    if source.is_staged:
        # The newest version of the home is opened below. A manifest that a power loss cut off would stop the fork.
        repair_newest(source.home, source.version)
    head = source.open() if not source.is_staged else source.home.open()
    parent = read_parent(source.home)
    clone_version(source.home, source.version, branch)
    if source.is_staged:
        give_ordinary_version(target, source.version, head.version, source=source.home)
    _check(target, source, head.version)
    put_branch(source.home, source.version, branch, first=head.version, parent=parent)
    return target


def give_ordinary_version(target: Home, staged: int, number: int, *, source: Home) -> None:
    """Put a staged version of a home as an ordinary one beside it: Lance branches and clones it as it is.

    `source` is the home that the version was staged in, and `number` is its newest ordinary version.
    """
    store = target.store()
    path, ordinary = target.manifest_path(staged), target.manifest_path(number)
    shown_by = None
    # The ordinary version that shows the same state has the right row versions; the staged one has staged numbers.
    if restored_version(source, number) == staged:
        shown_by = source.store().get(source.manifest_path(number))
    manifest = ordinary_manifest(store.get(path), number, shown_by=shown_by, name=path)
    # Not durable here: the caller syncs it together with what refers to it.
    if not put_once(store, ordinary, manifest, durable=False):
        raise BranchExistsError(f"another process is creating the branch {target.branch!r}", hint="choose another name")


def _check(target: Home, source: VersionRef, number: int) -> None:
    made = target.open()
    expected = Origin(branch=source.home.branch, version=source.version)
    # Of two forks of one name, the ref of one and the manifest of the other may be left.
    if made.version != number or find_origin(target, made) != expected:
        raise CorruptError(
            f"the branch {target.branch!r} did not become a fork of version {source.version}",
            hint="fork again under another name",
        )
