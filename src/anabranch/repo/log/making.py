"""Make the commit that follows a head: what it says about itself, and the record that is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.ids import MAIN, TableKey
from anabranch.repo.log.commits import is_due_for_full_map, next_page
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    Changes,
    CommitKind,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableMap,
)
from anabranch.repo.log.store import RepoStore

__all__ = ["CommitSpec", "Guard", "Inspect", "make_record", "record_view"]

# Read a commit before it is published, and raise to refuse it.
Inspect = Callable[[CommitRecord, TableMap], None]
# The same with the checks of a protected branch.
Guard = Callable[[tuple[tuple[str, str], ...], CommitRecord, TableMap], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSpec:
    """What a commit will say, and the checks to run before it is published.

    On a live branch, `released` tables follow main again, and a commit that `freezes` makes the branch pinned. A pull
    gives the commit that its tables are `taken_from`; a merge of a live branch gives the commit of main under it. Only
    a commit with a `guard` may go to a protected branch. Nothing of the commit was staged before `staged_since`, in
    microseconds, if the caller knows that.
    """

    message: str
    kind: CommitKind
    metadata: Mapping[str, str]
    merged_parent: GraphCommit | None = None
    taken_from: GraphCommit | None = None
    released: frozenset[TableKey] = frozenset()
    freezes: bool = False
    inspect: Inspect | None = None
    guard: Guard | None = None
    staged_since: int = 0

    @property
    def event(self) -> BranchEvent:
        if self.freezes:
            return BranchEvent.FROZEN
        return BranchEvent.PULLED if self.kind is CommitKind.PULL else BranchEvent.COMMITTED


def make_record(
    records: RepoStore, head: LogEntry, changes: Changes, spec: CommitSpec, main: CommitRecord | None
) -> tuple[CommitRecord, TableMap | None]:
    """Return the commit after a head, and its table map if it stores the full one.

    `main` is the state of main under a live branch, also of one that this commit freezes.
    """
    context, parent = records.context, head.head
    seen = None if main is None or parent.saw is None else main.commit
    made_from = [made for made in (parent.commit, spec.merged_parent, spec.taken_from, seen) if made is not None]
    commit = GraphCommit(
        graph_commit_id=context.new_id(),
        manifest_branch=None if str(head.branch) == MAIN else str(head.branch),
        manifest_version=head.number + 1,
        parent_commit_id=parent.commit.graph_commit_id,
        merged_parent_commit_id=_id_of(spec.merged_parent),
        actor_id=context.actor,
        created_at=max(context.clock(), head.at, *(made.created_at for made in made_from)),
        message=spec.message,
        kind=spec.kind,
        metadata=dict(spec.metadata),
        tables=tuple(sorted(str(key) for key in {*changes, *spec.released})),
        generation=1 + max(made.generation for made in made_from),
    )
    recent, older = next_page(parent)
    is_live = head.state.mode is BranchMode.LIVE
    record = CommitRecord(
        commit=commit,
        base=parent.base,
        changes={**parent.changes, **changes},
        recent=recent,
        older=older,
        saw=parent.saw if is_live else None,
        made_on=_id_of(seen),
        taken_from=_id_of(spec.taken_from),
    )
    if is_live:
        return record, None  # it builds on main's base, and main renews that
    full_map = records.commits.tables_of(record)
    if not is_due_for_full_map(new=len(changes), since_base=len(record.changes), tables=len(full_map)):
        return record, None
    return replace(record, base=commit.graph_commit_id, changes={}), full_map


def _id_of(commit: GraphCommit | None) -> str | None:
    return None if commit is None else commit.graph_commit_id


def record_view(records: RepoStore, entry: LogEntry, *, message: str) -> LogEntry:
    """Store what a live branch shows as a commit of its own, and return the planned entry with that commit as head."""
    before = replace(entry, number=entry.number - 1)
    main = None if entry.head.saw is None else records.commits.get(entry.head.saw)
    spec = CommitSpec(message=message, kind=CommitKind.FREEZE, metadata={})
    record, full_map = make_record(records, before, {}, spec, main)
    records.commits.put(record, full_map)
    return replace(entry, at=record.commit.created_at, head=record)
