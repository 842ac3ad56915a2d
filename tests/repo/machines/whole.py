"""All steps of a history."""

import os
from contextlib import suppress

import hypothesis.strategies as st

from anabranch.errors import CollectedError
from anabranch.ids import BranchName
from anabranch.repo.log.entries import RunPhase
from tests.model.history import ModelView
from tests.model.invariants import check_ref, check_run, check_runs, check_snapshot
from tests.model.runs import ModelRun
from tests.model.strategies import BRANCHES, branch_names, desired_schemas, refs
from tests.repo.machines.counting import note, step
from tests.repo.machines.keeping import KeepingMachine
from tests.repo.machines.pair import HANDLES, Handle


class RepositoryMachine(KeepingMachine):
    """Histories of all kinds of steps."""

    begins_with_runs = True

    # Transactions

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def transact(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        one = self._begin(self.handles[number], branch)
        for _ in range(data.draw(st.integers(1, 5))):
            self._operate(one, data)
        self._end(one, data.draw(st.sampled_from(["publish"] * 6 + ["raise", "drop"]), label="ending"))

    @step(data=st.data(), branch=st.sampled_from(["main", *BRANCHES]))
    def meet(self, data: st.DataObject, branch: str) -> None:
        """Publish two transactions on one branch that began on the same head."""
        if not self.model.exists(branch):
            return
        both = [self._begin(handle, branch) for handle in self.handles[:2]]
        for one in both:
            for _ in range(data.draw(st.integers(1, 2))):
                self._operate(one, data)
        for one in both:
            self._end(one, "publish")

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def resume(self, data: st.DataObject, number: int) -> None:
        """Continue a transaction that stays open while others are published."""
        if len(self.open) < 3 and data.draw(st.booleans(), label="begin"):
            self.open.append(self._begin(self.handles[number], data.draw(st.sampled_from(self.model.branches))))
        if self.open:
            self._operate(data.draw(st.sampled_from(self.open)), data)

    @step(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.open:
            one = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            self._end(one, data.draw(st.sampled_from(["publish"] * 6 + ["raise", "drop"]), label="ending"))

    # Runs

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_step(self, data: st.DataObject, number: int) -> None:
        """Publish a transaction in a run, which may have been started by another handle."""
        model = self._draw_run(data, number, may_begin=True)
        if model is None:
            return
        ending = data.draw(st.sampled_from(["publish"] * 8 + ["raise", "drop", "stay"]), label="ending")
        self._step(data, self.handles[number], model, ending)

    @step(data=st.data())
    def run_meet(self, data: st.DataObject) -> None:
        """Publish two runs on one branch that began on the same head, perhaps with a commit between."""
        self._meet_in_runs(data)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_end(self, data: st.DataObject, number: int) -> None:
        model = self._draw_run(data, number, may_begin=False)
        if model is None:
            return
        handle = self.handles[number]
        real = handle.repo.run_get(model.id)
        ending = data.draw(st.sampled_from(["publish"] * 6 + ["check", "abort", "raise"]), label="ending")
        note(f"run: {ending}")
        if ending == "abort":
            self._both(real.abort, lambda: model.end(RunPhase.ABORTED))
        elif ending == "raise":
            self._fail_run(real, model)
        elif ending == "check":
            self._check_and_refuse(real, model)
        else:
            self._publish_run(handle, real.publish, model)
        check_runs(handle.repo, self.model)
        check_run(handle.repo, self.model, model)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def run_lapse(self, data: st.DataObject, number: int) -> None:
        """Let the lease of a run expire."""
        model = self._draw_run(data, number, may_begin=False)
        if model is None or not model.is_active or not self.is_local:
            return
        self.runs[model] = self.handles[number].repo.run_get(model.id)
        self._lapse(model)
        check_runs(self.handles[number].repo, self.model)

    def _lapse(self, model: ModelRun) -> None:
        with suppress(FileNotFoundError):  # Garbage collection removes old leases.
            os.utime(f"{self.uri}/_leases/{BranchName(model.target).segment}/{model.id}", (0, 0))
        model.is_alive = False

    # Branches

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def branch_protect(self, data: st.DataObject, number: int) -> None:
        """Protect a branch, or remove the protection."""
        name, repo = self._draw_branch(data), self.handles[number].repo
        protect = data.draw(st.sampled_from([True, False, False]), label="protect")
        change = repo.branch_protect if protect else repo.branch_unprotect
        before = len(self.model.logs.get(name, ()))
        self._both(lambda: change(name), lambda: self.model.branch_protect(name, protect=protect))
        if len(self.model.logs.get(name, ())) > before:
            self._has_moved(self.handles[number], name)

    @step(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_delete(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_delete(name), lambda: self.model.branch_delete(name))

    @step(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_restore(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.branch_restore(name), lambda: self.model.branch_restore(name))

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
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
            note("schema applied")
            assert self.handles[0].repo.schema_plan(document, branch=name).is_empty

    @step(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name = self._draw_branch(data)
        fresh = self._reopened()  # A handle that has read the branch refuses to undo later movements.
        self._both(lambda: fresh.undo(name), lambda: self.model.undo(name))

    @step(data=st.data())
    def redo(self, data: st.DataObject) -> None:
        name = self._draw_branch(data)
        fresh = self._reopened()
        self._both(lambda: fresh.redo(name), lambda: self.model.redo(name))

    # Handles

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def sync(self, data: st.DataObject, number: int) -> None:
        handle, branch = self.handles[number], data.draw(st.sampled_from(self.model.branches))
        handle.cached = self.model.view(branch)
        check_snapshot(handle.repo.sync_branch(branch), self.model, handle.cached)

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def reopen(self, data: st.DataObject, number: int) -> None:
        branch = data.draw(st.sampled_from(self.model.branches))
        self.handles[number] = Handle(self._reopened(branch))

    @step(number=st.integers(0, HANDLES - 1))
    def look(self, number: int) -> None:
        """Compare a cached snapshot. It does not change, unless it is of a live branch."""
        handle = self.handles[number]
        if handle.cached is None or handle.cached.is_live:
            branch = handle.repo.branch
            handle.cached = self._both(handle.repo.snapshot, lambda: self.model.view(branch)) or handle.cached
            if not self.model.exists(branch):
                return
        if handle.cached is not None:
            self._check_cached(handle, handle.cached)

    def _check_cached(self, handle: Handle, cached: ModelView) -> None:
        """Compare a cached snapshot. If it was collected since, the repository may report that."""
        try:
            check_snapshot(handle.repo.snapshot(), self.model, cached)
        except CollectedError:
            assert not self.model.collected.isdisjoint({cached.commit, cached.below})

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def travel(self, data: st.DataObject, number: int) -> None:
        ref = data.draw(refs(self.model))
        repo = self.handles[number].repo
        found = self._both(lambda: repo.snapshot_of(ref), lambda: self.model.resolve(ref))
        if found is not None:
            check_ref(repo, self.model, ref, found)
