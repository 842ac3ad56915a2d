"""The repository as a user holds it: strings in, values out, no logic of its own."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from anabranch.ids import BranchName
from anabranch.repo.engine import Parameters
from anabranch.repo.handles.branching import BranchingHandle
from anabranch.repo.handles.housekeeping import HousekeepingHandle
from anabranch.repo.handles.loading import LoadingHandle
from anabranch.repo.handles.merging import MergingHandle
from anabranch.repo.handles.reading import ReadingHandle
from anabranch.repo.leases.lease import Lease
from anabranch.repo.log.arguments import checked_limit, checked_metadata, checked_text
from anabranch.repo.merge.resolving import Strategy
from anabranch.repo.run import Run
from anabranch.repo.runs import runs
from anabranch.repo.runs.runs import RunInfo
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.checks import Checks, NamedCheck, checked_checks, recorded_checks

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Repository"]


class Repository(ReadingHandle, BranchingHandle, MergingHandle, LoadingHandle, HousekeepingHandle):
    """A handle on one repository, bound to one branch."""

    def sql(self, sql: str, *, ref: str | None = None, params: Parameters | None = None) -> "pa.Table":
        """Answer one read-only statement over the tables as a ref has them, by default the bound branch as it is now.

        A table is `bucket.table`, or `bucket.table AT 'ref'`; `tables`, `branches`, `branch_tables`, `commits`, `tags`
        and `refs` tell about the repository. Values for `?` and `$name` are `params`.

        >>> repo.sql("SELECT sum(amount) AS sold FROM shop.orders WHERE id < ?", params=[3]).to_pylist()
        [{'sold': 20.5}]
        """
        return self.sql_reader(sql, ref=ref, params=params).read_all()

    def sql_reader(
        self, sql: str, *, ref: str | None = None, params: Parameters | None = None
    ) -> "pa.RecordBatchReader":
        """Like `sql`, batch by batch, for answers that are larger than memory."""
        return self._engine().query(self, sql, ref=self._ref(ref), params=params)

    def begin_run(
        self,
        target: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Checks = (),
    ) -> Run:
        """Begin work that no one else sees until all of it is published as one commit of a branch.

        The checks belong to the run: it is published only if they pass, by whichever process publishes it. A check is
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
            self._records,
            self._named(target),
            message=checked_text(message),
            metadata=checked_metadata(metadata),
            checks=recorded_checks(named),
        )
        return self._run(run_id, lease, checks=named).warn_if_dropped()

    def run_get(self, run_id: str) -> Run:
        """A run by its id, also one that another process began."""
        entry = runs.get_run(self._records, run_id)
        found = entry.branch.run_id or run_id  # as it is spelled
        lease = Lease(self._context, runs.run_state(entry).target, found)
        return self._run(found, lease, checks=entry.state.checks)

    def run_list(self, *, target: str | None = None, limit: int | None = 50) -> list[RunInfo]:
        """The runs, newest first, those that are over too."""
        limit = checked_limit(limit, "runs")
        on = None if target is None else BranchName.parse_public(target)
        return list(islice(runs.list_runs(self._records, target=on), limit))

    def _run(self, run_id: str, lease: Lease, *, checks: Sequence[NamedCheck]) -> Run:
        def query(sql: str, snapshot: Snapshot, params: Parameters | None) -> "pa.RecordBatchReader":
            ref = str(BranchName.of_run(run_id))
            return self._engine().query(self, sql, ref=ref, params=params, snapshot=snapshot)

        return Run(
            self._records,
            run_id,
            lease=lease,
            query=query,
            on_published=self._on_published,
            load_combiner=lambda branch: self._combiner(branch, strategy=Strategy.FAIL, resolvers=None),
        ).with_checks(checks)
