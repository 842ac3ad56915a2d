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
    """Start all members, kill as many as is said, one after the other, and wait for the rest."""
    if told["plant"] is not None:
        PLANTS[told["plant"]]()  # this process is asked once
    ground, operations = Ground(**told["ground"]), told["operations"]
    chance, numbers = random.Random(ground.seed), iter(range(10_000))

    def start() -> Child:
        number = next(numbers)
        return Child(lambda _: Member(ground, number).work(operations))

    working, done, kills = [start() for _ in range(told["members"])], list[Child](), 0
    while kills < told["kills"]:
        time.sleep(chance.uniform(0.05, SECONDS_BETWEEN_KILLS))
        living = [child for child in working if not _has_ended(child)]
        if not living:
            break
        victim = chance.choice(living)
        os.kill(victim.pid, signal.SIGKILL)
        kills += 1
        done.append(victim)
        working[working.index(victim)] = start()
    results = [child.result() for child in (*done, *working)]
    return {
        "processes": len(results),
        "kills": kills,
        "errors": [result["error"] for result in results if result is not None and "error" in result],
    }


def _has_ended(child: Child) -> bool:
    """Whether it has said something, or will say nothing any more."""
    return bool(select.select([child.fd], [], [], 0)[0])


if __name__ == "__main__":
    while (asked := hear()) is not None:
        asked.pop("do")
        say(work(asked))
