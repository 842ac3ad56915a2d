"""Decisions on conflicts of a merge that could not be published, kept for the next attempt.

There is one object for each pair of a source and a target branch. It is a hint, not a part of the history: a decision
applies only while the base, the source and the target have the values that were decided on, so an old one does no harm,
and a lost one is made again.
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
    def path(self) -> str:
        return f"{DECISIONS}/{self.into.segment}/{self.source.segment}.json"

    def read(self) -> list[dict[str, Any]]:
        """Return the decisions as resolutions, with the values that were decided on."""
        data = self.config.store.find(self.path)
        if data is None:
            return []
        self.is_read = True
        fields = documents.load(data, path=self.path)
        with documents.damage_named(self.path):
            return [dict(entry) for entry in fields["decisions"]]

    def add(self, decided: Iterable[Conflict]) -> None:
        """Keep the decisions on conflicts, beside those that are kept already."""
        new = [_entry_of(conflict) for conflict in decided]
        if new:
            entries = {_subject(entry): entry for entry in (*self.read(), *new)}
            fields = {"source": str(self.source), "into": str(self.into), "decisions": list(entries.values())}
            self.config.store.put(self.path, documents.dump(fields))

    def clear(self) -> bool:
        """Delete the decisions. Return whether there were any."""
        if self.config.store.find_info(self.path) is None:
            return False
        self.config.store.delete(self.path)
        return True


def _entry_of(conflict: Conflict) -> dict[str, Any]:
    """Return a decided conflict as a resolution with the values that were decided on, as JSON has them."""
    found = {name: json_value(getattr(conflict, name)) for name in _NAMES}
    return {**found, **{name: json_value(value) for name, value in (conflict.decision or {}).items()}}


def iter_unique(decided: Iterable[Conflict]) -> Iterator[Conflict]:
    """Yield each decided conflict once. A list may be filled until the first one is asked for."""
    yield from {_subject(_entry_of(conflict)): conflict for conflict in decided}.values()


def _subject(entry: Mapping[str, Any]) -> str:
    return json.dumps([entry.get(name) for name in _SUBJECT], sort_keys=True)
