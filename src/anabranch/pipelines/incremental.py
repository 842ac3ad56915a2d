"""What is new in the inputs of an output since it was last built, by the records in the commits of a branch."""

import heapq
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.comparing import default_comparer
from anabranch.errors import CommitNotFoundError
from anabranch.repo.history.diff import RowChangeKind, diff_snapshots
from anabranch.repo.history.lineage.provenance import PipelineRecord
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.runs.runs import RUN_ID
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository

__all__ = ["find_last_builds", "input_snapshot", "iter_ancestors", "iter_new_rows", "seen_input"]


def find_last_builds(
    repo: "Repository", snapshot: Snapshot, *, pipeline: str, outputs: Collection[str]
) -> dict[str, GraphCommit]:
    """For each output the newest commit that led to a state and in which the pipeline built it, if there is one."""
    found: dict[str, GraphCommit] = {}
    # An output whose table is gone is rebuilt. Commits of pipelines that were merged in count, too.
    missing = {key for key in outputs if key in snapshot}
    for commit in iter_ancestors(repo, snapshot) if missing else ():
        record = PipelineRecord.find(commit.metadata)
        if record is not None and record.name == pipeline:
            built = missing & set(record.outputs)
            found.update(dict.fromkeys(built, commit))
            missing -= built
            if not missing:
                break
    return found


def iter_ancestors(repo: "Repository", snapshot: Snapshot) -> Iterator[GraphCommit]:
    """Yield all commits that led to a state, newest first, including those of merged branches."""
    lines = {0: snapshot.iter_commits()}
    first = next(lines[0])
    seen, queue = set[str](), [(-first.created_at, 0, first)]
    while queue:
        _, line, commit = heapq.heappop(queue)
        if commit.graph_commit_id in seen:
            continue  # both lines of history continue as one
        seen.add(commit.graph_commit_id)
        yield commit
        nexts = [(line, lines[line])]
        if commit.merged_parent_commit_id is not None:
            new = len(lines)
            lines[new] = repo.snapshot_of(commit.merged_parent_commit_id).iter_commits()
            nexts.append((new, lines[new]))
        for number, commits in nexts:
            following = next(commits, None)
            if following is not None:
                heapq.heappush(queue, (-following.created_at, number, following))


def seen_input(repo: "Repository", commit: GraphCommit, key: str) -> Snapshot:
    """The state of a table that the steps of a pipeline saw which was published as a commit."""
    record = PipelineRecord.find(commit.metadata)
    if record is not None and key in record.outputs:
        return repo.snapshot_of(commit.graph_commit_id)
    return input_snapshot(repo, commit)


def input_snapshot(repo: "Repository", commit: GraphCommit) -> Snapshot:
    """The state that a pipeline began with, which was published as a commit."""
    record = PipelineRecord.find(commit.metadata)
    if record is None or record.input is None:
        raise CommitNotFoundError(
            f"commit {commit.graph_commit_id} does not record what its pipeline read", hint="name another commit"
        )
    try:
        return repo.snapshot_of(record.input)
    except CommitNotFoundError:
        # What a live branch showed at that moment is a commit that the run alone knows of.
        return EngineAccess(repo).snapshot_at_begin(commit.metadata.get(RUN_ID, ""))


def iter_new_rows(key: str, *, before: Snapshot, after: Snapshot) -> Iterator[pa.RecordBatch]:
    """The rows of a table that came or changed between two states, as they are now."""
    found = diff_snapshots(before, after, keys=[key], load_comparer=default_comparer)
    for table in found.tables:
        if table.key != key:
            continue
        for batch in table.iter_batches():
            is_there = pc.not_equal(batch.column("change"), RowChangeKind.DELETED.value)
            rows = batch.filter(is_there).column("after")
            yield pa.RecordBatch.from_arrays(rows.flatten(), names=rows.type.names)
