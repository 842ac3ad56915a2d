"""Movements and merges of branches."""

from collections.abc import Sequence
from functools import partial

import hypothesis.strategies as st
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.repo.snapshot import Snapshot
from tests.model.history import ModelCommit
from tests.model.strategies import branch_names, close_changes, refs, table_keys
from tests.model.table_merge import Strategy
from tests.repo.machines.counting import note, step
from tests.repo.machines.pair import HANDLES
from tests.repo.machines.working import WorkingMachine


class MergingMachine(WorkingMachine):
    """Few kinds of changes, so that many of them are merged."""

    begins_with_runs = False

    @step(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """Publish a transaction that often conflicts with others."""
        handle = self.handles[data.draw(st.integers(0, HANDLES - 1), label="number")]
        one = self._begin(handle, data.draw(st.sampled_from(self.model.branches)))
        for _ in range(data.draw(st.integers(1, 3))):
            self._operate(one, data, close_changes)
        self._end(one, "publish")

    @step(data=st.data(), number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_create(self, data: st.DataObject, number: int, name: str) -> None:
        mode = data.draw(st.sampled_from(["pinned", "live"]))
        source = data.draw(st.one_of(st.just("main"), refs(self.model)) if mode == "live" else refs(self.model))
        repo = self.handles[number].repo
        made = self._both(
            lambda: repo.branch_create_from(source, name, mode=mode),
            lambda: self.model.branch_create_from(source, name, is_live=mode == "live"),
        )
        self._record(repo, name, made)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1), key=table_keys())
    def branch_pull(self, data: st.DataObject, number: int, key: str) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_pull(name, key), lambda: self.model.branch_pull(name, key))

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_freeze(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        self._move(number, name, lambda repo: repo.branch_freeze(name), lambda: self.model.branch_freeze(name))

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reset(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        own = st.builds(f"{name}@v{{}}".format, st.integers(1, len(self.model.logs.get(name, "1"))))
        ref = data.draw(st.one_of(own, refs(self.model)), label="to")
        self._move(number, name, lambda repo: repo.reset(name, to=ref), lambda: self.model.reset(name, ref))

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def revert(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        ref = data.draw(st.one_of(st.just(name), refs(self.model)), label="commit")
        self._merge(
            number,
            name,
            lambda repo: repo.revert(ref, branch=name),
            lambda: self.model.revert(ref, name),
        )

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def cherry_pick(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        ref = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="commit")
        self._merge(
            number,
            name,
            lambda repo: repo.cherry_pick(ref, branch=name),
            lambda: self.model.cherry_pick(ref, name),
        )

    # Merges

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def merge(self, data: st.DataObject, number: int) -> None:
        into = self._draw_branch(data)
        source = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="source")
        squash = data.draw(st.sampled_from([False, False, False, True]), label="squash")
        self._merge_branch(number, source, into, self._draw_strategy(data), squash=squash)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def merge_to_and_fro(self, data: st.DataObject, number: int) -> None:
        """Change two branches and merge each into the other: one after the other, or both as they were before.

        In the second case they have two merge bases from then on, and are merged again.
        """
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
        strategy = self._draw_strategy(data)
        self._merge_branch(number, other, one, strategy)
        self._merge_branch(number, source, other, strategy if is_crossed else self._draw_strategy(data))
        if is_crossed:
            self._merge_branch(number, one, other, self._draw_strategy(data))
        note("crossed" if is_crossed else "to and fro")

    def _draw_strategy(self, data: st.DataObject) -> Strategy:
        return data.draw(st.sampled_from(["fail", "fail", "source", "target"]), label="strategy")

    def _merge_branch(self, number: int, source: str, into: str, strategy: Strategy, *, squash: bool = False) -> None:
        """Make a dry run of a merge, then the merge, which must come to the same."""
        predict = partial(self.model.merge, source, into, strategy=strategy, squash=squash)
        if self._predict(predict) is None:
            return
        repo = self.handles[number].repo
        try:
            plan = repo.merge(source, into=into, strategy=strategy, squash=squash, dry_run=True).plan
            assert sum(1 for _ in repo.conflicts(source, into=into, strategy=strategy)) == plan.conflict_count
        except AnabranchError:
            plan = None

        def merge(repo: ab.Repository) -> None:
            if plan is not None and not plan.is_clean:
                with pytest.raises(MergeConflictError) as caught:
                    repo.merge(source, into=into, strategy=strategy, squash=squash)
                assert caught.value.count == plan.conflict_count
                raise caught.value
            result = repo.merge(source, into=into, strategy=strategy, squash=squash)
            assert result.plan == plan
            note(f"merged: {result.outcome}, {strategy}")

        self._merge(number, into, merge, predict)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def rebase(self, data: st.DataObject, number: int) -> None:
        name = self._draw_branch(data)
        onto = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="onto")
        prediction = self._predict(lambda: self.model.rebase(name, onto))
        if prediction is None:
            return
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        commits: list[ab.GraphCommit] = []
        made = self._both_as_predicted(
            lambda: commits.extend(handle.repo.rebase(name, onto=onto).commits),
            prediction,
            lambda: self._origins_of(handle.repo, commits),
        )
        self._has_rebased(made or (), commits)
        self._after_move(handle, name, None, before)

    def _origins_of(self, repo: ab.Repository, commits: Sequence[ab.GraphCommit]) -> dict[ModelCommit | None, Snapshot]:
        """Return the snapshots of rebased commits, by the commits that were applied again."""
        return {
            self.model.commits[commit.metadata["rebased_from"]]: repo.snapshot_of(commit.graph_commit_id)
            for commit in commits
        }

    def _has_rebased(self, made: Sequence[ModelCommit], commits: Sequence[ab.GraphCommit]) -> None:
        for expected, commit in zip(made, commits, strict=True):
            self.model.commits[commit.graph_commit_id] = expected
