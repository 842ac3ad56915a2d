"""What Spark, DuckDB, pipelines and the service need of a repository and its users do not."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from anabranch.ids import BranchName
from anabranch.repo.log.arguments import checked_metadata, checked_text
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitKind, GraphCommit
from anabranch.repo.log.making import CommitSpec
from anabranch.repo.log.once import Once
from anabranch.repo.log.store import RepoStore
from anabranch.repo.runs.runs import get_run, run_state
from anabranch.repo.runs.streams import StreamBatch, publish_batch
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.publish import Published

__all__ = ["EngineAccess"]


class _Repository(Protocol):
    """The part of a repository that is needed here. It is private to the package."""

    _config: RepoConfig
    _repo_store: RepoStore

    def _begin(self, branch: BranchName, spec: CommitSpec) -> Transaction: ...

    def _named(self, branch: str | None) -> BranchName: ...

    def _on_published(self, published: Published) -> None: ...

    def _published_snapshot(self, ref: str) -> Snapshot: ...


class EngineAccess:
    """The operations of a repository for engines that read and write its tables themselves."""

    def __init__(self, repository: _Repository) -> None:
        self._repository = repository

    def published_snapshot_of(self, ref: str) -> Snapshot:
        """Return the state of a ref like `Repository.snapshot_of`, but refuse a commit that was never published.

        The object of a commit whose writer died before publishing still exists. The check takes one more request.
        """
        return self._repository._published_snapshot(ref)

    def snapshot_at_begin(self, run_id: str) -> Snapshot:
        """Return the tables as they were when a run began, also after it has ended."""
        repo_store = self._repository._repo_store
        record = repo_store.commits.get(run_state(get_run(repo_store, run_id)).origin)
        return Snapshot.of(repo_store, record, version=record.commit.manifest_version)

    def transaction_once(
        self,
        once: Once | None,
        *,
        branch: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        kind: CommitKind = CommitKind.CHANGE,
    ) -> Transaction:
        """Begin a transaction that is published only if the branch does not have its commit yet.

        If the branch has it, `published` of the transaction is the earlier commit. Without `once` it is an ordinary
        transaction.
        """
        spec = CommitSpec(message=checked_text(message), kind=kind, metadata=checked_metadata(metadata), once=once)
        return self._repository._begin(self._repository._named(branch), spec)

    @contextmanager
    def keep_files(self, *, since: float | None = None) -> Iterator[None]:
        """Keep garbage collection from files that are written here and published later, maybe by another process.

        `since` is when the first of them was written, in seconds of the wall clock.
        """
        with self._repository._config.leases.working(since=since):
            yield

    def publish_batch(
        self,
        batch: StreamBatch,
        change: Callable[[Transaction], None],
        *,
        branch: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Publish a batch of a stream once, as one commit. Return None if it was published or changes nothing."""
        spec = CommitSpec(message=checked_text(message), kind=CommitKind.LOAD, metadata=checked_metadata(metadata))
        repository = self._repository
        target = repository._named(branch)
        return publish_batch(
            repository._repo_store, target, batch, change, spec=spec, on_published=repository._on_published
        )
