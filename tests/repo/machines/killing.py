"""Histories in which processes are killed: their step has happened or not, and other processes continue."""

import os
from collections.abc import Callable
from enum import Enum, auto
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError, BranchNotFoundError
from anabranch.ids import BranchName
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.refs.protection import LOCK
from anabranch.repo.repository import Repository
from tests.model.history import ModelCommit
from tests.model.invariants import check_present, check_run, check_runs
from tests.model.operations import Operation
from tests.model.outcome import Prediction
from tests.model.runs import ModelRun
from tests.model.strategies import (
    BRANCHES,
    TAGS,
    branch_names,
    close_changes,
    desired_schemas,
    operations,
    refs,
    table_keys,
)
from tests.processes import Program
from tests.repo.leases import expire
from tests.repo.machines.counting import note, step
from tests.repo.machines.whole import RepositoryMachine
from tests.repo.programs.doing import Call, Commit, Deed, PublishRun, as_text

# Short things pass few points, and others more than fifty.
_POINTS = st.one_of(*(st.integers(0, most) for most in (12, 30, 90)))
Expected = Callable[[], ModelCommit | None]


class _End(Enum):
    """How a step of a process ended that may have been killed."""

    BEFORE = auto()
    AFTER = auto()
    REFUSED = auto()


class KillingMachine(RepositoryMachine):
    """Starts other processes for some steps, and kills them by a real signal at some request or write."""

    process_pool: ClassVar[Program]

    @step(data=st.data())
    def killed_commit(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.model.branches), label="branch")
        tx, done = self.model.begin(branch), list[Operation]()
        for _ in range(data.draw(st.integers(1, 3))):
            draw_from = data.draw(st.sampled_from([operations, close_changes]))
            operation = data.draw(draw_from({key: table.columns for key, table in tx.tables.items()}))
            try:
                operation.do(tx)
            except AnabranchError:
                continue
            done.append(operation)
        if self.model.head(branch).is_protected:
            return
        made = self._survive(data, branch, Commit(branch=branch, operations=done), lambda: self.model.publish(tx))
        if made is not None:
            self.transacted.add(made)

    @step(data=st.data())
    def killed_merge(self, data: st.DataObject) -> None:
        name, ref = self._draw_branch(data), data.draw(refs(self.model), label="ref")
        strategy = self._draw_strategy(data)
        choices: list[tuple[Call, Callable[[], Prediction[Any]]]] = [
            (
                Call(method="merge", arguments={"source": ref, "into": name, "strategy": strategy}),
                lambda: self.model.merge(ref, name, strategy=strategy),
            ),
            (
                Call(method="revert", arguments={"commit": ref, "branch": name}),
                lambda: self.model.revert(ref, name),
            ),
            (
                Call(method="cherry_pick", arguments={"commit": ref, "branch": name}),
                lambda: self.model.cherry_pick(ref, name),
            ),
        ]
        deed, predict = data.draw(st.sampled_from(choices), label="merge")
        prediction = self._predict(predict)
        if prediction is not None:
            self._survive_as_predicted(data, name, deed, prediction)

    @step(data=st.data(), name=branch_names(), key=table_keys())
    def killed_movement(self, data: st.DataObject, name: str, key: str) -> None:
        ref = data.draw(refs(self.model), label="ref")
        named = {"name": name}
        deed, expected = data.draw(
            st.sampled_from(
                [
                    (
                        Call(method="branch_create_from", arguments={"source": ref, **named}),
                        lambda: self.model.branch_create_from(ref, name),
                    ),
                    (Call(method="branch_delete", arguments=named), lambda: self.model.branch_delete(name)),
                    (Call(method="branch_restore", arguments=named), lambda: self.model.branch_restore(name)),
                    (
                        Call(method="branch_pull", arguments={"table": key, **named}),
                        lambda: self.model.branch_pull(name, key),
                    ),
                    (Call(method="branch_freeze", arguments=named), lambda: self.model.branch_freeze(name)),
                    (
                        Call(method="reset", arguments={"branch": name, "to": ref}),
                        lambda: self.model.reset(name, ref),
                    ),
                    (Call(method="undo", arguments={"branch": name}), lambda: self.model.undo(name)),
                    (Call(method="redo", arguments={"branch": name}), lambda: self.model.redo(name)),
                    (
                        Call(method="branch_protect", arguments=named),
                        lambda: self.model.branch_protect(name, protect=True),
                    ),
                    (
                        Call(method="branch_unprotect", arguments=named),
                        lambda: self.model.branch_protect(name, protect=False),
                    ),
                ]
            ),
            label="movement",
        )
        self._survive(data, name, deed, expected)

    @step(data=st.data())
    def killed_schema(self, data: st.DataObject) -> None:
        name = self._draw_branch(data)
        desired = data.draw(desired_schemas(self.model.view(name).tables if self.model.exists(name) else {}))
        allow = data.draw(st.booleans(), label="allow destructive")
        reported = {"desired": desired.to_document(), "branch": name, "allow_destructive": allow}
        self._survive(
            data,
            name,
            Call(method="schema_apply", arguments=reported),
            lambda: self.model.schema_apply(name, desired, allow_destructive=allow),
        )
        expire(self.handles[0].repo, after=-10 * 86400, branch=str(LOCK))  # The lock of a killed process expires.

    @step(data=st.data())
    def killed_rebase(self, data: st.DataObject) -> None:
        """Kill a process during a rebase: all new commits are published, or none."""
        name = self._draw_branch(data)
        onto = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="onto")
        prediction = self._predict(lambda: self.model.rebase(name, onto))
        if prediction is None:
            return
        before = len(self.model.logs.get(name, []))
        fresh, end = self._send_and_look(data, Call(method="rebase", arguments={"branch": name, "onto": onto}))
        if end is not _End.BEFORE:
            commits: list[ab.GraphCommit] = []
            made = self._both_as_predicted(
                lambda: commits.extend(
                    self._rebased(fresh, name) if end is _End.AFTER else fresh.rebase(name, onto=onto).commits
                ),
                prediction,
                lambda: self._origins_of(fresh, commits),
            )
            self._has_rebased(made or (), commits)
            self._has_survived(fresh, name, before)

    def _rebased(self, fresh: Repository, name: str) -> list[ab.GraphCommit]:
        """Return the commits that a killed process made."""
        found = fresh.list_commits(name, limit=None)
        new = takewhile(lambda commit: commit.graph_commit_id not in self.model.commits, found)
        return list(new)[::-1]

    @step(data=st.data(), name=st.sampled_from(TAGS))
    def killed_tag(self, data: st.DataObject, name: str) -> None:
        ref = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="ref")
        create: Expected = lambda: self.model.tag_create(name, ref)  # noqa: E731 - as those beside it
        delete: Expected = lambda: self.model.tag_delete(name)  # noqa: E731
        if name in self.model.tags:
            self._survive(data, "main", Call(method="tag_delete", arguments={"name": name}), delete)
        else:
            self._survive(data, "main", Call(method="tag_create", arguments={"name": name, "ref": ref}), create)

    @step(data=st.data(), number=st.integers(0, 2))
    def killed_run(self, data: st.DataObject, number: int) -> None:
        """Kill a process that publishes a run. Then another process publishes it."""
        model = self._draw_run(data, number, may_begin=False)
        if model is None or model.is_over:
            return
        prediction = self._predict(lambda: self.model.publish_run(model))
        if prediction is None:
            return
        self._forget(lambda one: one.run is model)
        passed = self._send(data, PublishRun(run_id=model.id)).get("killed", [])
        handle = self.handles[number]
        fresh = self._reopened()
        run = fresh.run_get(model.id)
        is_done = run.info().state is RunPhase.PUBLISHED
        note("published before the end" if is_done else "published by another one")
        # A process that was killed after the log entry has not settled the tables.
        publish = (lambda **_: self._settle(fresh, model.target)) if is_done else run.publish
        self._publish_as_predicted(handle, publish, model, prediction)
        if not model.is_over:
            puts = sum(point.startswith("after put_if_absent _runs/") for point in passed)
            self._abort_for_dead(model, is_publishing=puts == 1)  # A second entry records that it has stopped.
        check_runs(handle.repo, self.model)
        check_run(handle.repo, self.model, model)

    def _abort_for_dead(self, model: ModelRun, *, is_publishing: bool) -> None:
        """Abort a run that cannot be published. Its lease must expire first, as a publisher may still be in flight.

        A publisher that was killed is fenced off by an entry of the target, unless the target is protected.
        """
        self._lapse(model)
        self._reopened().run_get(model.id).abort()
        model.end(RunPhase.ABORTED)
        if is_publishing and not self.model.head(model.target).is_protected:
            self.model.stop_publishing(model.target)
            note("stopped publishing")
        self.record_times()

    @step(data=st.data())
    def killed_gc(self, data: st.DataObject) -> None:
        """Kill a garbage collection. The next one completes it."""
        keep_last = data.draw(st.sampled_from([None, 1, 2]), label="keep last")
        if "killed" not in self._send(data, Call(method="gc", arguments={"keep_last": keep_last})):
            note("survived")
        self._forget(lambda _: True)
        expire(self.handles[0].repo, after=-10 * 86400)
        for run in self.model.runs.values():
            run.is_alive = False
        fresh = self._reopened()
        assert fresh.gc(keep_last=keep_last).damaged == ()
        self._has_ended_runs({info.id for info in fresh.run_list(limit=None) if info.state is RunPhase.FAILED})
        self._collected(self._find_collected(), self.model.find_kept(keep_last))
        check_runs(fresh, self.model)

    @step(data=st.data(), name=branch_names())
    def killed_purge(self, data: st.DataObject, name: str) -> None:
        """Kill a purge. It can be repeated."""
        if not self.model.exists(name):
            return
        self._forget(lambda one: name in (one.model.branch, one.run.target if one.run else None))
        self._abort_runs_for(name)
        deed = Call(method="branch_delete", arguments={"name": name, "purge": True})
        self._survive(data, name, deed, lambda: self.model.branch_delete(name))
        if not self.model.exists(name):
            try:
                self._reopened().branch_delete(name, purge=True)
            except BranchNotFoundError:
                note("nothing to purge")
            self._has_purged(name)

    # The state after a kill

    def _send(self, data: st.DataObject, deed: Deed) -> dict[str, Any]:
        """Let another process do a step, and kill it at a drawn point, if it gets that far."""
        fatal = data.draw(_POINTS, label="fatal point")
        before = self._list_leases()
        answer: dict[str, Any] = self.process_pool.ask("do", uri=self.uri, deed=as_text(deed), fatal=fatal)
        assert "error" not in answer, answer["error"]
        if "killed" in answer:
            assert len(answer["killed"]) == fatal + 1
            note("killed")
            # The leases of the killed process expire: until then garbage collection and purges keep what it read.
            for path in self._list_leases() - before:
                os.utime(path, (0, 0))
        return answer

    def _list_leases(self) -> set[Path]:
        return {path for path in Path(self.uri, "_leases").rglob("*") if path.is_file()}

    def _send_and_look(self, data: st.DataObject, deed: Deed) -> tuple[Repository, _End]:
        """Kill a process during a step, and read whether the step has happened. A refused step is repeated later."""
        answer, fresh = self._send(data, deed), self._reopened()
        has_happened = "points" in answer.get("done", {}) or self._has_changed(fresh)
        if "killed" in answer and not has_happened:
            note("killed before it happened")
            check_present(fresh, self.model)
            return fresh, _End.BEFORE
        note("killed after it happened" if "killed" in answer else "survived")
        return fresh, _End.AFTER if has_happened else _End.REFUSED

    def _survive(self, data: st.DataObject, name: str, deed: Deed, expected: Expected) -> ModelCommit | None:
        """Kill a process during a step that has one right answer: it has happened as a whole, or not at all."""
        before = len(self.model.logs.get(name, []))
        fresh, end = self._send_and_look(data, deed)
        if end is _End.BEFORE:
            return None
        made: ModelCommit | None = self._both(
            (lambda: None) if end is _End.AFTER else (lambda: deed.do(fresh)), expected
        )
        self._record(fresh, name, made)
        self._has_survived(fresh, name, before)
        return made

    def _survive_as_predicted(self, data: st.DataObject, name: str, deed: Deed, prediction: Prediction[Any]) -> None:
        before = len(self.model.logs.get(name, []))
        fresh, end = self._send_and_look(data, deed)
        if end is not _End.BEFORE:
            made: ModelCommit | None = self._both_as_predicted(
                (lambda: None) if end is _End.AFTER else (lambda: deed.do(fresh)),
                prediction,
                lambda: {None: fresh.snapshot_of(name)},
            )
            self._record(fresh, name, made)
            self._has_survived(fresh, name, before)

    def _has_survived(self, fresh: Repository, name: str, before: int) -> None:
        if len(self.model.logs.get(name, [])) > before and self.model.exists(name):
            self._settle(fresh, name)
        self.record_times()
        check_present(fresh, self.model)

    def _settle(self, fresh: Repository, name: str) -> None:
        """Settle the tables that a killed process has published."""
        for key in fresh.snapshot_of(name):
            fresh.settle(key, branch=name)

    def _has_changed(self, fresh: Repository) -> bool:
        newest = {name: testing.repo_store_of(fresh).heads.find(BranchName(name)) for name in ("main", *BRANCHES)}
        lengths = {name: entry.number for name, entry in newest.items() if entry is not None}
        tags = {tag.name: tag.commit_id for tag in fresh.tag_list()}
        known = {name: self.model.id_of(commit) for name, commit in self.model.tags.items()}
        return lengths != {name: len(log) for name, log in self.model.logs.items()} or tags != known

    def _find_collected(self) -> set[ModelCommit]:
        fresh = self._reopened()
        left = [(found, commit) for found, commit in self.model.commits.items() if commit not in self.model.collected]
        return {
            commit for found, commit in left if testing.repo_store_of(fresh).commits.get(found).collected_at is not None
        }
