"""Try a write while one of its requests goes wrong, and judge what came of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import anabranch as ab
from anabranch.errors import AnabranchError, BusyError, ConflictError, StorageError
from anabranch.format.doctor.findings_and_repairs import FindingKind, Severity
from tests.conftest import Location
from tests.faults.fault_injection import FaultInjection, Kind, all_stores_through, changes_something
from tests.faults.lakes import STRANGE, State, look_raw
from tests.faults.tallying import Tally
from tests.faults.writes import Look, Write, do_nothing
from tests.lake_templates import LakeTemplate
from tests.repo.conftest import CUSTOMERS, ids
from tests.repo.gc.object_ages import pass_time

# Raw Lance readers may be behind until the next writer comes by, or doctor.
_LEFT_TO_OTHERS = {FindingKind.UNSETTLED_HOME}

# What decides whether a write has happened: an entry of a log, or the object of a commit.
_ENTRY = re.compile(r"put_if_absent _\w+/.*\.json")

NewLocation = Callable[[], Location]
# What the repository shows, and what any Lance tool sees.
States = tuple[State, State]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One write on copies of one lake.

    `examine` returns what is wrong with a lake afterwards, `known` what those before showed that nothing was done to.
    """

    write: Write
    template: LakeTemplate
    new_location: NewLocation
    examine: Callable[[ab.Repository], list[str]]
    known: dict[Look, States]

    def prepared(self) -> ab.Repository:
        repo = self.template.write_copy(self.new_location())
        self.write.prepare(repo)
        return repo

    def run(self, choose: Callable[[int], list[tuple[int, Kind]]], tally: Tally) -> None:
        """Do the write once as it should go, and then with each of the chosen faults on a fresh copy."""
        repo = self.prepared()
        before, raw_before = self._look_before(repo)
        requests = self._act(repo, counting := FaultInjection())
        assert requests is None, f"it fails without any fault: {requests!r}"
        after, raw_after = self.write.look(repo), look_raw(repo)
        tally.writes += 1
        tally.requests += len(counting.requests)
        for nth, kind in choose(len(counting.requests)) if counting.requests else ():
            if self.write.is_local and kind is Kind.TIME_OUT:
                continue
            outcome = _Attempt(self, (before, raw_before), (after, raw_after), nth, kind).run()
            tally.faults[kind] += 1
            tally.outcomes[outcome] += 1

    def _look_before(self, repo: ab.Repository) -> States:
        """What there is before the write: the same for all that prepare nothing."""
        if self.write.prepare is not do_nothing:
            return self.write.look(repo), look_raw(repo)
        if self.write.look not in self.known:
            self.known[self.write.look] = self.write.look(repo), look_raw(repo)
        return self.known[self.write.look]

    def _act(self, repo: ab.Repository, injection: FaultInjection) -> AnabranchError | None:
        """Do the write through stores with the fault; what it raised, if it is one of ours."""
        with all_stores_through(injection):
            handle = ab.open(repo.uri, actor="ada")
            injection.arm()
            try:
                self.write.act(handle)
            except AnabranchError as err:
                return err
        return None


@dataclass(frozen=True, slots=True)
class _Attempt:
    trial: Trial
    before: States
    after: States
    nth: int
    kind: Kind

    def run(self) -> str:
        repo = self.trial.prepared()
        injection = FaultInjection(self.nth, self.kind, rival=lambda: self.trial.write.rival(ab.open(repo.uri)))
        error = self.trial._act(repo, injection)
        where = (
            f"{self.kind} at request {self.nth} of {len(injection.requests)}: {injection.requests[self.nth - 1 :][:2]}"
        )
        hit = injection.requests[self.nth - 1]
        self._judge_error(error, where, hit)
        state = self.trial.write.look(repo)
        assert state in (self.before[0], self.after[0]), f"{where}: neither before nor after, {error!r}: {state}"
        self._judge_raw(repo, where)
        if error is None:
            assert state == self.after[0], f"{where}: it said that it was done, and is not"
        elif state != self.before[0]:
            assert self._may_be_done(hit), f"{where}: it is done, and said that it was not: {error!r}"
        else:
            self._try_again(repo, where)
        self._continue(repo, where)
        is_done = state != self.before[0]
        return "succeeded" if error is None else "raised, and done" if is_done else "raised, and tried again"

    def _judge_error(self, error: AnabranchError | None, where: str, hit: str) -> None:
        expected = (BusyError, ConflictError) if self.kind is Kind.LATENCY else StorageError
        assert error is None or isinstance(error, expected), f"{where}: {error!r}"
        if self.kind is Kind.LOST_ANSWER and _ENTRY.match(hit):
            assert error is None, f"{where}: what was put is found by looking, so it is done: {error!r}"

    def _may_be_done(self, hit: str) -> bool:
        """No caller can know of a request that arrives after the caller has looked for what it did and given up."""
        return self.trial.write.may_be_done or (self.kind is Kind.TIME_OUT and changes_something(hit))

    def _judge_raw(self, repo: ab.Repository, where: str) -> None:
        """Lance tools may be behind, for which a new table has no rows, and see nothing that was not published."""
        known = [states[1] for states in (self.before, self.after)]
        for key, found in look_raw(repo).items():
            assert any(found == state.get(key, []) for state in known), f"{where}: {key} shows {found} to Lance"

    def _try_again(self, repo: ab.Repository, where: str) -> None:
        again = ab.open(repo.uri, actor="ada")
        try:
            self.trial.write.act(again)
        except BusyError:
            pass_time(repo)  # leases of interrupted callers have expired by now
            self.trial.write.act(ab.open(repo.uri, actor="ada"))
        assert self.trial.write.look(repo) == self.after[0], f"{where}: trying again did something else"

    def _continue(self, repo: ab.Repository, where: str) -> None:
        wrong = self.trial.examine(repo)
        assert not wrong, f"{where}: {wrong}"


def examine_lake(repo: ab.Repository) -> list[str]:
    """Write on, and let doctor look."""
    handle = ab.open(repo.uri, actor="ada")
    if CUSTOMERS in handle.snapshot():
        with handle.transaction(message="on it goes") as tx:
            tx.delete(CUSTOMERS, "id > 10")
        assert ids(handle, CUSTOMERS) == [10]
    return [
        f"{found.kind} {found.subject}: {found.explanation}"
        for found in handle.doctor(repair=True).findings
        if found.severity is not Severity.INFO and STRANGE not in found.tables and found.kind not in _LEFT_TO_OTHERS
    ]


def examine_stock(repo: ab.Repository) -> list[str]:
    from tests.faults.datasets import stock

    return [
        f"{found.kind} {found.subject}: {found.explanation}"
        for found in stock(repo).doctor(repair=True).findings
        if found.severity is Severity.ERROR
    ]
