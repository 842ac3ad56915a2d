"""Trace a table back through the commits that made it, and through the inputs of these commits."""

from collections import deque
from dataclasses import replace

from anabranch.errors import CommitNotFoundError, InvalidNameError
from anabranch.ids import CommitId, TableKey
from anabranch.repo.history.lineage import (
    EdgeKind,
    Lineage,
    LineageEdge,
    LineageNode,
    NodeKind,
    OutputRecord,
    PipelineRecord,
    made_by,
)
from anabranch.repo.history.table_history import TableChange, find_renames, iter_table_changes, require_table
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, StateId, TableEntry, is_same_state
from anabranch.repo.log.repo_store import RepoStore

# Commits that rewrite or index data without changing it.
_MAINTENANCE = frozenset({CommitKind.COMPACT, CommitKind.INDEX, CommitKind.FREEZE})
_REBUILD = "rebuild"


# One state of a table under a name.
_State = tuple[TableKey, StateId]
# A table at a commit to trace back from, and its state there; None to trace it even if its state was visited.
_Start = tuple[TableKey, CommitRecord, _State | None]


def trace_lineage(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Lineage:
    """Return the lineage of a table: the commits that changed it, and the inputs that pipelines recorded.

    A state is traced once, so that the cost is bounded by the number of commits of the tables concerned. Raise
    TableNotFoundError if the commit does not have the table.
    """
    require_table(repo_store, record, key)
    tracer = _Tracer(repo_store)
    tracer.visit(key, record)
    tracer.trace_all()
    return Lineage(
        table=str(key),
        commit_id=record.commit.graph_commit_id,
        nodes=tuple(tracer.nodes.values()),
        edges=tuple(tracer.edges),
    )


class _Tracer:
    """Collects nodes and edges. It uses a queue instead of recursion, because chains of pipelines have any length."""

    def __init__(self, repo_store: RepoStore) -> None:
        self._repo_store = repo_store
        self._pending: deque[_Start] = deque()
        self._seen_states: set[_State] = set()
        self._seen_changes: set[tuple[TableKey, str]] = set()
        # Many tables may come from one commit.
        self._records: dict[str, CommitRecord] = {}
        self._renames: dict[str, dict[TableKey, TableKey]] = {}
        self.nodes: dict[str, LineageNode] = {}
        # Edges in the order in which they were found.
        self.edges: dict[LineageEdge, None] = {}

    def visit(self, key: TableKey, record: CommitRecord) -> str:
        """Return the node of a table that was read at a commit, and queue the table for tracing."""
        entry, commit = self._repo_store.commits.find_table(record, key), record.commit
        if entry is not None:
            self._pending.append((key, record, (key, entry.state)))
        seen = LineageNode(
            id=_table_id(key),
            kind=NodeKind.TABLE,
            name=str(key),
            table=str(key),
            commit_id=commit.graph_commit_id,
            created_at=commit.created_at,
            rows=None if entry is None else entry.rows,
        )
        known = self.nodes.setdefault(seen.id, seen)
        if (known.rows is not None, known.created_at) < (seen.rows is not None, seen.created_at):
            self.nodes[seen.id] = seen
        return seen.id

    def trace_all(self) -> None:
        """Trace all queued tables, and those found on the way."""
        while self._pending:
            key, record, state = self._pending.popleft()
            # Skip states that another trace passed: starting a trace reads many commits at once.
            if state in self._seen_states:
                continue
            for change in iter_table_changes(self._repo_store, record, key):
                if change.after is not None:
                    self._seen_states.add((key, change.after.state))
                visited = key, change.commit.graph_commit_id
                # Another trace has followed the rest of this history: several tables may be made from this one.
                if visited in self._seen_changes:
                    break
                self._seen_changes.add(visited)
                if self._is_origin(key, change):
                    break

    def _is_origin(self, key: TableKey, change: TableChange) -> bool:
        """Record one change of a table. Return True if no older change is part of the state after it."""
        commit = change.commit
        is_new = not change.keeps_dataset
        if commit.kind in _MAINTENANCE:
            return is_new
        if (source := self._find_source(key, change)) is not None:
            # Trace it in any case: it may have the same state, but it has another history.
            self._pending.append((key, source, None))
            return is_new or self._is_all_from(source, key, change)
        if is_new and (old_key := self._find_renames(commit).get(key)) is not None:
            parent = self._read(str(commit.parent_commit_id))
            self._join(self.visit(old_key, parent), _table_id(key), EdgeKind.RENAMED)
            return True
        record = PipelineRecord.find(commit.metadata)
        if record is None:
            kind = NodeKind.LOAD if commit.kind is CommitKind.LOAD else NodeKind.CHANGE
            self._count(kind, key, commit, name=made_by(commit))
            return is_new
        output = record.outputs.get(str(key), OutputRecord())
        self._add_step(key, commit, record, output)
        return is_new or output.write == _REBUILD

    # Commits that took a state from another commit

    def _find_source(self, key: TableKey, change: TableChange) -> CommitRecord | None:
        """Return the commit that a merge, pull, revert or cherry-pick took the table from, or None."""
        commit = change.commit
        match commit.kind:
            case CommitKind.MERGE | CommitKind.PULL:
                taken_from = self._read(commit.graph_commit_id).taken_from
                return self._find_first(key, commit.merged_parent_commit_id, taken_from)
            case CommitKind.CHERRY_PICK:
                return self._find_first(key, commit.metadata.get("commit"))
            case CommitKind.REVERT:
                reverted = self._find_commit(commit.metadata.get("commit"))
                found = None if reverted is None else self._find_first(key, reverted.commit.parent_commit_id)
                # If the table was changed after the reverted commit, it does not equal its old state.
                return found if found is not None and self._is_at(found, key, change.after) else None
            case _:
                return None

    def _find_first(self, key: TableKey, *commit_ids: str | None) -> CommitRecord | None:
        """Return the first of these commits that exists and has the table, or None."""
        found = (record for record in map(self._find_commit, commit_ids) if record is not None)
        return next((record for record in found if self._repo_store.commits.find_table(record, key) is not None), None)

    def _is_all_from(self, source: CommitRecord, key: TableKey, change: TableChange) -> bool:
        """Return whether the whole state came from the source.

        That is the case if the table was taken unchanged, or if its state before is part of the history of the source.
        """
        if self._is_at(source, key, change.after):
            return True
        changes = iter_table_changes(self._repo_store, source, key)
        return any(is_same_state(change.before, entry) for one in changes for entry in (one.after, one.before))

    def _is_at(self, record: CommitRecord, key: TableKey, entry: TableEntry | None) -> bool:
        return is_same_state(self._repo_store.commits.find_table(record, key), entry)

    def _find_renames(self, commit: GraphCommit) -> dict[TableKey, TableKey]:
        """Return the tables that a commit renamed, as {new key: old key}. One commit may create many tables."""
        if commit.graph_commit_id not in self._renames:
            try:
                self._renames[commit.graph_commit_id] = find_renames(self._repo_store, commit)
            except CommitNotFoundError:
                self._renames[commit.graph_commit_id] = {}
        return self._renames[commit.graph_commit_id]

    def _find_commit(self, commit_id: str | None) -> CommitRecord | None:
        try:
            return None if commit_id is None else self._read(CommitId.parse(commit_id).value)
        except (CommitNotFoundError, InvalidNameError):
            return None

    def _read(self, commit_id: str) -> CommitRecord:
        if commit_id not in self._records:
            self._records[commit_id] = self._repo_store.commits.get(commit_id)
        return self._records[commit_id]

    # Nodes and edges

    def _add_step(self, key: TableKey, commit: GraphCommit, record: PipelineRecord, output: OutputRecord) -> None:
        step = self._count(NodeKind.PIPELINE, key, commit, name=record.name, write=output.write)
        made = self._read(commit.graph_commit_id)
        read = self._find_commit(record.input)
        for name in output.inputs:
            other = TableKey.parse(name)
            is_own_output = name in record.outputs and other != key
            at = made if is_own_output or read is None else read
            if self._repo_store.commits.find_table(at, other) is None:
                # On a live branch, the tables of main are in the view of the commit that the pipeline made.
                at = made
            self._join(self.visit(other, at), step, EdgeKind.READ)

    def _count(self, kind: NodeKind, key: TableKey, commit: GraphCommit, *, name: str, write: str | None = None) -> str:
        """Add a commit to the node of its pipeline or kind, and return the id of the node."""
        node_id = f"{kind}:{key}:{name}"
        known = self.nodes.get(node_id)
        newest = LineageNode(
            id=node_id,
            kind=kind,
            name=name,
            table=str(key),
            commit_id=commit.graph_commit_id,
            created_at=commit.created_at,
            message=commit.message.strip().partition("\n")[0],
            write=write,
        )
        if known is not None and known.created_at >= commit.created_at:
            newest = known
        self.nodes[node_id] = replace(newest, commits=1 if known is None else known.commits + 1)
        self._join(node_id, _table_id(key), EdgeKind.MADE)
        return node_id

    def _join(self, source: str, target: str, kind: EdgeKind) -> None:
        self.edges[LineageEdge(source=source, target=target, kind=kind)] = None


def _table_id(key: TableKey) -> str:
    return f"{NodeKind.TABLE}:{key}"
