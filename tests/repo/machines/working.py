"""Transactions and runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import initialize

import anabranch as ab
from anabranch.errors import CheckFailedError, WriteConflictError
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from tests.model.history import ModelCommit, ModelEntry, ModelTransaction
from tests.model.invariants import check_branch, check_run, check_snapshot, check_table
from tests.model.operations import Operation, append, create
from tests.model.outcome import Prediction, Result
from tests.model.runs import ModelRun
from tests.model.strategies import appends, operations
from tests.model.table import ModelTable
from tests.repo.machines.counting import note
from tests.repo.machines.pair import Handle, Open, PairMachine

# Draws operations for tables with these columns.
Source = Callable[[Mapping[str, Sequence[str]]], st.SearchStrategy[Operation]]


class PurposeError(Exception):
    """Raised inside a transaction to end it."""


class WorkingMachine(PairMachine):
    """A repository with two tables and two branches to begin with."""

    begins_with_runs: ClassVar[bool] = True

    @initialize(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        """Create two tables and a branch of each kind, so that most steps are changes to them."""
        one = self._begin(self.handles[0], "main")
        ids = range(data.draw(st.sampled_from([0, 5]), label="rows"))
        for operation in (
            create("s.a", ("id", "n", "s"), ("id",)),
            create("s.b", ("id", "m"), ()),
            append("s.a", ("id", "n"), tuple({"id": number, "n": number} for number in ids)),
            append("s.b", ("id",), tuple({"id": number} for number in ids)),
        ):
            operation.do(one.real)
            operation.do(one.model)
        for _ in range(4 if self.begins_with_runs else 1):
            self._operate(one, data)
        self._end(one, "publish")
        for name, mode in (("dev", "pinned"), ("fix", "live")):
            self.handles[0].repo.branch_create_from("main", name, mode=mode)
            self.model.branch_create_from("main", name, is_live=mode == "live")
        if self.begins_with_runs and data.draw(st.booleans(), label="runs"):
            self._meet_in_runs(data)
        self.record_times()

    # Transactions

    def _begin(self, handle: Handle, branch: str) -> Open:
        one = Open(handle, handle.repo.transaction(branch), self.model.begin(branch))
        # A transaction that was read keeps its snapshot. Otherwise it may take a new one at its first write.
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
        self._both(lambda: operation.do(one.real), lambda: operation.do(one.model))
        note(operation.method)
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
            assert one.real.published is None
            return
        assert one.real.published is not None
        commit_id = one.real.published.graph_commit_id
        if one.run is not None:
            self._has_stepped(one, one.run, commit_id)
            return
        self.model.commits[commit_id] = made
        self.transacted.add(made)
        note("published late" if made.parent is not one.model.base.commit else "published")
        self._has_moved(one.handle, made.branch)
        assert one.handle.repo.external_writes == ()
        check_branch(one.handle.repo, self.model, made.branch)

    def _publish(self, one: Open) -> ModelCommit | None:
        """Publish here and there. If `_may_conflict`, a WriteConflictError is right, too, and nothing changes."""
        log = self._log(one.model)
        before = log[:]
        may_conflict = before[-1] is not one.model.base and self._may_conflict(one)
        try:
            made: ModelCommit | None = self._both(one.real.commit, lambda: self.model.publish(one.model))
        except WriteConflictError:
            if not may_conflict:
                raise
            note("conflict because of files")
            log[:] = before
            return None
        return made

    def _log(self, tx: ModelTransaction) -> list[ModelEntry]:
        run = self.model.runs.get(tx.branch)
        return self.model.logs[tx.branch] if run is None else run.log

    def _may_conflict(self, one: Open) -> bool:
        """Return whether a transaction may be refused because of how the tables of the new head are in files.

        Another table may have the folder of a new one. A column may have been dropped and added again. A table may be
        in the home of another branch, for example after a pull or a reset.
        """
        tx, entry = one.model, self._log(one.model)[-1]
        head, tables = entry.commit, entry.commit.tables if tx.main is None else entry.shown_on(tx.main)
        taken = {table.dataset for key, table in tables.items() if key not in tx.drafts}
        if any(table is not None and table.dataset in taken for table in tx.drafts.values()):
            return True
        for key in tx.drafts:
            before, now = tx.ground.get(key), head.tables.get(key)
            if before is None or now is None or now is before:
                continue
            if now.shape is not before.shape or (
                tx.branch not in self.model.runs and not self._is_at_home(key, now, tx.branch)
            ):
                return True
        return False

    def _is_at_home(self, key: str, table: ModelTable, branch: str) -> bool:
        """Return whether a transaction on the branch wrote this state of a table."""
        return any(
            commit.branch == branch and key in commit.changed and commit.tables.get(key) is table
            for commit in self.transacted
        )

    def _fail(self, tx: ab.Transaction) -> None:
        try:
            with tx:
                raise PurposeError
        except PurposeError:
            assert tx.published is None

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
            self._publish_run(handle, handle.repo.run_get(run.id).publish, run)
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
        return known[data.draw(st.integers(0, len(known) - 1), label="run")] if known else None

    def _begin_run(self, repo: ab.Repository, target: str) -> ModelRun | None:
        begun: list[Run] = []
        model: ModelRun | None = self._both(
            lambda: begun.append(repo.begin_run(target)), lambda: self.model.begin_run(target)
        )
        if model is not None:
            model.id = begun[0].id
            self.model.runs[model.branch] = model
            self.runs[model] = begun[0]
            note(f"begun on a {'live' if model.below else 'pinned'} branch")
        return model

    def _has_stepped(self, one: Open, run: ModelRun, commit_id: str) -> None:
        run.commit_ids.append(commit_id)
        note("step of a run")
        check_run(one.handle.repo, self.model, run)

    def _fail_run(self, real: Run, model: ModelRun) -> None:
        try:
            with real:
                raise PurposeError
        except PurposeError:
            if not model.is_over:
                model.end(RunPhase.FAILED)

    def _check_and_refuse(self, real: Run, model: ModelRun) -> None:
        """Let a check refuse a run: nothing is published, and the run continues. Without changes there is no check."""
        prediction = self._predict(lambda: self.model.publish_run(model))
        if prediction is None:
            return
        seen: list[Snapshot] = []

        def refuse(snapshot: Snapshot) -> bool:
            seen.append(snapshot)
            return False

        def apply(result: Result) -> None:
            if result.changes:
                raise CheckFailedError("refused", hint="the model has no advice")
            prediction.apply(result)

        self._both_as_predicted(
            lambda: real.publish(checks=[refuse]),
            replace(prediction, apply=apply),
            lambda: {None: seen[0] if seen else self.handles[0].repo.snapshot_of(model.target)},
        )

    def _publish_run(self, handle: Handle, publish: Callable[..., object], model: ModelRun) -> None:
        prediction = self._predict(lambda: self.model.publish_run(model))
        if prediction is not None:
            self._publish_as_predicted(handle, publish, model, prediction)

    def _publish_as_predicted(
        self, handle: Handle, publish: Callable[..., object], model: ModelRun, prediction: Prediction[Any]
    ) -> None:
        before = self.model.logs[model.target][:]
        seen: list[Snapshot] = []
        made: ModelCommit | None = self._both_as_predicted(
            lambda: publish(checks=[seen.append]),
            prediction,
            lambda: {None: seen[0] if seen else handle.repo.snapshot_of(model.target)},
        )
        if made is None:
            return
        self.model.commits[self.handles[0].repo.head_commit_id_for_branch(model.target)] = made
        note("published a run" if before[-1].commit.tables is model.ground else "published a run late")
        self._has_moved(handle, model.target)
        assert handle.repo.external_writes == ()
        check_branch(handle.repo, self.model, model.target)
        for snapshot in seen:
            check_snapshot(snapshot, self.model, made)
