"""How much a run of faults did, reported at its end."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.proof_log import record_proof


@dataclass(slots=True)
class Tally:
    """What was done, as a measure of the proof."""

    writes: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


@contextmanager
def reported(proof: str) -> Iterator[Tally]:
    """A tally that is reported when all is done."""
    tally, began = Tally(), time.monotonic()
    yield tally
    counts = {
        "writes": tally.writes,
        "requests": tally.requests,
        "faults": sum(tally.faults.values()),
        **dict(sorted(tally.outcomes.items())),
        "by_kind": dict(sorted(tally.faults.items())),
    }
    record_proof(proof, counts, seconds=time.monotonic() - began)


def spread(total: int, most: int) -> list[int]:
    """Numbers from 1 to a total, all of them or as many as wanted, evenly spread; the first and the last are there."""
    if total <= most:
        return list(range(1, total + 1))
    return sorted({1 + round(step * (total - 1) / (most - 1)) for step in range(most)})
