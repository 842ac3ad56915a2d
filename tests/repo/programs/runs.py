"""What processes do with runs until they are killed."""

from collections.abc import Callable

import anabranch as ab
from anabranch import testing
from anabranch.errors import BusyError
from anabranch.ids import TableKey
from anabranch.repo.log.commits import Once
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch
from tests.repo.gc.interrupting import interrupted
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


def publish_batch(repo: Repository, mark: str) -> None:
    """Publish what a commit of the ledger does as a batch of a stream."""
    batch = StreamBatch(query=mark, epoch=0, table=TableKey.parse(ledger.ORDERS))
    EngineAccess(repo).publish_batch(batch, lambda tx: ledger.write(tx, mark), message=mark)


def commit_once(repo: Repository, mark: str) -> None:
    """Commit like a request that has an idempotency key."""
    once = Once(key="idempotency_key", value=mark, since=0)
    if once.find(repo.iter_commits()) is None:
        with EngineAccess(repo).transaction_once(once, message=mark) as tx:
            ledger.write(tx, mark)


def _with_expired_lease(publish: Callable[[Repository, str], object]) -> Callable[[str, str], None]:
    """Publish on a machine that sleeps during the put of the log entry, so that the entry is rolled back."""

    def is_putting(operation: str, path: str) -> bool:
        return (operation, path.rpartition("/")[0]) == ("put_if_absent", "_versions/main")

    def expire_leases() -> None:
        testing.age_leases(121)

    def scenario(uri: str, name: str) -> None:
        try:
            publish(interrupted(ab.open(uri), is_putting, expire_leases), name)
        except BusyError:
            return

    return scenario


def _abort(uri: str, run_id: str) -> None:
    ab.open(uri).run_get(run_id).abort()


SCENARIOS: dict[str, Callable[[str, str], None]] = {
    "a run": _whole_run,
    "a run on a branch": _whole_run_on_a_branch,
    "a run that fails": _failing_run,
    "publish a run": _publish,
    "publish a run with an expired lease": _with_expired_lease(lambda repo, run_id: repo.run_get(run_id).publish()),
    "publish a batch with an expired lease": _with_expired_lease(publish_batch),
    "commit once with an expired lease": _with_expired_lease(commit_once),
    "abort a run": _abort,
}
