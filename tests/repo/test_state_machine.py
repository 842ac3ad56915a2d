"""Random histories, done to a repository and to its plain model at once: both must agree at every step."""

import os
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import event, settings
from hypothesis.stateful import rule

import anabranch as ab
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.ids import BranchName
from anabranch.repo.context import as_segment
from anabranch.repo.models import RunPhase
from anabranch.testing.invariants import (
    check_run,
    check_runs,
    check_snapshot,
)
from anabranch.testing.model import ModelCommit
from anabranch.testing.model_merge import Side
from anabranch.testing.strategies import BRANCHES, branch_names, close_changes, desired_schemas, refs, table_keys
from tests.repo.state_machine import HANDLES, Handle, PairMachine

_SIDES: dict[str, Side] = {"fail": None, "source-wins": "source", "dest-wins": "target"}


class MergingMachine(PairMachine):
    """Few kinds of changes, so that many merges meet."""

    begins_with_runs = False

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def change(self, data: st.DataObject, number: int) -> None:
        """A transaction that others are likely to cross."""
        one = self._begin(self.handles[number], data.draw(st.sampled_from(self.model.branches)))
        for _ in range(data.draw(st.integers(1, 3))):
            self._operate(one, data, close_changes)
        self._end(one, "publish")

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_create(self, data: st.DataObject, number: int, name: str) -> None:
        mode = data.draw(st.sampled_from(["pinned", "live"]))
        source = data.draw(st.one_of(st.just("main"), refs(self.model)) if mode == "live" else refs(self.model))
        repo = self.handles[number].repo
        made = self._both(
            lambda: repo.branch_create_from(source, name, mode=mode),
            lambda: self.model.branch_create_from(source, name, is_live=mode == "live"),
        )
        self._record(repo, name, made)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1), key=table_keys())
    def branch_pull(self, data: st.DataObject, number: int, key: str) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_pull(name, key), lambda: self.model.branch_pull(name, key))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_freeze(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_freeze(name), lambda: self.model.branch_freeze(name))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reset(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        own = st.builds(f"{name}@v{{}}".format, st.integers(1, len(self.model.logs.get(name, "1"))))
        ref = data.draw(st.one_of(own, refs(self.model)), label="to")
        self._move(number, name, lambda repo: repo.reset(name, to=ref), lambda: self.model.reset(name, ref))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def revert(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        ref = data.draw(st.one_of(st.just(name), refs(self.model)), label="commit")
        self._merge(
            number,
            name,
            lambda repo: repo.revert(ref, branch=name),
            lambda witness: self.model.revert(ref, name, witness),
        )

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def cherry_pick(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        ref = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="commit")
        self._merge(
            number,
            name,
            lambda repo: repo.cherry_pick(ref, branch=name),
            lambda witness: self.model.cherry_pick(ref, name, witness),
        )

    # Merges

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_merge(self, data: st.DataObject, number: int) -> None:
        into = self._draw_branch(data)
        source = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="source")
        squash = data.draw(st.sampled_from([False, False, False, True]), label="squash")
        self._merge_branch(number, source, into, self._draw_strategy(data), squash=squash)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def merge_to_and_fro(self, data: st.DataObject, number: int) -> None:
        """Two branches that both went on, merged into each other: one after the other, or both as they were."""
        if len(self.model.branches) == 1:
            return
        one, other = data.draw(
            st.lists(st.sampled_from(self.model.branches), min_size=2, max_size=2, unique=True), label="branches"
        )
        for name in (one, other):
            begun = self._begin(self.handles[number], name)
            for _ in range(data.draw(st.integers(1, 3))):
                self._operate(begun, data, close_changes)
            self._end(begun, "publish")
        is_crossed = data.draw(st.booleans(), label="crossed") and not self.model.head(one).is_live
        source = self.model.id_of(self.model.head(one).commit) if is_crossed else one
        self._merge_branch(number, other, one, self._draw_strategy(data))
        self._merge_branch(number, source, other, self._draw_strategy(data))
        event("crossed" if is_crossed else "to and fro")

    def _draw_strategy(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(["fail", "fail", "source-wins", "dest-wins"]), label="strategy")

    def _merge_branch(self, number: int, source: str, into: str, strategy: str, *, squash: bool = False) -> None:
        """Ask what a merge would come to, then see that it does."""
        repo = self.handles[number].repo
        try:
            plan = repo.branch_merge(source, into=into, strategy=strategy, squash=squash, dry_run=True).plan
            assert sum(1 for _ in repo.conflicts(source, into=into, strategy=strategy)) == plan.conflict_count
        except AnabranchError:
            plan = None

        def merge(repo: ab.Repository) -> None:
            if plan is not None and not plan.is_clean:
                with pytest.raises(MergeConflictError) as caught:
                    repo.branch_merge(source, into=into, strategy=strategy, squash=squash)
                assert caught.value.count == plan.conflict_count
                raise caught.value
            result = repo.branch_merge(source, into=into, strategy=strategy, squash=squash)
            assert result.plan == plan
            event(f"merged: {result.outcome}, {strategy}")

        self._merge(
            number,
            into,
            merge,
            lambda witness: self.model.branch_merge(source, into, witness, side=_SIDES[strategy], squash=squash),
        )

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def rebase(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        onto = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="onto")
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        commits: list[ab.GraphCommit] = []
        self._both_by_steps(
            lambda: commits.extend(handle.repo.rebase(name, onto=onto)),
            lambda witnesses: self._has_rebased(self.model.rebase(name, onto, witnesses), commits),
            lambda: [
                (commit.metadata["rebased_from"], handle.repo.snapshot_of(commit.graph_commit_id)) for commit in commits
            ],
        )
        self._after_move(handle, name, None, before)

    def _has_rebased(self, made: Sequence[ModelCommit], commits: Sequence[ab.GraphCommit]) -> None:
        for expected, commit in zip(made, commits, strict=True):
            self.model.commits[commit.graph_commit_id] = expected


class RepositoryMachine(MergingMachine):
    """Whatever can be done."""

    begins_with_runs = True

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
        if not self.model.exists(branch):
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

    # Runs

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_step(self, data: st.DataObject, number: int) -> None:
        """A transaction inside a run: a new one, or one that was begun by any handle."""
        model = self._draw_run(data, number, may_begin=True)
        if model is None:
            return
        ending = data.draw(st.sampled_from(["publish"] * 8 + ["raise", "drop", "stay"]), label="ending")
        self._step(data, self.handles[number], model, ending)

    @rule(data=st.data())
    def run_meet(self, data: st.DataObject) -> None:
        """Two runs on one branch, begun on the same head, and perhaps a commit beside them."""
        self._meet_in_runs(data)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_end(self, data: st.DataObject, number: int) -> None:
        model = self._draw_run(data, number, may_begin=False)
        if model is None:
            return
        handle = self.handles[number]
        real = handle.repo.run_get(model.id)
        ending = data.draw(st.sampled_from(["publish"] * 6 + ["check", "abort", "raise"]), label="ending")
        event(f"run: {ending}")
        if ending == "abort":
            self._both(real.abort, lambda: model.end(RunPhase.ABORTED))
        elif ending == "raise":
            self._fail_run(real, model)
        elif ending == "check":
            self._check_and_refuse(real, model)
        else:
            self._publish_run(handle, real, model)
        check_runs(handle.repo, self.model)
        check_run(handle.repo, self.model, model)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_lapse(self, data: st.DataObject, number: int) -> None:
        """The process of a run dies, and its last sign of life was long ago."""
        model = self._draw_run(data, number, may_begin=False)
        if model is None or not model.is_active:
            return
        self.runs[model] = self.handles[number].repo.run_get(model.id)
        os.utime(f"{self.folder}/lake/_leases/{as_segment(BranchName(model.target))}/{model.id}", (0, 0))
        model.is_alive = False
        check_runs(self.handles[number].repo, self.model)

    # Branches

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_protect(self, data: st.DataObject, number: int) -> None:
        """Protect a branch, and now and then leave it so."""
        name, repo = self._draw_branch(data), self.handles[number].repo
        protect = data.draw(st.sampled_from([True, False, False]), label="protect")
        change = repo.branch_protect if protect else repo.branch_unprotect
        before = len(self.model.logs.get(name, ()))
        self._both(lambda: change(name), lambda: self.model.branch_protect(name, protect=protect))
        if len(self.model.logs.get(name, ())) > before:
            self._has_moved(self.handles[number], name)

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_delete(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_delete(name), lambda: self.model.branch_delete(name))

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_restore(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_restore(name), lambda: self.model.branch_restore(name))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def schema_apply(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        shown = self.model.view(name).tables if self.model.exists(name) else {}
        desired = data.draw(desired_schemas(shown), label="desired")
        allow = data.draw(st.booleans(), label="allow destructive")
        document, before = desired.to_document(), len(self.model.logs.get(name, ()))
        self._move(
            number,
            name,
            lambda repo: repo.schema_apply(document, branch=name, allow_destructive=allow),
            lambda: self.model.schema_apply(name, desired, allow_destructive=allow),
        )
        if len(self.model.logs.get(name, ())) > before:
            event("schema applied")
            assert self.handles[0].repo.schema_plan(document, branch=name).is_empty

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name = self._draw_branch(data)
        fresh = self._reopened()  # one that has seen nothing takes back whatever was last
        self._both(lambda: fresh.undo(name), lambda: self.model.undo(name))

    # Handles

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def sync(self, data: st.DataObject, number: int) -> None:
        handle, branch = self.handles[number], data.draw(st.sampled_from(self.model.branches))
        handle.cached = self.model.view(branch)
        check_snapshot(handle.repo.sync_branch(branch), self.model, handle.cached)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reopen(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        self.handles[number] = Handle(self._reopened(branch))

    @rule(number=st.integers(0, HANDLES - 1))
    def look(self, number: int) -> None:
        """A cached snapshot shows what it showed, whatever happened since, unless it is of a live branch."""
        handle = self.handles[number]
        if handle.cached is None or handle.cached.is_live:
            branch = handle.repo.branch
            handle.cached = self._both(handle.repo.snapshot, lambda: self.model.view(branch)) or handle.cached
            if not self.model.exists(branch):
                return
        if handle.cached is not None:
            check_snapshot(handle.repo.snapshot(), self.model, handle.cached)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def travel(self, data: st.DataObject, number: int) -> None:
        ref = data.draw(refs(self.model))
        repo = self.handles[number].repo
        found = self._both(lambda: repo.snapshot_of(ref), lambda: self.model.resolve(ref))
        if found is not None:
            check_snapshot(repo.snapshot_of(ref), self.model, found)


# Both machines together take as long as the profile allows for one.
_ALL = settings().max_examples
_IS_QUICK = _ALL < 100
MergingMachine.TestCase.settings = settings(
    max_examples=_ALL // 3 if _IS_QUICK else _ALL, stateful_step_count=12 if _IS_QUICK else 25
)
TestMergingMachine = MergingMachine.TestCase
RepositoryMachine.TestCase.settings = settings(
    max_examples=_ALL // 2 if _IS_QUICK else _ALL, stateful_step_count=20 if _IS_QUICK else 25
)
TestRepositoryMachine = RepositoryMachine.TestCase
