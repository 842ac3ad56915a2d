"""A repository as plain dictionaries: small enough to be obviously right, so that it can judge the real one.

It raises the same kinds of errors as the real one, and refuses before it changes anything. Tables and commits are
compared by identity: a table that is the same object in two commits was not touched between them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from anabranch.errors import (
    BranchNotFoundError,
    InvalidInputError,
    WriteConflictError,
)
from anabranch.repo.log.entries import RunPhase
from tests.model.graph import has_merged_live, is_ancestor
from tests.model.history import ModelCommit, ModelEntry, ModelTransaction, ModelView, Tables
from tests.model.merge import (
    Decided,
    Merge,
    Witness,
    after_collection,
    decide,
    merge_tables,
    merge_views,
    pick_tables,
)
from tests.model.retention import ModelKeeping
from tests.model.runs import ModelRun, carry_tables
from tests.model.schema import DesiredSchema
from tests.model.table import ModelTable, Row, Value
from tests.model.table_merge import Side

__all__ = [
    "ModelCommit",
    "ModelEntry",
    "ModelRepository",
    "ModelRun",
    "ModelTable",
    "ModelTransaction",
    "ModelView",
    "Row",
    "Value",
]

_HINT = "the model has no advice"


class ModelRepository(ModelKeeping):
    """Branches, and what is written to them."""

    def revert(self, ref: str, name: str, witness: Witness) -> ModelCommit:
        commit, entry = self._picked(ref, name), self.head(name)
        released: frozenset[str] = frozenset()
        if entry.is_live and commit.branch == name:
            now = entry.commit.tables
            released = frozenset(key for key in commit.followed if now.get(key) is commit.tables.get(key))
        return self._pick(name, commit.tables, commit.ground, commit.changed, witness, released=released)

    def cherry_pick(self, ref: str, name: str, witness: Witness) -> ModelCommit:
        commit = self._picked(ref, name)
        return self._pick(name, commit.ground, commit.tables, commit.changed, witness)

    def _picked(self, ref: str, name: str) -> ModelCommit:
        commit = self.resolve(ref).commit
        if not commit.changed:
            raise InvalidInputError(f"{ref!r} changed no tables", hint=_HINT)
        self.head(name)
        return commit

    def _pick(
        self,
        name: str,
        before: Tables,
        after: Tables,
        keys: Iterable[str],
        witness: Witness,
        *,
        released: frozenset[str] = frozenset(),
    ) -> ModelCommit:
        """Do to a branch what turned one state of some tables into another."""
        shown = self.view(name).tables
        found = self._decide(pick_tables(before, after, shown, set(keys) - released), witness, shown)
        found.refuse_conflicts()
        if not found.changes and not released:
            raise InvalidInputError(f"{name!r} has all of it", hint=_HINT)
        main = self.head("main").commit
        made = self._commit(name, self.head(name), found.changes, main=main, released=released)
        self.merged.add(made)
        return made

    # Merges

    def branch_merge(
        self, ref: str, name: str, witness: Witness, *, side: Side = None, squash: bool = False
    ) -> ModelCommit | None:
        """Bring what a ref did since it parted from a branch into that; None if there is nothing to do."""
        source, head = self.resolve(ref), self.head(name)
        target = self.view(name)
        is_itself = source.saw is not None and head.is_live and source.commit is head.commit
        if is_itself or _has_all(source, head.commit):
            return None
        found = self._decide([merge_views(source, target, side)], witness, target.tables)
        found.refuse_conflicts()
        if squash and not found.changes:
            return None
        main = self.head("main").commit if head.is_live else None
        unprotected = replace(head, is_protected=False)
        made = self._commit(name, unprotected, found.changes, main=main, merged=None if squash else source)
        self.logs[name][-1] = replace(self.logs[name][-1], is_protected=head.is_protected)
        self.merged.add(made)
        return made

    def _decide(self, merges: Sequence[Merge], witness: Witness, target: Tables) -> Decided:
        gapped = [after_collection(merge) for merge in merges] if self.collected else []
        return decide([*merges, *gapped], witness, target)

    def rebase(self, name: str, ref: str, witnesses: Callable[[ModelCommit], Witness]) -> list[ModelCommit]:
        """Make a branch's own commits again on top of a ref; those that are left, which end where it is then."""
        onto = self.resolve(ref)
        if not onto.is_recorded:
            raise InvalidInputError(f"no commit is just {ref!r}", hint=_HINT)
        head = self.head(name)
        self._refuse_protected(head)
        if head.is_live:
            raise InvalidInputError(f"{name!r} follows main", hint=_HINT)
        if is_ancestor(onto.commit, head.commit):
            return []
        own = list(takewhile(lambda commit: not is_ancestor(commit, onto.commit), head.commit.history()))
        made = [onto.commit]
        for commit in reversed(own):
            before = commit.parent
            if commit.merged is not None and commit.merged_on is None and is_ancestor(commit.merged, onto.commit):
                before = commit.merged  # what that brought is there anyway
            after = self._replay((before, commit), made[-1], name, witnesses(commit))
            if after is not None:
                made.append(after)
        self.logs[name].append(replace(head, commit=made[-1], saw=None))
        self.merged.update(made[1:])
        return made[1:]

    def _replay(
        self, step: tuple[ModelCommit | None, ModelCommit], ground: ModelCommit, name: str, witness: Witness
    ) -> ModelCommit | None:
        before, commit = step
        sides = ({} if before is None else before.tables, commit.tables)
        base, source = ({key: side[key] for key in commit.changed if key in side} for side in sides)
        found = self._decide([merge_tables(base, source, ground.tables)], witness, ground.tables)
        found.refuse_conflicts()
        if not found.changes:
            return None
        tables = {**ground.tables, **found.changes}
        return ModelCommit(
            branch=name,
            version=len(self.logs[name]) + 1,
            incarnation=self.head(name).incarnation,
            parent=ground,
            tables={key: table for key, table in tables.items() if table is not None},
            changed=tuple(sorted(found.changes)),
            ground=ground.tables,
        )

    # Transactions

    def begin(self, branch: str) -> ModelTransaction:
        entry = self.head(branch)
        main = self.head("main").commit if entry.is_live else None
        return ModelTransaction(branch=branch, base=entry, main=main, ground=self.view(branch).tables)

    def publish(self, tx: ModelTransaction) -> ModelCommit | None:
        """Commit a transaction on top of the branch as it is now."""
        changes = {key: table for key, table in tx.drafts.items() if table is not tx.ground.get(key)}
        if not changes:
            return None
        head = self.head(tx.branch)
        if head.incarnation != tx.base.incarnation:
            raise BranchNotFoundError(f"{tx.branch!r} is another branch now", hint=_HINT)
        tables = head.commit.tables if tx.main is None else head.shown_on(tx.main)
        for key in changes:
            changes[key] = self._rebased(tx, key, tables.get(key))
        return self._commit(tx.branch, head, changes, main=tx.main)

    def _rebased(self, tx: ModelTransaction, key: str, theirs: ModelTable | None) -> ModelTable | None:
        origin, draft = tx.ground.get(key), tx.drafts[key]
        if theirs is origin:
            return draft
        if theirs is None or origin is None or draft is None or theirs.primary_key != draft.primary_key:
            raise WriteConflictError(f"{key!r} was made or dropped", hint=_HINT)
        for again in tx.steps[key]:
            theirs = again(theirs)
        return theirs

    def schema_apply(self, name: str, desired: DesiredSchema, *, allow_destructive: bool) -> ModelCommit | None:
        head, shown = self.head(name), self.view(name).tables
        changes = desired.changes_to(shown, allow_destructive=allow_destructive)
        main = self.head("main").commit if head.is_live else None
        return self._commit(name, head, changes, main=main) if changes else None

    # Runs

    def begin_run(self, target: str) -> ModelRun:
        """A run without an id, which the real one gives it; it counts once it is in `runs`."""
        entry, view = self.head(target), self.view(target)
        self._refuse_protected(entry)
        ground = replace(view.commit, tables=view.tables)
        return ModelRun(
            id="",
            target=target,
            incarnation=entry.incarnation,
            began_at=len(self.logs[target]),
            ground=view.tables,
            saw=self.head("main").commit if entry.is_live else None,
            log=[ModelEntry(commit=ground, parent=target, incarnation=1)],
        )

    def publish_run(self, run: ModelRun, witness: Witness) -> ModelCommit | None:
        """Make what a run did one commit of its target; rows are merged where others changed the same tables."""
        run.is_alive = True
        run.head()
        head = self.head(run.target)
        if head.incarnation != run.incarnation:
            raise BranchNotFoundError(f"{run.target!r} is another branch now", hint=_HINT)
        theirs = head.shown_on(run.saw) if run.saw is not None else head.commit.tables
        carried = carry_tables(run, theirs)
        found = self._decide(carried, witness, theirs)
        found.refuse_conflicts()
        if found.changes:
            main = self.head("main").commit if head.is_live else None
            run.published_as = self._commit(run.target, head, found.changes, main=main)
            if len(carried) > 1:
                self.merged.add(run.published_as)
        run.end(RunPhase.PUBLISHED)
        return run.published_as


def _has_all(source: ModelView, head: ModelCommit) -> bool:
    """Whether a commit has all that a view shows; of a live branch also what that shows of main."""
    if not is_ancestor(source.commit, head):
        return False
    return source.saw is None or is_ancestor(source.saw, head) or has_merged_live(source.commit, source.saw, head)
