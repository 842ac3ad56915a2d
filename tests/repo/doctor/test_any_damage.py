"""Any damage to any file: doctor names it, and a repair restores what was there or changes nothing."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.format.doctor.findings_and_repairs import DoctorReport
from tests.conftest import Location
from tests.lake_templates import LakeTemplate
from tests.proof_log import record_proof
from tests.repo.doctor.damages import OURS, AnyDamage, any_damages
from tests.repo.doctor.sample_repository import Contents, Files, furnish, read_all
from tests.repo.witness import OWN, fresh


@dataclass(frozen=True)
class State:
    """What can be read of a repository, and the bytes of its own objects."""

    contents: Contents
    objects: dict[str, bytes]

    @classmethod
    def of(cls, repo: ab.Repository) -> "State":
        files = Files(repo)
        # The mark names the location, which is another one each time.
        own = [path for path in files.list() if path.startswith(OWN) and not path.startswith("_repo")]
        own = [path for path in own if not path.endswith(("/hint", ".torn"))]
        return cls(read_readable(repo), {path: files.get(path) for path in own})


def read_readable(repo: ab.Repository) -> Contents:
    try:
        return read_all(fresh(repo))
    except AnabranchError:
        return {}


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], ab.Repository]:
    """Puts down the same healthy repository again and again."""
    template, numbers = LakeTemplate(Location(root=str(tmp_path / "well-000")), furnish), iter(range(1, 1000))
    return lambda: template.write_copy(Location(root=str(tmp_path / f"well-{next(numbers):03}")))


def is_named(report: DoctorReport, path: str) -> bool:
    """Whether a finding is about a file, or about the folder that it is in."""
    subjects = [subject for finding in report.findings for subject in (finding.subject, *finding.paths)]
    return any(path == subject or path.startswith(f"{subject.rstrip('/')}/") for subject in subjects)


def check(repo: ab.Repository, damage: AnyDamage, before: State, chance: random.Random) -> str:
    """Damage a file, look for it, and repair it; return what became of it."""
    damage.do(Files(repo), chance)
    damaged = State.of(repo)
    report = fresh(repo).doctor(rows=True)
    # Lance needs some of its files no more; hints are never needed.
    is_needed = damaged.contents != before.contents or (damage.kind in OURS and damage.kind != "hint")
    assert is_named(report, damage.path) or not is_needed, (damage, report.findings)
    repaired = fresh(repo).doctor(repair=True)
    after = State.of(repo)
    for ref, tables in damaged.contents.items():
        if tables == before.contents.get(ref):
            assert after.contents.get(ref) == tables, (damage, ref)  # what could be read still can
    for ref, tables in after.contents.items():
        assert tables in (before.contents.get(ref), damaged.contents.get(ref)), (damage, ref)
    for path, data in after.objects.items():
        assert data in (before.objects.get(path), damaged.objects.get(path)), (damage, path)
    found = {(finding.kind, finding.subject) for finding in report.findings}
    is_repaired = found <= {(finding.kind, finding.subject) for finding in repaired.repaired}
    if is_repaired and not any(kind == "torn_entry" for kind, _ in found):
        assert after.contents == before.contents, damage
    return "harmless" if not found else "repaired" if is_repaired else "named"


def check_many(make: Callable[[], ab.Repository], count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    before = State.of(first := make())
    outcomes: Counter[str] = Counter()
    for damage in any_damages(Files(first), count, chance):
        outcomes[f"{damage.kind} {damage.harm}: {check(make(), damage, before, chance)}"] += 1
    return outcomes


def test_damage_to_any_file_is_named_and_never_made_worse(make: Callable[[], ab.Repository]) -> None:
    assert check_many(make, 6, seed=4).total() == 6


@pytest.mark.proof
def test_two_hundred_damages_are_named_and_never_made_worse(make: Callable[[], ab.Repository]) -> None:
    began, seed = time.monotonic(), random.SystemRandom().randrange(1 << 32)
    outcomes = check_many(make, 200, seed)
    ends = Counter({end: sum(n for name, n in outcomes.items() if name.endswith(end)) for end in ENDS})
    record_proof("damaged files", {"damages": outcomes.total(), **ends}, seconds=time.monotonic() - began)


ENDS = ("repaired", "named", "harmless")
