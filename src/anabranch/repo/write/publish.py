"""Turn a change of tables into the next commit of a branch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import BranchNotFoundError, BusyError, ClockSkewError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.clocks import check_clock
from anabranch.repo.log.collected import mark_collected, record_collected
from anabranch.repo.log.commits import commit_path, is_due_for_full_map, next_page
from anabranch.repo.log.config import Context
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    Changes,
    CommitKind,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableEntry,
    TableMap,
)
from anabranch.repo.log.store import Records
from anabranch.repo.refs.live import shown
from anabranch.repo.refs.protection import refuse_ended, refuse_protected
from anabranch.repo.write.settlement import Settlement, prepare_settlement
from anabranch.repo.write.staged_files import refuse_removed_files
from anabranch.storage import find_object
from anabranch.storage.uris import is_local, join_uri

__all__ = ["Changes", "Description", "Guard", "Inspect", "append_awake", "make_record", "publish", "record_view"]

# Given the head that won, make the same change on top of it, or raise.
Rebase = Callable[[LogEntry], Changes]
# Look at a commit before anybody else can, and raise if it is not to be.
Inspect = Callable[[CommitRecord, TableMap], None]
# The same by the checks that a protected branch asks for.
Guard = Callable[[tuple[tuple[str, str], ...], CommitRecord, TableMap], None]

_MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a commit says about itself, and who is to `inspect` it before it is published.

    On a live branch, `released` tables follow main again, and a commit that `freezes` makes the branch pinned. A pull
    gives the commit its tables are `taken_from`, and a merge of a live branch the commit of main that was under it.
    What has a `guard` goes into a protected branch, if that lets it.
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

    @property
    def event(self) -> BranchEvent:
        if self.freezes:
            return BranchEvent.FROZEN
        return BranchEvent.PULLED if self.kind is CommitKind.PULL else BranchEvent.COMMITTED


def publish(
    records: Records,
    *,
    expected: LogEntry,
    changes: Changes,
    about: Description,
    rebase: Rebase,
    main: CommitRecord | None = None,
) -> LogEntry:
    """Commit the changes on top of the expected head; where somebody was faster, on top of theirs.

    On a live branch `main` is the state of main that the change was made on, by default the newest.
    """
    with records.with_lease() as awake:
        return _publish(awake, expected, changes, about, rebase, main)


def _publish(
    records: Records,
    expected: LogEntry,
    changes: Changes,
    about: Description,
    rebase: Rebase,
    main: CommitRecord | None,
) -> LogEntry:
    head, began = expected, records.context.clock()
    if head.state.mode is BranchMode.LIVE and main is None:
        main = records.heads.get(BranchName(MAIN)).head
    if head.state.is_protected and about.guard is None:  # when the change was begun, and perhaps no longer
        head, changes = _catch_up(records, expected, rebase)
    for losses in range(1, _MAX_ATTEMPTS + 1):
        if about.guard is None:
            refuse_protected(head)
        refuse_ended(head)
        ground = _ground(head, about, main)
        record, full_map = make_record(records, ground, changes, about, main)
        _inspect(records, head, record, full_map, about)
        refuse_removed_files(records.context, head.home_branch, changes)
        records.commits.put(record, full_map, durable=False)
        entry = _next_entry(records.context, ground, record, changes, about)
        settlement = prepare_settlement(records, head, changes)
        if _append_or_discard(records, head, entry, record, settlement):
            settlement.link()
            return entry
        records.context.give_way(losses, records.context.clock() - began)
        began = records.context.clock()
        head, changes = _catch_up(records, expected, rebase)
    raise BusyError(f"branch '{expected.branch}' moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def append_awake(
    records: Records, before: LogEntry, entry: LogEntry, made: Sequence[CommitRecord], *, after: Sequence[str] = ()
) -> bool:
    """Put the next entry of a branch. Roll it back if the lease expired during the put: files may be collected.

    The entry stays once another commit builds on it, and the put is reported as done: a caller that tried again would
    make the change twice. On local disk the commits in `made` and the files in `after` become durable before the entry.
    """
    _check_clock(records, made)
    records.check_lease()
    if not records.heads.append(entry, after=[*_commit_files(records, made), *after]):
        return False
    try:
        records.check_lease()
    except BusyError:
        if not _take_back(records, before, entry):
            return True
        _let_go(records, made)
        raise
    return True


def _append_or_discard(
    records: Records, before: LogEntry, entry: LogEntry, record: CommitRecord, settlement: Settlement
) -> bool:
    try:
        done = append_awake(records, before, entry, [record], after=settlement.files)
    except BaseException:
        settlement.discard()
        raise
    if not done:
        settlement.discard()
    return done


def _check_clock(records: Records, made: Sequence[CommitRecord]) -> None:
    """Refuse to publish commits with wrong times; their objects, which no log names, are removed."""
    paths = [commit_path(record.commit.graph_commit_id) for record in made]
    if not paths:
        return  # a rebase whose changes are all there already
    try:
        check_clock(records.context, paths[-1])
    except ClockSkewError:
        for path in paths:
            records.context.store.delete(path)
        raise


def _commit_files(records: Records, made: Sequence[CommitRecord]) -> list[str]:
    """Return the files of commits, which were written without a sync; none on an object store."""
    root = records.context.root
    if not is_local(root):
        return []
    return [join_uri(root, commit_path(record.commit.graph_commit_id)) for record in made]


def _take_back(records: Records, before: LogEntry, entry: LogEntry) -> bool:
    """Put a branch back on the head it had before an entry; False if it has left the head of the entry by now."""
    last: LogEntry | None = entry
    while last is not None and last.head.commit == entry.head.commit and not last.state.is_deleted:
        back = replace(
            last,
            number=last.number + 1,
            event=BranchEvent.UNDONE,
            at=max(records.context.clock(), last.at),
            actor=records.context.actor,
            state=replace(last.state, mode=before.state.mode, own=before.state.own),
            head=before.head,
        )
        if records.heads.append(back):
            return True
        last = records.heads.find(entry.branch)  # somebody protected the branch, say
    return False


def _let_go(records: Records, commits: Sequence[CommitRecord]) -> None:
    """Say of commits that they were collected, whose objects may be gone already, as those of unpublished ones are."""
    context, at = records.context, records.context.clock()
    for record in commits:
        commit_id = record.commit.graph_commit_id
        if find_object(context.store, commit_path(commit_id)) is None:
            records.commits.put(record, records.commits.tables_of(record) if record.base == commit_id else None)
        mark_collected(context, commit_id, at=at)
    record_collected(context, frozenset(record.commit.graph_commit_id for record in commits), at=at)


def _inspect(
    records: Records, head: LogEntry, record: CommitRecord, full_map: TableMap | None, about: Description
) -> None:
    """Let everybody look at a commit who may object to it."""
    has_checks = about.guard is not None and bool(head.state.checks)
    if about.inspect is None and not has_checks:
        return
    tables = full_map or records.commits.tables_of(record)
    if about.guard is not None and has_checks:
        about.guard(head.state.checks, record, tables)
    if about.inspect is not None:
        about.inspect(record, tables)


def _catch_up(records: Records, expected: LogEntry, rebase: Rebase) -> tuple[LogEntry, Changes]:
    """The newest head of the same branch, and the change as it is on top of it."""
    head = records.heads.get(expected.branch)
    if head.state.created_as != expected.state.created_as:
        raise BranchNotFoundError(
            f"branch '{head.branch}' was deleted and made again meanwhile", hint="begin on the new branch"
        )
    return head, rebase(head)


def record_view(records: Records, entry: LogEntry, *, message: str) -> LogEntry:
    """Give an entry to come, whose head is what a live branch shows, a commit of its own that holds just that."""
    before = replace(entry, number=entry.number - 1)
    main = None if entry.head.saw is None else records.commits.get(entry.head.saw)
    about = Description(message=message, kind=CommitKind.FREEZE, metadata={})
    record, full_map = make_record(records, before, {}, about, main)
    records.commits.put(record, full_map)
    return replace(entry, at=record.commit.created_at, head=record)


def _ground(head: LogEntry, about: Description, main: CommitRecord | None) -> LogEntry:
    """The head as the commit finds it: of a live branch, with main under it and without what is released."""
    if head.state.mode is not BranchMode.LIVE or main is None:
        return head
    kept = tuple(key for key in head.state.own if key not in about.released)
    state = replace(head.state, own=kept)
    live = shown(replace(head, state=state), main)
    if about.freezes:
        return replace(live, state=replace(state, mode=BranchMode.PINNED, own=()))
    return live


def _next_entry(
    context: Context, head: LogEntry, record: CommitRecord, changes: Changes, about: Description
) -> LogEntry:
    state = head.state
    if state.mode is BranchMode.LIVE or state.run is not None:
        state = replace(state, own=tuple(sorted({*state.own, *changes})))
    return replace(
        head,
        number=head.number + 1,
        state=state,
        event=about.event,
        at=record.commit.created_at,
        actor=context.actor,
        head=record,
    )


def _id_of(commit: GraphCommit | None) -> str | None:
    return None if commit is None else commit.graph_commit_id


def make_record(
    records: Records, head: LogEntry, changes: Changes, about: Description, main: CommitRecord | None
) -> tuple[CommitRecord, Mapping[TableKey, TableEntry] | None]:
    """The commit after a head; `main` is what is under it if it is live, or was until now."""
    context, parent = records.context, head.head
    seen = None if main is None or parent.saw is None else main.commit
    made_from = [made for made in (parent.commit, about.merged_parent, about.taken_from, seen) if made is not None]
    commit = GraphCommit(
        graph_commit_id=context.new_id(),
        manifest_branch=None if str(head.branch) == MAIN else str(head.branch),
        manifest_version=head.number + 1,
        parent_commit_id=parent.commit.graph_commit_id,
        merged_parent_commit_id=_id_of(about.merged_parent),
        actor_id=context.actor,
        created_at=max(context.clock(), head.at, *(made.created_at for made in made_from)),
        message=about.message,
        kind=about.kind,
        metadata=dict(about.metadata),
        tables=tuple(sorted(str(key) for key in {*changes, *about.released})),
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
        taken_from=_id_of(about.taken_from),
    )
    if is_live:
        return record, None  # it builds on main's base, and main renews that
    full_map = records.commits.tables_of(record)
    if not is_due_for_full_map(new=len(changes), since_base=len(record.changes), tables=len(full_map)):
        return record, None
    return replace(record, base=commit.graph_commit_id, changes={}), full_map
