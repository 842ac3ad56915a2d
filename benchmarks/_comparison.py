"""What all benchmarks share: contestants that take turns, findings, and the section of each in RESULTS.md."""

import math
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = [
    "COST_HEADS",
    "Cost",
    "CostFinding",
    "Finding",
    "bold",
    "cost",
    "least",
    "machine",
    "medians",
    "seconds",
    "take_turns",
    "to_section",
    "to_table",
    "working_folder",
    "write_section",
]

RESULTS = Path(__file__).with_name("RESULTS.md")
COST_HEADS = ("what", "ms", "against", "ms", "ratio", "processor", "aim")
FINDING_HEADS = ("what", "ms", "against", "ms", "ratio", "aim")


@dataclass(frozen=True, slots=True)
class Finding:
    """One ratio, and what was aimed at."""

    what: str
    milliseconds: float
    against: str
    baseline: float
    aim: str

    @property
    def ratio(self) -> float:
        return self.milliseconds / self.baseline

    def to_row(self) -> tuple[str, ...]:
        ratio = f"{self.ratio:.2f}x" if self.ratio >= 0.5 else f"1/{1 / self.ratio:.1f}"
        shown = bold(ratio, when=self.ratio > self.most)
        return self.what, f"{self.milliseconds:.2f}", self.against, f"{self.baseline:.2f}", shown, self.aim

    @property
    def most(self) -> float:
        """The ratio that the aim allows: 'at most 2x' or 'at most 1/10'; other aims are not numbers."""
        said = self.aim.removeprefix("at most ")
        if said == self.aim:
            return math.inf
        return 1 / float(said[2:]) if said.startswith("1/") else float(said.removesuffix("x"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one run: by the clock, and of all processors."""

    wall: float
    processor: float


@dataclass(frozen=True, slots=True)
class CostFinding:
    """One ratio of the least times of all rounds, with the ratio of processor times beside it."""

    what: str
    ours: Cost
    against: str
    theirs: Cost
    aim: str

    def to_row(self) -> tuple[str, ...]:
        wall = Finding(self.what, self.ours.wall * 1000, self.against, self.theirs.wall * 1000, self.aim).to_row()
        times = self.ours.processor * 1000, self.theirs.processor * 1000
        processor = Finding("", times[0], "", times[1], "-").to_row()[4]
        return (*wall[:5], processor, self.aim)


def cost(action: Callable[[], object]) -> Cost:
    began, processor = time.perf_counter(), time.process_time()
    action()
    return Cost(time.perf_counter() - began, time.process_time() - processor)


def least(costs: Sequence[Cost]) -> Cost:
    """The least of each: on a shared machine, other work only adds to it."""
    return Cost(min(one.wall for one in costs), min(one.processor for one in costs))


def bold(text: str, *, when: bool) -> str:
    """Let a figure that misses its aim be seen."""
    return f"**{text}**" if when else text


@contextmanager
def working_folder(parent: str | None) -> Iterator[Path]:
    """A folder to work in, gone afterwards; in the system's place for temporary files unless a parent is given."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def take_turns(
    contestants: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    warm_up: int,
    measure: Callable[[Callable[[], Any]], float] | None = None,
) -> dict[str, list[float]]:
    """How many seconds each took in each round after those to warm up: by the clock, or as `measure` finds."""
    timings: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants.items())
    for number in range(warm_up + rounds):
        # Everyone comes after everyone else: what the one before leaves behind, in caches and threads, costs the next.
        random.Random(number).shuffle(order)  # noqa: S311 - no secret
        for name, run in order:
            timings[name].append((measure or seconds)(run))
    return {name: found[warm_up:] for name, found in timings.items()}


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def medians(timings: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """In milliseconds."""
    return {name: statistics.median(found) * 1000 for name, found in timings.items()}


def to_section(
    title: str,
    about: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    *,
    heads: tuple[str, ...] = FINDING_HEADS,
    packages: Sequence[str],
    folder: Path,
) -> str:
    """Markdown: what was done, the table, and on which machine with which versions."""
    return "\n".join([f"## {title}", "", *about, "", to_table(heads, rows), "", machine(packages, folder), ""])


def to_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def machine(packages: Sequence[str], folder: Path) -> str:
    """Where and with what a benchmark ran."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, "
        f"files in `{folder.parent}`; Python {platform.python_version()}, {versions}."
    )


def write_section(name: str, section: str, *, file: Path = RESULTS) -> None:
    """Replace one benchmark's section of the results, or add it; all else in the file stays."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = file.read_text() if file.exists() else "# Results\n"
    before, found, rest = text.partition(begin)
    if not found:
        before = before.rstrip("\n") + "\n\n"
    after = rest.partition(end)[2] if found else ""
    file.write_text(f"{before}{begin}{section}{end}{after}")
