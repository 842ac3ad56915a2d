"""Reset, reflog, undo and redo: each way back is one more entry of the log."""

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    InvalidInputError,
    VersionNotFoundError,
)
from anabranch.format.staging import DEFAULT, DESCRIPTION, notes_of
from anabranch.ids import BranchName
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import TableMap
from tests.lake_templates import Cast
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    entry,
    fill_lake,
    ids,
    nothing_changes,
    raw,
    table,
)
from tests.repo.rivals import raced_by

State = dict[str, tuple[str, str, str | None, tuple[str, ...], TableMap]]


def state(repo: ab.Repository) -> State:
    """All that there is to see of every branch, but for the numbers of its log."""
    return {
        info.name: (
            info.head_commit_id,
            str(info.mode),
            info.parent,
            info.own_tables,
            dict(repo.snapshot_of(info.name).entries),
        )
        for info in repo.branch_list()
    }


def raw_ids(repo: ab.Repository, key: str = ORDERS, ref: str | None = None) -> list[int]:
    return sorted(raw(repo, key, ref).to_table().column("id").to_pylist())


def assert_raw_readers_agree(repo: ab.Repository) -> None:
    for info in repo.branch_list():
        snapshot = repo.snapshot_of(info.name)
        own = [key for key in snapshot if owns(BranchName(info.name), snapshot[key].entry.home)]
        for key in own:
            assert raw_ids(repo, key, info.name) == ids(snapshot, key), (info.name, key)


@pytest.fixture
def busy(cast: Cast) -> ab.Repository:
    """A lake with a pinned branch dev and a live branch live, each with a commit of its own, and main moved on."""
    return cast(fill_busy)


def fill_busy(lake: ab.Repository) -> None:
    fill_lake(lake)
    lake.branch_create("dev")
    lake.branch_create_from("main", "live", mode="live")
    append(lake, 4, branch="dev")
    append(lake, 5, branch="live")
    append(lake, 6)
    lake.branch_create_from("main@v2", "other")
    append(lake, 30, branch="other", key=CUSTOMERS)
    lake.tag_create("picked", ref="other")


def _transact(change: Callable[[ab.Transaction], object], branch: str) -> Callable[[ab.Repository], None]:
    def act(repo: ab.Repository) -> None:
        with repo.transaction(branch) as tx:
            change(tx)

    return act


MOVEMENTS: dict[str, tuple[str, Callable[[ab.Repository], object]]] = {
    "commit": ("main", lambda repo: append(repo, 7)),
    "commit on a branch": ("dev", lambda repo: append(repo, 7, branch="dev")),
    "first write on a live branch": ("live", lambda repo: append(repo, 70, branch="live", key=CUSTOMERS)),
    "create table": ("main", _transact(lambda tx: tx.create_table("a.b", SCHEMA), "main")),
    "drop table": ("main", _transact(lambda tx: tx.drop_table(ORDERS), "main")),
    "drop on a live branch": ("live", _transact(lambda tx: tx.drop_table(CUSTOMERS), "live")),
    "rename": ("main", _transact(lambda tx: tx.rename_table(ORDERS, "x.y"), "main")),
    "columns": ("dev", _transact(lambda tx: tx.add_columns(CUSTOMERS, {"w": "id"}), "dev")),
    "create branch": ("new", lambda repo: repo.branch_create("new")),
    "create live branch": ("new", lambda repo: repo.branch_create_from("main", "new", mode="live")),
    "delete": ("dev", lambda repo: repo.branch_delete("dev")),
    "delete live branch": ("live", lambda repo: repo.branch_delete("live")),
    "pull": ("dev", lambda repo: repo.branch_pull("dev", ORDERS)),
    "pull on a live branch": ("live", lambda repo: repo.branch_pull("live", ORDERS)),
    "freeze": ("live", lambda repo: repo.branch_freeze("live")),
    "reset": ("main", lambda repo: repo.reset("main", to="main~1")),
    "reset to another branch": ("dev", lambda repo: repo.reset("dev", to="main")),
    "reset of a live branch": ("live", lambda repo: repo.reset("live", to="live@v1")),
    "revert": ("main", lambda repo: repo.revert("main")),
    "revert on a live branch": ("live", lambda repo: repo.revert("live", branch="live")),
    "cherry-pick": ("dev", lambda repo: repo.cherry_pick("picked", branch="dev")),
}


@pytest.mark.parametrize("name", MOVEMENTS)
def test_undo_restores_what_was_before_and_redo_what_was_after(busy: ab.Repository, name: str) -> None:
    branch, move = MOVEMENTS[name]
    before = state(busy)
    move(busy)
    after, version = state(busy), busy.reflog(branch)[0].number
    assert after != before
    busy.undo(branch)
    assert state(busy) == before
    assert_raw_readers_agree(busy)
    assert [(move.number, str(move.event)) for move in busy.reflog(branch, limit=1)] == [(version + 1, "undone")]
    busy.redo(branch)
    assert state(busy) == after
    assert_raw_readers_agree(busy)
    assert [(move.number, str(move.event)) for move in busy.reflog(branch, limit=1)] == [(version + 2, "redone")]
    busy.undo(branch)
    assert state(busy) == before
    for name in [*before]:
        append(busy, 99, branch=name)
        assert 99 in ids(busy.snapshot_of(name))
    assert_raw_readers_agree(busy)


def test_undo_of_a_restore_deletes_again(busy: ab.Repository) -> None:
    busy.branch_delete("dev")
    before = state(busy)
    busy.branch_restore("dev")
    busy.undo("dev")
    assert state(busy) == before
    busy.redo("dev")
    assert ids(busy.snapshot_of("dev")) == [1, 2, 3, 4]
    for _ in range(2):  # the restore, then the delete
        busy.undo("dev")
    assert ids(busy.snapshot_of("dev")) == [1, 2, 3, 4]


@pytest.mark.s3
def test_undo_again_goes_further_back_and_redo_comes_forward(lake: ab.Repository) -> None:
    for number in (4, 5, 6):
        append(lake, number)
    shown = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    for rows, version in zip(reversed(shown[:3]), (5, 4, 3), strict=True):
        assert lake.undo().number == version
        assert ids(lake) == ids(another(lake)) == raw_ids(lake) == rows
    for rows, version in zip(shown[1:3], (3, 4), strict=True):
        assert another(lake).redo().number == version
        lake.sync_branch()
        assert ids(lake) == raw_ids(lake) == rows
    lake.undo()
    assert ids(lake) == shown[1]
    lake.redo()
    lake.redo()
    assert ids(lake) == shown[3]
    assert [move.restores for move in lake.reflog(limit=8)] == [5, 4, 3, 4, 3, 2, 3, 4]
    assert [str(move.event) for move in lake.reflog(limit=8)] == [
        *("redone", "redone", "undone", "redone", "redone", "undone", "undone", "undone")
    ]
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="nothing to redo on branch 'main'"):
        lake.redo()


def test_undo_after_a_new_commit_leaves_out_what_was_undone_before_it(lake: ab.Repository) -> None:
    append(lake, 4)
    append(lake, 5)
    lake.undo()
    append(lake, 6)
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="nothing to redo"):
        lake.redo()
    assert ids(lake) == [1, 2, 3, 4, 6]
    shown = []
    for _ in range(2):
        lake.undo()
        shown.append(ids(lake))
    assert shown == [[1, 2, 3, 4], [1, 2, 3]]
    for _ in range(2):
        lake.redo()
    assert ids(lake) == [1, 2, 3, 4, 6]
    lake.reset("main", to="main@v4")  # the reflog still has it
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_undo_goes_back_to_the_creation_of_a_branch_and_no_further(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.branch_delete("dev")
    for exists in (True, True, False):
        lake.undo("dev")
        assert ("dev" in [info.name for info in lake.branch_list()]) is exists
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="the creation of branch 'dev' is undone"):
        lake.undo("dev")
    for rows in ([1, 2, 3], [1, 2, 3, 4]):
        lake.redo("dev")
        assert ids(lake.snapshot_of("dev")) == rows
    lake.redo("dev")
    assert [info.name for info in lake.branch_list()] == ["main"]


def test_undo_of_main_stops_at_its_first_commit(lake: ab.Repository) -> None:
    lake.undo()
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="there is nothing to undo on branch 'main'"):
        lake.undo()
    lake.redo()
    assert ids(lake) == [1, 2, 3]


@pytest.mark.s3
def test_redo_is_refused_when_others_moved_the_branch_since(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.undo()
    another(lake).redo()
    with nothing_changes(another(lake)), pytest.raises(BusyError):
        lake.redo()
    crossed = raced_by(another(lake), lambda other: append(other, 5))
    with pytest.raises(BusyError):
        crossed.undo()
    lake.sync_branch()
    lake.undo()
    crossed = raced_by(lake, lambda other: append(other, 6))
    with pytest.raises(BusyError):
        crossed.redo()
    assert ids(another(lake)) == raw_ids(lake) == [1, 2, 3, 4, 6]


def test_undo_of_a_branch_made_again_leaves_the_first_one_deleted(busy: ab.Repository) -> None:
    busy.branch_delete("dev")
    busy.branch_create("dev")
    busy.undo("dev")
    with pytest.raises(BranchNotFoundError):
        busy.snapshot_of("dev")
    busy.branch_restore("dev")
    assert ids(busy.snapshot_of("dev")) == [1, 2, 3, 4]


@pytest.mark.s3
def test_undo_is_refused_when_others_moved_the_branch_since(lake: ab.Repository) -> None:
    append(lake, 4)
    append(another(lake), 5)
    with nothing_changes(another(lake)), pytest.raises(BusyError):
        lake.undo()
    with pytest.raises(BusyError):
        lake.undo()
    lake.sync_branch()
    lake.undo()
    assert ids(lake) == [1, 2, 3, 4]


def test_undo_of_a_delete_is_refused_when_others_made_the_branch_again(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_delete("dev")
    other = another(lake)
    other.branch_create("dev")
    append(other, 4, branch="dev")
    with nothing_changes(another(lake)), pytest.raises(BusyError):
        lake.undo("dev")


def test_undo_ends_no_branch_that_others_were_made_from(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create_from("dev", "child")
    with nothing_changes(lake), pytest.raises(BranchInUseError):
        lake.undo("dev")


def test_undo_does_not_restore_a_branch_without_its_source(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create_from("dev", "child")
    lake.branch_delete("child")
    lake.branch_delete("dev")
    with nothing_changes(lake), pytest.raises(BranchNotFoundError, match="dev"):
        lake.undo("child")


def test_there_is_nothing_to_undo_at_the_beginning(repo: ab.Repository) -> None:
    with pytest.raises(InvalidInputError):
        repo.undo()
    with pytest.raises(BranchNotFoundError):
        repo.undo("nowhere")
    with pytest.raises(BranchNotFoundError):
        repo.reflog("nowhere")


@pytest.mark.s3
def test_the_reflog_shows_every_movement_with_who_and_when(lake: ab.Repository) -> None:
    bob = ab.open(lake.uri, actor="bob", storage_options=lake.storage_options)
    bob.branch_create("dev")
    append(lake, 4, branch="dev")
    bob.reset("dev", to="main")
    lake.branch_delete("dev")
    bob.branch_restore("dev")
    bob.undo("dev")
    found = lake.reflog("dev")
    assert [(move.number, str(move.event), move.actor) for move in found] == [
        (6, "undone", "bob"),
        (5, "restored", "bob"),
        (4, "deleted", "ada"),
        (3, "reset", "bob"),
        (2, "committed", "ada"),
        (1, "created", "bob"),
    ]
    assert [move.moved_at for move in found] == sorted((move.moved_at for move in found), reverse=True)
    assert found[4].message == "append (4,)"
    assert found[3].commit_id == lake.head_commit_id_for_branch("main")
    assert [move.number for move in lake.reflog("dev", limit=2)] == [6, 5]


@pytest.mark.s3
def test_reset_appends_and_what_was_after_stays_readable(lake: ab.Repository) -> None:
    append(lake, 4)
    newest = append(lake, 5).graph_commit_id
    lake.reset("main", to="main~1")
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert ids(lake.snapshot_of(newest)) == ids(lake.snapshot_of("main@v4")) == [1, 2, 3, 4, 5]
    assert lake.branch_get("main").version == 5
    append(lake, 6)
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 4, 6], [1, 2, 3, 4, 6])
    assert [commit.message for commit in lake.list_commits(limit=2)] == ["append (6,)", "append (4,)"]
    lake.reset("main", to=newest)
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])


def test_row_ids_stay_unique_and_an_index_stays_right_after_a_reset(lake: ab.Repository) -> None:
    append(lake, 4, 5)
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 2")
    lake.reset("main", to="main@v2")
    append(lake, 6, 7)
    with lake.transaction() as tx:
        tx.upsert(ORDERS, table(1, 8, v="new"))
    found = raw(lake).to_table(with_row_id=True)
    assert sorted(found.column("id").to_pylist()) == [1, 2, 3, 6, 7, 8]
    assert len(set(found.column("_rowid").to_pylist())) == 6
    raw(lake).create_scalar_index("id", "BTREE")
    lake.adopt(ORDERS)
    append(lake, 9)
    lake.reset("main", to="main~1")
    append(lake, 10)
    table_now = lake.snapshot_of("main")[ORDERS]
    assert [ids_of["id"] for ids_of in table_now.to_arrow(where="id >= 9").to_pylist()] == [10]
    assert table_now.to_arrow(where="id = 8").num_rows == 1


def test_notes_of_a_table_are_those_of_the_commit_after_a_reset(lake: ab.Repository) -> None:
    def annotate(text: str) -> None:
        with lake.transaction(message="annotate") as tx:
            tx.annotate(ORDERS, {DESCRIPTION: text}, columns={"v": {DEFAULT: f"'{text}'"}})

    def notes() -> tuple[dict[str, str], dict[str, str]]:
        schema = lake.snapshot_of("main")[ORDERS].schema
        return notes_of(schema.metadata), notes_of(schema.field("v").metadata)

    annotate("one")
    annotate("two")
    assert notes() == ({DESCRIPTION: "two"}, {DEFAULT: "'two'"})
    lake.reset("main", to="main~1")
    assert notes() == ({DESCRIPTION: "one"}, {DEFAULT: "'one'"})


@pytest.mark.parametrize("back", ["undo", "reset", "revert"])
@pytest.mark.parametrize("is_drop", [False, True])
def test_indices_of_a_table_are_those_of_the_commit_that_the_branch_is_moved_to(
    lake: ab.Repository, back: str, *, is_drop: bool
) -> None:
    def names() -> list[str]:
        """Return the indices that the repository and plain Lance readers see, which cover all rows."""
        found = lake.table(ORDERS).indices
        assert [index.covered_rows for index in found] == [len(lake.table(ORDERS))] * len(found)
        assert [index.name for index in raw(lake).describe_indices()] == [index.name for index in found]
        assert lake.table(ORDERS).to_arrow(where="v = 'a'").column("id").to_pylist() == [1]
        return [index.name for index in found]

    if is_drop:
        lake.index(ORDERS, "v")
        with lake.transaction() as tx:
            tx.drop_index(ORDERS, "v_idx")
    else:
        lake.index(ORDERS, "v")
    after = names()
    before = ["v_idx"] if is_drop else []
    assert after == ([] if is_drop else ["v_idx"])
    if back == "undo":
        lake.undo()
    elif back == "reset":
        lake.reset("main", to="main~1")
    else:
        lake.revert("main")
    assert names() == before
    if back != "revert":
        lake.undo() if back == "reset" else lake.redo()
        assert names() == after


def test_a_reset_to_another_branch_leaves_that_branch_alone(busy: ab.Repository) -> None:
    before = raw_ids(busy)
    busy.reset("dev", to="main@v2")
    assert raw_ids(busy) == before == ids(busy)
    busy.reset("dev", to="main~1")
    append(busy, 8, branch="dev")
    assert ids(busy.snapshot_of("dev")) == [1, 2, 3, 8]
    assert raw_ids(busy) == ids(busy) == [1, 2, 3, 6]
    assert_raw_readers_agree(busy)


def test_main_can_be_put_on_a_branch_and_continues_in_one_home(busy: ab.Repository) -> None:
    busy.reset("main", to="dev")
    assert ids(busy) == [1, 2, 3, 4]
    append(busy, 7)
    home = entry(busy).home
    append(busy, 8)
    assert entry(busy).home == home
    assert (ids(busy), ids(busy.snapshot_of("dev"))) == ([1, 2, 3, 4, 7, 8], [1, 2, 3, 4])
    assert_raw_readers_agree(busy)


def test_a_reset_to_a_live_branch_keeps_what_that_shows_now(busy: ab.Repository) -> None:
    append(busy, 40, key=CUSTOMERS)
    busy.reset("dev", to="live")
    append(busy, 50, key=CUSTOMERS)
    head = busy.head_commit_id_for_branch("dev")
    for ref in ("dev", head, f"dev@v{busy.branch_get('dev').version}"):
        assert ids(busy.snapshot_of(ref)) == [1, 2, 3, 5]
        assert ids(busy.snapshot_of(ref), CUSTOMERS) == [10, 20, 40]
    dev = another(busy, "dev")
    assert dev.snapshot() is dev.snapshot()
    assert dev.snapshot().main_commit_id is None


def test_a_live_branch_goes_back_only_to_versions_of_its_own(busy: ab.Repository) -> None:
    busy.branch_create_from("main", "two", mode="live")
    for ref in ("main", "dev", "live~1", "two@v1", busy.head_commit_id_for_branch("live")):
        with nothing_changes(busy), pytest.raises(InvalidInputError, match="of its own"):
            busy.reset("live", to=ref)
    append(busy, 50, branch="live")
    busy.reset("live", to="live@v2")
    assert ids(busy.snapshot_of("live")) == [1, 2, 3, 5]
    append(busy, 60, key=CUSTOMERS)
    assert ids(busy.snapshot_of("live"), CUSTOMERS) == [10, 20, 60]


def test_a_live_branch_does_not_go_back_to_an_earlier_branch_of_its_name(busy: ab.Repository) -> None:
    busy.branch_delete("dev")
    busy.branch_create_from("main", "dev", mode="live")
    with nothing_changes(busy), pytest.raises(InvalidInputError, match="of its own"):
        busy.reset("dev", to="dev@v2")
    busy.branch_freeze("dev")
    busy.reset("dev", to="dev@v2")
    assert ids(busy.snapshot_of("dev")) == [1, 2, 3, 4]


def test_a_frozen_branch_can_be_put_on_what_it_was_when_live(busy: ab.Repository) -> None:
    busy.branch_freeze("live")
    append(busy, 8, branch="live")
    busy.reset("live", to="live@v2")
    handle = another(busy, "live")
    assert ids(handle.snapshot()) == [1, 2, 3, 5]
    assert handle.snapshot().main_commit_id is None
    append(busy, 9, branch="live")
    assert ids(busy.snapshot_of("live")) == [1, 2, 3, 5, 9]


def test_a_reset_to_nothing_known_changes_nothing(busy: ab.Repository) -> None:
    for ref, error in (("nowhere", BranchNotFoundError), ("main@v99", VersionNotFoundError)):
        with nothing_changes(busy), pytest.raises(error):
            busy.reset("dev", to=ref)
    with nothing_changes(busy), pytest.raises(BranchNotFoundError):
        busy.reset("nowhere", to="main")


def test_times_never_run_backwards_even_if_the_clock_does(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.reset("main", to="main@v2")
    slow = testing.open(lake, clock=lambda: 1, checks_clock=False)
    append(slow, 5)
    slow.branch_create("dev")
    slow.branch_delete("dev")
    slow.branch_create_from("main@v1", "dev")
    for branch in ("main", "dev"):
        times = [move.moved_at for move in lake.reflog(branch)]
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", ["undo", "reset"])
def test_a_movement_that_another_crosses_is_refused_and_rolls_nothing_back(lake: ab.Repository, name: str) -> None:
    append(lake, 4)
    crossed = raced_by(lake, lambda other: append(other, 5))
    with pytest.raises(BusyError, match=r"see where it is with `sync_branch\('main'\)`"):
        crossed.undo() if name == "undo" else crossed.reset("main", to="main~1")
    assert ids(lake) == raw_ids(lake) == [1, 2, 3, 4, 5]
    assert [str(move.event) for move in lake.reflog(limit=1)] == ["committed"]


def test_an_undo_that_ends_a_branch_notices_a_child_made_concurrently(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    crossed = raced_by(lake, lambda other: other.branch_create_from("dev", "child"))
    with pytest.raises(BranchInUseError):
        crossed.undo("dev")
    assert [info.name for info in lake.branch_list()] == ["child", "dev", "main"]


def test_undo_that_restores_a_branch_detects_a_concurrent_delete_of_its_source(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    lake.branch_create_from("dev", "child")
    lake.branch_delete("child")
    crossed = raced_by(lake, lambda other: other.branch_delete("dev"))
    with pytest.raises(BranchNotFoundError):
        crossed.undo("child")
    assert [info.name for info in lake.branch_list()] == ["main"]
