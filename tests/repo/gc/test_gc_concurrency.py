"""Another process takes up an old commit just while it is collected: either side notices the other."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BusyError, CollectedError
from anabranch.format import staging
from anabranch.format.staging import VersionRef
from anabranch.repo.log.commits import commit_path
from anabranch.repo.repository import Repository
from tests.lake_templates import Cast
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, fill_lake, ids, table
from tests.repo.gc.interrupting import interrupted
from tests.repo.gc.needed import find_unreachable, is_collected, list_readable, read_all
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.local


class _AfterMarks:
    """When the logs are listed again after commits were marked."""

    def __init__(self) -> None:
        self._is_marked = False

    def __call__(self, operation: str, path: str) -> bool:
        self._is_marked = self._is_marked or (operation == "put" and path.startswith("_commits/"))
        return self._is_marked and (operation, path) == ("list_folders", "_versions")


def before_marks(operation: str, path: str) -> bool:
    return operation == "put" and path.startswith("_commits/")


@dataclass(frozen=True)
class Doomed:
    """A lake with a commit on main, `old`, and a deleted branch, 'gone', that go with the next collection."""

    repo: Repository
    old: str
    rows: dict[str, list[dict[str, object]]]

    def collect(self, repo: Repository | None = None) -> None:
        assert (repo or self.repo).gc(keep_last=1).damaged == ()


def fill(lake: Repository) -> None:
    fill_lake(lake)
    append(lake, 4)
    lake.branch_create("dev")
    lake.branch_create("gone")
    append(lake, 5, branch="gone")
    append(lake, 50, branch="dev")
    lake.branch_delete("gone")
    for branch in ("main", "dev"):
        with lake.transaction(branch) as tx:
            tx.overwrite(ORDERS, table(9))
    lake.branch_delete("dev")
    lake.branch_create_from("main", "dev")


@pytest.fixture
def doomed(cast: Cast) -> Doomed:
    lake = cast(fill)
    pass_time(lake)
    old = lake.snapshot_of("main@v3").id
    return Doomed(lake, old, read_all(lake, old))


Take = Callable[[Repository, str], object]

TAKES: dict[str, Take] = {
    "tag": lambda repo, old: repo.tag_create("taken", ref=old),
    "tag on a version": lambda repo, _: repo.tag_create("taken", ref="main@v3"),
    "branch": lambda repo, old: repo.branch_create_from(old, "taken"),
    "branch from a version": lambda repo, _: repo.branch_create_from("main@v3", "taken"),
    "reset": lambda repo, old: repo.reset("dev", to=old),
    "clone": lambda repo, old: ab.clone(repo.uri, f"{repo.uri}-clone", ref=old),
}


_OTHERS = {"tag on a version", "branch"}
# The others are much like these.
DISTINCT_TAKES = [pytest.param(name, marks=pytest.mark.proof) if name in _OTHERS else name for name in TAKES]


def newest(repo: Repository, name: str) -> list[int]:
    """The rows of the process that took the commit up."""
    if name == "clone":
        return ids(ab.open(f"{repo.uri}-clone"))
    return ids(repo.snapshot_of("dev" if name == "reset" else "taken"))


@pytest.mark.parametrize("name", DISTINCT_TAKES)
def test_commit_taken_up_before_it_is_marked_survives(doomed: Doomed, name: str) -> None:
    doomed.collect(interrupted(doomed.repo, before_marks, lambda: TAKES[name](doomed.repo, doomed.old)))
    assert not is_collected(doomed.repo, doomed.old)
    assert newest(doomed.repo, name) == [1, 2, 3, 4]
    doomed.collect()
    assert read_all(doomed.repo, doomed.old) == doomed.rows
    assert newest(doomed.repo, name) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", DISTINCT_TAKES)
def test_commit_is_not_taken_up_once_it_is_marked(doomed: Doomed, name: str) -> None:
    refused: list[str] = []

    def take() -> None:
        with pytest.raises(CollectedError) as caught:
            TAKES[name](doomed.repo, doomed.old)
        refused.append(caught.value.problem)

    doomed.collect(interrupted(doomed.repo, _AfterMarks(), take))
    assert [doomed.old in problem for problem in refused] == [True]
    assert is_collected(doomed.repo, doomed.old)
    assert [tag.name for tag in doomed.repo.tag_list()] == []
    assert [branch.name for branch in doomed.repo.branch_list()] == ["dev", "main"]
    assert ids(doomed.repo.snapshot_of("dev")) == [9]
    assert find_unreachable(doomed.repo) == {}


@pytest.mark.parametrize("name", ["tag", "reset"])
def test_whole_collection_between_the_put_and_the_look_of_who_takes_a_commit_up(doomed: Doomed, name: str) -> None:
    taker = interrupted(doomed.repo, looks_after_put(doomed.old), doomed.collect)
    TAKES[name](taker, doomed.old)
    assert not is_collected(doomed.repo, doomed.old)
    assert newest(doomed.repo, name) == [1, 2, 3, 4]


def looks_after_put(commit_id: str) -> Callable[[str, str], bool]:
    has_put: list[str] = []

    def is_moment(operation: str, path: str) -> bool:
        if operation == "put_if_absent":
            has_put.append(path)
        return bool(has_put) and (operation, path) == ("get", commit_path(commit_id))

    return is_moment


def test_check_between_the_marks_and_the_second_reading_removes_the_ref(doomed: Doomed) -> None:
    """The one puts its tag before the marks and looks after them; the other reads the tag, and keeps the commit."""
    marked, looked = threading.Event(), threading.Event()
    outcome: list[str] = []

    def wait_for_marks() -> None:
        put.set()
        marked.wait()

    def tag() -> None:
        taker = interrupted(doomed.repo, looks_after_put(doomed.old), wait_for_marks)
        try:
            taker.tag_create("taken", ref=doomed.old)
        except CollectedError as err:
            outcome.append(err.code)
        looked.set()

    put = threading.Event()
    thread = threading.Thread(target=tag)

    def begin_to_tag() -> None:
        thread.start()
        put.wait()

    def end_tagging() -> None:
        marked.set()
        looked.wait()

    first = interrupted(doomed.repo, before_marks, begin_to_tag)
    doomed.collect(interrupted(first, _AfterMarks(), end_tagging))
    thread.join()
    assert outcome == ["collected"]
    assert doomed.repo.tag_list() == []
    # The tag was there until a moment ago.
    assert not is_collected(doomed.repo, doomed.old)
    assert read_all(doomed.repo, doomed.old) == doomed.rows


def test_branch_restored_before_its_commits_are_marked_survives(doomed: Doomed) -> None:
    doomed.collect(interrupted(doomed.repo, before_marks, lambda: doomed.repo.branch_restore("gone")))
    assert ids(doomed.repo.snapshot_of("gone")) == [1, 2, 3, 4, 5]
    append(doomed.repo, 6, branch="gone")
    doomed.collect()
    assert ids(doomed.repo.snapshot_of("gone")) == [1, 2, 3, 4, 5, 6]


def test_branch_is_not_restored_once_its_commits_are_marked(doomed: Doomed) -> None:
    def restore() -> None:
        with pytest.raises(CollectedError):
            doomed.repo.branch_restore("gone")

    doomed.collect(interrupted(doomed.repo, _AfterMarks(), restore))
    assert [branch.name for branch in doomed.repo.branch_list()] == ["dev", "main"]
    assert find_unreachable(doomed.repo) == {}


def test_collection_that_died_after_the_marks_is_rolled_back_by_one_that_keeps_more(doomed: Doomed) -> None:
    class DiedError(Exception):
        pass

    def die() -> None:
        raise DiedError

    with pytest.raises(DiedError):
        doomed.collect(interrupted(doomed.repo, _AfterMarks(), die))
    assert is_collected(doomed.repo, doomed.old)
    with pytest.raises(CollectedError):
        doomed.repo.tag_create("taken", ref=doomed.old)
    doomed.repo.gc()
    doomed.repo.tag_create("taken", ref=doomed.old)
    assert read_all(doomed.repo, "taken") == doomed.rows


def test_collection_with_an_expired_lease_records_nothing(doomed: Doomed) -> None:
    """Another one may have come concurrently, and taken its marks for those of a dead one."""

    def be_silent() -> None:
        testing.age_leases(121)

    with pytest.raises(BusyError, match="not renewed"):
        doomed.collect(interrupted(doomed.repo, _AfterMarks(), be_silent))
    doomed.repo.gc()
    assert doomed.old in list_readable(doomed.repo)
    assert read_all(doomed.repo, doomed.old) == doomed.rows


BUILDS: dict[str, Callable[[Repository], object]] = {
    "merge": lambda repo: repo.merge("gone@v2", into="dev", strategy="source"),
    "cherry pick": lambda repo: repo.cherry_pick("gone@v2", branch="dev"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_work_that_reads_a_commit_holds_it(doomed: Doomed, name: str) -> None:
    """A whole collection while the rows of an old commit are read to be merged."""
    done: list[object] = []

    def is_publishing(operation: str, path: str) -> bool:
        return operation == "put_if_absent" and path.startswith("_commits/")

    builder = interrupted(doomed.repo, is_publishing, lambda: done.append(doomed.repo.gc(keep_last=1)))
    held = doomed.repo.snapshot_of("gone@v2").id
    BUILDS[name](builder)
    assert len(done) == 1
    assert not is_collected(doomed.repo, held)
    read_newest(doomed.repo, ["main", "dev"])
    pass_time(doomed.repo)
    doomed.collect()
    read_newest(doomed.repo, ["main", "dev"])


def read_newest(repo: Repository, refs: Iterable[str]) -> None:
    for ref in refs:
        read_all(repo, ref)


def test_table_made_again_while_its_folder_is_collected_is_put_elsewhere(
    doomed: Doomed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with doomed.repo.transaction() as tx:
        tx.drop_table(ORDERS)
    doomed.repo.branch_delete("dev")
    pass_time(doomed.repo)
    overwrite = staging.overwrite

    def collect_first(version_ref: VersionRef, data: pa.Table, *, is_another_table: bool) -> VersionRef:
        monkeypatch.undo()
        testing.open(doomed.repo).gc(keep_last=1)
        return overwrite(version_ref, data, is_another_table=is_another_table)

    with doomed.repo.transaction() as tx:
        monkeypatch.setattr(staging, "overwrite", collect_first)
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1))
    assert ids(doomed.repo) == [1]
    assert doomed.repo.snapshot()[ORDERS].entry.dataset != "in_c_sales/orders.lance"
    assert doomed.repo.doctor().is_clean


def sleep_long() -> None:
    testing.age_leases(121)


def rolled_back_late(lake: Repository, act: Callable[[], object]) -> Repository:
    """A handle that sleeps over its next commit to main, and lets something happen before it rolls that back."""
    puts = count()

    def is_putting(operation: str, path: str) -> bool:
        return (operation, path.rpartition("/")[0]) == ("put_if_absent", "_versions/main")

    def is_rolling_back(operation: str, path: str) -> bool:
        return is_putting(operation, path) and next(puts) == 1

    return interrupted(interrupted(lake, is_putting, sleep_long), is_rolling_back, act)


def test_commit_of_work_that_slept_succeeds_if_a_later_commit_builds_on_it(cast: Cast) -> None:
    lake = cast(fill_lake)
    made = append(rolled_back_late(lake, lambda: append(lake, 5, key=CUSTOMERS)), 4)
    assert made.graph_commit_id == lake.snapshot_of("main~1").id
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert lake.doctor().is_clean


def test_commit_of_work_that_slept_is_rolled_back_though_the_branch_was_protected_concurrently(cast: Cast) -> None:
    lake = cast(fill_lake)
    with pytest.raises(BusyError, match="not renewed"):
        append(rolled_back_late(lake, lambda: lake.branch_protect("main")), 4)
    assert ids(another(lake)) == [1, 2, 3]
    assert [entry.event for entry in lake.reflog(limit=3)] == ["rolled_back", "protected", "committed"]
    assert lake.branch_get("main").is_protected
    assert lake.doctor().is_clean


def test_run_whose_commit_was_rolled_back_is_published_by_the_next_attempt(cast: Cast) -> None:
    lake = cast(fill_lake)
    run = rolled_back_late(lake, lambda: None).begin_run()
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
    with pytest.raises(BusyError, match="not renewed"):
        run.publish()  # the machine slept during the put of the log entry
    assert ids(another(lake)) == [1, 2, 3]
    made = another(lake).run_get(run.id).publish()
    assert made is not None
    assert made.graph_commit_id == another(lake).snapshot().id
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert lake.doctor().is_clean


def test_undo_passes_over_a_commit_that_was_rolled_back(cast: Cast) -> None:
    lake = cast(fill_lake)
    append(lake, 4)
    with pytest.raises(BusyError, match="not renewed"):
        append(rolled_back_late(lake, lambda: None), 5)
    lake.sync_branch()
    lake.undo()
    assert ids(another(lake)) == [1, 2, 3]
    lake.redo()
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert [entry.event for entry in lake.reflog(limit=4)] == ["redone", "undone", "rolled_back", "committed"]
    for _ in range(2):
        lake.undo()
    assert another(lake).tables() == []


def test_commit_that_another_was_built_on_and_rolled_back_stays(cast: Cast) -> None:
    """The branch has left the commit by then, so its writer reports success, as for any commit that was built on."""
    lake = cast(fill_lake)

    def build_and_roll_back() -> None:
        with pytest.raises(BusyError, match="not renewed"):
            append(rolled_back_late(lake, lambda: None), 30, key=CUSTOMERS)

    made = append(rolled_back_late(lake, build_and_roll_back), 4)
    assert made.graph_commit_id == another(lake).snapshot().id
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert ids(another(lake), CUSTOMERS) == [10, 20]


def test_a_reset_that_was_rolled_back_does_not_stop_garbage_collection(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = cast(fill_lake)
    lake.branch_create("dev")
    for number in range(4, 12):
        append(lake, number)

    def fail(*_: object) -> None:
        raise BusyError("the commit was collected at this moment", hint="try again")

    with monkeypatch.context() as patch:
        patch.setattr("anabranch.repo.refs.reset_and_undo._require_uncollected", fail)
        with pytest.raises(BusyError, match="at this moment"):
            lake.reset("dev", "main~1")
    assert lake.gc().commits == ()
    assert lake.storage_report() is not None
    assert ids(another(lake)) == [*range(1, 12)]
