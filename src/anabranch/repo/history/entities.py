"""One row over time: its values at one state, and each change of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, takewhile
from typing import Any

from anabranch.errors import InvalidInputError, NotFoundError, TableNotFoundError
from anabranch.format.arguments import checked_limit
from anabranch.format.compare.row_by_key import Sighting, find_renamed, find_row, find_row_beside, read_contents_of
from anabranch.format.layout.manifest import Contents, has_fragment, read_contents
from anabranch.ids import TableKey
from anabranch.repo.history.table_history import CommitStep, TableChange, TableStates, iter_table_changes, require_table
from anabranch.repo.log.collected import collected_errors, refuse_collected
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, StateId, TableEntry
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage.requests import in_parallel

Row = dict[str, Any]

# The number of changes of the table that are read in parallel.
_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChange(CommitStep):
    """The change of one row in one commit. `before` is None if it inserted the row, `after` if it deleted it."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def commit_id(self) -> str:
        """The commit that made the change."""
        return self.commit.graph_commit_id

    @property
    def actor(self) -> str | None:
        """The actor of the commit."""
        return self.commit.actor_id


def find_entity(repo_store: RepoStore, record: CommitRecord, key: TableKey, entity: Any) -> Row | None:
    """Return the row with a key at a commit, or None. Only this table of the commit is read."""
    refuse_collected(record)
    entry = require_table(repo_store, record, key)
    with collected_errors(repo_store.config, lambda: [record.commit.graph_commit_id]):
        return find_row(repo_store.config.version_ref(entry), _key_values(key, entry, entity))


def list_entity_changes(
    repo_store: RepoStore, record: CommitRecord, key: TableKey, entity: Any, *, limit: int | None
) -> list[EntityChange]:
    """Return the changes of a row, newest first, along the first parents of a commit.

    A table is identified by its name: a rename deletes the row under the old name and inserts it under the new one. A
    table that was dropped and created again is the same table. If it had another key, the row has these values in it.
    """
    return list(islice(_iter_entity_changes(repo_store, record, key, entity), checked_limit(limit, "changes")))


def _iter_entity_changes(
    repo_store: RepoStore, record: CommitRecord, key: TableKey, entity: Any
) -> Iterator[EntityChange]:
    # What a live branch shows includes changes of main, which are not among the states of its own commits.
    if record.main_id is not None:
        yield from _iter_each_change(repo_store, record, key, entity)
        return
    states = TableStates(repo_store, record, key)
    numbers = takewhile(states.has, count())
    # The newest state in which the table exists, whose primary key is used, or that is one of a live branch.
    newest = next((number for number in numbers if states.is_live(number) or states.entry(number) is not None), None)
    if newest is None:
        raise _never_existed(record, key)
    if states.is_live(newest):
        yield from _iter_each_change(repo_store, record, key, entity)
        return
    with collected_errors(repo_store.config, states.list_read):
        yield from _iter_changes_of(repo_store, states, key, entity, newest=newest)


def _never_existed(record: CommitRecord, key: TableKey) -> TableNotFoundError:
    hint = "list the commits to see the tables that they changed"
    return TableNotFoundError(f"there was no table '{key}' up to the commit {record.commit.graph_commit_id}", hint=hint)


def _iter_changes_of(
    repo_store: RepoStore, states: TableStates, key: TableKey, entity: Any, *, newest: int
) -> Iterator[EntityChange]:
    """Yield the changes of a row. States that are known to have the same row as a newer one are not read."""
    entry = states.entry(newest)
    assert entry is not None  # noqa: S101 - the newest state has the table
    reader = _RowReader(repo_store.config, key, entity, newest=entry)
    number = 0
    while states.has(number):
        if states.is_live(number):
            # The rest of the history includes changes of main, which the states of this branch do not show.
            older = repo_store.commits.get(states.commit_id(number))
            yield from _iter_each_change(repo_store, older, key, entity, newest=entry)
            return
        number = reader.skip(states, number)
        before, after = states.entry(number + 1), states.entry(number)
        yield from reader.compare([TableChange(commit=states.commit(number), before=before, after=after)])
        number += 1


def _iter_each_change(
    repo_store: RepoStore, record: CommitRecord, key: TableKey, entity: Any, *, newest: TableEntry | None = None
) -> Iterator[EntityChange]:
    """Yield the changes of a row by reading each state of the table. `newest` has the primary key to use."""
    changes = iter_table_changes(repo_store, record, key)
    reader: _RowReader | None = None
    while batch := list(islice(changes, _BATCH_SIZE)):
        with collected_errors(repo_store.config, partial(_iter_commits, batch)):
            # A commit may list a table that exists neither before nor after it: after a revert, a table that was
            # dropped on the live branch follows main again, where it was dropped, too.
            newest = newest or next(_iter_states(batch), None)
            if newest is not None:
                reader = reader or _RowReader(repo_store.config, key, entity, newest=newest)
                yield from reader.compare(batch)
    if reader is None:
        raise _never_existed(record, key)


def _iter_commits(changes: list[TableChange]) -> Iterator[str]:
    """Yield the ids of the commits that have the states before and after these changes."""
    for change in changes:
        yield from filter(None, (change.commit.graph_commit_id, change.commit.parent_commit_id))


def _iter_states(changes: list[TableChange]) -> Iterator[TableEntry]:
    """Yield the states of the table after and before each change."""
    for change in changes:
        yield from filter(None, (change.after, change.before))


class _RowReader:
    """Reads one row at many states of a table. Files that two successive states share are searched once."""

    def __init__(self, config: RepoConfig, key: TableKey, entity: Any, *, newest: TableEntry) -> None:
        self._config = config
        self._values = tuple(_key_values(key, newest, entity).values())
        # A wrong key raises here. Older states may have had another key, so it is not an error there.
        version_ref = config.version_ref(newest)
        self._last = newest, find_row_beside(version_ref, self._key_at(newest), read_contents_of(version_ref), None)
        self._known: dict[StateId, Sighting | None] = {newest.state: self._last[1]}
        self._contents: dict[StateId, Contents | NotFoundError] = {}

    def compare(self, changes: list[TableChange]) -> Iterator[EntityChange]:
        """Yield the changes of the table that changed the row."""
        needed = {entry.state: entry for entry in _iter_states(changes)}
        missing = {state: entry for state, entry in needed.items() if state not in self._known}
        # Keep only the states that this batch needs: of the previous batch, that is at most the oldest one.
        self._known = {state: found for state, found in self._known.items() if state in needed}
        self._contents = dict(zip(missing, in_parallel(self._read_contents, missing.values()), strict=True))
        for change in changes:
            # In this order, because each state is searched with what is known of the newer one.
            after, before = self._sighting(change.after), self._sighting(change.before)
            if not _is_same(_renamed_row(change, before, after), _row(after)):
                yield EntityChange(commit=change.commit, before=_row(before), after=_row(after))

    def skip(self, states: TableStates, number: int) -> int:
        """Return the oldest state that is known to have the same row as state n, and continue there.

        A state in which the fragment of the row has the same data files has the same row, because it was not deleted
        later. A row that does not exist did not exist either while no row was deleted.
        """
        entry = states.entry(number)
        if entry is None:
            return number
        found = self._sighting(entry)
        if found is None:
            # The key had another number of columns or another type. Nothing is known of the row.
            found = Sighting(contents=read_contents_of(self._config.version_ref(entry)), row=None, fragment=None)
        alike = states.last_alike(number, partial(_has_same_row, states, entry, found))
        older = states.entry(alike)
        if alike > number and older is not None:
            contents = read_contents(states.manifest(alike))
            fragment = None if found.fragment is None else contents.find_fragment(found.fragment)
            moved = Sighting(contents=contents, row=found.row, fragment=fragment)
            # The next state is searched beside the oldest one with the same row, so only files that differ are read.
            self._last, self._known = (older, moved), {older.state: moved}
        return alike

    def _read_contents(self, entry: TableEntry) -> Contents | NotFoundError:
        try:
            return read_contents_of(self._config.version_ref(entry))
        except NotFoundError as err:
            return err  # Raise it later: a caller with a limit may not need this state.

    def _sighting(self, entry: TableEntry | None) -> Sighting | None:
        if entry is None:
            return None
        state = entry.state
        if state not in self._known:
            self._known[state] = self._read(entry, self._contents.get(state) or self._read_contents(entry))
        return self._known[state]

    def _read(self, entry: TableEntry, contents: Contents | NotFoundError) -> Sighting | None:
        if isinstance(contents, NotFoundError):
            raise contents
        # The table had another key at this state, and the given values do not name a row there.
        if len(entry.primary_key) != len(self._values):
            return None
        before, found_before = self._last
        has_same_key = before.primary_key == entry.primary_key
        try:
            hint = found_before if has_same_key else None
            found = find_row_beside(self._config.version_ref(entry), self._key_at(entry), contents, hint)
        except InvalidInputError:
            return None  # The key column had another type at this state.
        self._last = entry, found
        return found

    def _key_at(self, entry: TableEntry) -> dict[str, Any]:
        return dict(zip(entry.primary_key, self._values, strict=True))


def _has_same_row(states: TableStates, entry: TableEntry, found: Sighting, number: int) -> bool:
    """Return whether an older state has the row that was found in a newer one, or does not have it either."""
    older = states.entry(number)
    # Fragments and row ids of different homes are numbered independently, and equal numbers prove nothing there.
    if older is None or _location(older) != _location(entry):
        return False
    manifest = states.manifest(number)
    if found.fragment is not None:
        return has_fragment(manifest, found.fragment, fields=found.contents.fields)
    contents = read_contents(manifest)
    if contents.fields != found.contents.fields:
        return False
    return _count_deleted(older, contents) == _count_deleted(entry, found.contents)


def _count_deleted(entry: TableEntry, contents: Contents) -> int:
    """Return how many rows were ever deleted in the line of versions up to this one."""
    # Each inserted row takes the next id, and an updated row keeps its id. So ids without a row were deleted.
    return contents.next_row_id - entry.rows


def _location(entry: TableEntry) -> tuple[object, ...]:
    return entry.dataset, entry.home, entry.primary_key


def _row(sighting: Sighting | None) -> Row | None:
    return None if sighting is None else sighting.row


def _renamed_row(change: TableChange, before: Sighting | None, after: Sighting | None) -> dict[object, Any] | None:
    """Return the row before a change, with the names that its columns have after it."""
    if before is None or before.row is None:
        return None
    names = find_renamed(before.contents, after.contents) if after is not None and change.keeps_dataset else {}
    renamed: dict[object, Any] = {}
    for name, value in before.row.items():
        # A column whose name another one has now was dropped.
        is_dropped = name not in names and name in names.values()
        renamed[("dropped", name) if is_dropped else names.get(name, name)] = value
    return renamed


def _key_values(key: TableKey, entry: TableEntry, entity: Any) -> dict[str, Any]:
    """Return the value of each key column. A key of several columns is a tuple in their order."""
    names = entry.primary_key
    if not names:
        hint = "read the table with a filter, or set a primary key"
        raise InvalidInputError(f"table '{key}' has no primary key, so a single row cannot be identified", hint=hint)
    values = entity if isinstance(entity, tuple) else (entity,)
    if len(values) != len(names):
        problem = f"{entity!r} has {len(values)} values, but the key of table '{key}' is ({', '.join(names)})"
        raise InvalidInputError(problem, hint="pass a tuple with one value for each key column, in this order")
    return dict(zip(names, values, strict=True))


def _is_same(before: Any, after: Any) -> bool:
    """Return whether two values are equal. NaN equals NaN, and a missing column equals null."""
    match before, after:
        case dict(), dict():
            return all(_is_same(before.get(name), after.get(name)) for name in before.keys() | after.keys())
        case list(), list():
            return len(before) == len(after) and all(map(_is_same, before, after))
        # NaN is not equal to itself, so that a row with one would seem to change in every commit.
        case float(), float() if math.isnan(before):
            return math.isnan(after)
    return bool(before == after)
