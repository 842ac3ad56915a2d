"""Start a program beside this one as a real process, and talk to it in lines of JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]


class Program:
    """One running process; leaving it ends it."""

    def __init__(self, name: str, *, package: str = "tests.repo.programs") -> None:
        self._name = name
        # Lance warns of forks, which are safe before it is used.
        command = [sys.executable, "-W", "ignore", "-m", f"{package}.{name}"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            _, printed = self._process.communicate()
            raise AssertionError(f"{self._name} ended without an answer: {printed[-3000:]}")
        return json.loads(line)


def hear() -> dict[str, Any] | None:
    """Inside a program: the next request, None when there will be no more."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def answer_with(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
