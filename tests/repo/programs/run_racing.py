"""What processes with runs of their own do at the same time, and what rivals do to the same run, branch or lock."""

from collections.abc import Callable
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from tests.repo.programs import ledger, schemas
from tests.repo.programs.racing import Course
from tests.repo.programs.runs import APPENDED


def run_over_and_over(course: Course, *, writer: int, runs: int) -> None:
    """Make runs, each of which appends to what all append to, in two steps, and to a table of the writer."""
    repo, own = course.open(), ledger.own_table(writer)
    for number in range(runs):
        mark = ledger.mark_of(writer, number)
        rows = ledger.expected([mark])[ledger.ORDERS]
        with repo.begin_run(course.branch, message=mark) as run:
            for step, row in enumerate(rows):
                with run.transaction() as tx:
                    for key in APPENDED:
                        tx.append(key, ledger.rows([row]))
                    if step == number == 0:
                        tx.create_table(own, ledger.SCHEMA, primary_key=["id"])
                    tx.append(own, ledger.rows([row]))


def compare_tables_over_and_over(course: Course, *, is_over: Callable[[], bool]) -> dict[str, Any]:
    """Read all tables of a snapshot, and look whether the same runs are in each of them, and whole."""
    repo, reads, is_last = course.open(), 0, False
    wrong: list[Any] = []
    while not is_last and len(wrong) < 4:
        is_last = is_over()
        snapshot = repo.snapshot_of(course.branch)
        found = {key: _marks_in(snapshot, key) for key in snapshot}
        reads += 1
        own = sorted(mark for key, marks in found.items() if key.startswith("race.own_") for mark in marks)
        if not own == found[ledger.ORDERS] == found[ledger.EVENTS]:
            wrong.append(found)
        if own != sorted(2 * ledger.marks(repo, snapshot.id)):
            wrong.append([own, snapshot.id])
    return {"reads": reads, "wrong": wrong}


def _marks_in(snapshot: Snapshot, key: str) -> list[str]:
    return sorted(mark for _, mark in ledger.found(snapshot[key].to_arrow()))


def act_on_each(course: Course, names: list[str], *, act: str, wait: Callable[[], object]) -> list[str]:
    """Do the same to each name, each when the rivals are ready to; what came of it, 'done' or the error."""
    repo, outcomes = course.open(), []
    for name in names:
        wait()
        try:
            _ACTS[act](repo, name)
        except AnabranchError as err:
            outcomes.append(type(err).__name__)
        else:
            outcomes.append("done")
    return outcomes


def _publish(repo: Repository, run_id: str) -> None:
    repo.run_get(run_id).publish()


def _fail_to_publish(repo: Repository, run_id: str) -> None:
    repo.run_get(run_id).publish(checks=[lambda _: False])


def _abort(repo: Repository, run_id: str) -> None:
    repo.run_get(run_id).abort()


def _begin(repo: Repository, branch: str) -> None:
    # Dropped at once: its lease is not released, and so keeps the branch for a while.
    repo.begin_run(branch, message=branch)


def _delete(repo: Repository, branch: str) -> None:
    repo.branch_delete(branch)


_ACTS: dict[str, Callable[[Repository, str], None]] = {
    "publish": _publish,
    "publish in vain": _fail_to_publish,
    "abort": _abort,
    "begin": _begin,
    "delete": _delete,
    "hold the schema lock": schemas.hold_alone,
    "apply a schema": schemas.apply,
}
