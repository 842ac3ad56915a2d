"""What processes do until the power fails: change a repository in every way, and acknowledge each change.

python -m tests.repo.programs.power_loss write URI NAME SEED    one line of JSON for each change that succeeded
python -m tests.repo.programs.power_loss storm FOLDER           write and sync files without a pause

The first line of a writer is "ready". It stops at the first error, which the failing disk causes, and at the first
DurabilityWarning: a change that comes with one is not acknowledged.
"""

import json
import os
import random
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch import testing
from anabranch.errors import AnabranchError, BusyError, ConflictError
from anabranch.repo.runs.engine_access import EngineAccess

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
SHARED = "shop.orders"


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "text": [f"row {each}" for each in ids]}, schema=SCHEMA)


def create(uri: str) -> None:
    """Make a repository with one table that all writers share."""
    repo = ab.init(uri)
    with repo.transaction() as tx:
        tx.create_table(SHARED, SCHEMA, primary_key=["id"])


class Writer:
    """Changes a repository under its own names, and remembers what must be there."""

    def __init__(self, uri: str, name: str, seed: int) -> None:
        # A short lease lets garbage collection delete what is a few seconds old.
        self.repo = testing.open(ab.open(uri), lease=timedelta(seconds=1))
        self.name = name
        self.random = random.Random(seed)
        self.ids = count(seed * 1_000_000)
        self.numbers = count()
        self.branches: list[str] = []

    def new_ids(self) -> list[int]:
        return [next(self.ids) for _ in range(self.random.randint(1, 5))]

    def append(self) -> dict[str, Any]:
        ids = self.new_ids()
        with self.repo.transaction() as tx:
            tx.append(SHARED, rows(ids))
        return {"branch": "main", "rows": {SHARED: ids}}

    def new_table(self) -> dict[str, Any]:
        key, ids = f"{self.name}.t{next(self.numbers)}", self.new_ids()
        with self.repo.transaction() as tx:
            tx.create_table(key, SCHEMA, primary_key=["id"])
            if self.random.random() < 0.7:
                tx.append(key, rows(ids))
            else:
                ids = []
            tx.append(SHARED, rows(more := self.new_ids()))
        return {"branch": "main", "rows": {key: ids, SHARED: more}}

    def first_write_on_branch(self) -> dict[str, Any]:
        branch, ids = f"{self.name}-{next(self.numbers)}", self.new_ids()
        self.repo.branch_create_from("main", branch)
        with self.repo.transaction(branch=branch) as tx:
            tx.append(SHARED, rows(ids))
        self.branches.append(branch)
        return {"branch": branch, "rows": {SHARED: ids}}

    def write_on_branch(self) -> dict[str, Any] | None:
        if not self.branches:
            return None
        branch, ids = self.random.choice(self.branches), self.new_ids()
        with self.repo.transaction(branch=branch) as tx:
            tx.upsert(SHARED, rows(ids))
        return {"branch": branch, "rows": {SHARED: ids}}

    def create_together(self) -> dict[str, Any]:
        wanted = {f"{self.name}-{next(self.numbers)}": "together" for _ in range(self.random.randint(1, 5))}
        if not EngineAccess(self.repo).create_live_branches(wanted):
            raise BusyError("the branches were not created", hint="the disk fails")
        return {"created": list(wanted)}

    def merge(self) -> dict[str, Any] | None:
        if not self.branches:
            return None
        branch = self.random.choice(self.branches)
        self.repo.merge(branch, into="main")
        return {"merged": branch}

    def run(self) -> dict[str, Any]:
        ids = [self.new_ids(), self.new_ids()]
        with self.repo.begin_run("main") as run:
            for some in ids:
                with run.transaction(message="rows") as tx:
                    tx.append(SHARED, rows(some))
        return {"branch": "main", "rows": {SHARED: ids[0] + ids[1]}}

    def tag(self) -> dict[str, Any]:
        name = f"{self.name}-tag-{next(self.numbers)}"
        made = self.repo.tag_create(name)
        return {"tag": name, "commit": made.commit_id}

    def delete_branch(self) -> dict[str, Any] | None:
        if len(self.branches) < 3:
            return None
        branch = self.branches.pop(0)
        _report(json.dumps({"deleting": branch}))  # it may be deleted though the power fails before the answer
        self.repo.branch_delete(branch, purge=self.random.random() < 0.5)
        return {"deleted": branch}

    def collect(self) -> dict[str, Any]:
        report = self.repo.gc(keep_last=20, grace=testing.config_of(self.repo).leases.expiry)
        return {"collected": len(report.objects)}

    def step(self) -> dict[str, Any] | None:
        weights: dict[Callable[[], dict[str, Any] | None], int] = {
            self.append: 10,
            self.new_table: 3,
            self.first_write_on_branch: 4,
            self.write_on_branch: 5,
            self.create_together: 4,
            self.merge: 4,
            self.run: 3,
            self.tag: 2,
            self.delete_branch: 2,
            self.collect: 2,
        }
        return self.random.choices(list(weights), list(weights.values()))[0]()


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(uri: str, name: str, seed: int) -> None:
    warnings.simplefilter("error", ab.DurabilityWarning)
    writer = Writer(uri, name, seed)
    _report("ready")
    while True:
        try:
            done = writer.step()
        except (BusyError, ConflictError):
            continue
        except (AnabranchError, ab.DurabilityWarning) as err:
            _report(json.dumps({"stopped": f"{type(err).__name__}: {err}"}))
            return
        if done is not None:
            _report(json.dumps(done))


def storm(folder: str) -> None:
    """Sync constantly. Without it the journal is written rarely, and wrong orders of writing go unnoticed."""
    _report("ready")
    for number in count():
        try:
            with open(os.path.join(folder, f"storm-{number % 50}"), "wb") as file:
                file.write(os.urandom(2000))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        storm(sys.argv[2])
