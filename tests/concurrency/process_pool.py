"""A program that lets many processes work on one repository at once, and kills and replaces some of them."""

import os
import random
import select
import signal
import time
from typing import Any

from tests.concurrency.member import Ground, Member
from tests.concurrency.planting import PLANTS
from tests.repo.programs.process_pool import Child
from tests.repo.programs.running import answer_with, hear

SECONDS_BETWEEN_KILLS = 2.0


def work(reported: dict[str, Any]) -> dict[str, Any]:
    """Start all members, kill as many as given, replace the killed and the finished, and wait."""
    if reported["plant"] is not None:
        PLANTS[reported["plant"]]()  # this process is asked once
    ground, operations = Ground(**reported["ground"]), reported["operations"]
    chance, numbers = random.Random(ground.seed), iter(range(10_000))

    def start() -> Child:
        number = next(numbers)
        return Child(lambda _: Member(ground, number).work(operations))

    working, done = [start() for _ in range(reported["members"])], list[Child]()

    def replace(location: int) -> None:
        done.append(working[location])
        working[location] = start()

    for _ in range(reported["kills"]):
        time.sleep(chance.uniform(0.05, SECONDS_BETWEEN_KILLS))
        for location in [location for location, child in enumerate(working) if _has_ended(child)]:
            replace(location)
        victim = chance.randrange(len(working))
        os.kill(working[victim].pid, signal.SIGKILL)
        replace(victim)
    results = [child.result() for child in (*done, *working)]
    return {
        "processes": len(results),
        "kills": reported["kills"],
        "errors": [result["error"] for result in results if result is not None and "error" in result],
    }


def _has_ended(child: Child) -> bool:
    """Whether it has written output, or has ended."""
    return bool(select.select([child.fd], [], [], 0)[0])


if __name__ == "__main__":
    while (asked := hear()) is not None:
        asked.pop("do")
        answer_with(work(asked))
