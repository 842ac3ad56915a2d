"""Publish a change of tables as the next commit of a branch, and settle it.

The tables are staged before (`staged_table`). `publish` stores the commit, puts the log entry, which alone makes the
commit visible, and settles the tables (`settle`), so that plain Lance readers see them too.

On a local disk, the tables of a commit are durable before it is published, and settled right after. The disk is waited
for twice, whatever the number of tables: once for all files of the commit and the bytes of its settled manifests, then
for the name of its log entry. The settled manifests get their names after that, without a sync. They follow from the
log, so a power loss may take the names, and the next writer settles again. But a manifest that has its name is never
torn, because its bytes were durable before.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from anabranch.errors import AnabranchError, BranchNotFoundError, DamagedFileError, NotFoundError
from anabranch.format import staging
from anabranch.format.home import Home, is_staged
from anabranch.format.staging import PreparedSettle
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.collected import mark_collected, record_collected
from anabranch.repo.log.commits import CommitSpec, commit_path
from anabranch.repo.log.config import RepoConfig, check_clock, owns
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
from anabranch.repo.log.heads import Decide
from anabranch.repo.log.repo_store import RepoStore, View, find_main
from anabranch.repo.refs.protection import refuse_ended, refuse_protected
from anabranch.repo.write.settle import ExternalWrite, find_newer, settle_published
from anabranch.storage import PreparedObject, in_parallel

# Given the head that another writer put first, return the same change on top of it, or raise.
Rebase = Callable[[LogEntry], Changes]

# Each failed attempt means that another writer made progress. The limit only prevents an endless loop.
_MAX_ATTEMPTS = 1000

# Changes that are published sooner need no check. By default, native cleanup keeps files of the last days.
_YOUNG_MICROSECONDS = 5 * 60 * 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A commit that was just published: the entry of its branch, its tables, and the external writes that were found.

    The `linked` tables are settled already. If the change may be published only once and the branch had it already,
    it `is_earlier`: the entry is the newest one of the branch, and nothing was changed.
    """

    entry: LogEntry
    commit: GraphCommit
    changes: Changes
    linked: frozenset[TableKey] = frozenset()
    external_writes: tuple[ExternalWrite, ...] = ()
    is_earlier: bool = False


def publish(
    repo_store: RepoStore,
    *,
    expected: LogEntry,
    changes: Changes,
    spec: CommitSpec,
    rebase: Rebase,
    main: CommitRecord | None = None,
) -> Published:
    """Commit staged tables as the next entry of their branch, then settle them.

    If another writer moves the branch first, `rebase` makes the change on the new head, and the commit is tried again.
    On a live branch `main` is the state of main that the change was made on, by default the newest.

    With `spec.once` every head is searched before the commit is put on top of it. Of several processes that publish the
    same change, one puts the next entry. The others lose the race for that number, read the new head and find it there.
    """
    published = Attempt(repo_store, expected, changes, spec, rebase, main).put()
    if published.entry.state.run is not None or published.is_earlier:
        return published  # the tables of a run are settled when the run is published
    branch, linked = published.entry.branch, published.linked
    # Best effort: the next writer completes it.
    # The newest version of a created table is the published one already.
    pending = {key: entry for key, entry in published.changes.items() if key not in linked | spec.created}
    # The branch may have moved before the tables were linked.
    with suppress(AnabranchError):
        if linked and repo_store.heads.find(branch) != published.entry:
            pending |= find_newer(repo_store, branch, {key: published.changes[key] for key in linked})
    if not pending:
        return published
    return replace(published, external_writes=settle_published(repo_store, branch, pending))


@dataclass(slots=True)
class Made:
    """The results of a decision to move a branch: new commits, and files that must be durable before the entry."""

    commits: Sequence[CommitRecord] = ()
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The files that must be durable before a commit, and the manifests to link after it."""

    files: tuple[str, ...] = ()
    manifests: tuple[tuple[TableKey, PreparedSettle, PreparedObject], ...] = ()

    def link(self) -> frozenset[TableKey]:
        """Give the settled manifests their names. Return the tables that are settled now."""
        linked = []
        for key, prepared, manifest in self.manifests:
            try:
                prepared.home.store().put_prepared(manifest)
            # The commit is published, so no failure may be raised. `settle_published` tries again.
            except AnabranchError:
                continue
            staging.remember_settled(prepared)
            linked.append(key)
        return frozenset(linked)

    def discard(self) -> None:
        """Remove the manifests of a commit that was not published."""
        for _, prepared, manifest in self.manifests:
            prepared.home.store().discard(manifest)


def prepare_settlement(
    config: RepoConfig, head: LogEntry, changes: Changes, *, created: Collection[TableKey]
) -> Settlement:
    """Prepare the tables that a commit on top of a head changes, where commits wait for the disk.

    The tables of a run are made durable with each of its commits, but settled only when the run is published. The
    `created` tables, on which nothing was staged, need no settling.
    """
    # A table that was taken over from another branch is durable already.
    written = {key: entry for key, entry in changes.items() if entry and owns(head.home_branch, entry.home)}
    staged = [(key, entry) for key, entry in written.items() if key not in created]
    prepare = partial(_try_to_prepare, config, settles=head.state.run is None)
    prepared = list(filter(None, in_parallel(prepare, staged, at_a_time=config.tables_at_a_time)))
    manifests = tuple((key, one, manifest) for key, one, manifest in prepared if manifest is not None)
    if len(prepared) < len(staged):
        # An external write is pending, or a manifest is damaged. The commit does not depend on either, so wait for
        # the whole disk instead of single files.
        Settlement(manifests=manifests).discard()
        config.store.sync_all()
        return Settlement()
    files = [file for _, one, _ in prepared for file in one.list_new_files()]
    files += [manifest.file for _, _, manifest in manifests if manifest.file is not None]
    for key in created & written.keys():
        files += staging.list_created_files(config.home_of(written[key]), written[key].version)
    return Settlement(files=tuple(dict.fromkeys(files)), manifests=manifests)


def _try_to_prepare(
    config: RepoConfig, table: tuple[TableKey, TableEntry], *, settles: bool
) -> tuple[TableKey, PreparedSettle, PreparedObject | None] | None:
    """Prepare one table. Return None if that is not possible now."""
    key, entry = table
    try:
        home = config.home_of(entry)
        prepared = staging.prepare_settle(home, entry.version, expected_head=entry.head)
        # If other commits were settled since, only the branch knows which version is the newest: `settle_published`.
        if not settles or prepared.made is None or prepared.number > entry.head + 1:
            return key, prepared, None
        return key, prepared, home.store().prepare(home.manifest_path(prepared.number), prepared.made.data)
    except AnabranchError:
        return None


@dataclass(slots=True)
class Attempt:
    """One change to publish. It is made again on each head that another writer puts first (see `publish`)."""

    repo_store: RepoStore
    expected: LogEntry
    changes: Changes
    spec: CommitSpec
    rebase: Rebase
    main: CommitRecord | None = None
    made: Made = field(default_factory=Made)
    earlier: GraphCommit | None = None
    settlement: Settlement = field(default_factory=Settlement)

    def put(self) -> Published:
        """Store the commit and put its log entry, which makes it visible to readers of the repository."""
        if self.repo_store.lease is None:
            with self.repo_store.with_lease() as leased:
                return replace(self, repo_store=leased).put()
        if self.main is None and self.expected.state.is_live:
            self.main = find_main(self.repo_store, self.expected)
        # A branch that was protected when the change began may be open again.
        known = None if self.expected.state.is_protected and self.spec.guard is None else self.expected
        branch, decide = self.expected.branch, self.next_entry
        try:
            entry = move_branch(self.repo_store, branch, decide, made=self.made, known=known, attempts=_MAX_ATTEMPTS)
        except BaseException:
            # The prepared manifests are temporary files, which would stay until garbage collection.
            self.settlement.discard()
            raise
        if self.earlier is not None:
            return Published(entry=entry, commit=self.earlier, changes={}, is_earlier=True)
        return Published(entry=entry, commit=entry.head.commit, changes=self.changes, linked=self.settlement.link())

    def next_entry(self, head: LogEntry) -> LogEntry | None:
        """Store the commit on top of a head, and return the entry that will publish it; None if it is there already."""
        # Manifests that were prepared for an earlier head have the wrong numbers and contents now.
        if self.settlement.manifests:
            self.settlement.discard()
            self.settlement = Settlement()
        if head.state.created_as != self.expected.state.created_as:
            problem = f"branch '{head.branch}' was deleted and created again at the same time"
            raise BranchNotFoundError(problem, hint="begin on the new branch")
        # Before the rebase: another process may have put this same change, which would conflict with itself.
        if self.spec.once is not None:
            self.earlier = self.repo_store.find_once(self.spec.once, head)
            if self.earlier is not None:
                return None
        if head.number != self.expected.number:
            self.changes = self.rebase(head)
        if self.spec.guard is None and head.state.is_protected:
            refuse_protected(head)
        if head.state.run is not None:
            refuse_ended(head)
        entry = self._store_commit(head)
        # Check as late as possible: the decision may have taken long, and files of expired work may be collected.
        assert self.repo_store.lease is not None  # noqa: S101 - `put` holds one
        self.repo_store.lease.check()
        return entry

    def _store_commit(self, head: LogEntry) -> LogEntry:
        repo_store, spec, changes, state = self.repo_store, self.spec, self.changes, head.state
        config, parent, main = repo_store.config, head.head, None
        if self.main is not None and state.is_live:
            parent, main = View.of(head, self.main).without(spec.released).record, self.main.commit
        record, full_map = repo_store.commits.make(head, parent, changes, spec, main=main)
        # Before the commit is stored, so that a refused one leaves no object.
        if spec.inspect is not None or (spec.guard is not None and state.checks):
            _run_checks(repo_store, head, record, full_map, spec)
        if config.clock() - spec.staged_since >= _YOUNG_MICROSECONDS:
            refuse_removed_files(config, head.home_branch, changes)
        # It becomes durable with the other files of the commit, in one wait for the disk before the entry.
        path = repo_store.commits.put(record, full_map, durable=False)
        # Times in the history cannot be corrected later.
        check_clock(config, path)
        self.made.commits = (record,)
        # The settled manifests are made before the entry is put. Their bytes must be durable before they get their
        # names, and they name all new files of the tables.
        if config.is_durable:
            self.settlement = prepare_settlement(config, head, changes, created=spec.created)
            self.made.files[:] = [f"{config.root}/{path}", *self.settlement.files]
        mode, own = state.mode, state.own
        event = BranchEvent.PULLED if spec.kind is CommitKind.PULL else BranchEvent.COMMITTED
        if spec.freezes:
            event, mode, own = BranchEvent.FROZEN, BranchMode.PINNED, ()
        elif state.run is not None or state.is_live:
            # The tables that the branch or run has changed, with this commit.
            own = tuple(sorted({*own} - spec.released | {*changes}))
        return repo_store.heads.next_entry(head, event, at=record.commit.created_at, head=record, mode=mode, own=own)


def move_branch(
    repo_store: RepoStore,
    branch: BranchName,
    decide: Decide,
    *,
    made: Made,
    known: LogEntry | None = None,
    attempts: int,
) -> LogEntry:
    """Move a branch to new commits. Each decision records its results in `made`, and checks the lease at its end.

    The entry is rolled back if the lease expired during the put, because files of the commits may have been collected.
    It stays if another commit builds on it by then, and the move is reported as done: a caller that tried again would
    make the change twice. On local disk the files become durable before the entry.
    """
    lease = repo_store.lease
    return repo_store.heads.move(
        branch,
        decide,
        known=known,
        verify=None if lease is None else lease.check,
        rolled_back=partial(_mark_collected, repo_store, made),
        is_kept_once_built_on=True,
        files=made.files,
        attempts=attempts,
    )


def _mark_collected(repo_store: RepoStore, made: Made) -> None:
    """Mark commits that were rolled back as collected. Their objects may be gone, as those of unpublished commits."""
    config, at = repo_store.config, repo_store.config.clock()
    for record in made.commits:
        commit_id = record.commit.graph_commit_id
        # A log entry names the commit, so that readers of the history need its object.
        if config.store.find_info(commit_path(commit_id)) is None:
            repo_store.commits.put(record, repo_store.commits.tables_of(record) if record.base == commit_id else None)
        mark_collected(config, commit_id, at=at)
    record_collected(config, frozenset(record.commit.graph_commit_id for record in made.commits), at=at)


def _run_checks(
    repo_store: RepoStore, head: LogEntry, record: CommitRecord, full_map: TableMap | None, spec: CommitSpec
) -> None:
    tables = full_map or repo_store.commits.tables_of(record)
    if spec.guard is not None and head.state.checks:
        spec.guard(head.state.checks, record, tables)
    if spec.inspect is not None:
        spec.inspect(record, tables)


def refuse_removed_files(config: RepoConfig, branch: BranchName, changes: Changes) -> None:
    """Refuse a change that was staged some minutes ago and whose files were removed since.

    Our own gc respects leases. Native `cleanup_old_versions` ignores staged versions and removes their files.
    """
    for key, entry in changes.items():
        # Only staged versions in homes of this branch were written by this change.
        if entry is None or not owns(branch, entry.home) or not is_staged(entry.version):
            continue
        home = config.home_of(entry)
        if _is_young(config, home, entry.version):
            continue
        missing = staging.find_missing_files(home, entry.version, expected_head=entry.head)
        if missing:
            raise DamagedFileError(
                f"{len(missing)} files of the change to '{key}' are gone, for example {missing[0]!r}",
                hint="make the change again, and do not clean up tables of a repository with other Lance tools",
            )


def _is_young(config: RepoConfig, home: Home, version: int) -> bool:
    try:
        return config.clock() - staging.staged_at(home, version) < _YOUNG_MICROSECONDS
    except NotFoundError:
        return True  # Native cleanup never removes staged manifests, and our own gc respects leases.
