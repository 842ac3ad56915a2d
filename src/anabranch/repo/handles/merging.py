"""What a handle does to bring branches together."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from anabranch.ids import BranchName
from anabranch.repo.checks import checked_metadata, checked_text
from anabranch.repo.engine import Parameters
from anabranch.repo.handles.base import Handle
from anabranch.repo.merging.conflicts import Conflict
from anabranch.repo.merging.merge import BranchMerge, iter_conflicts, merge_branch, plan_merge
from anabranch.repo.merging.plan import MergeResult
from anabranch.repo.merging.resolving import Resolver, Strategy, parse_resolution
from anabranch.repo.models import CommitRecord, TableMap
from anabranch.repo.publish import Inspect
from anabranch.repo.snapshots import Snapshot
from anabranch.repo.state_checks import Checks, checked_checks, run_checks

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.repository import Repository

__all__ = ["MergingHandle"]

Resolvers = Mapping[str, Resolver | Mapping[str, Resolver]]


class MergingHandle(Handle):
    """Merges branches."""

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
    ) -> MergeResult:
        """Bring what a branch, or any other ref, did since the two parted into a branch, as one commit.

        The changes of both sides are merged by table, row and cell. What both changed differently is decided by the
        resolvers, then by the strategy; if any conflict is left, nothing happens. Checks see the result before others.
        """
        wanted = self._merge_of(source, into, strategy=strategy, resolvers=resolvers)
        wanted = replace(
            wanted,
            message=None if message is None else checked_text(message),
            metadata=checked_metadata(metadata),
            expected_head=expected_head,
            squash=squash,
            inspect=self._inspecting(checks),
        )
        if dry_run:
            return MergeResult(plan=plan_merge(self._records, wanted, self._comparer()))
        merged = merge_branch(self._records, wanted, self._comparer())
        if merged.entry is not None:
            self._on_published(merged.entry, merged.changes or {})
        return merged.result

    def conflicts(
        self,
        source: str,
        *,
        into: str | None = None,
        strategy: str = Strategy.FAIL,
        resolvers: Resolvers | None = None,
    ) -> Iterator[Conflict]:
        """Every conflict that a merge would have, one after the other; however many there are, few are in memory."""
        wanted = self._merge_of(source, into, strategy=strategy, resolvers=resolvers)
        return iter_conflicts(self._records, wanted, self._comparer())

    def _merge_of(self, source: str, into: str | None, *, strategy: str, resolvers: Resolvers | None) -> BranchMerge:
        return BranchMerge(
            name=source,
            source=self._resolve_published(source).record,
            into=self._branch if into is None else BranchName.parse_public(into),
            resolution=parse_resolution(strategy, resolvers),
        )

    def _inspecting(self, checks: Checks) -> Inspect | None:
        named = checked_checks(checks)

        def query(sql: str, snapshot: Snapshot, params: Parameters | None) -> "pa.RecordBatchReader":
            return self._engine().query(
                cast("Repository", self), sql, ref=snapshot.id, params=params, snapshot=snapshot
            )

        def inspect(record: CommitRecord, tables: TableMap) -> None:
            version = record.commit.manifest_version
            run_checks(named, Snapshot(self._records, record, version=version, tables=tables), query)

        return inspect if named else None
