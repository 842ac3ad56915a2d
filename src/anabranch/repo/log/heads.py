"""The head of each branch: the newest entry of its log, and the one way to move it.

Every change of a branch is `Heads.move`: decide on the newest entry, put the next one if absent, verify, roll back.
"""

import builtins
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anabranch.errors import AnabranchError, BranchNotFoundError, BusyError, RunEndedError, VersionNotFoundError
from anabranch.format.home import BoundedCache
from anabranch.ids import MAIN, BranchName
from anabranch.repo.log import codec
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import BranchEvent, BranchMode, BranchState, CommitRecord, LogEntry, Origin, Parent
from anabranch.repo.log.numbered_log import ALL, NamePage, Names, NumberedLog, append_together
from anabranch.storage import at_once, in_parallel

# Callers of `list_runs` often stop after a few runs, so that few are read ahead. Each costs one or two requests.
_RUNS_AT_ONCE = 16
# The tips of more branches are not cached.
_CACHED_TIPS = 10_000

# Given the newest entry, returns the next one, or None to leave the branch unchanged.
Decide = Callable[[LogEntry], LogEntry | None]
# Raises an error if the entry that was just put must not stay.
Verify = Callable[[LogEntry], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """The head of a branch: its newest entry without the tables and the page of commits in it."""

    branch: BranchName
    number: int
    is_deleted: bool
    origin: Origin


class Heads:
    """The logs of all branches. `names` are their names."""

    def __init__(self, config: RepoConfig) -> None:
        self._config = config
        self.names = Names(config.store, partial(_read_all, config))
        self._seen: BoundedCache[BranchName, tuple[NumberedLog, LogEntry]] = BoundedCache(limit=16)
        # Tips are small, so those of all branches can be cached: a graph needs them all.
        self._tips: BoundedCache[BranchName, Tip] = BoundedCache(limit=_CACHED_TIPS)
        self._numbered: BoundedCache[tuple[BranchName, int], LogEntry] = BoundedCache(limit=16)

    def find(self, branch: BranchName) -> LogEntry | None:
        """Return the newest entry of a branch's log, also a tombstone. None if the branch never existed.

        Entries never change and have no gaps, so the last known entry is the newest until the next number exists.
        """
        if (seen := self._seen.find(branch)) is not None:
            log, entry = seen
            # One request that usually finds nothing replaces a listing and a read of the newest entry.
            if self._config.store.find(log.path(entry.number + 1)) is None:
                return entry
        newest = _read(self._config, branch)
        if newest is not None:
            self._seen.keep(branch, (self._config.branch_log(branch), newest))
        return newest

    def get(self, branch: BranchName) -> LogEntry:
        """Return the newest entry of a branch that exists."""
        entry = self.find(branch)
        if entry is None:
            raise BranchNotFoundError(f"there is no branch '{branch}'", hint=self.names.hint_for(branch))
        if entry.state.is_deleted:
            if entry.state.run is not None:
                hint = "begin another run"
                raise RunEndedError(f"run {branch.run_id} is over: it was {entry.state.run.phase}", hint=hint)
            if entry.state.renamed_to is not None:
                raise self._renamed_error(entry)
            raise BranchNotFoundError(f"branch '{branch}' was deleted", hint="restore it, or name another branch")
        return entry

    def _renamed_error(self, tombstone: LogEntry) -> BranchNotFoundError:
        """Return the error for a name whose branch has another name now, perhaps after several renames."""
        renamed = Parent(branch=tombstone.branch, commit="", created_as=tombstone.state.created_as)
        now, newest = self.follow(renamed), self.find_followed(renamed)
        if newest is not None and not newest.state.is_deleted:
            deleted, hint = "", f"use the name '{now}'"
        else:
            # Another, independent branch may have the name, and the name cannot be restored.
            deleted = ", which was deleted"
            hint = "name another branch" if newest is None else f"restore '{now}', or name another branch"
        error = BranchNotFoundError(f"branch '{tombstone.branch}' was renamed to '{now}'{deleted}", hint=hint)
        error.renamed_to = None if newest is None else str(now)
        return error

    def follow(self, parent: Parent) -> BranchName | None:
        """Return the present name of the parent of a branch. This costs a request for each rename."""
        return self._follow(parent)[0]

    def find_followed(self, parent: Parent) -> LogEntry | None:
        """Return the newest entry of a branch under its present name, also a tombstone.

        Return None if the branch was deleted and another one has its name now.
        """
        branch, created_as = self._follow(parent)
        entry = None if branch is None else self.find(branch)
        return entry if entry is not None and created_as in (None, entry.state.created_as) else None

    def _follow(self, parent: Parent) -> tuple[BranchName | None, int | None]:
        branch, created_as = parent.branch, parent.created_as
        followed: set[tuple[BranchName, int | None]] = set()
        # Each rename leads to a later branch. Only a damaged repository has a circle.
        while branch is not None and str(branch) != MAIN and (branch, created_as) not in followed:
            followed.add((branch, created_as))
            entry = self.find(branch)
            rename = None if entry is None else entry.state.find_rename(created_as)
            if rename is None:
                break
            branch, created_as = rename.to, rename.to_created_as
        return branch, created_as

    def get_numbered(self, branch: BranchName, number: int) -> LogEntry:
        """Return the entry of a number, also of a deleted branch."""
        known = self._numbered.find((branch, number))
        if known is not None:
            return known  # entries never change
        log = self._config.branch_log(branch)
        # A user may request number 0 with `main@v0`, but such an entry cannot exist.
        data = log.find(number) if number > 0 else None
        if data is None:
            hint = f"list its versions with `reflog({str(branch)!r})`"
            raise VersionNotFoundError(f"branch '{branch}' has no version {number}", hint=hint)
        entry = _decode(log, branch, number, data)
        self._numbered.keep((branch, number), entry)
        return entry

    def list(self, *, internal: bool = False) -> tuple[LogEntry, ...]:
        """Return the newest entry of each branch by name, also if deleted. With `internal`, include runs and locks."""
        return tuple(self.iter(ALL, internal=internal))

    def iter(self, page: NamePage, *, internal: bool = False) -> Iterator[LogEntry]:
        """Yield the newest entries of the branches from a page on, by name, also of deleted ones. Read in batches."""
        return self._iter_named(page, self.names.select(page, internal=internal))

    def iter_deleted(self, page: NamePage) -> Iterator[LogEntry]:
        """Yield the tombstones of a page, by name. Of other branches, only the tips are read."""
        return self._iter_named(page, page.select(str(tip.branch) for tip in self.list_tips(deleted=True)))

    def _iter_named(self, page: NamePage, names: Sequence[str]) -> Iterator[LogEntry]:
        return page.read(names, lambda some: _read_all(self._config, [BranchName(name) for name in some]))

    def list_tips(self, *, deleted: bool = False) -> builtins.list[Tip]:
        """Return the tips of the existing or of the deleted branches, by name. An unmoved branch costs one request."""
        names = [name for name in self.names.list_branches() if not name.is_internal]
        # There may be thousands of branches. A local disk answers at once, and threads would cost more than they save.
        tips = in_parallel(self._find_tip, names, at_a_time=at_once(self._config.root))
        return [tip for tip in tips if tip is not None and tip.is_deleted is deleted]

    def _find_tip(self, branch: BranchName) -> Tip | None:
        known = self._tips.find(branch)
        if known is not None and self._config.branch_log(branch).find(known.number + 1) is None:
            return known
        entry = _read(self._config, branch)
        if entry is None:
            return None
        tip = Tip(branch=branch, number=entry.number, is_deleted=entry.state.is_deleted, origin=entry.head.origin)
        self._tips.keep(branch, tip)
        return tip

    def list_runs(self, page: NamePage = ALL) -> Iterator[LogEntry]:
        """Yield the newest entries of the hidden branches of runs, newest run first. They are read on demand."""
        names = page.select((name.run_id or "" for name in self.names.list_runs()), newest_first=True)
        for start in range(0, len(names), _RUNS_AT_ONCE):
            some = [BranchName.of_run(name) for name in names[start : start + _RUNS_AT_ONCE]]
            yield from _read_all(self._config, some)

    def first_entry(self, branch: BranchName, head: CommitRecord, event: BranchEvent, **state: Any) -> LogEntry:
        """Return the first entry of a branch, not older than its head. By default it is pinned and has no parent."""
        at, actor = max(self._config.clock(), head.commit.created_at), self._config.actor
        given = {"mode": BranchMode.PINNED, "parent": None, **state}
        made = BranchState(created_at=at, created_by=actor, created_as=1, **given)
        return LogEntry(branch=branch, number=1, event=event, at=at, actor=actor, state=made, head=head)

    def next_entry(
        self,
        before: LogEntry,
        event: BranchEvent,
        *,
        head: CommitRecord | None = None,
        at: int | None = None,
        **state: Any,
    ) -> LogEntry:
        """Return the entry that follows another one: with the same head and state, except for the given values.

        Times of one log never decrease, even if the clock of this machine is set back.
        """
        return replace(
            before,
            number=before.number + 1,
            event=event,
            at=max(self._config.clock() if at is None else at, before.at),
            actor=self._config.actor,
            head=before.head if head is None else head,
            state=replace(before.state, **state) if state else before.state,
            restores=None,
        )

    def move(  # noqa: PLR0913 - all that differs between the ways to move a branch
        self,
        branch: BranchName,
        decide: Decide,
        *,
        known: LogEntry | None = None,
        newest: Callable[[], LogEntry] | None = None,
        verify: Verify | None = None,
        rolled_back: Callable[[], None] | None = None,
        is_kept_once_built_on: bool = False,
        files: Sequence[str] = (),
        attempts: int = 1,
    ) -> LogEntry:
        """Put the entry that `decide` returns for the newest one, and return it. If it is None, return the newest one.

        If another writer puts its entry first, decide again on that, at most `attempts` times. Then raise BusyError.
        `known` is an entry to decide on first, without reading the log. `newest` reads the newest entry, by default
        that of a branch that exists.

        `verify` runs after the put, and reads the basis of the decision again: of two writers that both put first and
        read then, at least one sees the other. If it raises, the branch is moved back to where it was, `rolled_back` is
        called, and the error is raised. If another writer has built on the entry by then, it stays; the error is raised
        unless `is_kept_once_built_on`.

        On local disk the `files` (absolute paths, a list that each decision fills) become durable before the entry.
        """
        read = newest or partial(self.get, branch)
        for losses in range(1, attempts + 1):
            began = time.monotonic_ns()
            # After a failed put the known entry is no longer the newest, and deciding on it again would fail again.
            before = known if known is not None and losses == 1 else read()
            entry = decide(before)
            if entry is None:
                return before
            if self._append(entry, after=files):
                try:
                    if verify is not None:
                        verify(entry)
                except AnabranchError:  # also after an error of the store: an entry that was not verified must not stay
                    if self._roll_back(before, entry, rolled_back) or not is_kept_once_built_on:
                        raise
                return entry
            self._config.give_way(losses, (time.monotonic_ns() - began) // 1000)
        if attempts > 1:
            raise BusyError(f"branch '{branch}' moved {attempts} times while this change was tried", hint="try again")
        hint = f"see where it is with `sync_branch('{branch}')`, then decide again"
        raise BusyError(f"another writer moved branch '{branch}' at the same time", hint=hint)

    def create(
        self, branch: BranchName, make: Callable[[LogEntry | None], LogEntry], *, verify: Verify | None = None
    ) -> LogEntry | None:
        """Put the first entry of a branch, after a tombstone if the name was in use. None if the branch exists.

        `make` is given the tombstone. `verify` is as for `move`.
        """
        tombstone = None
        # First assume a new name, which costs no read. If its number is taken, the name exists, or has a tombstone
        # that the entry follows. A second failure means that another process has just created the branch.
        for _ in range(2):
            entry = make(tombstone)
            if self._append(entry):
                try:
                    if verify is not None:
                        verify(entry)
                except AnabranchError:
                    self._roll_back(tombstone, entry)
                    raise
                return entry
            tombstone = self.find(branch)
            if tombstone is None or not tombstone.state.is_deleted:
                return None
        return None

    def create_together(self, entries: Sequence[LogEntry], *, verify: Callable[[], None]) -> bool:
        """Put the first entries of new branches, all or none. Return False if one of the names was in use before.

        `verify` runs once, after all of them were put, and is as for `move`.
        """
        logs = [(self._config.branch_log(entry.branch), entry.number, codec.encode_entry(entry)) for entry in entries]
        done = append_together(self._config.store, logs)
        put = [entry for entry, is_put in zip(entries, done, strict=True) if is_put]
        try:
            if len(put) == len(entries):
                verify()
                return True
        except AnabranchError:
            self._roll_back_new(put)
            raise
        self._roll_back_new(put)
        return False

    def _roll_back_new(self, entries: Sequence[LogEntry]) -> None:
        """Delete branches that were just created. Try all of them, then raise the first error."""
        errors: builtins.list[AnabranchError] = []
        for entry in entries:
            try:
                self._roll_back(None, entry)
            except AnabranchError as err:
                errors.append(err)
        if errors:
            raise errors[0]

    def was_rolled_back(self, newest: LogEntry, number: int) -> bool:
        """Return whether the writer of an entry has rolled it back, given its number and the newest entry.

        A writer rolls back only while the branch has its entry: the first entry with another head records how it left.
        """
        left = self._find_left(self.get_numbered(newest.branch, number), newest)
        return left is not None and left.event is BranchEvent.ROLLED_BACK

    def _roll_back(
        self, before: LogEntry | None, entry: LogEntry, rolled_back: Callable[[], None] | None = None
    ) -> bool:
        """Move a branch back to its position before an entry. Return False if it has left that entry by now."""
        newest: LogEntry | None = entry
        while newest is not None:
            # Another writer may put an entry in between, such as a protection. Then the roll-back is put on top of it.
            back = self._entry_back(before, entry, newest)
            if back is None:
                return False
            if self._append(back):
                if rolled_back is not None:
                    rolled_back()
                return True
            newest = self.find(entry.branch)
        return False

    def _entry_back(self, before: LogEntry | None, entry: LogEntry, newest: LogEntry) -> LogEntry | None:
        """Return the entry that undoes another one on top of the newest. None if there is nothing to undo."""
        # Another process has deleted or restored the branch, or created another one. Do not undo that, too.
        if newest.state.created_as != entry.state.created_as or newest.state.is_deleted != entry.state.is_deleted:
            return None
        if before is None or (before.state.is_deleted and not entry.state.is_deleted):
            # The branch must not exist. What was written to it stays in the log, before the tombstone.
            return self.next_entry(newest, BranchEvent.DELETED, is_deleted=True)
        if self._find_left(entry, newest) is not None:
            return None  # another commit builds on it
        back = self.next_entry(newest, BranchEvent.ROLLED_BACK, head=before.head)
        if newest.number == entry.number:
            return replace(back, state=before.state)
        # Another writer has changed only the state, for example the protection, which stays.
        state = replace(newest.state, mode=before.state.mode, own=before.state.own, is_deleted=before.state.is_deleted)
        return replace(back, state=state)

    def _find_left(self, entry: LogEntry, newest: LogEntry) -> LogEntry | None:
        """Return the first entry by which a branch left the commit of an entry. It may have come back since."""
        # Check every entry in between: another commit may build on ours, even if the branch returned to it.
        for number in range(entry.number + 1, newest.number + 1):
            later = newest if number == newest.number else self.get_numbered(entry.branch, number)
            if later.head.commit != entry.head.commit:
                return later
        return None

    def _append(self, entry: LogEntry, *, after: Sequence[str] = ()) -> bool:
        """Put the next entry of a branch. Only this makes a change visible. Return False if the number is taken."""
        seen = self._seen.find(entry.branch)
        log = self._config.branch_log(entry.branch) if seen is None else seen[0]
        done = log.append(entry.number, codec.encode_entry(entry), after=after)
        if done:
            self._seen.keep(entry.branch, (log, entry))
        return done


def _read_all(config: RepoConfig, names: Sequence[BranchName]) -> tuple[LogEntry, ...]:
    return tuple(entry for entry in in_parallel(partial(_read, config), names) if entry is not None)


def _read(config: RepoConfig, branch: BranchName) -> LogEntry | None:
    log = config.branch_log(branch)
    found = log.find_head()
    return None if found is None else _decode(log, branch, *found)


def _decode(log: NumberedLog, branch: BranchName, number: int, data: bytes) -> LogEntry:
    entry = codec.decode_entry(data, path=log.path(number))
    codec.check_identity(log.path(number), (str(entry.branch), entry.number), (str(branch), number))
    return entry
