"""Every numbered log, entry by entry: those of branches, of runs, and of tags."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from urllib.parse import unquote

from anabranch.errors import AnabranchError, CorruptError, InvalidNameError, UnsupportedFormatError
from anabranch.ids import MAIN, BranchName
from anabranch.repo.doctor.commits import look_at_object
from anabranch.repo.doctor.findings import Case, FindingKind, RepositoryFinding, unknown_file
from anabranch.repo.doctor.history_tables import ToldHistory
from anabranch.repo.doctor.rebuilding import Entry, OtherEntry, find_copy, rebuild_entry, rebuild_newest
from anabranch.repo.doctor.seen import Seen, name_of
from anabranch.repo.log import codec
from anabranch.repo.log.clocks import as_text, store_microseconds
from anabranch.repo.log.clones import CLONES
from anabranch.repo.log.config import BRANCHES, RUNS, RepoConfig
from anabranch.repo.log.entries import BranchMode, LogEntry
from anabranch.repo.log.numbered import NumberedLog
from anabranch.repo.log.origins import ORIGIN
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.tags import TAGS, TagInfo, decode_tag
from anabranch.storage import documents, in_parallel, put_once
from anabranch.storage.documents import is_torn

__all__ = ["LogPlace", "diagnose_branches", "list_logs", "look_at_log"]

# The end of the name of an entry that was set aside.
TORN = ".torn"
_REPAIR = BranchName("__repair__")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """One log, what people call it, and whose it is: a branch's (runs have hidden ones), a tag's, or another one."""

    log: NumberedLog
    label: str
    name: str
    branch: BranchName | None = None
    is_tag: bool = False

    @classmethod
    def of_branch(cls, log: NumberedLog, branch: BranchName) -> "LogPlace":
        name = name_of(branch)
        label = name if branch.run_id is not None else f"branch '{name}'"
        return cls(log=log, label=label, name=name, branch=branch)

    def decode(self, data: bytes, number: int) -> Entry:
        path = self.log.path(number)
        if self.is_tag:
            return decode_tag(data, path=path)
        if self.branch is not None:
            return codec.decode_entry(data, path=path)
        fields = documents.load(data, path=path)
        with documents.damage_named(path):
            return OtherEntry(number=int(fields["number"]))

    def is_own(self, entry: Entry, number: int) -> bool:
        """Whether an entry says that it is the one of this log and number."""
        match entry:
            case LogEntry():
                return (entry.branch, entry.number) == (self.branch, number)
            case TagInfo():
                return (entry.name, entry.number) == (self.name, number)
            case OtherEntry():
                return entry.number == number

    def refs(self, number: int, newest: int) -> tuple[str, ...]:
        """What cannot be read without an entry."""
        if self.branch is None and not self.is_tag:
            return ()
        if number == newest:
            return (self.name,)
        is_public = self.branch is not None and not self.branch.is_internal
        return (f"{self.name}@v{number}",) if is_public else ()


def list_logs(context: RepoConfig) -> tuple[list[LogPlace], list[str]]:
    """The logs there are, and folders among them whose names are none that logs have."""
    logs, strangers = [], []
    for folder in (BRANCHES, RUNS, TAGS, CLONES):
        for path in sorted(context.store.list_folders(folder)):
            try:
                logs.append(_place_of(NumberedLog(context.store, path), folder, path.rpartition("/")[2]))
            except InvalidNameError:
                strangers.append(path)
    origin = NumberedLog(context.store, ORIGIN)
    return [*logs, LogPlace(log=origin, label="where this clone came from", name=ORIGIN)], strangers


def _place_of(log: NumberedLog, folder: str, name: str) -> LogPlace:
    if folder == BRANCHES:
        return LogPlace.of_branch(log, BranchName(unquote(name)))
    if folder == RUNS:
        return LogPlace.of_branch(log, BranchName.of_run(name))
    if folder == TAGS:
        return LogPlace(log=log, label=f"tag '{name}'", name=name, is_tag=True)
    return LogPlace(log=log, label=f"clone {name}", name=name)


@dataclass(frozen=True, slots=True)
class _Listed:
    numbers: frozenset[int]
    has_hint: bool
    hint: tuple[int, bytes] | None
    others: tuple[str, ...]

    @property
    def newest(self) -> int:
        return max(self.numbers, default=0)


@dataclass(frozen=True, slots=True)
class _Timed:
    """An entry that is whole, and when it was made."""

    number: int
    at: int


@dataclass(frozen=True, slots=True)
class _Unclear:
    """A damaged newest entry, and how to set it aside if it is torn."""

    case: Case
    place: LogPlace
    number: int
    set_aside: Callable[[], bool] | None


def look_at_log(records: RepoStore, seen: Seen, place: LogPlace) -> None:
    """Read every entry of a log, and the commits that they published."""
    listed = _list(place)
    if not listed.numbers and not listed.has_hint:
        return  # a folder that became empty
    newest = _true_newest(place, listed)
    found = in_parallel(lambda number: _look_at_entry(records, seen, place, number, newest), range(1, newest + 1))
    cases = _with_gaps_as_one([case for case in found if isinstance(case, Case)])
    timed = [entry for entry in found if isinstance(entry, _Timed)]
    cases += [*_wrong_order(place, timed), *_future_times(records.context, place, timed)]
    seen.report([*cases, *_diagnose_hint(place, listed, newest), *_unknown_files(listed)])


def _with_gaps_as_one(cases: list[Case]) -> list[Case]:
    """The same cases, with one for all entries that are missing and cannot be written again."""
    gaps = [case.finding for case in cases if case.finding.kind is FindingKind.LOG_GAP and case.mend is None]
    if len(gaps) < 2:
        return cases
    one = replace(
        gaps[0],
        explanation=f"{gaps[0].explanation}, and {len(gaps) - 1} more",
        refs=tuple(ref for gap in gaps for ref in gap.refs),
        paths=tuple(gap.subject for gap in gaps),
    )
    return [Case(finding=one), *(case for case in cases if case.finding not in gaps)]


def _wrong_order(place: LogPlace, entries: list["_Timed"]) -> Iterator[Case]:
    """Entries that are older than those before them: whoever asks for a time looks between the wrong ones."""
    for before, after in pairwise(entries):
        if after.at < before.at:
            finding = RepositoryFinding(
                kind=FindingKind.WRONG_ORDER,
                subject=place.log.path(after.number),
                explanation=f"entry {after.number} of {place.label} is older than entry {before.number}",
                remedy="none: ask for versions by number where times go wrong",
            )
            yield Case(finding=finding)


def _future_times(context: RepoConfig, place: LogPlace, entries: list["_Timed"]) -> Iterator[Case]:
    """Report entries whose time is still to come; the store is asked for its time only if there are any."""
    tolerance = int((context.clock_tolerance or timedelta(0)) / timedelta(microseconds=1))
    future = [entry for entry in entries if entry.at > context.clock() + tolerance]
    if not future or future[-1].at <= store_microseconds(context) + tolerance:
        return
    finding = RepositoryFinding(
        kind=FindingKind.FUTURE_TIME,
        subject=place.log.path(future[0].number),
        explanation=(
            f"{len(future)} entries of {place.label}, from number {future[0].number} on, are dated in the future, up to"
            f" {as_text(future[-1].at)}: the clock of a writer was ahead"
        ),
        remedy="correct the clock of that machine; until that time, new commits on top get the same time",
        paths=tuple(place.log.path(entry.number) for entry in future),
    )
    yield Case(finding=finding)


def _list(place: LogPlace) -> _Listed:
    # The hint is read first: whatever it copies is then in the listing.
    hint = place.log.find_hint()
    paths = [info.path for info in place.log.store.list(place.log.folder)]
    numbered = {path: place.log.number_of(path) for path in paths}
    others = tuple(path for path, number in numbered.items() if number is None and path != place.log.hint_path)
    numbers = frozenset(number for number in numbered.values() if number is not None)
    is_used = not place.log.store.lists_sorted
    return _Listed(numbers, is_used and place.log.hint_path in paths, hint if is_used else None, others)


def _true_newest(place: LogPlace, listed: _Listed) -> int:
    """The number up to which there should be entries: a whole copy beside the log tells of one that is gone."""
    if listed.hint is None or listed.hint[0] <= listed.newest:
        return listed.newest
    return listed.hint[0] if find_copy(place.log, place.is_own, place.decode, listed.hint[0]) else listed.newest


def _look_at_entry(records: RepoStore, seen: Seen, place: LogPlace, number: int, newest: int) -> Case | _Timed | None:
    data = place.log.find(number)
    if data is None:
        said = f"entry {number} of {place.label} is missing"
        return _lost(records, place, number, newest, kind=FindingKind.LOG_GAP, said=said)
    try:
        entry = place.decode(data, number)
    except UnsupportedFormatError as err:
        finding = RepositoryFinding(
            kind=FindingKind.NEWER_FORMAT,
            subject=place.log.path(number),
            explanation=err.problem,
            remedy="upgrade Anabranch",
            refs=place.refs(number, newest),
        )
        return Case(finding=finding)
    except CorruptError as err:
        said = f"entry {number} of {place.label} cannot be read: {err.problem}"
        case = _lost(records, place, number, newest, kind=FindingKind.DAMAGED_ENTRY, said=said)
        if case.mend is None and number == newest:
            can_set_aside = _can_be_set_aside(place, data)
            set_aside = partial(_set_aside, records.context, place, number, data) if can_set_aside else None
            seen.add_unclear(_Unclear(case, place, number, set_aside))
            return None
        return case
    if not place.is_own(entry, number):
        said = f"entry {number} of {place.label} is another one, put in its place"
        return _lost(records, place, number, newest, kind=FindingKind.MISPLACED_ENTRY, said=said)
    _take_in(records, seen, entry, is_newest=number == newest)
    return _Timed(number, entry.at) if isinstance(entry, LogEntry) else None


def _take_in(records: RepoStore, seen: Seen, entry: Entry, *, is_newest: bool) -> None:
    if isinstance(entry, TagInfo) and is_newest and not entry.is_deleted:
        seen.add_tag(entry)
    if not isinstance(entry, LogEntry):
        return
    commit = entry.head.commit
    publishes = (commit.branch, commit.manifest_version) == (str(entry.branch), entry.number)
    seen.add_entry(entry, publishes=publishes)
    if publishes:
        look_at_object(records, seen, commit.graph_commit_id, entry.head)
    if is_newest:
        seen.add_head(entry)


def _lost(records: RepoStore, place: LogPlace, number: int, newest: int, *, kind: FindingKind, said: str) -> Case:
    """An entry that is gone or wrong. It is the commit point of what it said, so that it is never just removed."""
    data = find_copy(place.log, place.is_own, place.decode, number)
    if data is None and place.branch is not None:
        data = rebuild_entry(records, place.log, place.branch, number)
    finding = RepositoryFinding(
        kind=kind,
        subject=place.log.path(number),
        explanation=said,
        remedy=(
            "restore it from a backup; never remove it, as the next writer would take its number"
            if data is None
            else "a repair writes it again: a copy of it, or the entries around it, leave no doubt what it said"
        ),
        refs=place.refs(number, newest),
        repairable=data is not None,
    )

    def mend() -> bool:
        return data is not None and _put_entry(place, number, data)

    return Case(finding=finding, mend=None if data is None else mend)


def _can_be_set_aside(place: LogPlace, data: bytes) -> bool:
    """Whether an entry was cut off by a power loss before it was acknowledged, and no one depends on it.

    Writers give an entry its name only after its bytes are complete and synced. So a torn newest entry was never
    acknowledged as durable. A damaged entry that is complete is another case: it was acknowledged, and stays. A
    registration of a clone stays in any case, because the clone may be on another disk and need the files.
    """
    return (place.is_tag or place.branch is not None) and is_torn(data)


def _set_aside(context: RepoConfig, place: LogPlace, number: int, data: bytes) -> bool:
    """Move a torn newest entry to a name that is not an entry's, so that the one before it is the newest again."""
    path = place.log.path(number)
    # Deletes are unconditional: a second repair must not remove what a writer has put here after the first.
    with context.leases.working_alone(_REPAIR, doing="a repository is being repaired"):
        if place.log.find(number) != data or place.log.find(number + 1) is not None:
            return False
        place.log.store.put(f"{path}.{context.new_id()}{TORN}", data)
        place.log.store.delete(path)
    return True


def _put_entry(place: LogPlace, number: int, data: bytes) -> bool:
    """Put an entry where there is none, or one that nobody can read."""
    there = place.log.find(number)
    if there is None:
        return put_once(place.log.store, place.log.path(number), data)
    try:
        if place.is_own(place.decode(there, number), number):
            return False  # somebody else has mended it
    except CorruptError:
        pass
    place.log.store.put(place.log.path(number), data)
    return True


def _diagnose_hint(place: LogPlace, listed: _Listed, newest: int) -> Iterator[Case]:
    if not listed.has_hint:
        return
    if listed.hint is None:
        yield _hint_case(place, FindingKind.DAMAGED_HINT, "is damaged, and therefore not used", newest)
        return
    number, copied = listed.hint
    data = place.log.find(number)
    if number in listed.numbers and data == copied:
        return
    if find_copy(place.log, place.is_own, place.decode, number) and not _is_whole(place, number, data):
        return  # it is what the entry is mended from
    yield _hint_case(place, FindingKind.WRONG_HINT, f"is no copy of entry {number}, and hides the true ones", newest)


def _is_whole(place: LogPlace, number: int, data: bytes | None) -> bool:
    try:
        return data is not None and place.is_own(place.decode(data, number), number)
    except AnabranchError:
        return False


def _hint_case(place: LogPlace, kind: FindingKind, said: str, newest: int) -> Case:
    def mend() -> bool:
        data = place.log.find(newest)
        if data is not None and _is_whole(place, newest, data):
            place.log.write_hint(newest, data)
        else:
            place.log.store.delete(place.log.hint_path)  # the log does without
        return True

    finding = RepositoryFinding(
        kind=kind,
        subject=place.log.hint_path,
        explanation=f"the hint beside the log of {place.label} {said}",
        remedy="a repair writes it again from the log",
        refs=(place.name,) if kind is FindingKind.WRONG_HINT else (),
        repairable=True,
    )
    return Case(finding=finding, mend=mend)


def _unknown_files(listed: _Listed) -> Iterator[Case]:
    return (unknown_file(path) for path in listed.others if not path.endswith(TORN))


def diagnose_branches(records: RepoStore, seen: Seen, told: ToldHistory) -> list[Case]:
    """What was found in logs; live branches cannot be read either where main cannot."""
    live = {name for name, head in seen.heads.items() if head.state.mode is BranchMode.LIVE}
    alive = {name for name in live if not seen.heads[name].state.is_deleted}
    found = _diagnose_main(records, seen, told)
    return [_with_refs(case, alive) if MAIN in case.finding.refs else case for case in found]


def _with_refs(case: Case, refs: set[str]) -> Case:
    return replace(case, finding=replace(case.finding, refs=tuple(sorted({*case.finding.refs, *refs}))))


def _diagnose_unclear(records: RepoStore, seen: Seen, told: ToldHistory) -> Iterator[Case]:
    """Report damaged newest entries, for which no later entry speaks.

    If something refers to the commit that such an entry published, the entry follows from the commit. Otherwise it is
    set aside if it is torn, and left alone if it is not.
    """
    for unclear in seen.unclear:
        case, place, number = unclear.case, unclear.place, unclear.number
        published = _published_as(seen, told, str(place.branch), number)
        if published and place.branch is not None:
            data = rebuild_newest(records, place.log, place.branch, number, published)
            yield case if data is None else _rebuilt(case, place, number, data)
        elif unclear.set_aside is not None:
            finding = replace(
                case.finding,
                kind=FindingKind.TORN_ENTRY,
                explanation=f"{case.finding.explanation}; a power loss cut it off before it was acknowledged",
                remedy=f"a repair renames it to end in '{TORN}'; the entry before it is the newest again",
                repairable=True,
            )
            yield Case(finding=finding, mend=unclear.set_aside)
        else:
            yield case


def _published_as(seen: Seen, told: ToldHistory, branch: str, number: int) -> frozenset[str]:
    """The commits that something says were published by an entry: other logs and commits, tags, the history tables."""
    named = {key for key, facts in seen.commits.items() if (facts.branch, facts.version) == (branch, number)}
    for row in [] if told.commits is None else told.commits.to_pylist():
        if (row["manifest_branch"] or MAIN, row["manifest_version"]) == (branch, number):
            named.add(row["graph_commit_id"])
    return frozenset(named)


def _rebuilt(case: Case, place: LogPlace, number: int, data: bytes) -> Case:
    remedy = "a repair writes it again from the commit that it published, which others refer to"
    finding = replace(case.finding, remedy=remedy, repairable=True)
    return Case(finding=finding, mend=lambda: _put_entry(place, number, data))


def _diagnose_main(records: RepoStore, seen: Seen, told: ToldHistory) -> Iterator[Case]:
    """Report what was found in the logs, and that main has no log at all."""
    yield from seen.cases
    unclear = list(_diagnose_unclear(records, seen, told))
    yield from unclear
    if MAIN not in seen.heads and not any(MAIN in case.finding.refs for case in [*seen.cases, *unclear]):
        finding = RepositoryFinding(
            kind=FindingKind.MISSING_BRANCH,
            subject=f"{BRANCHES}/{MAIN}",
            explanation="branch 'main' has no log",
            remedy="restore the folder from a backup",
            refs=(MAIN,),
        )
        yield Case(finding=finding)
