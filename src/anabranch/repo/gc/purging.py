"""Delete at once what a deleted branch alone had."""

import re
from datetime import timedelta

from anabranch.format.names import branch_of_ref_path
from anabranch.format.reach import Wanted, find_reach
from anabranch.ids import BranchName
from anabranch.repo.context import TABLES
from anabranch.repo.gc.collecting import list_collected, record_collected
from anabranch.repo.gc.marks import mark_collected, unmark_collected
from anabranch.repo.gc.policy import Policy
from anabranch.repo.gc.removing import being_removed
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.wanted import find_wanted
from anabranch.repo.history import commits_since
from anabranch.repo.leases import store_time
from anabranch.repo.models import CommitRecord, LogEntry
from anabranch.repo.records import Records
from anabranch.repo.tables import owns
from anabranch.storage import in_parallel

__all__ = ["purge_branch"]


def purge_branch(records: Records, tombstone: LogEntry) -> int:
    """Free the space of a deleted branch without any grace: whoever reads it now fails. The bytes freed.

    What a tag, a clone or another branch took from it is kept. Work that was about to publish on it is refused there.
    """
    branch, context = tombstone.branch, records.context
    made = {commit.graph_commit_id for commit in commits_since(records, tombstone, version=0)}
    if not made:
        return 0  # nobody wrote to it, and there is no need to ask who else has what
    collected = list_collected(context)
    doomed = sorted(made - _roots(records).retained - collected)
    now = context.clock()
    in_parallel(lambda commit_id: mark_collected(context, commit_id, at=now), doomed)
    roots = _roots(Records.of(context)).without(collected)  # who took one up meanwhile keeps it
    taken_up = [commit_id for commit_id in doomed if commit_id in roots.retained]
    in_parallel(lambda commit_id: unmark_collected(context, commit_id), taken_up)
    gone = frozenset(doomed) - roots.retained
    record_collected(context, gone, at=now)
    # A garbage collection that did not know of the record yet may have taken the marks for those of one that died.
    in_parallel(lambda commit_id: mark_collected(context, commit_id, at=now), sorted(gone))
    datasets = _own_datasets(records, branch, [records.commits.get(commit_id) for commit_id in sorted(made)])
    wanted = find_wanted(records, roots, _commits_since(records, roots, tombstone.state.created_at))
    return sum(_purge_table(records, tombstone, name, wanted.get(name, Wanted())) for name in sorted(datasets))


def _roots(records: Records) -> Roots:
    # Nothing counts that was reachable until a moment ago: the branch itself was.
    return find_roots(records, Policy(), horizon=store_time(records.context) + timedelta(days=1))


def _own_datasets(records: Records, branch: BranchName, commits: list[CommitRecord]) -> set[str]:
    """The datasets in which a branch has had a home."""
    entries = [entry for record in commits for entry in record.changes.values() if entry is not None]
    bases = {record.base for record in commits} & {record.commit.graph_commit_id for record in commits}
    for record in commits:
        if record.commit.graph_commit_id in bases:
            entries += records.commits.tables_of(record).values()
    return {entry.dataset for entry in entries if owns(branch, entry.home)}


def _commits_since(records: Records, roots: Roots, created_at: int) -> list[CommitRecord]:
    """The retained commits that may name a home of a branch: none that was made before it."""
    late = [found for found in roots.retained if roots.created_at.get(found, created_at) >= created_at]
    return in_parallel(records.commits.get, sorted(late))


def _purge_table(records: Records, tombstone: LogEntry, dataset: str, wanted: Wanted) -> int:
    context = records.context
    with being_removed(context, dataset):
        root, far = context.dataset_root(dataset), store_time(context) + timedelta(days=1)
        reach = find_reach(root, wanted, horizon=far)
        if reach.missing:
            return 0  # something is wrong already, and what seems dead may be what it takes to mend it
        is_gone = not reach.is_needed and _is_made_on(records, tombstone, dataset)
        dead = [file for file in reach.dead if is_gone or _is_of(tombstone.branch, file.path)]
        for rank in sorted({file.rank for file in dead}):
            paths = [f"{TABLES}/{dataset}/{file.path}" for file in dead if file.rank == rank]
            in_parallel(context.store.delete, paths)
        root.forget()
    return sum(file.size for file in dead)


def _is_made_on(records: Records, tombstone: LogEntry, dataset: str) -> bool:
    """Whether a dataset was made for a table of this branch, and no other branch is just making one there."""
    store, log = records.context.store, records.context.branch_log(tombstone.branch)
    folder = f"{TABLES}/{dataset}"
    there = list(store.list(folder))
    manifests = [info for info in there if info.path.endswith(".manifest")]
    others = [info for info in manifests if not _is_of(tombstone.branch, info.path.removeprefix(f"{folder}/"))]
    if not others:
        # A purge that was cut off took them; what came since the end of the branch is somebody else's.
        ended = store.head(log.path(tombstone.number)).modified
        return all(info.modified <= ended for info in there)
    began = store.head(log.path(tombstone.state.created_as)).modified
    return len(others) == 1 and others[0].modified >= began


def _is_of(branch: BranchName, path: str) -> bool:
    """Whether a file lies in a home of a branch, or is the ref of one."""
    home = branch_of_ref_path(path)
    if home is None:
        # The homes of branch 'dev/x' lie below those of 'dev', but are not named by a ULID there.
        match = re.match(rf"tree/({re.escape(str(branch))}/[0-9A-HJKMNP-TV-Z]{{26}})/", path)
        home = None if match is None else match[1]
    return home is not None and owns(branch, home)
