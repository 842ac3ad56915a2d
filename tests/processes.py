"""The processes that tests start and kill: programs, programs that answer requests, and forks of a program."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
_PAUSE_SECONDS = 0.01

# Given the file descriptor on which the result goes back, so that a killed process can still report.
Work = Callable[[int], Any]


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def kill_this_process() -> NoReturn:
    kill(os.getpid())
    raise AssertionError("this process was killed")


@contextmanager
def running_program(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Start a program. At the end it is killed, if it is still running."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """Kill a program if it is running, and read the rest of its output."""
    process.kill()
    process.communicate()


def wait_until(is_done: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait for something that a process does before it ends."""
    while not is_done():
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        time.sleep(_PAUSE_SECONDS)


def run_until_killed(command: Sequence[str], **options: Any) -> None:
    """Run a program that kills itself. Return when no process has its output open."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert answer.returncode == -signal.SIGKILL, answer.stderr[-5000:]


class Child:
    """A forked process and the pipe on which its result comes back."""

    def __init__(self, work: Work) -> None:
        self.fd, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            _work_and_exit(work, theirs)
        os.close(theirs)

    def kill(self) -> None:
        kill(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether it has written its result, or has ended without one."""
        return bool(select.select([self.fd], [], [], 0)[0])

    def cpu_seconds(self) -> float:
        """Return how long its threads have computed, which does not depend on other processes of the machine."""
        with open(f"/proc/{self.pid}/stat") as file:
            # The second field is the name in brackets. The 14th and 15th are the time in the program and in the kernel.
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def result(self) -> Any:
        """Return what the work returned or raised, or its last words. None if it was killed without any."""
        with os.fdopen(self.fd) as lines:
            text = lines.read()
        os.waitpid(self.pid, 0)
        return json.loads(text) if text else None


def _work_and_exit(work: Work, out: int) -> None:
    try:
        answer = json.dumps({"done": work(out)})
    except BaseException:  # noqa: BLE001 - the test has to see every error
        answer = json.dumps({"error": traceback.format_exc()})
    with os.fdopen(out, "w") as lines:
        lines.write(answer)
    os._exit(0)


class Program:
    """A program of the tests that answers requests in lines of JSON. Leaving it ends it."""

    def __init__(self, name: str, *, package: str = "tests.repo.programs") -> None:
        self._name = name
        # Lance warns of forks, which are safe before it is used.
        command = [sys.executable, "-W", "ignore", "-m", f"{package}.{name}"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise AssertionError(f"{self._name} ended without an answer: {errors[-3000:]}")
        return json.loads(line)

    def points_of(self, scenario: str, **request: Any) -> list[str]:
        """Run a scenario to its end. Return the points at which it can be killed."""
        answer = self.ask("kill", scenario=scenario, **request)
        assert "done" in answer, answer
        points: list[str] = answer["done"]
        assert len(points) > 2
        return points

    def kill_at(self, fatal: int, scenario: str, **request: Any) -> list[str]:
        """Kill a scenario at a point. Return the points that it passed, with this one as the last."""
        answer = self.ask("kill", scenario=scenario, fatal=fatal, **request)
        assert "killed" in answer, (fatal, answer)
        points: list[str] = answer["killed"]
        assert len(points) == fatal + 1
        return points


def receive() -> dict[str, Any] | None:
    """Inside a program: return the next request, None after the last one."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def answer_with(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
