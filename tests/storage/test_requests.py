"""Requests that run in parallel, in one pool of threads."""

import subprocess
import sys
import threading

import pytest

from anabranch.storage import in_parallel
from anabranch.storage.requests import iter_in_parallel


def test_results_are_in_order() -> None:
    assert in_parallel(lambda number: number * 2, range(100)) == list(range(0, 200, 2))


def test_requests_run_at_the_same_time() -> None:
    all_threads = threading.Barrier(8, timeout=60)
    in_parallel(lambda _: all_threads.wait(), range(8))


def test_nested_calls_do_not_wait_for_free_threads() -> None:
    def nest(depth: int) -> int:
        return 1 if depth == 0 else sum(in_parallel(nest, [depth - 1] * 17))

    assert nest(3) == 17**3


def test_first_error_is_raised_and_the_rest_is_not_started() -> None:
    started: list[int] = []

    def fail(number: int) -> None:
        started.append(number)
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number 0"):
        in_parallel(fail, range(10_000))
    assert len(started) < 10_000


def test_caller_that_stops_early_leaves_no_request_behind() -> None:
    started: list[int] = []

    def request(number: int) -> int:
        started.append(number)
        return number

    results = iter_in_parallel(request, range(1000))
    assert next(results) == 0
    del results
    count = len(started)
    assert in_parallel(lambda number: number, range(50)) == list(range(50))
    assert len(started) == count


def test_threads_are_kept_between_calls() -> None:
    in_parallel(lambda _: None, range(16))
    before = threading.active_count()
    for _ in range(20):
        in_parallel(lambda _: None, range(16))
    assert threading.active_count() <= before + 16


FORK = """
import os
from anabranch.storage import in_parallel

in_parallel(lambda number: number, range(100))
if os.fork() == 0:
    os._exit(sum(in_parallel(lambda number: number, range(20))))
_, status = os.wait()
print(os.waitstatus_to_exitcode(status))
"""


def test_forked_process_has_its_own_threads() -> None:
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == str(sum(range(20)))
