"""Commit objects: immutable, named by ULID, outliving the branch they were made on."""

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any

from anabranch.errors import CommitNotFoundError, CorruptError, ObjectNotFoundError
from anabranch.ids import TableKey
from anabranch.repo import codec
from anabranch.repo.context import Context
from anabranch.repo.models import CommitRecord, GraphCommit, TableEntry, TableMap

__all__ = ["Commits", "next_page"]

# A commit repeats the summaries of the commits before it, back to the start of its page, so that a log of n commits
# costs n/_PAGE requests.
_PAGE = 64
_PAGE_BYTES = 64 * 1024


class Commits:
    """The repository's commit objects."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._full_maps: dict[str, dict[TableKey, TableEntry]] = {}

    def get(self, commit_id: str) -> CommitRecord:
        return codec.decode_commit(self._read(commit_id))

    def list_by_prefix(self, prefix: str) -> list[CommitRecord]:
        """The commit objects whose id starts so, published or not."""
        paths = (info.path for info in self._context.store.list("_commits"))
        ids = [path.rpartition("/")[2].removesuffix(".json") for path in paths]
        return [self.get(commit_id) for commit_id in ids if commit_id.startswith(prefix)]

    def put(self, record: CommitRecord, full_map: TableMap | None) -> None:
        """Store a new commit; `full_map` is given where the commit is its own base."""
        data = codec.dump(codec.encode_commit(record, full_map))
        self._context.store.put_if_absent(_path(record.commit.graph_commit_id), data)
        if full_map is not None:
            self._remember(record.base, dict(full_map))

    def tables_of(self, record: CommitRecord) -> dict[TableKey, TableEntry]:
        """The full map of a commit: its base's, with its changes on top. At most one request."""
        tables = dict(self._full_map(record.base))
        for key, entry in record.changes.items():
            if entry is None:
                tables.pop(key, None)
            else:
                tables[key] = entry
        return tables

    def find_table(self, record: CommitRecord, key: TableKey) -> TableEntry | None:
        if key in record.changes:
            return record.changes[key]
        return self._full_map(record.base).get(key)

    def iter_history(self, record: CommitRecord) -> Iterator[GraphCommit]:
        """A commit and its first parents, newest first; one request for each page of them."""
        while True:
            yield record.commit
            yield from (codec.decode_graph_commit(fields) for fields in record.recent)
            if record.older is None:
                return
            record = self.get(record.older)

    def _full_map(self, base: str) -> Mapping[TableKey, TableEntry]:
        if base not in self._full_maps:
            self._remember(base, codec.decode_full_map(self._read(base)))
        return self._full_maps[base]

    def _remember(self, base: str, full_map: dict[TableKey, TableEntry]) -> None:
        # Bases never change; a handle rarely looks at more than the newest few.
        if len(self._full_maps) >= 8:
            self._full_maps.pop(next(iter(self._full_maps)), None)
        self._full_maps[base] = full_map

    def _read(self, commit_id: str) -> dict[str, Any]:
        path = _path(commit_id)
        try:
            return codec.load(self._context.store.get(path), path=path)
        except ObjectNotFoundError:
            raise CommitNotFoundError(
                f"there is no commit {commit_id!r}", hint="list the commits to see which exist"
            ) from None
        except (KeyError, TypeError, ValueError) as err:
            raise CorruptError(f"{path!r} is damaged: {err!r}", hint="run doctor on the repository") from err


def _path(commit_id: str) -> str:
    return f"_commits/{commit_id}.json"


def is_due_for_full_map(changes: int, tables: int) -> bool:
    """Whether a commit should hold the full map: where repeating the changes has become dearer than starting over."""
    return changes > max(16, 2 * isqrt(tables))


def next_page(parent: CommitRecord) -> tuple[tuple[Mapping[str, Any], ...], str | None]:
    """The `recent` and `older` of a commit on top of `parent`."""
    if len(parent.recent) + 1 >= _PAGE or _size(parent.recent) > _PAGE_BYTES:
        return (), parent.commit.graph_commit_id
    return (codec.encode_graph_commit(parent.commit), *parent.recent), parent.older


def _size(recent: tuple[Mapping[str, Any], ...]) -> int:
    return sum(len(fields["message"]) + sum(map(len, fields["tables"])) + 300 for fields in recent)
