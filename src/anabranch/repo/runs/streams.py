"""Batches of streams: each becomes exactly one commit of a branch, also if several processes try it repeatedly.

The commits are the only record of what was published: each names its query and epoch in its metadata.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec, Once
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.publish import Published

__all__ = ["EPOCH", "QUERY", "StreamBatch", "publish_batch"]

# The keys by which a commit's metadata name the batch that it came from.
QUERY = "stream.query"
EPOCH = "stream.epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """One batch of a streaming query for a table. Its epoch is higher than that of the batch before."""

    query: str
    epoch: int
    table: TableKey

    def is_in(self, commit: GraphCommit) -> bool:
        """Return whether a commit is a batch of the same query for the same table."""
        return commit.metadata.get(QUERY) == self.query and str(self.table) in commit.tables


def publish_batch(
    repo_store: RepoStore,
    branch: BranchName,
    batch: StreamBatch,
    change: Callable[[Transaction], None],
    *,
    spec: CommitSpec,
    on_published: Callable[[Published], None],
) -> GraphCommit | None:
    """Publish what `change` does; None if the branch has the batch already, or if it changes nothing.

    A branch has a batch if one of the commits that led to its head is of this epoch of the query, or of a later one.
    They are searched back to the last batch of the query; for its first batch, if the table is older, all of them.
    """
    head = repo_store.heads.get(branch)
    once = Once(key=EPOCH, value=str(batch.epoch), is_ordered=True, is_relevant=batch.is_in)
    # A batch that creates its table cannot be published yet. So the first batch of a query does not search all of the
    # history for an epoch.
    has_table = View.now(repo_store, head).find_table(repo_store.commits, batch.table) is not None
    if has_table and repo_store.find_once(once, head) is not None:
        return None
    # Publishing searches again, but only the commits that another process put after these.
    once = replace(once, until=head.head.commit.graph_commit_id)
    spec = replace(spec, metadata={**spec.metadata, QUERY: batch.query}, once=once)
    made: list[Published] = []
    with Transaction(repo_store, branch=branch, spec=spec, on_published=made.append) as tx:
        change(tx)
    if not made:
        return None  # nothing was changed, or another process published the batch first
    on_published(made[0])
    return made[0].commit
