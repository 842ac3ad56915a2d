"""What a handle does to tables: transactions, schemas, upkeep, and what other tools wrote."""

from collections.abc import Callable, Mapping, Sequence

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.format.arguments import require_names
from anabranch.format.home import Home
from anabranch.format.staging import TARGET_ROWS, IndexKind, VectorOptions
from anabranch.ids import BranchName, TableKey
from anabranch.repo.engine import Rewriter
from anabranch.repo.gc import compact
from anabranch.repo.handles.base import Handle
from anabranch.repo.log.arguments import checked_kind, checked_metadata, checked_text
from anabranch.repo.log.entries import CommitKind, GraphCommit
from anabranch.repo.merge import adoption
from anabranch.repo.merge.combining import Combiner
from anabranch.repo.merge.resolving import Strategy, parse_resolution
from anabranch.repo.runs import streams
from anabranch.repo.schema.apply import SchemaApplied, apply_schema, plan_on, show_schema
from anabranch.repo.schema.desired import Desired, read_desired
from anabranch.repo.schema.plan import SchemaPlan
from anabranch.repo.schema.state import SchemaState
from anabranch.repo.transaction import Transaction
from anabranch.repo.write import external
from anabranch.repo.write.publish import Description
from anabranch.repo.write.settle import ForeignWrite, settle_table

__all__ = ["WritingHandle"]


class WritingHandle(Handle):
    """Changes tables, by commits."""

    def transaction(
        self,
        branch: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        kind: str = CommitKind.CHANGE,
    ) -> Transaction:
        """Begin a commit over any number of tables of a branch.

        >>> with repo.transaction(message="More tea", metadata={"ticket": "SHOP-7"}) as tx:
        ...     tx.append("shop.orders", pa.table({"id": [4], "item": ["tea"], "amount": [12.5]}))
        ...     tx["shop.orders"].count_rows()
        4
        >>> repo.snapshot().commit.message
        'More tea'
        """
        target = self._named(branch)
        about = Description(message=checked_text(message), kind=checked_kind(kind), metadata=checked_metadata(metadata))
        if about.kind is CommitKind.PUBLISH_RUN:
            # By such a commit a run that died halfway is found again.
            raise InvalidInputError(f"a commit of kind '{kind}' is made by a run", hint="begin a run and publish it")
        if about.kind is CommitKind.MERGE:
            raise InvalidInputError(f"a commit of kind '{kind}' is made by a merge", hint="use branch_merge")
        return Transaction(
            self._records,
            branch=target,
            about=about,
            on_published=self._on_published,
        )

    def stream_publish(
        self,
        batch: streams.StreamBatch,
        change: Callable[[Transaction], None],
        *,
        branch: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Publish a batch of a stream as one commit, once; None if it is there already, or changes nothing."""
        about = Description(message=checked_text(message), kind=CommitKind.LOAD, metadata=checked_metadata(metadata))
        return streams.publish_batch(
            self._records, self._named(branch), batch, change, about=about, on_published=self._on_published
        )

    def settle(self, key: str, *, branch: str | None = None, force: bool = False) -> None:
        """Let raw Lance readers see a table as published; by force, a stranger's direct write is set aside."""
        target = self._named(branch)
        parsed = TableKey.parse(key)
        if self._records.commits.find_table(self._records.heads.get(target).head, parsed) is None:
            raise TableNotFoundError(
                f"there is no table '{key}' on branch '{target}'", hint="list the tables to see which exist"
            )
        settle_table(self._records, target, parsed, force=force)
        self._forget_foreign_writes(parsed)

    def list_foreign_writes(self, *, branch: str | None = None) -> tuple[ForeignWrite, ...]:
        """Tables whose newest Lance version somebody else made; each table of the branch is looked at."""
        target = self._named(branch)
        return external.list_foreign_writes(self._records, target)

    def adopt(
        self, key: str, uri: str | None = None, *, branch: str | None = None, primary_key: Sequence[str] = ()
    ) -> None:
        """Adopt an external write to a table, or the Lance table at a URI as a new one, without copying its data.

        An external write is merged with what was committed since. Where both changed one cell, a MergeConflictError
        names it and nothing changes; `settle` with `force` then sets the external write aside.
        """
        target = self._named(branch)
        parsed = TableKey.parse(key)
        if uri is None:
            combiner = Combiner(
                context=self._context,
                branch=target,
                comparer=self._comparer(),
                resolution=parse_resolution(Strategy.FAIL, None),
            )
            with self._records.at_work() as records:
                entry = adoption.adopt_write(records, target, parsed, combiner)
            self._on_published(entry, {parsed: self._records.commits.find_table(entry.head, parsed)})
            return
        source = Home.at(uri, self._context.storage_options)
        entry = adoption.adopt_table(self._records, target, parsed, source=source, primary_key=primary_key)
        self._forget_foreign_writes(parsed)
        self._move_to(entry)

    def compact(
        self,
        keys: Sequence[str] | None = None,
        *,
        branch: str | None = None,
        engine: str = "local",
        target_rows_per_fragment: int = TARGET_ROWS,
        on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> compact.Compaction:
        """Rewrite small and half-deleted files of tables as larger ones, in one commit; no row changes.

        By default all tables that the branch has written. The work is done in this process, or by Spark if `engine` is
        'spark'. Whoever writes to the same tables meanwhile is not held up.
        """
        target = self._named(branch)
        if keys is not None:
            require_names(keys)
        return compact.compact_tables(
            self.transaction(str(target), message="Compact", kind=CommitKind.COMPACT),
            compact.list_written(self._records, target) if keys is None else keys,
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
        return tx.published

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

    def _rewriter(self, engine: str) -> Rewriter | None:
        if engine not in ("local", "spark"):
            raise InvalidInputError(f"there is no engine {engine!r}", hint="use 'local' or 'spark'")
        if engine == "local":
            return None
        if self._context.load_rewriter is None:
            raise InvalidInputError("this repository has no Spark engine", hint="open it with anabranch.open")
        return self._context.load_rewriter()

    def _forget_foreign_writes(self, key: TableKey) -> None:
        self.foreign_writes = tuple(write for write in self.foreign_writes if write.table != str(key))
