"""Numbered logs: entry n is put if absent, and no entry is ever changed. Also the names of such logs.

File names count down from 2^64-1, so that on a store with sorted listings the newest entry comes first. Local disks do
not list in order. There, a hint file has a copy of a recent entry, and the next numbers are read until one is missing.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import compress, islice
from typing import TypeVar
from urllib.parse import unquote
from zlib import crc32

from anabranch.errors import AnabranchError, InvalidInputError, InvalidNameError
from anabranch.format.arguments import checked_limit
from anabranch.hints import closest, suggest
from anabranch.ids import BranchName
from anabranch.repo.log.entries import LogEntry
from anabranch.storage import ObjectStore, PreparedObject, put_once
from anabranch.warnings import DurabilityWarning

# The folders of the logs of branches, tags and runs.
BRANCHES = "_versions"
TAGS = "_tags"
RUNS = "_runs"

_TOP = (1 << 64) - 1
_HINT = "hint"
_SUFFIX = ".json"
# Always 20 digits, so that names sort as the numbers do.
_ENTRY = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class NumberedLog:
    """One log in one folder. Entries are bytes, and the owner of the log decodes them."""

    store: ObjectStore
    folder: str

    def path(self, number: int) -> str:
        return f"{self.folder}/{_TOP - number:020d}{_SUFFIX}"

    @property
    def hint_path(self) -> str:
        return f"{self.folder}/{_HINT}"

    def number_of(self, path: str) -> int | None:
        """Return the number of the entry at a path, or None for other files in the folder."""
        match = _ENTRY.fullmatch(path.removeprefix(f"{self.folder}/"))
        return None if match is None else _TOP - int(match[1])

    def find(self, number: int) -> bytes | None:
        return self.store.find(self.path(number))

    def list_times(self) -> dict[int, datetime]:
        """Return the time of each entry by the store's clock."""
        listed = ((self.number_of(info.path), info.modified) for info in self.store.list(self.folder))
        return {number: modified for number, modified in listed if number is not None}

    def find_head(self) -> tuple[int, bytes] | None:
        """Return the newest entry with its number, or None for a log without entries."""
        if self.store.lists_sorted:
            return self._read(next(self._iter_numbers(), None))
        # Local disks list in any order: without a hint, all names are needed to find the largest number. That is slow
        # for a long log, but the next append writes a hint.
        newest = self.find_hint() or self._read(max(self._iter_numbers(), default=None))
        if newest is None:
            return None
        number, data = newest
        # Numbers have no gaps, so the first missing one is the end. A stale hint only makes this loop longer.
        while (newer := self.find(number + 1)) is not None:
            number, data = number + 1, newer
        return number, data

    def _read(self, number: int | None) -> tuple[int, bytes] | None:
        return None if number is None else (number, self.store.get(self.path(number)))

    def append(self, number: int, data: bytes, *, after: Sequence[str] = ()) -> bool:
        """Put entry `number`. Return False if it exists. The files in `after` become durable before it."""
        if not put_once(self.store, self.path(number), data, after=after):
            return False
        self.write_hint(number, data)
        return True

    def write_hint(self, number: int, data: bytes) -> None:
        """Write a copy of the newest entry for the next reader. The log works without it, so failures are ignored.

        Its checksum includes the number: a wrong number would hide entries, or name one that does not exist.
        """
        if self.store.lists_sorted:
            return
        hint = b"2 %d %d\n%s" % (number, crc32(b"%d\n%s" % (number, data)), data)
        # The entry exists, so no error may reach the writer.
        with suppress(AnabranchError):
            self.store.put(f"{self.folder}/{_HINT}", hint, is_hint=True)

    def find_hint(self) -> tuple[int, bytes] | None:
        """Return the copy of a recent entry, or None if it is missing or damaged.

        It may be older than the newest entry. Hints of earlier releases have no version, and only the entry's checksum.
        """
        hint = self.store.find(self.hint_path)
        if hint is None:
            return None
        first, _, data = hint.partition(b"\n")
        try:
            *version, number, checksum = map(int, first.split(b" "))
        except ValueError:
            return None
        expected = {(): crc32(data), (2,): crc32(b"%d\n%s" % (number, data))}.get(tuple(version))
        return (number, data) if checksum == expected else None

    def _iter_numbers(self) -> Iterator[int]:
        """Yield the numbers of all entries in the order of the listing, without other files."""
        for info in self.store.list(self.folder):
            if (number := self.number_of(info.path)) is not None:
                yield number


def append_together(store: ObjectStore, entries: Sequence[tuple[NumberedLog, int, bytes]]) -> list[bool]:
    """Put one entry to each of several logs of a store, and wait for the disk once for all of them.

    Each entry is given with its number. Return for each whether it was put. It was not if its number is taken or the
    store failed; the caller rolls back the others and tries each by itself. If the store cannot report whether an entry
    exists, it counts as not put. If an error is raised, none was put.

    No hints are written, which would double the files: the folders of logs with one entry are listed quickly.
    """
    prepared: list[PreparedObject] = []
    try:
        for log, number, data in entries:
            prepared.append(store.prepare(log.path(number), data))
        # Bytes before names, as for a single entry.
        store.sync([each.file for each in prepared if each.file is not None], names=False)
    except BaseException:
        for each in prepared:
            store.discard(each)
        raise
    done = [_put_prepared(store, each) for each in prepared]
    try:
        store.sync_folders([log.folder for log, _, _ in compress(entries, done)])
    except AnabranchError as err:
        # The entries are visible already, so this cannot fail. The same holds for a single one.
        warnings.warn(f"new branches may not survive a power loss: {err}", DurabilityWarning, stacklevel=2)
    return done


def _put_prepared(store: ObjectStore, prepared: PreparedObject) -> bool:
    try:
        store.put_prepared(prepared)
    except AnabranchError:
        store.discard(prepared)
        try:
            # The response to a successful put may have been lost, and the put repeated.
            return store.find(prepared.path) == prepared.data
        except AnabranchError:
            return False  # unknown, but the other entries must be rolled back in any case
    return True


T = TypeVar("T")

# A hint names all branches if there are at most this many.
_NAMES_IN_HINT = 10
# The number of entries to read in parallel where no limit is given.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePage:
    """The names to list. `after` need not exist: a page also continues after a deleted name."""

    prefix: str = ""
    after: str | None = None
    limit: int | None = None

    @classmethod
    def of(cls, prefix: str | None, after: str | None, limit: int | None, things: str) -> "NamePage":
        """Check the arguments of a caller."""
        for name, value in (("prefix", prefix), ("after", after)):
            if value is not None and not isinstance(value, str):
                raise InvalidInputError(f"{name} must be a string, got {value!r}", hint=f"pass the name of {things}")
        return cls(prefix=prefix or "", after=after, limit=checked_limit(limit, things))

    def select(self, names: Iterable[str], *, newest_first: bool = False) -> list[str]:
        """Return the names of the page in order. There may be more than the limit, because some may be deleted."""
        found = sorted((name for name in names if name.startswith(self.prefix)), reverse=newest_first)
        after = self.after
        if after is None:
            return found
        return [name for name in found if (name < after if newest_first else name > after)]

    def cut(self, found: Iterable[T]) -> Iterator[T]:
        """Yield entries up to the limit."""
        return islice(found, self.limit)

    def read(self, names: Sequence[str], read_all: Callable[[Sequence[str]], Iterable[T]]) -> Iterator[T]:
        """Yield what `read_all` returns for the names, in batches as large as the page."""
        size = _AT_ONCE if self.limit is None else max(1, self.limit)
        for start in range(0, len(names), size):
            yield from read_all(names[start : start + size])


ALL = NamePage()


class Names:
    """The names of all logs of a repository. `read_all` returns the newest entries of branches, for hints."""

    def __init__(self, store: ObjectStore, read_all: Callable[[Sequence[BranchName]], tuple[LogEntry, ...]]) -> None:
        self._store = store
        self._read_all = read_all

    def select(self, page: NamePage, *, internal: bool = False) -> list[str]:
        """List the names of branches from a page on, including deleted ones. No head is read."""
        names = [str(name) for name in self.list_branches() if internal or not name.is_internal]
        runs = map(str, self.list_runs()) if internal else ()
        return page.select([*runs, *names])

    def list_all(self) -> tuple[BranchName, ...]:
        """List the names of all logs, including deleted branches, runs and locks."""
        return (*self.list_branches(), *self.list_runs())

    def list_branches(self) -> tuple[BranchName, ...]:
        """List the branches that have a log. Doctor reports folders without a valid branch name."""
        found = map(_find_branch_name, list_names(self._store, BRANCHES))
        return tuple(name for name in found if name is not None)

    def list_runs(self) -> tuple[BranchName, ...]:
        """List the hidden branches of runs."""
        # Other folders may be here, and an id becomes part of a path.
        names = list_names(self._store, RUNS)
        return tuple(BranchName.of_run(name) for name in names if name.isascii() and name.isalnum())

    def list_similar(self, name: str) -> list[str]:
        """List the branches with the most similar names, for a hint. At most three heads are read."""
        try:
            return self._existing(closest(name, self._list_public(), n=3))
        except AnabranchError:
            return []  # the error that the hint is for matters more

    def hint_for(self, missing: BranchName) -> str:
        """Return the hint for a branch that does not exist: a similar name, and the existing names.

        It lists the names once, and reads the heads of only a few branches.
        """
        try:
            names = self._list_public()
            exist = self._existing([*closest(str(missing), names, n=3), *names[:_NAMES_IN_HINT]])
        except AnabranchError:
            exist = names = []
        # Reads accept a tag where this call needs a branch, so that the name of a tag is a likely mistake.
        with suppress(AnabranchError):
            if str(missing) in list_names(self._store, TAGS):
                return f"a tag does not move: make a branch from it with `branch_create('NAME', source='{missing}')`"
        if not exist or len(names) > _NAMES_IN_HINT:
            return suggest(str(missing), exist, "list the branches with `branch_list()`")
        return suggest(str(missing), exist, f"the branches are {', '.join(map(repr, sorted(exist)))}")

    def hint_for_any(self, missing: BranchName) -> str:
        """Return the hint for a branch that never existed: a similar name, also of a deleted branch."""
        way = "list the deleted branches with `branch_list(deleted=True)`"
        try:
            return suggest(str(missing), self._list_public(), way)
        except AnabranchError:
            return way

    def _list_public(self) -> list[str]:
        return [str(name) for name in self.list_branches() if not name.is_internal]

    def _existing(self, names: Iterable[str]) -> list[str]:
        entries = self._read_all([BranchName(name) for name in dict.fromkeys(names)])
        return [str(entry.branch) for entry in entries if not entry.state.is_deleted]


def list_names(store: ObjectStore, folder: str) -> list[str]:
    """List the names of the folders in a folder, in order."""
    return sorted(path.rpartition("/")[2] for path in store.list_folders(folder))


def _find_branch_name(folder: str) -> BranchName | None:
    try:
        return BranchName.parse(unquote(folder))
    except InvalidNameError:
        return None
