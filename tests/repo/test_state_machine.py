"""Random histories, done to a repository and to its plain model at once: both must agree at every step."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import event, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import anabranch as ab
from anabranch.errors import AnabranchError, WriteConflictError
from anabranch.testing.invariants import check_branch, check_branches, check_everything, check_snapshot, check_table
from anabranch.testing.model import ModelCommit, ModelRepository, ModelTransaction
from anabranch.testing.operations import Create, Operation
from anabranch.testing.strategies import BRANCHES, branch_names, operations, refs

HANDLES = 3


@dataclass(eq=False)
class Handle:
    """A repository object, and the commit that its cached snapshot must show; None if it has not looked yet."""

    repo: ab.Repository
    cached: ModelCommit | None = None


@dataclass(eq=False)
class Open:
    """A transaction that has begun, here and in the model."""

    handle: Handle
    real: ab.Transaction
    model: ModelTransaction
    creates: bool = False


class PurposeError(Exception):
    """Raised inside a transaction to end it."""


class RepositoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="anabranch-machine-")
        first = ab.init(f"{self.folder}/lake", actor="ada")
        self.model = ModelRepository(first.head_commit_id_for_branch("main"))
        self.handles = [Handle(first), *(Handle(ab.open(first.uri)) for _ in range(HANDLES - 1))]
        self.open: list[Open] = []

    def teardown(self) -> None:
        try:
            check_everything(ab.open(f"{self.folder}/lake"), self.model)
            for handle in self.handles:
                check_everything(handle.repo, self.model)
        finally:
            shutil.rmtree(self.folder)

    @initialize(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        """Two tables to begin with, so that histories are about changes to them."""
        one = self._begin(self.handles[0], "main")
        for operation in (Create("s.a", ("id", "n", "s"), ("id",)), Create("s.b", ("id", "m"), ())):
            operation.do(one.real)
            operation.do_in_model(one.model)
        for _ in range(4):
            self._operate(one, data)
        self._end(one, "publish")

    # Transactions

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def transact(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        one = self._begin(self.handles[number], branch)
        for _ in range(data.draw(st.integers(1, 5))):
            self._operate(one, data)
        self._end(one, data.draw(st.sampled_from(["publish"] * 6 + ["raise", "drop"]), label="ending"))

    @rule(data=st.data(), branch=st.sampled_from(["main", *BRANCHES]))
    def meet(self, data: st.DataObject, branch: str) -> None:
        """Two transactions on one branch, begun on the same head."""
        if not self.model.is_live(branch):
            return
        both = [self._begin(handle, branch) for handle in self.handles[:2]]
        for one in both:
            for _ in range(data.draw(st.integers(1, 2))):
                self._operate(one, data)
        for one in both:
            self._end(one, "publish")

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def go_on(self, data: st.DataObject, number: int) -> None:
        """Transactions that stay open while others come and go."""
        if len(self.open) < 3 and data.draw(st.booleans(), label="begin"):
            self.open.append(self._begin(self.handles[number], data.draw(st.sampled_from(self.model.branches))))
        if self.open:
            self._operate(data.draw(st.sampled_from(self.open)), data)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.open:
            one = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            self._end(one, data.draw(st.sampled_from(["publish"] * 6 + ["raise", "drop"]), label="ending"))

    def _begin(self, handle: Handle, branch: str) -> Open:
        one = Open(handle, handle.repo.transaction(branch), self.model.begin(branch))
        # Whoever has read keeps to the snapshot of the beginning; others may begin anew with their first write.
        assert one.real.tables == tuple(sorted(one.model.tables))
        return one

    def _operate(self, one: Open, data: st.DataObject) -> None:
        operation: Operation = data.draw(
            operations({key: table.columns for key, table in one.model.tables.items()}), label="operation"
        )
        self._both(lambda: operation.do(one.real), lambda: operation.do_in_model(one.model))
        event(type(operation).__name__)
        one.creates = one.creates or isinstance(operation, Create)
        assert one.real.tables == tuple(sorted(one.model.tables))
        if operation.key in one.model.tables:
            check_table(one.real[operation.key], one.model.tables[operation.key])

    def _end(self, one: Open, ending: str) -> None:
        if ending == "drop":
            return
        if ending == "raise":
            self._fail(one.real)
            return
        made = self._publish(one)
        if made is None:
            assert one.real.commit is None
            return
        assert one.real.commit is not None
        self.model.commits[one.real.commit.graph_commit_id] = made
        event("published late" if made.parent is not one.model.base.commit else "published")
        if one.handle.repo.branch == made.branch:
            one.handle.cached = made
        assert one.handle.repo.foreign_writes == ()
        check_branch(one.handle.repo, self.model, made.branch)

    def _publish(self, one: Open) -> ModelCommit | None:
        """Publish here and there.

        The model has no folders, which two tables may want at the same moment, and no field ids, which differ after
        columns went and came again: there a conflict may come that it does not foresee. Then nothing has happened.
        """
        before = self.model.logs[one.model.branch][:]
        may_conflict = before[-1] is not one.model.base and (one.creates or self._has_other_columns(one.model))
        try:
            made: ModelCommit | None = self._both(one.real.publish, lambda: self.model.publish(one.model))
        except WriteConflictError:
            if not may_conflict:
                raise
            self.model.logs[one.model.branch] = before
            return None
        return made

    def _has_other_columns(self, tx: ModelTransaction) -> bool:
        now = self.model.logs[tx.branch][-1].commit.tables
        before = tx.base.commit.tables
        return any(key in now and key in before and now[key].shape is not before[key].shape for key in tx.drafts)

    def _fail(self, tx: ab.Transaction) -> None:
        try:
            with tx:
                raise PurposeError
        except PurposeError:
            assert tx.commit is None

    # Branches

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_create(self, data: st.DataObject, number: int, name: str) -> None:
        source = data.draw(refs(self.model))
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_create_from(source, name), lambda: self.model.branch_create_from(source, name))

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_delete(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_delete(name), lambda: self.model.branch_delete(name))

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_restore(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_restore(name), lambda: self.model.branch_restore(name))

    # Handles

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def sync(self, data: st.DataObject, number: int) -> None:
        handle, branch = self.handles[number], data.draw(st.sampled_from(self.model.branches))
        handle.cached = self.model.head(branch).commit
        check_snapshot(handle.repo.sync_branch(branch), self.model, handle.cached)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reopen(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        self.handles[number] = Handle(ab.open(f"{self.folder}/lake", branch=branch))

    @rule(number=st.integers(0, HANDLES - 1))
    def look(self, number: int) -> None:
        """A cached snapshot shows what it showed, whatever happened since."""
        handle = self.handles[number]
        if handle.cached is None:
            branch = handle.repo.branch
            self._both(handle.repo.snapshot, lambda: self.model.head(branch))
            handle.cached = self.model.head(branch).commit if self.model.is_live(branch) else None
        if handle.cached is not None:
            check_snapshot(handle.repo.snapshot(), self.model, handle.cached)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def travel(self, data: st.DataObject, number: int) -> None:
        ref = data.draw(refs(self.model))
        repo = self.handles[number].repo
        found = self._both(lambda: repo.snapshot_of(ref), lambda: self.model.resolve(ref)[0])
        if found is not None:
            check_snapshot(repo.snapshot_of(ref), self.model, found)

    @invariant()
    def branches_agree(self) -> None:
        check_branches(self.handles[0].repo, self.model)

    def _both(self, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Do a thing here and there: both succeed, or both refuse with the same kind of error."""
        expected, refusal = None, None
        try:
            expected = model()
        except AnabranchError as err:
            refusal = type(err)
        if refusal is None:
            real()
        else:
            event(f"refused: {refusal.__name__}")
            with pytest.raises(refusal) as caught:
                real()
            assert caught.type is refusal
        return expected


RepositoryMachine.TestCase.settings = settings(stateful_step_count=30)
TestRepositoryMachine = RepositoryMachine.TestCase
