"""Branches of the model: their logs, what refs show, and everything that moves a branch without writing rows."""

from collections.abc import Mapping
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
)
from tests.model.graph import forked_at
from tests.model.history import ModelCommit, ModelEntry, ModelView
from tests.model.operations import TABLES
from tests.model.runs import ModelRun
from tests.model.table import ModelTable

_HINT = "the model has no advice"


class ModelBranches:
    """The logs of branches as lists of entries, and the commits by the ids that the real repository gave them.

    A method that makes a commit returns it, and the caller records its id. The caller also sets the `times` of the
    entries. `verified` are the states of real tables that were compared.
    """

    def __init__(self, first_commit_id: str) -> None:
        first = ModelCommit(branch="main", version=1, incarnation=1, parent=None, tables={}, changed=())
        self.logs = {"main": [ModelEntry(commit=first, parent=None, incarnation=1)]}
        self.commits = {first_commit_id: first}
        self.runs: dict[str, ModelRun] = {}  # by their hidden branches
        self.times: dict[str, list[int]] = {}
        self.verified: dict[object, ModelTable] = {}
        self.stale: set[object] = set()  # states to compare again
        self.pauses: set[ModelEntry] = set()  # entries that did not move the branch
        self.undone: set[ModelEntry] = set()  # entries of an undo
        self.redone: set[ModelEntry] = set()  # entries of a redo
        self.tags: dict[str, ModelCommit] = {}
        self.collected: set[ModelCommit] = set()  # commits that cannot be read any more

    @property
    def may_lose_ids(self) -> bool:
        """Whether states between two commits may have been collected, and with them the ids of rows without a key."""
        return bool(self.collected)

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
        """Return what a branch shows now."""
        return replace(self._view(name, self.head(name), self.head("main").commit), is_head=True, parent=name)

    def _view(self, name: str, entry: ModelEntry, main: ModelCommit) -> ModelView:
        return ModelView(
            commit=entry.commit,
            tables=entry.shown_on(main),
            name=name,
            number=self.logs[name].index(entry) + 1,
            parent=name if self.exists(name) else None,
            is_live=entry.is_live,
            is_recorded=not entry.is_live or (entry.below or entry.commit) is main,
            below=main if entry.is_live else None,
            own=entry.own,
        )

    def resolve(self, ref: str) -> ModelView:
        """Return what `main`, `main~2`, `main@v3`, `main@{time}`, a tag or a commit id shows."""
        if ref in self.commits:
            return ModelView.of_commit(self.commits[ref])
        if "@{" in ref:
            return self._resolve_time(ref)
        name, _, number = ref.partition("@v")
        if number:
            if not 0 < int(number) <= len(self.logs.get(name, ())):
                raise VersionNotFoundError(f"there is no {ref!r}", hint=_HINT)
            entry = self.logs[name][int(number) - 1]
            recorded = self._view(name, entry, entry.commit)
            return replace(recorded, tables=entry.commit.tables, is_recorded=True, below=entry.below)
        name, _, back = ref.partition("~")
        is_tag = name in self.tags
        if not int(back or 0):
            return ModelView.of_commit(self.tags[name]) if is_tag else self.view(name)
        history = list((self.tags[name] if is_tag else self.head(name).commit).history())
        if int(back) >= len(history):
            raise CommitNotFoundError(f"{ref!r} goes back too far", hint=_HINT)
        return ModelView.of_commit(history[int(back)], parent=None if is_tag else name)

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
        self._refuse_name_of_tag(name)
        if is_live and not (view.is_head and view.name == "main"):
            raise InvalidInputError("only main can be followed", hint=_HINT)
        if self.exists(name):
            raise BranchExistsError(f"there is a branch {name!r}", hint=_HINT)
        log = self.logs.setdefault(name, [])
        entry = ModelEntry(commit=view.commit, parent=view.parent, incarnation=len(log) + 1, is_live=is_live)
        return self._put_on(name, entry, view)

    def _put_on(self, name: str, entry: ModelEntry, view: ModelView) -> ModelCommit | None:
        """Add an entry that is on what a ref shows. If no commit holds that, make one."""
        if view.is_recorded:
            self.logs[name].append(replace(entry, commit=view.commit, below=None))
            return None
        commit = ModelCommit(
            branch=name,
            version=len(self.logs[name]) + 1,
            incarnation=entry.incarnation,
            parent=view.commit,
            tables=view.tables,
            changed=(),
            origins=self._frozen_origins(view),
        )
        self.logs[name].append(replace(entry, commit=commit, below=None))
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
        if (error := self._protection(entry)) is not None:
            raise error

    def _protection(self, entry: ModelEntry) -> BranchProtectedError | None:
        """Return the error that refuses any change to a protected branch."""
        return BranchProtectedError("the branch is protected", hint=_HINT) if entry.is_protected else None

    def branch_restore(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        if self.exists(name):
            raise BranchExistsError(f"{name!r} is not deleted", hint=_HINT)
        entry = self.logs[name][-1]
        self._refuse_orphan(name, entry)
        self.logs[name].append(replace(entry, is_deleted=False))

    def _refuse_in_use(self, name: str) -> None:
        if any(self.head(other).parent == name for other in self.branches):
            raise BranchInUseError(f"{name!r} has descendants", hint=_HINT)
        if any(run.target == name and self.is_used_by(run) for run in self.runs.values()):
            raise BranchInUseError(f"{name!r} has runs", hint=_HINT)

    def is_used_by(self, run: ModelRun) -> bool:
        """Return whether an active run is for this branch, and not for an earlier one of the same name."""
        return run.is_active and self.exists(run.target) and self.logs[run.target][-1].incarnation == run.incarnation

    def _refuse_name_of_tag(self, name: str) -> None:
        if name in self.tags:
            raise InvalidInputError(f"{name!r} is a tag", hint=_HINT)

    def _refuse_orphan(self, name: str, entry: ModelEntry) -> None:
        self._refuse_name_of_tag(name)
        if entry.parent is not None and not self.exists(entry.parent):
            raise BranchNotFoundError(f"{entry.parent!r} is gone", hint=_HINT)

    # Live branches

    def branch_pull(self, name: str, key: str) -> ModelCommit | None:
        entry, shown = self.head(name), self.view(name).tables
        source = self.view(name)
        if entry.is_live:
            if key in entry.own:
                return self._commit(name, entry, {}, main=self.head("main").commit, released=frozenset({key}))
            theirs = shown.get(key)
        else:
            if entry.parent is None:
                raise InvalidInputError(f"{name!r} has no source", hint=_HINT)
            source = self.view(entry.parent)
            theirs = source.tables.get(key)
        if theirs is None and key not in shown:
            raise TableNotFoundError(f"there is no table {key!r}", hint=_HINT)
        if theirs is shown.get(key):
            return None
        commit = self._commit(name, entry, {key: theirs})
        commit = replace(commit, origins={**commit.origins, key: (source.origin(key),)})
        self.logs[name][-1] = replace(self.logs[name][-1], commit=commit)
        return commit

    def branch_freeze(self, name: str) -> ModelCommit:
        entry = self.head(name)
        if not entry.is_live:
            raise InvalidInputError(f"{name!r} is pinned", hint=_HINT)
        view = self.view(name)
        commit = self._commit(name, entry, {}, main=self.head("main").commit)
        commit = replace(commit, below=None, own=frozenset(), origins=self._frozen_origins(view))
        self.logs[name][-1] = replace(self.logs[name][-1], commit=commit, is_live=False, own=frozenset(), below=None)
        return commit

    # Reset, undo and redo

    def reset(self, name: str, ref: str) -> ModelCommit | None:
        view, entry = self.resolve(ref), self.head(name)
        self._refuse_protected(entry)
        if not entry.is_live:
            return self._put_on(name, entry, view)
        old = self.logs[name][view.number - 1] if view.name == name and not view.is_head else None
        if old is None or not old.is_live or old.incarnation != entry.incarnation:
            raise InvalidInputError(f"{ref!r} is not a version of {name!r}", hint=_HINT)
        self.logs[name].append(replace(entry, commit=old.commit, own=old.own, below=old.below))
        return None

    def undo(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        log, (past, _) = self.logs[name], self._positions(name)
        if not past or (len(past) == 1 and name == "main"):
            raise InvalidInputError("there is nothing to undo", hint=_HINT)
        self._put_back(name, past[-2] if len(past) > 1 else replace(log[-1], is_deleted=True), self.undone)

    def redo(self, name: str) -> None:
        if name not in self.logs:
            raise BranchNotFoundError(f"there never was a branch {name!r}", hint=_HINT)
        _, future = self._positions(name)
        if not future:
            raise InvalidInputError("there is nothing to redo", hint=_HINT)
        self._put_back(name, future[-1], self.redone)

    def _positions(self, name: str) -> tuple[list[ModelEntry], list[ModelEntry]]:
        """Return where a branch was, as a stack, and where an undo has left it, as another one."""
        past: list[ModelEntry] = []
        future: list[ModelEntry] = []
        for entry in self.logs[name]:
            if entry in self.undone:
                future.append(past.pop())
            elif entry in self.redone:
                past.append(future.pop())
            elif entry not in self.pauses:
                past.append(entry)
                future.clear()
        return past, future

    def _put_back(self, name: str, then: ModelEntry, by: set[ModelEntry]) -> None:
        log = self.logs[name]
        if then.is_protected:
            self._refuse_protected(log[-1])
        if then.is_deleted and not log[-1].is_deleted:
            self._refuse_in_use(name)
        if log[-1].is_deleted and not then.is_deleted:
            self._refuse_orphan(name, then)
        log.append(replace(then))
        by.add(log[-1])

    def _frozen_origins(self, view: ModelView) -> dict[str, tuple[ModelCommit, ...]]:
        """Return the origins of tables that a live branch shows, for a commit that records them."""
        main = view.below or view.commit
        return {key: (view.commit if key in view.own else main,) for key in TABLES}

    def _commit(
        self,
        branch: str,
        head: ModelEntry,
        changes: Mapping[str, ModelTable | None],
        *,
        main: ModelCommit | None = None,
        released: frozenset[str] = frozenset(),
        merged: ModelView | None = None,
    ) -> ModelCommit:
        """Commit on top of an entry. On a live branch `main` is the state below, by default that of the entry."""
        self._refuse_protected(head)
        is_live, log = head.is_live, self.runs[branch].log if branch in self.runs else self.logs[branch]
        ground = head.commit.tables if main is None else head.shown_on(main)
        kept = replace(head, own=head.own - released)
        tables = {**(head.commit.tables if main is None else kept.shown_on(main)), **changes}
        below = (main or head.below) if is_live else None
        own = kept.own | changes.keys() if is_live else frozenset()
        commit = ModelCommit(
            branch=branch,
            version=len(log) + 1,
            incarnation=head.incarnation,
            parent=head.commit,
            tables={key: table for key, table in tables.items() if table is not None},
            changed=tuple(sorted({*changes, *released})),
            ground=ground,
            followed=frozenset(key for key in {*changes, *released} if is_live and key not in head.own),
            merged=None if merged is None else merged.commit,
            merged_below=None if merged is None else merged.below,
            below=below,
            own=own,
        )
        commit = replace(commit, origins=self._origins(commit, head, merged))
        log.append(replace(head, commit=commit, own=own, below=below))
        return commit

    def _origins(
        self, commit: ModelCommit, head: ModelEntry, merged: ModelView | None
    ) -> dict[str, tuple[ModelCommit, ...]]:
        """Return the commits that tables come from, if these are not the parents of the commit."""
        found: dict[str, tuple[ModelCommit, ...]] = {}
        if merged is None and commit.below is None:
            return found
        for key in TABLES:
            others = () if merged is None else (merged.origin(key),)
            if commit.below is None or key in head.own & commit.own:
                found[key] = (head.commit, *others)
            elif key in commit.own:
                found[key] = (forked_at(commit.below, key, commit.tables.get(key)), *others)
            else:
                found[key] = (commit.below,)
        return found
