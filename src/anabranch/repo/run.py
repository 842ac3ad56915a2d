"""The public object `Run`: several transactions that are published as one commit."""

import warnings
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from anabranch.errors import AnabranchError, RunEndedError
from anabranch.ids import BranchName, checked_text
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import CheckOutcome, CommitKind, CommitRecord, GraphCommit, RunPhase, TableMap
from anabranch.repo.log.leases import Lease
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.log.validation import checked_metadata
from anabranch.repo.merge.run_publish import LoadCombiner, publish_run
from anabranch.repo.runs.runs import RunInfo, abort_run, describe_run, get_run, refuse_over
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.publish import Published
from anabranch.repo.write.publish_checks import (
    Checks,
    NamedCheck,
    Parameters,
    Query,
    callable_checks,
    checked_checks,
    outcomes_of,
    run_checks,
)

if TYPE_CHECKING:
    import pyarrow as pa


# It is stored in an entry of the log, and the text of an exception may be of any length.
_LONGEST_ERROR = 2000
# Reports of pipelines about each table are longer than what a user writes by hand.
_LONGEST_REPORT = 1_000_000


class Run:
    """Any number of transactions that are published as one commit of a branch, or not at all.

    Use it as a context manager: leaving it runs its checks and publishes, and an exception discards everything. Until
    then its changes are visible only through the run, also to other processes that get it by its id.

    A run that was begun without `with` and is dropped before it ended warns with a ResourceWarning. Its lease is not
    renewed any more, so that it expires; `run_get` can still publish or abort it until garbage collection removes it.

    An expired run, whose process did not renew its lease, does not block the deletion of its target. As long as the
    target exists, the run can continue and be published like any other.
    """

    def __init__(  # noqa: PLR0913 - made by the repository alone
        self,
        repo_store: RepoStore,
        run_id: str,
        *,
        lease: Lease,
        query: Query,
        on_published: Callable[[Published], None],
        load_combiner: LoadCombiner,
        checks: tuple[NamedCheck, ...],
        warns_if_dropped: bool,
    ) -> None:
        self._repo_store = repo_store
        self._lease = lease
        self._query = query
        self._on_published = on_published
        self._load_combiner = load_combiner
        self._checks = checks  # those that the run began with
        # The checks of the last `publish`: they hold until the run ends, so that leaving the block runs them again.
        self._added_checks: tuple[NamedCheck, ...] = ()
        # The results of the last attempt to publish.
        self._ran: list[CheckOutcome] = []
        self._warning = weakref.finalize(self, _warn_dropped, run_id) if warns_if_dropped else None
        self.id = run_id

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)
            return
        try:
            # It was published or aborted inside the block, perhaps by another process.
            if get_run(self._repo_store, self.id).state.is_deleted:
                self._end()
            else:
                self.publish()
        except BaseException as err:
            self._fail(err)
            raise

    @property
    def branch(self) -> str:
        """The hidden branch that it works on."""
        return str(BranchName.of_run(self.id))

    def info(self) -> RunInfo:
        """Return the current state of the run.

        >>> with repo.begin_run(message="Nightly") as run:
        ...     run.info().message
        'Nightly'
        """
        return describe_run(self._repo_store, get_run(self._repo_store, self.id))

    def snapshot(self) -> Snapshot:
        """Return the tables as the run has them now.

        >>> with repo.begin_run() as run:
        ...     list(run.snapshot())
        ['shop.orders']
        """
        entry = get_run(self._repo_store, self.id)
        refuse_over(entry)
        return Snapshot.of(self._repo_store, entry.head, version=entry.number)

    def sql(self, sql: str, *, params: Parameters | None = None) -> "pa.Table":
        """Answer one read-only statement over the tables as the run has them now.

        >>> with repo.begin_run() as run:
        ...     run.sql("SELECT count(*) AS n FROM shop.orders").to_pylist()
        [{'n': 3}]
        """
        return self._query(sql, self.snapshot(), params).read_all()

    def transaction(self, *, message: str = "", metadata: Mapping[str, str] | None = None) -> Transaction:
        """Begin a step of the run. What it publishes is visible only through the run.

        >>> with repo.begin_run() as run:
        ...     with run.transaction(message="Clean") as tx:
        ...         _ = tx.delete("shop.orders", "id = 2")
        ...     len(repo["shop.orders"])  # not published yet
        3
        >>> len(repo["shop.orders"])
        2
        """
        refuse_over(get_run(self._repo_store, self.id))
        self._lease.renew()
        spec = CommitSpec(message=checked_text(message), kind=CommitKind.CHANGE, metadata=checked_metadata(metadata))
        return Transaction(self._repo_store, branch=BranchName.of_run(self.id), spec=spec, on_published=self._on_step)

    def _on_step(self, _published: Published) -> None:
        """Do nothing: a step is not visible. It makes the transaction refer to its run, which keeps the lease."""

    def publish(self, *, checks: Checks | None = None, metadata: Mapping[str, str] | None = None) -> GraphCommit | None:
        """Publish all steps as one commit of the target, and end the run. Return None if there is nothing to publish.

        The commit has the metadata that the run began with, and these.

        The checks read the target as it will be after the commit: first those that the run began with, then these.
        Where the target has changed in the same tables, their rows are merged. If a check fails or there are conflicts,
        nothing is published and the run stays open. The checks of this call belong to the run from then on: leaving the
        block and calling `publish` without `checks` run them again, and `publish` with other checks replaces them.

        >>> with repo.begin_run(message="Nightly") as run:
        ...     with run.transaction() as tx:
        ...         _ = tx.delete("shop.orders", "id = 2")
        ...     run.publish(checks=["FROM shop.orders WHERE amount <= 0"]).message
        'Nightly'
        """
        if checks is not None:
            self._added_checks = checked_checks(checks)
        more = checked_metadata(metadata, longest=_LONGEST_REPORT)
        named = (*callable_checks(self._checks), *self._added_checks)

        def inspect(record: CommitRecord, tables: TableMap) -> None:
            snapshot = Snapshot(self._repo_store, record, tables, version=record.commit.manifest_version)
            self._ran.clear()  # of an attempt on an earlier head of the target
            run_checks(named, snapshot, self._query, record=self._ran.append)

        self._lease.renew()
        try:
            commit, published = publish_run(
                self._repo_store,
                self.id,
                inspect=inspect if named else None,
                metadata=more,
                load_combiner=self._load_combiner,
                outcomes=self._outcomes,
            )
        # Another process has ended the run, so that its lease must not be renewed any more.
        except RunEndedError:
            self._end()
            raise
        self._end()
        if published is not None:
            self._on_published(published)
        return commit

    def abort(self) -> None:
        """Discard all steps and end the run.

        >>> run = repo.begin_run()
        >>> run.abort()
        >>> run.info().state.value
        'aborted'
        """
        abort_run(self._repo_store, self.id)
        self._end()

    def _outcomes(self) -> tuple[CheckOutcome, ...]:
        return outcomes_of((*self._checks, *self._added_checks), self._ran)

    def _end(self) -> None:
        if self._warning is not None:
            self._warning.detach()
        self._lease.release()

    def _fail(self, error: BaseException) -> None:
        """Discard the run because of an error. A second error, while discarding, must not hide the first."""
        try:
            text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            abort_run(self._repo_store, self.id, phase=RunPhase.FAILED, error=text, outcomes=self._outcomes())
        except AnabranchError:
            return  # it expires
        finally:
            self._end()


def _warn_dropped(run_id: str) -> None:
    warnings.warn(
        f"run {run_id} was dropped before it ended: its lease is not renewed any more, and it expires. Use it in a "
        "'with' block, call publish() or abort(), or get it again with run_get()",
        ResourceWarning,
        stacklevel=2,
    )
