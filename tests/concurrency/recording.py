"""What each process wrote down: one line when it called something, one when it got an answer."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError, StorageUnavailableError


class Outcome(StrEnum):
    """How a call ended, as far as its caller knows."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # killed, or the store did not answer
    BROKEN = "broken"  # an error that no process should see


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one process. Times are of one clock for all; `actor` names the call in the logs that it wrote.

    `base` is the commit whose rows it saw before it wrote, where that matters.
    """

    actor: str
    kind: str
    base: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    began: int
    ended: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    code: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Appends to a file of its own what a process does, each line before the next step, so that a kill leaves it."""

    def __init__(self, folder: Path, member: int) -> None:
        self._member = member
        self._calls = 0
        self._file = os.open(folder / f"{member}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @contextmanager
    def calling(self, kind: str, **asked: Any) -> "Iterator[Answer]":
        """Record a call and how it ended; errors of ours are answers, and any other is written down as broken."""
        self._calls += 1
        answer = Answer(actor=f"{self._member}.{self._calls}")
        self._write({"actor": answer.actor, "kind": kind, "asked": asked, "began": time.monotonic_ns()})
        try:
            yield answer
            outcome, code = Outcome.DONE, ""
        except StorageUnavailableError as err:
            outcome, code = Outcome.UNKNOWN, err.code
        except AnabranchError as err:
            outcome, code = Outcome.REFUSED, err.code
            answer.result["record"] = str(err)
        except Exception as err:  # noqa: BLE001 - the checker records every error
            outcome, code = Outcome.BROKEN, repr(err)
        ended = time.monotonic_ns()
        reported = {"actor": answer.actor, "ended": ended, "outcome": outcome, "code": code, "result": answer.result}
        self._write(reported)

    def note_base(self, answer: "Answer", commit_id: str) -> None:
        """Write down what a call builds on, before it may be killed."""
        self._write({"actor": answer.actor, "base": commit_id})

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())


@dataclass
class Answer:
    """The name of a call, and what came of it."""

    actor: str
    result: dict[str, Any] = field(default_factory=dict)


def read_calls(folder: Path) -> list[Call]:
    """The calls of all processes, by when they began."""
    reported: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            reported.setdefault(record["actor"], {}).update(record)
    calls = [
        Call(**{**record, "outcome": Outcome(record.get("outcome", Outcome.UNKNOWN))}) for record in reported.values()
    ]
    return sorted(calls, key=lambda call: call.began)
