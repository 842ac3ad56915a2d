"""What operations cost as a repository grows, beside raw pylance on a dataset that grows with it.

Along each axis one lake grows, and at some sizes all operations are measured on a copy of it: what they do to it does
not count as growth. On S3 the same operations are measured through a proxy that makes every request wait, Lance's own
too. The figures go into growth.json; the section in RESULTS.md, the page docs/growth.md and its plots are made from
them, and `--redraw` makes these again without measuring anything.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _comparison import machine, working_folder
from _delay import DelayingProxy
from _figures import DELAY_SECONDS, LATENCY, BySize, Figures, read_figures, write_figures
from _growth_report import write_report
from _lakes import Lake, put_back_afterwards
from _operations import counting_meter, delaying_meter, measure

ROOT = Path(__file__).parents[1]
ROWS = 10_000
LATENCY_ROWS = 1_000
LATENCY_COMMITS = (10, 200)
PACKAGES = ("pylance", "pyarrow", "obstore", "duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What grows, and through which sizes."""

    sizes: tuple[int, ...]
    grow: Callable[[Lake, int], None]


AXES = {
    "commits": Axis(sizes=(10, 100, 1_000, 10_000), grow=Lake.grow_commits),
    "branches": Axis(sizes=(1, 10, 100, 1_000), grow=Lake.grow_branches),
    "tables": Axis(sizes=(1, 10, 100, 1_000), grow=Lake.grow_tables),
    "rows": Axis(sizes=(ROWS, 100_000, 1_000_000, 10_000_000), grow=Lake.grow_rows),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=9, help="on S3 a quarter of them")
    parser.add_argument("--axes", nargs="+", choices=[*AXES, LATENCY], default=[*AXES, LATENCY])
    parser.add_argument("--steps", type=int, default=4, help="how many of the sizes, the smallest first")
    parser.add_argument("--redraw", action="store_true", help="measure nothing; make text and plots from the figures")
    parser.add_argument("--root", type=Path, default=ROOT, help="where `benchmarks` and `docs` are written to")
    chosen = parser.parse_args()
    figures = read_figures(chosen.root)
    if not chosen.redraw:
        found = {}
        for name in chosen.axes:
            with working_folder(chosen.folder) as folder:
                found[name] = measure_axis(name, folder, rounds=chosen.rounds, steps=chosen.steps)
        # Those that were left out keep their figures.
        figures = Figures(axes={**figures.axes, **found}, machine=machine(PACKAGES, folder), rounds=chosen.rounds)
        write_figures(figures, chosen.root)
    sys.stdout.write(write_report(figures, chosen.root))


def measure_axis(name: str, folder: Path, *, rounds: int, steps: int) -> BySize:
    return (
        measure_delayed(folder, rounds=max(rounds // 4, 1), steps=steps)
        if name == LATENCY
        else measure_growth(AXES[name], folder / "grown", rounds=rounds, steps=steps)
    )


def measure_growth(axis: Axis, folder: Path, *, rounds: int, steps: int) -> BySize:
    folder.mkdir()
    lake = Lake(str(folder))
    lake.begin(rows=ROWS)
    found = {}
    for size in axis.sizes[:steps]:
        began = time.perf_counter()
        axis.grow(lake, size)
        grown = time.perf_counter()
        with put_back_afterwards(folder), counting_meter() as meter:
            found[size] = measure(lake, meter, rounds=rounds)
        tell(f"{axis.grow.__name__} to {size:,}", grown - began, time.perf_counter() - grown)
    return found


def measure_delayed(folder: Path, *, rounds: int, steps: int) -> BySize:
    """On a real S3 server that is far away."""
    sys.path.append(str(ROOT))
    from tests.s3_server import s3_server

    found = {}
    with s3_server(folder) as options:
        proxy = DelayingProxy(int(options["aws_endpoint"].rpartition(":")[2]))
        with proxy.running() as port:
            for size in LATENCY_COMMITS[:steps]:
                began = time.perf_counter()
                lake = Lake(f"s3://lake/grown{size}", {**options, "aws_endpoint": f"http://127.0.0.1:{port}"})
                lake.begin(rows=LATENCY_ROWS)
                lake.grow_commits(size)
                grown = time.perf_counter()
                found[size] = measure(lake, delaying_meter(proxy, DELAY_SECONDS), rounds=rounds)
                tell(f"{size} commits on S3", grown - began, time.perf_counter() - grown)
    return found


def tell(what: str, growing: float, measuring: float) -> None:
    sys.stderr.write(f"{what}: {growing:.0f} s, measured in {measuring:.0f} s\n")


if __name__ == "__main__":
    main()
