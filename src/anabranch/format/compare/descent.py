"""Whether one version of a table grew out of another, step by step."""

import lance

from anabranch.errors import NotFoundError
from anabranch.format.staging.settling import shown_version
from anabranch.format.staging.version_ref import VersionRef
from anabranch.format.transactions import find_transaction

__all__ = ["descends_from", "step_back"]


def descends_from(later: VersionRef, earlier: VersionRef) -> bool:
    """Whether every step from one version to the other went on from the one before; else row ids may be used twice.

    Where a step cannot be told, the answer is no.
    """
    here = later
    while here != earlier:
        before = step_back(here)
        if before is None:
            return False
        here = before
    return True


def step_back(version_ref: VersionRef) -> VersionRef | None:
    """Return the version that another one was made from, in whichever home; None where that is unknown.

    An ordinary version that was settled was made from the version that it shows.
    """
    try:
        step = find_transaction(version_ref.home, version_ref.open(), version_ref.version)
    except NotFoundError:
        return None  # collected
    shown = None if step is None else shown_version(step.transaction_properties or {})
    if shown is not None:
        return VersionRef(home=version_ref.home, version=shown)
    match None if step is None else step.operation:
        case lance.LanceOperation.Clone() as made:
            return VersionRef(home=version_ref.home.on(made.ref_name), version=made.ref_version)
        case lance.LanceOperation.Restore() as made:
            return VersionRef(home=version_ref.home, version=made.version)
        case None:
            return None
        case _ if step is not None and step.read_version:
            return VersionRef(home=version_ref.home, version=step.read_version)
    return None
