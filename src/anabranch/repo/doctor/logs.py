"""Check every entry of the numbered logs, of branches, runs, tags, clones and the origin, and interrupted renames."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

from anabranch.errors import BusyError, CorruptError, UnsupportedFormatError
from anabranch.format.doctor.findings_and_repairs import Case, FindingKind, unknown_file
from anabranch.ids import MAIN, BranchName
from anabranch.repo.doctor.commits import inspect_commit, rebuild_entry, rebuild_newest
from anabranch.repo.doctor.inventory import CheckedLog, DamagedNewest, Inventory, StoredHistory, publishes
from anabranch.repo.log.config import RepoConfig, as_text, store_microseconds
from anabranch.repo.log.entries import BranchEvent, LogEntry
from anabranch.repo.log.numbered_log import BRANCHES
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.refs.branches import refuse_in_use
from anabranch.storage import in_parallel, put_once
from anabranch.storage.documents import is_torn

# The suffix of an entry that was set aside.
TORN = ".torn"
_REPAIR = BranchName("__repair__")


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files of a log: the numbers of its entries, its hint, and the paths of other files.

    If the `newest` entry is missing, the hint may have a valid copy of it.
    """

    numbers: frozenset[int]
    newest: int
    has_hint: bool
    hint: tuple[int, bytes] | None
    others: tuple[str, ...]


class _Timed(NamedTuple):
    """The number and the time of an intact entry."""

    number: int
    at: int


def scan_log(repo_store: RepoStore, inventory: Inventory, checked: CheckedLog) -> None:
    """Read every entry of a log, and the commits that they published."""
    listed = _list(checked)
    if not listed.numbers and not listed.has_hint:
        return  # the folder is empty
    numbers = range(1, listed.newest + 1)
    found = in_parallel(lambda number: _scan_entry(repo_store, inventory, checked, number, listed.newest), numbers)
    cases = _join_gaps([case for case in found if isinstance(case, Case)])
    timed = [entry for entry in found if isinstance(entry, _Timed)]
    cases += [*_wrong_order(checked, timed), *_future_times(repo_store.config, checked, timed)]
    unknown = [unknown_file(path) for path in listed.others if not path.endswith(TORN)]
    inventory.report([*cases, *_diagnose_hint(checked, listed), *unknown])


def _join_gaps(cases: list[Case]) -> list[Case]:
    """Return the cases, with one case for all missing entries that cannot be rebuilt."""
    gaps = [case for case in cases if case.kind is FindingKind.LOG_GAP and case.repair is None]
    if len(gaps) < 2:
        return cases
    # They have one cause and one remedy: a lost folder, or a part of it, is restored from a backup.
    one = replace(
        gaps[0],
        explanation=f"{gaps[0].explanation}, and {len(gaps) - 1} more",
        refs=tuple(chain.from_iterable(gap.refs for gap in gaps)),
        paths=tuple(gap.subject for gap in gaps),
    )
    return [one, *(case for case in cases if case not in gaps)]


def _wrong_order(checked: CheckedLog, entries: list["_Timed"]) -> Iterator[Case]:
    """Report entries that are older than the entry before them: a read by time would find the wrong entry."""
    for before, after in pairwise(entries):
        if after.at < before.at:
            yield Case(
                kind=FindingKind.WRONG_ORDER,
                subject=checked.log.path(after.number),
                explanation=f"entry {after.number} of {checked.label} is older than entry {before.number}",
                remedy="none: read these states by version number instead of by time",
            )


def _future_times(config: RepoConfig, checked: CheckedLog, entries: list["_Timed"]) -> Iterator[Case]:
    """Report entries whose time is in the future. The store's clock is read only if the local clock finds any."""
    tolerance = int((config.clock_tolerance or timedelta(0)) / timedelta(microseconds=1))
    future = [entry for entry in entries if entry.at > config.clock() + tolerance]
    # The local clock may be behind. Only the clock of the store decides, because all writers are compared with it.
    if not future or future[-1].at <= store_microseconds(config) + tolerance:
        return
    yield Case(
        kind=FindingKind.FUTURE_TIME,
        subject=checked.log.path(future[0].number),
        explanation=(
            f"{len(future)} entries of {checked.label}, from number {future[0].number} on, are dated in the future,"
            f" up to {as_text(future[-1].at)}: the clock of a writer was ahead"
        ),
        remedy="correct the clock of that machine; until that time, new commits on top get the same time",
        paths=tuple(checked.log.path(entry.number) for entry in future),
    )


def _list(checked: CheckedLog) -> _Listed:
    # Read the hint before the listing: then the entry that it copies must be in the listing.
    hint, is_used = checked.log.find_hint(), not checked.log.store.lists_sorted
    numbers, others, has_hint = set[int](), list[str](), False
    for info in checked.log.store.list(checked.log.folder):
        number = checked.log.number_of(info.path)
        if number is not None:
            numbers.add(number)
        elif info.path == checked.log.hint_path:
            has_hint = is_used
        else:
            others.append(info.path)
    newest = max(numbers, default=0)
    # A hint ahead of its log is evidence only if it is used, and holds the entry itself, intact and of this log.
    if hint is not None and hint[0] > newest and checked.find_copy(hint[0]):
        newest = hint[0]
    return _Listed(frozenset(numbers), newest, has_hint, hint if is_used else None, tuple(others))


def _scan_entry(
    repo_store: RepoStore, inventory: Inventory, checked: CheckedLog, number: int, newest: int
) -> Case | _Timed | None:
    """Read one entry into the inventory. Return its time, or the case of its damage."""
    data = checked.log.find(number)
    if data is None:
        problem = f"entry {number} of {checked.label} is missing"
        return _lost_entry(repo_store, checked, number, newest, kind=FindingKind.LOG_GAP, problem=problem)
    try:
        entry = checked.decode(data, number)
    # Handled before its base class CorruptError: an entry of a newer release is intact and must not be rebuilt.
    except UnsupportedFormatError as err:
        return Case(
            kind=FindingKind.NEWER_FORMAT,
            subject=checked.log.path(number),
            explanation=err.problem,
            remedy="upgrade Anabranch",
            refs=checked.refs(number, newest),
        )
    except CorruptError as err:
        problem = f"entry {number} of {checked.label} cannot be read: {err.problem}"
        case = _lost_entry(repo_store, checked, number, newest, kind=FindingKind.DAMAGED_ENTRY, problem=problem)
        # A torn entry was never acknowledged and can be set aside, a published one cannot. Other objects decide that,
        # and they are not all read yet.
        if case.repair is None and number == newest:
            inventory.add_damaged_newest(DamagedNewest(case, checked, number, data))
            return None
        return case
    if not checked.is_own(entry, number):
        problem = f"the file of entry {number} of {checked.label} contains another entry"
        return _lost_entry(repo_store, checked, number, newest, kind=FindingKind.MISPLACED_ENTRY, problem=problem)
    inventory.add_entry(entry, is_newest=number == newest)
    if not isinstance(entry, LogEntry):
        return None
    if publishes(entry):
        inspect_commit(repo_store, inventory, entry.head.commit.graph_commit_id, entry.head)
    return _Timed(number, entry.at)


def _lost_entry(
    repo_store: RepoStore, checked: CheckedLog, number: int, newest: int, *, kind: FindingKind, problem: str
) -> Case:
    """Return the case of an entry that is missing or wrong.

    A repair may rebuild the entry, but never remove it: it is the commit point of its commit.
    """
    # Prefer the copy, which is exact. An entry that is rebuilt from its neighbours lacks the facts that only it had.
    data = checked.find_copy(number)
    if data is None and checked.branch is not None:
        data = rebuild_entry(repo_store, checked, number)
    return Case(
        kind=kind,
        subject=checked.log.path(number),
        explanation=problem,
        remedy=(
            "restore it from a backup; do not delete it, or the next writer would reuse its number"
            if data is None
            else "a repair writes it again from a copy, or from the entries before and after it"
        ),
        refs=checked.refs(number, newest),
        repair=None if data is None else partial(_put_entry, checked, number, data),
    )


def _set_aside(config: RepoConfig, checked: CheckedLog, number: int, data: bytes) -> bool:
    """Move a torn newest entry to a name that is not an entry's, so that the one before it is the newest again."""
    path = checked.log.path(number)
    # Deletes are unconditional: a second repair must not remove what a writer has put here after the first.
    with config.leases.working_alone(_REPAIR, doing="a repository is being repaired"):
        if checked.log.find(number) != data or checked.log.find(number + 1) is not None:
            return False
        checked.log.store.put(f"{path}.{config.new_id()}{TORN}", data)
        checked.log.store.delete(path)
    return True


def _put_entry(checked: CheckedLog, number: int, data: bytes) -> bool:
    """Write an entry if it is missing or unreadable. Return False if it is intact."""
    there = checked.log.find(number)
    if there is None:
        return put_once(checked.log.store, checked.log.path(number), data)
    if checked.decode_own(there, number) is not None:
        return False  # another process has repaired it
    checked.log.store.put(checked.log.path(number), data)
    return True


def _diagnose_hint(checked: CheckedLog, listed: _Listed) -> Iterator[Case]:
    """Check the hint of a log, which is a copy of its newest entry on stores without sorted listings."""
    if not listed.has_hint:
        return
    kind, problem = FindingKind.DAMAGED_HINT, "is damaged, and therefore not used"
    if listed.hint is not None:
        number, copied = listed.hint
        data = checked.log.find(number)
        if number in listed.numbers and data == copied:
            return
        if checked.find_copy(number) and (data is None or checked.decode_own(data, number) is None):
            return  # the entry itself is damaged or missing, and is repaired from this copy
        kind = FindingKind.WRONG_HINT
        problem = f"is not a copy of entry {number}, so readers may see a wrong newest entry"
    yield Case(
        kind=kind,
        subject=checked.log.hint_path,
        explanation=f"the hint beside the log of {checked.label} {problem}",
        remedy="a repair writes it again from the log",
        refs=(checked.name,) if kind is FindingKind.WRONG_HINT else (),
        repair=partial(_rewrite_hint, checked, listed.newest),
    )


def _rewrite_hint(checked: CheckedLog, newest: int) -> None:
    data = checked.log.find(newest)
    if data is not None and checked.decode_own(data, newest) is not None:
        checked.log.write_hint(newest, data)
    else:
        checked.log.store.delete(checked.log.hint_path)  # a log without a hint can be read


def diagnose_branches(repo_store: RepoStore, inventory: Inventory, stored: StoredHistory) -> list[Case]:
    """Return the problems of the logs. If main cannot be read, live branches cannot be read either."""
    cases = [*inventory.cases, *_diagnose_damaged_newest(repo_store, inventory, stored)]
    if MAIN not in inventory.heads and not any(MAIN in case.refs for case in cases):
        missing = Case(
            kind=FindingKind.MISSING_BRANCH,
            subject=f"{BRANCHES}/{MAIN}",
            explanation="branch 'main' has no log",
            remedy="restore the folder from a backup",
            refs=(MAIN,),
        )
        cases.append(missing)
    live = {name for name, head in inventory.heads.items() if head.state.is_live and not head.state.is_deleted}
    return [replace(case, refs=tuple(sorted({*case.refs, *live}))) if MAIN in case.refs else case for case in cases]


def _diagnose_damaged_newest(repo_store: RepoStore, inventory: Inventory, stored: StoredHistory) -> Iterator[Case]:
    """Report damaged newest entries. They cannot be rebuilt from a later entry.

    If another object names the commit that such an entry published, the entry is rebuilt from the commit. Otherwise
    it is set aside if it is torn, and not changed if it is complete.
    """
    for case, checked, number, torn in inventory.damaged_newest:
        published = _published_as(inventory, stored, str(checked.branch), number)
        if published and checked.branch is not None:
            data = rebuild_newest(repo_store, checked, number, published)
            if data is not None:
                remedy = "a repair writes it again from the commit that it published"
                case = replace(case, remedy=remedy, repair=partial(_put_entry, checked, number, data))
            yield case
        # Writers give an entry its name only after its bytes are complete and synced. So a torn newest entry was never
        # acknowledged as durable, and nothing depends on it. A damaged entry that is complete was acknowledged, and
        # stays. So does a registration of a clone, because the clone may be on another disk and need the files.
        elif (checked.is_tag or checked.branch is not None) and is_torn(torn):
            yield replace(
                case,
                kind=FindingKind.TORN_ENTRY,
                explanation=f"{case.explanation}; a power loss cut it off before it was acknowledged",
                remedy=f"a repair renames it to end in '{TORN}'; the entry before it is the newest again",
                repair=partial(_set_aside, repo_store.config, checked, number, torn),
            )
        else:
            yield case


def _published_as(inventory: Inventory, stored: StoredHistory, branch: str, number: int) -> frozenset[str]:
    """Return the commits that an entry published, by the inventory and the history tables."""
    named = {key for key, facts in inventory.commits.items() if (facts.branch, facts.version) == (branch, number)}
    # No later entry names the commit of the newest one, but the history tables may.
    for row in [] if stored.commits is None else stored.commits.to_pylist():
        if (row["manifest_branch"] or MAIN, row["manifest_version"]) == (branch, number):
            named.add(row["graph_commit_id"])
    return frozenset(named)


def diagnose_renames(repo_store: RepoStore, inventory: Inventory) -> Iterator[Case]:
    """Yield the renames that were interrupted: the new name exists, and the old one has no tombstone."""
    for head in inventory.heads.values():
        if head.state.is_deleted or head.renamed_from is None:
            continue  # after the first change under its name it is a branch like others
        former = head.state.former_names[-1]
        old = inventory.heads.get(str(former.branch))
        if old is None or old.state.is_deleted or old.state.created_as != former.created_as:
            continue
        yield Case(
            kind=FindingKind.UNFINISHED_RENAME,
            subject=repo_store.config.branch_log(head.branch).path(head.number),
            explanation=f"a rename of branch '{old.branch}' to '{head.branch}' was interrupted, and both exist",
            remedy=f"a repair deletes '{head.branch}', on which nothing was changed; then rename '{old.branch}' again",
            repair=partial(_undo_rename, repo_store, head),
        )


def _undo_rename(repo_store: RepoStore, head: LogEntry) -> bool:
    """Delete the new name, unless it was changed or the rename has finished since the scan."""
    former = head.state.former_names[-1]

    def is_finished() -> bool:
        old = repo_store.heads.find(former.branch)
        return old is None or old.state.find_rename(former.created_as) is not None

    def tombstone(newest: LogEntry) -> LogEntry | None:
        if newest != head or is_finished():
            return None
        refuse_in_use(repo_store, head.branch)
        return repo_store.heads.next_entry(newest, BranchEvent.DELETED, is_deleted=True)

    def verify(_: LogEntry) -> None:
        # The rename may still be in progress. It puts the tombstone of the old name first, and reads the new name
        # then. This function does both in the opposite order, so that at least one of the two sees the other and rolls
        # back.
        if is_finished():
            raise BusyError(f"the rename to '{head.branch}' has just finished", hint="nothing is left to repair")
        refuse_in_use(repo_store, head.branch)

    return repo_store.heads.move(head.branch, tombstone, verify=verify).state.is_deleted
