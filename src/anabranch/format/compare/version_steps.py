"""The steps from one version of a table to another, as their transactions record them.

Row ids match rows of two versions only if one descends from the other. If all steps are updates of ours, the columns
that none of them changed need not be read twice.
"""

from dataclasses import dataclass

import lance

from anabranch.errors import NotFoundError
from anabranch.format.home import VersionRef
from anabranch.format.layout.next_manifest import UPDATED_FIELDS
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.manifests import find_transaction, shown_version

# Each step is a file to read. After more of them, to read all columns is faster.
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Step:
    """The version before a step, and the ids of the fields that the step changed. None if it may change anything."""

    before: VersionRef
    updated: frozenset[int] | None


def descends_from(later: VersionRef, earlier: VersionRef, *, after: VersionRef | None = None) -> bool:
    """Whether every step from one version to the other was made from the one before; else row ids may be used twice.

    If a step is unknown, return False. Also return False if the steps lead to the version `after` first.
    """
    here = later
    while here != earlier:
        before = None if here == after else step_back(here)
        if before is None:
            return False
        here = before
    return True


def step_back(version_ref: VersionRef) -> VersionRef | None:
    """Return the version that another one was made from, in whichever home; None where that is unknown.

    An ordinary version that was settled was made from the version that it shows.
    """
    step = _find_step(version_ref)
    return None if step is None else step.before


def find_updated_columns(older: VersionRef, newer: VersionRef) -> frozenset[str] | None:
    """Return the columns that updates changed between two versions. None if anything else was done, or is unknown.

    Both versions then have the same rows, by their row ids, and equal values in all other columns.
    """
    fields: set[int] = set()
    here = newer
    for _ in range(_MOST_STEPS):
        if here == older:
            families = FieldTree.of(newer.open().lance_schema).families()
            return frozenset(name for name, family in families.items() if not fields.isdisjoint(family))
        step = _find_step(here)
        if step is None or step.updated is None:
            return None
        fields |= step.updated
        here = step.before
    return None


def _find_step(version_ref: VersionRef) -> _Step | None:
    home = version_ref.home
    try:
        found = find_transaction(home, version_ref.open(), version_ref.version)
    except NotFoundError:
        return None  # collected
    if found is None:
        return None
    properties = found.transaction_properties or {}
    # The read version of a settled version is the ordinary one before it, and its own steps are in the staged chain.
    shown = shown_version(properties)
    # `doctor` rebuilds a lost staged version from the ordinary one that shows it, with the same transaction. That names
    # the version itself. Its steps are lost, so it counts as made from the ordinary version before.
    if shown is not None and shown != version_ref.version:
        return _Step(VersionRef(home=home, version=shown), frozenset())
    match found.operation:
        case lance.LanceOperation.Clone() as made:
            # A clone of another dataset, such as an adopted table, begins here. Its reference names a version there.
            if made.branch_name is None:
                return None
            return _Step(VersionRef(home=home.on(made.ref_name), version=made.ref_version), frozenset())
        case lance.LanceOperation.Restore() as made:
            if made.version == version_ref.version:
                return None  # rebuilt as above, and what it was made from is not the version before
            return _Step(VersionRef(home=home, version=made.version), frozenset())
    if not found.read_version:
        return None
    return _Step(VersionRef(home=home, version=found.read_version), _updated_fields(properties.get(UPDATED_FIELDS)))


def _updated_fields(text: str | None) -> frozenset[int] | None:
    numbers = (text or "").split()
    return frozenset(map(int, numbers)) if numbers and all(number.isdecimal() for number in numbers) else None
