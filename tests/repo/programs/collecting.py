"""What processes do while others collect garbage: write whatever can be written, and read everything."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError, BranchNotFoundError, BusyError, CollectedError, RunEndedError
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction

# Every commit writes the same rows to both: the one has a key, the other none.
TABLES = KEYED, KEYLESS = "race.orders", "race.events"
SCHEMA = pa.schema([("id", pa.int64())])

IsOver = Callable[[], bool]


def open_quick(uri: str, lease: float) -> Repository:
    """A handle for which work may be silent for a moment only."""
    return testing.open(ab.open(uri), lease=timedelta(seconds=lease))


def create(repo: Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table(KEYED, SCHEMA, primary_key=["id"])
        tx.create_table(KEYLESS, SCHEMA)


def own_branch(writer: int) -> str:
    return f"own-{writer}"


def collect_over_and_over(uri: str, lease: float, *, rounds: int) -> dict[str, int]:
    """Collect until a given number of collections found something, with as short a grace as there may be."""
    repo = open_quick(uri, lease)
    done = objects = 0
    while done < rounds:
        try:
            report = repo.gc(keep_last=2, grace=testing.config_of(repo).leases.expiry)
        except BusyError:
            continue  # this process was suspended for longer than work may be silent
        assert report.damaged == (), report.damaged
        done += any(found.path.startswith("tables/") for found in report.objects)
        objects += len(report.objects)
    return {"objects": objects}


def read_over_and_over(uri: str, lease: float, *, is_over: IsOver) -> dict[str, Any]:
    """Read all of every branch; who takes longer than the grace to do so may fail."""
    repo = open_quick(uri, lease)
    grace = testing.config_of(repo).leases.expiry.total_seconds()
    reads, slow, wrong = 0, 0, list[str]()
    while not is_over():
        for name in [branch.name for branch in repo.branch_list()]:
            began = time.monotonic()
            try:
                outcome = _read(repo, name)
            except AnabranchError as err:
                outcome = repr(err)
            except (OSError, ValueError) as err:  # plain Lance's
                outcome = f"plain {err!r}"
            took = time.monotonic() - began
            reads, slow = reads + 1, slow + (took > grace)
            if outcome is not None and took <= grace:
                wrong.append(f"{name}: {outcome}")
    return {"reads": reads, "slow": slow, "wrong": wrong[:3]}


def _read(repo: Repository, name: str) -> str | None:
    """Read a branch as it is, and what plain Lance has in its homes; what is wrong with it."""
    try:
        snapshot = repo.snapshot_of(name)
    except BranchNotFoundError:
        return None  # deleted since it was listed
    found = [_ids(snapshot, key) for key in TABLES]
    if found[0] != found[1]:
        return f"half a commit in {snapshot.id}"
    for key in snapshot:
        if len(_ids(snapshot, key)) != snapshot[key].entry.rows:
            return f"rows of {key} are missing in {snapshot.id}"
        # A concurrent deletion of a branch leaves its homes for the grace.
        plain = lance.dataset(snapshot[key].uri).to_table().column("id").to_pylist()
        if len(set(plain)) != len(plain):
            return f"rows of {key} are there twice for plain Lance"
    return None


def _ids(snapshot: Snapshot, key: str) -> list[int]:
    return sorted(snapshot[key].to_arrow().column("id").to_pylist())


@dataclass
class _Long:
    """Work that is longer than the grace: what it wrote so far, and when it began."""

    what: Run | Transaction
    began: float
    ids: list[int]


@dataclass
class Writer:
    """One process that writes; it knows what was published, and what must not be there."""

    repo: Repository
    number: int
    main: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    _used: int = 0
    _run: _Long | None = None
    _transaction: _Long | None = None

    def keep_writing(self, is_over: IsOver) -> dict[str, Any]:
        self.repo.branch_create(own_branch(self.number))
        steps = [self.commit, self.throw_away, self.merge, self.rewind, self.run_long, self.hold_long, self.tag]
        steps += [self.make_table]
        while not is_over():
            for step in steps:
                self._try(step)
        for long in (self._run, self._transaction):
            if long is not None:
                self._finish(long)
        return {"main": self.main, "own": self.own, "outcomes": self.outcomes}

    def _try(self, step: Callable[[], str]) -> None:
        """Do a step; who was suspended for too long must not publish, and nothing of it may be there."""
        try:
            outcome = step()
        except (BusyError, CollectedError, RunEndedError) as err:
            outcome = f"{step.__name__}: {err.code}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _new_ids(self) -> list[int]:
        self._used += 2
        return [self.number * 1_000_000 + self._used, self.number * 1_000_000 + self._used - 1]

    def _append(self, tx: Transaction, ids: list[int]) -> None:
        for key in TABLES:
            tx.append(key, pa.table({"id": ids}, schema=SCHEMA))

    def commit(self) -> str:
        ids = self._new_ids()
        with self.repo.transaction() as tx:
            self._append(tx, ids)
        self.main += ids
        return "committed"

    def throw_away(self) -> str:
        name = self._branch()
        with self.repo.transaction(name) as tx:
            self._append(tx, self._new_ids())
        self.repo.branch_delete(name)
        return "thrown away"

    def merge(self) -> str:
        name, ids = self._branch(), self._new_ids()
        with self.repo.transaction(name) as tx:
            self._append(tx, ids)
        self.repo.merge(name, into="main")
        self.main += ids
        self.repo.branch_delete(name)
        return "merged"

    def _branch(self) -> str:
        name = f"b{self.number}-{self._used}"
        self.repo.branch_create(name)
        return name

    def rewind(self) -> str:
        name = own_branch(self.number)
        ids = self._new_ids()
        with self.repo.transaction(name) as tx:
            self._append(tx, ids)
        before, self.own = self.own, self.own + ids
        with self.repo.transaction(name) as tx:
            self._append(tx, self._new_ids())
        self.repo.reset(name, to=f"{name}~1")
        if self._used % 3 == 0:
            self.repo.undo(name)
            self.repo.undo(name)
        assert sorted(self.own) == _ids(self.repo.snapshot_of(name), KEYED), before
        return "reset"

    def run_long(self) -> str:
        if self._run is None:
            run = self.repo.begin_run()
            self._run = _Long(run, time.monotonic(), self._new_ids())
            with run.transaction() as tx:
                self._append(tx, self._run.ids)
            return "run begun"
        return self._finish_if_old(self._run, "run")

    def hold_long(self) -> str:
        if self._transaction is None:
            tx = self.repo.transaction()
            self._transaction = _Long(tx, time.monotonic(), self._new_ids())
            self._append(tx, self._transaction.ids)
            return "transaction begun"
        return self._finish_if_old(self._transaction, "transaction")

    def _finish_if_old(self, long: _Long, name: str) -> str:
        if time.monotonic() - long.began < 1.5 * testing.config_of(self.repo).leases.expiry.total_seconds():
            return f"{name} goes on"
        self._finish(long)
        return f"{name} published"

    def _finish(self, long: _Long) -> None:
        if isinstance(long.what, Run):
            self._run = None
            more = self._new_ids()
            with long.what.transaction() as tx:
                self._append(tx, more)
            long.what.publish()
            self.main += [*long.ids, *more]
        else:
            self._transaction = None
            long.what.commit()
            self.main += long.ids

    def tag(self) -> str:
        name = f"t{self.number}-{self._used}"
        self.repo.tag_create(name, ref="main~1")
        for key in TABLES:
            _ids(self.repo.snapshot_of(name), key)
        self.repo.tag_delete(name)
        return "tagged"

    def make_table(self) -> str:
        key = f"race.own_{self.number}"
        with self.repo.transaction() as tx:
            if key in tx:
                tx.drop_table(key)
                return "dropped"
            tx.create_table(key, SCHEMA)
            tx.append(key, pa.table({"id": [1]}, schema=SCHEMA))
        return "made"


def write_over_and_over(uri: str, lease: float, *, writer: int, is_over: IsOver) -> dict[str, Any]:
    return Writer(open_quick(uri, lease), writer).keep_writing(is_over)
