"""A repository in other processes: pickled into one, or left over in a forked one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.conftest import Location
from tests.repo.conftest import CUSTOMERS, ORDERS, append, ids

_IN_A_CHILD = """
import os, signal, sys
import pyarrow as pa
import anabranch as ab

def append(repo, number):
    with repo.transaction() as tx:
        tx.append("in_c_sales.orders", pa.table({"id": pa.array([number]), "v": ["x"]}))

uri, moment = sys.argv[1:]
repo = ab.open(uri) if moment == "after use" else None
acts = {
    "read": lambda: (repo or ab.open(uri)).snapshot()["in_c_sales.orders"].to_arrow(),
    "open again": lambda: ab.open(uri),
    "commit": lambda: append(repo or ab.open(uri), 4),
    "branches": lambda: (repo or ab.open(uri)).branch_list(),
    "dataset": lambda: ab.dataset(uri + "/tables/in_c_sales/orders.lance").branch_list(),
}
if repo is not None:
    append(repo, 5)
for name, act in acts.items():
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for dead threads
        try:
            act()
            print(name, "done", flush=True)
        except BaseException as err:
            print(name, type(err).__name__, "spawn" in str(err), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name, "hangs", flush=True)
if repo is not None:
    append(repo, 6)
"""

ACTS = ["read", "open again", "commit", "branches", "dataset"]


def in_a_process(program: str, *args: str, given: bytes = b"", seconds: float = 300) -> str:
    """Run a program in a new interpreter and return what it prints."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", program, *args], input=given, capture_output=True, timeout=seconds, env=environment
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode()


@pytest.fixture
def local(lake: ab.Repository, location: Location) -> ab.Repository:
    if location.storage_options:
        pytest.skip("the children of this test run on local disk")
    return lake


def test_forked_child_of_a_process_that_used_a_repository_gets_a_clear_error(local: ab.Repository) -> None:
    assert in_a_process(_IN_A_CHILD, local.uri, "after use").splitlines() == [f"{act} ForkError True" for act in ACTS]
    assert ids(ab.open(local.uri)) == [1, 2, 3, 5, 6]


def test_forked_child_of_a_process_that_used_nothing_works(local: ab.Repository) -> None:
    assert in_a_process(_IN_A_CHILD, local.uri, "before use").splitlines() == [f"{act} done" for act in ACTS]
    assert ids(ab.open(local.uri)) == [1, 2, 3, 4]


_UNPICKLED = """
import pickle, sys
import pyarrow as pa
repo, old, table = pickle.load(sys.stdin.buffer)
with repo.transaction() as tx:
    tx.append("in_c_sales.orders", pa.table({"id": pa.array([5]), "v": ["x"]}))
print(repo.branch, repo.actor, sorted(repo.snapshot()["in_c_sales.orders"].to_arrow()["id"].to_pylist()))
print(old.id, old.version, sorted(old), sorted(old["in_c_sales.orders"].to_arrow()["id"].to_pylist()))
print(table.to_arrow().num_rows, repo.sql("select count(*) as n from in_c_sales.orders").to_pylist())
"""


@pytest.mark.s3
def test_repository_and_snapshot_work_after_pickling_into_another_process(
    lake: ab.Repository, location: Location
) -> None:
    lake.branch_create("dev")
    repo = ab.open(lake.uri, branch="dev", actor="bob", storage_options=location.storage_options)
    old = repo.snapshot()
    append(repo, 4, branch="dev")
    given = pickle.dumps((repo, old, old[CUSTOMERS]))
    assert in_a_process(_UNPICKLED, given=given).splitlines() == [
        "dev bob [1, 2, 3, 4, 5]",
        f"{old.id} {old.version} ['in_c_sales.customers', 'in_c_sales.orders'] [1, 2, 3]",
        "2 [{'n': 5}]",
    ]
    assert ids(ab.open(lake.uri, branch="dev", storage_options=location.storage_options)) == [1, 2, 3, 4, 5]


def test_snapshot_of_a_live_branch_shows_the_same_after_pickling(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    seen = lake.snapshot_of("dev")
    append(lake, 4)
    copy: Any = pickle.loads(pickle.dumps(seen))  # noqa: S301 - our own bytes
    assert ids(copy) == ids(seen) == [1, 2, 3]
    assert copy.main_commit_id == seen.main_commit_id


@pytest.mark.parametrize("kind", ["transaction", "begin_run"])
def test_transactions_and_runs_do_not_pickle(lake: ab.Repository, kind: str) -> None:
    held = getattr(lake, kind)()
    with pytest.raises((TypeError, AttributeError)):
        pickle.dumps(held)
    held.__exit__(ValueError, ValueError("not published"), None)


def test_pickle_of_a_moved_repository_still_refuses_to_read_the_original(local: ab.Repository, tmp_path: Path) -> None:
    local.branch_create("dev")
    append(local, 4, branch="dev")
    Path(local.uri).rename(tmp_path / "moved")
    copy: Any = pickle.loads(pickle.dumps(ab.open(str(tmp_path / "moved"), branch="dev")))  # noqa: S301 - our own
    with pytest.raises(ab.errors.StaleBaseError):
        copy.snapshot()[ORDERS].to_arrow()
