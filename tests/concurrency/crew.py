"""A program that lets many processes work on one repository at once, and kills and replaces some of them."""

import os
import random
import select
import signal
import time
from typing import Any

from tests.concurrency.member import Ground, Member
from tests.concurrency.planting import PLANTS
from tests.repo.programs.nursery import Child
from tests.repo.programs.running import hear, say

SECONDS_BETWEEN_KILLS = 2.0


def work(told: dict[str, Any]) -> dict[str, Any]:
    """Start all members, kill as many as is said, put others in the place of the killed and the done, and wait."""
    if told["plant"] is not None:
        PLANTS[told["plant"]]()  # this process is asked once
    ground, operations = Ground(**told["ground"]), told["operations"]
    chance, numbers = random.Random(ground.seed), iter(range(10_000))

    def start() -> Child:
        number = next(numbers)
        return Child(lambda _: Member(ground, number).work(operations))

    working, done = [start() for _ in range(told["members"])], list[Child]()

    def replace(place: int) -> None:
        done.append(working[place])
        working[place] = start()

    for _ in range(told["kills"]):
        time.sleep(chance.uniform(0.05, SECONDS_BETWEEN_KILLS))
        for place in [place for place, child in enumerate(working) if _has_ended(child)]:
            replace(place)
        victim = chance.randrange(len(working))
        os.kill(working[victim].pid, signal.SIGKILL)
        replace(victim)
    results = [child.result() for child in (*done, *working)]
    return {
        "processes": len(results),
        "kills": told["kills"],
        "errors": [result["error"] for result in results if result is not None and "error" in result],
    }


def _has_ended(child: Child) -> bool:
    """Whether it has said something, or will say nothing any more."""
    return bool(select.select([child.fd], [], [], 0)[0])


if __name__ == "__main__":
    while (asked := hear()) is not None:
        asked.pop("do")
        say(work(asked))
