"""One row through time: as it was at one state, and each change of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from anabranch.errors import InvalidInputError, NotFoundError, TableNotFoundError
from anabranch.format.entities import find_row, find_row_beside, read_contents_of
from anabranch.format.manifest import Contents
from anabranch.format.staging import Pin
from anabranch.ids import TableKey
from anabranch.repo.history.table_line import TableChange, iter_table_changes
from anabranch.repo.log.arguments import checked_limit
from anabranch.repo.log.collected import collected_errors, refuse_collected
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, GraphCommit, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.storage.parallel import in_parallel

__all__ = ["EntityChange", "find_entity", "list_entity_changes"]

Row = dict[str, Any]
# A state of a table: its dataset, home and version.
Place = tuple[str, str | None, int]

# So many changes of the table are looked at together.
_AT_A_TIME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChange:
    """What one commit did to one row: `before` is None where it added the row, `after` where it took it away."""

    commit: GraphCommit
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def commit_id(self) -> str:
        """The commit that made it."""
        return self.commit.graph_commit_id

    @property
    def at(self) -> int:
        """Microseconds since 1970."""
        return self.commit.created_at

    @property
    def actor(self) -> str | None:
        """Who made the change."""
        return self.commit.actor_id


def find_entity(records: RepoStore, record: CommitRecord, key: TableKey, entity: Any) -> Row | None:
    """The row of a key as a commit has it. Of the commit's tables only this one is looked at."""
    refuse_collected(record)
    entry = records.commits.find_table(record, key)
    if entry is None:
        raise TableNotFoundError(
            f"there is no table '{key}' in the commit {record.commit.graph_commit_id}",
            hint="list its tables to see which exist",
        )
    with collected_errors(records.context, lambda: [record.commit.graph_commit_id]):
        return find_row(_pin(records.context, entry), _key_values(key, entry, entity))


def list_entity_changes(
    records: RepoStore, record: CommitRecord, key: TableKey, entity: Any, *, limit: int | None
) -> list[EntityChange]:
    """The commits that changed a row, newest first, along the first parents of a commit.

    A table of another name is another table, so that a rename takes a row away under the one name and adds it under
    the other. A table that was dropped and made again is the same one. Where it had no such key, the row was not there.
    """
    return list(islice(_iter_entity_changes(records, record, key, entity), checked_limit(limit, "changes")))


def _iter_entity_changes(
    records: RepoStore, record: CommitRecord, key: TableKey, entity: Any
) -> Iterator[EntityChange]:
    changes = iter_table_changes(records, record, key)
    reader: _RowReader | None = None
    while some := list(islice(changes, _AT_A_TIME)):
        with collected_errors(records.context, partial(_iter_commits, some)):
            reader = reader or _RowReader(records.context, key, entity, newest=_newest_entry(key, some))
            yield from reader.compare(some)
    if reader is None:
        raise TableNotFoundError(
            f"there was no table '{key}' up to the commit {record.commit.graph_commit_id}",
            hint="list the commits to see the tables they changed",
        )


def _iter_commits(changes: list[TableChange]) -> Iterator[str]:
    """The commits that made the states before and after some changes."""
    for commit in (change.commit for change in changes):
        yield commit.graph_commit_id
        if commit.parent_commit_id is not None:
            yield commit.parent_commit_id


def _newest_entry(key: TableKey, changes: list[TableChange]) -> TableEntry:
    """The table as it was last, which says what its key is."""
    for change in changes:
        for entry in (change.after, change.before):
            if entry is not None:
                return entry
    raise TableNotFoundError(f"there was no table '{key}'", hint="list the tables to see which exist")


class _RowReader:
    """Reads one row at many states of a table, of each only what the state read before did not have."""

    def __init__(self, context: RepoConfig, key: TableKey, entity: Any, *, newest: TableEntry) -> None:
        self._context = context
        self._values = tuple(_key_values(key, newest, entity).values())
        # What can be no key of the table is refused here; older states may have had another one.
        pin = _pin(context, newest)
        self._last = newest, find_row_beside(pin, self._named(newest), read_contents_of(pin), None)
        self._known: dict[Place, Row | None] = {_place(newest): self._last[1].row}
        self._contents: dict[Place, Contents | NotFoundError] = {}

    def compare(self, changes: list[TableChange]) -> Iterator[EntityChange]:
        """The changes of the table that changed the row."""
        entries = [entry for change in changes for entry in (change.after, change.before) if entry is not None]
        wanted = {_place(entry): entry for entry in entries if _place(entry) not in self._known}
        # Of what was read before, only the oldest state can be asked for again, as the state after the next change.
        self._known = {place: self._known[place] for place in map(_place, entries) if place in self._known}
        self._contents = dict(zip(wanted, in_parallel(self._read_contents, wanted.values()), strict=True))
        for change in changes:
            after, before = self._row(change.after), self._row(change.before)
            if not _is_same(before, after):
                yield EntityChange(commit=change.commit, before=before, after=after)

    def _read_contents(self, entry: TableEntry) -> Contents | NotFoundError:
        try:
            return read_contents_of(_pin(self._context, entry))
        except NotFoundError as err:
            return err  # whoever asks for the newest changes only may never come here

    def _row(self, entry: TableEntry | None) -> Row | None:
        if entry is None:
            return None
        place = _place(entry)
        if place not in self._known:
            self._known[place] = self._read(entry, self._contents[place])
        return self._known[place]

    def _read(self, entry: TableEntry, contents: Contents | NotFoundError) -> Row | None:
        if isinstance(contents, NotFoundError):
            raise contents
        if len(entry.primary_key) != len(self._values):
            return None
        before, seen = self._last
        is_like = before.primary_key == entry.primary_key
        try:
            found = find_row_beside(_pin(self._context, entry), self._named(entry), contents, seen if is_like else None)
        except InvalidInputError:
            return None  # the key was of another type
        self._last = entry, found
        return found.row

    def _named(self, entry: TableEntry) -> dict[str, Any]:
        return dict(zip(entry.primary_key, self._values, strict=True))


def _pin(context: RepoConfig, entry: TableEntry) -> Pin:
    return Pin(home=context.home_of(entry), version=entry.version)


def _place(entry: TableEntry) -> Place:
    return entry.dataset, entry.home, entry.version


def _key_values(key: TableKey, entry: TableEntry, entity: Any) -> dict[str, Any]:
    """The value of each key column; a key of several columns is a tuple in their order."""
    names = entry.primary_key
    if not names:
        raise InvalidInputError(
            f"table '{key}' has no primary key, so a row of it cannot be told from the others",
            hint="read the table with a filter, or make it with a primary key",
        )
    values = entity if isinstance(entity, tuple) else (entity,)
    if len(values) != len(names):
        raise InvalidInputError(
            f"{entity!r} has {len(values)} values, but the key of table '{key}' is ({', '.join(names)})",
            hint="give a tuple with a value for each key column, in this order",
        )
    return dict(zip(names, values, strict=True))


def _is_same(before: Any, after: Any) -> bool:
    """Whether two values say the same: NaN is itself, and a column that is not there is null."""
    match before, after:
        case dict(), dict():
            return all(_is_same(before.get(name), after.get(name)) for name in before.keys() | after.keys())
        case list(), list():
            return len(before) == len(after) and all(map(_is_same, before, after))
        case float(), float() if math.isnan(before):
            return math.isnan(after)
    return bool(before == after)
