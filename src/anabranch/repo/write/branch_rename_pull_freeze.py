"""Changes of a branch that concern its tables: rename it, pull a table from its parent, freeze a live branch.

A renamed branch continues its log under the new name, and the old name gets a tombstone that leads there. The tombstone
is the commit point. It takes the next number of the old log, so a concurrent writer of the old name either comes first,
and the rename starts again on its entry, or fails with the new name in its error.
"""

from dataclasses import replace

from anabranch.errors import (
    AnabranchError,
    BranchExistsError,
    BranchNotFoundError,
    BusyError,
    ExternalWriteError,
    InvalidInputError,
    WriteConflictError,
)
from anabranch.format.arguments import unknown_table
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import (
    BranchEvent,
    Changes,
    CommitKind,
    CommitRecord,
    FormerName,
    LogEntry,
    Rename,
    is_same_state,
)
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.refs.branches import BranchInfo, put_after, refuse_active_runs, refuse_name_of_tag
from anabranch.repo.refs.protection import refuse_locked, refuse_protected
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.settle import list_external_writes, settle_head

# Frequent commits may move the branch several times before the rename succeeds.
_MAX_ATTEMPTS = 8


def rename_branch(repo_store: RepoStore, old: BranchName, new: BranchName) -> BranchInfo:
    """Give a branch another name. The tables, the history and the branches made from it do not change."""
    if str(old) == MAIN:
        raise InvalidInputError("branch 'main' cannot be renamed", hint="make a branch from it instead")
    head = repo_store.heads.get(old)
    refuse_protected(head)
    settle_head(repo_store, old)
    # Later writes go to the homes of the new name, so that an external write to those of the old name would be lost.
    for write in list_external_writes(repo_store, old):
        called = f"'{write.table}', branch='{old}'"
        raise ExternalWriteError(
            f"another Lance tool wrote to '{write.table}' on branch '{old}', and a rename would lose that",
            hint=f"merge it with `adopt({called})`, or set it aside with `settle({called}, force=True)`",
        )
    for losses in range(1, _MAX_ATTEMPTS + 1):
        try:
            return BranchInfo.of(_rename(repo_store, head, new), repo_store.heads.follow)
        except _OvertakenError:
            repo_store.config.give_way(losses, 0)
            head = repo_store.heads.get(old)
    raise BusyError(f"branch '{old}' moved {_MAX_ATTEMPTS} times while it was renamed", hint="try again")


class _OvertakenError(BusyError):
    """Another writer moved the branch between the two entries of a rename."""


def _rename(repo_store: RepoStore, head: LogEntry, new: BranchName) -> LogEntry:
    """Create the new name at an entry of the old one, then end the old name. Roll back if the old one has moved."""
    refuse_protected(head)
    refuse_locked(repo_store)
    refuse_name_of_tag(repo_store, new)
    refuse_active_runs(repo_store, head.branch)
    former = FormerName(branch=head.branch, created_as=head.state.created_as, until=head.number)
    # The head and the state of the branch, in another log. Older releases know this event and that of the tombstone,
    # and read the new name as a branch and the old one as deleted.
    first = repo_store.heads.next_entry(
        head, BranchEvent.CREATED, created_as=1, renames=(), former_names=(*head.state.former_names, former)
    )
    first = replace(first, branch=new, number=1)
    entry = repo_store.heads.create(
        new, lambda tombstone: put_after(tombstone, first), verify=lambda entry: _end_old_name(repo_store, head, entry)
    )
    if entry is None:
        newest, hint = repo_store.heads.find(new), "choose another name, or delete it first"
        if newest is not None and newest.renamed_from == head.branch:
            hint = f"a rename that was interrupted has left it: delete '{new}', then rename again"
        raise BranchExistsError(f"branch '{new}' already exists", hint=hint)
    return entry


def _end_old_name(repo_store: RepoStore, head: LogEntry, entry: LogEntry) -> None:
    """Put the tombstone on the old name. If this raises, the new name is removed again."""
    refuse_name_of_tag(repo_store, entry.branch)
    refuse_locked(repo_store)
    rename = Rename(created_as=head.state.created_as, to=entry.branch, to_created_as=entry.state.created_as)

    def tombstone(now: LogEntry) -> LogEntry:
        if now.number != head.number:
            raise _OvertakenError(f"another writer moved branch '{head.branch}' at the same time", hint="try again")
        renames = (*head.state.renames, rename)
        return repo_store.heads.next_entry(head, BranchEvent.DELETED, is_deleted=True, renames=renames)

    def verify(_: LogEntry) -> None:
        # A deletion of the new name, and a run that begins on the old one, also write first and read then.
        if repo_store.heads.get(entry.branch).state.created_as != entry.state.created_as:
            raise BranchNotFoundError(f"branch '{entry.branch}' was deleted at the same time", hint="rename again")
        refuse_active_runs(repo_store, head.branch)

    try:
        repo_store.heads.move(head.branch, tombstone, verify=verify)
    except AnabranchError as err:
        # The answer of the store may be lost after the entry was put. Then both names would be gone.
        found = repo_store.heads.find(head.branch)
        if found is not None and found.state.is_deleted and rename in found.state.renames:
            return
        if isinstance(err, BusyError) and not isinstance(err, _OvertakenError):
            raise _OvertakenError(err.problem, hint=err.hint) from err
        raise


def pull_table(repo_store: RepoStore, branch: BranchName, key: TableKey) -> Published | None:
    """Make a table follow its source again; return None if the branch has no copy of it.

    A live branch drops its copy and shows the table of main. A pinned branch takes the present state of its parent.
    """
    entry = repo_store.heads.get(branch)
    if entry.state.is_live:
        if entry.state.follows_main(key):
            _require(repo_store, entry, key)
            return None
        spec = CommitSpec(message=f"Pull {key}", kind=CommitKind.PULL, metadata={}, released=frozenset({key}))
        return publish(repo_store, expected=entry, changes={}, spec=spec, rebase=_require_live)
    source = _pulled_from(repo_store, entry, key)
    theirs = repo_store.commits.find_table(source, key)
    # The parent has dropped the table, so the pull drops it here, too, if it exists.
    if theirs is None:
        _require(repo_store, entry, key)
    if is_same_state(repo_store.commits.find_table(entry.head, key), theirs):
        return None
    spec = CommitSpec(message=f"Pull {key}", kind=CommitKind.PULL, metadata={}, taken_from=source.commit)
    changes: Changes = {key: theirs}
    # A pull replaces the table as a whole, so that it means the same on any head.
    return publish(repo_store, expected=entry, changes=changes, spec=spec, rebase=lambda _: changes)


def _require(repo_store: RepoStore, entry: LogEntry, key: TableKey) -> None:
    shown = View.now(repo_store, entry)
    if shown.find_table(repo_store.commits, key) is None:
        where = f"on branch '{entry.branch}', nor where it would be pulled from"
        raise unknown_table(key, where, shown.tables(repo_store.commits))


def _require_live(entry: LogEntry) -> Changes:
    """Return no changes for a head that another writer put first. Refuse a branch that is no longer live."""
    if not entry.state.is_live:
        raise WriteConflictError(f"branch '{entry.branch}' was frozen at the same time", hint="read it again and retry")
    return {}


def _pulled_from(repo_store: RepoStore, entry: LogEntry, key: TableKey) -> CommitRecord:
    """Return the commit with the table to pull: the head of the parent, or of main if a live parent shows main's."""
    parent = entry.state.parent
    if parent is None or parent.branch is None:
        problem = f"branch '{entry.branch}' was not made from a branch, so there is nothing to pull from"
        raise InvalidInputError(problem, hint="reset the table's branch to a commit instead")
    source = repo_store.heads.get(repo_store.heads.follow(parent) or parent.branch)
    return repo_store.heads.get(BranchName(MAIN)).head if source.state.follows_main(key) else source.head


def freeze_branch(repo_store: RepoStore, branch: BranchName) -> Published:
    """Make a live branch pinned: it keeps the tables that it shows now."""
    entry = repo_store.heads.get(branch)
    if not entry.state.is_live:
        raise InvalidInputError(f"branch '{branch}' is pinned already", hint="there is nothing to freeze")
    spec = CommitSpec(message=f"Freeze {branch}", kind=CommitKind.FREEZE, metadata={}, freezes=True)
    return publish(repo_store, expected=entry, changes={}, spec=spec, rebase=_require_live)
