"""The public object `Repository`: it takes strings, returns values, and calls the other modules.

Each method imports the module that does its work: most programs need few of them, and Lance takes a while to load.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, assert_never

from anabranch.display import Listing, html_table
from anabranch.errors import AnabranchError, CommitNotFoundError, InvalidInputError, StorageError
from anabranch.format.arguments import checked_limit, require_names, unknown_table
from anabranch.ids import MAIN, BranchName, CommitId, Ref, RefRange, TableKey, TagName, checked_text
from anabranch.repo.history.ancestry import Ancestry, base_snapshot
from anabranch.repo.log.clones import CloneInfo, Clones
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.config import RepoConfig, store_microseconds
from anabranch.repo.log.creation import freeing_space
from anabranch.repo.log.entries import BranchMode, CommitKind, CommitRecord, GraphCommit, LogEntry, TableMap
from anabranch.repo.log.numbered_log import NamePage
from anabranch.repo.log.repo_store import CommitTables, RepoStore
from anabranch.repo.log.validation import checked_choice, checked_expiry, checked_metadata, checked_version
from anabranch.repo.refs import branches, protection, reset_and_undo, tags
from anabranch.repo.refs.branches import BranchInfo, TableDrift
from anabranch.repo.refs.reset_and_undo import Movement
from anabranch.repo.refs.resolve import Resolved, refuse_internal, require_kept, require_published, resolve
from anabranch.repo.refs.tags import TagInfo
from anabranch.repo.runs import runs
from anabranch.repo.runs.runs import RunInfo
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.write import settle
from anabranch.repo.write.branch_rename_pull_freeze import freeze_branch, pull_table, rename_branch
from anabranch.repo.write.publish import Published
from anabranch.repo.write.publish_checks import (
    Checks,
    NamedCheck,
    Parameters,
    checked_checks,
    recorded_checks,
    run_checks,
)
from anabranch.repo.write.settle import ExternalWrite
from anabranch.storage.requests import OnProgress, counting, ignore_progress

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.files.formats import CsvOptions
    from anabranch.format.doctor.findings_and_repairs import DoctorReport
    from anabranch.format.staging import VectorOptions
    from anabranch.repo.gc.collection import Compaction, GcReport
    from anabranch.repo.gc.storage_report import RepositoryStorage
    from anabranch.repo.history.changes import CommitChanges, TableFeed
    from anabranch.repo.history.commit_graph import CommitGraph
    from anabranch.repo.history.comparer import LargeComparer, RowComparer
    from anabranch.repo.history.diff import Diff
    from anabranch.repo.history.entities import EntityChange
    from anabranch.repo.history.lineage import Lineage
    from anabranch.repo.io.export import ExportReport
    from anabranch.repo.io.prepared_table import Loader, LoadReport
    from anabranch.repo.log.commits import Inspect, Once
    from anabranch.repo.log.history_tables import HistoryTables
    from anabranch.repo.log.leases import Lease
    from anabranch.repo.merge.cell_resolvers import Resolvers
    from anabranch.repo.merge.cherry_pick_and_rebase import Pick, Rebase
    from anabranch.repo.merge.combiner import Combiner
    from anabranch.repo.merge.conflict_types import Conflict
    from anabranch.repo.merge.kept_decisions import KeptDecisions
    from anabranch.repo.merge.merge import BranchMerge
    from anabranch.repo.merge.plan import MergeResult, ReplayResult
    from anabranch.repo.run import Run
    from anabranch.repo.schema.apply import SchemaApplied, SchemaPlan
    from anabranch.repo.schema.desired import Desired
    from anabranch.repo.schema.state import SchemaState
    from anabranch.repo.transaction import Transaction
    from anabranch.repo.write.table_changes import Rewriter


T = TypeVar("T")
# How often a write that lost against another writer is tried again.
_RETRIES = 10
Resolutions = Sequence[Mapping[str, Any]]


class SqlEngine(Protocol):
    """Answer SQL over the tables of a repository."""

    def query(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        repository: "Repository",
        sql: str,
        *,
        ref: str,
        params: Parameters | None = None,
        snapshot: Snapshot | None = None,
        timeout: float | None = None,
        batch_rows: int | None = None,
    ) -> "pa.RecordBatchReader":
        """Start one query over the tables at a ref. The reader may be closed before its end.

        If a snapshot is given, the query reads it instead of the ref, also if it is not published yet. A timeout in
        seconds stops the query, also while its answer is read. `batch_rows` is the maximum number of rows of a batch.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of a repository. Each is loaded when it is first needed, because that takes a while."""

    load_sql: Callable[[], SqlEngine]
    load_comparer: "Callable[[], RowComparer]"
    find_large_comparer: "Callable[[], LargeComparer | None]"
    load_rewriter: "Callable[[], Rewriter]"
    find_loader: "Callable[[], Loader | None]"


class Repository:
    """A handle on one repository, bound to one branch."""

    # The handle: where it is bound, what it shows.

    def __init__(self, config: RepoConfig, *, engines: Engines, branch: str = MAIN) -> None:
        if config.actor is not None:
            checked_text(config.actor, "actor's name")
        self._config = config
        self._engines = engines
        self._repo_store = RepoStore.of(config)
        self._branch = BranchName.parse_public(branch)
        self._cached: Snapshot | None = None
        self._seen: dict[BranchName, int] = {}  # the newest version of each branch that this handle read or put
        self._moving = threading.Lock()
        self.external_writes: tuple[ExternalWrite, ...] = ()
        self._once: Once | None = None

    def __repr__(self) -> str:
        return f"Repository({self.uri!r}, branch={self.branch!r})"

    def _repr_html_(self) -> str:
        rows = (("uri", self.uri), ("branch", self.branch), ("actor", self.actor))
        return html_table(("", ""), rows, title="Repository")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the URI, branch, actor and storage options. The copy reads the branch again when it is first used."""
        return _restore, (self._config, self._engines, self.branch)

    @property
    def uri(self) -> str:
        """The URI of the repository."""
        return self._config.root

    @property
    def branch(self) -> str:
        """The branch that this handle is bound to."""
        return str(self._branch)

    @property
    def actor(self) -> str | None:
        """The name that commits of this handle record."""
        return self._config.actor

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of the store, including credentials. Engines that open the tables themselves need them."""
        return self._config.storage_options

    def snapshot(self) -> Snapshot:
        """Return the bound branch as this handle last read it; only `sync_branch` and its own commits move it.

        A live branch moves with main, so both are read each time.

        >>> dict(repo.snapshot().items())["shop.orders"].primary_key
        ('id',)
        """
        known = self._cached
        if known is not None and known.main_commit_id is None:
            return known
        found = Resolved.of_branch(self._repo_store, self._repo_store.heads.get(self._branch))
        if known is None or (known.version, known.main_commit_id) != (found.version, found.view.main_id):
            self._cached = known = self._snapshot(found)
        self._seen[self._branch] = found.version
        return known

    def snapshot_of(self, ref: str) -> Snapshot:
        """Return the current state of a ref.

        >>> snapshot = repo.snapshot_of("main~1")
        >>> len(snapshot), "shop.orders" in snapshot
        (0, False)
        """
        return self._snapshot(self._resolve(ref))

    def table(self, table: str, ref: str | None = None) -> Table:
        """Return a table as a ref has it, by default the bound branch as it is now.

        `repo[key]` is the same without a ref. To read several tables at one commit, take them from one `snapshot`.

        >>> orders = repo.table("shop.orders")
        >>> len(orders), orders.columns
        (3, ('id', 'item', 'amount'))
        >>> repo["shop.orders"].to_arrow(where="amount > 10").num_rows
        2
        """
        return self.snapshot_of(self._ref(ref))[table]

    def __getitem__(self, key: str) -> Table:
        return self.table(key)

    def __contains__(self, key: object) -> bool:
        return key in self.snapshot_of(self.branch)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def tables(self, ref: str | None = None) -> list[str]:
        """List the keys of all tables that a ref has, by default the bound branch as it is now.

        >>> repo.tables()
        ['shop.orders']
        """
        return list(self.snapshot_of(self._ref(ref)))

    def sync_branch(self, branch: str | None = None) -> Snapshot:
        """Bind this handle to the newest state of a branch.

        >>> repo.sync_branch().id == repo.head_commit_id_for_branch("main")
        True
        """
        target = self._named(branch)
        self._cached = self._snapshot(Resolved.of_branch(self._repo_store, self._repo_store.heads.get(target)))
        self._branch = target
        self._seen[target] = self._cached.version
        return self._cached

    def switch(self, branch: str) -> Snapshot:
        """Bind this handle to another branch and return its newest state.

        >>> dev = repo.branch_create("dev")
        >>> snapshot = repo.switch("dev")
        >>> repo.branch
        'dev'
        """
        return self.sync_branch(str(BranchName.parse_public(branch)))

    def _publishing_once(self, once: "Once | None") -> "Repository":
        """Return another handle with `once`, because other callers may use this one concurrently."""
        handle = Repository(self._config, engines=self._engines, branch=self.branch)
        handle._once = once
        return handle

    def _on_published(self, published: Published) -> None:
        """Show a commit of this handle. Threads that share it may call this in another order than they published."""
        from anabranch.repo.log import history_tables

        entry = published.entry
        with self._moving:
            self._seen[entry.branch] = max(entry.number, self._seen.get(entry.branch, 0))
            is_newer = self._cached is None or self._cached.version < entry.number
            if entry.branch == self._branch and is_newer:
                # For a live branch, `snapshot` reads main, too.
                self._cached = None
                if not entry.state.is_live:
                    tables = CommitTables(self._repo_store.commits.full_map, entry.head)
                    self._cached = Snapshot(self._repo_store, entry.head, tables, version=entry.number)
        is_very_first = entry.number == history_tables.FIRST and entry.branch.value == MAIN
        if is_very_first or entry.number % history_tables.INTERVAL == 0:
            history_tables.follow_history(self._repo_store, entry)
        self.external_writes = published.external_writes
        if published.external_writes:
            settle.warn_of_external_writes(published.external_writes)

    def _on_moved(self, after: LogEntry) -> None:
        """Show a reset, undo, redo, cherry-pick, revert or rebase, and settle its tables for plain Lance readers."""
        found = settle.settle_movement(self._repo_store, after)
        self._on_published(Published(entry=after, commit=after.head.commit, changes={}, external_writes=found))

    def _ref(self, ref: str | None) -> str:
        return self.branch if ref is None else str(Ref.parse(ref))

    def _named(self, branch: str | None) -> BranchName:
        """Return the branch of this name, by default the bound one."""
        return self._branch if branch is None else BranchName.parse_public(branch)

    def _published_snapshot(self, ref: str) -> Snapshot:
        return self._snapshot(self._resolve_published(ref))

    def _resolve_published(self, ref: str) -> Resolved:
        """Resolve a ref to build on: refuse a commit that was never published or is collected."""
        return require_kept(require_published(self._resolve(ref), self._repo_store), self._repo_store)

    def _resolve(self, ref: str) -> Resolved:
        parsed = Ref.parse(ref)
        if parsed.name.startswith("__"):
            BranchName.parse_public(parsed.name)  # raises the reason
        found = resolve(parsed, self._repo_store)
        refuse_internal(found)
        if found.is_head and found.branch is not None:
            self._seen[found.branch] = found.version
        return found

    def _snapshot(self, found: Resolved) -> Snapshot:
        require_kept(found, self._repo_store)
        return Snapshot.of(self._repo_store, found.record, version=found.version)

    def _query(
        self, sql: str, snapshot: Snapshot, params: Parameters | None, *, ref: str | None = None
    ) -> "pa.RecordBatchReader":
        """Run a statement on a snapshot, also on an unpublished one. `ref` names it, by default with its commit id."""
        return self._engines.load_sql().query(self, sql, ref=ref or snapshot.id, params=params, snapshot=snapshot)

    def _comparer(self, engine: str = "auto") -> "RowComparer":
        from anabranch.repo.history.comparer import choose_comparer

        engines = self._engines
        return choose_comparer(engine, load_local=engines.load_comparer, find_large=engines.find_large_comparer)

    # Read.

    def snapshot_at_version(self, version: int) -> Snapshot:
        """Return the bound branch as it was after the log entry of this number.

        >>> [len(repo.snapshot_at_version(version)) for version in (1, 2)]
        [0, 1]
        """
        number = checked_version(version)
        return self._snapshot(Resolved.of_entry(self._repo_store.heads.get_numbered(self._branch, number), is_old=True))

    def get_commit(self, commit_id: str) -> GraphCommit:
        """Return a commit by its id, or by the beginning of it if that is unique.

        >>> repo.get_commit(repo.snapshot().id).message
        'Load the shop'
        """
        if Ref.parse(commit_id).name == commit_id and len(commit_id) >= 26:
            commit_id = CommitId.parse(commit_id).value
        return self._resolve(commit_id).record.commit

    def head_commit_id_for_branch(self, branch: str) -> str:
        """Return the id of the newest commit of a branch.

        >>> repo.head_commit_id_for_branch("main") == repo.snapshot().id
        True
        """
        return self._repo_store.heads.get(BranchName.parse_public(branch)).head.commit.graph_commit_id

    def list_commits(
        self,
        ref: str | None = None,
        *,
        limit: int | None = 50,
        after: str | None = None,
        prefix: str | None = None,
        table: str | None = None,
    ) -> Listing[GraphCommit]:
        """List the commits that led to a ref, newest first. `after` continues after the last one of another page.

        They follow first parents: those of a branch that was merged are listed from `merged_parent_commit_id`. `table`
        lists only the commits that changed a table, `prefix` only those whose id starts with it.

        >>> [commit.message for commit in repo.list_commits("main", table="shop.orders")]
        ['Load the shop']
        """
        limit = checked_limit(limit, "commits")
        return Listing(islice(self.iter_commits(ref, after=after, prefix=prefix, table=table), limit))

    def iter_commits(
        self, ref: str | None = None, *, after: str | None = None, prefix: str | None = None, table: str | None = None
    ) -> Iterator[GraphCommit]:
        """Yield the commits that `list_commits` lists. They are read in pages, as they are requested.

        >>> next(repo.iter_commits()).message
        'Load the shop'
        """
        start = self._resolve(self._ref(ref)).record
        found = self._repo_store.commits.iter_history(start if after is None else self._resolve(after).record)
        if after is not None:
            found = islice(found, 1, None)
        if prefix:
            selected = NamePage.of(prefix, None, None, "a commit").prefix.upper()
            found = (commit for commit in found if commit.graph_commit_id.startswith(selected))
        if table is not None:
            key = str(TableKey.parse(table))
            found = (commit for commit in found if key in commit.tables)
        return found

    def iter_graph(self, ref: str | None = None) -> Iterator[GraphCommit]:
        """Yield the commits of all branches or those that led to a ref, merged ones too, newest first.

        Each commit comes once, by its time. They are read in pages, as they are requested.

        >>> dev = repo.branch_create("dev")
        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], branch="dev", message="Tea")
        >>> [commit.message for commit in repo.iter_graph()]
        ['Tea', 'Load the shop', 'Begin the repository']
        """
        starts = self._repo_store.heads.list_tips() if ref is None else [self._resolve(ref).record]
        return Ancestry(self._repo_store).iter_newest_first([start.origin for start in starts])

    def graph(
        self,
        ref: str | None = None,
        *,
        limit: int | None = 50,
        offset: int = 0,
        table: str | None = None,
        actor: str | None = None,
    ) -> "CommitGraph":
        """Return the commits of `iter_graph` in lanes, with the branches and tags at them. A notebook draws them.

        `offset` leaves out the newest commits. `table` and `actor` select only their commits.

        >>> repo.graph(limit=1).branches[repo.head_commit_id_for_branch("main")]
        ['main']
        """
        from anabranch.repo.history.commit_graph import draw_commits, select_commits

        tips = self._repo_store.heads.list_tips()
        walked = [tip.origin for tip in tips] if ref is None else [self._resolve(ref).record.origin]
        key = None if table is None else str(TableKey.parse(table))
        return draw_commits(
            select_commits(Ancestry(self._repo_store).iter_newest_first(walked), table=key, actor=actor),
            branches=((tip.origin.commit.graph_commit_id, str(tip.branch)) for tip in tips),
            tags=((tag.commit_id, tag.name) for tag in tags.list_tags(self._repo_store)),
            offset=checked_limit(offset, "commits", name="offset") or 0,
            limit=checked_limit(limit, "commits"),
            is_filtered=key is not None or actor is not None,
        )

    def ahead_behind(
        self, refs: Sequence[str], base: str | None = None, *, limit: int = 1000
    ) -> dict[str, tuple[int, int]]:
        """Return for each ref how many commits it has that `base` has not, and how many `base` has that it has not.

        The base is the bound branch by default. Counting stops when both numbers together reach the limit.

        >>> dev = repo.branch_create("dev")
        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], branch="dev")
        >>> repo.ahead_behind(["dev", "main"])
        {'dev': (1, 0), 'main': (0, 0)}
        """
        require_names(refs, "refs")
        ancestry, theirs = Ancestry(self._repo_store), self._resolve(self._ref(base)).record
        return {ref: ancestry.count_apart(self._resolve(ref).record, theirs, most=limit) for ref in refs}

    def entity_at(
        self,
        table: str,
        id: Any,  # noqa: A002 - the name that users know
        version: int | None = None,
        *,
        ref: str | None = None,
    ) -> dict[str, Any] | None:
        """Return one row by its primary key, at a version of the bound branch or at a ref; by default as it is now.

        A key of several columns is a tuple. No other table is read.

        >>> repo.entity_at("shop.orders", 2)
        {'id': 2, 'item': 'cup', 'amount': 8.0}
        >>> repo.entity_at("shop.orders", 9) is None
        True
        """
        from anabranch.repo.history import entities

        return entities.find_entity(self._repo_store, self._at(version, ref).record, TableKey.parse(table), id)

    def entity_history(
        self,
        table: str,
        id: Any,  # noqa: A002 - the name that users know
        *,
        ref: str | None = None,
        limit: int | None = None,
    ) -> "list[EntityChange]":
        """List the changes of one row up to a ref, newest first: the commit, and the row before and after it.

        >>> commit = repo.upsert("shop.orders", [{"id": 2, "amount": 9.0}], message="Cups cost more")
        >>> [(step.commit.message, step.after["amount"]) for step in repo.entity_history("shop.orders", 2)]
        [('Cups cost more', 9.0), ('Load the shop', 8.0)]
        """
        from anabranch.repo.history import entities

        start = self._resolve(self._ref(ref)).record
        return entities.list_entity_changes(self._repo_store, start, TableKey.parse(table), id, limit=limit)

    def blame(  # noqa: PLR0913 - each option selects what is read
        self,
        table: str,
        *,
        ref: str | None = None,
        where: str | None = None,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        cells: bool = False,
        engine: str = "auto",
    ) -> "pa.Table":
        """Return the commit that last changed each row of a table: the key, and `commit_id`, `committed_at`, `actor`.

        The last column is the `message`. `cells` returns a row for each cell, with the name of its `column`; `columns`
        selects some. `where` selects rows by a predicate. A row that came by a merge is blamed on the commit of the
        merged branch that gave it its value, or on the merge if it combined both sides.

        >>> repo.blame("shop.orders", where="id = 2").to_pylist()[0]["message"]
        'Load the shop'
        """
        from anabranch.repo.history.blame import BlameSelection, blame_table

        found = self._resolve(self._ref(ref))
        comparer, shown = self._comparer(engine), self._snapshot(found)[table]
        selection = BlameSelection(where=where, limit=limit, columns=columns, cells=cells)
        return blame_table(self._repo_store, found.record, shown, selection, comparer)

    def diff(
        self, before: str, after: str | None = None, *, tables: Sequence[str] | None = None, engine: str = "auto"
    ) -> "Diff":
        """Compare two refs, related or not; `after` is the bound branch by default.

        `diff("main..dev")` is the same as `diff("main", "dev")`. `diff("main...dev")` is what dev did since the merge
        base of both, without what main did since. A side that is left out is the bound branch.

        Nothing is read until columns, counts or rows are requested, and then only what may differ. Rows are matched in
        this process, or by Spark if there are many and PySpark is installed; `engine` forces 'local' or 'spark'.

        >>> with repo.transaction(message="Cups cost more") as tx:
        ...     tx.update("shop.orders", {"amount": "9.0"}, where="id = 2")
        1
        >>> for row in repo.diff("main~1", "main").iter_rows():
        ...     print(row.table, row.change, row.before["amount"], row.after["amount"], row.columns)
        shop.orders updated 8.0 9.0 ('amount',)
        """
        from anabranch.repo.history.diff import diff_snapshots

        load_comparer = cache(lambda: self._comparer(engine))
        if engine != "auto":
            load_comparer()  # refuses an engine that is unknown or not installed
        if tables is not None:
            require_names(tables, "tables")
        old, new = self._diff_sides(before, after)
        return diff_snapshots(old, new, keys=tables, load_comparer=load_comparer)

    def _diff_sides(self, before: str, after: str | None) -> tuple[Snapshot, Snapshot]:
        pair = RefRange.find(before)
        if pair is None:
            pair = RefRange(before, after)
        elif after is not None:
            hint = "pass a range or two refs"
            raise InvalidInputError(f"both the range {before!r} and the ref {after!r} are given", hint=hint)
        if not pair.is_since_base:
            return self.snapshot_of(self._ref(pair.before)), self.snapshot_of(self._ref(pair.after))
        ours, theirs = (self._resolve(self._ref(side)) for side in (pair.before, pair.after))
        return base_snapshot(self._repo_store, ours.record, theirs.record), self._snapshot(theirs)

    def merge_base(self, source: str, into: str | None = None) -> GraphCommit:
        """Return the newest commit that two refs have in common.

        The order of the refs does not matter; the second one is the bound branch by default. If each side was merged
        into the other, there may be several commits. See `merge_bases`.

        >>> dev = repo.branch_create("dev")
        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], branch="dev")
        >>> repo.merge_base("main", "dev").message
        'Load the shop'
        """
        return self.merge_bases(source, into)[0]

    def merge_bases(self, source: str, into: str | None = None) -> Listing[GraphCommit]:
        """List all lowest common ancestors of two refs, usually one. None is an ancestor of another one.

        >>> dev = repo.branch_create("dev")
        >>> [commit.message for commit in repo.merge_bases("dev", "main")]
        ['Load the shop']
        """
        ours, theirs = (self._resolve(ref).record for ref in (source, self._ref(into)))
        found = Ancestry(self._repo_store).find_merge_bases(ours, theirs)
        if not found:
            hint = "compare them with `diff()`"
            raise CommitNotFoundError(f"'{source}' and '{self._ref(into)}' have no common ancestor", hint=hint)
        return Listing(found)

    def changes(self, table: str, *, since: str | None = None, until: str | None = None) -> "Iterator[CommitChanges]":
        """Yield how each commit after `since` and up to `until` changed the rows of a table, oldest first.

        By default from the table's first commit to the bound branch as it is now. Only the commits that touched the
        table are read; `since` has to be in the history of `until`.

        >>> commit = repo.delete("shop.orders", "id = 2", message="No cups")
        >>> [(step.commit.message, step.diff.key) for step in repo.changes("shop.orders", since="main~1")]
        [('No cups', 'shop.orders')]
        """
        return self._change_feed(table).iter_changes(since=since, until=self._ref(until))

    def _change_feed(self, table: str) -> "TableFeed":
        from anabranch.repo.history.changes import TableFeed
        from anabranch.repo.history.comparer import Choice

        return TableFeed(
            repo_store=self._repo_store,
            key=TableKey.parse(table),
            resolve=self._resolve_recorded,
            load_comparer=lambda: self._comparer(Choice.LOCAL),
        )

    def lineage(self, table: str, ref: str | None = None) -> "Lineage":
        """Return what a table was made from: tables, pipelines and loads, each as it was when it was read.

        >>> [node.name for node in repo.lineage("shop.orders").nodes]
        ['shop.orders', 'change']
        """
        from anabranch.repo.history.lineage_trace import trace_lineage

        return trace_lineage(self._repo_store, self._resolve(self._ref(ref)).record, TableKey.parse(table))

    def reflog(
        self, branch: str | None = None, *, limit: int | None = 50, after: int | None = None
    ) -> Listing[Movement]:
        """List the movements of a branch, newest first: commits, resets, deletes, with actor and time.

        `after` continues after the last one of another page, which has this number.

        >>> repo.undo().message
        'Load the shop'
        >>> [movement.event.value for movement in repo.reflog(limit=2)]
        ['undone', 'committed']
        """
        target = self._named(branch)
        return Listing(reset_and_undo.list_movements(self._repo_store, target, limit=limit, after=after))

    def history_sync(self) -> "HistoryTables":
        """Bring `_graph_commits.lance` and `_graph_commit_actors.lance` up to date with every branch's log.

        They follow by themselves, a few commits behind, and nothing here reads them.

        >>> tables = repo.history_sync()
        """
        from anabranch.repo.log import history_tables

        return history_tables.sync_history(self._repo_store)

    def history_rebuild(self) -> "HistoryTables":
        """Rebuild both tables from the logs, if they were damaged or lost.

        >>> tables = repo.history_rebuild()
        """
        from anabranch.repo.log import history_tables

        return history_tables.rebuild_history(self._repo_store)

    def _at(self, version: int | None, ref: str | None) -> Resolved:
        if version is None:
            return self._resolve(self._ref(ref))
        if ref is not None:
            raise InvalidInputError(f"both version {version} and ref {ref!r} are given", hint="give one of them")
        return Resolved.of_entry(self._repo_store.heads.get_numbered(self._branch, checked_version(version)))

    def _resolve_recorded(self, ref: str) -> CommitRecord:
        """Return the commit that a ref names, as it was made. A live branch may show newer tables of main."""
        found = self._resolve(ref).view
        return found.head if found.main_id is None else self._repo_store.commits.get(found.commit.graph_commit_id)

    # SQL and runs.

    def sql(
        self, sql: str, ref: str | None = None, *, params: Parameters | None = None, timeout: float | None = None
    ) -> "pa.Table":
        """Answer one read-only statement over the tables as a ref has them, by default the bound branch as it is now.

        A table is `bucket.table`, or `bucket.table AT 'ref'`; `tables`, `branches`, `branch_tables`, `commits`, `tags`
        and `refs` describe the repository. Values for `?` and `$name` are `params`. A statement that takes longer than
        `timeout` seconds is stopped, and TooSlowError is raised.

        >>> repo.sql("SELECT sum(amount) AS sold FROM shop.orders WHERE id < ?", params=[3]).to_pylist()
        [{'sold': 20.5}]
        """
        return self.sql_reader(sql, ref=ref, params=params, timeout=timeout).read_all()

    def sql_reader(
        self,
        sql: str,
        ref: str | None = None,
        *,
        params: Parameters | None = None,
        timeout: float | None = None,
        batch_rows: int | None = None,
    ) -> "pa.RecordBatchReader":
        """Like `sql`, batch by batch, for answers that are larger than memory. The timeout is for the whole answer.

        `batch_rows` is the maximum number of rows of a batch. Smaller batches need less memory if values are large.

        >>> with repo.sql_reader("SELECT id FROM shop.orders") as reader:
        ...     sum(batch.num_rows for batch in reader)
        3
        """
        limit = checked_limit(batch_rows, "rows")
        engine = self._engines.load_sql()
        return engine.query(self, sql, ref=self._ref(ref), params=params, timeout=timeout, batch_rows=limit)

    def begin_run(
        self,
        branch: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Checks = (),
    ) -> "Run":
        """Begin work that other users do not see until all of it is published as one commit of a branch.

        The checks belong to the run: it is published only if they pass, whatever process publishes it. A check is
        SQL that must find no rows, or a function of the snapshot; a function can only be run by this process.

        >>> checks = {"nothing is free": "FROM shop.orders WHERE amount <= 0"}
        >>> with repo.begin_run("main", message="Nightly", checks=checks) as run:
        ...     with run.transaction() as tx:
        ...         tx.delete("shop.orders", "item = 'pot'")
        1
        >>> repo.snapshot().commit.message
        'Nightly'
        """
        named = checked_checks(checks)
        run_id, lease = runs.begin_run(
            self._repo_store,
            self._named(branch),
            message=checked_text(message),
            metadata=checked_metadata(metadata),
            checks=recorded_checks(named),
        )
        return self._run(run_id, lease, checks=named, warns_if_dropped=True)

    def run_get(self, run_id: str) -> "Run":
        """Return a run by its id, also one that another process began.

        >>> with repo.begin_run() as run:
        ...     repo.run_get(run.id).info().target
        'main'
        """
        entry = runs.get_run(self._repo_store, run_id)
        found = entry.branch.run_id or run_id  # as it is spelled
        lease = self._config.leases.new(runs.run_state(entry).target, found)
        return self._run(found, lease, checks=entry.state.checks)

    def run_list(
        self, *, branch: str | None = None, prefix: str | None = None, after: str | None = None, limit: int | None = 50
    ) -> Listing[RunInfo]:
        """List the runs, newest first, those that have ended, too. `branch` lists those that publish to it.

        `prefix` lists those whose id starts with it, and `after` continues after the last one of another page.

        >>> with repo.begin_run(message="Nightly") as run:
        ...     with run.transaction() as tx:
        ...         _ = tx.delete("shop.orders", "id = 2")
        >>> [(run.message, run.target) for run in repo.run_list()]
        [('Nightly', 'main')]
        """
        page = NamePage.of(prefix, after, limit, "runs")
        on = None if branch is None else BranchName.parse_public(branch)
        return Listing(page.cut(runs.list_runs(self._repo_store, page, target=on)))

    def _run(
        self, run_id: str, lease: "Lease", *, checks: Sequence[NamedCheck], warns_if_dropped: bool = False
    ) -> "Run":
        from anabranch.repo.run import Run

        return Run(
            self._repo_store,
            run_id,
            lease=lease,
            query=partial(self._query, ref=str(BranchName.of_run(run_id))),
            on_published=self._on_published,
            load_combiner=self._combiner,
            checks=tuple(checks),
            warns_if_dropped=warns_if_dropped,
        )

    # Branches and tags.

    def branch_create(
        self,
        name: str,
        source: str | None = None,
        *,
        mode: str = BranchMode.PINNED,
        description: str = "",
        expires_in: timedelta | None = None,
    ) -> BranchInfo:
        """Create a branch from a branch, a tag, a commit or an old version, by default from the bound branch.

        No table is read or copied. A pinned branch shows its source as it is now. A live branch shows main as it is at
        any time, except for the tables written on the branch; its source is always main.

        >>> dev = repo.branch_create("dev", "main", description="try a price")
        >>> dev.name, dev.mode.value, dev.parent
        ('dev', 'pinned', 'main')
        >>> repo.branch_create("preview", mode="live").own_tables
        ()
        """
        target, chosen = BranchName.parse_new(name), checked_choice(BranchMode, mode, "the branch mode")
        default = MAIN if chosen is BranchMode.LIVE else self.branch
        made = branches.create_branch(
            self._repo_store,
            target,
            source=self._resolve_published(default if source is None else source),
            mode=chosen,
            description=checked_text(description, "description"),
            expires_at=None if expires_in is None else store_microseconds(self._config) + checked_expiry(expires_in),
        )
        self._seen[target] = made.version
        return made

    def branch_create_from(
        self,
        source: str,
        name: str,
        *,
        mode: str = BranchMode.PINNED,
        description: str = "",
        expires_in: timedelta | None = None,
    ) -> BranchInfo:
        """Create a branch like `branch_create`, with the source as the first argument.

        >>> repo.branch_create_from("main", "dev").parent
        'main'
        """
        return self.branch_create(
            name, str(Ref.parse(source)), mode=mode, description=description, expires_in=expires_in
        )

    def branch_list(
        self,
        *,
        internal: bool = False,
        deleted: bool = False,
        prefix: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[BranchInfo]:
        """List the branches by name. `internal` lists those of runs, too; `deleted` lists deleted branches instead.

        `prefix` lists those whose name starts with it, and `after` continues after the last one of another page. Only
        the heads of the listed branches are read.

        >>> [branch.name for branch in repo.branch_list(prefix="ma", limit=10)]
        ['main']
        """
        page = NamePage.of(prefix, after, limit, "branches")
        return Listing(branches.list_branches(self._repo_store, page, internal=internal, deleted=deleted))

    def branch_names(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> list[str]:
        """List the names of branches in order, without reading them: one request for all.

        A name stays in the list after its branch is deleted, because its log stays. `branch_list` leaves it out.

        >>> repo.branch_names()
        ['main']
        """
        page = NamePage.of(prefix, after, limit, "branches")
        return list(page.cut(self._repo_store.heads.names.select(page)))

    def branch_get(self, name: str) -> BranchInfo:
        """Return a branch: its parent, its head, its mode, its creator and creation time.

        >>> repo.branch_get("main").mode.value
        'pinned'
        """
        return BranchInfo.of(self._repo_store.heads.get(BranchName.parse_public(name)), self._repo_store.heads.follow)

    def branch_rename(self, name: str, new: str) -> BranchInfo:
        """Rename a branch. Its tables, history, expiry and the branches made from it stay as they are.

        `main`, a protected branch and one with an active run are refused. Handles that are bound to the old name raise
        BranchNotFoundError with the new one. The old name can be used again. `reflog` of the old name lists the
        movements before the rename.

        >>> repo.branch_create("dev").name
        'dev'
        >>> repo.branch_rename("dev", "prices").name
        'prices'
        >>> repo.branch_get("dev")
        Traceback (most recent call last):
            ...
        anabranch.errors.BranchNotFoundError: branch 'dev' was renamed to 'prices'; use the name 'prices'
        """
        from anabranch.repo.merge.kept_decisions import move_decisions

        before, after = BranchName.parse_public(name), BranchName.parse_new(new)
        renamed = rename_branch(self._repo_store, before, after)
        self._seen[after] = renamed.version
        self._seen.pop(before, None)
        with suppress(StorageError):  # The branch is renamed. Decisions that are left do no harm.
            move_decisions(self._config, before, after)
        return renamed

    def branch_delete(self, name: str, *, purge: bool = False) -> None:
        """Delete a branch; it can be restored until garbage collection.

        To `purge` it frees its space at once: it cannot be restored, and reads in progress fail. A branch that was
        deleted before, or whose purge was interrupted, can be purged as long as it takes space.

        >>> repo.branch_create("dev").name
        'dev'
        >>> repo.branch_delete("dev")
        >>> repo.branch_restore("dev").name
        'dev'
        """
        target = BranchName.parse_public(name)
        found = self._repo_store.heads.find(target) if purge else None
        if found is not None and found.state.is_deleted:
            # The commits of a renamed branch belong to its new name.
            if found.state.renamed_to is not None or not self._purge(found):
                self._repo_store.heads.get(target)  # raises, because the branch is deleted
            return
        tombstone = freeing_space(self._config, lambda: branches.delete_branch(self._repo_store, target))
        self._seen[target] = tombstone.number
        if purge:
            self._purge(tombstone)

    def _purge(self, tombstone: LogEntry) -> int:
        """Free the space of a deleted branch and return the number of bytes."""
        from anabranch.repo.gc.sweep_and_purge import purge_branch

        return freeing_space(self._config, lambda: purge_branch(self._repo_store, tombstone))

    def branch_restore(self, name: str) -> BranchInfo:
        """Restore a deleted branch as it was.

        >>> dev = repo.branch_create("dev")
        >>> repo.branch_delete("dev")
        >>> repo.branch_restore("dev").name
        'dev'
        """
        restored = branches.restore_branch(self._repo_store, BranchName.parse_public(name))
        self._seen[BranchName(name)] = restored.version
        return restored

    def branch_pull(self, name: str, table: str) -> bool:
        """Make a table of a branch follow its source again. Return whether the branch had its own copy.

        >>> dev = repo.branch_create("dev")
        >>> commit = repo.delete("shop.orders", "id = 2", branch="dev")
        >>> repo.branch_pull("dev", "shop.orders"), len(repo.table("shop.orders", "dev"))
        (True, 3)
        """
        target = TableKey.parse(table)
        published = pull_table(self._repo_store, BranchName.parse_public(name), target)
        if published is not None:
            self._on_published(published)
        return published is not None

    def branch_freeze(self, name: str) -> BranchInfo:
        """Make a live branch pinned at what it shows now.

        >>> preview = repo.branch_create("preview", mode="live")
        >>> repo.branch_freeze("preview").mode.value
        'pinned'
        """
        published = freeze_branch(self._repo_store, BranchName.parse_public(name))
        self._on_published(published)
        return BranchInfo.of(published.entry, self._repo_store.heads.follow)

    def branch_protect(self, name: str, *, checks: Checks = ()) -> BranchInfo:
        """Allow a branch to move only by merges that pass the checks, until `branch_unprotect`.

        Commits, resets, reverts, undos and deletion are refused. The checks are SQL that must return no rows. They are
        stored with the branch, and every merge into it runs them.

        >>> repo.branch_protect("main", checks={"no free orders": "FROM shop.orders WHERE amount <= 0"}).is_protected
        True
        """
        target = BranchName.parse_public(name)
        snapshot = self._snapshot(Resolved.of_branch(self._repo_store, self._repo_store.heads.get(target)))
        named = checked_checks(checks)
        for label, check in named:
            if not isinstance(check, str):
                hint = "write it as SQL"
                raise InvalidInputError(f"the check {label!r} is not SQL, and functions cannot be stored", hint=hint)
            self._query(check, snapshot, None).close()  # refuses a statement that cannot run on these tables
        return self._protect(target, protect=True, checks=recorded_checks(named))

    def branch_unprotect(self, name: str) -> BranchInfo:
        """Remove the protection of a branch.

        >>> repo.branch_unprotect("main").is_protected
        False
        """
        return self._protect(BranchName.parse_public(name), protect=False)

    def branch_drift(self, name: str) -> list[TableDrift]:
        """List how main changed each table since the branch copied it.

        >>> preview = repo.branch_create("preview", mode="live")
        >>> repo.branch_drift("preview")
        []
        """
        return list(branches.branch_drift(self._repo_store, BranchName.parse_public(name)))

    def tag_create(self, name: str, ref: str | None = None, *, description: str = "") -> TagInfo:
        """Name the commit that a ref names; by default the newest of the bound branch.

        >>> tag = repo.tag_create("v1.0", description="the first orders")
        >>> repo.snapshot_of("v1.0").id == tag.commit_id
        True
        """
        commit = self._resolve_published(self._ref(ref)).get_commit()
        return tags.create_tag(
            self._repo_store,
            TagName.parse_new(name),
            commit_id=commit.graph_commit_id,
            description=checked_text(description, "description"),
        )

    def tag_list(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Listing[TagInfo]:
        """List the tags by name.

        `prefix` lists those whose name starts with it, and `after` continues after the last one of another page.

        >>> tag = repo.tag_create("v1.0")
        >>> [tag.name for tag in repo.tag_list()]
        ['v1.0']
        """
        return Listing(tags.list_tags(self._repo_store, NamePage.of(prefix, after, limit, "tags")))

    def tag_names(self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None) -> list[str]:
        """List the names of tags in order, without reading them: one request for all.

        A name stays in the list after its tag is deleted, because its log stays. `tag_list` leaves it out.

        >>> tag = repo.tag_create("v1.0")
        >>> repo.tag_names(prefix="v")
        ['v1.0']
        """
        return tags.list_tag_names(self._repo_store, NamePage.of(prefix, after, limit, "tags"))

    def tag_get(self, name: str) -> TagInfo:
        """Return a tag and the id of its commit.

        >>> tag = repo.tag_create("v1.0")
        >>> repo.tag_get("v1.0").commit_id == repo.snapshot().id
        True
        """
        return tags.get_tag(self._repo_store, TagName.parse(name))

    def tag_delete(self, name: str) -> None:
        """Delete a tag; its commit stays.

        >>> tag = repo.tag_create("v1.0")
        >>> repo.tag_delete("v1.0")
        >>> repo.tag_list()
        []
        """
        tags.delete_tag(self._repo_store, TagName.parse(name))

    def reset(self, branch: str, to: str) -> None:
        """Move a branch to another commit. Nothing is lost: the old position stays in the reflog.

        >>> commit = repo.delete("shop.orders", "id > 0")
        >>> repo.reset("main", "main~1")
        >>> len(repo["shop.orders"])
        3
        """
        name = BranchName.parse_public(branch)
        self._on_moved(reset_and_undo.reset_branch(self._repo_store, name, self._resolve_published(to)))

    def undo(self, branch: str | None = None, *, expected_version: int | None = None) -> Movement:
        """Undo the last movement of a branch by a new entry of its log, and return that movement.

        Another `undo` undoes the movement before it, and so on. `redo` goes the other way, as long as the branch has
        not moved otherwise. The log keeps every position. Refused if another writer moved the branch since this handle
        moved or read it, or since the version that is given.

        >>> with repo.transaction(message="Oops") as tx:
        ...     tx.delete("shop.orders", "id > 0")
        3
        >>> repo.undo().message
        'Oops'
        >>> len(repo["shop.orders"])
        3
        """
        return self._put_back(reset_and_undo.undo_last, self._named(branch), expected_version)

    def redo(self, branch: str | None = None, *, expected_version: int | None = None) -> Movement:
        """Redo the movement that the last `undo` undid, and return that movement.

        Several times, it redoes several undone movements, the last one undone first. After any other movement of the
        branch there is nothing to redo: use `reset` with a position of the reflog. Refused as `undo` is if another
        writer moved the branch.

        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], message="More tea")
        >>> repo.undo().message, len(repo["shop.orders"])
        ('More tea', 3)
        >>> repo.redo().message, len(repo["shop.orders"])
        ('More tea', 4)
        """
        return self._put_back(reset_and_undo.redo_last, self._named(branch), expected_version)

    def _put_back(
        self, step: Callable[..., tuple[LogEntry, Movement]], branch: BranchName, expected: int | None
    ) -> Movement:
        """Undo or redo the last movement of a branch, if it is at the expected or the last seen version."""
        seen = self._seen.get(branch) if expected is None else expected
        entry, movement = step(self._repo_store, branch, seen=seen)
        self._on_moved(entry)
        return movement

    def _protect(self, name: BranchName, *, protect: bool, checks: tuple[tuple[str, str], ...] = ()) -> BranchInfo:
        entry, has_moved = protection.set_protection(self._repo_store, name, protect=protect, checks=checks)
        if has_moved:
            # Those of the last commit stay: a protection changes no table.
            found = self.external_writes
            self._on_published(Published(entry=entry, commit=entry.head.commit, changes={}))
            self.external_writes = found
        return BranchInfo.of(entry, self._repo_store.heads.follow)

    # Write tables.

    def transaction(
        self,
        branch: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        kind: str = CommitKind.CHANGE,
    ) -> "Transaction":
        """Begin a commit over any number of tables of a branch.

        >>> with repo.transaction(message="More tea", metadata={"ticket": "SHOP-7"}) as tx:
        ...     tx.append("shop.orders", pa.table({"id": [4], "item": ["tea"], "amount": [12.5]}))
        ...     tx["shop.orders"].count_rows()
        4
        >>> repo.snapshot().commit.message
        'More tea'
        """
        from anabranch.repo.transaction import Transaction

        spec = CommitSpec(
            message=checked_text(message),
            kind=kind if isinstance(kind, CommitKind) else checked_choice(CommitKind, kind, "the commit kind"),
            metadata={} if metadata is None else checked_metadata(metadata),
        )
        if spec.kind is CommitKind.PUBLISH_RUN:
            # By such a commit a run that died halfway is found again.
            raise InvalidInputError(f"a commit of kind '{kind}' is made by a run", hint="begin a run and publish it")
        if spec.kind is CommitKind.MERGE:
            raise InvalidInputError(f"a commit of kind '{kind}' is made by a merge", hint="use `merge()`")
        return Transaction(self._repo_store, branch=self._named(branch), spec=spec, on_published=self._on_published)

    def transact(
        self,
        function: "Callable[[Transaction], T]",
        branch: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        retries: int = 10,
    ) -> T:
        """Run a function in a transaction, publish it, and return what the function returns.

        If another writer was faster and the changes conflict, the function runs again, on the new state and with a
        growing pause, up to `retries` times; then the conflict is raised. So it may run more than once, and must not
        use the transaction of an earlier call. Its commit is `tx.published`, once the transaction has ended.

        >>> repo.transact(lambda tx: tx.delete("shop.orders", "amount > 10"), message="No expensive orders")
        2
        """
        from anabranch.repo.transaction import transact

        begin = partial(self.transaction, branch, message=message, metadata=metadata)
        return transact(self._config, begin, function, retries=retries)[0]

    def append(
        self,
        table: str,
        data: Any,
        *,
        check_keys: bool = True,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Add rows to a table as one commit and return the commit, or None if there are no rows.

        With a primary key the rows must be new; `check_keys=False` trusts the caller that they are. The data is a list
        of dicts, a dict of lists, Arrow data, or a pandas or polars frame.

        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], message="More tea")
        >>> commit.message, commit.tables
        ('More tea', ('shop.orders',))
        """
        write = self._one_step(table, branch, message, metadata)
        return write("Append to", lambda tx, key: tx.append(key, data, check_keys=check_keys), data)

    def upsert(
        self,
        table: str,
        data: Any,
        *,
        keys: Sequence[str] | None = None,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Replace the rows of the same key and add the others, as one commit, or None if there are no rows.

        Rows are matched by the primary key, or by the columns `keys`. Columns that the data does not have keep their
        values in replaced rows.

        >>> commit = repo.upsert("shop.orders", [{"id": 2, "amount": 9.0}])
        >>> repo.entity_at("shop.orders", 2)
        {'id': 2, 'item': 'cup', 'amount': 9.0}
        """
        write = self._one_step(table, branch, message, metadata)
        return write("Upsert into", lambda tx, key: tx.upsert(key, data, keys=keys), data)

    def update(
        self,
        table: str,
        assignments: Mapping[str, str],
        where: str | None = None,
        *,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Set columns to SQL expressions in the rows that match a predicate, as one commit, or None if no row matches.

        Without a predicate the update is refused; `where="true"` updates all rows.

        >>> commit = repo.update("shop.orders", {"amount": "amount * 2"}, "item = 'cup'")
        >>> repo.entity_at("shop.orders", 2)["amount"]
        16.0
        """
        write = self._one_step(table, branch, message, metadata)
        return write("Update", lambda tx, key: tx.update(key, assignments, where), None)

    def delete(
        self,
        table: str,
        where: str | None = None,
        *,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Delete the rows that match a predicate, as one commit, or None if no row matches.

        Without a predicate the call is refused; `where="true"` deletes all rows.

        >>> commit = repo.delete("shop.orders", "amount > 10")
        >>> repo.snapshot()["shop.orders"].count_rows()
        1
        """
        write = self._one_step(table, branch, message, metadata)
        return write("Delete from", lambda tx, key: tx.delete(key, where), None)

    def overwrite(
        self,
        table: str,
        data: Any,
        *,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Replace all rows of a table as one commit, and the columns too if the data brings others.

        A list of dicts or a dict of lists brings no types of its own: the columns stay as they are.

        >>> commit = repo.overwrite("shop.orders", {"id": [7], "item": ["hat"], "amount": [20.0]})
        >>> repo.snapshot()["shop.orders"].to_arrow().to_pylist()
        [{'id': 7, 'item': 'hat', 'amount': 20.0}]
        """
        write = self._one_step(table, branch, message, metadata)
        return write("Overwrite", lambda tx, key: tx.overwrite(key, data), data)

    def _one_step(
        self, table: str, branch: str | None, message: str | None, metadata: Mapping[str, str] | None
    ) -> "Callable[[str, Callable[[Transaction, str], object], Any], GraphCommit | None]":
        """Return a function that makes one change of a table as one commit. It returns None if nothing changed."""
        import pyarrow as pa
        import pyarrow.dataset as pads

        from anabranch.repo.transaction import transact

        key = str(TableKey.parse(table))

        def write(verb: str, change: "Callable[[Transaction, str], object]", data: Any) -> GraphCommit | None:
            text = f"{verb} {key}" if message is None else message
            # A stream of rows can be read only once.
            retries = 0 if isinstance(data, pa.RecordBatchReader | pads.Scanner) else _RETRIES
            begin = partial(self.transaction, branch, message=text, metadata=metadata)
            return transact(self._config, begin, lambda tx: change(tx, key), retries=retries)[1]

        return write

    def settle(self, table: str, *, branch: str | None = None, force: bool = False) -> None:
        """Make a published table visible to plain Lance readers; `force` sets an external write aside.

        >>> repo.settle("shop.orders")
        """
        target = self._named(branch)
        parsed = TableKey.parse(table)
        head = self._repo_store.heads.get(target).head
        if self._repo_store.commits.find_table(head, parsed) is None:
            raise unknown_table(table, f"on branch '{target}'", self._repo_store.commits.tables_of(head))
        settle.settle_table(self._repo_store, target, parsed, force=force)
        self._forget_external_writes(parsed)

    def list_external_writes(self, *, branch: str | None = None) -> list[ExternalWrite]:
        """List the tables whose newest Lance version is an external write. Only manifests are read.

        >>> repo.list_external_writes()
        []
        """
        return list(settle.list_external_writes(self._repo_store, self._named(branch)))

    def adopt(
        self, table: str, uri: str | None = None, *, branch: str | None = None, primary_key: Sequence[str] = ()
    ) -> None:
        """Adopt an external write to a table, or the Lance table at a URI as a new one, without copying its data.

        An external write is merged with what was committed since. Where both changed one cell, a MergeConflictError
        names it and nothing changes; `settle` with `force` then sets the external write aside.
        """
        from anabranch.format.home import Home
        from anabranch.repo.merge import adoption

        target = self._named(branch)
        parsed = TableKey.parse(table)
        if uri is None:
            with self._repo_store.with_lease() as repo_store:
                self._on_published(adoption.adopt_write(repo_store, target, parsed, self._combiner(target)))
            return
        source = Home.at(uri, self._config.storage_options)
        published = adoption.adopt_table(self._repo_store, target, parsed, source=source, primary_key=primary_key)
        self._on_published(published)
        self._forget_external_writes(parsed)

    def compact(
        self,
        tables: Sequence[str] | None = None,
        *,
        branch: str | None = None,
        engine: str = "local",
        target_rows_per_fragment: int = 1 << 20,
        progress: OnProgress | None = None,
    ) -> "Compaction":
        """Rewrite small and half-deleted files of tables as larger ones, in one commit; no row changes.

        By default all tables that the branch has written. The work is done in this process, or by Spark if `engine` is
        'spark'. Concurrent writers to the same tables are not blocked.

        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}])
        >>> [one.table for one in repo.compact().tables]
        ['shop.orders']
        """
        from anabranch.repo.gc.collection import compact_tables

        target = self._named(branch)
        if tables is not None:
            require_names(tables, "tables")
        return compact_tables(
            self.transaction(str(target), message="Compact", kind=CommitKind.COMPACT),
            branches.list_written(self._repo_store, target) if tables is None else tables,
            target_rows_per_fragment=target_rows_per_fragment,
            rewriter=self._rewriter(engine),
            progress=counting(progress, "tables"),
        )

    def index(
        self,
        table: str,
        column: str,
        *,
        type: str = "btree",  # noqa: A002 - Lance's name
        name: str | None = None,
        branch: str | None = None,
        vector: "VectorOptions | None" = None,
    ) -> GraphCommit | None:
        """Build an index on a column of a table, scalar or vector, as one commit; later rows are found all the same.

        >>> commit = repo.index("shop.orders", "item")
        >>> [index.name for index in repo["shop.orders"].indices]
        ['item_idx']
        """
        with self.transaction(branch, message=f"Index {column} of {table}", kind=CommitKind.INDEX) as tx:
            tx.index(table, column, type=type, name=name, vector=vector)
        return tx.published

    def schema_show(self, ref: str | None = None) -> "SchemaState":
        """Return the schema of all tables, as `schema_plan` and `schema_apply` take it. `.to_yaml()` returns its text.

        >>> print(repo.schema_show().to_yaml().splitlines()[0])
        tables:
        """
        from anabranch.repo.schema.apply import show_schema

        return show_schema(self.snapshot_of(ref or self.branch))

    def schema_plan(self, desired: "Desired", *, branch: str | None = None) -> "SchemaPlan":
        """Return the steps that change the tables of a branch to the desired ones: a dict, YAML text or a file.

        >>> repo.schema_plan(repo.schema_show().to_yaml()).steps
        ()
        """
        from anabranch.repo.schema.apply import plan_on
        from anabranch.repo.schema.desired import read_desired

        state = read_desired(desired, storage_options=self._config.storage_options)
        name = self.branch if branch is None else str(BranchName.parse_public(branch))
        return plan_on(self.snapshot_of(name), state, branch=name)

    def schema_apply(
        self,
        desired: "Desired",
        *,
        branch: str | None = None,
        allow_destructive: bool = False,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> "SchemaApplied":
        """Change the tables of a branch to the desired ones in one commit; only one process applies a schema at a time.

        A change that may lose data is refused unless `allow_destructive`. A dry run only plans and checks.

        >>> repo.schema_apply(repo.schema_show().to_yaml()).plan.steps
        ()
        """
        from anabranch.repo.schema.apply import apply_schema
        from anabranch.repo.schema.desired import read_desired

        state = read_desired(desired, storage_options=self._config.storage_options)
        text = "Apply a schema" if message is None else message
        begin = partial(self.transaction, branch, message=text, metadata=metadata, kind=CommitKind.SCHEMA_APPLY)
        return apply_schema(self._repo_store, begin, state, allow_destructive=allow_destructive, dry_run=dry_run)

    def _rewriter(self, engine: str) -> "Rewriter | None":
        if engine not in ("local", "spark"):
            raise InvalidInputError(f"there is no engine {engine!r}", hint="use 'local' or 'spark'")
        return None if engine == "local" else self._engines.load_rewriter()

    def _forget_external_writes(self, key: TableKey) -> None:
        self.external_writes = tuple(write for write in self.external_writes if write.table != str(key))

    # Merge.

    def merge(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        source: str,
        into: str | None = None,
        *,
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        keep_decisions: bool = False,
        checks: Checks = (),
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expected_head: str | None = None,
        expected_source: str | None = None,
        squash: bool = False,
        ff_only: bool = False,
        dry_run: bool = False,
        engine: str = "auto",
    ) -> "MergeResult":
        """Merge a branch, or any other ref, into a branch as one commit, by default into the bound branch.

        The changes of both sides are merged by table, row and cell. What both changed differently is decided by
        `resolutions` for single conflicts, by resolvers for columns and tables, then by the strategy: 'source' or
        'target' takes that side's value. If any conflict is left, nothing changes. The checks run on the result before
        it is published. Rows are matched in this process or, if there are many, by Spark; `engine` forces 'local' or
        'spark'.

        `expected_head` and `expected_source` are the commits that the branch and the source must be on, such as those
        of a plan that was shown. If one of them has moved, WriteConflictError is raised and nothing changes.

        A merge always makes a commit, also a fast-forward. With `ff_only` it is refused if the branch has commits that
        the source does not have.

        A resolution is a dict of `table`, `key`, `column` and either `take` ('source', 'target' or 'base') or `value`.
        With `base`, `source` or `target` it applies only while these have the same values. With `keep_decisions` they
        are kept if nothing is published, for later merges of the same branches, which use them while the base, the
        source and the target of a conflict have the same values.

        >>> dev = repo.branch_create("dev")
        >>> with repo.transaction("dev", message="Cups cost more") as tx:
        ...     tx.update("shop.orders", {"amount": "9.0"}, where="id = 2")
        1
        >>> repo.merge("dev", "main").outcome.value
        'fast_forward'
        """
        from anabranch.repo.merge.merge import BranchMerge, merge_branch, plan_merge
        from anabranch.repo.merge.plan import MergeResult
        from anabranch.repo.merge.replay import check_expected

        # What is resolved here is what is merged, also if the source moves from now on.
        resolved = self._resolve_published(source)
        check_expected(f"the source '{source}'", resolved.view.commit, expected_source, "expected_source")
        kept = self._kept_decisions(resolved, into, require=source if keep_decisions else None)
        combiner = self._combiner(
            self._named(into), strategy=strategy, resolvers=resolvers, resolutions=resolutions, kept=kept, engine=engine
        )
        spec = CommitSpec(
            message=f"Merge {source} into {combiner.branch}" if message is None else checked_text(message),
            kind=CommitKind.MERGE,
            metadata=checked_metadata(metadata),
            inspect=self._inspecting(checks),
            guard=self._run_checks,
            once=self._once,
        )
        wanted = BranchMerge(
            name=source,
            source=resolved.view,
            combiner=combiner,
            spec=spec,
            expected_head=expected_head,
            squash=squash,
            ff_only=ff_only,
        )
        if dry_run:
            return MergeResult(plan=plan_merge(self._repo_store, wanted))
        with self._holding(wanted.source.record) as repo_store, self._keeping(wanted, kept if keep_decisions else None):
            result, published = merge_branch(repo_store, wanted)
        if kept is not None and (keep_decisions or kept.is_read):
            with suppress(StorageError):  # The merge is published. Decisions that are left do no harm.
                kept.clear()
        if published is not None:
            self._on_published(published)
        else:
            self.external_writes = settle.settle_head(self._repo_store, combiner.branch)
        return result

    def conflicts(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        source: str | Sequence[str],
        into: str | None = None,
        *,
        by: str = "merge",
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        include_decided: bool = False,
        engine: str = "auto",
    ) -> "Iterator[Conflict]":
        """Yield every conflict that a merge would have. They are found one by one, so memory stays small.

        `by` is 'merge', 'cherry_pick' or 'revert' (`source` is a commit, a range or a list of these, `into` the
        branch), or 'rebase' (`source` is the branch, `into` what its commits go on top of). Of several commits, the
        conflicts of the first one that has any are returned: those of the next ones depend on how these are decided.

        Conflicts that `resolutions`, or decisions that were kept, decide are left out. With `include_decided` they come
        after the other ones, with their `decision`.

        >>> dev = repo.branch_create("dev")
        >>> for branch, price in {"dev": "9.0", "main": "7.0"}.items():
        ...     with repo.transaction(branch) as tx:
        ...         _ = tx.update("shop.orders", {"amount": price}, where="id = 2")
        >>> [(one.key, one.column, one.base, one.source, one.target) for one in repo.conflicts("dev", "main")]
        [({'id': 2}, 'amount', 8.0, 9.0, 7.0)]
        """
        from anabranch.repo.merge.conflict_types import Conflicts, Operation
        from anabranch.repo.merge.kept_decisions import iter_unique
        from anabranch.repo.merge.merge import BranchMerge, iter_conflicts
        from anabranch.repo.merge.replay import iter_replay_conflicts

        operation = checked_choice(Operation, by, "the operation")
        decided: list[Conflict] = []

        def decide(branch: BranchName, kept: "KeptDecisions | None" = None) -> "Combiner":
            combiner = self._combiner(
                branch, strategy=strategy, resolvers=resolvers, resolutions=resolutions, kept=kept, engine=engine
            )
            return combiner.recording(decided.append) if include_decided else combiner

        match operation:
            case Operation.CHERRY_PICK | Operation.REVERT:
                pick = self._pick_of(CommitKind(operation), source, decide(self._named(into)))
                found = iter_replay_conflicts(self._repo_store, pick)
            case Operation.REBASE:
                branch = BranchName.parse_public(_one_name(source, "the branch"))
                found = iter_replay_conflicts(self._repo_store, self._rebase_of(self._ref(into), decide(branch)))
            case Operation.MERGE:
                name = _one_name(source, "the source")
                resolved = self._resolve_published(name)
                combiner = decide(self._named(into), self._kept_decisions(resolved, into))
                spec = CommitSpec(message="", kind=CommitKind.MERGE, metadata={})
                wanted = BranchMerge(name=name, source=resolved.view, combiner=combiner, spec=spec)
                found = iter_conflicts(self._repo_store, wanted)
            case other:
                assert_never(other)
        return Conflicts(chain(found, iter_unique(decided)))

    def decision_list(self, source: str, into: str | None = None) -> list[dict[str, Any]]:
        """List the decisions that are kept for merges of a branch into another one, as resolutions.

        They apply while the base, the source and the target of a conflict have the same values.

        >>> dev = repo.branch_create("dev")
        >>> repo.decision_list("dev")
        []
        """
        kept = self._kept_decisions(self._resolve_published(source), into, require=source)
        return [] if kept is None else kept.read()

    def decision_clear(self, source: str, into: str | None = None) -> bool:
        """Delete the decisions that are kept for merges of a branch into another one. Return whether there were any.

        >>> dev = repo.branch_create("dev")
        >>> repo.decision_clear("dev")
        False
        """
        kept = self._kept_decisions(self._resolve_published(source), into, require=source)
        return kept is not None and kept.clear()

    def _kept_decisions(
        self, source: Resolved, into: str | None, *, require: str | None = None
    ) -> "KeptDecisions | None":
        """Return the decisions kept for a source, which must be a branch: a commit or tag does not move.

        With `require`, which is its name, raise InvalidInputError if it is not one.
        """
        from anabranch.repo.merge.kept_decisions import KeptDecisions

        if source.is_head and source.branch is not None:
            return KeptDecisions(config=self._config, source=source.branch, into=self._named(into))
        if require is not None:
            hint = "pass the name of a branch"
            raise InvalidInputError(f"decisions are kept for merges of a branch, and {require!r} is not one", hint=hint)
        return None

    @contextmanager
    def _keeping(self, wanted: "BranchMerge", kept: "KeptDecisions | None") -> Iterator[None]:
        """If a merge fails, keep the decisions on its conflicts."""
        from anabranch.repo.merge.merge import iter_conflicts

        try:
            yield
        except AnabranchError:
            if kept is not None and wanted.combiner.resolution.decisions:
                decided: list[Conflict] = []
                # Read all conflicts on the present head: only now it is known which ones the decisions are about.
                again = replace(wanted, combiner=wanted.combiner.recording(decided.append))
                with suppress(AnabranchError):  # The first error is the one to report.
                    deque(iter_conflicts(self._repo_store, again), maxlen=0)
                    kept.add(decided)
            raise

    def revert(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        commit: str | Sequence[str],
        *,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        checks: Checks = (),
        expected_head: str | None = None,
        dry_run: bool = False,
    ) -> "ReplayResult":
        """Revert commits by new ones. Later changes of their rows are kept, or are conflicts.

        `commit` is a commit, a range `a..b` (the commits of b that a does not have, newest first), or a list of these.
        Each commit is reverted by one commit, and all are published at once, or none. A dry run plans them. The checks
        run on the result before it is published.

        >>> commit = repo.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}], message="More tea")
        >>> repo.revert("main").commit.message, len(repo["shop.orders"])
        ('Revert More tea', 3)
        """
        combiner = self._combiner(self._named(branch), strategy=strategy, resolvers=resolvers, resolutions=resolutions)
        pick = self._pick_of(CommitKind.REVERT, commit, combiner, message)
        return self._replay(pick, metadata=metadata, checks=checks, expected_head=expected_head, dry_run=dry_run)

    def cherry_pick(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        commit: str | Sequence[str],
        *,
        branch: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        checks: Checks = (),
        expected_head: str | None = None,
        dry_run: bool = False,
    ) -> "ReplayResult":
        """Apply the changes of commits to a branch, too. Their rows are merged with what is there.

        `commit` is a commit, a range `a..b` (the commits of b that a does not have, oldest first), or a list of these.
        Each commit becomes one commit of the branch, and all are published at once, or none. A dry run plans them. The
        checks run on the result before it is published.

        >>> dev = repo.branch_create("dev")
        >>> for number in (4, 5):
        ...     _ = repo.append("shop.orders", [{"id": number, "item": "tea", "amount": 12.5}], branch="dev")
        >>> len(repo.cherry_pick("main..dev", dry_run=True).plan)
        2
        >>> len(repo.cherry_pick("main..dev").commits), len(repo["shop.orders"])
        (2, 5)
        """
        combiner = self._combiner(self._named(branch), strategy=strategy, resolvers=resolvers, resolutions=resolutions)
        pick = self._pick_of(CommitKind.CHERRY_PICK, commit, combiner, message)
        return self._replay(pick, metadata=metadata, checks=checks, expected_head=expected_head, dry_run=dry_run)

    def rebase(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        branch: str,
        onto: str,
        *,
        metadata: Mapping[str, str] | None = None,
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        checks: Checks = (),
        expected_head: str | None = None,
        dry_run: bool = False,
    ) -> "ReplayResult":
        """Put a branch's own commits on top of another state, all at once.

        Nothing is lost: the reflog has the old ones, and `undo` goes back to them. The metadata are added to those of
        each commit. A dry run plans the commits. The checks run on the result before it is published.

        >>> dev = repo.branch_create("dev")
        >>> for branch, number in {"dev": 4, "main": 5}.items():
        ...     _ = repo.append("shop.orders", [{"id": number, "item": "tea", "amount": 12.5}], branch=branch)
        >>> commits = repo.rebase("dev", "main").commits
        >>> len(repo.table("shop.orders", "dev"))
        5
        """
        name = BranchName.parse_public(branch)
        combiner = self._combiner(name, strategy=strategy, resolvers=resolvers, resolutions=resolutions)
        rebase = self._rebase_of(onto, combiner)
        return self._replay(rebase, metadata=metadata, checks=checks, expected_head=expected_head, dry_run=dry_run)

    def _rebase_of(self, onto: str, combiner: "Combiner") -> "Rebase":
        from anabranch.repo.merge.cherry_pick_and_rebase import Rebase

        resolved = self._resolve_published(onto)
        resolved.get_commit()  # refuses what no commit records
        return Rebase(onto=resolved.record, combiner=combiner)

    def _pick_of(
        self, kind: CommitKind, commit: str | Sequence[str], combiner: "Combiner", message: str | None = None
    ) -> "Pick":
        """Return the request to apply or to revert commits. A range is reverted from its newest commit on."""
        from anabranch.repo.merge.cherry_pick_and_rebase import Pick

        is_revert = kind is CommitKind.REVERT
        named = [commit] if isinstance(commit, str) else list(commit)
        found = [record for name in named for record in self._commits_named(name, newest_first=is_revert)]
        if not found:
            hint = "pass a commit, a range such as 'main..dev', or a list"
            raise InvalidInputError("no commits are given", hint=hint)
        if message is not None and len(found) > 1:
            problem = f"one message is given for {len(found)} commits"
            raise InvalidInputError(problem, hint="leave it out: each has the message of its commit")
        text = None if message is None else checked_text(message)
        return Pick(kind=kind, commits=tuple(found), combiner=combiner, message=text)

    def _replay(
        self,
        request: "Pick | Rebase",
        *,
        metadata: Mapping[str, str] | None,
        checks: Checks,
        expected_head: str | None,
        dry_run: bool,
    ) -> "ReplayResult":
        """Apply commits, or plan that. The commits that are read are kept out of garbage collection."""
        from anabranch.repo.merge.cherry_pick_and_rebase import Pick
        from anabranch.repo.merge.plan import ReplayResult
        from anabranch.repo.merge.replay import plan_replay, replay

        request = replace(
            request, metadata=checked_metadata(metadata), expected_head=expected_head, inspect=self._inspecting(checks)
        )
        with self._holding(*(request.commits if isinstance(request, Pick) else [request.onto])) as repo_store:
            if dry_run:
                return ReplayResult(plan=plan_replay(repo_store, request))
            entry, commits = replay(repo_store, request)
        if entry is not None:
            self._on_moved(entry)
        return ReplayResult(commits=commits)

    def _commits_named(self, text: str, *, newest_first: bool) -> list[CommitRecord]:
        from anabranch.repo.merge.replay import iter_own_commits

        pair = RefRange.find(text)
        if pair is None:
            return [self._resolve(text).record]
        if pair.is_since_base:
            raise InvalidInputError(f"{text!r} is not a range of commits", hint=f"use {text.replace('...', '..')!r}")
        older, newer = (self._resolve(self._ref(side)).record for side in (pair.before, pair.after))
        own = iter_own_commits(self._repo_store, Ancestry(self._repo_store), newer, older)
        found = [record for record in own if record.commit.tables]  # others change nothing
        if not found:
            hint = "write the older ref first"
            raise InvalidInputError(f"the range {text!r} has no commits that changed tables", hint=hint)
        return found if newest_first else found[::-1]

    @contextmanager
    def _holding(self, *records: CommitRecord) -> Iterator[RepoStore]:
        """Keep commits, and what they were made from, out of garbage collection while their tables are read."""
        commits = [record.commit for record in records]
        ids = [found for commit in commits for found in (commit.graph_commit_id, commit.parent_commit_id)]
        with self._config.leases.working(held=[found for found in ids if found is not None]) as lease:
            for commit in commits:
                # After the lease names it: a collection marks, then reads the leases, so one of the two sees the other.
                require_uncollected(self._config, commit.graph_commit_id)
            yield replace(self._repo_store, lease=lease)

    def _combiner(
        self,
        branch: BranchName,
        *,
        strategy: str = "fail",
        resolvers: "Resolvers | None" = None,
        resolutions: Resolutions | None = None,
        kept: "KeptDecisions | None" = None,
        engine: str = "auto",
    ) -> "Combiner":
        from anabranch.repo.merge.combiner import Combiner
        from anabranch.repo.merge.conflict_resolution import parse_resolution

        resolution = parse_resolution(strategy, resolvers, resolutions, kept=None if kept is None else kept.read)
        return Combiner(config=self._config, branch=branch, comparer=self._comparer(engine), resolution=resolution)

    def _inspecting(self, checks: Checks) -> "Inspect | None":
        named = checked_checks(checks)
        return partial(self._run_checks, named) if named else None

    def _run_checks(self, checks: Sequence[NamedCheck], record: CommitRecord, tables: TableMap) -> None:
        version = record.commit.manifest_version
        run_checks(checks, Snapshot(self._repo_store, record, tables, version=version), self._query)

    # Load and export.

    def load(  # noqa: PLR0913 - one call for one load, whose every choice has a default
        self,
        table: str,
        source: Any,
        *,
        format: str | None = None,  # noqa: A002 - the name that users know
        mode: str = "append",
        branch: str | None = None,
        schema: "pa.Schema | Mapping[str, Any] | None" = None,
        primary_key: Sequence[str] | None = None,
        csv: "CsvOptions | None" = None,
        on_bad: str = "fail",
        on_duplicate: str = "refuse",
        engine: str = "auto",
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: OnProgress | None = None,
    ) -> "LoadReport":
        """Load rows into a table as one commit; the table is made if it is not there.

        The source is a file, a folder or a pattern, local or in an object store, a list of these, a Spark DataFrame, or
        anything Arrow can read. Types are the table's, else those of the schema (which may be a dict of some columns'
        types), else they are inferred from all values. `csv` describes CSV files. If anything fails, nothing changes.

        >>> report = repo.load("shop.items", [{"id": 1, "name": "cup"}, {"id": 2, "name": "pot"}], primary_key=["id"])
        >>> report.rows_loaded, repo.snapshot().commit.kind.value
        (2, 'load')
        """
        from anabranch.files.formats import checked_csv
        from anabranch.repo.io.load import checked_request, load

        text = f"Load {table}" if message is None else checked_text(message)
        request = checked_request(
            table, mode=mode, schema=schema, primary_key=primary_key, on_bad=on_bad, on_duplicate=on_duplicate
        )
        return load(
            partial(self.transaction, branch, message=text, metadata=metadata, kind=CommitKind.LOAD),
            request,
            source,
            file_format=format,
            csv=checked_csv(csv),
            engine=engine,
            storage_options=storage_options or self.storage_options,
            progress=progress or ignore_progress,
            find_loader=self._engines.find_loader,
        )

    def export(  # noqa: PLR0913 - one call for one export, whose every choice has a default
        self,
        table: str,
        target: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 - the name that users know
        ref: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        single_file: bool = False,
        overwrite: bool = False,
        csv: "CsvOptions | None" = None,
        storage_options: Mapping[str, str] | None = None,
        progress: OnProgress | None = None,
    ) -> "ExportReport":
        """Write the rows of a table at a ref, or those that match a predicate, to a file or to the files of a folder.

        A target whose name ends with a format is one file; any other is a folder of files of about a million rows each,
        unless `single_file`. A file appears under its name when it is complete.

        >>> repo.export("shop.orders", "orders.csv").rows
        3
        """
        from anabranch.files.formats import checked_csv, checked_format
        from anabranch.files.writer import Target
        from anabranch.repo.io.export import ExportOptions, export_table

        snapshot, csv = self._published_snapshot(self._ref(ref)), checked_csv(csv)
        to = Target.parse(
            target,
            format=None if format is None else checked_format(format),
            single_file=single_file,
            storage_options=storage_options or self.storage_options,
        )
        options = ExportOptions(
            columns=columns,
            where=where,
            limit=checked_limit(limit, "rows"),
            overwrite=overwrite,
            csv=csv,
            progress=progress or ignore_progress,
        )
        return export_table(snapshot, table, to, options)

    # Maintain.

    def gc(
        self,
        *,
        keep_newer_than: timedelta | None = None,
        keep_last: int | None = None,
        grace: timedelta | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> "GcReport":
        """Free the space of data that no branch, tag, run or clone has needed for a day.

        By default all history of branches is kept. Limit it to commits that are `keep_newer_than` some time, or to the
        `keep_last` commits of each branch. Other processes may read and write at the same time.

        >>> report = repo.gc(keep_last=10, dry_run=True)
        >>> report.bytes, report.damaged
        (0, ())
        """
        from anabranch.repo.gc.collection import checked_policy, collect_garbage

        policy = checked_policy(self._config, keep_newer_than=keep_newer_than, keep_last=keep_last, grace=grace)
        progress = progress or ignore_progress
        collect = partial(collect_garbage, self._repo_store, policy, dry_run=dry_run, progress=progress)
        return collect() if dry_run else freeing_space(self._config, collect)

    def storage_report(
        self,
        *,
        branch: str | None = None,
        tables: Sequence[str] | None = None,
        keep_newer_than: timedelta | None = None,
        keep_last: int | None = None,
        grace: timedelta | None = None,
        progress: OnProgress | None = None,
    ) -> "RepositoryStorage":
        """Report how many bytes each branch, tag, run and clone needs, alone or shared, and what `gc` would free.

        The policy is that of `gc`, and by default keeps all history. `branch` and `tables` limit what is measured.

        >>> [holder.name for holder in repo.storage_report().holders]
        ['main']
        """
        from anabranch.repo.gc.collection import checked_policy
        from anabranch.repo.gc.storage_report import measure_storage

        policy = checked_policy(self._config, keep_newer_than=keep_newer_than, keep_last=keep_last, grace=grace)
        progress = progress or ignore_progress
        return measure_storage(self._repo_store, policy, branch=branch, tables=tables, progress=progress)

    def doctor(
        self,
        *,
        repair: bool = False,
        tables: Sequence[str] | None = None,
        rows: bool = False,
        progress: OnProgress | None = None,
    ) -> "DoctorReport":
        """Check everything that can be reached: logs, commits, tables and their files; `rows` reads all rows, too.

        With `repair`, rebuild what can be rebuilt from other files, and check everything again. `tables` limits which
        tables are checked; logs and commits always are.

        >>> repo.doctor().is_clean
        True
        """
        from anabranch.repo.doctor.repository_doctor import check_repository

        reported = counting(progress, "checks")
        return check_repository(self._config, tables=tables, rows=rows, repair=repair, progress=reported)

    def clone_list(self) -> Listing[CloneInfo]:
        """List the clones that were made of this repository, oldest first. Registered ones keep what they read.

        >>> clone = ab.clone("shop", "experiment")
        >>> [one.is_held for one in repo.clone_list()]
        [True]
        """
        return Listing(Clones(self._config).list())

    def clone_release(self, clone_id: str) -> CloneInfo:
        """Stop keeping what a clone reads: for one that is gone, or that was cut off while it was made.

        >>> clone = ab.clone("shop", "experiment")
        >>> repo.clone_release(repo.clone_list()[0].id).is_held
        False
        """
        return Clones(self._config).release(clone_id)


def _restore(config: RepoConfig, engines: Engines, branch: str) -> Repository:
    return Repository(config, engines=engines, branch=branch)


def _one_name(given: str | Sequence[str], what: str) -> str:
    if not isinstance(given, str):
        raise InvalidInputError(f"{what} must be one name, got {given!r}", hint="pass a text, such as 'dev'")
    return given
