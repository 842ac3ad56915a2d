"""A machine that makes the same steps in a repository and in its model, and compares both."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

import anabranch as ab
from anabranch.errors import AnabranchError, CheckFailedError, CollectedError
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from tests.conftest import Location
from tests.model.history import ModelCommit, ModelTransaction, ModelView
from tests.model.invariants import (
    check_branch,
    check_branches,
    check_everything,
    check_present,
    check_runs,
)
from tests.model.model import ModelRepository
from tests.model.outcome import Prediction, Refusal, Seen, UnclearError
from tests.model.runs import ModelRun
from tests.model.strategies import BRANCHES
from tests.repo.machines.counting import AllRules, note
from tests.repo.programs.doing import open_patiently

HANDLES = 3


@dataclass(eq=False)
class Handle:
    """A repository object, and what its cached snapshot must show. None if it has not read one yet."""

    repo: ab.Repository
    cached: ModelView | None = None


@dataclass(eq=False)
class Open:
    """An open transaction, and that of the model."""

    handle: Handle
    real: ab.Transaction
    model: ModelTransaction
    run: ModelRun | None = None


class PairMachine(RuleBasedStateMachine):
    """A repository and its model. Without a `location` it is in a new folder."""

    location: ClassVar[Location | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._rules_strategy = AllRules(self)
        self._folder = None if self.location else tempfile.mkdtemp(prefix="anabranch-machine-")
        root = self._folder if self.location is None else self.location / uuid4().hex
        self.uri, self._options = f"{root}/lake", self.location.storage_options if self.location else {}
        ab.init(self.uri, storage_options=self._options, actor="ada")
        self.handles = [Handle(self._reopened()) for _ in range(HANDLES)]
        self.model = ModelRepository(self.handles[0].repo.head_commit_id_for_branch("main"))
        self.open: list[Open] = []
        self.transacted: set[ModelCommit] = set()
        self.runs: dict[ModelRun, Run] = {}
        self.record_times()

    @property
    def is_local(self) -> bool:
        return self._folder is not None

    def _reopened(self, branch: str = "main") -> Repository:
        """Return a handle that has read nothing."""
        return open_patiently(self.uri, branch=branch, storage_options=self._options)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # otherwise a failure was found already
                self._check_at_the_end()
                note("whole histories")
        finally:
            self.open.clear()
            self.runs.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder)

    def _check_at_the_end(self) -> None:
        check_everything(self._reopened(), self.model)
        for handle in self.handles:
            check_present(handle.repo, self.model)
        for model, run in self.runs.items():
            if not model.is_over:
                self._both(run.abort, partial(model.end, RunPhase.ABORTED))
        check_runs(self.handles[0].repo, self.model)

    # Both at once

    def _draw_branch(self, data: st.DataObject) -> str:
        """A branch, most often one that exists."""
        return data.draw(st.sampled_from([*self.model.branches * 3, *BRANCHES]), label="branch")

    def _move(self, number: int, name: str, real: Callable[[ab.Repository], Any], model: Callable[[], Any]) -> None:
        """Move a branch in the repository and in the model."""
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        made = self._both(lambda: real(handle.repo), model)
        self._after_move(handle, name, made, before)

    def _merge(
        self,
        number: int,
        name: str,
        real: Callable[[ab.Repository], Any],
        predict: Callable[[], Prediction[Any]],
    ) -> None:
        """Merge something into a branch, if the model can state the right answers."""
        prediction = self._predict(predict)
        if prediction is None:
            return
        handle, before = self.handles[number], len(self.model.logs.get(name, []))
        made = self._both_as_predicted(
            lambda: real(handle.repo), prediction, lambda: {None: handle.repo.snapshot_of(name)}
        )
        self._after_move(handle, name, made, before)

    def _after_move(self, handle: Handle, name: str, made: ModelCommit | None, before: int) -> None:
        self._record(handle.repo, name, made)
        if len(self.model.logs.get(name, [])) > before:
            note("moved")
            self._has_moved(handle, name)
            check_branch(handle.repo, self.model, name)

    def _predict(self, predict: Callable[[], Prediction[Any]]) -> Prediction[Any] | None:
        """Return the right answers to a step. None if the model cannot state them: then the step is left out."""
        try:
            return predict()
        except UnclearError as err:
            note(f"left out: {err}")
            return None
        except AnabranchError as err:
            return Prediction(answers=[Refusal(err)], apply=lambda _: None)

    def _both_as_predicted(
        self,
        real: Callable[[], Any],
        prediction: Prediction[Any],
        look: Callable[[], Mapping[ModelCommit | None, Snapshot]],
    ) -> Any:
        """Make a step in the repository, then compare the end with the right answers. `look` reads the result."""
        error: AnabranchError | None = None
        try:
            real()
        except AnabranchError as err:
            error = err
        has_result = error is None or isinstance(error, CheckFailedError)
        seen = Seen(error=error, snapshots=look() if has_result else {}, known=self.model.verified)

        def again() -> None:
            if error is not None:
                raise error

        return self._both(again, lambda: prediction.end(seen))

    def _record(self, repo: ab.Repository, name: str, made: ModelCommit | None) -> None:
        if made is not None:
            self.model.commits[repo.head_commit_id_for_branch(name)] = made

    def _has_moved(self, handle: Handle, branch: str) -> None:
        if handle.repo.branch == branch:
            handle.cached = self.model.view(branch)

    def record_times(self) -> None:
        """Give the model the times of new log entries."""
        for name, log in self.model.logs.items():
            known = self.model.times.setdefault(name, [])
            if len(log) > len(known):
                new = self.handles[0].repo.reflog(name, limit=len(log) - len(known))
                known.extend(move.moved_at for move in reversed(new))

    @invariant()
    def branches_agree(self) -> None:
        self.record_times()
        check_branches(self.handles[0].repo, self.model)

    def _both(self, real: Callable[[], Any], model: Callable[[], Any]) -> Any:
        """Make a step in both: both succeed, or both refuse it with the same type of error.

        The model does not know how far back a step reads. CollectedError is right if it names a collected commit.
        """
        error: AnabranchError | None = None
        try:
            real()
        except CollectedError as err:
            self._require_collected(err)
            return None
        except AnabranchError as err:
            error = err
        try:
            expected = model()
        except AnabranchError as refusal:
            note(f"refused: {type(refusal).__name__}")
            if error is None:
                pytest.fail(f"nothing was refused, though {refusal}")
            assert type(error) is type(refusal), f"{error} instead of {refusal}"  # noqa: PT017 - which of all it is
            return None
        if error is not None:
            raise error
        return expected

    def _require_collected(self, err: CollectedError) -> None:
        note("refused: CollectedError")
        if self.model.commits.get(err.details["commit"]) not in self.model.collected:
            raise err
