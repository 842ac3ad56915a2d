"""A repository as plain dictionaries: small enough to be obviously right, so that it can judge the real one.

It raises the same kinds of errors as the real one, and refuses before it changes anything. Tables and commits are
compared by identity: a table that is the same object in two commits was not touched between them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anabranch.errors import (
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    BranchProtectedError,
    CommitNotFoundError,
    InvalidInputError,
    TableNotFoundError,
    VersionNotFoundError,
    WriteConflictError,
)
from anabranch.repo.models import RunPhase
from anabranch.testing.model_history import ModelCommit, ModelEntry, ModelTransaction, ModelView, Tables
from anabranch.testing.model_merges import Witness, decide, pick_tables
from anabranch.testing.model_runs import ModelRun, carry_tables
from anabranch.testing.model_schema import DesiredSchema
from anabranch.testing.model_table import ModelTable, Row, Value

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


class ModelRepository:
    """Logs of branches, each a list of entries, and the commits by the ids that the real repository gave them.

    `times` are the moments of the entries, as the caller tells them; `verified` are real tables that were compared.
    What makes a commit returns it; the caller records the id that it really has.
    """

    def __init__(self, first_commit_id: str) -> None:
        first = ModelCommit(branch="main", version=1, incarnation=1, parent=None, tables={}, changed=())
        self.logs = {"main": [ModelEntry(commit=first, parent=None, incarnation=1)]}
        self.commits = {first_commit_id: first}
        self.runs: dict[str, ModelRun] = {}  # by their hidden branches
        self.merged: set[ModelCommit] = set()  # those that hold more than somebody wrote
        self.times: dict[str, list[int]] = {}
        self.verified: dict[object, ModelTable] = {}

    def id_of(self, commit: ModelCommit) -> str:
        return next(commit_id for commit_id, known in self.commits.items() if known is commit)

    # Branches

    @property
    def branches(self) -> list[str]:
        return sorted(name for name in self.logs if self.exists(name))

    def exists(self, name: str) -> bool:
        return name in self.logs and not self.logs[name][-1].is_deleted

    def head(self, name: str) -> ModelEntry:
        if name in self.runs:
            return self.runs[name].head()
        if not self.exists(name):
            raise BranchNotFoundError(f"there is no branch {name!r}", hint=_HINT)
        return self.logs[name][-1]

    def view(self, name: str) -> ModelView:
        """A branch as it shows itself now."""
        return replace(self._view(name, self.head(name), self.head("main").commit), is_head=True, parent=name)

    def _view(self, name: str, entry: ModelEntry, main: ModelCommit) -> ModelView:
        return ModelView(
            commit=entry.commit,
            tables=entry.shown_on(main),
            name=name,
            number=self.logs[name].index(entry) + 1,
            parent=name if self.exists(name) else None,
            is_live=entry.is_live,
            is_recorded=not entry.is_live or (entry.saw or entry.commit) is main,
        )

    def resolve(self, ref: str) -> ModelView:
        """What `main`, `main~2`, `main@v3`, `main@{time}` or a commit id shows."""
        if ref in self.commits:
            return ModelView(commit=self.commits[ref], tables=self.commits[ref].tables)
        if "@{" in ref:
            return self._resolve_time(ref)
        name, _, number = ref.partition("@v")
        if number:
            if not 0 < int(number) <= len(self.logs.get(name, ())):
                raise VersionNotFoundError(f"there is no {ref!r}", hint=_HINT)
            entry = self.logs[name][int(number) - 1]
            recorded = self._view(name, entry, entry.commit)
            return replace(recorded, tables=entry.commit.tables, is_recorded=True)
        name, _, back = ref.partition("~")
        if not int(back or 0):
            return self.view(name)
        history = list(self.head(name).commit.history())
        if int(back) >= len(history):
            raise CommitNotFoundError(f"{ref!r} goes back too far", hint=_HINT)
        return ModelView(commit=history[int(back)], tables=history[int(back)].tables, parent=name)

    def _resolve_time(self, ref: str) -> ModelView:
        name, _, moment = ref.removesuffix("}").partition("@{")
        time = (datetime.fromisoformat(moment) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        if name not in self.logs:
            raise BranchNotFoundError(f"there is no branch {name!r}", hint=_HINT)
        entry = self._entry_at(name, time)
        if entry is None:
            raise CommitNotFoundError(f"there was no {name!r} then", hint=_HINT)
        if entry.is_deleted:
            raise BranchNotFoundError(f"{name!r} was deleted then", hint=_HINT)
        main = self._entry_at("main", time)
        return self._view(name, entry, (main or entry).commit)

    def _entry_at(self, name: str, time: int) -> ModelEntry | None:
        past = [entry for at, entry in zip(self.times[name], self.logs[name], strict=True) if at <= time]
        return past[-1] if past else None

    def branch_create_from(self, source: str, name: str, *, is_live: bool = False) -> ModelCommit | None:
        view = self.resolve(source)
        if is_live and not (view.is_head and view.name == "main"):
            raise InvalidInputError("only main can be followed", hint=_HINT)
        if self.exists(name):
            raise BranchExistsError(f"there is a branch {name!r}", hint=_HINT)
        log = self.logs.setdefault(name, [])
        entry = ModelEntry(commit=view.commit, parent=view.parent, incarnation=len(log) + 1, is_live=is_live)
        return self._put_on(name, entry, view)

    def _put_on(self, name: str, entry: ModelEntry, view: ModelView) -> ModelCommit | None:
        """Add an entry that is on what a ref shows; what no commit holds becomes one."""
        if view.is_recorded:
            self.logs[name].append(replace(entry, commit=view.commit, saw=None))
            return None
        commit = ModelCommit(
            branch=name,
            version=len(self.logs[name]) + 1,
            incarnation=entry.incarnation,
            parent=view.commit,
            tables=view.tables,
            changed=(),
        )
        self.logs[name].append(replace(entry, commit=commit, saw=None))
        return commit

    def branch_delete(self, name: str) -> None:
        if name == "main":
            raise InvalidInputError("main stays", hint=_HINT)
        entry = self.head(name)
        self._refuse_protected(entry)
        self._refuse_in_use(name)
        self.logs[name].append(replace(entry, is_deleted=True))

    def branch_protect(self, name: str, *, protect: bool) -> None:
        entry = self.head(name)
        if entry.is_protected != protect:
            self.logs[name].append(replace(entry, is_protected=protect))

    def _refuse_protected(self, entry: ModelEntry) -> None:
        if entry.is_protected:
            raise BranchProtectedError("the branch is protected", hint=_HINT)

    def branch_restore(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        if self.exists(name):
            raise BranchExistsError(f"{name!r} is not deleted", hint=_HINT)
        entry = self.logs[name][-1]
        self._refuse_orphan(entry)
        self.logs[name].append(replace(entry, is_deleted=False))

    def _refuse_in_use(self, name: str) -> None:
        if any(self.head(other).parent == name for other in self.branches):
            raise BranchInUseError(f"{name!r} has descendants", hint=_HINT)
        if any(run.target == name and run.is_active for run in self.runs.values()):
            raise BranchInUseError(f"{name!r} has runs", hint=_HINT)

    def _refuse_orphan(self, entry: ModelEntry) -> None:
        if entry.parent is not None and not self.exists(entry.parent):
            raise BranchNotFoundError(f"{entry.parent!r} is gone", hint=_HINT)

    # Live branches

    def branch_pull(self, name: str, key: str) -> ModelCommit | None:
        entry, shown = self.head(name), self.view(name).tables
        if entry.is_live:
            if key in entry.own:
                return self._commit(name, entry, {}, main=self.head("main").commit, released=frozenset({key}))
            theirs = shown.get(key)
        else:
            if entry.parent is None:
                raise InvalidInputError(f"{name!r} has no source", hint=_HINT)
            theirs = self.view(entry.parent).tables.get(key)
        if theirs is None and key not in shown:
            raise TableNotFoundError(f"there is no table {key!r}", hint=_HINT)
        return None if theirs is shown.get(key) else self._commit(name, entry, {key: theirs})

    def branch_freeze(self, name: str) -> ModelCommit:
        entry = self.head(name)
        if not entry.is_live:
            raise InvalidInputError(f"{name!r} is pinned", hint=_HINT)
        commit = self._commit(name, entry, {}, main=self.head("main").commit)
        self.logs[name][-1] = replace(self.logs[name][-1], is_live=False, own=frozenset(), saw=None)
        return commit

    # Back and forth

    def reset(self, name: str, ref: str) -> ModelCommit | None:
        entry, view = self.head(name), self.resolve(ref)
        self._refuse_protected(entry)
        if not entry.is_live:
            return self._put_on(name, entry, view)
        old = self.logs[name][view.number - 1] if view.name == name and not view.is_head else None
        if old is None or not old.is_live or old.incarnation != entry.incarnation:
            raise InvalidInputError(f"{ref!r} is no version of {name!r}", hint=_HINT)
        self.logs[name].append(replace(entry, commit=old.commit, own=old.own, saw=old.saw))
        return None

    def undo(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        log = self.logs[name]
        if log[-1].is_protected and (len(log) == 1 or log[-2].is_protected):
            self._refuse_protected(log[-1])
        if len(log) == 1 and name == "main":
            raise InvalidInputError("there is nothing to undo", hint=_HINT)
        before = log[-2] if len(log) > 1 else replace(log[-1], is_deleted=True)
        if before.is_deleted and not log[-1].is_deleted:
            self._refuse_in_use(name)
        if log[-1].is_deleted and not before.is_deleted:
            self._refuse_orphan(before)
        log.append(replace(before))

    def revert(self, ref: str, name: str, witness: Witness) -> ModelCommit:
        entry, commit = self.head(name), self._picked(ref, name)
        released: frozenset[str] = frozenset()
        if entry.is_live and commit.branch == name:
            now = entry.commit.tables
            released = frozenset(key for key in commit.followed if now.get(key) is commit.tables.get(key))
        return self._pick(name, commit.tables, commit.ground, commit.changed, witness, released=released)

    def cherry_pick(self, ref: str, name: str, witness: Witness) -> ModelCommit:
        commit = self._picked(ref, name)
        return self._pick(name, commit.ground, commit.tables, commit.changed, witness)

    def _picked(self, ref: str, name: str) -> ModelCommit:
        self.head(name)
        commit = self.resolve(ref).commit
        if not commit.changed:
            raise InvalidInputError(f"{ref!r} changed no tables", hint=_HINT)
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
        found = decide(pick_tables(before, after, shown, set(keys) - released), witness, shown)
        found.refuse_conflicts()
        if not found.changes and not released:
            raise InvalidInputError(f"{name!r} has all of it", hint=_HINT)
        main = self.head("main").commit
        made = self._commit(name, self.head(name), found.changes, main=main, released=released)
        self.merged.add(made)
        return made

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
        found = decide(carried, witness, theirs)
        found.refuse_conflicts()
        if found.changes:
            main = self.head("main").commit if head.is_live else None
            run.published_as = self._commit(run.target, head, found.changes, main=main)
            if len(carried) > 1:
                self.merged.add(run.published_as)
        run.end(RunPhase.PUBLISHED)
        return run.published_as

    def _commit(
        self,
        branch: str,
        head: ModelEntry,
        changes: Mapping[str, ModelTable | None],
        *,
        main: ModelCommit | None = None,
        released: frozenset[str] = frozenset(),
    ) -> ModelCommit:
        """Commit on top of an entry; on a live branch with `main` under it, by default as the entry's own commit."""
        self._refuse_protected(head)
        is_live, log = head.is_live, self.runs[branch].log if branch in self.runs else self.logs[branch]
        ground = head.commit.tables if main is None else head.shown_on(main)
        kept = replace(head, own=head.own - released)
        merged = {**(head.commit.tables if main is None else kept.shown_on(main)), **changes}
        commit = ModelCommit(
            branch=branch,
            version=len(log) + 1,
            incarnation=head.incarnation,
            parent=head.commit,
            tables={key: table for key, table in merged.items() if table is not None},
            changed=tuple(sorted({*changes, *released})),
            ground=ground,
            followed=frozenset(key for key in {*changes, *released} if is_live and key not in head.own),
        )
        own = kept.own | changes.keys() if is_live else frozenset()
        log.append(replace(head, commit=commit, own=own, saw=(main or head.saw) if is_live else None))
        return commit
