"""Once a log has its entry the write is done, whatever fails after that; and errors are reported truthfully."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import anabranch as ab
from anabranch.errors import StorageUnavailableError
from tests.conftest import Location
from tests.faults.fault_injection import FaultInjection, Kind, all_stores_through
from tests.faults.lakes import RIVAL, fill
from tests.faults.writes import Act, commit_on_main
from tests.lake_templates import Cast
from tests.repo.conftest import CUSTOMERS, ORDERS, ids, raw, rows, table

pytestmark = pytest.mark.local

T = TypeVar("T")


def append_live(repo: ab.Repository) -> None:
    with repo.transaction("live", message="written") as tx:
        tx.append(ORDERS, table(7))


WRITES: dict[str, tuple[str, Act]] = {
    "append": ("live", append_live),
    "pull": ("live", lambda repo: repo.branch_pull("live", CUSTOMERS)),
    "revert": ("dev", lambda repo: repo.revert("dev", branch="dev")),
}


def requests_of(lake: ab.Repository, act: Act) -> list[str]:
    with all_stores_through(injection := FaultInjection()):
        repo = ab.open(lake.uri)
        injection.arm()
        act(repo)
    return injection.requests


class _NoReadsAfter(FaultInjection):
    """Let every read fail after the first entry that is put into a log."""

    def request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        result = super().request(operation, path, send)
        is_put = any(each.startswith("put_if_absent _versions/") for each in self.requests)
        if operation == "get" and self._is_armed and is_put:
            raise StorageUnavailableError(f"an injected error hit {operation} of {path!r}", hint="try again")
        return result


@pytest.mark.parametrize("name", WRITES)
def test_reads_that_fail_after_the_entry_roll_nothing_back(location: Location, cast: Cast, name: str) -> None:
    lake, (branch, act) = cast(fill), WRITES[name]
    before = lake.branch_get(branch).version
    with all_stores_through(injection := _NoReadsAfter()):
        repo = ab.open(lake.uri, branch=branch)
        injection.arm()
        act(repo)
    assert lake.branch_get(branch).version == before + 1
    assert repo.snapshot().id == lake.snapshot_of(branch).id


def test_raw_readers_see_a_reset_after_a_concurrent_commit(location: Location, cast: Cast) -> None:
    lake = cast(fill)
    requests = [
        number
        for number, request in enumerate(requests_of(lake, lambda repo: repo.reset("main", to="v1")), start=1)
        if "_tags/" in request
    ]
    lake.undo("main")
    injection = FaultInjection(requests[0], Kind.LATENCY, rival=lambda: commit_on_main(ab.open(lake.uri)))
    with all_stores_through(injection):
        repo = ab.open(lake.uri)
        injection.arm()
        repo.reset("main", to="v1")
    assert injection.is_reached
    assert rows(raw(lake, RIVAL)) == rows(lake.snapshot_of("main")[RIVAL])


def test_a_file_that_cannot_be_reached_is_not_called_missing(location: Location, cast: Cast) -> None:
    lake = cast(fill)
    file = Path(location / "rows.csv")
    file.write_text("id,v\n80,x\n")
    with all_stores_through(injection := FaultInjection(1, Kind.ERROR)):
        repo = ab.open(lake.uri)
        injection.arm()
        with pytest.raises(StorageUnavailableError):
            repo.load(ORDERS, file, engine="local")
    assert lake.load(ORDERS, file, engine="local").rows_loaded == 1


def test_undo_of_a_damaged_commit_is_done_though_its_changes_cannot_be_read(location: Location, cast: Cast) -> None:
    lake = cast(fill)
    with lake.transaction(message="to be damaged") as tx:
        tx.delete(CUSTOMERS, "id > 0")
    before = lake.snapshot_of("main~1").id
    Path(lake.uri, "_commits", f"{lake.head_commit_id_for_branch('main')}.json").write_bytes(b"{")
    ab.open(lake.uri).undo()
    assert lake.head_commit_id_for_branch("main") == before


@pytest.mark.parametrize(
    ("act", "back"),
    [
        (lambda repo: repo.undo("dev"), lambda repo: repo.redo("dev")),
        (lambda repo: repo.reset("dev", to="dev~1"), lambda repo: repo.undo("dev")),
    ],
    ids=["undo", "reset"],
)
def test_move_is_rolled_back_if_its_commit_cannot_be_checked(
    location: Location, cast: Cast, act: Act, back: Act
) -> None:
    lake = cast(fill)
    before = lake.head_commit_id_for_branch("dev")
    requests: list[str] = []
    for _ in range(2):  # the second time there are the same entries to read as the third time
        requests = requests_of(lake, act)
        back(ab.open(lake.uri))
    is_put = next(number for number, each in enumerate(requests) if each.startswith("put_if_absent _versions/dev"))
    looks = next(n for n, each in enumerate(requests) if n > is_put and each.startswith("get _commits/"))
    with all_stores_through(injection := FaultInjection(looks + 1, Kind.ERROR)):
        repo = ab.open(lake.uri)
        injection.arm()
        with pytest.raises(StorageUnavailableError):
            act(repo)
    assert lake.head_commit_id_for_branch("dev") == before


@pytest.mark.parametrize("look", ["list_folders _versions", "list _leases/dev"])
def test_deletion_is_rolled_back_if_the_use_of_the_branch_cannot_be_checked(
    location: Location, cast: Cast, look: str
) -> None:
    lake = cast(fill)
    before = rows(lake.snapshot_of("dev")[ORDERS])
    requests = requests_of(lake, lambda repo: repo.branch_delete("dev"))
    lake.branch_restore("dev")
    is_put = next(number for number, each in enumerate(requests) if each.startswith("put_if_absent _versions/dev"))
    looks = requests.index(look, is_put)
    with all_stores_through(injection := FaultInjection(looks + 1, Kind.ERROR)):
        repo = ab.open(lake.uri)
        injection.arm()
        with pytest.raises(StorageUnavailableError):
            repo.branch_delete("dev")
    assert injection.is_reached
    assert rows(lake.snapshot_of("dev")[ORDERS]) == before


def test_branch_whose_first_manifest_was_put_without_an_answer_is_written(location: Location, cast: Cast) -> None:
    lake = cast(fill)

    def write(repo: ab.Repository, branch: str) -> None:
        repo.branch_create(branch)
        with repo.transaction(branch, message="written") as tx:
            tx.append(ORDERS, table(7))

    requests = requests_of(lake, lambda repo: write(repo, "one"))
    is_put = next(number for number, each in enumerate(requests) if each.startswith("put_if_absent tree/one/"))
    with all_stores_through(injection := FaultInjection(is_put + 1, Kind.LOST_ANSWER)):
        repo = ab.open(lake.uri)
        injection.arm()
        write(repo, "two")
    assert injection.is_reached
    assert rows(lake.snapshot_of("two")[ORDERS]) == rows(lake.snapshot_of("one")[ORDERS])


def test_clone_asks_for_nothing_once_it_is_there(location: Location, cast: Cast) -> None:
    lake = cast(fill)
    requests = requests_of(lake, lambda repo: ab.clone(repo.uri, str(location / "clone")))
    # The copy of the mark is only for repairs, and a failed write of it is ignored.
    assert requests[-2:] == ["put_if_absent _repo.json", "put _repo_copy.json"]
    assert rows(ab.open(str(location / "clone")).snapshot()[ORDERS]) == rows(lake.snapshot_of("main")[ORDERS])


class _EntryUnderWay(FaultInjection):
    """The first entry that is put into the log of main times out, and arrives when it is released."""

    def request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        is_entry = operation == "put_if_absent" and path.startswith("_versions/main/")
        if self._is_armed and is_entry and not self.is_reached:
            self._late, self.is_reached = send, True
            raise StorageUnavailableError(f"an injected time-out hit {operation} of {path!r}", hint="try again")
        return send()

    def release(self) -> None:
        self._carry_out_late()


@pytest.mark.parametrize("is_late", [False, True], ids=["never", "late"])
def test_what_is_added_to_a_run_after_its_publishing_failed_is_published(
    location: Location, cast: Cast, *, is_late: bool
) -> None:
    """An entry that is still under way when the run continues would hold what the run had until then."""
    lake = cast(fill)
    with all_stores_through(injection := _EntryUnderWay()):
        run = ab.open(lake.uri).begin_run("main", message="run")
        with run.transaction(message="one") as tx:
            tx.append(ORDERS, table(7))
        injection.arm()
        with pytest.raises(StorageUnavailableError):
            run.publish()
        with run.transaction(message="two") as tx:
            tx.append(ORDERS, table(8))
        if is_late:
            injection.release()
        run.publish()
    assert {7, 8} <= set(ids(lake, ORDERS))
    assert [commit.message for commit in lake.list_commits(limit=3)].count("run") == 1
