"""Find what crashes, races and foreign hands left behind in a dataset, and repair what can be repaired safely."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from anabranch.errors import DatasetNotFoundError
from anabranch.format.doctor.census import take_census
from anabranch.format.doctor.contents import check_contents
from anabranch.format.doctor.diagnosis import Diagnosis, Surroundings
from anabranch.format.doctor.files import diagnose_files
from anabranch.format.doctor.findings import DoctorReport, Finding, FindingKind, Severity
from anabranch.format.doctor.opening import diagnose_opening
from anabranch.format.doctor.refs import diagnose_refs
from anabranch.format.doctor.remedies import apply_remedy, store_time
from anabranch.format.doctor.trees import diagnose_trees
from anabranch.format.home import Home

__all__ = ["GRACE", "DoctorReport", "Finding", "FindingKind", "Progress", "Severity", "doctor"]

# Far more than anyone needs between a branch's first manifest and its ref.
GRACE = timedelta(minutes=15)

# A repair may lay bare something else, such as the files of a branch whose metadata was removed.
_ROUNDS = 5


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
    """Report what is wrong with a dataset, damaged files included, and with `repair` put right what is safe.

    Nothing is removed that a branch, a tag or one of the given clones needs, nor what is younger than `grace` by the
    store's own clock, as it may be a branch in the making.
    """
    root = home.on(None)
    others = tuple(clones)
    found = _examine(root, others, progress)
    repaired: list[Finding] = []
    for _ in range(_ROUNDS if repair else 0):
        done = _treat(root, found, grace)
        if not done:
            break
        repaired += done
        found = _examine(root, others, progress)
    findings = [*repaired, *(diagnosis.finding for diagnosis in found)]
    order = list(Severity)
    return DoctorReport(root=root.root, findings=tuple(sorted(findings, key=lambda one: order.index(one.severity))))


def _treat(root: Home, found: Iterable[Diagnosis], grace: timedelta) -> list[Finding]:
    treatable = [(one.finding, one.remedy) for one in found if one.remedy is not None]
    if not treatable:
        return []
    now = store_time(root)
    return [
        replace(finding, repaired=True)
        for finding, remedy in treatable
        if apply_remedy(root, remedy, now=now, grace=grace)
    ]


def _examine(root: Home, clones: Iterable[Home], progress: Progress) -> tuple[Diagnosis, ...]:
    census = take_census(root, progress=progress)
    known = [facts for facts in census.versions if facts.branch is None or facts.branch in census.branches]
    contents = check_contents(root, census.layout, known)
    surroundings = Surroundings(clone_bases={clone.uri: _base_paths(clone) for clone in clones}, contents=contents)
    return (
        *diagnose_refs(census),
        *diagnose_trees(census, surroundings),
        *diagnose_files(census, surroundings),
        *diagnose_opening(root, census),
    )


def _base_paths(clone: Home) -> tuple[str, ...]:
    try:
        return tuple({path for facts in take_census(clone).versions for path in facts.base_paths})
    except DatasetNotFoundError:
        return ()
