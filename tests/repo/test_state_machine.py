"""Random histories, done to a repository and to its plain model at once: both must agree at every step."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import event, settings
from hypothesis.stateful import invariant, rule

import anabranch as ab
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.testing.invariants import (
    check_branches,
    check_snapshot,
)
from anabranch.testing.model import ModelCommit
from anabranch.testing.model_merge import Side
from anabranch.testing.strategies import branch_names, desired_schemas, refs, table_keys
from tests.repo.state_machine import HANDLES, Handle, TransactionsMachine

_SIDES: dict[str, Side] = {"fail": None, "source-wins": "source", "dest-wins": "target"}


class RepositoryMachine(TransactionsMachine):
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

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_delete(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_delete(name), lambda: self.model.branch_delete(name))

    @rule(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_restore(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_restore(name), lambda: self.model.branch_restore(name))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1), key=table_keys())
    def branch_pull(self, data: st.DataObject, number: int, key: str) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_pull(name, key), lambda: self.model.branch_pull(name, key))

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_freeze(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_freeze(name), lambda: self.model.branch_freeze(name))

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

    # Back and forth

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

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name = self._draw_branch(data)
        fresh = ab.open(f"{self.folder}/lake")  # one that has seen nothing takes back whatever was last
        self._both(lambda: fresh.undo(name), lambda: self.model.undo(name))

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
        one, other = (data.draw(st.sampled_from(self.model.branches), label="branch") for _ in range(2))
        for name in (one, other):
            begun = self._begin(self.handles[number], name)
            for _ in range(data.draw(st.integers(0, 2))):
                self._operate(begun, data)
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

    # Handles

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def sync(self, data: st.DataObject, number: int) -> None:
        handle, branch = self.handles[number], data.draw(st.sampled_from(self.model.branches))
        handle.cached = self.model.view(branch)
        check_snapshot(handle.repo.sync_branch(branch), self.model, handle.cached)

    @rule(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reopen(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        self.handles[number] = Handle(ab.open(f"{self.folder}/lake", branch=branch))

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

    @invariant()
    def branches_agree(self) -> None:
        self.tell_times()
        check_branches(self.handles[0].repo, self.model)


RepositoryMachine.TestCase.settings = settings(stateful_step_count=25)
TestRepositoryMachine = RepositoryMachine.TestCase
