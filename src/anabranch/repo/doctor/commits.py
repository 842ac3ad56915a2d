"""Check commit objects: each commit that is named must exist, be intact, and equal the copy in its log entry.

A damaged commit object is rebuilt from the log entry that published it, and from the full maps of other commits. A lost
log entry is rebuilt from the commit that it published, if nothing else can have changed with it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from anabranch.errors import AnabranchError, CorruptError, NotFoundError, ObjectNotFoundError, UnsupportedFormatError
from anabranch.format.doctor.findings_and_repairs import Case, FindingKind
from anabranch.ids import BranchName, TableKey
from anabranch.repo.doctor.inventory import BrokenCommit, CheckedLog, CommitFacts, Inventory, find_readable
from anabranch.repo.log import codec
from anabranch.repo.log.collected import find_record
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.entries import BranchEvent, CommitKind, CommitRecord, GraphCommit, LogEntry, TableMap
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage import documents, in_parallel
from anabranch.storage.documents import is_sealed

# Commits of these kinds change more than tables, or belong to other events, so their entry cannot be derived.
_UNUSUAL = frozenset({CommitKind.INIT, CommitKind.FREEZE})


def inspect_remaining(repo_store: RepoStore, inventory: Inventory) -> None:
    """Read every commit that logs, commits or tags name and that no log entry published."""
    tagged = {tag.commit_id for tag in inventory.tags.values()}
    while todo := sorted((inventory.named | tagged) - inventory.inspected):
        in_parallel(lambda commit_id: inspect_commit(repo_store, inventory, commit_id), todo)
    _check_full_maps(repo_store, inventory)
    inventory.add_full_maps(lambda base: repo_store.commits.tables_of(repo_store.commits.get(base)))


def inspect_commit(
    repo_store: RepoStore, inventory: Inventory, commit_id: str, expected: CommitRecord | None = None
) -> None:
    """Read a commit object into the inventory.

    `expected` is the commit as the log entry that published it has it. If the two differ, the entry is right.
    """
    found = _read(repo_store, commit_id, expected)
    if isinstance(found, CommitRecord):
        return inventory.add_commit(found)
    if expected is not None:
        inventory.add_commit(expected)
    return inventory.add_broken(commit_id, found)


def _read(repo_store: RepoStore, commit_id: str, expected: CommitRecord | None) -> CommitRecord | BrokenCommit:
    path = commit_path(commit_id)
    try:
        fields = documents.load(repo_store.config.store.get(path), path=path)
        with documents.damage_named(path):
            record = codec.decode_commit(fields)
            # A commit that is its own base holds the full map. Decode it too: all commits after it depend on it.
            if record.base == record.commit.graph_commit_id:
                codec.decode_full_map(fields)
    except ObjectNotFoundError:
        return BrokenCommit(kind=FindingKind.MISSING_COMMIT, problem="there is no such object")
    except UnsupportedFormatError as err:
        return BrokenCommit(kind=FindingKind.NEWER_FORMAT, problem=err.problem)
    except CorruptError as err:
        return BrokenCommit(kind=FindingKind.DAMAGED_COMMIT, problem=err.problem)
    if record.commit.graph_commit_id != commit_id:
        problem = f"it holds another commit, {record.commit.graph_commit_id}"
        return BrokenCommit(kind=FindingKind.DIFFERENT_COMMIT, problem=problem)
    # gc writes `collected_at` into the object later, but not into the log entry.
    if expected is not None and replace(record, collected_at=None) != expected:
        problem = "it differs from the log entry that published it"
        return BrokenCommit(kind=FindingKind.DIFFERENT_COMMIT, problem=problem)
    return record


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Rebuilds commit objects from the log entries that published them."""

    _repo_store: RepoStore
    _inventory: Inventory

    def rebuild(self, commit_id: str) -> bool:
        """Write the object again. Return False if it cannot be rebuilt."""
        data = self.encode(commit_id)
        if data is None:
            return False
        self._repo_store.config.store.put(commit_path(commit_id), data)
        return True

    def encode(self, commit_id: str) -> bytes | None:
        """Return the bytes of the object, or None if a part of it is stored nowhere else."""
        where = self._inventory.published.get(commit_id)
        if where is None:
            return None
        record = self._repo_store.heads.get_numbered(BranchName(where[0]), where[1]).head
        full_map = None
        if record.base == commit_id:
            full_map = self._full_map(record, self._stored_map(commit_id))
            if full_map is None:
                return None
        # The log does not record that a commit was collected. The record of the collection does.
        collected = find_record(self._repo_store.config, commit_id)
        mark = {} if collected is None else {"collected_at": collected.at}
        return documents.dump({**codec.encode_commit(record, full_map), **mark})

    def _stored_map(self, commit_id: str) -> TableMap | None:
        """Return the full map of an object of which another part is wrong.

        Return None without a valid checksum: the damage may be in the map itself.
        """
        path = commit_path(commit_id)
        try:
            data = self._repo_store.config.store.get(path)
            fields = documents.load(data, path=path)
            with documents.damage_named(path):
                is_own = is_sealed(data) and fields["commit"]["graph_commit_id"] == commit_id
                return codec.decode_full_map(fields) if is_own else None
        except (CorruptError, NotFoundError):
            return None

    def _full_map(self, record: CommitRecord, stored: TableMap | None) -> TableMap | None:
        """Return all tables of a commit, or None if they cannot be determined.

        The unchanged tables come from the parent commit, the changed ones from the stored map or from a later full map.
        """
        parent, commits = record.commit.parent_commit_id, self._repo_store.commits
        if record.commit.kind is CommitKind.INIT:
            return {}
        # Some tables of a commit of a live branch are main's, not the parent's.
        if parent is None or record.has_tables_of_main:
            return stored
        try:
            tables = commits.tables_of(commits.get(parent))
            known = stored if stored is not None else self._later_map(record.commit)
        except AnabranchError:
            return stored
        changed = _changed_tables(record.commit)
        if known is None:
            return None if changed else tables
        return _with_states(tables, changed, known)

    def _later_map(self, commit: GraphCommit) -> TableMap | None:
        """Return the next full map after that of a commit, if it still has the states that the commit wrote."""
        commits = self._repo_store.commits
        changed = _changed_tables(commit)
        for commit_id, parent_id in self._iter_next_full_maps(commit.graph_commit_id):
            record = commits.get(commit_id)
            # The changes of the parent are all changes between the two full maps.
            between = () if parent_id == commit.graph_commit_id else commits.get(parent_id).changes
            touched = {*between, *_changed_tables(record.commit)}
            if not record.has_tables_of_main and touched.isdisjoint(changed):
                return commits.tables_of(record)
        return None

    def _iter_next_full_maps(self, base: str) -> Iterator[tuple[str, str]]:
        """Yield each intact commit with a full map whose parent builds on the full map of `base`, and the parent."""
        broken = self._inventory.broken.keys() - {base}
        for commit_id, facts in sorted(self._inventory.commits.items()):
            parent_id = facts.made_from[0] if facts.made_from else ""
            parent = self._inventory.commits.get(parent_id)
            # Its map without its own changes is that of its parent, which names what changed since the lost base.
            is_next = facts.base == commit_id and parent is not None and parent.base == base
            if is_next and broken.isdisjoint({commit_id, parent_id}):
                yield commit_id, parent_id


def _changed_tables(commit: GraphCommit) -> set[TableKey]:
    return {TableKey.parse(key) for key in commit.tables}


def _with_states(tables: TableMap, changed: set[TableKey], known: TableMap) -> TableMap:
    """Return a map of tables with the states that another map has for the changed ones."""
    unchanged = {key: entry for key, entry in tables.items() if key not in changed}
    return unchanged | {key: entry for key, entry in known.items() if key in changed}


def rebuild_entry(repo_store: RepoStore, checked: CheckedLog, number: int) -> bytes | None:
    """Return a lost log entry, or None if the entries before and after it do not determine it.

    The next entry must build on a commit that was published with this number on top of the previous entry, and the
    state of the branch must be the same in both.
    """
    before, after = _find_entry(checked, number - 1), _find_entry(checked, number + 1)
    # With two different states, the lost entry may have changed the state, and nothing else records how.
    if before is None or after is None or before.state != after.state:
        return None
    return _entry_after(before, _made_as(repo_store, after, number))


def rebuild_newest(repo_store: RepoStore, checked: CheckedLog, number: int, published: Collection[str]) -> bytes | None:
    """Return a damaged newest entry, given the commits that it published by other objects. None if it is ambiguous."""
    before = _find_entry(checked, number - 1)
    # The branch keeps the state of the entry before. With two candidates, a guess could change what it shows.
    if before is None or len(published) != 1:
        return None
    record = find_readable(repo_store, *published)
    if record is None or (record.commit.branch, record.commit.manifest_version) != (str(checked.branch), number):
        return None
    # Only the object of a commit records that it was collected, never a log entry.
    return _entry_after(before, replace(record, collected_at=None))


def _entry_after(before: LogEntry, record: CommitRecord | None) -> bytes | None:
    """Return the entry that published a commit on top of another entry, or None if it may have changed more."""
    # The entry may have changed the state of the branch, too, and no other object records how.
    if before.state.is_live or before.state.run is not None or before.state.is_deleted:
        return None
    if record is None or record.commit.kind in _UNUSUAL:
        return None
    commit = record.commit
    if commit.parent_commit_id != before.head.commit.graph_commit_id:
        return None
    event = BranchEvent.PULLED if commit.kind is CommitKind.PULL else BranchEvent.COMMITTED
    entry = replace(
        before,
        number=before.number + 1,
        event=event,
        at=commit.created_at,
        actor=commit.actor_id,
        head=record,
        restores=None,
    )
    return codec.encode_entry(entry)


def _made_as(repo_store: RepoStore, after: LogEntry, number: int) -> CommitRecord | None:
    """Return the commit that a lost entry published: the head of the next entry, or its parent."""
    here = (str(after.branch), number)
    for commit_id in (after.head.commit.graph_commit_id, after.head.commit.parent_commit_id):
        record = None if commit_id is None else find_readable(repo_store, commit_id)
        # A commit records the branch and the number of the entry that published it, so a wrong one cannot be taken.
        if record is not None and (record.commit.branch, record.commit.manifest_version) == here:
            return record
    return None


def _find_entry(checked: CheckedLog, number: int) -> LogEntry | None:
    """Return an entry of a branch if it is intact and belongs to this log."""
    data = checked.log.find(number) if number > 0 else None
    entry = None if data is None else checked.decode_own(data, number)
    return entry if isinstance(entry, LogEntry) else None


def diagnose_commits(repo_store: RepoStore, inventory: Inventory) -> Iterator[Case]:
    """Yield the problems of the commits in the inventory, with the refs that cannot be read because of them."""
    rebuilder, (commits, refs) = Rebuilder(repo_store, inventory), _find_users(inventory)
    for commit_id in sorted(inventory.broken):
        others = tuple(other for other in commits[commit_id] if other != commit_id)
        yield _broken_commit(inventory, rebuilder, commit_id, refs=tuple(sorted(refs[commit_id])), others=others)
    for commit_id, facts in sorted(inventory.commits.items()):
        yield from _wrong_order(inventory, commit_id, facts)


def _find_users(inventory: Inventory) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Return the commits, and the current branches, runs and tags, that build on each full map."""
    commits, refs = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for commit_id, facts in sorted(inventory.commits.items()):
        commits[facts.base].append(commit_id)
    for head in inventory.heads.values():
        if not head.state.is_deleted:
            # A live branch shows what is on top of the full map of main.
            refs[inventory.shown(head).base].append(head.branch.label)
    for name, tag in inventory.tags.items():
        known = inventory.commits.get(tag.commit_id)
        # A commit cannot be read without the base that has its full map.
        for needed in {tag.commit_id, tag.commit_id if known is None else known.base}:
            refs[needed].append(name)
    return commits, refs


def _broken_commit(
    inventory: Inventory, rebuilder: Rebuilder, commit_id: str, *, refs: tuple[str, ...], others: tuple[str, ...]
) -> Case:
    broken = inventory.broken[commit_id]
    kind, only_tags = broken.kind, commit_id not in inventory.named
    # No log names the commit, so that the tag is wrong rather than the history.
    if kind is FindingKind.MISSING_COMMIT and only_tags:
        kind = FindingKind.BROKEN_TAG
    # An object of a newer release is intact. Written again, it would lose what this release cannot read.
    can_repair = kind is not FindingKind.NEWER_FORMAT and rebuilder.encode(commit_id) is not None
    built_on = f"; {len(others)} other commits build on its tables" if others else ""
    if kind is FindingKind.BROKEN_TAG:
        remedy = "restore the commit from a backup, or delete the tag"
    elif kind is FindingKind.NEWER_FORMAT:
        remedy = "upgrade Anabranch"
    elif can_repair:
        remedy = "a repair writes it again from the log entry that published it"
    else:
        remedy = "restore it from a backup"
    return Case(
        kind=kind,
        subject=commit_path(commit_id),
        explanation=f"commit {commit_id} cannot be read: {broken.problem}{built_on}",
        remedy=remedy,
        refs=refs,
        commits=(commit_id, *others),
        repair=partial(rebuilder.rebuild, commit_id) if can_repair else None,
    )


def _check_full_maps(repo_store: RepoStore, inventory: Inventory) -> None:
    """Find full maps that differ from the parent commit in tables that the commit does not list as changed."""
    for commit_id, facts in sorted(inventory.commits.items()):
        if facts.base != commit_id or commit_id in inventory.broken:
            continue
        unexplained = _find_unexplained_tables(repo_store, inventory, commit_id)
        if unexplained:
            problem = f"it does not list {', '.join(unexplained[:3])} as changed, but has another state than its parent"
            inventory.add_broken(commit_id, BrokenCommit(kind=FindingKind.DIFFERENT_COMMIT, problem=problem))


def _find_unexplained_tables(repo_store: RepoStore, inventory: Inventory, commit_id: str) -> tuple[str, ...]:
    """Return the tables that differ from the parent commit and are not listed as changed."""
    record = repo_store.commits.get(commit_id)
    parent = record.commit.parent_commit_id
    # A commit on a live branch shows main's tables, so its map may differ from that of its parent.
    if parent is None or record.has_tables_of_main or parent in inventory.broken:
        return ()
    try:
        before = repo_store.commits.tables_of(repo_store.commits.get(parent))
    except AnabranchError:
        return ()  # the damage of the parent is a finding of its own
    after = repo_store.commits.tables_of(record)
    changed = set(record.commit.tables)
    return tuple(
        str(key) for key in sorted({*before, *after}) if before.get(key) != after.get(key) and str(key) not in changed
    )


def _wrong_order(inventory: Inventory, commit_id: str, facts: CommitFacts) -> Iterator[Case]:
    """Yield a case for each source of a commit that is not older than the commit."""
    for source in facts.made_from:
        before = inventory.commits.get(source)
        if before is None or source in inventory.broken or commit_id in inventory.broken:
            continue
        # Merge bases are found by generation. A commit that is not above its parents would be visited too early.
        if facts.generation > before.generation and facts.created_at >= before.created_at:
            continue
        yield Case(
            kind=FindingKind.WRONG_ORDER,
            subject=commit_path(commit_id),
            explanation=(
                f"commit {commit_id} (generation {facts.generation}, created at {facts.created_at}) is not later than"
                f" {source} (generation {before.generation}, created at {before.created_at}), from which it was made"
            ),
            remedy="restore the commit from a backup; until then, merges may choose a wrong base",
            commits=(commit_id,),
        )
