"""What lies beside logs and tables: the mark of the repository, leases, and names that nobody here gives."""

from collections.abc import Iterator

from anabranch.errors import (
    CorruptError,
    RepositoryNotFoundError,
    UnsupportedFormatError,
)
from anabranch.ids import MAIN
from anabranch.repo import history
from anabranch.repo.clones import CLONES
from anabranch.repo.commits import COMMITS
from anabranch.repo.context import BRANCHES, RUNS, TABLES, Context
from anabranch.repo.creation import MARK, Mark, check_repository, replace_mark
from anabranch.repo.doctor.findings import Case, FindingKind, RepositoryFinding, unknown_file
from anabranch.repo.doctor.seen import Seen
from anabranch.repo.gc.marks import GC
from anabranch.repo.leases import CLOCK, LEASES, store_time
from anabranch.repo.origins import ORIGIN, refuse_unfinished
from anabranch.repo.tags import TAGS
from anabranch.storage import find_object

__all__ = ["diagnose_leases", "diagnose_mark", "diagnose_names"]

# Pipelines keep their texts, and what failed steps said, beside what a repository itself has.
_OF_PIPELINES = ("_logs", "_pipelines")
_OWN = (BRANCHES, CLOCK, CLONES, COMMITS, GC, LEASES, MARK, ORIGIN, RUNS, TABLES, TAGS)
_KNOWN = frozenset({*_OWN, *history.HISTORY_TABLES, *_OF_PIPELINES})
# After one lease of silence work counts as dead; the others are for slow stores.
_DEAD_LEASES = 3


def diagnose_mark(context: Context, seen: Seen) -> Case | None:
    """Look at the object that says that there is a repository; raise if nothing else says so either."""
    kind, said, remedy = FindingKind.DAMAGED_MARK, "", ""
    try:
        check_repository(context)
    except UnsupportedFormatError as err:
        kind, said, remedy = FindingKind.NEWER_FORMAT, err.problem, "upgrade Anabranch; nothing else was looked at"
    except CorruptError as err:
        said = err.problem
    except RepositoryNotFoundError as err:
        if MAIN not in seen.heads:
            raise
        kind, said = FindingKind.MISSING_MARK, "there are logs, and nothing that says that they are a repository"
        remedy = _why_unfinished(context, err)
    else:
        return None
    can_mend = not remedy and MAIN in seen.heads
    finding = RepositoryFinding(
        kind=kind,
        subject=MARK,
        explanation=said,
        remedy=remedy or ("a repair writes it again, with a new id" if can_mend else "restore it from a backup"),
        refs=tuple(sorted(seen.heads)),
        repairable=can_mend,
    )
    return Case(finding=finding, mend=(lambda: _write_mark(context, seen)) if can_mend else None)


def _why_unfinished(context: Context, missing: RepositoryNotFoundError) -> str:
    """What to do about a clone that was cut off, which has no mark yet; nothing if it is no such clone."""
    try:
        refuse_unfinished(context)
    except RepositoryNotFoundError as err:
        return err.hint
    return "" if missing.problem else missing.hint


def _write_mark(context: Context, seen: Seen) -> bool:
    first = seen.heads[MAIN].state.created_at
    replace_mark(context, Mark(id=context.new_id(), root=context.root, created_at=first))
    return True


def diagnose_leases(context: Context) -> Iterator[Case]:
    """Find signs of life whose givers are long dead."""
    found = list(context.store.list(LEASES))
    if not found:
        return
    oldest = store_time(context) - context.lease * _DEAD_LEASES
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


def diagnose_names(context: Context, folders: list[str]) -> Iterator[Case]:
    """Say what has a name that nobody here gives: right below the root, and `folders` among the logs."""
    store = context.store
    top = {*store.list_folders(), *(info.path for info in store.list_files())}
    for path in sorted({*(top - _KNOWN), *folders}):
        yield unknown_file(path)
