"""A machine that does things to a repository and to its plain model at once: transactions, runs, and how to do more."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import event
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

import anabranch as ab
from anabranch.errors import AnabranchError, CheckFailedError, WriteConflictError
from anabranch.repo.models import RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.snapshots import Snapshot
from anabranch.testing.invariants import (
    check_branch,
    check_branches,
    check_everything,
    check_run,
    check_runs,
    check_snapshot,
    check_table,
)
from anabranch.testing.model import ModelCommit, ModelEntry, ModelRepository, ModelRun, ModelTransaction, ModelView
from anabranch.testing.operations import Append, Create, Operation
from anabranch.testing.strategies import BRANCHES, appends, operations
from anabranch.testing.witness import RealEnd

HANDLES = 3
LEASE = timedelta(days=1)

# What can be drawn for tables with these columns.
Source = Callable[[Mapping[str, Sequence[str]]], st.SearchStrategy[Operation]]


@dataclass(eq=False)
class Handle:
    """A repository object, and what its cached snapshot must show; None if it has not looked yet."""

    repo: ab.Repository
    cached: ModelView | None = None


@dataclass(eq=False)
class Open:
    """A transaction that has begun, here and in the model."""

    handle: Handle
    real: ab.Transaction
    model: ModelTransaction
    creates: bool = False
    run: ModelRun | None = None


class PurposeError(Exception):
    """Raised inside a transaction to end it."""


class PairMachine(RuleBasedStateMachine):
    """A repository and its model; histories that do not begin with runs are all about what comes after."""

    begins_with_runs = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="anabranch-machine-")
        ab.init(f"{self.folder}/lake", actor="ada")
        self.handles = [Handle(self._reopened()) for _ in range(HANDLES)]
        self.model = ModelRepository(self.handles[0].repo.head_commit_id_for_branch("main"))
        self.open: list[Open] = []
        self.transacted: set[ModelCommit] = set()
        self.runs: dict[ModelRun, Run] = {}
        self.tell_times()

    def _reopened(self, branch: str = "main") -> Repository:
        """A handle that has seen nothing, whose signs of life never come while a history lasts."""
        context = ab.open(f"{self.folder}/lake", branch=branch, actor="ada")._context
        return Repository(replace(context, lease=LEASE), branch=branch)

    def teardown(self) -> None:
        try:
            check_everything(self._reopened(), self.model)
            for handle in self.handles:
                check_everything(handle.repo, self.model)
            for model, run in self.runs.items():
                if model.is_over:
                    continue
                self._both(run.abort, partial(model.end, RunPhase.ABORTED))
            check_runs(self.handles[0].repo, self.model)
        finally:
            self.runs.clear()
            shutil.rmtree(self.folder)

    @initialize(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        """Two tables and a branch of each kind to begin with, so that histories are about changes to them."""
        one = self._begin(self.handles[0], "main")
        ids = range(data.draw(st.sampled_from([0, 5]), label="rows"))
        for operation in (
            Create("s.a", ("id", "n", "s"), ("id",)),
            Create("s.b", ("id", "m"), ()),
            Append("s.a", ("id", "n"), tuple({"id": number, "n": number} for number in ids)),
            Append("s.b", ("id",), tuple({"id": number} for number in ids)),
        ):
            operation.do(one.real)
            operation.do_in_model(one.model)
        for _ in range(4 if self.begins_with_runs else 1):
            self._operate(one, data)
        self._end(one, "publish")
        for name, mode in (("dev", "pinned"), ("fix", "live")):
            self.handles[0].repo.branch_create_from("main", name, mode=mode)
            self.model.branch_create_from("main", name, is_live=mode == "live")
        if self.begins_with_runs and data.draw(st.booleans(), label="runs"):
            self._meet_in_runs(data)
        self.tell_times()

    # Transactions

    def _begin(self, handle: Handle, branch: str) -> Open:
        one = Open(handle, handle.repo.transaction(branch), self.model.begin(branch))
        # Whoever has read keeps to the snapshot of the beginning; others may begin anew with their first write.
        assert one.real.tables == tuple(sorted(one.model.tables))
        return one

    def _operate(
        self,
        one: Open,
        data: st.DataObject,
        draw_from: Source = operations,
    ) -> None:
        operation: Operation = data.draw(
            draw_from({key: table.columns for key, table in one.model.tables.items()}), label="operation"
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
        commit_id = one.real.commit.graph_commit_id
        if one.run is not None:
            self._has_stepped(one, one.run, commit_id)
            return
        self.model.commits[commit_id] = made
        self.transacted.add(made)
        event("published late" if made.parent is not one.model.base.commit else "published")
        self._has_moved(one.handle, made.branch)
        assert one.handle.repo.foreign_writes == ()
        check_branch(one.handle.repo, self.model, made.branch)

    def _publish(self, one: Open) -> ModelCommit | None:
        """Publish here and there.

        The model has no folders, which two tables may want at the same moment, and no field ids, which differ after
        columns went and came again: there a conflict may come that it does not foresee. Then nothing has happened.
        """
        log = self._log(one.model)
        before = log[:]
        moved = before[-1] is not one.model.base
        may_conflict = moved and (one.creates or self._has_other_columns(one.model) or self._was_put(one.model))
        try:
            made: ModelCommit | None = self._both(one.real.publish, lambda: self.model.publish(one.model))
        except WriteConflictError:
            if not may_conflict:
                raise
            log[:] = before
            return None
        return made

    def _log(self, tx: ModelTransaction) -> list[ModelEntry]:
        run = self.model.runs.get(tx.branch)
        return self.model.logs[tx.branch] if run is None else run.log

    def _has_other_columns(self, tx: ModelTransaction) -> bool:
        now = self._log(tx)[-1].commit.tables
        before = tx.ground
        return any(key in now and key in before and now[key].shape is not before[key].shape for key in tx.drafts)

    def _was_put(self, tx: ModelTransaction) -> bool:
        """Whether the branch was moved otherwise than by transactions, which may leave tables in homes of others."""
        if tx.branch in self.model.runs:
            return False
        log = self.model.logs[tx.branch]
        since = log[log.index(tx.base) + 1 :]
        return any(entry.commit not in self.transacted for entry in since)

    def _fail(self, tx: ab.Transaction) -> None:
        try:
            with tx:
                raise PurposeError
        except PurposeError:
            assert tx.commit is None

    # Runs

    def _meet_in_runs(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        begun = [self._begin_run(handle.repo, branch) for handle in self.handles[:2]]
        both = [(handle, run) for handle, run in zip(self.handles, begun, strict=False) if run is not None]
        draw_from = data.draw(st.sampled_from([operations, appends]), label="what they do")
        for handle, run in both:
            for _ in range(data.draw(st.integers(1, 2))):
                self._step(data, handle, run, "publish", draw_from)
        has_company: bool = data.draw(st.booleans(), label="beside")
        if both and has_company:
            one = self._begin(self.handles[2], branch)
            self._operate(one, data)
            self._end(one, "publish")
        for handle, run in both:
            self._publish_run(handle, handle.repo.run_get(run.id), run)
            check_run(handle.repo, self.model, run)

    def _step(
        self,
        data: st.DataObject,
        handle: Handle,
        model: ModelRun,
        ending: str,
        draw_from: Source = operations,
    ) -> None:
        real = self.runs[model] if data.draw(st.booleans(), label="same handle") else handle.repo.run_get(model.id)
        begun: ModelTransaction | None = self._both(real.transaction, model.begin)
        if begun is None:
            return
        one = Open(handle, real.transaction(), begun, run=model)
        assert one.real.tables == tuple(sorted(one.model.tables))
        for _ in range(data.draw(st.integers(1, 3))):
            self._operate(one, data, draw_from)
        if ending == "stay" and len(self.open) < 3:
            self.open.append(one)
        else:
            self._end(one, "drop" if ending == "stay" else ending)

    def _draw_run(self, data: st.DataObject, number: int, *, may_begin: bool) -> ModelRun | None:
        """A run, most often one that is not over; `may_begin` lets there be a new one."""
        active = [run for run in self.runs if not run.is_over]
        if may_begin and (not active or (len(active) < 3 and data.draw(st.booleans(), label="begin"))):
            return self._begin_run(self.handles[number].repo, self._draw_branch(data))
        known = [*active * 5, *self.runs]
        return data.draw(st.sampled_from(known), label="run") if known else None

    def _begin_run(self, repo: ab.Repository, target: str) -> ModelRun | None:
        begun: list[Run] = []
        model: ModelRun | None = self._both(
            lambda: begun.append(repo.begin_run(target)), lambda: self.model.begin_run(target)
        )
        if model is not None:
            model.id = begun[0].id
            self.model.runs[model.branch] = model
            self.runs[model] = begun[0]
            event(f"begun on a {'live' if model.saw else 'pinned'} branch")
        return model

    def _has_stepped(self, one: Open, run: ModelRun, commit_id: str) -> None:
        run.commit_ids.append(commit_id)
        event("step of a run")
        check_run(one.handle.repo, self.model, run)

    def _fail_run(self, real: Run, model: ModelRun) -> None:
        try:
            with real:
                raise PurposeError
        except PurposeError:
            if not model.is_over:
                model.end(RunPhase.FAILED)

    def _check_and_refuse(self, real: Run, model: ModelRun) -> None:
        """A check refuses what would be published; nothing happens, and the run goes on."""
        before = self.model.logs[model.target][:]

        def expected(witness: RealEnd) -> None:
            if self.model.publish_run(model, witness) is None:
                return
            self._take_back(model, before)
            raise CheckFailedError("refused", hint="the model has no advice")

        seen: list[Snapshot] = []

        def refuse(snapshot: Snapshot) -> bool:
            seen.append(snapshot)
            return False

        self._merge_both(lambda: real.publish(checks=[refuse]), expected, lambda: seen[0] if seen else None)

    def _publish_run(self, handle: Handle, real: Run, model: ModelRun) -> None:
        before = self.model.logs[model.target][:]
        seen: list[Snapshot] = []

        made: ModelCommit | None = self._merge_both(
            lambda: real.publish(checks=[seen.append]),
            lambda witness: self.model.publish_run(model, witness),
            lambda: seen[0] if seen else handle.repo.snapshot_of(model.target),
        )
        if made is None:
            return
        self.model.commits[self.handles[0].repo.head_commit_id_for_branch(model.target)] = made
        if made not in self.model.merged:
            self.transacted.add(made)
        event("published a run" if before[-1].commit.tables is model.ground else "published a run late")
        self._has_moved(handle, model.target)
        assert handle.repo.foreign_writes == ()
        check_branch(handle.repo, self.model, model.target)
        for snapshot in seen:
            check_snapshot(snapshot, self.model, made)

    def _take_back(self, run: ModelRun, before: list[ModelEntry]) -> None:
        """Let the model forget that it published a run."""
        self.model.logs[run.target][:] = before
        run.phase, run.is_alive, run.published_as = RunPhase.RUNNING, True, None

    # Both at once

    def _draw_branch(self, data: st.DataObject) -> str:
        """A branch, most often one that exists."""
        return data.draw(st.sampled_from([*self.model.branches * 3, *BRANCHES]), label="branch")

    def _move(self, number: int, name: str, real: Callable[[ab.Repository], Any], model: Callable[[], Any]) -> None:
        """Move a branch here and there."""
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        made = self._both(lambda: real(handle.repo), model)
        self._after_move(handle, name, made, before)

    def _merge(
        self, number: int, name: str, real: Callable[[ab.Repository], Any], model: Callable[[RealEnd], Any]
    ) -> None:
        """Merge something into a branch here and there."""
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        made = self._merge_both(lambda: real(handle.repo), model, lambda: handle.repo.snapshot_of(name))
        self._after_move(handle, name, made, before)

    def _after_move(self, handle: Handle, name: str, made: ModelCommit | None, before: int) -> None:
        self._record(handle.repo, name, made)
        if len(self.model.logs.get(name, [])) > before:
            event("moved")
            self._has_moved(handle, name)
            check_branch(handle.repo, self.model, name)

    def _merge_both(
        self, real: Callable[[], Any], model: Callable[[RealEnd], Any], look: Callable[[], Snapshot | None]
    ) -> Any:
        """Merge here, then there, where it may come to the same: `look` finds out to what it came."""
        return self._both_with_end(real, model, lambda error: RealEnd.of(error, look, self.model.verified))

    def _both_by_steps(
        self,
        real: Callable[[], Any],
        model: Callable[[Callable[[ModelCommit], RealEnd]], Any],
        look: Callable[[], list[tuple[str, Snapshot]]],
    ) -> Any:
        """The same for what makes several commits again; `look` finds out to what each came, by the id it had.

        One of which nothing came has left all as it was.
        """

        def end_of(error: AnabranchError | None) -> Callable[[ModelCommit], RealEnd]:
            steps = dict(look()) if error is None else {}
            return lambda commit: RealEnd.of(error, lambda: steps.get(self.model.id_of(commit)), self.model.verified)

        return self._both_with_end(real, model, end_of)

    def _both_with_end(
        self, real: Callable[[], Any], model: Callable[[Any], Any], end_of: Callable[[AnabranchError | None], Any]
    ) -> Any:
        """Do a thing here, then there, knowing how it ended.

        The model has no folders; a table that comes may find its own taken by another one. Then nothing has happened.
        """
        error: AnabranchError | None = None
        try:
            real()
        except AnabranchError as err:
            error = err
        if isinstance(error, WriteConflictError) and "the place of" in error.problem:
            event("the place was taken")
            return None
        end = end_of(error)

        def again() -> None:
            if error is not None:
                raise error

        return self._both(again, lambda: model(end))

    def _record(self, repo: ab.Repository, name: str, made: ModelCommit | None) -> None:
        if made is not None:
            self.model.commits[repo.head_commit_id_for_branch(name)] = made

    def _has_moved(self, handle: Handle, branch: str) -> None:
        if handle.repo.branch == branch:
            handle.cached = self.model.view(branch)

    def tell_times(self) -> None:
        """Let the model know when each movement was."""
        for name, log in self.model.logs.items():
            known = self.model.times.setdefault(name, [])
            new = self.handles[0].repo.reflog(name, limit=len(log) - len(known))
            known.extend(move.at for move in reversed(new))

    @invariant()
    def branches_agree(self) -> None:
        self.tell_times()
        check_branches(self.handles[0].repo, self.model)

    def _both(self, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Do a thing here and there: both succeed, or both refuse with the same kind of error."""
        expected: Any = None
        refusal: AnabranchError | None = None
        try:
            expected = model()
        except AnabranchError as err:
            refusal = err
        if refusal is None:
            real()
            return expected
        event(f"refused: {type(refusal).__name__}")
        try:
            real()
        except AnabranchError as err:
            assert type(err) is type(refusal), f"{err} instead of {refusal}"  # noqa: PT017 - which of all it is
            return None
        pytest.fail(f"nothing was refused, though {refusal}")
