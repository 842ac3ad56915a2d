"""Runs: seen through themselves alone until they are published, then by all readers at once."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    AnabranchError,
    BranchNotFoundError,
    BranchProtectedError,
    BusyError,
    CheckFailedError,
    CommitNotFoundError,
    InvalidInputError,
    InvalidNameError,
    MergeConflictError,
    RunEndedError,
    RunNotFoundError,
    StorageUnavailableError,
)
from anabranch.format.staging import ColumnChange
from anabranch.repo.log.entries import CommitKind, RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.storage.options import lance_options
from anabranch.testing import Fault, FaultyStore
from tests.command_line import invoke
from tests.handles import open_with
from tests.processes import Program
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    ids,
    objects,
    raw,
    rows,
    table,
)
from tests.repo.rivals import raced_by

NEW, GONE, OLD_NAME, NEW_NAME = "in_c_sales.new", "in_c_sales.gone", "in_c_sales.before", "in_c_sales.after"
WIDE, WHOLE = "in_c_sales.wide", "in_c_sales.whole"
KNOWN = (ORDERS, CUSTOMERS, GONE, OLD_NAME, WIDE, WHOLE)


@pytest.fixture
def wide_lake(lake: Repository) -> Repository:
    """The lake with four more tables, each of the rows 1 and 2."""
    with lake.transaction(message="more") as tx:
        for key in (GONE, OLD_NAME, WIDE, WHOLE):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, table(1, 2))
    lake.tag_create("v1")
    lake.branch_create("dev")
    return lake


def do_everything(run: Run) -> None:
    """Change tables in every way, in several steps."""
    with run.transaction(message="rows") as tx:
        tx.create_table(NEW, SCHEMA, primary_key=["id"])
        tx.append(NEW, table(7))
        tx.upsert(ORDERS, table(3, 4, v="secret"))
        tx.append(CUSTOMERS, table(30))
    with run.transaction(message="more rows") as tx:
        tx.append(NEW, table(8))
        tx.delete(ORDERS, "id = 1")
        tx.drop_table(GONE)
    with run.transaction(message="shapes") as tx:
        tx.rename_table(OLD_NAME, NEW_NAME)
        tx.add_columns(WIDE, {"twice": "id * 2"})
        tx.alter_columns(WIDE, [ColumnChange(path="v", name="w")])
        tx.overwrite(WHOLE, pa.table({"id": [9], "other": [1.5]}))


def assert_done(snapshot: Any) -> None:
    assert sorted(snapshot) == sorted([ORDERS, CUSTOMERS, NEW, NEW_NAME, WIDE, WHOLE])
    assert rows(snapshot[ORDERS]) == [{"id": 2, "v": "b"}, {"id": 3, "v": "secret"}, {"id": 4, "v": "secret"}]
    assert ids(snapshot[CUSTOMERS]) == [10, 20, 30]
    assert ids(snapshot[NEW]) == [7, 8]
    assert ids(snapshot[NEW_NAME]) == [1, 2]
    assert snapshot[WIDE].to_arrow().column_names == ["id", "w", "twice"]
    assert rows(snapshot[WHOLE]) == [{"id": 9, "other": 1.5}]


def seen_by_all(repo: Repository) -> dict[str, object]:
    """Whatever the public doors show, apart from runs."""
    handle = another(repo)
    main = handle.snapshot_of("main")
    return {
        "branches": handle.branch_list(),
        "tags": handle.tag_list(),
        "reflog": handle.reflog("main"),
        "commits": handle.list_commits(limit=None),
        "of a table": handle.list_commits(table=ORDERS),
        "tables": {key: (rows(main[key]), main[key].schema) for key in main},
        "entity": handle.entity_at(ORDERS, 4),
        "history": handle.entity_history(ORDERS, 3),
        "drift": handle.branch_drift("dev"),
        "foreign": handle.list_external_writes(),
        "sql": {
            name: handle.sql(f"SELECT * FROM {name}").to_pylist()
            for name in ("tables", "branches", "branch_tables", "commits", "tags", "refs")
        },
        "at": handle.sql(f"SELECT * FROM {ORDERS} AT 'main' ORDER BY id").to_pylist(),
        "history tables": handle.history_sync().added,
    }


def seen_by_the_command_line(repo: Repository) -> list[str]:
    reach = [part for key, value in repo.storage_options.items() for part in ("-o", f"{key}={value}")]
    commands = [
        ["log"],
        ["status"],
        ["branch", "list"],
        ["tag", "list"],
        ["table", "list"],
        ["reflog"],
        ["cat", ORDERS],
        ["show", "main"],
        ["sql", f"SELECT * FROM {ORDERS} ORDER BY id"],
    ]
    messages = []
    for command in commands:
        answer = invoke(*command, "--repo", repo.uri, *reach)
        assert answer.code == 0, (command, answer)
        messages.append(answer.out)
    return messages


def seen_by_lance(repo: Repository) -> dict[str, object]:
    options = lance_options(repo.storage_options) if repo.storage_options else None
    found: dict[str, object] = {}
    for key in KNOWN:
        root = lance.dataset(f"{repo.uri}/tables/{key.replace('.', '/')}.lance", storage_options=options)
        homes = {name: rows(root.checkout_version((name, None))) for name in root.branches.list()}
        found[key] = (rows(root), root.schema, [version["version"] for version in root.versions()], homes)
    return found


@pytest.mark.s3
def test_run_is_seen_by_no_other_process_until_it_is_published_and_then_at_once(wide_lake: Repository) -> None:
    repo = wide_lake
    repo.history_sync()
    doors: list[Callable[[Repository], object]] = [seen_by_all, seen_by_the_command_line, seen_by_lance]
    before = [look(repo) for look in doors]
    run = repo.begin_run("main", message="nightly\n\nload", metadata={"ticket": "T-7"})
    do_everything(run)
    assert [look(repo) for look in doors] == before
    assert_done(run.snapshot())
    assert_done(another(repo).run_get(run.id).snapshot())
    assert run.sql(f"SELECT count(*) AS n FROM {ORDERS} WHERE v = 'secret'").to_pylist() == [{"n": 2}]

    parent = repo.snapshot_of("main").commit
    commit = run.publish()
    assert commit is not None
    assert repo.list_commits(limit=2) == [commit, parent]
    assert (commit.kind, commit.message) == (CommitKind.PUBLISH_RUN, "nightly\n\nload")
    assert dict(commit.metadata) == {"ticket": "T-7", "run_id": run.id}
    assert commit.tables == tuple(sorted([ORDERS, CUSTOMERS, NEW, GONE, OLD_NAME, NEW_NAME, WIDE, WHOLE]))
    assert_done(repo.snapshot())
    assert_done(another(repo).snapshot())
    for key in repo.snapshot():
        assert rows(raw(repo, key)) == rows(repo.snapshot()[key])
    assert another(repo).run_get(run.id).info().commit_id == commit.graph_commit_id
    assert "secret" in "".join(seen_by_the_command_line(repo)[-3:])


def test_commits_and_branches_of_a_run_are_not_refs(lake: Repository) -> None:
    run = lake.begin_run()
    append_in(run, 4)
    hidden = run.snapshot().id
    for ref in (hidden, hidden.lower(), f"{hidden}~0", hidden[:20], run.branch, f"{run.branch}@v1", f"{run.branch}~1"):
        for use in (
            lake.snapshot_of,
            lake.list_commits,
            lake.get_commit,
            lambda ref: lake.entity_at(ORDERS, 1, ref=ref),
            lambda ref: lake.branch_create_from(ref, "leak"),
            lambda ref: lake.tag_create("leak", ref=ref),
            lambda ref: lake.reset("main", to=ref),
            lake.revert,
            lake.cherry_pick,
            lambda ref: lake.sql("SELECT * FROM tables", ref=ref),
            lambda ref: lake.sql(f"SELECT * FROM {ORDERS} AT '{ref}'"),
        ):
            with pytest.raises(AnabranchError):
                use(ref)
    for use_branch in (
        lake.reflog,
        lake.branch_get,
        lake.branch_delete,
        lake.branch_protect,
        lake.sync_branch,
        lake.transaction,
        lake.begin_run,
        lake.head_commit_id_for_branch,
        lambda name: another(lake, name),
    ):
        with pytest.raises(InvalidNameError):
            use_branch(run.branch)
    assert [branch.name for branch in lake.branch_list()] == ["main"]
    assert [branch.name for branch in lake.branch_list(internal=True)] == [run.branch, "main"]


def test_prefix_that_only_hidden_commits_share_means_the_public_one(lake: Repository) -> None:
    made = iter([f"01ARZ3NDEKTSV4RRFFQ69G5F{end}" for end in ("A0", "B1", "B2", "B3")])
    handle = open_with(replace(testing.config_of(lake), new_id=lambda: next(made)))
    run = handle.begin_run()
    append_in(run, 4)
    public = append(handle, 5)
    assert lake.get_commit(public.graph_commit_id[:24]) == public
    with pytest.raises(CommitNotFoundError):
        lake.get_commit(run.snapshot().id)


def append_in(run: Run, *numbers: int, key: str = ORDERS) -> None:
    with run.transaction() as tx:
        tx.append(key, table(*numbers))


def files_of(repo: Repository) -> dict[str, tuple[int, int]]:
    root = Path(repo.uri) / "tables"
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*.lance") if p.is_file()}


def test_publishing_writes_no_data_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    megabytes = 100 if request.config.getoption("--proof") else 4
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
        tx.create_table(CUSTOMERS, SCHEMA)
    run, noise = repo.begin_run(), b"".join(os.urandom(1 << 20) for _ in range(megabytes)).hex()
    many = pa.table(
        {"id": range(len(noise) // 1024), "v": [noise[at : at + 1024] for at in range(0, len(noise), 1024)]}
    )
    with run.transaction() as tx:
        tx.append(ORDERS, many.slice(0, len(many) // 2))
    with run.transaction() as tx:
        tx.append(ORDERS, many.slice(len(many) // 2))
    append(repo, 1, key=CUSTOMERS)
    before = files_of(repo)
    assert sum(size for size, _ in before.values()) > megabytes << 20
    run.publish()
    assert files_of(repo) == before
    assert repo.snapshot()[ORDERS].to_arrow(columns=["id"]).num_rows == len(many)

    # Not even where another run has appended to the same table concurrently.
    first, second = repo.begin_run(), repo.begin_run()
    for each, half in ((first, many.slice(0, 2048)), (second, many.slice(2048, 2048))):
        with each.transaction() as tx:
            tx.append(ORDERS, half)
    before = files_of(repo)
    first.publish()
    second.publish()
    assert files_of(repo) == before
    assert repo.snapshot()[ORDERS].count_rows() == len(many) + 4096


def test_run_without_changes_makes_no_commit(lake: Repository) -> None:
    head = lake.snapshot_of("main").id
    with lake.begin_run() as run:
        pass
    assert lake.snapshot_of("main").id == head
    assert (run.info().state, run.info().commit_id) == (RunPhase.PUBLISHED, None)
    undone = lake.begin_run()
    with undone.transaction() as tx:
        tx.create_table(NEW, SCHEMA)
        tx.rename_table(ORDERS, NEW_NAME)
    with undone.transaction() as tx:
        tx.drop_table(NEW)
        tx.rename_table(NEW_NAME, ORDERS)
    assert undone.publish() is None
    assert lake.snapshot_of("main").id == head


def test_leaving_a_run_publishes_it(lake: Repository) -> None:
    with lake.begin_run(message="load") as run:
        append_in(run, 4)
        append_in(run, 5)
    assert lake.snapshot().commit.message == "load"
    assert ids(lake) == [1, 2, 3, 4, 5]
    info = run.info()
    assert (info.state, info.error, info.tables) == (RunPhase.PUBLISHED, None, (ORDERS,))
    assert (info.begun_by, info.target, info.message) == ("ada", "main", "load")
    assert info.changed_at >= info.begun_at
    with lake.begin_run() as run:
        append_in(run, 6)
        run.publish()
    with lake.begin_run() as run:
        append_in(run, 7)
        run.abort()
    assert ids(lake) == [1, 2, 3, 4, 5, 6]


def test_exception_inside_a_run_forgets_it_and_is_reported(lake: Repository) -> None:
    run = lake.begin_run()
    with nothing_changes_on_main(lake), pytest.raises(ValueError, match="spilt"), run:  # noqa: PT012
        append_in(run, 4)
        raise ValueError("milk was spilt")
    assert (run.info().state, run.info().error) == (RunPhase.FAILED, "ValueError: milk was spilt")
    run = lake.begin_run()
    with nothing_changes_on_main(lake), pytest.raises(CheckFailedError), run:  # noqa: PT012
        append_in(run, 4)
        run.publish(checks={"no fours": f"SELECT * FROM {ORDERS} WHERE id = 4"})
    assert run.info().state is RunPhase.FAILED
    assert "no fours" in (run.info().error or "")


def nothing_changes_on_main(repo: Repository) -> Any:
    return _same(lambda: (repo.list_commits("main"), repo.reflog("main"), rows(raw(repo)), ids(repo)))


class _same:  # noqa: N801 - reads as a function
    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look

    def __enter__(self) -> None:
        self._before = self._look()

    def __exit__(self, *_: object) -> None:
        assert self._look() == self._before


def test_run_that_cannot_be_published_on_leaving_has_failed(lake: Repository) -> None:
    run = lake.begin_run()
    with pytest.raises(MergeConflictError), run:  # noqa: PT012
        with run.transaction() as tx:
            tx.delete(ORDERS, "id = 1")
        with lake.transaction() as tx:
            tx.update(ORDERS, {"v": "'new'"}, where="id = 1")
    assert run.info().state is RunPhase.FAILED
    assert (run.info().error or "").startswith("MergeConflictError: run ")


def test_run_ends_once(lake: Repository) -> None:
    run = lake.begin_run()
    append_in(run, 4)
    open_tx = run.transaction()
    open_tx.append(ORDERS, table(5))
    assert run.publish() is not None
    with nothing_changes_on_main(lake):
        for use in (
            run.publish,
            run.abort,
            run.snapshot,
            run.transaction,
            open_tx.commit,
            lambda: run.sql("SELECT 1"),
        ):
            with pytest.raises(RunEndedError, match="published"):
                use()
    run = lake.begin_run()
    append_in(run, 6)
    open_tx = run.transaction()
    open_tx.append(ORDERS, table(7))
    another(lake).run_get(run.id).abort()
    with nothing_changes_on_main(lake):
        for use in (run.publish, run.abort, run.snapshot, run.transaction, open_tx.commit):
            with pytest.raises(RunEndedError, match="aborted"):
                use()
    assert ids(lake) == [1, 2, 3, 4]


def test_two_transactions_of_a_run_at_once(lake: Repository) -> None:
    lake.branch_create("dev")
    run = lake.begin_run("dev")
    one, two = run.transaction(), another(lake).run_get(run.id).transaction()
    one.append(ORDERS, table(4))
    one.append(CUSTOMERS, table(30))
    two.append(ORDERS, table(5))
    one.commit()
    two.commit()
    three, four = run.transaction(), another(lake).run_get(run.id).transaction()
    three.delete(ORDERS, "id = 1")
    four.delete(ORDERS, "id = 2")
    three.commit()
    with pytest.raises(BusyError):
        four.commit()
    assert ids(run.snapshot()) == [2, 3, 4, 5]
    run.publish()
    assert ids(lake.snapshot_of("dev")) == [2, 3, 4, 5]
    assert rows(raw(lake, ORDERS, "dev")) == rows(lake.snapshot_of("dev")[ORDERS])
    assert ids(lake) == [1, 2, 3]


def test_transaction_that_meets_publishing_is_in_the_commit_or_refused(lake: Repository) -> None:
    run = lake.begin_run()
    append_in(run, 4)
    late = run.transaction()
    late.append(CUSTOMERS, table(30))

    def publish_late(_: Repository) -> None:
        late.commit()

    # The clock is asked right before the announcement is put, so that the transaction comes first.
    raced_by(lake, publish_late).run_get(run.id).publish()
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 30]

    run = lake.begin_run()
    append_in(run, 5)
    refused = run.transaction()
    refused.append(ORDERS, table(6))

    def during(_: object) -> None:
        with pytest.raises(BusyError, match="being published"):
            refused.commit()
        with pytest.raises(BusyError, match="being published"):
            another(lake).run_get(run.id).abort()

    run.publish(checks=[during])
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_run_is_read_by_another_process(lake: Repository) -> None:
    run = lake.begin_run()
    append_in(run, 4)
    with Program("run_reading") as program:
        reported = {"uri": lake.uri, "storage_options": dict(lake.storage_options), "run_id": run.id, "key": ORDERS}
        assert program.ask("read", **reported) == {"ids": [1, 2, 3, 4], "state": "running", "main": [1, 2, 3]}
        append_in(run, 5)
        assert program.ask("append", **reported, ids=[6]) == {"ids": [1, 2, 3, 4, 5, 6]}
        assert ids(run.snapshot()) == [1, 2, 3, 4, 5, 6]
        assert program.ask("publish", **reported)["commit_id"] == lake.snapshot_of("main").id
    assert ids(lake) == [1, 2, 3, 4, 5, 6]
    assert run.info().state is RunPhase.PUBLISHED


def test_runs_are_listed_newest_first(lake: Repository) -> None:
    lake.branch_create("dev")
    one, two, three = lake.begin_run(), lake.begin_run("dev"), lake.begin_run()
    two.abort()
    listed = lake.run_list()
    newest = sorted([one.id, two.id, three.id], reverse=True)
    assert [info.id for info in listed] == newest
    assert {info.id: info.state for info in listed}[two.id] is RunPhase.ABORTED
    assert lake.run_list(limit=2) == listed[:2]
    assert lake.run_list(limit=None) == listed
    assert lake.run_list(limit=0) == []
    assert [info.id for info in lake.run_list(branch="dev")] == [two.id]


@pytest.mark.parametrize(
    "run_id", ["../x", "", None, 7, "01ARZ3NDEKTSV4RRFFQ69G5FA", "main", "01ARZ3NDEKTSV4RRFFQ69G5FAV/.."]
)
def test_what_is_not_a_run_id(lake: Repository, run_id: Any) -> None:
    with pytest.raises(InvalidNameError, match="run id"):
        lake.run_get(run_id)


def test_odd_input(lake: Repository) -> None:
    with pytest.raises(RunNotFoundError):
        lake.run_get("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    run = lake.begin_run()
    again = lake.run_get(run.id.lower())
    assert again.id == run.id
    append_in(again, 4)
    assert ids(run.snapshot()) == [1, 2, 3, 4]
    for limit in (-1, "x", 1.5, True):
        with pytest.raises(InvalidInputError, match="limit"):
            lake.run_list(limit=limit)  # type: ignore[arg-type]
    for wrong in ({"message": 7}, {"metadata": {"a": 1}}, {"metadata": {"run_id": "x"}}, {"metadata": "x"}):
        with pytest.raises(InvalidInputError):
            lake.begin_run(**wrong)
    with pytest.raises(BranchNotFoundError):
        lake.begin_run("nowhere")
    lake.branch_protect("main")
    with pytest.raises(BranchProtectedError):
        lake.begin_run()
    assert len(lake.run_list()) == 1


def faulty(repo: Repository, nth: int, fault: Fault, operation: str) -> tuple[Repository, FaultyStore]:
    store = FaultyStore(testing.store_of(repo), nth=nth, fault=fault, operation=operation)
    return testing.open(repo, store=store), store


def each_fault(repo: Repository, operation: str, fault: Fault) -> Iterator[Repository]:
    """A handle whose first request goes wrong, then one whose second does, until there is none."""
    for nth in count(1):
        handle, store = faulty(repo, nth, fault, operation)
        yield handle
        if not store.reached.is_set():
            break
    assert nth > 1


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
@pytest.mark.parametrize("operation", ["put_if_absent", "put", "get", "delete"])
def test_failed_request_of_a_run_leaves_all_or_nothing(lake: Repository, operation: str, fault: Fault) -> None:
    for number, handle in enumerate(each_fault(lake, operation, fault), start=100):
        run = None
        try:
            with handle.begin_run(message=str(number)) as run:
                append_in(run, number)
                append_in(run, number, key=CUSTOMERS)
        except StorageUnavailableError:
            # What was carried out is found by looking, so only what was not is the caller's concern.
            assert operation == "get" or fault is Fault.FAIL or run is None
        messages = [commit.message for commit in lake.list_commits(limit=None)]
        found = lake.run_list(limit=1)[0] if lake.run_list() else None
        assert messages.count(str(number)) == ids(lake).count(number) == ids(lake, CUSTOMERS).count(number)
        if run is not None:
            assert found is not None
            is_there = found.state is RunPhase.PUBLISHED
            assert messages.count(str(number)) == is_there
            assert lake.run_get(run.id).info().state in {RunPhase.PUBLISHED, RunPhase.FAILED, RunPhase.EXPIRED}
        assert [info for info in lake.run_list() if info.state is RunPhase.RUNNING] == []


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
def test_failed_put_of_an_abort_can_be_repeated(lake: Repository, fault: Fault) -> None:
    for handle in each_fault(lake, "put_if_absent", fault):
        run = lake.begin_run()
        append_in(run, 4)
        try:
            handle.run_get(run.id).abort()
        except StorageUnavailableError:
            assert fault is Fault.FAIL
            run.abort()
        assert run.info().state is RunPhase.ABORTED
    assert ids(lake) == [1, 2, 3]


def test_publishing_again_after_a_lost_answer_gives_the_same_commit(lake: Repository) -> None:
    for number, handle in enumerate(each_fault(lake, "get", Fault.FAIL), start=100):
        run = lake.begin_run()
        append_in(run, number)
        try:
            first = handle.run_get(run.id).publish()
        except StorageUnavailableError:
            first = None
        if run.info().state is not RunPhase.PUBLISHED:
            again = run.publish()
            assert first in {None, again}
        assert ids(lake).count(number) == 1
    assert len([c for c in lake.list_commits(limit=None) if c.kind is CommitKind.PUBLISH_RUN]) == number - 99


def test_nothing_is_left_of_leases_when_runs_are_over(lake: Repository) -> None:
    with lake.begin_run() as run:
        append_in(run, 4)
    lake.begin_run().abort()
    with pytest.raises(ZeroDivisionError), lake.begin_run():
        raise ZeroDivisionError
    with pytest.raises(RunEndedError):
        run.publish()
    assert [path for path in objects(lake) if path.startswith("_leases/")] == []
