"""The tables of a commit as maps, which decode an entry when it is read.

A repository may have thousands of tables, and most readers need a few of them. Names and entries are checked when they
are read, not when the map is opened: a repository may come from an untrusted source.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from anabranch.ids import TableKey
from anabranch.repo.log import codec
from anabranch.repo.log.entries import CommitRecord, TableEntry, TableMap
from anabranch.storage import documents

# How the full map of a commit begins in the form that `documents.dump` writes. Quotes inside a string are escaped in
# JSON, so this text is not part of a string.
_BEGINNING = b',"format":%d,"full_map":{' % documents.FORMAT
_DECODER = json.JSONDecoder()
# An entry is rarely longer. A longer one is decoded from all of the object.
_ENTRY_BYTES = 1024


class StoredMap(Mapping[TableKey, TableEntry]):
    """The full map of a commit object.

    The text of one entry is found by its name, so that nothing else is parsed. All of the object is parsed when the
    tables are listed, for a name that is not found, and for an object that was not written by `documents.dump`.
    """

    def __init__(self, data: bytes, *, path: str, commit_id: str) -> None:
        self._data = data
        self._path = path
        self._commit_id = commit_id
        self._entries: dict[TableKey, TableEntry] = {}
        self._fields: dict[TableKey, Any] | None = None
        self._start = _find_start(data, commit_id)
        if self._start is None:
            self._parse()  # raises if the object is damaged

    def __getitem__(self, key: TableKey) -> TableEntry:
        known = self._entries.get(key)
        if known is None:
            fields = self._find_text(key)
            if fields is None:
                fields = self._parse()[key]
            with documents.damage_named(self._path):
                known = codec.decode_table(fields)
            self._entries[key] = known
        return known

    def __contains__(self, key: object) -> bool:
        if key in self._entries:
            return True
        return isinstance(key, TableKey) and (self._position(key) >= 0 or key in self._parse())

    def __iter__(self) -> Iterator[TableKey]:
        return iter(self._parse())

    def __len__(self) -> int:
        return len(self._parse())

    def _find_text(self, key: TableKey) -> Mapping[str, Any] | None:
        """Return the fields of one entry by the position of its name, None if it is not found in this way."""
        at = self._position(key)
        if at < 0:
            return None
        # Decoding a small slice first: the object may have megabytes, and `raw_decode` needs a string.
        for end in (at + _ENTRY_BYTES, len(self._data)):
            try:
                fields, _ = _DECODER.raw_decode(self._data[at:end].decode(errors="replace"))
            except ValueError:
                continue  # it is longer
            return fields  # type: ignore[no-any-return] # The text begins with a brace.
        return None

    def _position(self, key: TableKey) -> int:
        """Return the position of the fields of an entry, -1 if it is not found."""
        if self._fields is not None or self._start is None:
            return -1
        # Only a key of the map is followed by a brace in this form. A table key has no character that JSON escapes.
        name = f'"{key}":'.encode()
        found = self._data.find(name + b"{", self._start)
        return -1 if found < 0 else found + len(name)

    def _parse(self) -> dict[TableKey, Any]:
        if self._fields is None:
            fields = documents.load(self._data, path=self._path)
            with documents.damage_named(self._path):
                codec.check_identity(self._path, fields["commit"]["graph_commit_id"], self._commit_id)
                self._fields = {TableKey.parse(key): entry for key, entry in fields["full_map"].items()}
        return self._fields


def _find_start(data: bytes, commit_id: str) -> int | None:
    """Return where the entries begin, None if the object is not one that `documents.dump` wrote for this commit."""
    at = data.find(_BEGINNING)
    # The object is not parsed, so that its checksum and its own id must show that it is intact and at the right path.
    is_own = at >= 0 and data.find(f'"graph_commit_id":"{commit_id}"'.encode(), 0, at) >= 0
    return at + len(_BEGINNING) if is_own and documents.is_sealed(data) else None


@dataclass(eq=False)
class CommitTables(Mapping[TableKey, TableEntry]):
    """The tables of a commit: the full map of its base with its changes. A dropped table is a change to None.

    `read_full_map` is called with the base when a table is needed that has not changed since, or by `read`. An entry is
    decoded when it is read.
    """

    _read_full_map: Callable[[str], TableMap]
    _record: CommitRecord

    @cached_property
    def _base(self) -> TableMap:
        return self._read_full_map(self._record.base)

    def read(self) -> Self:
        """Read the full map now. At most one request."""
        _ = self._base
        return self

    def __getitem__(self, key: TableKey) -> TableEntry:
        if key not in self._record.changes:
            return self._base[key]
        entry = self._record.changes[key]
        if entry is None:
            raise KeyError(key)
        return entry

    def __contains__(self, key: object) -> bool:
        if isinstance(key, TableKey) and key in self._record.changes:
            return self._record.changes[key] is not None
        return key in self._base

    def __iter__(self) -> Iterator[TableKey]:
        yield from (key for key in self._base if key not in self._record.changes)
        yield from (key for key, entry in self._record.changes.items() if entry is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
