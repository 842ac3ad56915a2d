"""What random machines did, counted while they do it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from hypothesis import event
from hypothesis.stateful import RuleStrategy, rule
from hypothesis.strategies import SearchStrategy

from tests.proof_log import record_proof

NOTED: Counter[str] = Counter()

_REFUSED = "refused: "
_STEP = "step: "


def note(what: str) -> None:
    """Record that something happened in a history."""
    event(what)
    NOTED[what] += 1


def step(**drawn: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule of a machine whose uses are counted."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def counted(machine: Any, **arguments: Any) -> None:
            NOTED[f"{_STEP}{function.__name__}"] += 1
            function(machine, **arguments)

        found: Callable[..., None] = rule(**drawn)(counted)  # type: ignore[call-overload]
        return found

    return decorate


class AllRules(RuleStrategy):
    """Any rule at any step: by itself, Hypothesis lets most histories do with a few of them."""

    def _rule_is_enabled(self, found: Any) -> bool:
        return bool(self.is_valid(found))


@contextmanager
def recorded(proof: str) -> Iterator[None]:
    """Count what machines do, and record it as one proof, also of one that fails."""
    NOTED.clear()
    began = time.monotonic()
    try:
        yield
    finally:
        record_proof(proof, counts(), seconds=time.monotonic() - began)


def counts() -> dict[str, Any]:
    steps, refusals = _of(_STEP), _of(_REFUSED)
    others = {what: count for what, count in sorted(NOTED.items()) if not what.startswith((_STEP, _REFUSED))}
    return {
        "histories": others.pop("whole histories", 0),
        "steps": sum(steps.values()),
        "refusals": sum(refusals.values()),
        "kills": others.pop("killed", 0),
        "operations": steps,
        "refused": refusals,
        "events": others,
    }


def _of(kind: str) -> dict[str, int]:
    return {what.removeprefix(kind): count for what, count in sorted(NOTED.items()) if what.startswith(kind)}
