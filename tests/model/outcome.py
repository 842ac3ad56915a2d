"""The right answers to a merge, stated before it is made, and the one that the repository gave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from anabranch.errors import AnabranchError, CheckFailedError, InvalidInputError, MergeConflictError
from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.snapshot import Snapshot
from tests.model.history import ModelCommit
from tests.model.table import ModelTable, content_of

_HINT = "the model has no advice"
_Made = TypeVar("_Made")
# The tables that a merge changes. A dropped table is None.
Changes = Mapping[str, ModelTable | None]


class UnclearError(Exception):
    """The model cannot state the right answers. A history with such a step is not drawn."""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """A merge that is refused because of this number of conflicts.

    `cells` are those in rows that were matched by a key: the key and the column, None for a whole row.
    """

    count: int
    cells: frozenset[tuple[object, str | None]] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that is refused, by an error of this type."""

    error: AnabranchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The changes of one commit. In a rebase, `origin` is the commit that is applied again, and `made` the new one."""

    changes: Changes
    origin: ModelCommit | None = None
    made: ModelCommit | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A merge that succeeds. A rebase has one step for each commit that is left."""

    steps: tuple[Step, ...] = ()

    @property
    def changes(self) -> Changes:
        return self.steps[0].changes if self.steps else {}


Answer = Conflicts | Result


def state_of(entry: TableEntry) -> object:
    """Return what all entries of one state of a table have in common. Settling does not change the state."""
    return entry.dataset, entry.home, entry.version, entry.primary_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a merge of the repository ended: the error, or the snapshots of its commits.

    `snapshots` are by the commit that was applied again in a rebase, and by None for other merges. `known` are the
    tables of the model by the states that they were compared with.
    """

    error: AnabranchError | None
    snapshots: Mapping[ModelCommit | None, Snapshot]
    known: Mapping[object, ModelTable]

    def shows(self, result: Result) -> bool:
        """Return whether the repository came to a result. A check may have refused to publish it."""
        if self.error is not None and not isinstance(self.error, CheckFailedError):
            return False
        if {step.origin for step in result.steps} != self.snapshots.keys():
            return False
        return all(
            self._is_now(self.snapshots[step.origin], key, table)
            for step in result.steps
            for key, table in step.changes.items()
        )

    def __str__(self) -> str:
        if self.error is not None:
            return str(self.error)
        tables = (
            f"{key}: {table.to_arrow().to_pylist()}" for one in self.snapshots.values() for key, table in one.items()
        )
        return "\n".join(tables)

    def _is_now(self, snapshot: Snapshot, key: str, table: ModelTable | None) -> bool:
        """Return whether a table is in the expected state.

        If the expected state was seen before, it must be that one. If it is new, it must have the expected content.
        """
        entry = snapshot.entries.get(TableKey.parse(key))
        if entry is None or table is None:
            return entry is None and table is None
        known = self.known.get(state_of(entry))
        if known is not None or any(table is other for other in self.known.values()):
            return known is table
        found = snapshot[key]
        rows = tuple(found.to_arrow().to_pylist())
        return content_of(
            ModelTable(columns=tuple(found.schema.names), primary_key=found.primary_key, rows=rows)
        ) == content_of(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Generic[_Made]):
    """All right answers to a merge. `apply` makes one of them the state of the model.

    `refusal` is the error that refuses any change. With `refuses_empty` a result without changes is refused.
    """

    answers: Sequence[Answer | Refusal]
    apply: Callable[[Result], _Made]
    refusal: AnabranchError | None = None
    refuses_empty: bool = False

    def end(self, seen: Seen) -> _Made:
        """Apply the answer that was seen to the model, or raise the refusal that was seen."""
        return self.apply(self.choose(seen))

    def choose(self, seen: Seen) -> Result:
        # An answer fits each result that has more changes, so the answers with the most changes come first.
        for answer in sorted(self.answers, key=_count_changes, reverse=True):
            refusal = self._refusal_of(answer)
            if refusal is not None and _is_same(seen.error, refusal):
                raise refusal
            # A protected branch may be refused before it is known that nothing would change.
            if self.refusal is not None and _is_same(seen.error, self.refusal):
                raise self.refusal
            if refusal is None and isinstance(answer, Result) and seen.shows(answer):
                return answer
        answers = "\n".join(map(str, self.answers))
        raise AssertionError(f"{seen}\nis not one of the right answers:\n{answers}")

    def _refusal_of(self, answer: Answer | Refusal) -> AnabranchError | None:
        if isinstance(answer, Refusal):
            return answer.error
        if isinstance(answer, Conflicts):
            return MergeConflictError("both sides changed the same", hint=_HINT, count=answer.count)
        if answer.changes:
            return self.refusal
        return InvalidInputError("nothing would change", hint=_HINT) if self.refuses_empty else None


def _count_changes(answer: Answer | Refusal) -> int:
    return sum(len(step.changes) for step in answer.steps) if isinstance(answer, Result) else 0


def _is_same(error: AnabranchError | None, refusal: AnabranchError) -> bool:
    if isinstance(error, MergeConflictError) and isinstance(refusal, MergeConflictError):
        return error.count == refusal.count
    return type(error) is type(refusal)
