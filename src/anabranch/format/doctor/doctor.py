"""Find what crashes, races and other tools left behind in a dataset, and repair what can be repaired safely."""

from collections.abc import Callable, Iterable
from datetime import timedelta

from anabranch.errors import DatasetNotFoundError
from anabranch.format.doctor.contents import check_contents
from anabranch.format.doctor.files import diagnose_files, diagnose_opening
from anabranch.format.doctor.findings import Case, DoctorReport, examine
from anabranch.format.doctor.inventory import read_inventory
from anabranch.format.doctor.refs import diagnose_refs
from anabranch.format.doctor.repairs import Repairs
from anabranch.format.doctor.trees import diagnose_trees
from anabranch.format.home import Home

__all__ = ["GRACE", "DoctorReport", "Progress", "doctor"]

# Far longer than a creator needs between the first manifest of a branch and its ref.
GRACE = timedelta(minutes=15)

# Called with the number of versions that were read, and the number of all; a repair reads them again.
Progress = Callable[[int, int], None]


def doctor(
    home: Home,
    *,
    repair: bool = False,
    grace: timedelta = GRACE,
    clones: Iterable[Home] = (),
    progress: Progress = lambda *_: None,
) -> DoctorReport:
    """Return the findings of a dataset, damaged or not. With `repair`, fix what is safe to fix first.

    A repair removes nothing that a branch, a tag or one of the given clones needs, nor what is younger than `grace` by
    the store's own clock, as it may be a branch in creation.
    """
    root = home.on(None)
    others = tuple(clones)
    # Each scan has repairs of its own, since they compare ages with one time of the store.
    return examine(root.root, lambda: _scan(root, others, Repairs(root, grace), progress), repair=repair)


def _scan(root: Home, clones: Iterable[Home], repairs: Repairs, progress: Progress) -> list[Case]:
    inventory = read_inventory(root, progress=progress)
    # Versions in trees without a ref are reported with their tree.
    known = [facts for facts in inventory.versions if facts.branch is None or facts.branch in inventory.branches]
    contents = check_contents(root, inventory.layout, known)
    return [
        *diagnose_refs(inventory, repairs),
        *diagnose_trees(inventory, repairs, clones={clone.uri: _base_paths(clone) for clone in clones}),
        *diagnose_files(inventory, contents, repairs),
        *diagnose_opening(root, inventory),
    ]


def _base_paths(clone: Home) -> tuple[str, ...]:
    try:
        return tuple({path for facts in read_inventory(clone).versions for path in facts.base_paths})
    except DatasetNotFoundError:
        return ()
