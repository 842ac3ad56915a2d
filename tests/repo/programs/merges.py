"""What processes do that merge: one is killed somewhere on its way, many merge branches of their own at once."""

import time
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.repo.repository import Repository
from tests.repo.programs import ledger
from tests.repo.programs.killing import Scenario
from tests.repo.programs.racing import Course

LISTED = "race.listed"
NEW = "race.new"


def prepare(repo: Repository, name: str) -> None:
    """Make a branch that adds, changes, deletes and brings a table, beside a main that continued, too."""
    if LISTED not in repo.snapshot_of("main"):
        with repo.transaction() as tx:
            tx.create_table(LISTED, ledger.SCHEMA, primary_key=["id"])
            tx.append(LISTED, ledger.rows([(number, "base") for number in range(40)]))
    repo.branch_create(name)
    with repo.transaction(name) as tx:
        tx.append(ledger.EVENTS, ledger.rows([(7, name)]))
        tx.update(LISTED, {"mark": f"'{name}'"}, where="id = 1")
        tx.delete(LISTED, "id = 2")
        tx.append(LISTED, ledger.rows([(100, name)]))
        tx.create_table(NEW, ledger.SCHEMA, primary_key=["id"])
        tx.append(NEW, ledger.rows([(1, name)]))
    with repo.transaction() as tx:
        tx.append(ledger.EVENTS, ledger.rows([(8, "main")]))
        tx.update(LISTED, {"mark": "'main'"}, where="id = 3")


def state(repo: Repository, ref: str) -> dict[str, list[Any]]:
    snapshot = repo.snapshot_of(ref)
    return {key: ledger.found(snapshot[key].to_arrow()) for key in snapshot}


def _merge(uri: str, name: str) -> None:
    ab.open(uri).merge(name, into="main", message=f"merge {name}")


def _rebase(uri: str, name: str) -> None:
    ab.open(uri).rebase(name, onto="main")


SCENARIOS: dict[str, Scenario] = {"merge": _merge, "rebase": _rebase}


def merge_own_branch(course: Course, *, writer: int, merges: int) -> dict[str, Any]:
    """Change a branch of its own and merge it, again and again; what was tried again is counted."""
    repo, retried = course.open(), 0
    name = f"own{writer}"
    repo.branch_create_from(course.branch, name)
    for number in range(merges):
        mark = ledger.mark_of(writer, number)
        with repo.transaction(name, message=mark) as tx:
            ledger_rows = ledger.rows([(writer * 1000 + number, mark)])
            tx.append(ledger.ORDERS, ledger_rows)
            tx.append(ledger.EVENTS, ledger_rows)
            tx.upsert(ledger.STOCK, pa.table({"id": [writer], "mark": [mark]}))
        while True:
            try:
                repo.merge(name, into=course.branch, message=f"merge {mark}")
                break
            except AnabranchError as err:
                if not err.retryable:
                    raise
                retried += 1
                time.sleep(0)
    return {"retried": retried}
