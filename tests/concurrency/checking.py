"""Judge a recorded history by the final state of the repository. Pure: nothing here opens or reads anything."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from anabranch.repo.log.entries import BranchEvent
from tests.concurrency import marked_tables
from tests.concurrency.evidence import Entry, Evidence
from tests.concurrency.marked_tables import Change, Rows
from tests.concurrency.recording import Call, Outcome
from tests.concurrency.times import Known, Times

SETUP = "setup"  # the actor of what was there before
NOT_FOUND = "branch_not_found"

# What a user may receive when others are at work; all else is a fault of ours.
EXPECTED_CODES = frozenset(
    {
        NOT_FOUND,
        "branch_exists",
        "branch_in_use",
        "busy",
        "collected",
        "commit_not_found",
        "invalid_input",
        "merge_conflict",
        "not_in_history",
        "run_ended",
        "table_not_found",  # after a step back to before there were tables
        "tag_exists",
        "tag_not_found",
        "version_not_found",
        "write_conflict",
    }
)
HEAD_READS = frozenset({"read_head", "read_synced"})
REPLAYED = frozenset({"commit", "run", "compact"})


class Fault(StrEnum):
    """What a repository must never do."""

    LOST = "lost"  # a confirmed write is not in the log
    REPEATED = "repeated"  # one call moved a branch more often than it returned
    LEFT_BEHIND = "left behind"  # a refused call changed something
    FROM_NOWHERE = "from nowhere"  # an entry that no process made, or a state that was never there
    BROKEN_LOG = "broken log"  # entries do not build on each other
    TORN = "torn"  # tables of one state disagree
    WRONG_ROWS = "wrong rows"  # a commit does not hold what its call wrote on top of its parent
    STALE = "stale"  # a read is older than what was confirmed, or seen, before it began
    FUTURE = "future"  # a read shows what no process had begun to write
    BACKWARDS = "backwards"  # a handle went back
    BROKEN = "broken"  # an error that no process should see


@dataclass(frozen=True, slots=True)
class Violation:
    fault: Fault
    actor: str
    text: str


def find_violations(calls: Sequence[Call], evidence: Evidence, *, grace: float) -> list[Violation]:
    """All that is wrong; reads that took longer than the grace of garbage collection, in seconds, may fail."""
    history = _History(calls, evidence, grace=grace)
    rules: Iterable[Callable[[], Iterator[Violation]]] = (
        history.errors,
        history.logs,
        history.writes,
        history.rows,
        history.reads,
        history.missing,
        history.handles,
        history.tags,
    )
    return [violation for rule in rules for violation in rule()]


class _History:
    def __init__(self, calls: Sequence[Call], evidence: Evidence, *, grace: float) -> None:
        self._calls = calls
        self._evidence = evidence
        self._grace = grace * 1e9
        self._by_actor = {call.actor: call for call in calls}
        self._moves: dict[str, list[Entry]] = defaultdict(list)
        for entry in (entry for log in evidence.logs.values() for entry in log):
            if (
                entry.event is not BranchEvent.ABORTED
            ):  # moves nothing, and is what collecting garbage does to dead runs
                self._moves[entry.actor or ""].append(entry)
        self._times = Times(self._known())

    def _known(self) -> Iterator[Known]:
        """The time from which on all processes must see a version: its writer has returned, or a reader has seen it."""
        for actor, entries in self._moves.items():
            call = self._by_actor.get(actor)
            for entry in entries:
                if actor == SETUP:
                    yield Known(entry.branch, entry.number, since=0)
                elif call is not None and call.ended is not None and call.outcome is Outcome.DONE:
                    yield Known(entry.branch, entry.number, since=call.ended)
        for call in self._calls:
            if call.kind in HEAD_READS and call.ended is not None and call.outcome is Outcome.DONE:
                yield Known(call.result["branch"], call.result["version"], since=call.ended)

    def _entry(self, branch: str, number: int) -> Entry | None:
        log = self._evidence.logs.get(branch, ())
        return log[number - 1] if 0 < number <= len(log) else None

    def errors(self) -> Iterator[Violation]:
        for call in self._calls:
            if call.outcome is Outcome.BROKEN:
                yield Violation(Fault.BROKEN, call.actor, f"{call.kind}: {call.code}")
            elif call.outcome is Outcome.REFUSED and call.code not in EXPECTED_CODES:
                took = (call.ended or call.began) - call.began
                if took <= self._grace or not call.kind.startswith("read"):
                    yield Violation(Fault.BROKEN, call.actor, f"{call.kind}: {call.code}: {call.result.get('said')}")
            elif call.result.get("damaged"):
                yield Violation(Fault.BROKEN, call.actor, f"gc found damage: {call.result['damaged']}")

    def logs(self) -> Iterator[Violation]:
        """Each entry has the next number and a known author, and each new commit the one before it as its parent."""
        for branch, log in self._evidence.logs.items():
            for number, entry in enumerate(log, start=1):
                author = entry.actor or ""
                if entry.number != number:
                    yield Violation(Fault.BROKEN_LOG, author, f"{branch}@v{number} is numbered {entry.number}")
                if author != SETUP and author not in self._by_actor:
                    yield Violation(Fault.FROM_NOWHERE, author, f"{branch}@v{number}")
            for before, entry in pairwise(log):
                commit = self._evidence.commits[entry.commit_id]
                is_next = (commit.branch, commit.version, commit.parent) == (branch, entry.number, before.commit_id)
                if entry.event is BranchEvent.ABORTED and not _same_state(before, entry):
                    yield Violation(Fault.BROKEN_LOG, entry.actor or "", f"{_names([entry])} moved the branch")
                if entry.event is BranchEvent.COMMITTED and not is_next:
                    yield Violation(
                        Fault.BROKEN_LOG, entry.actor or "", f"{_names([entry])} is not made on the one before"
                    )

    def writes(self) -> Iterator[Violation]:
        for call in self._calls:
            found = self._moves.get(call.actor, [])
            match call.outcome:
                case Outcome.DONE:
                    yield from self._confirmed(call, found)
                case Outcome.REFUSED:
                    yield from self._refused(call, found)
                case Outcome.UNKNOWN:
                    if len([entry for entry in found if entry.event is BranchEvent.COMMITTED]) > 1:
                        yield Violation(Fault.REPEATED, call.actor, f"{call.kind}: {_names(found)}")
                case Outcome.BROKEN:
                    pass

    def _confirmed(self, call: Call, found: list[Entry]) -> Iterator[Violation]:
        wanted: Mapping[str, int] = call.result.get("moves", {})
        moves: dict[str, int] = defaultdict(int)
        for entry in found:
            moves[entry.branch] += 1
        for branch in {*wanted, *moves}:
            if moves[branch] < wanted.get(branch, 0):
                yield Violation(Fault.LOST, call.actor, f"{call.kind} of {branch}")
            if moves[branch] > wanted.get(branch, int(branch == call.result.get("may_move"))):
                yield Violation(Fault.REPEATED, call.actor, f"{call.kind}: {_names(found)}")
        if wanted and "commit" in call.result:
            made = {(entry.number, entry.commit_id) for entry in found}
            if (call.result["version"], call.result["commit"]) not in made:
                yield Violation(Fault.LOST, call.actor, f"{call.kind}: commit {call.result['commit']}")
        own = call.result.get("own")
        if own is not None and wanted and own < call.result["version"]:
            yield Violation(Fault.STALE, call.actor, f"its own handle shows version {own}")

    def _refused(self, call: Call, found: list[Entry]) -> Iterator[Violation]:
        """Nothing is there, or what was there for a moment was undone."""
        for branch in {entry.branch for entry in found}:
            own = [entry for entry in found if entry.branch == branch]
            before = self._entry(branch, own[0].number - 1)
            was_deleted = before is None or before.is_deleted
            is_back = own[-1].is_deleted if was_deleted else before is not None and _same_state(before, own[-1])
            if len(own) < 2 or not is_back:
                yield Violation(Fault.LEFT_BEHIND, call.actor, f"{call.kind} ({call.code}): {_names(own)}")

    def rows(self) -> Iterator[Violation]:
        """All tables of each commit agree, and hold what the call writes on top of the commit's parent."""
        for entry in (entry for log in self._evidence.logs.values() for entry in log):
            commit = self._evidence.commits[entry.commit_id]
            if commit.contents and len(set(marked_tables.digests(commit.contents).values())) > 1:
                yield Violation(Fault.TORN, entry.actor or "", f"commit {commit.id} in {_names([entry])}")
            elif entry.event is BranchEvent.COMMITTED and not entry.is_live:
                yield from self._replayed(entry)

    def _replayed(self, entry: Entry) -> Iterator[Violation]:
        """Make a call's changes again: as they were on the rows that it saw, on top of those of the commit's parent.

        What it deletes or updates is what it saw: rows that appeared concurrently are not its own.
        """
        call = self._by_actor.get(entry.actor or "")
        commit = self._evidence.commits[entry.commit_id]
        if call is None or call.kind not in REPLAYED:
            return
        after, parent = self._rows_of(commit.id), self._rows_of(commit.parent)
        seen = parent if call.base is None else self._rows_of(call.base)
        if after is None or parent is None or seen is None:
            return
        made = marked_tables.applied(seen, [Change.of(reported) for reported in call.asked["changes"]], call.actor)
        kept = {i: mark for i, mark in parent.items() if i not in seen or i in made}
        if after != {**kept, **{i: mark for i, mark in made.items() if seen.get(i) != mark}}:
            yield Violation(Fault.WRONG_ROWS, call.actor, f"{call.kind} as {_names([entry])}")

    def _rows_of(self, commit_id: str | None) -> Rows | None:
        commit = self._evidence.commits.get(commit_id or "")
        return commit.contents[marked_tables.TABLES[0]] if commit is not None and commit.contents else None

    def reads(self) -> Iterator[Violation]:
        for call in self._calls:
            if call.outcome is not Outcome.DONE or "tables" not in call.result:
                continue
            if len(set(call.result["tables"].values())) > 1:
                yield Violation(Fault.TORN, call.actor, f"{call.kind} of {_seen(call)}")
            yield from self._read_what_was_there(call)
            if call.kind in HEAD_READS:
                yield from self._read_late_enough(call, call.result["branch"], call.result["version"])
                yield from self._read_main_late_enough(call)
            if call.kind == "read_then":
                yield from self._read_of_a_moment(call)

    def _read_what_was_there(self, call: Call) -> Iterator[Violation]:
        """The version is in the log, with that commit and those rows, and some process had begun to write it."""
        entry = self._entry(call.result["branch"], call.result["version"])
        if entry is None or entry.commit_id != call.result["commit"] or (entry.is_deleted and call.kind in HEAD_READS):
            yield Violation(Fault.FROM_NOWHERE, call.actor, f"{call.kind} of {_seen(call)}")
            return
        author = self._by_actor.get(entry.actor or "")
        if author is not None and call.ended is not None and author.began > call.ended:
            yield Violation(Fault.FUTURE, call.actor, f"{call.kind} of {_seen(call)}")
        contents = self._evidence.commits[entry.commit_id].contents
        if contents and call.result["main"] is None and marked_tables.digests(contents) != call.result["tables"]:
            yield Violation(Fault.WRONG_ROWS, call.actor, f"{call.kind} of {_seen(call)}")

    def _read_late_enough(self, call: Call, branch: str, version: int) -> Iterator[Violation]:
        known = self._times.known(branch, call.began)
        if version < known:
            yield Violation(Fault.STALE, call.actor, f"{call.kind} of {branch}@v{version}, after v{known} was known")

    def _read_main_late_enough(self, call: Call) -> Iterator[Violation]:
        """A live branch shows main as it is now: at a version that came after all that were known."""
        under = call.result["main"]
        versions = [entry.number for entry in self._evidence.logs["main"] if entry.commit_id == under]
        if under is not None:
            yield from self._read_late_enough(call, "main", max(versions, default=0))

    def _read_of_a_moment(self, call: Call) -> Iterator[Violation]:
        """The entry of a moment is no newer than that, and no older than one that was there and known."""
        branch, at = call.result["branch"], call.asked["at"]
        log = self._evidence.logs[branch]
        known = [entry.number for entry in log[: self._times.known(branch, call.began)] if entry.at <= at]
        entry = self._entry(branch, call.result["version"])
        if entry is not None and entry.at > at:
            yield Violation(Fault.FUTURE, call.actor, f"{call.kind} of {_seen(call)}")
        if call.result["version"] < max(known, default=0):
            yield Violation(Fault.STALE, call.actor, f"{call.kind} of {_seen(call)}")

    def missing(self) -> Iterator[Violation]:
        """A branch that was not there must have been deleted, at or after the version that was known."""
        for call in self._calls:
            if call.outcome is Outcome.REFUSED and call.code == NOT_FOUND and call.kind in {*HEAD_READS, "commit"}:
                yield from self._absent(call, call.asked["branch"])
            if call.kind == "list_branches" and call.outcome is Outcome.DONE:
                listed: Mapping[str, int] = call.result["branches"]
                for branch, version in listed.items():
                    yield from self._read_late_enough(call, branch, version)
                for branch in self._evidence.logs.keys() - listed.keys():
                    yield from self._absent(call, branch)

    def _absent(self, call: Call, branch: str) -> Iterator[Violation]:
        known = self._times.known(branch, call.began)
        since = self._evidence.logs.get(branch, ())[max(known - 1, 0) :]
        if known and not any(entry.is_deleted for entry in since):
            yield Violation(Fault.STALE, call.actor, f"{call.kind} found no {branch}, after v{known} was known")

    def handles(self) -> Iterator[Violation]:
        """What a handle shows of a branch never gets older."""
        last: dict[tuple[int, str], int] = {}
        for call in self._calls:
            if call.outcome is Outcome.DONE and "handle" in call.result:
                which = call.result["handle"], call.result["branch"]
                if call.result["version"] < last.get(which, 0):
                    yield Violation(Fault.BACKWARDS, call.actor, f"{_seen(call)} after v{last[which]}")
                last[which] = call.result["version"]

    def tags(self) -> Iterator[Violation]:
        """A tag is listed from the time when its creation returned until a deletion of it begins, at its commit."""
        made = {call.result["tag"]: call for call in self._calls if call.kind == "create_tag" and "tag" in call.result}
        going: dict[str, int] = {}
        gone: dict[str, int] = {}
        for call in (call for call in self._calls if call.kind == "delete_tag" and call.outcome is not Outcome.REFUSED):
            going[call.asked["tag"]] = min(call.began, going.get(call.asked["tag"], call.began))
            if call.outcome is Outcome.DONE and call.ended is not None:
                gone[call.asked["tag"]] = call.ended
        lists = [
            (call.actor, call.began, call.ended or 0, call.result["tags"])
            for call in self._calls
            if call.kind == "list_tags" and call.outcome is Outcome.DONE
        ]
        end = max((call.ended or call.began for call in self._calls), default=0) + 1
        for actor, began, ended, listed in [*lists, ("the end", end, end, self._evidence.tags)]:
            for tag, call in made.items():
                if tag in listed and listed[tag] != call.result["commit"]:
                    yield Violation(Fault.FROM_NOWHERE, actor, f"tag {tag} at {listed[tag]}")
                if tag not in listed and (call.ended or 0) <= began and going.get(tag, end + 1) > ended:
                    yield Violation(Fault.LOST, actor, f"tag {tag}")
                if tag in listed and gone.get(tag, end + 1) <= began:
                    yield Violation(Fault.STALE, actor, f"tag {tag}, which was deleted")


def _same_state(one: Entry, other: Entry) -> bool:
    return (one.commit_id, one.is_deleted) == (other.commit_id, other.is_deleted)


def _names(entries: Iterable[Entry]) -> str:
    return ", ".join(f"{entry.branch}@v{entry.number} {entry.event}" for entry in entries)


def _seen(call: Call) -> str:
    return f"{call.result['branch']}@v{call.result['version']} ({call.result['commit']})"
