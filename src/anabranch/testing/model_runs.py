"""Runs of the model: what each began with, and the log of its hidden branch."""

from dataclasses import dataclass, field

from anabranch.errors import RunEndedError, WriteConflictError
from anabranch.repo.models import RunPhase
from anabranch.testing.model_history import ModelCommit, ModelEntry, ModelTransaction, Tables
from anabranch.testing.model_table import ModelTable

__all__ = ["ModelRun", "carried"]

_HINT = "the model has no advice"


@dataclass(slots=True, kw_only=True, eq=False)
class ModelRun:
    """A run on what its target showed when it began, with `saw` of main under it if that was live.

    `incarnation` and `began_at` say which branch of the target's name it is for, and how long its log was.
    `commit_ids` are those of the commits inside it.
    """

    id: str
    target: str
    incarnation: int
    began_at: int
    ground: Tables
    saw: ModelCommit | None
    log: list[ModelEntry]
    phase: RunPhase = RunPhase.RUNNING
    is_alive: bool = True
    commit_ids: list[str] = field(default_factory=list)
    published_as: ModelCommit | None = None

    @property
    def branch(self) -> str:
        return f"__run__{self.id}"

    @property
    def is_over(self) -> bool:
        return self.phase is not RunPhase.RUNNING

    @property
    def is_active(self) -> bool:
        return self.is_alive and not self.is_over

    @property
    def tables(self) -> Tables:
        return self.log[-1].commit.tables

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(sorted({key for entry in self.log[1:] for key in entry.commit.changed}))

    @property
    def changes(self) -> dict[str, ModelTable | None]:
        found = {key: self.tables.get(key) for key in self.touched}
        return {key: table for key, table in found.items() if table is not self.ground.get(key)}

    def head(self) -> ModelEntry:
        if self.is_over:
            raise RunEndedError(f"run {self.id} is over", hint=_HINT)
        return self.log[-1]

    def begin(self) -> ModelTransaction:
        base = self.head()
        self.is_alive = True
        return ModelTransaction(branch=self.branch, base=base, main=None, ground=base.commit.tables)

    def end(self, phase: RunPhase) -> None:
        self.head()
        self.phase, self.is_alive = phase, False


def carried(before: ModelTable | None, mine: ModelTable | None, theirs: ModelTable | None) -> ModelTable | None:
    """What a run makes of a table that its target has by now."""
    if theirs is before:
        return mine
    if mine is None or before is None or theirs is None or mine.primary_key != theirs.primary_key:
        raise WriteConflictError("the table was made or dropped", hint=_HINT)
    rows = mine.appended_since(before)
    if rows is None or theirs.columns != mine.columns:
        raise WriteConflictError("the table was changed", hint=_HINT)
    return theirs.append(mine.columns, rows)
