"""Runs of the model: the state that each began on, and the log of its hidden branch."""

from dataclasses import dataclass, field

from anabranch.errors import KeyConflictError, RunEndedError
from anabranch.repo.log.entries import RunPhase
from tests.model.history import ModelCommit, ModelEntry, ModelTransaction, Tables
from tests.model.merge import merge_tables, subsets, with_other_names, with_tables
from tests.model.outcome import Answer
from tests.model.table import ModelTable

_HINT = "the model has no advice"


@dataclass(slots=True, kw_only=True, eq=False)
class ModelRun:
    """A run on the state of its target when it began at `origin`, with `below` of main below if the target was live.

    `incarnation` identifies the branch of the target's name that it is for. `commit_ids` are those of the commits in
    the run. It is idle if no process has worked on it since time passed last.
    """

    id: str
    target: str
    incarnation: int
    origin: ModelCommit = field(repr=False)
    ground: Tables = field(repr=False)
    below: ModelCommit | None = field(repr=False)
    log: list[ModelEntry] = field(repr=False)
    phase: RunPhase = RunPhase.RUNNING
    is_alive: bool = True
    is_idle: bool = False
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
        self.renew()
        return ModelTransaction(branch=self.branch, base=base, main=None, ground=base.commit.tables)

    def renew(self) -> None:
        """Renew the lease."""
        self.is_alive, self.is_idle = True, False

    def end(self, phase: RunPhase) -> None:
        self.head()
        self.phase, self.is_alive = phase, False


def publish_tables(run: ModelRun, theirs: Tables, *, may_lose_ids: bool) -> list[Answer]:
    """Return all right answers to the changes of a run, applied to the tables of its target.

    A table that the target did not change since gets the state of the run, unless another table took its folder. Rows
    that the run only appended are appended. All other tables are merged, together with those of the same dataset.
    """
    mine = run.changes
    still = {key for key in mine if theirs.get(key) is run.ground.get(key)}
    appended = {
        key: table for key in mine.keys() - still if (table := _append_again(run, key, theirs.get(key))) is not None
    }
    found: list[Answer] = []
    for kept in subsets(still):
        merged = with_other_names(mine.keys() - appended.keys() - kept, mine.keys(), run.ground, run.tables)
        base, source = ({key: side[key] for key in merged if key in side} for side in (run.ground, run.tables))
        answers = merge_tables(base, source, theirs, may_lose_ids=may_lose_ids)
        known = {key: mine[key] for key in kept - merged} | {key: appended[key] for key in appended.keys() - merged}
        found += with_tables(known, answers, theirs)
    return found


def _append_again(run: ModelRun, key: str, theirs: ModelTable | None) -> ModelTable | None:
    mine, before = run.tables.get(key), run.ground.get(key)
    if mine is None or before is None or theirs is None or mine.primary_key != theirs.primary_key:
        return None
    rows = mine.appended_since(before)
    if rows is None or theirs.columns != mine.columns:
        return None
    try:
        return theirs.append(mine.columns, rows)
    except KeyConflictError:
        return None
