"""Create, list, delete and restore branches, each by the next entry of their log, and report drift."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial

from anabranch.display import row_of, to_datetime
from anabranch.errors import BranchExistsError, BranchInUseError, BranchNotFoundError, InvalidInputError
from anabranch.ids import MAIN, BranchName, Ref, TableKey, TagName
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import BranchEvent, BranchMode, LogEntry, Parent, TableEntry
from anabranch.repo.log.numbered_log import NamePage
from anabranch.repo.log.repo_store import CommitTables, RepoStore, pin_view
from anabranch.repo.refs.protection import refuse_locked, refuse_protected
from anabranch.repo.refs.resolve import Resolved, resolve
from anabranch.repo.refs.tags import is_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo:
    """A branch as it is now. The parent is the branch it was made from, None if it was made from a commit.

    The parent has its present name, also if it was renamed since.

    `own_tables` are the tables that were written or dropped on a live branch; all others follow main.
    """

    name: str
    mode: BranchMode
    parent: str | None
    parent_commit_id: str | None
    head_commit_id: str
    version: int
    created_at: int
    created_by: str | None
    description: str
    expires_at: int | None
    own_tables: tuple[str, ...] = ()
    is_protected: bool = False
    checks: tuple[tuple[str, str], ...] = ()

    @property
    def created(self) -> datetime:
        """The time at which the branch was created, in UTC."""
        return to_datetime(self.created_at)

    @property
    def expires(self) -> datetime | None:
        """The time after which the branch may be deleted, in UTC. None if it does not expire."""
        return None if self.expires_at is None else to_datetime(self.expires_at)

    @classmethod
    def of(cls, entry: LogEntry, follow: Callable[[Parent], BranchName | None]) -> "BranchInfo":
        """Return the branch of its newest entry. `follow` is `Heads.follow`."""
        state, parent = entry.state, entry.state.parent
        parent_name = None if parent is None else follow(parent)
        return cls(
            name=str(entry.branch),
            mode=state.mode,
            parent=None if parent_name is None else str(parent_name),
            parent_commit_id=None if parent is None else parent.commit,
            head_commit_id=entry.head.commit.graph_commit_id,
            version=entry.number,
            created_at=state.created_at,
            created_by=state.created_by,
            description=state.description,
            expires_at=state.expires_at,
            own_tables=tuple(str(key) for key in state.own),
            is_protected=state.is_protected,
            checks=state.checks,
        )

    def _repr_row_(self) -> Mapping[str, object]:
        return row_of(self, "branch=name mode parent head_commit=head_commit_id created created_by description")


def list_branches(
    repo_store: RepoStore, page: NamePage, *, internal: bool = False, deleted: bool = False
) -> list[BranchInfo]:
    """List the branches of a page by name, or those that were deleted. Only the heads that the page needs are read."""
    heads = repo_store.heads
    entries = heads.iter_deleted(page) if deleted and not internal else heads.iter(page, internal=internal)
    follow = cache(heads.follow)  # many branches have one parent
    # The old name of a renamed branch has a tombstone, but its branch exists.
    wanted = (each for each in entries if each.state.is_deleted is deleted and each.state.renamed_to is None)
    return list(page.cut(BranchInfo.of(entry, follow) for entry in wanted))


def create_branch(
    repo_store: RepoStore,
    name: BranchName,
    *,
    source: Resolved,
    mode: BranchMode = BranchMode.PINNED,
    description: str = "",
    expires_at: int | None = None,
) -> BranchInfo:
    """Create a branch at a commit. This puts one small object, whatever the number of tables."""
    refuse_locked(repo_store)
    refuse_name_of_tag(repo_store, name)
    if mode is BranchMode.LIVE and (str(source.branch) != MAIN or not source.is_head):
        hint = "make it from 'main', or make it pinned"
        raise InvalidInputError(f"live branch '{name}' can only follow main as it is now", hint=hint)
    parent = _parent_of(source)
    # A version of a deleted branch is a valid source. With that branch as its parent, the new branch would be refused
    # by the verification, and could never be restored.
    if source.is_old and ((newest := repo_store.heads.find_followed(parent)) is None or newest.state.is_deleted):
        parent = replace(parent, branch=None)

    # Made once, also if a tombstone makes a second put necessary: `_verify_created` needs the time of the first read.
    given = {"mode": mode, "parent": parent, "description": description, "expires_at": expires_at}
    first = repo_store.heads.first_entry(name, source.record, BranchEvent.CREATED, **given)

    def make(tombstone: LogEntry | None) -> LogEntry:
        return pin_view(repo_store, put_after(tombstone, first), source.view, message=f"Branch {name}")

    entry = repo_store.heads.create(name, make, verify=lambda entry: _verify_created(repo_store, entry, source))
    if entry is None:
        raise BranchExistsError(f"branch '{name}' already exists", hint="choose another name, or delete it first")
    return BranchInfo.of(entry, repo_store.heads.follow)


def put_after(tombstone: LogEntry | None, first: LogEntry) -> LogEntry:
    """Return the first entry of a branch, as the one that follows the tombstone of its name if there is one."""
    if tombstone is None:
        return first
    number = tombstone.number + 1
    state = replace(first.state, created_as=number, renames=tombstone.state.renames)
    return replace(first, number=number, at=max(first.at, tombstone.at), state=state)


def create_live_branches(repo_store: RepoStore, descriptions: Mapping[BranchName, str]) -> bool:
    """Create live branches with descriptions, all or none, and wait for the disk once for all of them.

    Return False if one of the names is or was in use. Then `create_branch` creates each, or reports what is wrong.
    """
    refuse_locked(repo_store)
    for name in descriptions:
        refuse_name_of_tag(repo_store, name)
    source = resolve(Ref.parse(MAIN), repo_store)
    parent = _parent_of(source)
    entries = []
    for name, description in descriptions.items():
        entry = repo_store.heads.first_entry(
            name, source.record, BranchEvent.CREATED, mode=BranchMode.LIVE, parent=parent, description=description
        )
        entries.append(pin_view(repo_store, entry, source.view, message=f"Branch {name}"))

    def verify() -> None:
        # What concerns the source is the same for all of them.
        _verify_created(repo_store, entries[0], source)
        for name in descriptions:
            refuse_name_of_tag(repo_store, name)

    return repo_store.heads.create_together(entries, verify=verify)


def _parent_of(source: Resolved) -> Parent:
    return Parent(branch=source.branch, commit=source.record.commit.graph_commit_id, created_as=source.created_as)


def _verify_created(repo_store: RepoStore, entry: LogEntry, source: Resolved) -> None:
    """Refuse a branch whose parent was deleted, whose name a tag took, or beside which a schema change began.

    This runs after the put. The other operations also put first and read then, so one of the two sees the other.
    """
    if (parent := _find_lost_parent(repo_store, entry)) is not None:
        raise BranchNotFoundError(f"branch '{parent}' was deleted at the same time", hint="branch from another one")
    refuse_name_of_tag(repo_store, entry.branch)
    refuse_locked(repo_store)
    # Garbage collection keeps the head of a branch for a while after the branch moved on.
    is_late = (repo_store.config.clock() - entry.state.created_at) * timedelta(microseconds=1) > repo_store.config.lease
    if is_late or not source.is_head:
        require_uncollected(repo_store.config, source.record.commit.graph_commit_id)


def delete_branch(repo_store: RepoStore, name: BranchName) -> LogEntry:
    """Put a tombstone on a branch. Its data stay until garbage collection."""
    if str(name) == MAIN:
        raise InvalidInputError("branch 'main' cannot be deleted", hint="move it to another commit with `reset()`")

    def tombstone(head: LogEntry) -> LogEntry:
        refuse_protected(head)
        # Also before the put, so that the usual refusal does not leave a deletion and its roll-back in the log.
        refuse_in_use(repo_store, name)
        return repo_store.heads.next_entry(head, BranchEvent.DELETED, is_deleted=True)

    # A branch may be made from this one at the same time.
    return repo_store.heads.move(name, tombstone, verify=lambda _: refuse_in_use(repo_store, name))


def restore_branch(repo_store: RepoStore, name: BranchName) -> BranchInfo:
    """Restore a deleted branch at the commit that it had."""

    def require_restorable(entry: LogEntry) -> None:
        refuse_orphan(repo_store, entry)
        require_uncollected(repo_store.config, entry.head.commit.graph_commit_id)

    def restored(tombstone: LogEntry) -> LogEntry:
        if not tombstone.state.is_deleted:
            raise BranchExistsError(f"branch '{name}' is not deleted", hint="there is nothing to restore")
        if tombstone.state.renamed_to is not None:
            repo_store.heads.get(name)  # raises, because the branch has another name now
        require_restorable(tombstone)
        return repo_store.heads.next_entry(tombstone, BranchEvent.RESTORED, is_deleted=False)

    newest = partial(newest_entry, repo_store, name)
    entry = repo_store.heads.move(name, restored, newest=newest, verify=require_restorable)
    return BranchInfo.of(entry, repo_store.heads.follow)


def newest_entry(repo_store: RepoStore, name: BranchName) -> LogEntry:
    """Return the newest entry of a branch, also of a deleted one."""
    entry = repo_store.heads.find(name)
    if entry is None:
        raise BranchNotFoundError(f"there never was a branch '{name}'", hint=repo_store.heads.names.hint_for_any(name))
    return entry


def refuse_orphan(repo_store: RepoStore, entry: LogEntry) -> None:
    """Refuse to restore a branch whose parent is deleted, or whose name a tag has."""
    refuse_name_of_tag(repo_store, entry.branch)
    if (parent := _find_lost_parent(repo_store, entry)) is not None:
        hint = f"restore '{parent}' first, or branch from {entry.head.commit.graph_commit_id}"
        raise BranchNotFoundError(f"branch '{entry.branch}' was made from '{parent}', which is deleted, too", hint=hint)


def refuse_name_of_tag(repo_store: RepoStore, name: BranchName) -> None:
    # Tags have neither slashes nor internal names, so that these names need no request.
    if "/" not in str(name) and not name.is_internal and is_tag(repo_store, TagName(str(name))):
        hint = "choose another name for the branch, or delete the tag first"
        raise InvalidInputError(f"'{name}' is the name of a tag", hint=hint)


def _find_lost_parent(repo_store: RepoStore, entry: LogEntry) -> BranchName | None:
    """Return the parent of a branch if it is deleted. One that was renamed is still the parent."""
    parent = None if entry.state.parent is None else repo_store.heads.follow(entry.state.parent)
    found = None if parent is None else repo_store.heads.find(parent)
    return parent if found is None or found.state.is_deleted else None


def refuse_in_use(repo_store: RepoStore, name: BranchName, *, without: Collection[BranchName] = ()) -> None:
    """Refuse to delete a branch that others were made from, or that an active run will publish to.

    Branches in `without` count as deleted.
    """
    follow = cache(repo_store.heads.follow)
    for other in repo_store.heads.list():
        parent = None if other.state.is_deleted or other.branch in without else other.state.parent
        if parent is not None and follow(parent) == name:
            hint = f"delete '{other.branch}' first"
            raise BranchInUseError(f"branch '{other.branch}' was made from '{name}'", hint=hint)
    refuse_active_runs(repo_store, name)


def refuse_active_runs(repo_store: RepoStore, name: BranchName) -> None:
    """Refuse to delete or rename a branch that an active run will publish to."""
    # Only renewed leases count. A run whose process died would otherwise block the deletion until it is collected.
    run_ids = repo_store.config.leases.list_alive(name)
    head = repo_store.heads.find(name) if run_ids else None
    for run_id in run_ids:
        run = repo_store.heads.find(BranchName.of_run(run_id))
        if run is None or head is None or run.state.is_deleted or run.state.run is None:
            continue
        # A run on an earlier branch of this name can never be published to the present one.
        if run.state.run.target_created_as == head.state.created_as:
            raise BranchInUseError(f"run {run_id} is active on branch '{name}'", hint="wait for it, or abort it")


def list_written(repo_store: RepoStore, branch: BranchName) -> tuple[str, ...]:
    """Return the tables that a branch has written to. The other tables are in homes of other branches."""
    entry = repo_store.heads.get(branch)
    tables = repo_store.commits.tables_of(entry.head)
    return tuple(str(key) for key in sorted(tables) if _has_written(entry, tables[key].home))


def _has_written(entry: LogEntry, home: str | None) -> bool:
    """Return whether a home is one that a branch writes to, or wrote to under a former name."""
    return owns(entry.branch, home) or any(owns(former.branch, home) for former in entry.state.former_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDrift:
    """How main changed a table since the branch copied it. A missing table has None for its rows."""

    table: str
    has_drifted: bool
    branch_rows: int | None
    main_rows: int | None
    forked_version: int | None
    main_version: int | None

    @classmethod
    def of(
        cls, key: TableKey, forked: tuple[str | None, int] | None, mine: TableEntry | None, main: TableEntry | None
    ) -> "TableDrift":
        """Compare the state of main that a branch forked a table from with the present one. `mine` is the branch's."""
        return cls(
            table=str(key),
            has_drifted=forked != (None if main is None else (main.home, main.version)),
            branch_rows=None if mine is None else mine.rows,
            main_rows=None if main is None else main.rows,
            forked_version=None if forked is None else forked[1],
            main_version=None if main is None else main.version,
        )


def branch_drift(repo_store: RepoStore, branch: BranchName) -> tuple[TableDrift, ...]:
    """Compare each table changed on a branch with the current state of main."""
    entry = repo_store.heads.get(branch)
    if str(branch) == MAIN:
        raise BranchNotFoundError("main cannot drift from itself", hint="name another branch")
    ours = CommitTables(repo_store.commits.full_map, entry.head)
    main = CommitTables(repo_store.commits.full_map, repo_store.heads.get(BranchName(MAIN)).head)
    keys = entry.state.own if entry.state.is_live else tuple(key for key in ours if _has_written(entry, ours[key].home))
    forks = {key: _forked_from(repo_store, entry, ours[key]) for key in keys if key in ours}
    return tuple(TableDrift.of(key, forks.get(key), ours.get(key), main.get(key)) for key in sorted(keys))


def _forked_from(repo_store: RepoStore, entry: LogEntry, ours: TableEntry) -> tuple[str | None, int] | None:
    """Return the home and version that the branch copied a table from, or None for a table that it created."""
    if not _has_written(entry, ours.home):
        return ours.home, ours.version
    forked = ours.forked_from
    # The first write after a rename forks the home of the former name, which in turn was forked from the source.
    for former in reversed(entry.state.former_names):
        if forked is not None and owns(former.branch, forked[0]):
            last = repo_store.heads.get_numbered(former.branch, former.until)
            then = repo_store.commits.tables_of(last.head).values()
            homes = {(one.dataset, one.home): one.forked_from for one in then}
            forked = homes.get((ours.dataset, forked[0]), forked)
    return forked
