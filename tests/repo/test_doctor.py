"""Damage of every kind, really made: doctor names it, and it alone; what it mends is as it was before."""

import io
import json
import os
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import lance
import pyarrow as pa
import pytest
from typer.main import get_command

import anabranch as ab
from anabranch.cli.main import create_app
from anabranch.errors import (
    InvalidInputError,
    TableNotFoundError,
)
from anabranch.format import staging
from anabranch.repo.doctor.findings import FindingKind, Severity
from anabranch.storage.options import lance_options
from tests.conftest import Place
from tests.moulds import Cast, Fill, Mould
from tests.repo.ailing import COMMITS, RENAMED, Contents, Files, furnish, named, read_all
from tests.repo.conftest import CUSTOMERS, ORDERS, append, table
from tests.repo.moving import copy_objects

Kind = FindingKind
COMMAND = get_command(create_app())  # made once: that takes longer than most of what it does here


@dataclass(frozen=True)
class Damage:
    """Something done to files, what doctor is to call it, and whether it can be mended."""

    kind: FindingKind
    do: Callable[[Files], None]
    is_mended: bool = False
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.do.__name__


def missing_data_file(files: Files) -> None:
    files.delete(files.data_of(ORDERS, "dev"))


def truncated_data_file(files: Files) -> None:
    files.tear(files.data_of(ORDERS, "dev"))


def truncated_manifest(files: Files) -> None:
    files.tear(files.manifest(ORDERS, "dev"))


def missing_detached_manifest(files: Files) -> None:
    files.delete(files.manifest(ORDERS, "dev/deep"))


def missing_deletion_file(files: Files) -> None:
    (path,) = files.list(f"{files.home(ORDERS, 'dev')}/_deletions")
    files.delete(path)


def missing_index(files: Files) -> None:
    files.remove_folder(files.list("tables/in_c_sales/orders.lance/_indices")[0].rpartition("/")[0])


def truncated_index(files: Files) -> None:
    files.tear(files.list("tables/in_c_sales/orders.lance/_indices")[0])


def missing_dataset(files: Files) -> None:
    files.remove_folder("tables/in_c_sales/customers.lance")


def ref_without_tree(files: Files) -> None:
    files.remove_folder(files.home(ORDERS, "live"))


def home_without_ref(files: Files) -> None:
    files.delete(files.ref_of(ORDERS, "dev"))


def torn_ref(files: Files) -> None:
    files.tear(files.ref_of(ORDERS, "dev/deep"))


def torn_entry_between_others(files: Files) -> None:
    files.tear(files.log("main", 2))


def emptied_entry_between_others(files: Files) -> None:
    files.put(files.log("main", 2), b"")


def torn_newest_entry(files: Files) -> None:
    files.tear(files.log("dev", files.head("dev")))


def torn_newest_entry_without_copy(files: Files) -> None:
    number = files.head("dev")
    files.delete("_versions/dev/hint")
    files.tear(files.log("dev", number))


def gap(files: Files) -> None:
    files.delete(files.log("main", 2))


def gap_that_nothing_tells_of(files: Files) -> None:
    files.delete(files.log("dev", 1))


def lost_newest_entry(files: Files) -> None:
    files.delete(files.log("main", files.head("main")))


def misplaced_entry(files: Files) -> None:
    files.put(files.log("dev/deep", 2), files.get(files.log("dev", 2)))
    files.delete("_versions/dev%2Fdeep/hint")


def entry_of_a_newer_format(files: Files) -> None:
    files.edit(files.log("dev", 2), format=99)


def missing_main(files: Files) -> None:
    files.remove_folder("_versions/main")


def missing_commit(files: Files) -> None:
    files.delete(files.commit("dev"))


def missing_first_commit(files: Files) -> None:
    files.delete(f"_commits/{files.repo.list_commits('main', limit=None)[-1].graph_commit_id}.json")


def torn_commit(files: Files) -> None:
    files.tear(files.commit("main~1"))


def commit_with_other_content(files: Files) -> None:
    path = files.commit("live")
    files.put(path, files.get(path).replace(b'"append (6,)"', b'"append (9,)"'))


def commit_in_the_place_of_another(files: Files) -> None:
    files.put(files.commit("dev"), files.get(files.commit("dev/deep")))


def commit_of_a_newer_format(files: Files) -> None:
    files.edit(files.commit("dev"), format=99)


def commit_before_its_parent(files: Files) -> None:
    commit = files.repo.get_commit(files.repo.snapshot_of("dev/deep").id)
    own = rf'("commit":\{{[^{{}}]*)"generation":{commit.generation}(,"graph_commit_id":"{commit.graph_commit_id}")'
    files.replace_everywhere(own, r'\1"generation":0\2')


def entry_before_the_one_before(files: Files) -> None:
    files.edit(files.log("dev", 2), at=1)


def torn_clone(files: Files) -> None:
    ab.clone(files.repo.uri, f"{files.repo.uri}-clone", shallow=True)
    (path,) = files.list("_clones", ".json")
    files.tear(path)
    files.delete(path.rpartition("/")[0] + "/hint")


def torn_mark(files: Files) -> None:
    files.tear("_repo.json")


def missing_mark(files: Files) -> None:
    files.delete("_repo.json")


def mark_of_a_newer_format(files: Files) -> None:
    files.edit("_repo.json", format=99)


def tag_of_a_missing_commit(files: Files) -> None:
    path = files.list("_tags/v1", ".json")[0]
    files.edit(path, commit_id="01M7HKD4HAPB0VRYGQF7KB4VR7")
    files.delete("_tags/v1/hint")


def torn_tag(files: Files) -> None:
    files.tear(files.list("_tags/v1", ".json")[0])
    files.delete("_tags/v1/hint")


def torn_run(files: Files) -> None:
    first = files.list("_runs", ".json")[-1]
    files.tear(first)


def wrong_hint(files: Files) -> None:
    """Whole by its checksum, and of a version that never was."""
    data = files.get(files.log("dev", 1))
    files.put("_versions/dev/hint", b"99 %d\n%s" % (crc32(data), data))


def torn_hint(files: Files) -> None:
    files.tear("_versions/dev/hint")


def write_of_a_stranger(files: Files) -> None:
    options = files.repo.storage_options
    uri = files.repo.snapshot_of("main")[RENAMED].uri
    lance.write_dataset(table(99), uri, mode="append", storage_options=lance_options(options) if options else None)


def unsettled_home(files: Files) -> None:
    home = files.home(RENAMED)
    ordinary = [path for path in files.list(f"{home}/_versions", ".manifest") if "/d" not in path]
    files.delete(ordinary[0])
    files.delete(f"{home}/_versions/latest_version_hint.json")


def torn_history(files: Files) -> None:
    files.tear(files.list(f"{COMMITS}/_versions", ".manifest")[0])


def history_with_another_commit(files: Files) -> None:
    row = lance.dataset(f"{files.repo.uri}/{COMMITS}").to_table().slice(0, 1)
    strange = row.set_column(0, row.schema.field(0), [["01M7HKD4HAPB0VRYGQF7KB4VR7"]])
    lance.write_dataset(strange, f"{files.repo.uri}/{COMMITS}", mode="append")


def history_that_leaves_one_out(files: Files) -> None:
    second = files.repo.list_commits("main", limit=None)[-2].graph_commit_id
    lance.dataset(f"{files.repo.uri}/{COMMITS}").delete(f"graph_commit_id = '{second}'")


def wrong_row_count(files: Files) -> None:
    version = files.entry(ORDERS, "live").version
    files.replace_everywhere(rf'"rows":\d+(,"version":"{version}")', r'"rows":77\1')


def zeros_in_a_data_file(files: Files) -> None:
    path = files.data_of(ORDERS, "dev")
    files.put(path, bytes(len(files.get(path))))


def torn_deletion_file(files: Files) -> None:
    (path,) = files.list(f"{files.home(ORDERS, 'dev')}/_deletions")
    files.tear(path)


def append_unchecked(files: Files, rows: pa.Table) -> None:
    """Append rows as a writer that trusts its source does."""
    with files.repo.transaction("dev") as tx:
        prepared = tx.prepare(ORDERS)
        tx.append_fragments(prepared, staging.write_fragments(prepared.pin, rows), check_keys=False)
    files.repo.history_sync()


def repeated_keys(files: Files) -> None:
    append_unchecked(files, table(4))


def keys_without_value(files: Files) -> None:
    """No writer lets them in, so that another column is made the key, in all that is recorded."""
    append_unchecked(files, pa.table({"id": pa.array([9], pa.int64()), "v": pa.array([None], pa.string())}))
    version = files.entry(ORDERS, "dev").version
    files.replace_everywhere(rf'"primary_key":\["id"\](,"rows":\d+,"version":"{version}")', r'"primary_key":["v"]\1')


def with_proof(damage: Damage) -> Any:
    """For one that is much like another."""
    return pytest.param(damage, marks=pytest.mark.proof)


DAMAGES = [
    Damage(Kind.MISSING_DATA_FILE, missing_data_file),
    Damage(Kind.WRONG_SIZE, truncated_data_file),
    Damage(Kind.DAMAGED_MANIFEST, truncated_manifest),
    Damage(Kind.MISSING_VERSION, missing_detached_manifest),
    Damage(Kind.MISSING_DELETION_FILE, missing_deletion_file),
    Damage(Kind.MISSING_INDEX, missing_index),
    with_proof(Damage(Kind.WRONG_SIZE, truncated_index)),
    Damage(Kind.MISSING_DATASET, missing_dataset),
    Damage(Kind.MISSING_HOME, ref_without_tree),
    Damage(Kind.MISSING_REF, home_without_ref, is_mended=True),
    Damage(Kind.DAMAGED_REF, torn_ref, is_mended=True),
    Damage(Kind.DAMAGED_ENTRY, torn_entry_between_others, is_mended=True),
    with_proof(Damage(Kind.DAMAGED_ENTRY, emptied_entry_between_others, is_mended=True)),
    Damage(Kind.DAMAGED_ENTRY, torn_newest_entry, is_mended=True),
    Damage(Kind.DAMAGED_ENTRY, torn_newest_entry_without_copy),
    Damage(Kind.LOG_GAP, gap, is_mended=True),
    Damage(Kind.LOG_GAP, gap_that_nothing_tells_of),
    Damage(Kind.LOG_GAP, lost_newest_entry, is_mended=True),
    Damage(Kind.MISPLACED_ENTRY, misplaced_entry),
    with_proof(Damage(Kind.NEWER_FORMAT, entry_of_a_newer_format)),
    Damage(Kind.MISSING_BRANCH, missing_main),
    Damage(Kind.MISSING_COMMIT, missing_commit, is_mended=True),
    Damage(Kind.MISSING_COMMIT, missing_first_commit, is_mended=True),
    Damage(Kind.DAMAGED_COMMIT, torn_commit, is_mended=True),
    Damage(Kind.DIFFERENT_COMMIT, commit_with_other_content, is_mended=True),
    with_proof(Damage(Kind.DIFFERENT_COMMIT, commit_in_the_place_of_another, is_mended=True)),
    Damage(Kind.NEWER_FORMAT, commit_of_a_newer_format),
    Damage(Kind.WRONG_ORDER, commit_before_its_parent),
    with_proof(Damage(Kind.WRONG_ORDER, entry_before_the_one_before)),
    Damage(Kind.DAMAGED_ENTRY, torn_clone),
    Damage(Kind.DAMAGED_MARK, torn_mark, is_mended=True),
    Damage(Kind.MISSING_MARK, missing_mark, is_mended=True),
    Damage(Kind.NEWER_FORMAT, mark_of_a_newer_format),
    Damage(Kind.BROKEN_TAG, tag_of_a_missing_commit),
    Damage(Kind.DAMAGED_ENTRY, torn_tag),
    Damage(Kind.DAMAGED_ENTRY, torn_run),
    Damage(Kind.WRONG_HINT, wrong_hint, is_mended=True),
    Damage(Kind.FOREIGN_WRITE, write_of_a_stranger),
    Damage(Kind.UNSETTLED_HOME, unsettled_home, is_mended=True),
    Damage(Kind.DAMAGED_HISTORY, torn_history, is_mended=True),
    Damage(Kind.DAMAGED_HISTORY, history_with_another_commit, is_mended=True),
    with_proof(Damage(Kind.DAMAGED_HISTORY, history_that_leaves_one_out, is_mended=True)),
    Damage(Kind.WRONG_ROW_COUNT, wrong_row_count),
    Damage(Kind.UNREADABLE_ROWS, zeros_in_a_data_file, options=("--rows",)),
    with_proof(Damage(Kind.UNREADABLE_ROWS, torn_deletion_file, options=("--rows",))),
    Damage(Kind.DUPLICATE_KEYS, repeated_keys, options=("--rows",)),
    Damage(Kind.NULL_KEYS, keys_without_value, options=("--rows",)),
]
RECORDS = ("_versions/", "_commits/", "_tags/", "_runs/")


def ran(*args: str) -> tuple[int, str]:
    """The exit code of a command, and what it said on both streams."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        COMMAND.main(list(args))
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


def doctor(repo: ab.Repository, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of the command, and what it found."""
    code, said = ran("doctor", "--repo", repo.uri, "--json", *options)
    return code, json.loads(said)["findings"]


def anew(repo: ab.Repository) -> ab.Repository:
    """Another handle, which remembers nothing; whether it is a repository is not looked at."""
    return ab.Repository(replace(repo._context))


@pytest.fixture
def well(tmp_path: Path, moulds: dict[tuple[Fill, str], Mould]) -> ab.Repository:
    """A healthy repository on local disk: copies beside logs, and much of what is damaged here, are there only."""
    place = Place(root=str(tmp_path))
    mould = moulds.get((furnish, "")) or Mould(place, furnish)
    moulds[furnish, ""] = mould
    return mould.put_down(place)


@dataclass(frozen=True)
class Before:
    """What can be read of a repository, and what its logs and commits say."""

    contents: Contents
    records: dict[str, bytes]

    @classmethod
    def of(cls, repo: ab.Repository) -> "Before":
        files = Files(repo)
        return cls(read_all(anew(repo)), {path: files.get(path) for path in files.list() if path.startswith(RECORDS)})


@pytest.fixture
def before(well: ab.Repository, seen_before: list[Before]) -> Before:
    """How the repository is at first, which is the same for all tests."""
    if not seen_before:
        seen_before.append(Before.of(well))
    return seen_before[0]


@pytest.fixture(scope="session")
def seen_before() -> list[Before]:
    return []


@pytest.mark.s3
def test_a_healthy_repository_has_no_findings(cast: Cast) -> None:
    well = cast(furnish)
    steps: list[tuple[int, int]] = []
    report = well.doctor(rows=True, progress=lambda done, total: steps.append((done, total)))
    assert report.findings == ()
    assert report.is_clean
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1] > 6
    before = {path: Files(well).get(path) for path in Files(well).list()}
    assert well.doctor(repair=True).findings == ()
    assert {path: Files(well).get(path) for path in Files(well).list()} == before


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_named_alone_and_mended(well: ab.Repository, before: Before, damage: Damage) -> None:
    files = Files(well)
    damage.do(files)
    after = read_all(anew(well))
    code, findings = doctor(well, *damage.options)
    assert [finding["kind"] for finding in findings] == [damage.kind]
    assert code == 1
    (finding,) = findings
    assert finding["repairable"] is damage.is_mended
    unreadable = {ref for ref, tables in before.contents.items() if after.get(ref) != tables}
    assert unreadable <= {*finding["refs"], *finding["commits"]}
    if damage.is_mended:
        code, findings = doctor(well, "--repair")
        assert [(finding["kind"], finding["repaired"]) for finding in findings] == [(damage.kind, True)]
        assert code == 0
        assert Before.of(well) == before


@pytest.mark.s3
def test_damage_on_a_store(cast: Cast) -> None:
    """On S3 no copies lie beside logs; all else is the same."""
    well = cast(furnish)
    files = Files(well)
    before = read_all(well)
    for do in (gap, torn_commit, missing_commit, home_without_ref, unsettled_home):
        do(files)
    found = {finding.kind for finding in anew(well).doctor().findings}
    mended = {Kind.LOG_GAP, Kind.DAMAGED_COMMIT, Kind.MISSING_COMMIT, Kind.MISSING_REF, Kind.UNSETTLED_HOME}
    assert found == mended
    assert {finding.kind for finding in anew(well).doctor(repair=True).repaired} == mended
    assert anew(well).doctor().findings == ()
    assert read_all(anew(well)) == before
    missing_data_file(files)
    (finding,) = anew(well).doctor().findings
    assert (finding.kind, finding.tables) == (Kind.MISSING_DATA_FILE, (ORDERS,))
    assert finding.refs == ("deep", "dev", "dev/deep")


def test_a_copy_reads_the_original(well: ab.Repository, tmp_path: Path) -> None:
    copy_objects(well.uri, str(tmp_path / "copy"), {})
    copied = ab.open(tmp_path / "copy")
    (finding,) = copied.doctor().findings
    assert finding.kind is Kind.STALE_BASE
    assert f"anabranch relocate {copied.uri}" in finding.remedy
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
    assert "--map OLD=NEW" in finding.remedy


def test_findings_say_whom_they_affect(well: ab.Repository) -> None:
    files = Files(well)
    files.delete(files.data_of(ORDERS, "v1"))
    (finding,) = well.doctor().findings
    assert finding.tables == (ORDERS,)
    # The merge has moved main's copy of the table to files of its own.
    assert finding.refs == ("deep", "dev", "dev/deep", "live", "v1")
    readable = {ref for ref, tables in read_all(anew(well)).items() if ORDERS in tables}
    assert not readable & named(finding)
    _, text = ran("doctor", "--repo", well.uri)
    assert f"error: missing_data_file {finding.subject}" in text
    assert f"affects {ORDERS} on deep, dev, dev/deep, live, v1, {len(finding.commits)} commits" in text


def test_other_tables_can_be_looked_at_alone(well: ab.Repository) -> None:
    missing_data_file(Files(well))
    assert well.doctor(tables=[RENAMED]).findings == ()
    assert [finding.kind for finding in well.doctor(tables=[ORDERS, CUSTOMERS]).findings] == [Kind.MISSING_DATA_FILE]
    with pytest.raises(TableNotFoundError, match=r"no commit has a table 'in_c_sales\.nothing'"):
        well.doctor(tables=["in_c_sales.nothing"])
    with pytest.raises(InvalidInputError, match="no list of tables"):
        well.doctor(tables=ORDERS)


def test_what_is_merely_worth_knowing_is_no_failure(well: ab.Repository) -> None:
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


def test_a_stranger_is_taken_in_or_set_aside(well: ab.Repository) -> None:
    write_of_a_stranger(Files(well))
    well.adopt(RENAMED)
    well.history_sync()
    assert well.doctor().findings == ()
    write_of_a_stranger(Files(well))
    well.settle(RENAMED, force=True)
    assert well.doctor().findings == ()


def test_a_full_map_is_found_again(tmp_path: Path) -> None:
    """Of a commit that holds all tables, what it changed itself is told by the next one of the kind."""
    repo = ab.init(tmp_path / "lake")
    keys = [f"in_c_many.t{number:02}" for number in range(17)]
    for turn in range(2):
        with repo.transaction(message=f"turn {turn}") as tx:
            for key in keys:
                if not turn:
                    tx.create_table(key, table().schema)
                tx.append(key, table(turn + 1))
    append(repo, 9, key=keys[0])
    full = [path for path in Files(repo).list("_commits") if '"full_map":{"in_c_many' in Files(repo).text(path)]
    assert len(full) == 2
    before, files = read_many(repo), Files(repo)
    objects = {path: files.get(path) for path in full}
    files.delete(full[-1])
    (finding,) = anew(repo).doctor(repair=True).findings
    assert (finding.kind, finding.repaired, finding.refs) == (Kind.MISSING_COMMIT, False, ("main",))
    files.put(full[-1], objects[full[-1]])
    files.edit(full[-1], older="01M7HKD4HAPB0VRYGQF7KB4VR7")
    (finding,) = anew(repo).doctor(repair=True).findings
    assert (finding.kind, finding.repaired) == (Kind.DIFFERENT_COMMIT, True)
    assert read_many(anew(repo)) == before


def read_many(repo: ab.Repository) -> dict[str, dict[str, list[Any]]]:
    commits = repo.list_commits("main", limit=None)
    snapshots = {commit.graph_commit_id: repo.snapshot_of(commit.graph_commit_id) for commit in commits}
    return {ref: {key: snapshot[key].to_arrow().to_pylist() for key in snapshot} for ref, snapshot in snapshots.items()}


def test_a_place_without_repository_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, said = ran("doctor", "--repo", str(tmp_path / "empty"))
    assert code == 3
    assert "there is no repository" in said


def test_collected_commits_are_no_damage(well: ab.Repository) -> None:
    """What garbage collection let go is not missed."""
    from datetime import timedelta

    brief = ab.Repository(replace(well._context, lease=timedelta(0)))
    report = brief.gc(keep_last=1, grace=timedelta(0))
    assert report.commits
    assert well.doctor(rows=True).findings == ()
