"""What a handle reads: commits, rows through time, movements, the history as tables."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import require_names
from anabranch.ids import BranchName, CommitId, Ref, TableKey
from anabranch.repo.handles.base import Handle
from anabranch.repo.history import entities, tables
from anabranch.repo.history.changes import CommitChanges, TableFeed
from anabranch.repo.history.diff import Diff, diff_snapshots
from anabranch.repo.history.lineage.graph import Lineage
from anabranch.repo.history.lineage.tracing import trace_lineage
from anabranch.repo.io.values import Choice
from anabranch.repo.log.arguments import checked_limit, checked_version
from anabranch.repo.log.entries import CommitRecord, GraphCommit
from anabranch.repo.refs import reflog
from anabranch.repo.refs.resolve import Resolved
from anabranch.repo.snapshot import Snapshot

__all__ = ["ReadingHandle"]


class ReadingHandle(Handle):
    """Reads what was published."""

    def snapshot_at_version(self, version: int) -> Snapshot:
        """The bound branch as of the entry of that number in its log."""
        number = checked_version(version)
        return self._snapshot(Resolved.of_entry(self._records.heads.get_numbered(self._branch, number), is_old=True))

    def get_commit(self, commit_id: str) -> GraphCommit:
        """A commit by its id, or by a unique beginning of it."""
        if Ref.parse(commit_id).name == commit_id and len(commit_id) >= 26:
            return self._get_commit(commit_id)
        return self._resolve(commit_id).record.commit

    def head_commit_id_for_branch(self, branch: str) -> str:
        """The id of the newest commit of a branch."""
        return self._records.heads.get(BranchName.parse_public(branch)).head.commit.graph_commit_id

    def list_commits(
        self, ref: str | None = None, *, limit: int | None = 50, before: str | None = None, table: str | None = None
    ) -> list[GraphCommit]:
        """The commits that led to a ref, newest first; `before` continues after the last one of another page.

        They follow first parents: those of a branch that was merged are listed from `merged_parent_commit_id`.

        >>> [commit.message for commit in repo.list_commits("main", table="shop.orders")]
        ['Load the shop']
        """
        limit = checked_limit(limit, "commits")
        start = self._resolve(self._ref(ref)).record
        found = self._records.commits.iter_history(start if before is None else self._resolve(before).record)
        if before is not None:
            found = islice(found, 1, None)
        if table is not None:
            key = str(TableKey.parse(table))
            found = (commit for commit in found if key in commit.tables)
        return list(islice(found, limit))

    def entity_at(
        self,
        key: str,
        id: Any,  # noqa: A002 - the name that users know
        *,
        version: int | None = None,
        ref: str | None = None,
    ) -> dict[str, Any] | None:
        """One row by its primary key, at a version of the bound branch or at a ref; by default as it is now.

        A key of several columns is a tuple. No other table is looked at.

        >>> repo.entity_at("shop.orders", 2)
        {'id': 2, 'item': 'cup', 'amount': 8.0}
        >>> repo.entity_at("shop.orders", 9) is None
        True
        """
        return entities.find_entity(self._records, self._at(version, ref).record, TableKey.parse(key), id)

    def entity_history(
        self,
        key: str,
        id: Any,  # noqa: A002 - the name that users know
        *,
        ref: str | None = None,
        limit: int | None = None,
    ) -> list[entities.EntityChange]:
        """Each change of one row up to a ref, newest first: the commit, and the row before and after it."""
        start = self._resolve(self._ref(ref)).record
        return entities.list_entity_changes(self._records, start, TableKey.parse(key), id, limit=limit)

    def diff(
        self,
        before: str,
        after: str | None = None,
        *,
        tables: Sequence[str] | None = None,
        engine: str = Choice.AUTO,
    ) -> Diff:
        """What differs between two refs, related or not; `after` is the bound branch by default.

        Nothing is read before somebody asks for columns, counts or rows, and then only what may differ. Rows are
        matched in this process or, where there are many and it is there, by Spark; `engine` says 'local' or 'spark'.

        >>> with repo.transaction(message="Cups cost more") as tx:
        ...     tx.update("shop.orders", {"amount": "9.0"}, where="id = 2")
        1
        >>> for row in repo.diff("main~1", "main").iter_rows():
        ...     print(row.table, row.change, row.before["amount"], row.after["amount"], row.columns)
        shop.orders updated 8.0 9.0 ('amount',)
        """
        comparer = self._comparer(engine)
        if tables is not None:
            require_names(tables)
        return diff_snapshots(
            self.snapshot_of(before),
            self.snapshot_of(self._ref(after)),
            keys=tables,
            load_comparer=lambda: comparer,
        )

    def changes(self, key: str, *, since: str | None = None, until: str | None = None) -> Iterator[CommitChanges]:
        """What each commit after `since` and up to `until` did to the rows of a table, oldest first.

        By default from the table's first commit to the bound branch as it is now. Only the commits that touched the
        table are read; `since` has to be in the history of `until`.
        """
        return self.change_feed(key).iter_changes(since=since, until=self._ref(until))

    def change_feed(self, key: str) -> TableFeed:
        """The changes of a table for engines that plan which commits to read, and read them elsewhere."""
        return TableFeed(
            self._records,
            TableKey.parse(key),
            resolve=self._resolve_recorded,
            load_comparer=lambda: self._comparer(Choice.LOCAL),
        )

    def lineage(self, key: str, ref: str | None = None) -> Lineage:
        """What a table came from: tables, pipelines and loads, each as it was when it was read."""
        return trace_lineage(self._records, self._resolve(self._ref(ref)).record, TableKey.parse(key))

    def reflog(self, branch: str | None = None, *, limit: int | None = 50) -> list[reflog.Movement]:
        """Every movement of a branch, newest first: commits, resets, deletes, with actor and time."""
        target = self._named(branch)
        return reflog.list_movements(self._records, target, limit=limit)

    def history_sync(self) -> tables.HistoryTables:
        """Bring `_graph_commits.lance` and `_graph_commit_actors.lance` up to date with every branch's log.

        They follow by themselves, a few commits behind, and nothing here reads them.
        """
        return tables.sync_history(self._records)

    def history_rebuild(self) -> tables.HistoryTables:
        """Make both tables anew from the logs, for when they were damaged or lost."""
        return tables.rebuild_history(self._records)

    def _at(self, version: int | None, ref: str | None) -> Resolved:
        if version is None:
            return self._resolve(self._ref(ref))
        if ref is not None:
            raise InvalidInputError(f"both version {version} and ref {ref!r} are given", hint="give one of them")
        return Resolved.of_entry(self._records.heads.get_numbered(self._branch, checked_version(version)))

    def _resolve_recorded(self, ref: str) -> CommitRecord:
        """The commit that a ref stands for, as it was made: a live branch shows more of main by now."""
        found = self._resolve(ref).record
        return found if found.saw is None else self._records.commits.get(found.commit.graph_commit_id)

    def _get_commit(self, commit_id: str) -> GraphCommit:
        return self._resolve(CommitId.parse(commit_id).value).record.commit
