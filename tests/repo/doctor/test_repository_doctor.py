"""Damage of every kind, really made: doctor names it, and it alone; what it repairs is as it was before."""

import io
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest
from typer.main import get_command

import anabranch as ab
from anabranch import testing
from anabranch.cli.main import create_app
from anabranch.errors import (
    InvalidInputError,
    TableNotFoundError,
)
from anabranch.format.doctor.findings_and_repairs import FindingKind, Severity
from anabranch.testing import CountingStore
from tests.conftest import Location
from tests.lake_templates import Cast, Fill, LakeTemplate
from tests.repo.conftest import CUSTOMERS, ORDERS, append, ids, table
from tests.repo.doctor.damages import (
    DAMAGES,
    Damage,
    external_write,
    gap,
    home_without_ref,
    missing_commit,
    missing_data_file,
    torn_commit,
    torn_hint,
    unsettled_home,
)
from tests.repo.doctor.sample_repository import RENAMED, Contents, Files, furnish, furnish_little, named, read_all
from tests.repo.gc.object_ages import pass_time
from tests.repo.io.moving import copy_objects

Kind = FindingKind
COMMAND = get_command(create_app())  # made once: that takes longer than most of what it does here


RECORDS = ("_versions/", "_commits/", "_tags/", "_runs/")


def ran(*args: str) -> tuple[int, str]:
    """The exit code of a command, and its output on both streams."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        COMMAND.main(list(args))
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.getvalue()


def doctor(repo: ab.Repository, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of the command, and what it found."""
    code, printed = ran("doctor", "--repo", repo.uri, "--json", *options)
    return code, json.loads(printed)["findings"]


def reopened(repo: ab.Repository) -> ab.Repository:
    """Another handle, which remembers nothing; whether it is a repository is not checked."""
    return testing.open(repo)


@pytest.fixture
def well(tmp_path: Path, lake_templates: dict[tuple[Fill, str], LakeTemplate]) -> ab.Repository:
    """A healthy repository on local disk: copies beside logs, and much of what is damaged here, are there only."""
    location = Location(root=str(tmp_path))
    template = lake_templates.get((furnish, "")) or LakeTemplate(location, furnish)
    lake_templates[furnish, ""] = template
    return template.write_copy(location)


@dataclass(frozen=True)
class Before:
    """What can be read of a repository, and its logs and commits."""

    contents: Contents
    records: dict[str, bytes]

    @classmethod
    def of(cls, repo: ab.Repository) -> "Before":
        files = Files(repo)
        paths = [path for path in files.list() if path.startswith(RECORDS) and not path.endswith("/hint")]
        return cls(read_all(reopened(repo)), {path: files.get(path) for path in paths})

    def without(self, lost: tuple[str, ...], path: str) -> "Before":
        """The same without a ref, and without the object that held it."""
        contents = {ref: tables for ref, tables in self.contents.items() if ref not in lost}
        return Before(contents, {name: data for name, data in self.records.items() if name != path})


@pytest.fixture
def before(well: ab.Repository, seen_before: list[Before]) -> Before:
    """How the repository is at first, which is the same for all tests."""
    if not seen_before:
        seen_before.append(Before.of(well))
    return seen_before[0]


@pytest.fixture(scope="session")
def seen_before() -> list[Before]:
    return []


def test_a_healthy_repository_has_no_findings(well: ab.Repository) -> None:
    steps: list[tuple[int, int]] = []
    report = well.doctor(rows=True, progress=lambda step: steps.append((step.done, step.total)))
    assert report.findings == ()
    assert report.is_clean
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1] > 6
    before = {path: Files(well).get(path) for path in Files(well).list()}
    assert well.doctor(repair=True).findings == ()
    assert {path: Files(well).get(path) for path in Files(well).list()} == before


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_named_alone_and_repaired(well: ab.Repository, before: Before, damage: Damage) -> None:
    files = Files(well)
    damage.do(files)
    after = read_all(reopened(well))
    code, findings = doctor(well, *damage.options)
    assert [finding["kind"] for finding in findings] == [damage.kind]
    assert code == (0 if damage.kind.severity is Severity.INFO else 1)
    (finding,) = findings
    assert finding["repairable"] is (damage.is_repaired or damage.is_set_aside)
    unreadable = {ref for ref, tables in before.contents.items() if after.get(ref) != tables}
    assert unreadable <= {*finding["refs"], *finding["commits"]}
    if damage.is_repaired:
        code, findings = doctor(well, "--repair")
        assert [(finding["kind"], finding["repaired"]) for finding in findings] == [(damage.kind, True)]
        assert code == 0
        assert Before.of(well) == before
    if damage.is_set_aside:
        torn = files.get(finding["subject"])
        code, findings = doctor(well, "--repair")
        assert [(finding["kind"], finding["repaired"]) for finding in findings] == [(damage.kind, True)]
        (aside,) = files.list(ending=".torn")
        assert aside.startswith(finding["subject"])
        assert files.get(aside) == torn
        files.delete(aside)
        assert Before.of(well) == before.without(damage.lost, finding["subject"])
        append(reopened(well), 90, branch="dev")
        reopened(well).tag_create("lost")
        assert reopened(well).doctor().is_clean


@pytest.mark.s3
def test_damage_on_a_store(cast: Cast) -> None:
    """On S3 no copies are beside logs; all else is the same."""
    well = cast(furnish_little)
    assert well.doctor(rows=True).findings == ()
    files = Files(well)
    before = read_all(well)
    for do in (gap, torn_commit, missing_commit, home_without_ref, unsettled_home):
        do(files)
    found = {finding.kind for finding in reopened(well).doctor().findings}
    repaired = {Kind.LOG_GAP, Kind.DAMAGED_COMMIT, Kind.MISSING_COMMIT, Kind.MISSING_REF, Kind.UNSETTLED_HOME}
    assert found == repaired
    assert {finding.kind for finding in reopened(well).doctor(repair=True).repaired} == repaired
    assert reopened(well).doctor().findings == ()
    assert read_all(reopened(well)) == before
    missing_data_file(files)
    (finding,) = reopened(well).doctor().findings
    assert (finding.kind, finding.tables) == (Kind.MISSING_DATA_FILE, (ORDERS,))
    assert finding.refs == ("dev",)


def test_a_copy_reads_the_original(well: ab.Repository, tmp_path: Path) -> None:
    copy_objects(well.uri, str(tmp_path / "copy"), {})
    copied = ab.open(tmp_path / "copy")
    (finding,) = copied.doctor().findings
    assert finding.kind is Kind.STALE_BASE
    assert f"`relocate({copied.uri!r})`" in finding.remedy
    assert {"dev", "dev/deep", "live", "deep"} <= set(finding.refs)
    assert "main" not in finding.refs
    ab.relocate(copied.uri)
    assert ab.open(copied.uri).doctor().findings == ()


def test_a_clone_misses_its_source(well: ab.Repository, tmp_path: Path) -> None:
    cloned = ab.clone(well.uri, tmp_path / "clone", ref="dev/deep")
    cloned.branch_create("own")
    append(cloned, 80, branch="own")
    assert cloned.doctor(rows=True).findings == ()
    files = Files(well)
    files.delete(files.data_of(ORDERS, "dev"))
    (finding,) = cloned.doctor().findings
    assert (finding.kind, finding.refs) == (Kind.MISSING_DATA_FILE, ("main", "own"))
    assert finding.subject.startswith(well.uri)
    Path(well.uri).rename(tmp_path / "elsewhere")
    (finding,) = cloned.doctor().findings
    assert (finding.kind, finding.refs) == (Kind.MISSING_BASE, ("main", "own"))
    assert finding.subject == f"{well.uri}/tables/in_c_sales/customers.lance"
    assert "mapping={'OLD': 'NEW'}" in finding.remedy


def test_findings_name_what_they_affect(well: ab.Repository) -> None:
    files = Files(well)
    files.delete(files.data_of(ORDERS, "v1"))
    (finding,) = well.doctor().findings
    assert finding.tables == (ORDERS,)
    # The merge has moved main's copy of the table to files of its own.
    assert finding.refs == ("deep", "dev", "dev/deep", "live", "v1")
    readable = {ref for ref, tables in read_all(reopened(well)).items() if ORDERS in tables}
    assert not readable & named(finding)
    _, text = ran("doctor", "--repo", well.uri)
    assert f"error: missing_data_file {finding.subject}" in text
    assert f"affects {ORDERS} on deep, dev, dev/deep, live, v1, {len(finding.commits)} commits" in text


def test_single_tables_can_be_checked(well: ab.Repository) -> None:
    missing_data_file(Files(well))
    assert well.doctor(tables=[RENAMED]).findings == ()
    assert [finding.kind for finding in well.doctor(tables=[ORDERS, CUSTOMERS]).findings] == [Kind.MISSING_DATA_FILE]
    with pytest.raises(TableNotFoundError, match=r"no commit has a table 'in_c_sales\.nothing'"):
        well.doctor(tables=["in_c_sales.nothing"])
    with pytest.raises(InvalidInputError, match="tables must be a list"):
        well.doctor(tables=ORDERS)


def test_notice_is_not_a_failure(well: ab.Repository) -> None:
    files = Files(well)
    torn_hint(files)
    files.put("notes.txt", b"?")
    files.put("_versions/main/copy of an entry.json", b"?")
    files.put("_backup/x", b"?")
    home = files.home(ORDERS, "dev")
    for path in files.list(f"{home}/_versions"):
        files.put(path.replace(home, "tables/in_c_sales/orders.lance/tree/dev/01ABANDONED"), files.get(path))
    files.put("_leases/main/01M7HKD4HAPB0VRYGQF7KB4VR7", b"alive\n")
    long_ago = time.time() - 3600
    os.utime(Path(well.uri) / "_leases/main/01M7HKD4HAPB0VRYGQF7KB4VR7", (long_ago, long_ago))
    code, findings = doctor(well)
    kinds = [Kind.DAMAGED_HINT, Kind.UNKNOWN_FILE, Kind.UNFINISHED_FORK, Kind.DEAD_LEASE]
    assert sorted(finding["kind"] for finding in findings) == sorted([*kinds, Kind.UNKNOWN_FILE, Kind.UNKNOWN_FILE])
    assert {finding["severity"] for finding in findings} == {Severity.INFO}
    assert code == 0
    report = well.doctor(repair=True)
    assert {finding.kind for finding in report.repaired} == {Kind.DAMAGED_HINT, Kind.DEAD_LEASE}
    assert {finding.kind for finding in report.open} == {Kind.UNKNOWN_FILE, Kind.UNFINISHED_FORK}


def test_an_external_write_is_taken_in_or_set_aside(well: ab.Repository) -> None:
    external_write(Files(well))
    well.adopt(RENAMED)
    well.history_sync()
    assert well.doctor().findings == ()
    external_write(Files(well))
    well.settle(RENAMED, force=True)
    assert well.doctor().findings == ()


@pytest.fixture
def wide(tmp_path: Path) -> ab.Repository:
    """Two commits that create enough tables for each to hold the full map, and one after them."""
    repo = ab.init(tmp_path / "lake", actor="ada")
    for bucket in ("in_c_one", "in_c_two"):
        with repo.transaction(message=bucket) as tx:
            for number in range(17):
                tx.create_table(f"{bucket}.t{number:02}", table().schema)
    append(repo, 9, key="in_c_two.t00")
    return repo


def full_maps(repo: ab.Repository) -> list[str]:
    return [path for path in Files(repo).list("_commits") if '"full_map":{"in_c' in Files(repo).text(path)]


def test_a_full_map_is_found_again(wide: ab.Repository) -> None:
    """What a commit has changed is in the next full map, too, unless it was changed again in between."""
    files, before = Files(wide), read_many(wide)
    first, _ = full_maps(wide)
    objects = {path: files.get(path) for path in files.list("_commits")}
    files.delete(first)
    (finding,) = reopened(wide).doctor(repair=True).findings
    assert (finding.kind, finding.repaired, finding.refs) == (Kind.MISSING_COMMIT, True, ())
    assert {path: files.get(path) for path in objects} == objects
    assert read_many(reopened(wide)) == before


def test_a_full_map_without_a_copy_is_lost(wide: ab.Repository) -> None:
    _, last = full_maps(wide)
    commits = tuple(wide.snapshot_of(ref).id for ref in ("main~1", "main"))
    Files(wide).delete(last)
    (finding,) = reopened(wide).doctor(repair=True).findings
    assert (finding.kind, finding.repaired, finding.refs) == (Kind.MISSING_COMMIT, False, ("main",))
    assert finding.commits == commits


def test_a_full_map_with_other_tables_is_corrected(wide: ab.Repository) -> None:
    files, before = Files(wide), read_many(wide)
    _, last = full_maps(wide)
    right = files.get(last)
    full_map = json.loads(right)["full_map"]
    files.edit(last, full_map={**full_map, "in_c_one.t00": full_map["in_c_one.t01"]})
    (finding,) = reopened(wide).doctor(repair=True).findings
    assert (finding.kind, finding.repaired) == (Kind.DIFFERENT_COMMIT, True)
    assert "it does not list in_c_one.t00" in finding.explanation
    assert files.get(last) == right
    assert read_many(reopened(wide)) == before


def test_nothing_is_read_more_often_than_needed(well: ab.Repository) -> None:
    counting = CountingStore(testing.store_of(well))
    assert testing.open(well, store=counting).doctor().findings == ()
    reads = Counter(path for operation, path in counting.requests if operation == "get")
    # Commits that hold the full map, and the entries of heads, are read again.
    assert max(reads.values()) <= 5
    assert reads.total() <= 1.5 * len(reads)
    assert {operation for operation, _ in counting.requests} <= {"get", "list", "list_folders", "list_files"}


def read_many(repo: ab.Repository) -> dict[str, dict[str, list[Any]]]:
    commits = repo.list_commits("main", limit=None)
    snapshots = {commit.graph_commit_id: repo.snapshot_of(commit.graph_commit_id) for commit in commits}
    return {ref: {key: snapshot[key].to_arrow().to_pylist() for key in snapshot} for ref, snapshot in snapshots.items()}


def test_a_location_without_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, printed = ran("doctor", "--repo", str(tmp_path / "empty"))
    assert code == 3
    assert "there is no repository" in printed


def test_metadata_of_a_home_are_what_they_were(well: ab.Repository) -> None:
    """Lance forks from it, lists it, and knows its parents."""
    files = Files(well)
    paths = [files.ref_of(ORDERS, ref) for ref in ("dev", "dev/deep")]
    before = [json.loads(files.get(path)) for path in paths]
    for path in paths:
        files.delete(path)
    well.branch_create_from("dev", "early")
    with pytest.raises(ab.AnabranchError):
        append(well, 70, branch="early")
    report = well.doctor(repair=True)
    assert [finding.kind for finding in report.repaired] == [Kind.MISSING_REF] * 2
    assert not report.open
    after = [json.loads(files.get(path)) for path in paths]
    for old, new in zip(before, after, strict=True):
        assert new.keys() == old.keys()
        for key in ("parentBranch", "parentVersion", "metadata"):
            assert new[key] == old[key]
        assert [one for one, _ in new["identifier"]["version_mapping"]] == [
            one for one, _ in old["identifier"]["version_mapping"]
        ]
    well.branch_create_from("dev/deep", "later")
    append(well, 71, branch="later")
    assert ids(well.snapshot_of("later")) == [2, 3, 4, 5, 71]
    lance_branches = lance.dataset(f"{well.uri}/tables/in_c_sales/orders.lance").branches.list()
    assert len(lance_branches) == len(files.list("tables/in_c_sales/orders.lance/_refs/branches")) > 3


def test_active_writers_are_not_reported_as_damage(well: ab.Repository) -> None:
    def write(number: int) -> None:
        repo = ab.open(well.uri, actor="bob")
        for turn in range(8):
            append(repo, 100 * number + turn, key=RENAMED)
            append(repo, 100 * number + turn, branch="dev")

    with ThreadPoolExecutor(2) as threads:
        writing = [threads.submit(write, number) for number in (1, 2)]
        found = [well.doctor()]
        while not all(one.done() for one in writing):
            found.append(well.doctor())
        for one in writing:
            one.result()
    assert not [finding for report in found for finding in report.open if finding.severity is Severity.ERROR]
    assert well.doctor(rows=True).findings == ()


def test_collected_commits_are_not_damage(well: ab.Repository) -> None:
    """Data removed by garbage collection is not reported as missing."""
    pass_time(well)
    assert well.gc(keep_last=1).commits
    assert well.doctor(rows=True).findings == ()
