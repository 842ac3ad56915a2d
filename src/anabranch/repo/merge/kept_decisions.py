"""Decisions on conflicts of a merge that could not be published, kept for the next attempt.

There is a folder for each pair of a source and a target branch. Each failed merge puts an object of its own there, with
the decisions that it read and its own ones, and then deletes the objects that it read. So no writer replaces what
another one has written at the same time. The objects are hints, not a part of the history: a decision applies only
while the base, the source and the target have the values that were decided on, so an old one does no harm.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.ids import BranchName
from anabranch.json_values import json_value
from anabranch.repo.log.config import DECISIONS, RepoConfig
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.storage import documents

_NAMES = ("table", "kind", "key", "column", "path", "base", "source", "target", "problem")
_MAX_ATTEMPTS = 10
# The fields that identify the conflict of an entry. A later decision on the same conflict replaces the earlier one.
_SUBJECT = ("table", "key", "column", "path", "base", "source", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An object with decisions, in the order in which they were made, and the names of the objects that it replaces."""

    name: str
    decisions: list[dict[str, Any]]
    replaces: frozenset[str]


@dataclass(slots=True, kw_only=True)
class KeptDecisions:
    """The decisions that are kept for merges of one branch into another one. `is_read`: some were found."""

    config: RepoConfig
    source: BranchName
    into: BranchName
    is_read: bool = False

    @property
    def folder(self) -> str:
        return f"{DECISIONS}/{self.into.segment}/{self.source.segment}"

    def read(self) -> list[dict[str, Any]]:
        """Return the decisions as resolutions, with the values that were decided on."""
        return _in_order(self._read_all())

    def _read_all(self) -> list[_Kept]:
        """Return all objects, sorted by their names."""
        for _ in range(_MAX_ATTEMPTS):
            found = {path: self.config.store.find(path) for path in self._list()}
            # Another merge may have replaced some of them by one object. Then the new one has to be found.
            if None not in found.values():
                break
        self.is_read = self.is_read or bool(found)
        return [_load(path, data) for path, data in found.items() if data is not None]

    def _list(self) -> list[str]:
        return sorted(info.path for info in self.config.store.list_files(self.folder))

    def add(self, decided: Iterable[Conflict]) -> None:
        """Keep the decisions on conflicts, in addition to those that are kept already."""
        new = [_entry_of(conflict) for conflict in decided]
        if not new:
            return
        before = self._read_all()
        entries = _newest([*_in_order(before), *new])
        # Put the new object before the deletions. After a crash in between, it names the objects that it replaces: the
        # order of their names is that of the clocks, which may differ. If two merges fail at once, each has an object,
        # and no decision is lost.
        replaced = [kept.name for kept in before]
        fields = {"source": str(self.source), "into": str(self.into), "decisions": entries, "replaces": replaced}
        self.config.store.put(f"{self.folder}/{self.config.new_id()}.json", documents.dump(fields))
        for name in replaced:
            self.config.store.delete(f"{self.folder}/{name}")

    def clear(self) -> bool:
        """Delete the decisions. Return whether there were any."""
        found = self._list()
        for path in found:
            self.config.store.delete(path)
        return bool(found)


def move_decisions(config: RepoConfig, old: BranchName, new: BranchName) -> None:
    """Move the decisions on merges from and into a branch to its new name."""
    store = config.store
    moved = [info.path for info in store.list(f"{DECISIONS}/{old.segment}")]
    moved += [info.path for into in store.list_folders(DECISIONS) for info in store.list(f"{into}/{old.segment}")]
    for path in moved:
        # After a crash in between, a decision has two objects or stays with the old name. Neither does harm.
        into, source, name = path.removeprefix(f"{DECISIONS}/").split("/")
        names = [new.segment if part == old.segment else part for part in (into, source)]
        if (data := store.find(path)) is not None:
            store.put(f"{DECISIONS}/{'/'.join(names)}/{name}", data)
        store.delete(path)


def _load(path: str, data: bytes) -> _Kept:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        decisions = [dict(entry) for entry in fields["decisions"]]
        # Earlier releases did not write the replaced objects.
        replaces = frozenset(fields.get("replaces", ()))
    return _Kept(name=path.rpartition("/")[2], decisions=decisions, replaces=replaces)


def _in_order(objects: Sequence[_Kept]) -> list[dict[str, Any]]:
    """Return the newest decision on each conflict, without the objects that another one replaces."""
    replaced = frozenset[str]().union(*(kept.replaces for kept in objects))
    left = (kept.decisions for kept in objects if kept.name not in replaced)
    return _newest([entry for decisions in left for entry in decisions])


def _newest(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last entry on each conflict, in the order in which these were made."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        subject = _subject(entry)
        # A dict keeps the position of a replaced value, and a decision that was made again is the newest one.
        found.pop(subject, None)
        found[subject] = entry
    return list(found.values())


def _entry_of(conflict: Conflict) -> dict[str, Any]:
    """Return a decided conflict as a resolution with the values that were decided on, as JSON has them."""
    found = {name: json_value(getattr(conflict, name)) for name in _NAMES}
    return {**found, **{name: json_value(value) for name, value in (conflict.decision or {}).items()}}


def iter_unique(decided: Iterable[Conflict]) -> Iterator[Conflict]:
    """Yield each decided conflict once. A list may be filled until the first one is asked for."""
    yield from {_subject(_entry_of(conflict)): conflict for conflict in decided}.values()


def _subject(entry: Mapping[str, Any]) -> str:
    return json.dumps([entry.get(name) for name in _SUBJECT], sort_keys=True)
