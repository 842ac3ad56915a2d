"""Growth as plots: a small one for each operation, ours beside its peer, in one file for each axis."""

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from _figures import DELAY_SECONDS, BySize

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

__all__ = ["draw_delays", "draw_growth"]

OURS, PEER, INK, GRID = "#1f6feb", "#b35900", "#24292f", "#d8dee4"
COLUMNS = 4
# Plain text and fixed names: the same figures give the same file. A white ground is readable on dark pages, too.
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "anabranch",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}


def draw_growth(sizes: BySize, *, unit: str, file: Path) -> None:
    """Milliseconds by size, from nought up: what is flat looks flat."""
    names = [one.operation for one in next(iter(sizes.values()))]
    rows = -(-len(names) // COLUMNS)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(rows, COLUMNS, figsize=(10, 2.1 * rows), layout="constrained")
        for number, (name, axis) in enumerate(zip(names, axes.flat, strict=False)):
            _draw_operation(axis, sizes, number)
            axis.set_title(name)
        for axis in axes.flat[len(names) :]:
            axis.set_axis_off()
        figure.supxlabel(unit, fontsize=9)
        _add_legend(axes.flat[-1], figure)
        _save(figure, file)


def _draw_operation(axis: Any, sizes: BySize, number: int) -> None:
    found = [measured[number] for measured in sizes.values()]
    lines = {"anabranch, ms": (OURS, [one.ours.milliseconds for one in found])}
    if all(one.peer is not None for one in found):
        lines["raw pylance, ms"] = (PEER, [one.peer.milliseconds for one in found if one.peer is not None])
    for label, (colour, values) in lines.items():
        axis.plot(list(sizes), values, color=colour, marker="o", markersize=3, linewidth=1.4, label=label)
    axis.set_xscale("log")
    axis.set_xticks(list(sizes), labels=[_short(size) for size in sizes])
    axis.xaxis.set_minor_locator(NullLocator())
    # Differences below what a machine does by itself are not to fill a plot.
    axis.set_ylim(0, 1.25 * max(max(values) for _, values in lines.values()))
    axis.tick_params(length=0)


def draw_delays(sizes: BySize, *, file: Path) -> None:
    """How many delays fit into each operation, early and late in a history, and into what its peer does."""
    names = [one.operation for one in next(iter(sizes.values()))]
    trips: dict[str, list[float]] = {
        f"anabranch, after {size} commits": [_trips(one.ours.milliseconds) for one in measured]
        for size, measured in sizes.items()
    }
    last = list(sizes.values())[-1]
    trips["raw pylance"] = [0.0 if one.peer is None else _trips(one.peer.milliseconds) for one in last]
    with mpl.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(10, 0.42 * len(names) + 0.9), layout="constrained")
        _draw_bars(axis, names, trips)
        axis.set_xlabel(f"time in multiples of {DELAY_SECONDS * 1000:.0f} ms")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.legend(frameon=False, loc="lower right")
        _save(figure, file)


def _draw_bars(axis: Any, names: Sequence[str], trips: Mapping[str, Sequence[float]]) -> None:
    height = 0.8 / len(trips)
    colours = ["#8cb8f5", OURS, PEER][-len(trips) :]
    for number, ((label, values), colour) in enumerate(zip(trips.items(), colours, strict=True)):
        places = [place + (number - (len(trips) - 1) / 2) * height for place in range(len(names))]
        axis.barh(places, values, height=height * 0.9, color=colour, label=label)
    axis.set_yticks(range(len(names)), labels=names)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.tick_params(length=0)


def _trips(milliseconds: float) -> float:
    return milliseconds / 1000 / DELAY_SECONDS


def _short(size: int) -> str:
    for factor, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= factor:
            return f"{size / factor:g}{letter}"
    return str(size)


def _add_legend(axis: Any, figure: Any) -> None:
    """In the place that is left over."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    axis.legend(handles, labels, frameon=False, loc="center")


def _save(figure: Any, file: Path) -> None:
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    without_comments = re.sub(r" *<!--.*?-->\n", "", drawn.getvalue(), flags=re.DOTALL)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(re.sub(r"(\d\.\d\d)\d+", r"\1", without_comments))
