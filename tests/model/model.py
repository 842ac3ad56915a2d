"""A repository of plain dictionaries and lists, small enough to be checked by reading it.

It raises the same kinds of errors as the real repository, before it changes anything. Tables and commits are compared
by identity: a table that is the same object in two commits was not changed between them.

A step with several right answers returns a `Prediction` of all of them before the repository makes it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from anabranch.errors import BranchNotFoundError, InvalidInputError, WriteConflictError
from anabranch.repo.log.entries import RunPhase
from tests.model.graph import has_merged_live, is_ancestor
from tests.model.history import ModelCommit, ModelEntry, ModelTransaction, ModelView, Tables
from tests.model.merge import merge_tables, merge_views, pick_tables
from tests.model.outcome import Answer, Conflicts, Prediction, Refusal, Result, Step, UnclearError
from tests.model.retention import ModelRetention
from tests.model.runs import ModelRun, publish_tables
from tests.model.schema import DesiredSchema
from tests.model.table import ModelTable
from tests.model.table_merge import Strategy

_HINT = "the model has no advice"
# A rebase of several commits may have many right answers. With more than this it is not drawn.
_MAX_ANSWERS = 200


class ModelRepository(ModelRetention):
    """Branches, tags and runs, and everything that writes to them."""

    # Reverts and cherry-picks

    def revert(self, ref: str, name: str) -> Prediction[ModelCommit]:
        commit, entry = self._picked(ref, name), self.head(name)
        released: frozenset[str] = frozenset()
        if entry.is_live and commit.branch == name:
            now = entry.commit.tables
            released = frozenset(key for key in commit.followed if now.get(key) is commit.tables.get(key))
        return self._pick(name, commit.tables, commit.ground, commit.changed, released=released)

    def cherry_pick(self, ref: str, name: str) -> Prediction[ModelCommit]:
        commit = self._picked(ref, name)
        return self._pick(name, commit.ground, commit.tables, commit.changed)

    def _picked(self, ref: str, name: str) -> ModelCommit:
        commit = self.resolve(ref).commit
        if not commit.changed:
            raise InvalidInputError(f"{ref!r} changed no tables", hint=_HINT)
        self.head(name)
        return commit

    def _pick(
        self, name: str, before: Tables, after: Tables, keys: Iterable[str], *, released: frozenset[str] = frozenset()
    ) -> Prediction[ModelCommit]:
        """Apply the difference between two states of some tables to a branch."""
        head, shown = self.head(name), self.view(name).tables
        answers = pick_tables(before, after, shown, set(keys) - released, may_lose_ids=self.may_lose_ids)

        def apply(result: Result) -> ModelCommit:
            main = self.head("main").commit
            return self._commit(name, head, result.changes, main=main, released=released)

        return Prediction(
            answers=_with_taken_folder(shown, answers),
            apply=apply,
            refusal=self._protection(head),
            refuses_empty=not released,
        )

    # Merges

    def merge(
        self, ref: str, name: str, *, strategy: Strategy = "fail", squash: bool = False
    ) -> Prediction[ModelCommit | None]:
        """Merge what a ref did since it had a common state with a branch. None if there is nothing to do."""
        source, head, target = self.resolve(ref), self.head(name), self.view(name)
        is_itself = source.below is not None and head.is_live and source.commit is head.commit
        if is_itself or _has_all(source, head.commit):
            return Prediction(answers=[Result((Step(changes={}),))], apply=lambda _: None)
        answers = merge_views(source, target, strategy, may_lose_ids=self.may_lose_ids)

        def apply(result: Result) -> ModelCommit | None:
            if squash and not result.changes:
                return None
            main = self.head("main").commit if head.is_live else None
            unprotected = replace(head, is_protected=False)
            made = self._commit(name, unprotected, result.changes, main=main, merged=None if squash else source)
            self.logs[name][-1] = replace(self.logs[name][-1], is_protected=head.is_protected)
            return made

        return Prediction(answers=_with_taken_folder(target.tables, answers), apply=apply)

    def rebase(self, name: str, ref: str) -> Prediction[list[ModelCommit]]:
        """Apply a branch's own commits again on top of a ref. The result is the new commits, oldest first."""
        onto = self.resolve(ref)
        if not onto.is_recorded:
            raise InvalidInputError(f"no commit is just {ref!r}", hint=_HINT)
        head = self.head(name)
        self._refuse_protected(head)
        if head.is_live:
            raise InvalidInputError(f"{name!r} follows main", hint=_HINT)
        if is_ancestor(onto.commit, head.commit):
            return Prediction(answers=[Result()], apply=lambda _: [])
        own = takewhile(lambda commit: not is_ancestor(commit, onto.commit), head.commit.history())
        commits = list(own)[::-1]
        answers = list(islice(self._replays(name, commits, onto.commit, onto.commit), _MAX_ANSWERS))
        if len(answers) == _MAX_ANSWERS:
            raise UnclearError("a rebase with too many right answers")

        def apply(result: Result) -> list[ModelCommit]:
            made = [step.made for step in result.steps if step.made is not None]
            self.logs[name].append(replace(head, commit=[onto.commit, *made][-1], below=None))
            return made

        return Prediction(answers=_with_taken_folder(onto.tables, answers), apply=apply)

    def _replays(
        self, name: str, commits: Sequence[ModelCommit], ground: ModelCommit, onto: ModelCommit
    ) -> Iterator[Answer]:
        """Yield all right answers to commits that are applied one after the other."""
        if not commits:
            yield Result()
            return
        first, *others = commits
        for answer in self._replay(first, ground, onto):
            if isinstance(answer, Conflicts):
                yield answer
                continue
            made = self._replayed(name, ground, answer) if answer.changes else None
            steps = () if made is None else (Step(changes=answer.changes, origin=first, made=made),)
            for rest in self._replays(name, others, made or ground, onto):
                yield rest if isinstance(rest, Conflicts) else Result((*steps, *rest.steps))

    def _replay(self, commit: ModelCommit, ground: ModelCommit, onto: ModelCommit) -> list[Answer]:
        before = commit.parent
        if commit.merged is not None and commit.merged_below is None and is_ancestor(commit.merged, onto):
            before = commit.merged  # `onto` has the merged state already.
        sides = ({} if before is None else before.tables, commit.tables)
        base, source = ({key: side[key] for key in commit.changed if key in side} for side in sides)
        return merge_tables(base, source, ground.tables, may_lose_ids=self.may_lose_ids)

    def _replayed(self, name: str, ground: ModelCommit, result: Result) -> ModelCommit:
        tables = {**ground.tables, **result.changes}
        return ModelCommit(
            branch=name,
            version=len(self.logs[name]) + 1,
            incarnation=self.head(name).incarnation,
            parent=ground,
            tables={key: table for key, table in tables.items() if table is not None},
            changed=tuple(sorted(result.changes)),
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
        """Return a run. It counts once the caller has set its id and added it to `runs`."""
        entry, view = self.head(target), self.view(target)
        self._refuse_protected(entry)
        ground = replace(view.commit, tables=view.tables)
        return ModelRun(
            id="",
            target=target,
            incarnation=entry.incarnation,
            origin=view.commit,
            ground=view.tables,
            below=self.head("main").commit if entry.is_live else None,
            log=[ModelEntry(commit=ground, parent=target, incarnation=1)],
        )

    def publish_run(self, run: ModelRun) -> Prediction[ModelCommit | None]:
        """Make the changes of a run one commit of its target. Rows are merged if the target has changed the table."""
        run.head()
        was_alive, was_idle = run.is_alive, run.is_idle
        run.renew()
        head = self.head(run.target)
        if head.incarnation != run.incarnation:
            raise BranchNotFoundError(f"{run.target!r} is another branch now", hint=_HINT)
        theirs = head.shown_on(run.below) if run.below is not None else head.commit.tables
        try:
            answers = publish_tables(run, theirs, may_lose_ids=self.may_lose_ids)
        except UnclearError:
            run.is_alive, run.is_idle = was_alive, was_idle
            raise

        def apply(result: Result) -> ModelCommit | None:
            if result.changes:
                main = self.head("main").commit if head.is_live else None
                run.published_as = self._commit(run.target, head, result.changes, main=main)
            run.end(RunPhase.PUBLISHED)
            return run.published_as

        return Prediction(answers=_with_taken_folder(theirs, answers), apply=apply, refusal=self._protection(head))


def _has_all(source: ModelView, head: ModelCommit) -> bool:
    """Return whether a commit has everything that a view shows, including main below a live branch."""
    if not is_ancestor(source.commit, head):
        return False
    return source.below is None or is_ancestor(source.below, head) or has_merged_live(source.commit, source.below, head)


def _with_taken_folder(target: Tables, answers: Sequence[Answer]) -> list[Answer | Refusal]:
    """Return the answers, and the refusal that is right if two tables of a result may need the same folder.

    That happens for example after a rename was undone. Whether they need it depends on the homes of the tables.
    """
    for answer in answers:
        for step in answer.steps if isinstance(answer, Result) else ():
            datasets = [table.dataset for table in {**target, **step.changes}.values() if table is not None]
            if len(set(datasets)) < len(datasets):
                return [*answers, Refusal(WriteConflictError("the folder is taken", hint=_HINT))]
    return [*answers]
