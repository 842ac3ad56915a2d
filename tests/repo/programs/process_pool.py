"""A process that has imported everything and used nothing yet, and forks others off itself.

Lance's threads do not survive a fork, so the pool itself never opens anything. What it saves is the second that each
process would need for its imports.
"""

import multiprocessing
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.processes import Child, Work, answer_with, receive
from tests.repo.programs import collecting, doing, killing, merges, runs, schemas
from tests.repo.programs.racing import Course, commit_over_and_over, read_over_and_over, take_names
from tests.repo.programs.run_racing import act_on_each, compare_tables_over_and_over, run_over_and_over

# Called with a function that returns whether the race is over.
Reader = Callable[[Callable[[], bool]], Any]

SCENARIOS = {**killing.SCENARIOS, **merges.SCENARIOS, **runs.SCENARIOS, **schemas.SCENARIOS}


def race(reported: dict[str, Any]) -> Any:
    course, commits = Course(**reported["course"]), reported["commits"]

    def writer(number: int) -> Callable[[], Any]:
        return lambda: commit_over_and_over(course, writer=number, commits=commits)

    return _run_race([writer(number) for number in range(reported["writers"])], [_plain_reader(course)])


def race_of_merges(reported: dict[str, Any]) -> Any:
    course, count = Course(**reported["course"]), reported["merges"]

    def writer(number: int) -> Callable[[], Any]:
        return lambda: merges.merge_own_branch(course, writer=number, merges=count)

    return _run_race([writer(number) for number in range(reported["writers"])], [])


def race_of_runs(reported: dict[str, Any]) -> Any:
    course, count = Course(**reported["course"]), reported["runs"]

    def writer(number: int) -> Callable[[], Any]:
        return lambda: run_over_and_over(course, writer=number, runs=count)

    def reader(is_over: Callable[[], bool]) -> Any:
        return compare_tables_over_and_over(course, is_over=is_over)

    return _run_race([writer(number) for number in range(reported["writers"])], [_plain_reader(course), reader])


def race_with_gc(reported: dict[str, Any]) -> Any:
    """Collect garbage in one process while others write and read, until it found something often enough."""
    uri, lease = reported["uri"], reported["lease"]

    def gc() -> Any:
        return collecting.collect_over_and_over(uri, lease, rounds=reported["rounds"])

    def writer(number: int) -> Reader:
        return lambda is_over: collecting.write_over_and_over(uri, lease, writer=number, is_over=is_over)

    def reader(is_over: Callable[[], bool]) -> Any:
        return collecting.read_over_and_over(uri, lease, is_over=is_over)

    others = [*(writer(number) for number in range(reported["writers"])), *(reported["readers"] * [reader])]
    return _run_race([gc], others)


def _plain_reader(course: Course) -> Reader:
    return lambda is_over: read_over_and_over(course, is_over=is_over)


def _run_race(writers: Sequence[Callable[[], Any]], readers: Sequence[Reader]) -> Any:
    """Start all at the same time; readers continue until the last writer is done."""
    starts, go = os.pipe()
    stop, over = os.pipe()

    def started(work: Callable[[], Any]) -> Work:
        def when_all_are_there(_: int) -> Any:
            os.close(go)
            os.close(over)
            os.read(starts, 1)  # returns when the pool closes its end
            return work()

        return when_all_are_there

    def is_over() -> bool:
        return bool(select.select([stop], [], [], 0)[0])

    reading = [Child(started(partial(reader, is_over))) for reader in readers]
    writing = [Child(started(writer)) for writer in writers]
    os.close(go)
    _wait_for(writing, reading)
    results = [writer.result() or {"error": "stopped, since a reader ended before its time"} for writer in writing]
    os.close(over)
    seen = [reader.result() for reader in reading]
    os.close(starts)
    os.close(stop)
    return {"writers": results, "readers": seen}


def _wait_for(writing: Sequence[Child], reading: Sequence[Child]) -> None:
    """Until all writers are done; a reader that ends before them has failed, and the others can stop."""
    running = {child.fd for child in writing}
    while running:
        ready = set(select.select([*running, *(child.fd for child in reading)], [], [])[0])
        if not ready <= running:
            for child in writing:
                child.kill()
            return
        running -= ready


def contest(reported: dict[str, Any]) -> Any:
    """Let two processes make branches and tags of the same names at the same time."""
    course, names = Course(**reported["course"]), reported["names"]
    ready = multiprocessing.get_context("fork").Barrier(2)

    def taker(kind: str) -> Work:
        return lambda _: take_names(course, names, kind=kind, wait=ready.wait)

    takers = [Child(taker(kind)) for kind in ("branch", "tag")]
    return [taker.result() for taker in takers]


def rivalry(reported: dict[str, Any]) -> Any:
    """Let processes act on the same names at the same time, each in its own way."""
    course, names, acts = Course(**reported["course"]), reported["names"], reported["acts"]
    ready = multiprocessing.get_context("fork").Barrier(len(acts))

    def rival(act: str) -> Work:
        return lambda _: act_on_each(course, names, act=act, wait=ready.wait)

    rivals = [Child(rival(act)) for act in acts]
    return [rival.result() for rival in rivals]


def kill(reported: dict[str, Any]) -> Any:
    """Run a scenario that is killed at a point, or after it has computed for a time, or not at all."""
    scenario, fatal = SCENARIOS[reported["scenario"]], reported.get("fatal")
    child = Child(
        lambda out: killing.run_scenario(scenario, reported["uri"], reported["name"], fatal=fatal, last_words=out)
    )
    if "cpu_seconds" in reported:
        while child.cpu_seconds() < reported["cpu_seconds"]:
            time.sleep(0.001)
        child.kill()
    return child.result()


def do(reported: dict[str, Any]) -> Any:
    """Do one thing in a process that is killed at a point, if it gets there."""
    uri, deed, fatal = reported["uri"], reported["deed"], reported["fatal"]
    return Child(lambda out: doing.do_or_die(uri, deed, fatal=fatal, last_words=out)).result()


_TASKS = {
    "do": do,
    "race": race,
    "race of merges": race_of_merges,
    "race of runs": race_of_runs,
    "race with gc": race_with_gc,
    "contest": contest,
    "rivalry": rivalry,
    "kill": kill,
}


def main() -> None:
    sys.stdout.flush()
    while (reported := receive()) is not None:
        answer_with(_TASKS[reported.pop("do")](reported))


if __name__ == "__main__":
    main()
