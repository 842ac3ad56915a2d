"""How much a run of faults did, told at its end and appended to the file that ANABRANCH_PROOF_LOG names."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(slots=True)
class Tally:
    """What was done, for whoever wants to know how much the proof proves."""

    writes: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


@contextmanager
def told(config: pytest.Config, proof: str) -> Iterator[Tally]:
    """A tally that is told when all is done."""
    tally, began = Tally(), time.monotonic()
    yield tally
    line = json.dumps(
        {
            "proof": proof,
            "writes": tally.writes,
            "requests": tally.requests,
            "faults": sum(tally.faults.values()),
            "by_kind": dict(sorted(tally.faults.items())),
            "outcomes": dict(sorted(tally.outcomes.items())),
            "seconds": round(time.monotonic() - began),
        }
    )
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capturing = config.pluginmanager.get_plugin("capturemanager")
    if reporter is not None and capturing is not None:
        with capturing.global_and_fixture_disabled():
            reporter.write_line(f"\n{line}")
    if "ANABRANCH_PROOF_LOG" in os.environ and config.getoption("--proof"):
        with Path(os.environ["ANABRANCH_PROOF_LOG"]).open("a") as log:
            log.write(f"{line}\n")


def spread(total: int, most: int) -> list[int]:
    """Numbers from 1 to a total, all of them or as many as wanted, evenly spread; the first and the last are there."""
    if total <= most:
        return list(range(1, total + 1))
    return sorted({1 + round(step * (total - 1) / (most - 1)) for step in range(most)})
