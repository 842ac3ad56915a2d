"""A program that lets many processes work on one repository at once, and kills and replaces some of them."""

import random
import time
from typing import Any

from tests.concurrency.member import Ground, Member
from tests.concurrency.planted_bugs import PLANTS
from tests.processes import Child, answer_with, receive

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
        for location in [location for location, child in enumerate(working) if child.has_ended]:
            replace(location)
        victim = chance.randrange(len(working))
        working[victim].kill()
        replace(victim)
    results = [child.result() for child in (*done, *working)]
    return {
        "processes": len(results),
        "kills": reported["kills"],
        "errors": [result["error"] for result in results if result is not None and "error" in result],
    }


if __name__ == "__main__":
    while (asked := receive()) is not None:
        asked.pop("do")
        answer_with(work(asked))
