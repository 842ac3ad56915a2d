"""The repository as a user holds it: strings in, values out, no logic of its own."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.format.arguments import require_names
from anabranch.format.home import Home
from anabranch.format.staging import TARGET_ROWS, IndexKind, VectorOptions
from anabranch.ids import MAIN, BranchName, CommitId, Ref, TableKey, TagName
from anabranch.repo import (
    adoption,
    branches,
    entities,
    history,
    live,
    picking,
    protection,
    rewinding,
    runs,
    settling,
    strangers,
    tags,
    upkeep,
)
from anabranch.repo.branches import BranchInfo
from anabranch.repo.checks import (
    checked_expiry,
    checked_kind,
    checked_limit,
    checked_metadata,
    checked_mode,
    checked_text,
    checked_version,
)
from anabranch.repo.context import Context
from anabranch.repo.engine import Parameters, Rewriter, SqlEngine
from anabranch.repo.leases import Lease
from anabranch.repo.models import BranchMode, CommitKind, GraphCommit, LogEntry
from anabranch.repo.publish import Changes, Description
from anabranch.repo.records import Records
from anabranch.repo.refs import Resolved, refuse_internal, require_published, resolve
from anabranch.repo.run import Run
from anabranch.repo.runs import RunInfo
from anabranch.repo.schema.apply import SchemaApplied, apply_schema, plan_on, show_schema
from anabranch.repo.schema.desired import Desired, read_desired
from anabranch.repo.schema.plan import SchemaPlan
from anabranch.repo.schema.state import SchemaState
from anabranch.repo.snapshots import Snapshot
from anabranch.repo.tags import TagInfo
from anabranch.repo.transaction import Transaction
from anabranch.repo.views import view

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Repository"]


class Repository:
    """A handle on one repository, bound to one branch."""

    def __init__(self, context: Context, *, branch: str = MAIN) -> None:
        if context.actor is not None:
            checked_text(context.actor, "actor's name")
        self._context = context
        self._records = Records.of(context)
        self._branch = BranchName.parse_public(branch)
        self._cached: Snapshot | None = None
        self._seen: dict[BranchName, int] = {}  # where this handle last looked at, or put, a branch
        self._moving = threading.Lock()
        self.foreign_writes: tuple[settling.ForeignWrite, ...] = ()

    def __repr__(self) -> str:
        return f"Repository({self.uri!r}, branch={self.branch!r})"

    @property
    def uri(self) -> str:
        return self._context.root

    @property
    def branch(self) -> str:
        return str(self._branch)

    @property
    def actor(self) -> str | None:
        return self._context.actor

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What reaches the store, credentials among it: for engines that open the tables by themselves."""
        return self._context.storage_options

    # Reading

    def snapshot(self) -> Snapshot:
        """The bound branch as this handle last saw it; it moves by `sync_branch` and by own commits only.

        A live branch moves with main, so that both are looked at.
        """
        known = self._cached
        if known is not None and known.main_commit_id is None:
            return known
        found = Resolved.of_entry(view(self._records, self._records.heads.get(self._branch)))
        if known is None or (known.version, known.main_commit_id) != (found.version, found.record.saw):
            self._cached = known = self._snapshot(found)
        self._seen[self._branch] = found.version
        return known

    def snapshot_of(self, ref: str) -> Snapshot:
        """The state a ref stands for, read anew."""
        return self._snapshot(self._resolve(ref))

    def published_snapshot_of(self, ref: str) -> Snapshot:
        """Like `snapshot_of`; a commit given by its id is looked up in the log too, which takes one more request.

        The object of a commit whose writer died before publishing can be read by whoever knows its id.
        """
        return self._snapshot(self._resolve_published(ref))

    def snapshot_at_version(self, version: int) -> Snapshot:
        """The bound branch as of the entry of that number in its log."""
        number = checked_version(version)
        return self._snapshot(Resolved.of_entry(self._records.heads.get_numbered(self._branch, number)))

    def get_commit(self, commit_id: str) -> GraphCommit:
        if Ref.parse(commit_id).name == commit_id and len(commit_id) >= 26:
            return self._get_commit(commit_id)
        return self._resolve(commit_id).record.commit

    def head_commit_id_for_branch(self, branch: str) -> str:
        return self._records.heads.get(BranchName.parse_public(branch)).head.commit.graph_commit_id

    def list_commits(
        self, ref: str | None = None, *, limit: int | None = 50, before: str | None = None, table: str | None = None
    ) -> list[GraphCommit]:
        """The commits that led to a ref, newest first; `before` continues after the last one of another page."""
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

    def sql(self, sql: str, *, ref: str | None = None, params: Parameters | None = None) -> "pa.Table":
        """Answer one read-only statement over the tables as a ref has them, by default the bound branch as it is now.

        A table is `bucket.table`, or `bucket.table AT 'ref'`; `tables`, `branches`, `branch_tables`, `commits`, `tags`
        and `refs` tell about the repository. Values for `?` and `$name` are `params`.
        """
        return self.sql_reader(sql, ref=ref, params=params).read_all()

    def sql_reader(
        self, sql: str, *, ref: str | None = None, params: Parameters | None = None
    ) -> "pa.RecordBatchReader":
        """Like `sql`, batch by batch, for answers that are larger than memory."""
        return self._engine().query(self, sql, ref=self._ref(ref), params=params)

    # Branches

    def branch_create(self, name: str, *, description: str = "") -> BranchInfo:
        """Branch from the bound branch as it is now."""
        return self.branch_create_from(self.branch, name, description=description)

    def branch_create_from(
        self,
        source: str,
        name: str,
        *,
        mode: str = BranchMode.PINNED,
        description: str = "",
        expires_in: timedelta | None = None,
    ) -> BranchInfo:
        """Branch from a branch, a tag, a commit or an old version; no table is touched.

        A pinned branch sees its source as of now. A live one, which only main can be the source of, sees main as it is
        at any time, but for the tables written on the branch.
        """
        target = BranchName.parse_new(name)
        made = branches.create_branch(
            self._records,
            target,
            source=self._resolve_published(source),
            mode=checked_mode(mode),
            description=checked_text(description, "description"),
            expires_at=None if expires_in is None else self._context.clock() + checked_expiry(expires_in),
        )
        self._seen[target] = made.version
        return made

    def branch_list(self, *, internal: bool = False) -> tuple[BranchInfo, ...]:
        return branches.list_branches(self._records, internal=internal)

    def branch_get(self, name: str) -> BranchInfo:
        return BranchInfo.of(self._records.heads.get(BranchName.parse_public(name)))

    def branch_delete(self, name: str) -> None:
        """Delete a branch; it can be restored until garbage collection."""
        target = BranchName.parse_public(name)
        tombstone = branches.delete_branch(self._records, target)
        self._seen[target] = tombstone.number

    def branch_restore(self, name: str) -> BranchInfo:
        restored = branches.restore_branch(self._records, BranchName.parse_public(name))
        self._seen[BranchName(name)] = restored.version
        return restored

    def branch_pull(self, name: str, key: str) -> bool:
        """Let a table of a branch follow its source again; whether the branch had a copy of its own."""
        target = TableKey.parse(key)
        entry, was_local = live.pull_table(self._records, BranchName.parse_public(name), target)
        self._on_published(entry, {target: self._records.commits.find_table(entry.head, target)} if was_local else {})
        return was_local

    def branch_freeze(self, name: str) -> BranchInfo:
        """Make a live branch pinned at what it shows now."""
        entry = live.freeze_branch(self._records, BranchName.parse_public(name))
        self._move_to(entry)
        return BranchInfo.of(entry)

    def branch_protect(self, name: str) -> BranchInfo:
        """Let a branch stay as it is: no commit, reset, undo or delete until `branch_unprotect`."""
        return self._protect(name, protect=True)

    def branch_unprotect(self, name: str) -> BranchInfo:
        return self._protect(name, protect=False)

    def branch_drift(self, name: str) -> tuple[live.TableDrift, ...]:
        """What main did since the branch took its copies, table by table."""
        return live.branch_drift(self._records, BranchName.parse_public(name))

    def sync_branch(self, branch: str | None = None) -> Snapshot:
        """Bind this handle to the newest state of a branch."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        self._cached = self._snapshot(Resolved.of_entry(view(self._records, self._records.heads.get(target))))
        self._branch = target
        self._seen[target] = self._cached.version
        return self._cached

    # Tags

    def tag_create(self, name: str, *, ref: str | None = None, description: str = "") -> TagInfo:
        """Name the commit that a ref stands for; by default the newest of the bound branch."""
        commit = self._resolve_published(self._ref(ref)).get_commit()
        return tags.create_tag(
            self._records,
            TagName.parse(name),
            commit_id=commit.graph_commit_id,
            description=checked_text(description, "description"),
        )

    def tag_list(self) -> tuple[TagInfo, ...]:
        return tags.list_tags(self._records)

    def tag_get(self, name: str) -> TagInfo:
        return tags.get_tag(self._records, TagName.parse(name))

    def tag_delete(self, name: str) -> None:
        tags.delete_tag(self._records, TagName.parse(name))

    # Back and forth

    def reset(self, branch: str, *, to: str) -> None:
        """Put a branch on what a ref stands for. Nothing is lost: the reflog has where it was."""
        name = BranchName.parse_public(branch)
        before = self._records.heads.get(name)
        self._on_moved(before, rewinding.reset_branch(self._records, name, self._resolve_published(to)))

    def revert(self, commit: str, *, branch: str | None = None, message: str | None = None) -> GraphCommit:
        """Take back one commit by another; refused where its tables have changed since."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        before = self._records.heads.get(target)
        text = None if message is None else checked_text(message)
        after = picking.revert_commit(self._records, target, self._resolve(commit).record, message=text)
        self._on_moved(before, after)
        return after.head.commit

    def cherry_pick(self, commit: str, *, branch: str | None = None, message: str | None = None) -> GraphCommit:
        """Make one commit's change on a branch, too; refused where its tables differ there."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        before = self._records.heads.get(target)
        text = None if message is None else checked_text(message)
        after = picking.cherry_pick(self._records, target, self._resolve(commit).record, message=text)
        self._on_moved(before, after)
        return after.head.commit

    def reflog(self, branch: str | None = None, *, limit: int | None = 50) -> list[rewinding.Movement]:
        """Every movement of a branch, newest first: commits, resets, deletes, with actor and time."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        return rewinding.list_movements(self._records, target, limit=limit)

    def undo(self, branch: str | None = None) -> None:
        """Take back the last movement of a branch, whatever it was, by a new entry of its log.

        Refused if others moved the branch since this handle did, or last looked at it.
        """
        target = self._branch if branch is None else BranchName.parse_public(branch)
        after = rewinding.undo_last(self._records, target, seen=self._seen.get(target))
        self._on_moved(self._records.heads.get_numbered(target, after.number - 1), after)

    # History as tables

    def history_sync(self) -> history.HistoryTables:
        """Bring `_graph_commits.lance` and `_graph_commit_actors.lance` up to date with every branch's log.

        They follow by themselves, a few commits behind, and nothing here reads them.
        """
        return history.sync_history(self._records)

    def history_rebuild(self) -> history.HistoryTables:
        """Make both tables anew from the logs, for when they were damaged or lost."""
        return history.rebuild_history(self._records)

    # Writing

    def transaction(
        self,
        branch: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        kind: str = CommitKind.CHANGE,
    ) -> Transaction:
        """Begin a commit over any number of tables of a branch."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        about = Description(message=checked_text(message), kind=checked_kind(kind), metadata=checked_metadata(metadata))
        return Transaction(
            self._records,
            branch=target,
            about=about,
            on_published=self._on_published,
        )

    def settle(self, key: str, *, branch: str | None = None, force: bool = False) -> None:
        """Let raw Lance readers see a table as published; by force, a stranger's direct write is set aside."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        parsed = TableKey.parse(key)
        if self._records.commits.find_table(self._records.heads.get(target).head, parsed) is None:
            raise TableNotFoundError(
                f"there is no table '{key}' on branch '{target}'", hint="list the tables to see which exist"
            )
        settling.settle_table(self._records, target, parsed, force=force)
        self._forget_foreign_writes(parsed)

    def list_foreign_writes(self, *, branch: str | None = None) -> tuple[settling.ForeignWrite, ...]:
        """Tables whose newest Lance version somebody else made; each table of the branch is looked at."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        return strangers.list_foreign_writes(self._records, target)

    def adopt(
        self, key: str, uri: str | None = None, *, branch: str | None = None, primary_key: Sequence[str] = ()
    ) -> None:
        """Take in a stranger's direct write to a table, or the Lance table at a URI as a new one, without copying."""
        target = self._branch if branch is None else BranchName.parse_public(branch)
        parsed = TableKey.parse(key)
        if uri is None:
            entry = adoption.adopt_write(self._records, target, parsed)
        else:
            source = Home.at(uri, self._context.storage_options)
            entry = adoption.adopt_table(self._records, target, parsed, source=source, primary_key=primary_key)
        self._forget_foreign_writes(parsed)
        self._move_to(entry)

    # Upkeep

    def compact(
        self,
        keys: Sequence[str] | None = None,
        *,
        branch: str | None = None,
        engine: str = "local",
        target_rows_per_fragment: int = TARGET_ROWS,
        on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> upkeep.Compaction:
        """Rewrite small and half-deleted files of tables as larger ones, in one commit; no row changes.

        By default all tables that the branch has written. The work is done in this process, or by Spark if `engine` is
        'spark'. Whoever writes to the same tables meanwhile is not held up.
        """
        target = self._branch if branch is None else BranchName.parse_public(branch)
        if keys is not None:
            require_names(keys)
        return upkeep.compact_tables(
            self.transaction(str(target), message="Compact", kind=CommitKind.COMPACT),
            upkeep.list_written(self._records, target) if keys is None else keys,
            target_rows_per_fragment=target_rows_per_fragment,
            rewriter=self._rewriter(engine),
            on_progress=on_progress,
        )

    def index(
        self,
        key: str,
        column: str,
        *,
        type: str = IndexKind.BTREE,  # noqa: A002 - Lance's name
        name: str | None = None,
        branch: str | None = None,
        vector: VectorOptions | None = None,
    ) -> GraphCommit | None:
        """Build an index on a column of a table, scalar or vector, as one commit; later rows are found all the same."""
        kind = IndexKind.parse(type)
        tx = self.transaction(branch, message=f"Index {column} of {key}", kind=CommitKind.INDEX)
        with tx:
            tx.index(key, column, type=kind, name=name, vector=vector)
        return tx.commit

    def _rewriter(self, engine: str) -> Rewriter | None:
        if engine not in ("local", "spark"):
            raise InvalidInputError(f"there is no engine {engine!r}", hint="use 'local' or 'spark'")
        if engine == "local":
            return None
        if self._context.load_rewriter is None:
            raise InvalidInputError("this repository has no Spark engine", hint="open it with anabranch.open")
        return self._context.load_rewriter()

    # Schemas

    def schema_show(self, ref: str | None = None) -> SchemaState:
        """The schema of all tables, as `schema_plan` and `schema_apply` take it; `.to_yaml()` is its text."""
        return show_schema(self.snapshot_of(ref or self.branch))

    def schema_plan(self, desired: Desired, *, branch: str | None = None) -> SchemaPlan:
        """What would make the tables of a branch the desired ones, given as a dict, YAML text or a file."""
        state = read_desired(desired, storage_options=self._context.storage_options)
        name = self.branch if branch is None else str(BranchName.parse_public(branch))
        return plan_on(self.snapshot_of(name), state, branch=name)

    def schema_apply(
        self,
        desired: Desired,
        *,
        branch: str | None = None,
        allow_destructive: bool = False,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        """Make the tables of a branch the desired ones, by one commit; nobody else applies a schema at the same time.

        What may lose data is refused unless it is allowed. A dry run plans and checks, and changes nothing.
        """
        state = read_desired(desired, storage_options=self._context.storage_options)
        text = "Apply a schema" if message is None else message

        def begin() -> Transaction:
            return self.transaction(branch, message=text, metadata=metadata, kind=CommitKind.SCHEMA_APPLY)

        return apply_schema(self._records, begin, state, allow_destructive=allow_destructive, dry_run=dry_run)

    # Runs

    def begin_run(
        self, target: str | None = None, *, message: str = "", metadata: Mapping[str, str] | None = None
    ) -> Run:
        """Begin work that no one else sees until all of it is published as one commit of a branch."""
        run_id, lease = runs.begin_run(
            self._records,
            self._branch if target is None else BranchName.parse_public(target),
            message=checked_text(message),
            metadata=checked_metadata(metadata),
        )
        return self._run(run_id, lease)

    def run_get(self, run_id: str) -> Run:
        """A run by its id, also one that another process began."""
        entry = runs.get_run(self._records, run_id)
        found = entry.branch.run_id or run_id  # as it is spelled
        return self._run(found, Lease(self._context, runs.run_state(entry).target, found))

    def run_list(self, *, target: str | None = None, limit: int | None = 50) -> list[RunInfo]:
        """The runs, newest first, those that are over too."""
        limit = checked_limit(limit, "runs")
        on = None if target is None else BranchName.parse_public(target)
        return list(islice(runs.list_runs(self._records, target=on), limit))

    def _run(self, run_id: str, lease: Lease) -> Run:
        def query(sql: str, snapshot: Snapshot, params: Parameters | None) -> "pa.RecordBatchReader":
            ref = str(BranchName.of_run(run_id))
            return self._engine().query(self, sql, ref=ref, params=params, snapshot=snapshot)

        return Run(self._records, run_id, lease=lease, query=query, on_published=self._on_published)

    def _engine(self) -> SqlEngine:
        if self._context.load_engine is None:
            raise InvalidInputError("this repository has no SQL engine", hint="open it with anabranch.open")
        return self._context.load_engine()

    def _forget_foreign_writes(self, key: TableKey) -> None:
        self.foreign_writes = tuple(write for write in self.foreign_writes if write.table != str(key))

    def _on_published(self, entry: LogEntry, changes: Changes) -> None:
        self._move_to(entry)
        self.foreign_writes = settling.try_to_settle(self._records, entry.branch, changes)

    def _protect(self, name: str, *, protect: bool) -> BranchInfo:
        entry = protection.set_protection(self._records, BranchName.parse_public(name), protect=protect)
        self._move_to(entry)
        return BranchInfo.of(entry)

    def _on_moved(self, before: LogEntry, after: LogEntry) -> None:
        """After a movement that was no transaction: show it, also to raw Lance readers."""
        self._on_published(after, rewinding.changed_tables(self._records, before, after))

    def _move_to(self, entry: LogEntry) -> None:
        """Show an own commit; threads that share this handle may come here in another order than they published."""
        with self._moving:
            self._seen[entry.branch] = max(entry.number, self._seen.get(entry.branch, 0))
            is_newer = self._cached is None or self._cached.version < entry.number
            if entry.branch == self._branch and is_newer:
                self._cached = self._snapshot(Resolved.of_entry(view(self._records, entry)))
        history.follow_history(self._records, entry)

    def _at(self, version: int | None, ref: str | None) -> Resolved:
        if version is None:
            return self._resolve(self._ref(ref))
        if ref is not None:
            raise InvalidInputError(f"both version {version} and ref {ref!r} are given", hint="give one of them")
        return Resolved.of_entry(self._records.heads.get_numbered(self._branch, checked_version(version)))

    def _ref(self, ref: str | None) -> str:
        return self.branch if ref is None else str(Ref.parse(ref))

    def _resolve_published(self, ref: str) -> Resolved:
        """What a ref stands for, where something is to be built on it."""
        return require_published(self._resolve(ref), self._records)

    def _resolve(self, ref: str) -> Resolved:
        parsed = Ref.parse(ref)
        if parsed.name.startswith("__"):
            BranchName.parse_public(parsed.name)  # says why not
        found = resolve(parsed, self._records)
        refuse_internal(found)
        if found.is_head and found.branch is not None:
            self._seen[found.branch] = found.version
        return found

    def _get_commit(self, commit_id: str) -> GraphCommit:
        return self._resolve(CommitId.parse(commit_id).value).record.commit

    def _snapshot(self, found: Resolved) -> Snapshot:
        return Snapshot.of(self._records, found.record, version=found.version)
