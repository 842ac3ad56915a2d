"""Processes that do whatever they like to one repository at once; what they wrote down agrees with what is there."""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.format.doctor.findings_and_repairs import Finding, FindingKind, Severity
from tests.concurrency import marked_tables
from tests.concurrency.checking import SETUP, Fault, Violation, find_violations
from tests.concurrency.evidence import Evidence, gather
from tests.concurrency.member import Ground
from tests.concurrency.recording import Call, Outcome, read_calls
from tests.conftest import Location
from tests.processes import Program
from tests.proof_log import record_proof

SHORT_LEASE = 5.0  # lets garbage be collected while others work
READS = ("read_", "list_")


@dataclass(frozen=True, kw_only=True)
class Course:
    """How many processes do how many operations each, how many are killed and replaced, and what mistake all make."""

    members: int
    operations: int
    kills: int = 0
    plant: str | None = None
    lease: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What happened, what is there in the end, and what of it is wrong."""

    calls: list[Call]
    evidence: Evidence
    violations: list[Violation]
    findings: list[Finding]
    counts: dict[str, object]


def run_history(location: Location, tmp_path: Path, course: Course, *, seed: int) -> Judged:
    """Let processes work on a new repository, and judge what they wrote down."""
    folder = tmp_path / "calls"
    folder.mkdir()
    options = dict(location.storage_options)
    repo = ab.init(location / "lake", storage_options=options, actor=SETUP)
    marked_tables.create(repo)
    ground = Ground(uri=location / "lake", storage_options=options, folder=str(folder), seed=seed, lease=course.lease)
    began = time.monotonic()
    with Program("process_pool", package="tests.concurrency") as process_pool:
        reported = process_pool.ask("work", ground=asdict(ground), **asdict(course))
    assert reported["errors"] == []
    after = ab.open(location / "lake", storage_options=options)
    calls, evidence = read_calls(folder), gather(after)
    violations = find_violations(calls, evidence, grace=3 * course.lease)
    counts = {
        "processes": reported["processes"],
        "kills": reported["kills"],
        "operations": len(calls),
        "by_kind": dict(sorted(Counter(call.kind for call in calls).items())),
        "outcomes": dict(sorted(Counter(call.outcome.value for call in calls).items())),
        "refusals": dict(sorted(Counter(call.code for call in calls if call.outcome is Outcome.REFUSED).items())),
        "commits": len(evidence.commits),
        "log_entries": sum(len(log) for log in evidence.logs.values()),
        "reads": sum(call.kind.startswith(READS) and call.outcome is Outcome.DONE for call in calls),
        "violations": len(violations),
    }
    if course.plant is None:
        name = (
            f"processes at once, {'local disk' if location.is_local else 'S3'}{', with kills' if course.kills else ''}"
        )
        record_proof(name, counts, seconds=time.monotonic() - began)
    findings = [found for found in after.doctor(rows=True).findings if _is_damage(found)]
    return Judged(calls=calls, evidence=evidence, violations=violations, findings=findings, counts=counts)


def _is_damage(found: Finding) -> bool:
    """Whether it is more than what the killed left lying; to take an own write for an external one is damage, too."""
    return found.severity is Severity.ERROR or found.kind is FindingKind.EXTERNAL_WRITE


def assert_sound(judged: Judged, *, least: int) -> None:
    """Nothing is wrong, and enough was done for that to mean something."""
    assert judged.violations == []
    assert judged.findings == []
    done = Counter(call.kind for call in judged.calls if call.outcome is Outcome.DONE)
    assert done["commit"] >= least
    assert done["read_head"] + done["read_synced"] >= least
    assert len(judged.evidence.commits) > done["commit"]


def test_three_processes(tmp_path: Path) -> None:
    judged = run_history(Location(root=str(tmp_path)), tmp_path, Course(members=3, operations=25), seed=11)
    assert_sound(judged, least=4)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2])
def test_eight_processes(location: Location, tmp_path: Path, seed: int) -> None:
    course = Course(members=8, operations=250 if location.is_local else 60, lease=SHORT_LEASE)
    assert_sound(run_history(location, tmp_path, course, seed=seed), least=10)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [3, 4])
def test_eight_processes_of_which_many_are_killed(location: Location, tmp_path: Path, seed: int) -> None:
    operations, kills = (120, 60) if location.is_local else (40, 20)
    course = Course(members=8, operations=operations, kills=kills, lease=SHORT_LEASE)
    judged = run_history(location, tmp_path, course, seed=seed)
    assert_sound(judged, least=10)
    assert sum(call.ended is None for call in judged.calls) > course.kills / 4  # others died between two calls


@pytest.mark.proof
@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        ("read_what_was_seen", Fault.STALE),
        ("win_every_race", Fault.LOST),
        ("publish_half", Fault.TORN),
        ("publish_twice", Fault.REPEATED),
        ("refuse_what_was_done", Fault.LEFT_BEHIND),
    ],
)
def test_planted_mistake_is_found(tmp_path: Path, plant: str, fault: Fault) -> None:
    course = Course(members=4, operations=20, plant=plant)
    judged = run_history(Location(root=str(tmp_path)), tmp_path, course, seed=5)
    assert fault in {violation.fault for violation in judged.violations}
