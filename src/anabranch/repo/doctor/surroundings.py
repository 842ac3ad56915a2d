"""What lies beside logs and tables: the mark of the repository, leases, and names that nobody here gives."""

from collections.abc import Iterator
from functools import partial

from anabranch.errors import (
    CorruptError,
    ObjectNotFoundError,
    RepositoryNotFoundError,
    UnsupportedFormatError,
)
from anabranch.ids import MAIN
from anabranch.repo.doctor.findings import Case, FindingKind, RepositoryFinding, unknown_file
from anabranch.repo.doctor.seen import Seen
from anabranch.repo.leases.leases import LEASES
from anabranch.repo.log import history_tables
from anabranch.repo.log.clones import CLONES
from anabranch.repo.log.collected import COPY, GC, RECORD, decode_record
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import BRANCHES, RUNS, TABLES, RepoConfig
from anabranch.repo.log.creation import (
    MARK,
    MARK_COPY,
    Mark,
    check_repository,
    find_mark_copy,
    replace_mark,
    write_mark_copy,
)
from anabranch.repo.log.origins import ORIGIN, refuse_unfinished
from anabranch.repo.refs.tags import TAGS
from anabranch.storage import find_object
from anabranch.storage.clock import CLOCK, store_time

__all__ = ["diagnose_leases", "diagnose_mark", "diagnose_names", "diagnose_records"]

# Pipelines keep their texts, and what failed steps said, beside what a repository itself has.
_OF_PIPELINES = ("_logs", "_pipelines")
_OWN = (BRANCHES, CLOCK, CLONES, COMMITS, GC, LEASES, MARK, MARK_COPY, ORIGIN, RUNS, TABLES, TAGS)
_KNOWN = frozenset({*_OWN, *history_tables.HISTORY_TABLES, *_OF_PIPELINES})
# After one lease of silence work counts as dead; the others are for slow stores.
_DEAD_LEASES = 3


def diagnose_mark(context: RepoConfig, seen: Seen) -> Case | None:
    """Check the object that makes the folder a repository; raise if nothing else shows that there is one."""
    kind, problem, remedy = FindingKind.DAMAGED_MARK, "", ""
    try:
        mark = check_repository(context)
    except UnsupportedFormatError as err:
        kind, problem, remedy = FindingKind.NEWER_FORMAT, err.problem, "upgrade Anabranch; nothing else was checked"
    except CorruptError as err:
        problem = err.problem
    except RepositoryNotFoundError:
        if MAIN not in seen.heads:
            raise
        kind, problem = FindingKind.MISSING_MARK, "there are logs, but no object that marks them as a repository"
        remedy = _why_unfinished(context)
    else:
        return _mark_copy(context, mark)
    copy = find_mark_copy(context)
    can_repair = not remedy and MAIN in seen.heads
    if can_repair:
        remedy = "a repair restores it from its copy" if copy else "a repair writes it again, with a new id"
    finding = RepositoryFinding(
        kind=kind,
        subject=MARK,
        explanation=problem,
        remedy=remedy or "restore it from a backup",
        refs=tuple(sorted(seen.heads)),
        repairable=can_repair,
    )
    return Case(finding=finding, mend=(lambda: _write_mark(context, seen, copy)) if can_repair else None)


def _mark_copy(context: RepoConfig, mark: Mark) -> Case | None:
    """Check the copy of the mark. A repository of an earlier release has none, and gets one."""
    if find_mark_copy(context) == mark:
        return None

    def write() -> bool:
        write_mark_copy(context, mark)
        return True

    is_missing = find_object(context.store, MARK_COPY) is None
    finding = RepositoryFinding(
        kind=FindingKind.DAMAGED_COPY,
        subject=MARK_COPY,
        explanation=f"the copy of {MARK} is {'missing' if is_missing else 'damaged or out of date'}",
        remedy="a repair writes it again",
        repairable=True,
    )
    return Case(finding=finding, mend=write)


def _why_unfinished(context: RepoConfig) -> str:
    """Return how to continue a clone that was cut off, which has no mark yet; empty if this is not such a clone."""
    try:
        refuse_unfinished(context)
    except RepositoryNotFoundError as err:
        return err.hint
    return ""


def _write_mark(context: RepoConfig, seen: Seen, copy: Mark | None) -> bool:
    created_at = seen.heads[MAIN].state.created_at
    # Without a copy the id is lost. Only unfinished clones compare it, and they begin again.
    replace_mark(context, copy or Mark(id=context.new_id(), root=context.root, created_at=created_at))
    return True


def diagnose_records(context: RepoConfig) -> Iterator[Case]:
    """Check the records of which commits were collected: without one of them, no collection runs."""
    for info in context.store.list(GC):
        if not info.path.endswith((RECORD, COPY)):
            continue
        problem = _record_problem(context, info.path)
        if problem is None:
            continue
        is_copy = info.path.endswith(COPY)
        other = info.path.removesuffix(COPY) + RECORD if is_copy else info.path.removesuffix(RECORD) + COPY
        can_repair = _record_problem(context, other) is None
        finding = RepositoryFinding(
            kind=FindingKind.DAMAGED_COPY if is_copy else FindingKind.DAMAGED_RECORD,
            subject=info.path,
            explanation=f"it records which commits were collected: {problem}",
            remedy="a repair restores it from its copy" if can_repair else "restore it from a backup",
            repairable=can_repair,
        )
        yield Case(finding=finding, mend=partial(_copy_record, context, other, info.path) if can_repair else None)


def _record_problem(context: RepoConfig, path: str) -> str | None:
    try:
        decode_record(context.store.get(path), path=path)
    except (CorruptError, ObjectNotFoundError, UnsupportedFormatError) as err:
        return err.problem
    return None


def _copy_record(context: RepoConfig, source: str, target: str) -> bool:
    context.store.put(target, context.store.get(source))
    return True


def diagnose_leases(context: RepoConfig) -> Iterator[Case]:
    """Find signs of life whose givers are long dead."""
    found = list(context.store.list(LEASES))
    if not found:
        return
    oldest = store_time(context.store) - context.lease * _DEAD_LEASES
    dead = tuple(sorted(info.path for info in found if info.modified < oldest))
    if not dead:
        return

    def mend() -> bool:
        for path in dead:
            there = find_object(context.store, path)
            if there is not None and there.modified < oldest:
                context.store.delete(path)
        return True

    finding = RepositoryFinding(
        kind=FindingKind.DEAD_LEASE,
        subject=dead[0],
        explanation=f"{len(dead)} signs of life of processes that ended without taking them back",
        remedy="a repair removes them; they hold nobody up",
        paths=dead,
        repairable=True,
    )
    yield Case(finding=finding, mend=mend)


def diagnose_names(context: RepoConfig, folders: list[str]) -> Iterator[Case]:
    """Say what has a name that nobody here gives: right below the root, and `folders` among the logs."""
    store = context.store
    top = {*store.list_folders(), *(info.path for info in store.list_files())}
    for path in sorted({*(top - _KNOWN), *folders}):
        yield unknown_file(path)
