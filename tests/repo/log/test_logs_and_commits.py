"""Logs, commits and refs: how history is found, and what it does not show."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    CorruptError,
    InvalidInputError,
    VersionNotFoundError,
    WriteConflictError,
)
from anabranch.ids import BranchName
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import create_repository
from anabranch.storage import open_store
from tests.conftest import Location
from tests.handles import open_with
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, ids, nothing_changes, objects, table
from tests.sealing import sealed

LONG = 150


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    """A repository with two tables and commits far beyond a page; every tenth changes customers, the others orders."""
    repo = ab.init(str(tmp_path_factory.mktemp("long") / "lake"))
    with repo.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
        tx.create_table(CUSTOMERS, SCHEMA)
    for number in range(LONG - 2):
        with repo.transaction(message=f"number {number}") as tx:
            tx.append(CUSTOMERS if number % 10 == 0 else ORDERS, table(number))
    return repo


def test_commits_are_listed_newest_first_across_pages(long_history: ab.Repository) -> None:
    commits = long_history.list_commits(limit=None)
    assert len(commits) == LONG
    assert [commit.message for commit in commits[:-2]] == [f"number {n}" for n in reversed(range(LONG - 2))]
    assert [commit.manifest_version for commit in commits] == list(range(LONG, 0, -1))
    assert [c.parent_commit_id for c in commits] == [*(c.graph_commit_id for c in commits[1:]), None]
    assert [commit.generation for commit in commits] == list(range(LONG - 1, -1, -1))


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 149, 150, 151])
def test_pages_of_any_size_join_to_the_whole(long_history: ab.Repository, size: int) -> None:
    pages: list[ab.GraphCommit] = []
    before = None
    for _ in range(LONG if size > 6 else 5):
        page = long_history.list_commits(limit=size, after=before)
        if not page:
            break
        pages += page
        before = page[-1].graph_commit_id
    assert pages == long_history.list_commits(limit=len(pages))
    assert len(pages) == (LONG if size > 6 else 5)


def test_listing_stops_at_a_limit_and_takes_fifty_by_default(long_history: ab.Repository) -> None:
    assert len(long_history.list_commits()) == 50
    assert long_history.list_commits(limit=0) == []
    with pytest.raises(InvalidInputError, match="limit -1 is negative"):
        long_history.list_commits(limit=-1)


def test_listing_by_table_shows_only_its_commits(long_history: ab.Repository) -> None:
    found = long_history.list_commits(table=CUSTOMERS, limit=None)
    assert len(found) == 16
    assert all(CUSTOMERS in commit.tables for commit in found)
    assert long_history.list_commits(table=CUSTOMERS, limit=3, after=found[4].graph_commit_id) == found[5:8]
    assert long_history.list_commits(table="s.none", limit=None) == []


def test_listing_starts_at_any_ref(long_history: ab.Repository) -> None:
    everything = long_history.list_commits(limit=None)
    assert long_history.list_commits("main~100", limit=None) == everything[100:]
    assert long_history.list_commits(everything[70].graph_commit_id, limit=2) == everything[70:72]
    assert long_history.list_commits("main@v3", limit=None) == everything[-3:]


@pytest.mark.parametrize("back", [0, 1, 2, 62, 63, 64, 65, 100, 127, 128, 129, 149])
def test_any_number_of_steps_back_is_found(long_history: ab.Repository, back: int) -> None:
    everything = long_history.list_commits(limit=None)
    assert long_history.snapshot_of(f"main~{back}").id == everything[back].graph_commit_id
    assert long_history.get_commit(everything[back].graph_commit_id) == everything[back]


def test_steps_back_before_the_first_commit_are_refused(long_history: ab.Repository) -> None:
    with pytest.raises(CommitNotFoundError, match="main~150 goes back before the first commit"):
        long_history.snapshot_of("main~150")


def test_every_version_is_as_it_was(long_history: ab.Repository) -> None:
    for number in (2, 3, 64, 65, 66, 128, 130, 150):
        snapshot = long_history.snapshot_of(f"main@v{number}")
        assert snapshot.version == number
        assert sum(found.count_rows() for found in snapshot.values()) == number - 2
        assert long_history.snapshot_at_version(number).id == snapshot.id


# Refs


@pytest.mark.s3
def test_all_forms_of_a_ref_find_their_commit(lake: ab.Repository) -> None:
    third = append(lake, 4)
    append(lake, 5)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=third.created_at)
    for ref in (
        "main~1",
        "main~",
        "main@v3",
        third.graph_commit_id,
        third.graph_commit_id.lower(),
        third.graph_commit_id[:25],
        f"{third.graph_commit_id}~0",
        f"main@{{{moment.isoformat()}}}",
        f"main@{{{moment.astimezone(datetime.now().astimezone().tzinfo).isoformat()}}}",
        f"main@{{{moment.replace(tzinfo=None).isoformat()}}}",
    ):
        assert lake.snapshot_of(ref).commit == third, ref
        assert lake.list_commits(ref)[0] == third, ref
    assert lake.get_commit(third.graph_commit_id[:25]) == third


def test_a_moment_between_two_commits_is_the_older_one(location: Location) -> None:
    ticks = iter(range(1_000_000_000_000_000, 2_000_000_000_000_000, 1_000_000))
    store = open_store(location / "lake", location.storage_options)
    config = RepoConfig(
        root=location / "lake",
        store=store,
        storage_options=location.storage_options,
        clock=lambda: next(ticks),
        clock_tolerance=None,
    )
    create_repository(config)
    slow = open_with(config)
    with slow.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
    made = [append(slow, number) for number in range(5)]
    for older, newer in itertools.pairwise(made):
        middle = (older.created_at + newer.created_at) // 2
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=middle)
        assert slow.snapshot_of(f"main@{{{moment.isoformat()}}}").commit == older
    assert slow.snapshot_of("main@{2999-01-01}").commit == made[-1]


def test_a_moment_before_the_repository_is_refused(lake: ab.Repository) -> None:
    with pytest.raises(CommitNotFoundError, match="'main' did not exist at 2001-01-01"):
        lake.snapshot_of("main@{2001-01-01}")


def test_time_never_runs_backwards_along_a_branch(lake: ab.Repository) -> None:
    early = testing.open(lake, clock=lambda: 1_000, checks_clock=False)
    head = lake.list_commits(limit=1)[0]
    assert append(early, 4).created_at == head.created_at


def test_a_branch_name_wins_over_a_commit_prefix(lake: ab.Repository) -> None:
    first, second = lake.list_commits()
    prefix = second.graph_commit_id[:25]
    assert lake.snapshot_of(prefix).commit == second
    lake.branch_create(prefix)
    assert lake.snapshot_of(prefix).commit == first


def test_an_ambiguous_prefix_is_refused_with_its_candidates(lake: ab.Repository) -> None:
    newest, oldest = lake.list_commits()
    with pytest.raises(InvalidInputError, match=r"is ambiguous: .*; give more characters") as caught:
        lake.snapshot_of(newest.graph_commit_id[:4])
    assert newest.graph_commit_id in str(caught.value)
    assert oldest.graph_commit_id in str(caught.value)


def test_commits_that_were_never_published_are_not_found_by_prefix(lake: ab.Repository) -> None:
    before = set(objects(lake, "_commits"))
    loser = another(lake).transaction()
    loser.delete(ORDERS, "id = 1")
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 2")
    with pytest.raises(WriteConflictError):
        loser.commit()
    orphans = set(objects(lake, "_commits")) - before
    assert len(orphans) == 2
    assert tx.published is not None
    (orphan,) = (p for p in orphans if tx.published.graph_commit_id not in p)
    with pytest.raises(BranchNotFoundError):
        lake.snapshot_of(orphan.removeprefix("_commits/")[:25])
    # Died before publishing: its position in the log is still free.
    fields = json.loads(testing.store_of(lake).get(orphan))
    fields["commit"] |= {"graph_commit_id": "0" * 25 + "1", "manifest_version": 4}
    testing.store_of(lake).put(f"_commits/{'0' * 25}1.json", sealed(fields))
    with pytest.raises(BranchNotFoundError):
        lake.snapshot_of("0" * 25)
    assert len(lake.list_commits()) == 3


def test_a_version_or_commit_that_is_not_there_is_refused(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        for version in (0, -1, 3, 2**64, 2**70):
            with pytest.raises(VersionNotFoundError, match=f"'main' has no version {version}"):
                lake.snapshot_at_version(version)
        with pytest.raises(VersionNotFoundError, match="'main' has no version 99"):
            lake.snapshot_of("main@v99")
        with pytest.raises(CommitNotFoundError, match="01KA4T3JB6W9TTVN2MVF2FZ9AA"):
            lake.get_commit("01KA4T3JB6W9TTVN2MVF2FZ9AA")
        with pytest.raises(BranchNotFoundError, match="there is no branch, tag or commit 'nope'"):
            lake.snapshot_of("nope")
        with pytest.raises(BranchNotFoundError, match="'nope'"):
            lake.snapshot_of("nope@{2030-01-01}")
        with pytest.raises(BranchNotFoundError, match="'nope'"):
            lake.snapshot_of("nope~2")


# Logs


def test_entries_of_a_log_are_never_changed(lake: ab.Repository) -> None:
    store = testing.store_of(lake)
    before = {path: store.get(path) for path in objects(lake, "_versions/main") if path.endswith(".json")}
    append(lake, 4)
    lake.branch_create("dev")
    lake.branch_delete("dev")
    assert {path: store.get(path) for path in before} == before


def test_the_head_is_found_without_its_hint_and_with_a_wrong_one(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")
    with lake.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
        tx.append(ORDERS, table(1, 2, 3))
    store = testing.store_of(lake)
    stale = store.get("_versions/main/hint")
    for number in (4, 5, 6):
        append(lake, number)
    fresh = store.get("_versions/main/hint")
    for hint in (None, stale, b"", b"garbage", b"5\n{}", fresh[:-20], b"3 1\n" + fresh, b"\xff\xfe\x00"):
        if hint is None:
            store.delete("_versions/main/hint")
        else:
            store.put("_versions/main/hint", hint)
        assert ids(another(lake)) == [1, 2, 3, 4, 5, 6], hint
    append(lake, 7)
    assert ids(another(lake)) == [1, 2, 3, 4, 5, 6, 7]


def test_half_written_objects_beside_a_log_are_not_read(lake: ab.Repository) -> None:
    store = testing.store_of(lake)
    store.delete("_versions/main/hint")
    newest = min(path for path in objects(lake, "_versions/main"))
    store.put(f"{newest}-part", b"half")
    store.put("_commits/01KA4T3JB6W9TTVN2MVF2FZ9AA.json-part", b"half")
    assert ids(another(lake)) == [1, 2, 3]
    assert lake.snapshot_of(lake.list_commits()[0].graph_commit_id[:25]).version == 2
    with pytest.raises(BranchNotFoundError):
        lake.snapshot_of("01KA4T3JB6W9TTVN2MVF2FZ9A")


@pytest.mark.s3
def test_other_files_beside_a_log_are_not_entries(lake: ab.Repository) -> None:
    store = testing.store_of(lake)
    store.delete("_versions/main/hint")
    newest = min(path for path in objects(lake, "_versions/main"))
    for name in (".DS_Store", "- copy.json", "0.json", "copies/00000000000000000000.json"):
        store.put(f"_versions/main/{name}", store.get(newest))
    assert ids(another(lake)) == [1, 2, 3]
    append(lake, 4)
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert [branch.name for branch in another(lake).branch_list()] == ["main"]


def test_a_lost_base_of_a_commit_is_damage(lake: ab.Repository) -> None:
    store, head = testing.store_of(lake), testing.repo_store_of(lake).heads.get(BranchName("main")).head
    store.delete(f"_commits/{head.base}.json")
    with pytest.raises(CorruptError, match=f"'{head.base}'.* is missing; run doctor"):
        another(lake).snapshot()


def test_many_tables_keep_their_full_map_across_bases(repo: ab.Repository) -> None:
    keys = [f"s.t{number:02}" for number in range(40)]
    for start in range(0, 40, 5):
        with repo.transaction() as tx:
            for key in keys[start : start + 5]:
                tx.create_table(key, SCHEMA)
    for number, key in enumerate(keys[:24]):
        append(repo, number, key=key)
    with repo.transaction() as tx:
        tx.drop_table(keys[0])
    fresh = another(repo)
    assert list(fresh.snapshot()) == keys[1:]
    assert [fresh.snapshot()[key].count_rows() for key in keys[1:]] == [1] * 23 + [0] * 16
    for version in range(1, fresh.snapshot().version + 1):
        assert len(fresh.snapshot_at_version(version)) == min(5 * (version - 1), 40) - (version == 34)


def test_two_branches_with_one_history_share_its_commits(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4)
    append(lake, 5, branch="dev")
    main, dev = lake.list_commits("main"), lake.list_commits("dev")
    assert main[1:] == dev[1:]
    assert main[0].parent_commit_id == dev[0].parent_commit_id
    assert testing.repo_store_of(lake).heads.get(BranchName("dev")).number == 2


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_commit_succeeds_if_its_hint_cannot_be_written(tmp_path: Path, kind: str) -> None:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64())]))
    hint = tmp_path / "lake" / "_versions" / "main" / "hint"
    hint.unlink()
    if kind == "folder":
        hint.mkdir()
    else:
        hint.symlink_to(tmp_path / "elsewhere")
    repo.append("s.t", [{"id": 1}])
    assert not (tmp_path / "elsewhere").exists()
    assert not list(tmp_path.rglob("*#*"))
    assert lance.dataset(str(tmp_path / "lake/tables/s/t.lance")).count_rows() == 1
    hint.rmdir() if kind == "folder" else hint.unlink()
    assert ab.open(tmp_path / "lake").table("s.t").to_arrow().to_pylist() == [{"id": 1}]
