"""What a handle does to bring branches together."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from anabranch.ids import BranchName, TableKey
from anabranch.repo.handles.base import Handle
from anabranch.repo.io.values import Choice
from anabranch.repo.leases.work import working
from anabranch.repo.log.arguments import checked_metadata, checked_text
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.entries import CommitRecord, GraphCommit, LogEntry, TableMap
from anabranch.repo.log.store import Records
from anabranch.repo.merge import cherry_pick
from anabranch.repo.merge.combining import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.merge import BranchMerge, iter_conflicts, merge_branch, plan_merge
from anabranch.repo.merge.plan import MergeResult
from anabranch.repo.merge.rebasing import rebase_branch
from anabranch.repo.merge.resolving import Resolver, Strategy, parse_resolution
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write import settle
from anabranch.repo.write.checks import Checks, NamedCheck, checked_checks, run_checks
from anabranch.repo.write.publish import Inspect

__all__ = ["MergingHandle"]

Resolvers = Mapping[str, Resolver | Mapping[str, Resolver]]


class _Pick(Protocol):
    def __call__(
        self, records: Records, branch: BranchName, commit: CommitRecord, *, message: str | None, combiner: Combiner
    ) -> LogEntry: ...


class MergingHandle(Handle):
    """Merges branches, and single commits."""

    def branch_merge(  # noqa: PLR0913 - each is one plain choice of the caller
        self,
        source: str,
        *,
        into: str | None = None,
        strategy: str = Strategy.FAIL,
        resolvers: Resolvers | None = None,
        checks: Checks = (),
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expected_head: str | None = None,
        squash: bool = False,
        dry_run: bool = False,
        engine: str = Choice.AUTO,
    ) -> MergeResult:
        """Bring what a branch, or any other ref, did since the two parted into a branch, as one commit.

        The changes of both sides are merged by table, row and cell. What both changed differently is decided by the
        resolvers, then by the strategy; if any conflict is left, nothing happens. Checks see the result before others.
        Rows are matched in this process or, where there are many, by Spark; `engine` says 'local' or 'spark'.

        >>> dev = repo.branch_create("dev")
        >>> with repo.transaction("dev", message="Cups cost more") as tx:
        ...     tx.update("shop.orders", {"amount": "9.0"}, where="id = 2")
        1
        >>> repo.branch_merge("dev").outcome.value
        'FastForward'
        """
        combiner = self._combiner(self._named(into), strategy=strategy, resolvers=resolvers, engine=engine)
        wanted = self._merge_of(source, combiner)
        wanted = replace(
            wanted,
            message=None if message is None else checked_text(message),
            metadata=checked_metadata(metadata),
            expected_head=expected_head,
            squash=squash,
            inspect=self._inspecting(checks),
            guard=self._guard,
        )
        if dry_run:
            return MergeResult(plan=plan_merge(self._records, wanted))
        with self._holding(wanted.source) as records:
            merged = merge_branch(records, wanted)
        if merged.entry is not None:
            self._on_published(merged.entry, merged.changes or {})
        else:
            self._settle_last(wanted.into)
        return merged.result

    def _settle_last(self, branch: BranchName) -> None:
        """Let every Lance tool see the last commit: a merge that was killed right after it may not have come to it."""
        head = self._records.heads.get(branch).head
        keys = [TableKey.parse(key) for key in head.commit.tables]
        changes = {key: self._records.commits.find_table(head, key) for key in keys}
        self.foreign_writes = settle.try_to_settle(self._records, branch, changes)

    def conflicts(
        self,
        source: str,
        *,
        into: str | None = None,
        strategy: str = Strategy.FAIL,
        resolvers: Resolvers | None = None,
        engine: str = Choice.AUTO,
    ) -> Iterator[Conflict]:
        """Every conflict that a merge would have, one after the other; however many there are, few are in memory.

        >>> dev = repo.branch_create("dev")
        >>> for branch, price in {"dev": "9.0", "main": "7.0"}.items():
        ...     with repo.transaction(branch) as tx:
        ...         _ = tx.update("shop.orders", {"amount": price}, where="id = 2")
        >>> [(one.key, one.column, one.base, one.source, one.target) for one in repo.conflicts("dev", into="main")]
        [({'id': 2}, 'amount', 8.0, 9.0, 7.0)]
        """
        combiner = self._combiner(self._named(into), strategy=strategy, resolvers=resolvers, engine=engine)
        wanted = self._merge_of(source, combiner)
        return iter_conflicts(self._records, wanted)

    def revert(
        self,
        commit: str,
        *,
        branch: str | None = None,
        message: str | None = None,
        strategy: str = Strategy.FAIL,
        resolvers: Resolvers | None = None,
    ) -> GraphCommit:
        """Take back one commit by another; what others did to its rows since is kept, or a conflict."""
        combiner = self._combiner(self._named(branch), strategy=strategy, resolvers=resolvers)
        return self._pick(cherry_pick.revert_commit, commit, message, combiner)

    def cherry_pick(
        self,
        commit: str,
        *,
        branch: str | None = None,
        message: str | None = None,
        strategy: str = Strategy.FAIL,
        resolvers: Resolvers | None = None,
    ) -> GraphCommit:
        """Make one commit's change on a branch, too; its rows are merged with what is there."""
        combiner = self._combiner(self._named(branch), strategy=strategy, resolvers=resolvers)
        return self._pick(cherry_pick.cherry_pick, commit, message, combiner)

    def rebase(
        self, branch: str, *, onto: str, strategy: str = Strategy.FAIL, resolvers: Resolvers | None = None
    ) -> tuple[GraphCommit, ...]:
        """Put a branch's own commits on top of another state, all at once; the new commits, oldest first.

        Nothing is lost: the reflog has the old ones, and `undo` goes back to them.
        """
        combiner = self._combiner(BranchName.parse_public(branch), strategy=strategy, resolvers=resolvers)
        resolved = self._resolve_published(onto)
        resolved.get_commit()  # refuses what no commit records
        with self._holding(resolved.record) as records:
            rebased = rebase_branch(records, resolved.record, combiner)
        if rebased.entry is not None:
            self._on_moved(rebased.entry)
        return rebased.commits

    def _pick(self, pick: _Pick, commit: str, message: str | None, combiner: Combiner) -> GraphCommit:
        text = None if message is None else checked_text(message)
        record = self._resolve(commit).record
        with self._holding(record) as records:
            after = pick(records, combiner.branch, record, message=text, combiner=combiner)
        self._on_moved(after)
        return after.head.commit

    @contextmanager
    def _holding(self, record: CommitRecord) -> Iterator[Records]:
        """Keep a commit, and what it was made from, out of garbage collection while its tables are read."""
        commit = record.commit
        held = [found for found in (commit.graph_commit_id, commit.parent_commit_id) if found is not None]
        with working(self._context, held=held) as work:
            require_uncollected(self._context, commit.graph_commit_id)
            yield replace(self._records, work=work)

    def _merge_of(self, source: str, combiner: Combiner) -> BranchMerge:
        found = self._resolve_published(source).record
        return BranchMerge(name=source, source=found, into=combiner.branch, combiner=combiner)

    def _combiner(
        self, branch: BranchName, *, strategy: str, resolvers: Resolvers | None, engine: str = Choice.AUTO
    ) -> Combiner:
        return Combiner(
            context=self._context,
            branch=branch,
            comparer=self._comparer(engine),
            resolution=parse_resolution(strategy, resolvers),
        )

    def _inspecting(self, checks: Checks) -> Inspect | None:
        named = checked_checks(checks)

        def inspect(record: CommitRecord, tables: TableMap) -> None:
            self._run_checks(named, record, tables)

        return inspect if named else None

    def _guard(self, checks: tuple[tuple[str, str], ...], record: CommitRecord, tables: TableMap) -> None:
        self._run_checks(checks, record, tables)

    def _run_checks(self, checks: Sequence[NamedCheck], record: CommitRecord, tables: TableMap) -> None:
        version = record.commit.manifest_version
        run_checks(checks, Snapshot(self._records, record, version=version, tables=tables), self._query)
