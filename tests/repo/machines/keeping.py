"""Tags, garbage collection and purges."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import hypothesis.strategies as st

from anabranch import testing
from anabranch.errors import BranchNotFoundError
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.repository import Repository
from tests.model.history import ModelCommit
from tests.model.invariants import check_present, check_runs, check_tags
from tests.model.strategies import TAGS, branch_names, refs
from tests.repo.gc.object_ages import pass_time
from tests.repo.machines.counting import note, step
from tests.repo.machines.merging import MergingMachine
from tests.repo.machines.pair import HANDLES, Handle, Open
from tests.repo.programs.doing import LEASE

# Longer than the shortest grace period.
_LONG = 4 * LEASE


class KeepingMachine(MergingMachine):
    """Lets time pass, and collects commits that are not needed any more."""

    @step(data=st.data(), number=st.integers(0, HANDLES - 1), name=st.sampled_from(TAGS))
    def tag_create(self, data: st.DataObject, number: int, name: str) -> None:
        repo = self.handles[number].repo
        ref = data.draw(st.one_of(st.sampled_from(self.model.branches), refs(self.model)), label="ref")
        self._both(lambda: repo.tag_create(name, ref=ref), lambda: self.model.tag_create(name, ref))
        check_tags(repo, self.model)

    @step(number=st.integers(0, HANDLES - 1), name=st.sampled_from(TAGS))
    def tag_delete(self, number: int, name: str) -> None:
        repo = self.handles[number].repo
        self._both(lambda: repo.tag_delete(name), lambda: self.model.tag_delete(name))
        check_tags(repo, self.model)

    # Abandoned work

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def abandon(self, data: st.DataObject, number: int) -> None:
        """Drop a handle with its open transactions."""
        handle, branch = self.handles[number], data.draw(st.sampled_from(self.model.branches), label="branch")
        self._forget(lambda one: one.handle is handle)
        self.handles[number] = Handle(self._reopened(branch))

    def _forget(self, is_forgotten: Callable[[Open], bool]) -> None:
        left = [one for one in self.open if not is_forgotten(one)]
        if len(left) < len(self.open):
            note("transactions abandoned")
        self.open[:] = left

    # Garbage collection

    @step(number=st.integers(0, HANDLES - 1))
    def wait(self, number: int) -> None:
        self._pass_time(self.handles[number].repo)

    def _pass_time(self, repo: Repository) -> None:
        """Let days pass without heartbeats. This is not possible on a store that has its own clock."""
        if self.is_local:
            self._forget(lambda _: True)
            pass_time(repo, by=_LONG)
            self.model.pass_time()

    @step(data=st.data(), number=st.integers(0, HANDLES - 1))
    def gc(self, data: st.DataObject, number: int) -> None:
        keep_last = data.draw(st.sampled_from([None, 1, 1, 2, 3]), label="keep last")
        newer = data.draw(st.sampled_from([None, None, None, timedelta(days=30)]), label="keep newer than")
        unneeded: set[ModelCommit] = set()
        if self.is_local and data.draw(st.booleans(), label="after days"):
            self._pass_time(self.handles[number].repo)
            unneeded = self.model.find_unneeded(keep_last if newer is None else None)
        self._collect(self.handles[number].repo, keep_last, newer, unneeded)

    def _collect(
        self, repo: Repository, keep_last: int | None, newer: timedelta | None, unneeded: set[ModelCommit]
    ) -> None:
        foreseen = repo.gc(keep_last=keep_last, keep_newer_than=newer, dry_run=True)
        report = repo.gc(keep_last=keep_last, keep_newer_than=newer)
        assert (foreseen.commits, foreseen.runs) == (report.commits, report.runs)
        assert report.damaged == ()
        self._has_ended_runs(set(report.runs))
        # The model does not know the commits in runs.
        gone = {self.model.commits[found] for found in report.commits if found in self.model.commits}
        left = sorted(self.model.id_of(commit) for commit in unneeded - gone)
        assert not left, f"{left} were not collected, and are not needed"
        self._collected(gone, self.model.find_kept(keep_last if newer is None else None))
        check_runs(repo, self.model)

    def _has_ended_runs(self, ended: set[str]) -> None:
        """Take over which runs a garbage collection ended: all that are idle, and none that is alive."""
        assert ended >= self.model.find_expired_runs()
        for run in self.model.runs.values():
            if run.id in ended and not run.is_over:
                assert not run.is_alive
                run.end(RunPhase.FAILED)

    def _collected(self, gone: set[ModelCommit], kept: set[ModelCommit]) -> None:
        lost = sorted(self.model.id_of(commit) for commit in gone & kept)
        assert not lost, f"{lost} were collected, but are needed"
        note("some commits collected" if gone else "no commits collected")
        self.model.collect(gone)
        check_present(self._reopened(), self.model)

    @step(number=st.integers(0, HANDLES - 1), name=branch_names())
    def branch_purge(self, number: int, name: str) -> None:
        self._forget(lambda one: name in (one.model.branch, one.run.target if one.run else None))
        self._abort_runs_for(name)
        repo, was_there = self.handles[number].repo, self.model.exists(name)
        if was_there or name not in self.model.logs:
            self._both(lambda: repo.branch_delete(name, purge=True), lambda: self.model.branch_delete(name))
        else:
            try:
                repo.branch_delete(name, purge=True)
            except BranchNotFoundError:
                note("nothing to purge")
        if (was_there and not self.model.exists(name)) or (name in self.model.logs and not was_there):
            self._has_purged(name)

    def _abort_runs_for(self, name: str) -> None:
        """Abort the runs of a branch that do not prevent its deletion: their data is purged with it."""
        for model, run in self.runs.items():
            if model.target == name and not model.is_over and not self.model.is_used_by(model):
                self._both(run.abort, partial(model.end, RunPhase.ABORTED))

    def _has_purged(self, name: str) -> None:
        fresh = self._reopened()
        made = {
            commit: commit_id
            for commit_id, commit in self.model.commits.items()
            if commit.branch == name and commit not in self.model.collected
        }
        gone = {made_by for made_by, commit_id in made.items() if _is_collected(fresh, commit_id)}
        left = made.keys() - gone - self.model.find_known_beside(name)
        assert not left, f"{[made[commit] for commit in left]} take space and are not needed"
        self._collected(gone, self.model.find_needed_beside(name))


def _is_collected(repo: Repository, commit_id: str) -> bool:
    return testing.repo_store_of(repo).commits.get(commit_id).collected_at is not None
