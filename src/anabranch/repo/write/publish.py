"""Turn a change of tables into the next commit of a branch."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.errors import BranchNotFoundError, BusyError, ClockSkewError
from anabranch.ids import MAIN, BranchName
from anabranch.repo.log.clocks import check_clock
from anabranch.repo.log.collected import mark_collected, record_collected
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    Changes,
    CommitRecord,
    LogEntry,
    TableMap,
)
from anabranch.repo.log.making import CommitSpec, make_record
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import shown
from anabranch.repo.refs.protection import refuse_ended, refuse_protected
from anabranch.repo.write.settlement import Settlement, prepare_settlement
from anabranch.repo.write.staged_files import refuse_removed_files
from anabranch.storage import find_object
from anabranch.storage.uris import is_local, join_uri

__all__ = ["append_awake", "publish"]

# Given the head that won, make the same change on top of it, or raise.
Rebase = Callable[[LogEntry], Changes]

_MAX_ATTEMPTS = 1000


def publish(
    records: RepoStore,
    *,
    expected: LogEntry,
    changes: Changes,
    spec: CommitSpec,
    rebase: Rebase,
    main: CommitRecord | None = None,
) -> LogEntry:
    """Commit the changes on top of the expected head; where somebody was faster, on top of theirs.

    On a live branch `main` is the state of main that the change was made on, by default the newest.
    """
    with records.with_lease() as awake:
        return _publish(awake, expected, changes, spec, rebase, main)


def _publish(
    records: RepoStore,
    expected: LogEntry,
    changes: Changes,
    spec: CommitSpec,
    rebase: Rebase,
    main: CommitRecord | None,
) -> LogEntry:
    head, began = expected, records.context.clock()
    if head.state.mode is BranchMode.LIVE and main is None:
        main = records.heads.get(BranchName(MAIN)).head
    if head.state.is_protected and spec.guard is None:  # when the change was begun, and perhaps no longer
        head, changes = _catch_up(records, expected, rebase)
    for losses in range(1, _MAX_ATTEMPTS + 1):
        if spec.guard is None:
            refuse_protected(head)
        refuse_ended(head)
        ground = _ground(head, spec, main)
        record, full_map = make_record(records, ground, changes, spec, main)
        _inspect(records, head, record, full_map, spec)
        refuse_removed_files(records.context, head.home_branch, changes)
        records.commits.put(record, full_map, durable=False)
        entry = _next_entry(records.context, ground, record, changes, spec)
        settlement = prepare_settlement(records, head, changes)
        if _append_or_discard(records, head, entry, record, settlement):
            settlement.link()
            return entry
        records.context.give_way(losses, records.context.clock() - began)
        began = records.context.clock()
        head, changes = _catch_up(records, expected, rebase)
    raise BusyError(f"branch '{expected.branch}' moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def append_awake(
    records: RepoStore, before: LogEntry, entry: LogEntry, made: Sequence[CommitRecord], *, after: Sequence[str] = ()
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
    records: RepoStore, before: LogEntry, entry: LogEntry, record: CommitRecord, settlement: Settlement
) -> bool:
    try:
        done = append_awake(records, before, entry, [record], after=settlement.files)
    except BaseException:
        settlement.discard()
        raise
    if not done:
        settlement.discard()
    return done


def _check_clock(records: RepoStore, made: Sequence[CommitRecord]) -> None:
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


def _commit_files(records: RepoStore, made: Sequence[CommitRecord]) -> list[str]:
    """Return the files of commits, which were written without a sync; none on an object store."""
    root = records.context.root
    if not is_local(root):
        return []
    return [join_uri(root, commit_path(record.commit.graph_commit_id)) for record in made]


def _take_back(records: RepoStore, before: LogEntry, entry: LogEntry) -> bool:
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


def _let_go(records: RepoStore, commits: Sequence[CommitRecord]) -> None:
    """Say of commits that they were collected, whose objects may be gone already, as those of unpublished ones are."""
    context, at = records.context, records.context.clock()
    for record in commits:
        commit_id = record.commit.graph_commit_id
        if find_object(context.store, commit_path(commit_id)) is None:
            records.commits.put(record, records.commits.tables_of(record) if record.base == commit_id else None)
        mark_collected(context, commit_id, at=at)
    record_collected(context, frozenset(record.commit.graph_commit_id for record in commits), at=at)


def _inspect(
    records: RepoStore, head: LogEntry, record: CommitRecord, full_map: TableMap | None, spec: CommitSpec
) -> None:
    """Let everybody look at a commit who may object to it."""
    has_checks = spec.guard is not None and bool(head.state.checks)
    if spec.inspect is None and not has_checks:
        return
    tables = full_map or records.commits.tables_of(record)
    if spec.guard is not None and has_checks:
        spec.guard(head.state.checks, record, tables)
    if spec.inspect is not None:
        spec.inspect(record, tables)


def _catch_up(records: RepoStore, expected: LogEntry, rebase: Rebase) -> tuple[LogEntry, Changes]:
    """The newest head of the same branch, and the change as it is on top of it."""
    head = records.heads.get(expected.branch)
    if head.state.created_as != expected.state.created_as:
        raise BranchNotFoundError(
            f"branch '{head.branch}' was deleted and made again meanwhile", hint="begin on the new branch"
        )
    return head, rebase(head)


def _ground(head: LogEntry, spec: CommitSpec, main: CommitRecord | None) -> LogEntry:
    """The head as the commit finds it: of a live branch, with main under it and without what is released."""
    if head.state.mode is not BranchMode.LIVE or main is None:
        return head
    kept = tuple(key for key in head.state.own if key not in spec.released)
    state = replace(head.state, own=kept)
    live = shown(replace(head, state=state), main)
    if spec.freezes:
        return replace(live, state=replace(state, mode=BranchMode.PINNED, own=()))
    return live


def _next_entry(
    context: RepoConfig, head: LogEntry, record: CommitRecord, changes: Changes, spec: CommitSpec
) -> LogEntry:
    state = head.state
    if state.mode is BranchMode.LIVE or state.run is not None:
        state = replace(state, own=tuple(sorted({*state.own, *changes})))
    return replace(
        head,
        number=head.number + 1,
        state=state,
        event=spec.event,
        at=record.commit.created_at,
        actor=context.actor,
        head=record,
    )
