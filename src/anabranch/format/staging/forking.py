"""A new branch from any version, staged ones too."""

from anabranch.errors import BranchExistsError, CorruptError
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.names import branch_ref_path, manifest_path
from anabranch.format.layout.settled_manifest import ordinary_manifest
from anabranch.format.staging.external_versions import restored_version
from anabranch.format.staging.manifest_repair import repair_newest
from anabranch.format.staging.version_ref import VersionRef
from anabranch.format.transactions import Origin, find_origin
from anabranch.storage import put_once
from anabranch.storage.uris import is_local, join_uri

__all__ = ["fork", "give_ordinary_version"]


def fork(source: VersionRef, branch: str) -> Home:
    """Make a Lance branch that starts at the pinned version; no data is copied.

    Use a name that no other process uses at the same time: of two forks of one name Lance may mix the halves. That is
    noticed afterwards and raised.
    """
    target = source.home.on(branch)
    target.refuse_links()
    if source.is_staged:
        # Lance opens the newest version of the home and of the root. A manifest that a power loss cut off would stop
        # the fork.
        for home in {source.home, source.home.on(None)}:
            repair_newest(home, source.version)
    head = source.open() if not source.is_staged else source.home.open()
    with lance_errors(source.home.root, source.home.storage_options):
        # Opening takes two requests; the head of a staged version's home may be the root's.
        root = head if source.is_staged and source.home.branch is None else source.home.on(None).open()
        root.create_branch(branch, (source.home.branch, source.version) if source.home.branch else source.version)
    if is_staged(source.version):
        give_ordinary_version(target, source.version, head.version, source=source.home)
    _check(target, source, head.version)
    _sync(target, head.version)
    return target


def _sync(target: Home, number: int) -> None:
    """Make the ref and the first manifest durable: Lance writes them without a sync."""
    if is_local(target.root):
        paths = (branch_ref_path(target.branch or ""), _in_home(target, manifest_path(number)))
        target.store().sync([join_uri(target.root, path) for path in paths])


def give_ordinary_version(target: Home, staged: int, number: int, *, source: Home) -> None:
    """Put a staged version of a home as an ordinary one beside it: Lance branches and clones it as it is.

    `source` is the home that the version was staged in, and `number` is its newest ordinary version.
    """
    store = target.store()
    path, ordinary = (_in_home(target, manifest_path(version)) for version in (staged, number))
    shown_by = None
    # The ordinary version that shows the same state has the right row versions; the staged one has staged numbers.
    if restored_version(source, number) == staged:
        shown_by = source.store().get(_in_home(source, manifest_path(number)))
    manifest = ordinary_manifest(store.get(path), number, shown_by=shown_by, name=path)
    # Not durable here: the caller syncs it together with what refers to it.
    if not put_once(store, ordinary, manifest, durable=False):
        raise BranchExistsError(f"another process is creating the branch {target.branch!r}", hint="choose another name")


def _in_home(home: Home, path: str) -> str:
    return f"{home.folder}/{path}" if home.folder else path


def _check(target: Home, source: VersionRef, number: int) -> None:
    made = target.open()
    expected = Origin(branch=source.home.branch, version=source.version)
    # Of two forks of one name, the ref of one and the manifest of the other may be left.
    if made.version != number or find_origin(target, made) != expected:
        raise CorruptError(
            f"the branch {target.branch!r} did not become a fork of version {source.version}",
            hint="fork again under another name",
        )
