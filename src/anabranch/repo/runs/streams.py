"""Batches of streams: each becomes exactly one commit of a branch, also if several processes try it repeatedly.

The commits are the only record of what was published: each names its query and epoch in its metadata.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import CommitRecord, GraphCommit, TableMap
from anabranch.repo.log.making import CommitSpec
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
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


class _AlreadyPublishedError(Exception):
    """Another process has published the same batch."""


def publish_batch(
    records: RepoStore,
    branch: BranchName,
    batch: StreamBatch,
    change: Callable[[Transaction], None],
    *,
    spec: CommitSpec,
    on_published: Callable[[Published], None],
) -> GraphCommit | None:
    """Publish what `change` does; None if the branch has the batch already, or if it changes nothing.

    A branch has a batch if one of the commits that led to its head is of this epoch of the query, or of a later one.
    They are looked through back to the query's last one; for its first batch, if the table is older, all of them.
    """
    head = View.now(records, records.heads.get(branch)).record
    if records.commits.find_table(head, batch.table) is not None and _is_in(
        records.commits.iter_history(head), batch, until=None
    ):
        return None

    def inspect(record: CommitRecord, _tables: TableMap) -> None:
        before = islice(records.commits.iter_history(record), 1, None)
        if _is_in(before, batch, until=head.commit.graph_commit_id):
            raise _AlreadyPublishedError

    named = {**spec.metadata, QUERY: batch.query, EPOCH: str(batch.epoch)}
    spec = replace(spec, metadata=named, inspect=inspect)
    tx = Transaction(records, branch=branch, spec=spec, on_published=on_published)
    try:
        with tx:
            change(tx)
    except _AlreadyPublishedError:
        return None
    return tx.published


def _is_in(commits: Iterable[GraphCommit], batch: StreamBatch, *, until: str | None) -> bool:
    """Whether a batch is among commits, newest first; those from a given one on are known not to have it."""
    for commit in commits:
        if commit.graph_commit_id == until:
            return False
        if commit.metadata.get(QUERY) == batch.query and str(batch.table) in commit.tables:
            return int(commit.metadata.get(EPOCH, -1)) >= batch.epoch
    return False
