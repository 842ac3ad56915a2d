"""Turn a change of tables into the next commit of a branch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import BranchNotFoundError, BusyError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.commits import is_due_for_full_map, next_page
from anabranch.repo.context import Context
from anabranch.repo.models import BranchEvent, CommitKind, CommitRecord, GraphCommit, LogEntry, TableEntry
from anabranch.repo.records import Records

__all__ = ["Changes", "Description", "publish"]

Changes = Mapping[TableKey, TableEntry | None]
# Given the head that won, make the same change on top of it, or raise.
Rebase = Callable[[LogEntry], Changes]

_MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a commit says about itself."""

    message: str
    kind: CommitKind
    metadata: Mapping[str, str]
    merged_parent: str | None = None


def publish(records: Records, *, expected: LogEntry, changes: Changes, about: Description, rebase: Rebase) -> LogEntry:
    """Commit the changes on top of the expected head; where somebody was faster, on top of theirs."""
    head, began = expected, records.context.clock()
    for losses in range(1, _MAX_ATTEMPTS + 1):
        record, full_map = _make_record(records, head, changes, about)
        records.commits.put(record, full_map)
        entry = _next_entry(records.context, head, record)
        if records.heads.append(entry):
            return entry
        records.context.give_way(losses, records.context.clock() - began)
        began = records.context.clock()
        head = records.heads.get(head.branch)
        if head.state.created_as != expected.state.created_as:
            raise BranchNotFoundError(
                f"branch '{head.branch}' was deleted and made again meanwhile", hint="begin on the new branch"
            )
        changes = rebase(head)
    raise BusyError(f"branch '{expected.branch}' moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def _next_entry(context: Context, head: LogEntry, record: CommitRecord) -> LogEntry:
    return replace(
        head,
        number=head.number + 1,
        event=BranchEvent.COMMITTED,
        at=record.commit.created_at,
        actor=context.actor,
        head=record,
    )


def _make_record(
    records: Records, head: LogEntry, changes: Changes, about: Description
) -> tuple[CommitRecord, Mapping[TableKey, TableEntry] | None]:
    context, parent = records.context, head.head
    commit = GraphCommit(
        graph_commit_id=context.new_id(),
        manifest_branch=None if str(head.branch) == MAIN else str(head.branch),
        manifest_version=head.number + 1,
        parent_commit_id=parent.commit.graph_commit_id,
        merged_parent_commit_id=about.merged_parent,
        actor_id=context.actor,
        created_at=max(context.clock(), parent.commit.created_at),
        message=about.message,
        kind=about.kind,
        metadata=dict(about.metadata),
        tables=tuple(sorted(str(key) for key in changes)),
        generation=parent.commit.generation + 1,
    )
    recent, older = next_page(parent)
    since_base = {**parent.changes, **changes}
    record = CommitRecord(commit=commit, base=parent.base, changes=since_base, recent=recent, older=older)
    full_map = records.commits.tables_of(record)
    if not is_due_for_full_map(new=len(changes), since_base=len(since_base), tables=len(full_map)):
        return record, None
    return replace(record, base=commit.graph_commit_id, changes={}), full_map
