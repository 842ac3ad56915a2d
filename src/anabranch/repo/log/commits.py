"""Commit objects. They are immutable, named by ULID, and stay when their branch is deleted."""

from collections.abc import Iterator
from typing import Any

from anabranch.errors import CommitNotFoundError, CorruptError, ObjectNotFoundError
from anabranch.format.cache import BoundedCache
from anabranch.ids import TableKey
from anabranch.repo.log import codec, validation
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, GraphCommit, Origin, TableEntry, TableMap
from anabranch.repo.log.table_maps import LayeredMap, StoredMap
from anabranch.storage import documents, put_once

__all__ = ["COMMITS", "Commits", "commit_path", "next_page", "read_commit_fields"]

COMMITS = "_commits"

# A commit repeats the summaries of the commits before it, back to the start of its page, so that reading n commits
# costs n/_PAGE requests. A page also ends when its summaries become too large, for example with very many tables.
_PAGE = 64
_PAGE_BYTES = 16 * 1024
# Summaries that are cached: this many commits, with this many names of tables in all.
_CACHED_ORIGINS = 20_000
_CACHED_NAMES = 200_000
# Up to this many changes since the base, a commit never gets a full map.
_ALWAYS_CHANGES = 16


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

    def put(self, record: CommitRecord, full_map: TableMap | None, *, durable: bool = True) -> None:
        """Store a new commit. `full_map` is given if the commit is its own base.

        Pass `durable=False` if the commit is synced later, together with the log entry that refers to it.
        """
        data = documents.dump(codec.encode_commit(record, full_map))
        path = commit_path(record.commit.graph_commit_id)
        if not put_once(self._config.store, path, data, durable=durable):
            raise CorruptError(f"another commit already exists at {path!r}", hint="try again: ids are random")
        if full_map is not None:
            self._full_maps.keep(record.base, dict(full_map))

    def tables_of(self, record: CommitRecord) -> dict[TableKey, TableEntry]:
        """Return all tables of a commit: those of its base with its changes applied. At most one request."""
        tables = dict(self._full_map(record.base))
        for key, entry in record.changes.items():
            if entry is None:
                tables.pop(key, None)
            else:
                tables[key] = entry
        return tables

    def map_of(self, record: CommitRecord) -> TableMap:
        """Return the same tables as a map that decodes an entry when it is read. At most one request."""
        return LayeredMap(self._full_map(record.base), record.changes)

    def find_table(self, record: CommitRecord, key: TableKey) -> TableEntry | None:
        if key in record.changes:
            return record.changes[key]
        return self._full_map(record.base).get(key)

    def read_table(self, commit_id: str, key: TableKey) -> TableEntry | None:
        """Return one table of a commit. Nothing else of the commit is decoded."""
        fields = self._read(commit_id)
        with documents.damage_named(commit_path(commit_id)):
            changes, base = fields["changes"], validation.check_commit_id(fields["base"])
            if str(key) in changes:
                entry = changes[str(key)]
                return None if entry is None else codec.decode_table(entry)
        return self._full_map(base).get(key)

    def iter_history(self, record: CommitRecord) -> Iterator[GraphCommit]:
        """Yield a commit and its first parents, newest first, with one request per page."""
        commit = record.commit
        yield commit
        self.keep_origins(record)
        while commit.parent_commit_id is not None:
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
        if parent is not None and self._origins.find(parent) is None:
            for origin in self.list_page(record):
                self._keep_origin(origin)

    def _keep_origin(self, origin: Origin) -> None:
        self._origins.keep(origin.commit.graph_commit_id, origin, weight=1 + len(origin.commit.tables))

    def _full_map(self, base: str) -> TableMap:
        known = self._full_maps.find(base)
        if known is None:
            path = commit_path(base)
            try:
                data = self._config.store.get(path)
            except ObjectNotFoundError:
                raise CorruptError(
                    f"commit {base!r}, which others build on, is missing", hint="run doctor on the repository"
                ) from None
            known = StoredMap(data, path=path, commit_id=base)
            self._full_maps.keep(base, known)
        return known

    def _read(self, commit_id: str) -> dict[str, Any]:
        try:
            return read_commit_fields(self._config, commit_id)
        except ObjectNotFoundError:
            raise CommitNotFoundError(
                f"there is no commit {commit_id!r}", hint="list the commits to see which exist"
            ) from None


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
    if since_base <= _ALWAYS_CHANGES:
        return False
    return since_base * since_base > tables * new or 3 * since_base > tables


def next_page(parent: CommitRecord) -> tuple[tuple[tuple[Any, ...], ...], str | None]:
    """Return the fields `recent` and `older` of a commit on top of `parent`."""
    page = (codec.encode_summary(parent), *parent.recent)
    if len(page) >= _PAGE or sum(map(codec.weigh_summary, page)) > _PAGE_BYTES:
        return (), parent.commit.graph_commit_id
    return page, parent.older
