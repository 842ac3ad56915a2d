"""Garbage collection: what is unreachable is deleted, with its reason; everything else stays readable and writable."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import lance
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BusyError, CollectedError, InvalidInputError
from anabranch.repo.gc.collection import GcReport
from anabranch.repo.log.config import RepoConfig, now_in_microseconds
from anabranch.repo.log.creation import create_repository
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.storage import open_store
from tests.handles import open_with
from tests.repo.clocks import at_store_time
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    entry,
    ids,
    objects,
    raw,
    table,
)
from tests.repo.gc.interrupting import interrupted
from tests.repo.gc.needed import find_unreachable, list_commit_ids, list_readable, read_all, read_what_can_be_read
from tests.repo.gc.object_ages import DAY, pass_time

pytestmark = pytest.mark.local

# What a collection may leave behind of itself, and of others who are alive.
_OWN = ("_gc/", "_clock", "_leases/")


def collect(repo: Repository, *, keep_last: int | None = 1, keep_newer_than: timedelta | None = None) -> GcReport:
    """Collect garbage; a dry run before must have reported just what then goes, and one more finds nothing."""
    before = objects(repo)
    reported = repo.gc(keep_last=keep_last, keep_newer_than=keep_newer_than, dry_run=True)
    assert {path: size for path, size in objects(repo).items() if not path.startswith(_OWN)} == {
        path: size for path, size in before.items() if not path.startswith(_OWN)
    }
    done = repo.gc(keep_last=keep_last, keep_newer_than=keep_newer_than)
    assert replace(done, dry_run=True) == reported
    gone = before.keys() - objects(repo).keys()
    assert {found.path for found in done.objects} == gone
    assert {found.path: found.bytes for found in done.objects} == {path: before[path] for path in gone}
    assert done.waiting_since is not None or find_unreachable(repo) == {}
    again = repo.gc(keep_last=keep_last, keep_newer_than=keep_newer_than)
    assert (again.objects, again.commits) == ((), ())
    return done


def reasons(report: GcReport) -> set[str]:
    return set(report.by_reason)


def test_nothing_is_garbage_in_a_repository_that_only_grew(lake: Repository) -> None:
    append(lake, 4)
    pass_time(lake)
    report = collect(lake, keep_last=None)
    # Between two commits a table is settled, which makes ordinary versions that are not needed.
    assert reasons(report) <= {"version of no retained commit", "file of no retained version"}
    assert report.commits == ()
    assert report.damaged == ()
    assert [ids(lake.snapshot_of(ref)) for ref in ("main", "main~1")] == [[1, 2, 3, 4], [1, 2, 3]]


def test_collects_what_keep_last_does_not_name(lake: Repository) -> None:
    commits = [append(lake, number).graph_commit_id for number in (4, 5, 6)]
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(7))
    pass_time(lake)
    before = read_all(lake, "main~1")
    report = collect(lake, keep_last=2)
    assert set(report.commits) == {*list_commit_ids(lake)} - {commits[-1], lake.head_commit_id_for_branch("main")}
    assert report.retained_commits == 2
    assert report.tables == 2
    assert report.bytes > 0
    assert ids(lake) == [7]
    assert read_all(lake, "main~1") == before


@pytest.mark.parametrize(("hours", "kept"), [(0, [3]), (60, [3, 2])])
def test_keeps_commits_by_their_age(tmp_path: Path, hours: int, kept: list[int]) -> None:
    root = str(tmp_path / "lake")
    config = RepoConfig(root=root, store=open_store(root), clock=lambda: days_ago(20), clock_tolerance=None)
    create_repository(config)
    with open_with(config).transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
    for number, days in ((1, 9), (2, 3), (3, 2)):
        handle = open_with(replace(config, clock=partial(days_ago, days)))
        with handle.transaction() as tx:
            tx.overwrite(ORDERS, table(number))
    lake = ab.open(root)
    pass_time(lake)
    report = collect(lake, keep_last=None, keep_newer_than=timedelta(hours=hours))
    found = [ids(lake.snapshot_of(commit_id)) for commit_id in list_readable(lake)[::-1]]
    assert found == [[number] for number in kept]
    assert len(report.commits) + len(found) == len(list_commit_ids(lake))


def days_ago(days: int) -> int:
    return now_in_microseconds() - days * 86_400_000_000


def test_deleted_branch_is_collected_after_the_grace(lake: Repository) -> None:
    lake.branch_create("dev")
    made = append(lake, 4, branch="dev").graph_commit_id
    lake.branch_delete("dev")
    assert lake.gc().commits == ()
    lake.branch_restore("dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    lake.branch_delete("dev")
    pass_time(lake)
    report = collect(lake, keep_last=None)
    assert report.commits == (made,)
    assert "home of no retained commit" in reasons(report)
    assert [path for path in objects(lake) if "/tree/" in path or "_refs/branches" in path] == []
    assert raw(lake).branches.list() == {}


def test_expired_branch_is_deleted_and_collected_later(lake: Repository) -> None:
    lake.branch_create_from("main", "dev", expires_in=timedelta(hours=1))
    lake.branch_create_from("main", "later", expires_in=timedelta(days=400))
    append(lake, 4, branch="dev")
    handle = at_store_time(lake, timedelta(hours=2))
    assert handle.gc(dry_run=True).branches == ("dev",)
    assert [branch.name for branch in lake.branch_list()] == ["dev", "later", "main"]
    assert handle.gc().branches == ("dev",)
    assert [branch.name for branch in lake.branch_list()] == ["later", "main"]
    lake.branch_restore("dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    handle.gc()
    pass_time(lake)
    assert "home of no retained commit" in reasons(collect(handle, keep_last=None))


def test_expired_branch_with_descendants_is_kept_until_they_are_deleted(lake: Repository) -> None:
    lake.branch_create_from("main", "a", expires_in=timedelta(hours=1))
    lake.branch_create_from("a", "a/b", expires_in=timedelta(hours=1))
    lake.branch_create_from("main", "c", expires_in=timedelta(hours=1))
    lake.branch_create_from("c", "d")
    lake.branch_create_from("main", "kept", expires_in=timedelta(hours=1))
    lake.branch_protect("kept")
    handle = at_store_time(lake, timedelta(hours=2))
    assert handle.gc(dry_run=True).branches == ("a", "a/b")
    assert handle.gc().branches == ("a", "a/b")
    assert [branch.name for branch in lake.branch_list()] == ["c", "d", "kept", "main"]


def test_dead_run_is_ended_and_a_live_one_is_kept(lake: Repository) -> None:
    def begin() -> Run:
        run = lake.begin_run()
        with run.transaction() as tx:
            tx.append(ORDERS, table(4))
        return run

    dead = begin()
    pass_time(lake)
    alive = begin()
    report = collect(lake, keep_last=None)
    assert report.runs == (dead.id,)
    assert lake.run_get(dead.id).info().state is RunPhase.FAILED
    assert ids(alive.snapshot()) == [1, 2, 3, 4]
    pass_time(lake)
    alive.snapshot()
    with alive.transaction() as tx:  # a heartbeat
        tx.append(ORDERS, table(5))
    report = collect(lake, keep_last=None)
    assert report.runs == ()
    alive.publish()
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_unpublished_work_goes(lake: Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    assert len(tx[ORDERS]) == 4  # a read stages the rows
    tx.create_table("in_c_sales.never", SCHEMA)
    testing.abandon(tx)
    lake.branch_create("dev")
    forked = lake.transaction("dev")
    forked.append(CUSTOMERS, table(30))
    assert 30 in forked[CUSTOMERS].to_arrow()["id"].to_pylist()
    testing.abandon(forked)
    record = testing.repo_store_of(lake).commits.get(lake.head_commit_id_for_branch("main"))
    lost = replace(record, commit=replace(record.commit, graph_commit_id=testing.config_of(lake).new_id()))
    testing.repo_store_of(lake).commits.put(lost, None)
    assert lake.gc().objects == ()
    pass_time(lake)
    report = collect(lake, keep_last=None)
    assert {found.path for found in report.objects if found.reason == "commit that was never published"} == {
        f"_commits/{lost.commit.graph_commit_id}.json"
    }
    assert {"table of no retained commit", "home of no retained commit", "file of no retained version"} <= reasons(
        report
    )
    assert [path for path in objects(lake) if "never" in path] == []


def test_dropped_table_is_collected_and_can_be_recreated(lake: Repository) -> None:
    with lake.transaction() as tx:
        tx.drop_table(CUSTOMERS)
    pass_time(lake)
    assert "table of no retained commit" not in reasons(collect(lake, keep_last=None))
    report = collect(lake)
    assert "table of no retained commit" in reasons(report)
    assert objects(lake, "tables/in_c_sales/customers.lance") == {}
    with lake.transaction() as tx:
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(30))
    assert ids(lake, CUSTOMERS) == [30]
    assert ids(another(lake), CUSTOMERS) == [30]


def test_nested_homes_go_leaf_first(lake: Repository) -> None:
    names = ["a", "a/b", "a/b/c"]
    for parent, name in zip(["main", *names], names, strict=False):
        lake.branch_create_from(parent, name)
        append(lake, 10 + len(name), branch=name)
    leaf = ids(lake.snapshot_of("a/b/c"))
    homes = [entry(lake, ORDERS, name).home for name in names]
    for name in reversed(names[1:]):
        lake.branch_delete(name)
    pass_time(lake)
    lake.branch_restore("a/b")
    lake.branch_restore("a/b/c")
    lake.gc()
    assert ids(lake.snapshot_of("a/b/c")) == leaf
    for name in reversed(names):
        lake.branch_delete(name)
    pass_time(lake)
    report = collect(lake, keep_last=None)
    refs = [found.path.rpartition("/")[2] for found in report.objects if "_refs/branches" in found.path]
    assert refs == [f"{str(home).replace('/', '%2F')}.json" for home in reversed(homes)]


def test_home_with_forks_keeps_the_files_that_they_read(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.branch_create_from("dev", "fix")
    append(lake, 5, branch="fix")
    lake.tag_create("there", ref="fix")
    lake.branch_delete("fix")
    lake.branch_delete("dev")
    pass_time(lake)
    collect(lake)
    assert ids(lake.snapshot_of("there")) == [1, 2, 3, 4, 5]


def test_unfinished_forks_and_writes_go(lake: Repository) -> None:
    root = Path(lake.uri, "tables/in_c_sales/orders.lance")
    append(lake, 4)
    lake.branch_create("dev")
    append(lake, 5, branch="dev")
    home = root / "tree" / str(entry(lake, ORDERS, "dev").home)
    unborn = root / "tree/dev/01KA5ZZZZZZZZZZZZZZZZZZZZZ/_versions"
    unborn.mkdir(parents=True)
    (unborn / next((home / "_versions").glob("1*.manifest")).name).write_bytes(b"half")
    (root / "_versions/.tmpAbCdEf").write_bytes(b"torn")
    (root / "data/.tmpAbCdEf").write_bytes(b"torn")
    (home / "_versions/18446744073709551000.manifest-0d8f1c1e-4a0b-4b1e-8d57-1f0e3d6a9c11").write_bytes(b"pending")
    pass_time(lake)
    report = collect(lake, keep_last=None)
    found = report.by_reason
    assert found["unfinished fork"] == (1, 4)
    assert found["unfinished write"] == (3, 15)


def test_young_objects_are_never_touched(lake: Repository) -> None:
    pass_time(lake)
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    with lake.transaction("dev") as tx:
        tx.drop_table(CUSTOMERS)
    lake.branch_delete("dev")
    before = objects(lake, "tables")
    assert lake.gc(keep_last=1).commits
    assert objects(lake, "tables") == before


@pytest.mark.s3
def test_everything_older_than_a_short_grace_is_collected(lake: Repository) -> None:
    quick = testing.open(lake, lease=timedelta(seconds=0.5))
    for number in (4, 5):
        with lake.transaction() as tx:
            tx.overwrite(ORDERS, table(number))
    before, gone = quick.snapshot_of("main~1").id, set[str]()
    while before not in gone:
        with suppress(BusyError):  # where this process is suspended for longer than work may be silent
            gone.update(quick.gc(keep_last=1, grace=timedelta(seconds=1.5)).commits)
    assert ids(quick) == [5]
    with pytest.raises(CollectedError):
        quick.snapshot_of("main~1")
    append(lake, 6)
    assert ids(another(lake)) == [5, 6]


def test_gc_refuses_bad_policy(lake: Repository) -> None:
    with pytest.raises(InvalidInputError, match="shorter than a lease lasts"):
        lake.gc(grace=timedelta(minutes=2))
    with pytest.raises(InvalidInputError, match="cannot keep the last 0"):
        lake.gc(keep_last=0)
    with pytest.raises(InvalidInputError, match="keep_newer_than must be a duration of 0 or more, got 3"):
        lake.gc(keep_newer_than=3)  # type: ignore[arg-type]


def test_two_collections_do_not_run_at_once(lake: Repository) -> None:
    def second(*_: object) -> None:
        with pytest.raises(BusyError, match="garbage is being collected"):
            another(lake).gc()

    lake.gc(progress=second)
    another(lake).gc()


def test_progress_is_reported(lake: Repository) -> None:
    reported: list[tuple[str, int, int]] = []
    lake.gc(progress=lambda step: reported.append((str(step.stage), step.done, step.total)))
    assert reported == [
        *(("history", done, 2) for done in range(3)),
        *(("tables", done, 2) for done in range(3)),
    ]


def test_long_transaction_holds_back_what_is_younger(lake: Repository) -> None:
    quick = testing.open(lake, lease=timedelta(minutes=2))
    tx = quick.transaction()
    tx.append(ORDERS, table(4))
    tx._lease._began -= 3 * 86_400
    tx._lease.renew()
    for path in Path(lake.uri, "tables").rglob("*"):
        if path.is_file():
            pass_time_of(path)
    report = another(lake).gc(keep_last=1)
    assert report.waiting_since is not None
    tx.commit()
    assert ids(lake) == [1, 2, 3, 4]
    assert another(lake).gc(keep_last=1).waiting_since is None


def pass_time_of(path: Path) -> None:
    import os

    modified = path.stat().st_mtime - 2 * DAY.total_seconds()
    os.utime(path, times=(modified, modified))


def test_work_with_an_expired_lease_is_not_published(lake: Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    testing.age_leases(121)
    with pytest.raises(BusyError, match="not renewed for 121 s"):
        tx.commit()
    assert ids(another(lake)) == [1, 2, 3]


def test_expired_lease_is_reported_for_a_removed_new_table(lake: Repository) -> None:
    tx = lake.transaction()
    tx.create_table("s.new", SCHEMA)
    shutil.rmtree(Path(lake.uri, "tables/s"))
    testing.config_of(lake).dataset_root("s/new.lance").forget()
    testing.age_leases(121)
    with pytest.raises(BusyError, match="not renewed"):
        tx.commit()


@pytest.mark.parametrize("move", ["transaction", "rebase"])
def test_entry_of_work_that_slept_over_its_put_is_rolled_back(lake: Repository, move: str) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5)

    def is_putting(operation: str, path: str) -> bool:
        return (operation, path.rpartition("/")[0]) == ("put_if_absent", "_versions/dev")

    def sleep_long() -> None:
        testing.age_leases(121)

    slow = interrupted(lake, is_putting, sleep_long)
    with pytest.raises(BusyError, match="not renewed"):
        append(slow, 6, branch="dev") if move == "transaction" else slow.rebase("dev", onto="main")
    assert lake.reflog("dev")[0].event == "rolled_back"
    with pytest.raises(CollectedError):
        lake.snapshot_of("dev@v3")
    assert ids(another(lake, "dev")) == [1, 2, 3, 4]
    append(lake, 7, branch="dev")
    assert ids(another(lake, "dev")) == [1, 2, 3, 4, 7]
    pass_time(lake)
    assert collect(lake, keep_last=None).damaged == ()
    assert lake.doctor().findings == ()


def test_branch_made_from_a_head_that_was_left_long_ago_is_rolled_back(lake: Repository) -> None:
    """A caller that is suspended between reading a head and branching from it checks that the head still exists."""
    times = iter([now_in_microseconds(), now_in_microseconds() + 61_000_000])

    def collect_in_between(operation: str, path: str) -> bool:
        return (operation, path.rpartition("/")[0]) == ("put_if_absent", "_versions/late")

    def leave_and_collect() -> None:
        with another(lake).transaction() as tx:
            tx.overwrite(ORDERS, table(9))
        pass_time(lake)
        another(lake).gc(keep_last=1)

    slow = interrupted(lake, collect_in_between, leave_and_collect)
    slow = testing.open(slow, clock=lambda: next(times, now_in_microseconds() + 61_000_000))
    with pytest.raises(CollectedError):
        slow.branch_create("late")
    assert [branch.name for branch in lake.branch_list()] == ["main"]


def test_heartbeat_after_expiry_does_not_renew_the_lease(lake: Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    testing.age_leases(121)
    for lease in testing.active_leases():
        lease.renew()
    with pytest.raises(BusyError, match="not renewed for 121 s"):
        tx.commit()


Hold = Callable[[Repository], object]


HOLDERS: dict[str, Hold] = {
    "tag": lambda repo: repo.tag_create("held"),
    "pinned branch without a home": lambda repo: repo.branch_create("held"),
    "run": lambda repo: repo.begin_run(),
    "clone": lambda repo: ab.clone(repo.uri, f"{repo.uri}-clone"),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_old_state_is_kept_while_another_process_reads_it(lake: Repository, name: str) -> None:
    lake.index(ORDERS, "id")
    held = lake.head_commit_id_for_branch("main")
    holder = HOLDERS[name](lake)
    before = read_all(lake, held)
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(9))
        tx.overwrite(CUSTOMERS, table(90))
    for number in (10, 11):
        append(lake, number)
    pass_time(lake)
    if isinstance(holder, Run):
        with holder.transaction() as tx:
            tx.append(ORDERS, table(4))
    report = collect(lake)
    assert held not in report.commits
    assert report.commits or isinstance(holder, Run)  # while a run is alive, nothing younger goes
    assert read_all(lake, held) == before
    if name == "clone":
        assert read_all(ab.open(f"{lake.uri}-clone"), "main") == before
    if isinstance(holder, Run):
        holder.publish()
        assert ids(lake) == [4, 9, 10, 11]
        pass_time(lake)
        assert held in collect(lake).commits


def test_released_clone_holds_nothing(lake: Repository) -> None:
    ab.clone(lake.uri, f"{lake.uri}-clone")
    held = lake.head_commit_id_for_branch("main")
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(9))
    pass_time(lake)
    assert held not in collect(lake).commits
    (clone,) = lake.clone_list()
    lake.clone_release(clone.id)
    assert held in collect(lake).commits


def test_clone_of_one_table_keeps_its_commit_whole(lake: Repository) -> None:
    ab.clone(lake.uri, f"{lake.uri}-clone", tables=[ORDERS])
    held = lake.head_commit_id_for_branch("main")
    before = read_all(lake, held)
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(9))
        tx.overwrite(CUSTOMERS, table(90))
    pass_time(lake)
    collect(lake)
    lake.tag_create("held", ref=held)
    assert read_all(lake, "held") == before


def test_live_branch_keeps_what_it_shows_and_merges(lake: Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4, branch="dev")
    for number in (30, 40):
        append(lake, number, key=CUSTOMERS)
    append(lake, 5)
    pass_time(lake)
    collect(lake)
    shown = lake.snapshot_of("dev")
    assert (ids(shown), ids(shown, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20, 30, 40])
    assert ids(lake.snapshot_of(shown.id)) == [1, 2, 3, 4]
    lake.merge("dev", into="main")
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_external_writes_branches_and_tags_are_left_alone(lake: Repository) -> None:
    external = raw(lake)
    external.create_branch("experiment", external.version)
    branch = lance.dataset(f"{external.uri}/tree/experiment")
    branch.insert(table(100))
    branch.delete("id = 1")
    external.tags.create("v1", external.version)
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(9))
    for number in range(10, 14):
        append(lake, number)
    pass_time(lake)
    collect(lake)
    tagged = lance.dataset(external.uri, version="v1").to_table()
    assert sorted(tagged.column("id").to_pylist()) == [1, 2, 3]
    branch = lance.dataset(f"{external.uri}/tree/experiment")
    assert sorted(branch.to_table().column("id").to_pylist()) == [2, 3, 100]
    assert sorted(branch.checkout_version(branch.version - 2).to_table().column("id").to_pylist()) == [1, 2, 3]


def test_shallow_clone_of_a_dataset_is_left_alone(lake: Repository) -> None:
    source = raw(lake).uri
    ab.dataset(source).shallow_clone(f"{lake.uri}-one")
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, table(9))
    append(lake, 10)
    pass_time(lake)
    collect(lake)
    assert sorted(lance.dataset(f"{lake.uri}-one").to_table().column("id").to_pylist()) == [1, 2, 3]


def test_raw_readers_open_every_home_as_before(lake: Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5, branch="dev")
    append(lake, 6)
    lake.branch_create_from("dev", "dev/x")
    append(lake, 7, branch="dev/x", key=CUSTOMERS)
    pass_time(lake)
    collect(lake)
    for ref, key in [("main", ORDERS), ("dev", ORDERS), ("dev/x", CUSTOMERS), ("main", CUSTOMERS)]:
        assert sorted(raw(lake, key, ref).to_table().column("id").to_pylist()) == ids(lake.snapshot_of(ref), key)


def test_damaged_table_is_left_alone_and_reported(lake: Repository) -> None:
    append(lake, 4)
    with lake.transaction() as tx:
        tx.overwrite(CUSTOMERS, table(30))
    missing = Path(raw(lake).uri, "data", raw(lake).get_fragments()[0].metadata.files[0].path)
    missing.rename(f"{missing}.away")
    pass_time(lake)
    before = objects(lake, "tables/in_c_sales/orders.lance")
    report = lake.gc(keep_last=1)
    assert report.damaged == (f"tables/in_c_sales/orders.lance/data/{missing.name}",)
    assert objects(lake, "tables/in_c_sales/orders.lance") == before
    assert [found for found in report.objects if "customers.lance" in found.path]
    Path(f"{missing}.away").rename(missing)
    assert lake.gc(keep_last=1).damaged == ()
    assert ids(another(lake)) == [1, 2, 3, 4]


def test_table_with_a_torn_manifest_is_left_alone_and_reported(lake: Repository) -> None:
    append(lake, 4)
    torn = Path(raw(lake).uri, "_versions", f"d{entry(lake).version}.manifest")
    content = torn.read_bytes()
    torn.write_bytes(content[:100])
    pass_time(lake)
    before = objects(lake, "tables/in_c_sales/orders.lance")
    assert lake.gc(keep_last=1).damaged == (f"tables/in_c_sales/orders.lance/_versions/{torn.name}",)
    assert objects(lake, "tables/in_c_sales/orders.lance") == before
    torn.write_bytes(content)
    assert lake.gc(keep_last=1).damaged == ()


def test_states_of_a_table_without_a_key_go(lake: Repository) -> None:
    """Only the manifests stay that record how a branch came from what it shares with main, and of others nothing."""
    lake.branch_create("dev")
    for number in range(5):
        with lake.transaction() as tx:
            tx.overwrite(CUSTOMERS, table(*range(number, 100 + number)))
    pass_time(lake)
    report = collect(lake)
    assert len([found for found in report.objects if "customers.lance/data/" in found.path]) == 3
    assert not [found for found in report.objects if "customers.lance/_versions/d" in found.path]
    lake.branch_delete("dev")
    pass_time(lake)
    report = collect(lake)
    assert len([found for found in report.objects if "customers.lance/_versions/d" in found.path]) == 5


def test_every_snapshot_is_unchanged_or_reported_as_collected(lake: Repository) -> None:
    for number in (4, 5, 6):
        append(lake, number)
    everything = list_commit_ids(lake)
    before = read_what_can_be_read(lake, everything)
    pass_time(lake)
    report = collect(lake, keep_last=2)
    after = read_what_can_be_read(another(lake), everything)
    assert {commit_id for commit_id, found in after.items() if found == "collected"} == set(report.commits)
    assert all(found in ("collected", before[commit_id]) for commit_id, found in after.items())


def test_temporary_file_of_a_killed_writer_is_collected_when_it_is_old(lake: Repository) -> None:
    homes = Path(raw(lake).uri) / "_versions"
    old, young = homes / "18446744073709551000.manifest#12", Path(lake.uri) / "_versions/main/1.json#34"
    old.write_bytes(b"half a manifest")
    pass_time(lake)
    young.write_bytes(b"half an entry")
    report = lake.gc()
    assert report.by_reason["temporary file of a writer that was killed"] == (1, len(b"half a manifest"))
    assert not old.exists()
    assert young.exists()
    assert raw(lake).count_rows() == 3


def test_native_writer_that_read_a_collected_version_writes_after_the_newest(lake: Repository) -> None:
    native = raw(lake)
    for number in range(4, 9):
        append(lake, number)
    pass_time(lake)
    collect(lake)
    native.insert(table(50))
    assert sorted(raw(lake).to_table()["id"].to_pylist()) == [*range(1, 9), 50]
    assert [write.table for write in lake.list_external_writes()] == [ORDERS]
    lake.adopt(ORDERS)
    assert ids(lake) == [*range(1, 9), 50]
