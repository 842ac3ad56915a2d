"""Measure what commands cost that only read the commit graph: the processor time of each as a user runs it.

Each run is a process of its own, in the sample lake of `anabranch demo`. Beside it: a Python that does nothing, and
`git status` in a folder with one file.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from _comparison import bold, take_turns, to_section, working_folder, write_section

AIM_SECONDS = 0.45
DEMO_AIM_SECONDS = 6.0
HEADS = ("what", "least ms", "median ms", "times `python -c pass`", "aim")
PROGRAM = str(Path(sys.executable).with_name("anabranch"))
COMMANDS = (
    "--version",
    "--help",
    "status",
    "branch",
    "log",
    "tag",
    "reflog",
    "switch main",
    "diff main sale --stat",
)
# What a shell runs to complete the name of a branch.
COMPLETION = {"_ANABRANCH_COMPLETE": "complete_bash", "COMP_WORDS": "anabranch switch ", "COMP_CWORD": "2"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dry-run", action="store_true", help="only print the section")
    chosen = parser.parse_args()
    with working_folder(chosen.folder) as folder:
        rows = measure(folder, chosen.rounds)
    section = to_section(
        "Command line (`start.py`)",
        [
            f"Processor time (user and system) of one process, least and median of {chosen.rounds} rounds, by turns,",
            "in the sample lake that `anabranch demo` makes. *Complete a branch* is what a shell runs for",
            "`anabranch switch <Tab>`. The demo is measured once.",
        ],
        rows,
        heads=HEADS,
        packages=("typer", "obstore"),
        folder=folder,
    )
    sys.stdout.write(section)
    if not chosen.dry_run:
        write_section("start", section)


def measure(folder: Path, rounds: int) -> list[tuple[str, ...]]:
    lake, repository = folder / "shop", folder / "git"
    demo = processor_seconds([PROGRAM, "demo", str(lake)], folder)
    make_git_repository(repository)
    contestants: dict[str, Callable[[], float]] = {
        "`python -c pass`": partial(processor_seconds, [sys.executable, "-c", "pass"], lake),
        "`git status`": partial(processor_seconds, ["git", "status"], repository),
        "complete a branch": partial(processor_seconds, [PROGRAM], lake, COMPLETION),
    }
    for command in COMMANDS:
        contestants[f"`anabranch {command}`"] = partial(processor_seconds, [PROGRAM, *command.split()], lake)
    found = take_turns(contestants, rounds=rounds, warm_up=1, measure=lambda run: run())
    nothing = min(found["`python -c pass`"])
    rows = [to_row(name, times, nothing) for name, times in found.items()]
    return [*rows, to_row("`anabranch demo`", [demo], nothing)]


def to_row(name: str, times: Sequence[float], nothing: float) -> tuple[str, ...]:
    least, median = min(times), statistics.median(times)
    most = DEMO_AIM_SECONDS if "demo" in name else AIM_SECONDS
    is_ours = not name.startswith(("`python", "`git"))
    shown = bold(f"{least * 1000:.0f}", when=is_ours and least > most)
    aim = f"at most {most * 1000:.0f} ms" if is_ours else "-"
    return name, shown, f"{median * 1000:.0f}", f"{least / nothing:.0f}x", aim


def processor_seconds(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> float:
    """Run a command to its end. Return the seconds that it took of all processors."""
    # Compiled modules are kept, as for a user. A developer's settings are not.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONDONT", "ANABRANCH_"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    given = {**plain, **(environment or {})}
    subprocess.run(command, cwd=folder, env=given, capture_output=True, check=True)  # noqa: S603 - our own commands
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_git_repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "orders.csv").write_text("id,item\n1,tea\n")
    for command in ("init", "add orders.csv"):
        subprocess.run(["git", *command.split()], cwd=folder, capture_output=True, check=True)  # noqa: S603, S607


if __name__ == "__main__":
    main()
