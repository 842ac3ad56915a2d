"""A new branch from any version, staged ones too."""

import lance

from anabranch.errors import BranchExistsError, CorruptError, ObjectExistsError
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.manifest import with_version
from anabranch.format.staging.pin import Pin

__all__ = ["fork"]


def fork(source: Pin, branch: str) -> Home:
    """Make a Lance branch that starts at the pinned version; no data is copied.

    Use a name that nobody else uses at the same time: of two forks of one name Lance may mix the halves. That is
    noticed afterwards and raised.
    """
    target = source.home.on(branch)
    head = source.open() if not source.is_staged else source.home.open()
    with lance_errors(source.home.root, source.home.storage_options):
        root = source.home.on(None).open()
        root.create_branch(branch, (source.home.branch, source.version) if source.home.branch else source.version)
    if is_staged(source.version):
        _give_ordinary_version(target, source.version, head.version)
    _check(target, source, head.version)
    return target


def _give_ordinary_version(target: Home, staged: int, number: int) -> None:
    """Lance makes the branch with the staged version only; put the same manifest as an ordinary version beside it."""
    store = target.store()
    folder = f"{target.folder}/_versions"
    name = f"d{staged}.manifest"
    manifest = with_version(store.get(f"{folder}/{name}"), number, name=name)
    try:
        store.put_if_absent(f"{folder}/{2**64 - 1 - number:020d}.manifest", manifest)
    except ObjectExistsError:
        raise BranchExistsError(
            f"somebody else is making the branch {target.branch!r}", hint="choose another name"
        ) from None


def _check(target: Home, source: Pin, number: int) -> None:
    made = target.open()
    with lance_errors(target.uri, target.storage_options):
        found = made.read_transaction(made.version)
    operation = None if found is None else found.operation
    if (
        made.version != number
        or not isinstance(operation, lance.LanceOperation.Clone)
        or operation.ref_version != source.version
        or operation.ref_name != source.home.branch
    ):
        raise CorruptError(
            f"the branch {target.branch!r} did not become a fork of version {source.version}",
            hint="fork again under another name",
        )
