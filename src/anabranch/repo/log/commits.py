"""Commits: their specification, their record, and the stored objects with their table maps.

Commit objects are immutable, named by ULID, and stay when their branch is deleted.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.errors import CommitNotFoundError, CorruptError, ObjectNotFoundError
from anabranch.format.home import BoundedCache
from anabranch.ids import MAIN, TableKey
from anabranch.repo.log import codec, validation
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import (
    Changes,
    CommitKind,
    CommitRecord,
    FrozenDict,
    GraphCommit,
    LogEntry,
    Origin,
    TableEntry,
    TableMap,
)
from anabranch.storage import documents, put_once

COMMITS = "_commits"

# Summaries that are cached: this many commits, with this many names of tables in all.
_CACHED_ORIGINS = 20_000
_CACHED_NAMES = 200_000
# Up to this many changes since the base, a commit never gets a full map.
_FEW_CHANGES = 16

# The beginning of the full map as `documents.dump` writes it, never inside a string, where JSON escapes quotes.
_BEGINNING = b',"format":%d,"full_map":{' % documents.FORMAT
_DECODER = json.JSONDecoder()
# An entry is rarely longer. A longer one is decoded from all of the object.
_ENTRY_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A change that is published once, even if several processes try it, or one tries again after a crash.

    The commit has `value` under `key` in its metadata. A publish that finds such a commit on the branch returns it and
    changes nothing. With `is_ordered` the values are increasing numbers: the newest commit with the key decides, and
    its value includes all lower ones. `is_relevant` leaves out commits that have the key for another reason.

    At least one bound keeps the cost independent of the length of the history. `after` is the version of the branch at
    the first attempt; with it, commits that a reset has removed since count, too. `since` is the time of the first
    attempt, in microseconds. `until` is a commit that was searched already, with all commits before it. Ordered values
    end the search by themselves.
    """

    key: str
    value: str
    is_ordered: bool = False
    is_relevant: Callable[[GraphCommit], bool] = lambda _: True
    after: int | None = None
    since: int | None = None
    until: str | None = None

    def find(self, commits: Iterable[GraphCommit]) -> GraphCommit | None:
        """Return the commit of an earlier attempt, given the commits of a branch, newest first."""
        for commit in commits:
            # Times never decrease along a branch, so that the search can stop at the first commit that is too old.
            is_too_old = self.since is not None and commit.created_at < self.since
            if is_too_old or commit.graph_commit_id == self.until:
                return None
            found = commit.metadata.get(self.key)
            if found is None or not self.is_relevant(commit):
                continue
            if self._is_included_in(found):
                return commit
            # The newest commit with the key has a lower number, so that this change was not published.
            if self.is_ordered:
                return None
        return None

    def _is_included_in(self, value: str) -> bool:
        return value == self.value or (self.is_ordered and int(value) > int(self.value))


# Called with a commit before it is published. Raises an error to refuse it.
Inspect = Callable[[CommitRecord, TableMap], None]
# The same with the checks of a protected branch.
Guard = Callable[[tuple[tuple[str, str], ...], CommitRecord, TableMap], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSpec:
    """The values that a commit will record, and the checks to run before it is published.

    On a live branch, `released` tables follow main again, and a commit that `freezes` makes the branch pinned. A pull
    gives the commit that its tables are `taken_from`; a merge of a live branch gives the commit of main under it. Only
    a commit with a `guard` may go to a protected branch. A commit with `once` is not published if the branch has it
    already; its metadata are added to those of the commit. Nothing of the commit was staged before `staged_since`, in
    microseconds, if the caller knows that. Nothing was staged on the `created` tables since they were created.
    """

    message: str
    kind: CommitKind
    metadata: Mapping[str, str]
    merged_parent: GraphCommit | None = None
    taken_from: GraphCommit | None = None
    released: frozenset[TableKey] = frozenset()
    freezes: bool = False
    inspect: Inspect | None = None
    guard: Guard | None = None
    once: Once | None = None
    staged_since: int = 0
    created: frozenset[TableKey] = frozenset()


class Commits:
    """The repository's commit objects."""

    def __init__(self, config: RepoConfig) -> None:
        self._config = config
        # Full maps never change, and a handle rarely reads more than the newest few.
        self._full_maps: BoundedCache[str, TableMap] = BoundedCache(limit=8)
        # Summaries never change either, and each walk over the graph meets the same commits.
        self._origins: BoundedCache[str, Origin] = BoundedCache(limit=_CACHED_ORIGINS, capacity=_CACHED_NAMES)

    def get(self, commit_id: str) -> CommitRecord:
        fields = self._read(commit_id)
        with documents.damage_named(commit_path(commit_id)):
            return codec.decode_commit(fields)

    def list_by_prefix(self, prefix: str) -> list[CommitRecord]:
        """Return the commits whose id starts with a prefix, published or not."""
        paths = (info.path for info in self._config.store.list(COMMITS))
        ids = [path.rpartition("/")[2].removesuffix(".json") for path in paths if path.endswith(".json")]
        return [self.get(commit_id) for commit_id in ids if commit_id.startswith(prefix)]

    def put(self, record: CommitRecord, full_map: TableMap | None, *, durable: bool = True) -> str:
        """Store a new commit, and return its path. `full_map` is given if the commit is its own base.

        Pass `durable=False` if the commit is synced later, together with the log entry that refers to it.
        """
        data = documents.dump(codec.encode_commit(record, full_map))
        path = commit_path(record.commit.graph_commit_id)
        # A new commit never replaces an object: other commits and log entries refer to it by its id.
        if not put_once(self._config.store, path, data, durable=durable):
            raise CorruptError(f"another commit already exists at {path!r}", hint="try again: ids are random")
        if full_map is not None:
            self._full_maps.keep(record.base, dict(full_map))
        return path

    def make(
        self,
        before: LogEntry,
        parent: CommitRecord,
        changes: Changes,
        spec: CommitSpec,
        *,
        main: GraphCommit | None = None,
    ) -> tuple[CommitRecord, TableMap | None]:
        """Return the commit that changes the tables of its parent, and its table map if it stores the full one.

        `before` is the entry that the commit follows. Its branch may be another one than that of the parent. On a live
        branch the parent is shown on a state of `main` (`View.record`).
        """
        made_from = [made for made in (parent.commit, spec.merged_parent, spec.taken_from, main) if made is not None]
        commit = GraphCommit(
            graph_commit_id=self._config.new_id(),
            manifest_branch=None if before.branch.value == MAIN else before.branch.value,
            manifest_version=before.number + 1,
            parent_commit_id=parent.commit.graph_commit_id,
            merged_parent_commit_id=spec.merged_parent.graph_commit_id if spec.merged_parent else None,
            actor_id=self._config.actor,
            # Times never decrease along a branch or from a parent to its child. Refs by time bisect over them, and
            # `keep_newer_than` stops at the first commit that is too old.
            created_at=max(self._config.clock(), before.at, *(made.created_at for made in made_from)),
            message=spec.message,
            kind=spec.kind,
            metadata=FrozenDict({**spec.metadata, **({} if spec.once is None else {spec.once.key: spec.once.value})}),
            tables=tuple(sorted(str(key) for key in {*changes, *spec.released})),
            # Sources of tables count like parents: a walk by generation must not meet one before what was made from it.
            generation=1 + max(made.generation for made in made_from),
        )
        recent, older = codec.next_page(parent)
        is_live = before.state.is_live and not spec.freezes
        record = CommitRecord(
            commit=commit,
            base=parent.base,
            changes={**parent.changes, **changes},
            recent=recent,
            older=older,
            main_id=parent.main_id if is_live else None,
            made_on=main.graph_commit_id if main else None,
            taken_from=spec.taken_from.graph_commit_id if spec.taken_from else None,
        )
        # A live branch builds on the base of main, which main renews. With few changes, the tables need not be read.
        if is_live or len(record.changes) <= _FEW_CHANGES:
            return record, None
        full_map = self.tables_of(record)
        if not is_due_for_full_map(new=len(changes), since_base=len(record.changes), tables=len(full_map)):
            return record, None
        return replace(record, base=commit.graph_commit_id, changes={}), full_map

    def tables_of(self, record: CommitRecord) -> dict[TableKey, TableEntry]:
        """Return all tables of a commit: those of its base with its changes applied. At most one request.

        `CommitTables` reads and decodes only the tables that are needed.
        """
        tables = dict(self.full_map(record.base))
        for key, entry in record.changes.items():
            if entry is None:
                tables.pop(key, None)
            else:
                tables[key] = entry
        return tables

    def find_table(self, record: CommitRecord, key: TableKey) -> TableEntry | None:
        return record.changes[key] if key in record.changes else self.full_map(record.base).get(key)

    def read_table(self, commit_id: str, key: TableKey) -> TableEntry | None:
        """Return one table of a commit. Nothing else of the commit is decoded."""
        fields = self._read(commit_id)
        with documents.damage_named(commit_path(commit_id)):
            changes, base = fields["changes"], validation.check_commit_id(fields["base"])
            if str(key) in changes:
                entry = changes[str(key)]
                return None if entry is None else codec.decode_table(entry)
        return self.full_map(base).get(key)

    def iter_history(self, record: CommitRecord) -> Iterator[GraphCommit]:
        """Yield a commit and its first parents, newest first, with one request per page."""
        commit = record.commit
        yield commit
        self.keep_origins(record)
        while commit.parent_commit_id is not None:
            # One read caches a page of ancestors, so that most steps cost no request.
            commit = self.get_origin(commit.parent_commit_id).commit
            yield commit

    def list_page(self, record: CommitRecord) -> tuple[Origin, ...]:
        """Return the earlier commits whose summaries a commit repeats, newest first."""
        with documents.damage_named(commit_path(record.commit.graph_commit_id)):
            return tuple(codec.iter_origins(record))

    def get_origin(self, commit_id: str) -> Origin:
        """Return a commit with its sources. One request reads the page of its ancestors, and all of them are cached."""
        known = self._origins.find(commit_id)
        if known is None:
            record = self.get(commit_id)
            self.keep_origins(record)
            known = record.origin
        return known

    def keep_origins(self, record: CommitRecord) -> None:
        """Cache a commit and the ancestors on its page, unless the page is cached already."""
        self._keep_origin(record.origin)
        parent = record.commit.parent_commit_id
        # Pages are cached as a whole, so that a known parent means that its page was read.
        if parent is not None and self._origins.find(parent) is None:
            for origin in self.list_page(record):
                self._keep_origin(origin)

    def _keep_origin(self, origin: Origin) -> None:
        self._origins.keep(origin.commit.graph_commit_id, origin, weight=1 + len(origin.commit.tables))

    def full_map(self, base: str) -> TableMap:
        """Return the tables of a commit that others build on. At most one request."""
        known = self._full_maps.find(base)
        if known is None:
            path = commit_path(base)
            try:
                data = self._config.store.get(path)
            except ObjectNotFoundError:
                hint = "run doctor on the repository"
                raise CorruptError(f"commit {base!r}, which others build on, is missing", hint=hint) from None
            known = StoredMap(data, path=path, commit_id=base)
            self._full_maps.keep(base, known)
        return known

    def _read(self, commit_id: str) -> dict[str, Any]:
        try:
            return read_commit_fields(self._config, commit_id)
        except ObjectNotFoundError:
            hint = "list the commits with `list_commits()`"
            raise CommitNotFoundError(f"there is no commit {commit_id!r}", hint=hint) from None


def commit_path(commit_id: str) -> str:
    return f"{COMMITS}/{commit_id}.json"


def read_commit_fields(config: RepoConfig, commit_id: str) -> dict[str, Any]:
    """Read a commit object.

    Raise ObjectNotFoundError if it does not exist, CorruptError if it is damaged or is another commit.
    """
    path = commit_path(commit_id)
    fields = documents.load(config.store.get(path), path=path)
    with documents.damage_named(path):
        found = fields["commit"]["graph_commit_id"]
    codec.check_identity(path, found, commit_id)
    return fields


def is_due_for_full_map(*, new: int, since_base: int, tables: int) -> bool:
    """Return whether a commit with `new` changes should have the full map, `since_base` changes after its base.

    Each commit repeats the changes since its base, so up to the next full map they cost their number squared. A full
    map is due when that is more than the map itself. A commit that changes a third of the tables gets one at once.
    """
    return since_base > _FEW_CHANGES and (since_base * since_base > tables * new or 3 * since_base > tables)


class StoredMap(Mapping[TableKey, TableEntry]):
    """The full map of a commit object. An entry is decoded and checked when it is read: most readers need a few.

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
        """Return the fields of one entry by the position of its name, None if this fast search fails."""
        at = self._position(key)
        if at < 0:
            return None
        # Decoding a small slice first: the object may have megabytes, and `raw_decode` needs a string.
        for end in (at + _ENTRY_BYTES, len(self._data)):
            try:
                fields, _ = _DECODER.raw_decode(self._data[at:end].decode(errors="replace"))
            except ValueError:
                continue  # the entry is longer
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
