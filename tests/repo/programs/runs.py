"""What processes do with runs until they are killed."""

from collections.abc import Callable

import anabranch as ab
from anabranch.repo.run import Run
from tests.repo.programs import ledger

APPENDED = (ledger.ORDERS, ledger.EVENTS)


def append_in_steps(run: Run, mark: str) -> None:
    """Append what a commit of the ledger does, and to a new table, in two transactions."""
    rows, new = ledger.expected([mark])[ledger.ORDERS], ledger.new_table(mark)
    with run.transaction(message="the first row") as tx:
        for key in APPENDED:
            tx.append(key, ledger.rows(rows[:1]))
        tx.create_table(new, ledger.SCHEMA, primary_key=["id"])
    with run.transaction(message="the other row") as tx:
        for key in APPENDED:
            tx.append(key, ledger.rows(rows[1:]))
        tx.append(new, ledger.rows([(1, mark)]))


def write_in_steps(run: Run, mark: str) -> None:
    """Write all that a commit of the ledger does, and a new table."""
    append_in_steps(run, mark)
    with run.transaction(message="the stock") as tx:
        tx.upsert(ledger.STOCK, ledger.rows(ledger.expected([mark])[ledger.STOCK]))


# What is killed


def _whole_run(uri: str, name: str) -> None:
    run = ab.open(uri).begin_run("main", message=name)
    write_in_steps(run, name)
    run.publish()


def _whole_run_on_a_branch(uri: str, name: str) -> None:
    run = ab.open(uri).begin_run(f"dev/{name}", message=name)
    write_in_steps(run, name)
    run.publish()


def _failing_run(uri: str, name: str) -> None:
    try:
        with ab.open(uri).begin_run("main", message=name) as run:
            append_in_steps(run, name)
            raise ValueError(name)
    except ValueError:
        return


def _publish(uri: str, run_id: str) -> None:
    ab.open(uri).run_get(run_id).publish()


def _abort(uri: str, run_id: str) -> None:
    ab.open(uri).run_get(run_id).abort()


SCENARIOS: dict[str, Callable[[str, str], None]] = {
    "a run": _whole_run,
    "a run on a branch": _whole_run_on_a_branch,
    "a run that fails": _failing_run,
    "publish a run": _publish,
    "abort a run": _abort,
}
