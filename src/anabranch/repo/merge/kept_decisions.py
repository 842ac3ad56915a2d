"""Decisions on conflicts of a merge that could not be published, kept for the next attempt.

There is a folder for each pair of a source and a target branch. Each failed merge puts an object of its own there, with
the decisions that it read and its own ones, and then deletes the objects that it read. So no writer replaces what
another one has written at the same time. The objects are hints, not a part of the history: a decision applies only
while the base, the source and the target have the values that were decided on, so an old one does no harm.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.ids import BranchName
from anabranch.json_values import json_value
from anabranch.repo.log.config import DECISIONS, RepoConfig
from anabranch.repo.merge.conflicts import Conflict
from anabranch.storage import documents

__all__ = ["KeptDecisions", "iter_unique"]

_NAMES = ("table", "kind", "key", "column", "path", "base", "source", "target", "problem")
_MAX_ATTEMPTS = 10
# The fields that identify the conflict of an entry. A later decision on the same conflict replaces the earlier one.
_SUBJECT = ("table", "key", "column", "path", "base", "source", "target")


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
        found = self._read_all()
        return list({_subject(entry): entry for entries in found.values() for entry in entries}.values())

    def _read_all(self) -> dict[str, list[dict[str, Any]]]:
        """Return the decisions by their objects, oldest first."""
        for _ in range(_MAX_ATTEMPTS):
            found = {path: self.config.store.find(path) for path in self._list()}
            # Another merge may have replaced some of them by one object. Then the new one has to be found.
            if None not in found.values():
                break
        self.is_read = self.is_read or bool(found)
        return {path: _load(path, data) for path, data in found.items() if data is not None}

    def _list(self) -> list[str]:
        return sorted(info.path for info in self.config.store.list_files(self.folder))

    def add(self, decided: Iterable[Conflict]) -> None:
        """Keep the decisions on conflicts, beside those that are kept already."""
        new = [_entry_of(conflict) for conflict in decided]
        if not new:
            return
        before = self._read_all()
        entries = {_subject(entry): entry for kept in (*before.values(), new) for entry in kept}
        fields = {"source": str(self.source), "into": str(self.into), "decisions": list(entries.values())}
        # A new object first, then the deletions: after a crash in between some decisions are there twice, which is
        # harmless. If two merges fail at once, each has an object, and no decision is lost.
        self.config.store.put(f"{self.folder}/{self.config.new_id()}.json", documents.dump(fields))
        for path in before:
            self.config.store.delete(path)

    def clear(self) -> bool:
        """Delete the decisions. Return whether there were any."""
        found = self._list()
        for path in found:
            self.config.store.delete(path)
        return bool(found)


def _load(path: str, data: bytes) -> list[dict[str, Any]]:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        return [dict(entry) for entry in fields["decisions"]]


def _entry_of(conflict: Conflict) -> dict[str, Any]:
    """Return a decided conflict as a resolution with the values that were decided on, as JSON has them."""
    found = {name: json_value(getattr(conflict, name)) for name in _NAMES}
    return {**found, **{name: json_value(value) for name, value in (conflict.decision or {}).items()}}


def iter_unique(decided: Iterable[Conflict]) -> Iterator[Conflict]:
    """Yield each decided conflict once. A list may be filled until the first one is asked for."""
    yield from {_subject(_entry_of(conflict)): conflict for conflict in decided}.values()


def _subject(entry: Mapping[str, Any]) -> str:
    return json.dumps([entry.get(name) for name in _SUBJECT], sort_keys=True)
