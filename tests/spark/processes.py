"""The processes of Spark and of the catalog, as Linux shows them."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

GATEWAY = b"from pyspark_anabranch import serve_gateway; serve_gateway()"
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Process:
    """A running process."""

    pid: int
    parent: int
    arguments: tuple[bytes, ...]

    @property
    def is_gateway(self) -> bool:
        return GATEWAY in self.arguments

    @property
    def socket(self) -> str:
        """Return the path at which a gateway listens."""
        return self.arguments[self.arguments.index(GATEWAY) + 1].decode()


def iter_processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        if state != "Z":
            yield Process(int(folder.name), int(parent), tuple(arguments))


def descendants(pid: int) -> list[Process]:
    """Return the processes that a process started, and those that they started."""
    found = list(iter_processes())
    family = {pid}
    while True:
        more = {one.pid for one in found if one.parent in family} - family
        if not more:
            return [one for one in found if one.pid in family and one.pid != pid]
        family |= more


def gateways(pid: int | None = None) -> list[Process]:
    """Return the gateways among the descendants of a process, by default of this one."""
    return [one for one in descendants(os.getpid() if pid is None else pid) if one.is_gateway]


def is_running(pid: int) -> bool:
    return any(one.pid == pid for one in iter_processes())


def count_requests(path: str) -> int:
    """Return how many connections the gateway at this path has accepted and not closed."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") for line in lines) - 1  # one socket listens


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
