"""Follow a table back through the commits that made it, and through what those were made from."""

from collections import deque
from dataclasses import dataclass, replace

from anabranch.errors import CommitNotFoundError, InvalidNameError, TableNotFoundError
from anabranch.ids import CommitId, TableKey
from anabranch.repo.history.lineage.graph import Lineage
from anabranch.repo.history.lineage.nodes import EdgeKind, LineageEdge, LineageNode, NodeKind
from anabranch.repo.history.lineage.provenance import OutputRecord, PipelineRecord, made_by
from anabranch.repo.history.table_line import TableChange, iter_table_changes
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["trace_lineage"]

# They move data or make it faster to find, and leave it what it was.
_UPKEEP = frozenset({CommitKind.COMPACT, CommitKind.INDEX, CommitKind.FREEZE})
_REBUILD = "rebuild"


# One state of a table: its name, dataset, home and version.
State = tuple[TableKey, str, str | None, int]


@dataclass(frozen=True, slots=True)
class _Lead:
    """A table at a commit, from where to go back; and its state there, unless it is to be followed in any case."""

    key: TableKey
    record: CommitRecord
    state: State | None


def trace_lineage(records: RepoStore, record: CommitRecord, key: TableKey) -> Lineage:
    """All that a table came from, by the commits that touched it and by the inputs that pipelines recorded.

    A state that was seen once is not followed again, so that it costs no more than the commits of the tables concerned.
    """
    if records.commits.find_table(record, key) is None:
        raise TableNotFoundError(
            f"there is no table '{key}' in the commit {record.commit.graph_commit_id}",
            hint="list its tables to see which exist",
        )
    tracer = _Tracer(records)
    tracer.see(key, record)
    tracer.follow_all()
    return Lineage(
        table=str(key),
        commit_id=record.commit.graph_commit_id,
        nodes=tuple(tracer.nodes.values()),
        edges=tuple(tracer.edges),
    )


class _Tracer:
    """Collects nodes and edges, following one lead after the other: chains of pipelines have any length."""

    def __init__(self, records: RepoStore) -> None:
        self._records = records
        self._leads: deque[_Lead] = deque()
        self._seen_states: set[State] = set()
        self._seen_changes: set[tuple[TableKey, str]] = set()
        self.nodes: dict[str, LineageNode] = {}
        # Edges in the order in which they were found.
        self.edges: dict[LineageEdge, None] = {}

    def see(self, key: TableKey, record: CommitRecord) -> str:
        """The node of a table that was read at a commit; where it came from is followed later."""
        entry = self._records.commits.find_table(record, key)
        if entry is not None:
            self._leads.append(_Lead(key, record, _state(key, entry)))
        return self._table_node(key, record.commit, entry)

    def follow_all(self) -> None:
        while self._leads:
            lead = self._leads.popleft()
            # What one line has passed needs no line of its own: to begin one reads many commits at once.
            if lead.state not in self._seen_states:
                self._follow(lead)

    def _follow(self, lead: _Lead) -> None:
        for change in iter_table_changes(self._records, lead.record, lead.key):
            if change.after is not None:
                self._seen_states.add(_state(lead.key, change.after))
            told = lead.key, change.commit.graph_commit_id
            if told in self._seen_changes:
                break
            self._seen_changes.add(told)
            if self._is_origin(lead.key, change):
                break

    def _is_origin(self, key: TableKey, change: TableChange) -> bool:
        """Tell of one change of a table; whether nothing before it is left in what it made."""
        commit = change.commit
        is_new = change.before is None or change.after is None or change.before.dataset != change.after.dataset
        if commit.kind in _UPKEEP:
            return is_new
        if (source := self._find_elsewhere(key, change)) is not None:
            # Its state may be the one that led here, but its line is another.
            self._leads.append(_Lead(key, source, None))
            return is_new or self._is_all_from(source, key, change)
        if is_new and (renamed := self._find_old_name(key, change)) is not None:
            self._join(self.see(*renamed), _table_id(key), EdgeKind.RENAMED)
            return True
        record = PipelineRecord.find(commit.metadata)
        if record is None:
            self._add_commit(key, commit)
            return is_new
        output = record.outputs.get(str(key), OutputRecord())
        self._add_step(key, commit, record, output)
        return is_new or output.write == _REBUILD

    # Commits that took a state from elsewhere

    def _find_elsewhere(self, key: TableKey, change: TableChange) -> CommitRecord | None:
        """The commit that a merge, a pull, a revert or a cherry-pick took the table from."""
        commit = change.commit
        match commit.kind:
            case CommitKind.MERGE | CommitKind.PULL:
                taken_from = self._records.commits.get(commit.graph_commit_id).taken_from
                return self._find_first(key, commit.merged_parent_commit_id, taken_from)
            case CommitKind.CHERRY_PICK:
                return self._find_first(key, commit.metadata.get("commit"))
            case CommitKind.REVERT:
                reverted = self._find_commit(commit.metadata.get("commit"))
                found = None if reverted is None else self._find_first(key, reverted.commit.parent_commit_id)
                # Where others changed the table since, it is not what it was before.
                return found if found is not None and self._is_at(found, key, change.after) else None
            case _:
                return None

    def _find_first(self, key: TableKey, *commit_ids: str | None) -> CommitRecord | None:
        """The first of some commits that is there and has a table."""
        found = (record for record in map(self._find_commit, commit_ids) if record is not None)
        return next((record for record in found if self._records.commits.find_table(record, key) is not None), None)

    def _is_all_from(self, source: CommitRecord, key: TableKey, change: TableChange) -> bool:
        """Whether a table was taken as it is, or was before it as the other side once had it."""
        if self._is_at(source, key, change.after):
            return True
        line = iter_table_changes(self._records, source, key)
        return any(_is_same(change.before, entry) for one in line for entry in (one.after, one.before))

    def _is_at(self, record: CommitRecord, key: TableKey, entry: TableEntry | None) -> bool:
        return _is_same(self._records.commits.find_table(record, key), entry)

    def _find_old_name(self, key: TableKey, change: TableChange) -> tuple[TableKey, CommitRecord] | None:
        """The name that a table had before a commit gave it this one, and the commit before."""
        parent = self._find_commit(change.commit.parent_commit_id)
        if change.after is None or parent is None:
            return None
        after = self._records.commits.get(change.commit.graph_commit_id)
        for other in (TableKey.parse(name) for name in change.commit.tables if name != str(key)):
            was, became = (self._records.commits.find_table(record, other) for record in (parent, after))
            is_free = became is None or became.dataset != change.after.dataset
            if was is not None and was.dataset == change.after.dataset and is_free:
                return other, parent
        return None

    def _find_commit(self, commit_id: str | None) -> CommitRecord | None:
        try:
            return None if commit_id is None else self._records.commits.get(CommitId.parse(commit_id).value)
        except (CommitNotFoundError, InvalidNameError):
            return None

    # Nodes and edges

    def _add_step(self, key: TableKey, commit: GraphCommit, record: PipelineRecord, output: OutputRecord) -> None:
        step = self._count(NodeKind.PIPELINE, key, commit, name=record.name, write=output.write)
        made = self._records.commits.get(commit.graph_commit_id)
        read = self._find_commit(record.input)
        for name in output.inputs:
            other = TableKey.parse(name)
            is_of_this_run = name in record.outputs and other != key
            at = made if is_of_this_run or read is None else read
            if self._records.commits.find_table(at, other) is None:
                # On a live branch main's tables are those under the commit that was made.
                at = made
            self._join(self.see(other, at), step, EdgeKind.READ)

    def _add_commit(self, key: TableKey, commit: GraphCommit) -> None:
        kind = NodeKind.LOAD if commit.kind is CommitKind.LOAD else NodeKind.CHANGE
        self._count(kind, key, commit, name=made_by(commit))

    def _count(self, kind: NodeKind, key: TableKey, commit: GraphCommit, *, name: str, write: str | None = None) -> str:
        """The node of what made a table, with one more commit in it."""
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

    def _table_node(self, key: TableKey, commit: GraphCommit, entry: TableEntry | None) -> str:
        node_id = _table_id(key)
        seen = LineageNode(
            id=node_id,
            kind=NodeKind.TABLE,
            name=str(key),
            table=str(key),
            commit_id=commit.graph_commit_id,
            created_at=commit.created_at,
            rows=None if entry is None else entry.rows,
        )
        known = self.nodes.setdefault(node_id, seen)
        if (known.rows is not None, known.created_at) < (seen.rows is not None, seen.created_at):
            self.nodes[node_id] = seen
        return node_id

    def _join(self, source: str, target: str, kind: EdgeKind) -> None:
        self.edges[LineageEdge(source=source, target=target, kind=kind)] = None


def _state(key: TableKey, entry: TableEntry) -> State:
    return key, entry.dataset, entry.home, entry.version


def _table_id(key: TableKey) -> str:
    return f"{NodeKind.TABLE}:{key}"


def _is_same(one: TableEntry | None, other: TableEntry | None) -> bool:
    """Whether both are one state; what was settled meanwhile is no change."""
    return one is not None and other is not None and replace(one, head=other.head) == other
