"""The model finds bugs: each test plants one in the product, and random histories, or a directed one, must find it."""

import gc
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from anabranch.errors import AnabranchError
from tests.model import operations as ops
from tests.model.operations import Below, Formula, Operation
from tests.model.table import Row
from tests.repo.machines.keeping import KeepingMachine
from tests.repo.machines.merging import MergingMachine
from tests.repo.machines.pair import PairMachine
from tests.repo.machines.whole import RepositoryMachine

# The machines drop transactions on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:a transaction on branch:ResourceWarning")


@pytest.fixture(autouse=True)
def collect_dropped_transactions() -> Iterator[None]:
    """Collect them in this test, because other tests do not expect their warnings."""
    yield
    gc.collect()


HISTORIES, STEPS = 150, 30
# The histories of one seed may miss a rare bug.
SEEDS = (0, 1)
# How a history fails if it has found a bug.
FOUND = (AssertionError, ValueError, AnabranchError, pytest.fail.Exception)


def drop_deletions(replace_rows: Callable[..., Any]) -> Callable[..., Any]:
    """A merge does not delete the rows that the source deleted."""

    def planted(version_ref: Any, batches: Iterator[Any]) -> Any:
        return replace_rows(version_ref, (batch for batch in batches if batch.rows is not None))

    return planted


def lose_inserted_row(replace_rows: Callable[..., Any]) -> Callable[..., Any]:
    """A merge does not insert the last of several new rows."""

    def cut(batch: Any) -> Any:
        is_insert = batch.rows is not None and not len(batch.row_ids)
        return replace(batch, rows=batch.rows.slice(0, len(batch.rows) - 1)) if is_insert else batch

    def planted(version_ref: Any, batches: Iterator[Any]) -> Any:
        return replace_rows(
            version_ref, (cut(batch) for batch in batches if batch.rows is None or len(cut(batch).rows))
        )

    return planted


def undo_two_movements(position_before: Callable[..., Any]) -> Callable[..., Any]:
    """An undo goes back one movement too far."""

    def planted(records: Any, moved: Any, last: Any) -> Any:
        before = position_before(records, moved, last)
        return position_before(records, before, last) if before.number > 1 else before

    return planted


def show_older_main(find_main: Callable[..., Any]) -> Callable[..., Any]:
    """A live branch shows the tables of main as they were one commit ago."""

    def planted(records: Any, entry: Any) -> Any:
        main = find_main(records, entry)
        parent = None if main is None else main.commit.parent_commit_id
        return main if parent is None else records.commits.get(parent)

    return planted


def lose_last_commit(iter_own_commits: Callable[..., Any]) -> Callable[..., Any]:
    """A rebase does not apply the newest commit."""
    return lambda *arguments: [*iter_own_commits(*arguments)][1:]


def lose_appended_rows(append_again: Callable[..., Any]) -> Callable[..., Any]:
    """A run whose target has moved publishes the table without the rows that the run appended."""
    return lambda version_ref, *_, **__: version_ref


def prefer_one_base(neither: Any) -> Any:
    """A cell on which two merge bases disagree gets the value of one of them."""
    return replace(neither, any_cell=None, any_row=None)


def trust_row_ids(descends_from: Callable[..., Any]) -> Callable[..., Any]:
    """Rows without a key are matched by row ids of tables that do not come from the base."""
    return lambda *_, **__: True


def reverse_columns(add_columns: Callable[..., Any]) -> Callable[..., Any]:
    """A merge adds several new columns in the wrong order."""

    def planted(version_ref: Any, columns: Any) -> Any:
        return add_columns(version_ref, pa.schema(list(columns)[::-1]) if isinstance(columns, pa.Schema) else columns)

    return planted


def ignore_column_ids(columns_by_id: Callable[..., Any]) -> Callable[..., Any]:
    """A renamed column is found only in data files that both versions have."""
    return lambda *_: {}


def keep_all_commits(newer_than: Callable[..., Any]) -> Callable[..., Any]:
    """Garbage collection takes every commit for a new one."""
    return lambda *_: lambda _: True


def forget_tags(iter_tagged: Callable[..., Any]) -> Callable[..., Any]:
    """Garbage collection does not keep the commits of tags."""
    return lambda *_: ()


BUGS: dict[str, tuple[str, str, Any, type[PairMachine]]] = {
    "a merge drops deletions": ("anabranch.format.staging", "replace_rows", drop_deletions, MergingMachine),
    "a merge loses a row": ("anabranch.format.staging", "replace_rows", lose_inserted_row, MergingMachine),
    "an undo goes too far": (
        "anabranch.repo.refs.reset_and_undo",
        "_position_before",
        undo_two_movements,
        RepositoryMachine,
    ),
    "a live branch is stale": ("anabranch.repo.log.repo_store", "find_main", show_older_main, MergingMachine),
    "a rebase loses a commit": (
        "anabranch.repo.merge.cherry_pick_and_rebase",
        "iter_own_commits",
        lose_last_commit,
        MergingMachine,
    ),
    "a run loses rows": ("anabranch.repo.merge.run_publish", "append_again", lose_appended_rows, RepositoryMachine),
    "reused row ids match": ("anabranch.repo.merge.matched_table", "descends_from", trust_row_ids, MergingMachine),
    "columns are reversed": ("anabranch.format.staging", "add_columns", reverse_columns, MergingMachine),
    "renames are lost": ("anabranch.format.compare.difference", "columns_by_id", ignore_column_ids, MergingMachine),
    "gc keeps too much": ("anabranch.repo.gc.roots", "_newer_than", keep_all_commits, RepositoryMachine),
    "gc forgets tags": ("anabranch.repo.gc.roots", "iter_tagged_since", forget_tags, RepositoryMachine),
    "one of two bases wins": ("anabranch.repo.merge.merge", "_NEITHER", prefer_one_base, MergingMachine),
}


class DirectedMachine(KeepingMachine):
    """Makes given steps instead of drawn ones, and compares as the random histories do."""

    def commit(self, branch: str, *operations: Operation) -> None:
        one = self._begin(self.handles[0], branch)
        for operation in operations:
            self._both(partial(operation.do, one.real), partial(operation.do, one.model))
        self._end(one, "publish")

    def fork(self, name: str) -> None:
        self.handles[0].repo.branch_create(name)
        self.model.branch_create_from("main", name)


def rows(*ids: int) -> tuple[Row, ...]:
    return tuple({"id": number, "m": number} for number in ids)


def replace_table_without_key(machine: DirectedMachine) -> None:
    """One side replaces a table without a key by another. Its first rows have the same row ids."""
    machine.commit("main", ops.create("s.b", ("id", "m"), ()), ops.append("s.b", ("id", "m"), rows(0, 1, 2)))
    machine.fork("dev")
    machine.commit("dev", ops.rename("s.b", "t.c"))
    machine.commit("dev", ops.create("s.b", ("id", "m"), ()), ops.append("s.b", ("id", "m"), rows(7, 8, 9)))
    machine.commit("dev", ops.drop("t.c"))
    machine.commit("main", ops.append("s.b", ("id", "m"), rows(3)))
    machine._merge_branch(0, "dev", "main", "fail")


def add_two_columns(machine: DirectedMachine) -> None:
    """One side adds two columns, the other one changes rows, so that the columns are merged and not copied."""
    machine.commit("main", ops.create("s.a", ("id", "m"), ("id",)), ops.append("s.a", ("id", "m"), rows(0, 1, 2)))
    machine.fork("dev")
    machine.commit("dev", ops.add_column("s.a", "n", Formula(1)), ops.add_column("s.a", "t", Formula("x")))
    machine.commit("main", ops.update("s.a", "m", Formula(5), Below(1)))
    machine._merge_branch(0, "dev", "main", "fail")


def rename_column_and_overwrite(machine: DirectedMachine) -> None:
    """One side renames a column and writes all rows again, the other one changes a value of the column."""
    machine.commit("main", ops.create("s.a", ("id", "m"), ("id",)), ops.append("s.a", ("id", "m"), rows(0, 1, 2)))
    machine.fork("dev")
    renamed = [{"id": row["id"], "n": row["m"]} for row in rows(0, 1, 2)]
    machine.commit("dev", ops.rename_column("s.a", "m", "n"), ops.overwrite("s.a", ("id", "n"), renamed))
    machine.commit("main", ops.update("s.a", "m", Formula(5), Below(1)))
    machine._merge_branch(0, "dev", "main", "fail")


def collect_tagged_commit(machine: DirectedMachine) -> None:
    """A commit that only a tag needs survives a garbage collection, and an older one does not."""
    repo = machine.handles[0].repo
    machine.commit("main", ops.create("s.a", ("id", "m"), ("id",)), ops.append("s.a", ("id", "m"), rows(0)))
    machine.commit("main", ops.append("s.a", ("id", "m"), rows(1)))
    machine._both(lambda: repo.tag_create("v1", ref="main"), lambda: machine.model.tag_create("v1", "main"))
    machine.commit("main", ops.append("s.a", ("id", "m"), rows(2)))
    machine.commit("main", ops.append("s.a", ("id", "m"), rows(3)))
    machine._pass_time(repo)
    machine._collect(repo, 1, None, machine.model.find_unneeded(1))
    assert machine.model.collected


def collect_old_commits(machine: DirectedMachine) -> None:
    """A commit that nothing needs is collected when its grace period has passed."""
    repo = machine.handles[0].repo
    machine.commit("main", ops.create("s.a", ("id", "m"), ("id",)), ops.append("s.a", ("id", "m"), rows(0)))
    machine.commit("main", ops.overwrite("s.a", ("id", "m"), rows(1)))
    machine.commit("main", ops.overwrite("s.a", ("id", "m"), rows(2)))
    machine._pass_time(repo)
    machine._collect(repo, 1, None, machine.model.find_unneeded(1))
    assert machine.model.collected


def merge_crossed_branches(machine: DirectedMachine) -> None:
    """Two branches change one cell, and each keeps its own value when it merges the other: both are bases later."""
    machine.commit("main", ops.create("s.a", ("id", "m"), ("id",)), ops.append("s.a", ("id", "m"), rows(0, 1, 2)))
    machine.fork("dev")
    machine.commit("main", ops.update("s.a", "m", Formula(5), Below(1)))
    machine.commit("dev", ops.update("s.a", "m", Formula(6), Below(1)))
    before = machine.model.id_of(machine.model.head("main").commit)
    machine._merge_branch(0, "dev", "main", "target")
    machine._merge_branch(0, before, "dev", "target")
    machine._merge_branch(0, "dev", "main", "fail")
    machine._merge_branch(0, "main", "dev", "fail")


# Bugs that few random histories meet.
DIRECTED: dict[str, Callable[[DirectedMachine], None]] = {
    "reused row ids match": replace_table_without_key,
    "columns are reversed": add_two_columns,
    "renames are lost": rename_column_and_overwrite,
    "gc keeps too much": collect_old_commits,
    "gc forgets tags": collect_tagged_commit,
    "one of two bases wins": merge_crossed_branches,
}


def run_directed(history: Callable[[DirectedMachine], None]) -> None:
    @settings(max_examples=1, deadline=None, database=None, phases=[Phase.generate])
    @given(st.none())
    def run(_: None) -> None:
        machine = DirectedMachine()
        try:
            history(machine)
            machine.branches_agree()
        finally:
            machine.teardown()

    run()


@pytest.mark.parametrize("bug", DIRECTED)
def test_directed_history_finds_its_bug_and_passes_without_it(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_directed(DIRECTED[bug])
    plant_bug(bug, monkeypatch)
    with pytest.raises(FOUND):
        run_directed(DIRECTED[bug])


def plant_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, plant, _ = BUGS[bug]
    owner = importlib.import_module(module)
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))


def test_planted_bugs_are_in_code_that_exists() -> None:
    for module, name, _, _ in BUGS.values():
        assert hasattr(importlib.import_module(module), name)


def run_random(machine: type[PairMachine]) -> None:
    profile = settings(
        max_examples=HISTORIES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for number in SEEDS:
        run_state_machine_as_test(seed(number)(type("PlantedMachine", (machine,), {})), settings=profile)


@pytest.mark.proof
@pytest.mark.parametrize("machine", [MergingMachine, RepositoryMachine])
def test_random_histories_pass_without_a_bug(machine: type[PairMachine]) -> None:
    """Otherwise they would find any bug, also one that they cannot see."""
    run_random(machine)


@pytest.mark.proof
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in DIRECTED])
def test_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_bug(bug, monkeypatch)
    with pytest.raises(FOUND):
        run_random(BUGS[bug][3])
