"""What the figures of growth say: the section of RESULTS.md, and the parts of docs/growth.md that have numbers."""

from pathlib import Path

from _comparison import to_table, write_section
from _figures import DELAY_SECONDS, LATENCY, BySize, Figures
from _operations import OPERATIONS, Measured
from _plots import draw_delays, draw_growth

__all__ = ["write_report"]

UNITS = {"commits": "commits", "branches": "branches", "tables": "tables", "rows": "untouched rows"}
# Medians of a few milliseconds differ by this much on a machine that has other things to do.
FLAT = 1.5


def write_report(figures: Figures, root: Path) -> str:
    """Write the page, its plots and the section; return the section."""
    for axis, sizes in figures.axes.items():
        plot = root / "docs" / "img" / f"growth-{axis}.svg"
        if axis == LATENCY:
            draw_delays(sizes, file=plot)
            table = to_table(*_delays(sizes))
        else:
            draw_growth(sizes, unit=UNITS[axis], file=plot)
            table = to_table(*_growth(axis, sizes)) + "\n\n" + _verdict(axis, sizes)
        write_section(axis, f"\n![]({plot.parent.name}/{plot.name})\n\n{table}\n\n", file=root / "docs" / "growth.md")
    write_section("machine", f"{_about(figures)}\n", file=root / "docs" / "growth.md")
    section = _section(figures)
    write_section("growth", section, file=root / "benchmarks" / "RESULTS.md")
    return section


def _growth(axis: str, sizes: BySize) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    least, most = min(sizes), max(sizes)
    heads = ("operation", "requests", f"ms at {least:,}", f"at {most:,}", "ratio", "raw pylance's", "expected")
    rows = []
    for before, after in zip(sizes[least], sizes[most], strict=True):
        requests = sorted({one.ours.requests for measured in sizes.values() for one in measured if _same(one, before)})
        rows.append(
            (
                before.operation,
                f"{requests[0]}" if len(requests) == 1 else f"{requests[0]} to {requests[-1]:,}",
                f"{before.ours.milliseconds:.1f}",
                f"{after.ours.milliseconds:.1f}",
                f"{_ratio(before, after):.2f}x",
                _peer_ratio(before, after),
                "grows" if axis in _reasons(before) else "flat",
            )
        )
    return heads, rows


def _same(one: Measured, other: Measured) -> bool:
    return one.operation == other.operation


def _ratio(before: Measured, after: Measured) -> float:
    return after.ours.milliseconds / before.ours.milliseconds


def _peer_ratio(before: Measured, after: Measured) -> str:
    if before.peer is None or after.peer is None:
        return "-"
    return f"{after.peer.milliseconds / before.peer.milliseconds:.2f}x"


def _reasons(measured: Measured) -> dict[str, str]:
    return dict(next(one.grows_with for one in OPERATIONS if one.name == measured.operation))


def _verdict(axis: str, sizes: BySize) -> str:
    """In words, which are flat, and why the others are not."""
    least, most = min(sizes), max(sizes)
    pairs = list(zip(sizes[least], sizes[most], strict=True))
    grown = [(before, after) for before, after in pairs if _ratio(before, after) > FLAT]
    flat = f"{len(pairs) - len(grown)} of {len(pairs)} operations take at most {FLAT:g} times as long at {most:,}."
    reasons = [f"- {_explain(axis, sizes, before, after)}" for before, after in grown]
    return "\n".join([flat, *(["", *reasons] if reasons else [])])


def _explain(axis: str, sizes: BySize, before: Measured, after: Measured) -> str:
    peer = _peer_ratio(before, after)
    beside = "" if peer == "-" else f" (raw pylance {peer})"
    return f"*{before.operation}*, {_ratio(before, after):.1f}x{beside}: {_why(axis, sizes, before, after)}."


def _why(axis: str, sizes: BySize, before: Measured, after: Measured) -> str:
    if reason := _reasons(before).get(axis):
        return reason
    second = sorted(sizes)[1]
    since = _ratio(next(one for one in sizes[second] if _same(one, before)), after)
    if since <= FLAT:
        return f"it rises up to {second:,} and no more, {since:.1f}x from there on"
    counted = "the same requests" if before.ours.requests == after.ours.requests else "more requests"
    return f"not expected, with {counted}"


def _delays(sizes: BySize) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    heads = ["operation"]
    for size in sizes:
        heads += [f"requests after {size} commits", "ms", f"x {DELAY_SECONDS * 1000:.0f} ms"]
    heads += ["raw pylance: requests", "ms", f"x {DELAY_SECONDS * 1000:.0f} ms"]
    rows = []
    for measured in zip(*sizes.values(), strict=True):
        costs = [*(one.ours for one in measured), measured[-1].peer]
        cells = [measured[0].operation]
        for cost in costs:
            if cost is None:
                cells += ["-", "-", "-"]
                continue
            trips = cost.milliseconds / 1000 / DELAY_SECONDS
            cells += [f"{cost.requests}", f"{cost.milliseconds:.0f}", f"{trips:.1f}"]
        rows.append(tuple(cells))
    return tuple(heads), rows


def _about(figures: Figures) -> str:
    return f"Medians of {figures.rounds} rounds, on S3 of {max(figures.rounds // 4, 1)}. {figures.machine}"


def _section(figures: Figures) -> str:
    """The largest size beside the smallest; the page has the rest."""
    heads = ("operation", *(_range(axis, sizes) for axis, sizes in figures.axes.items() if axis != LATENCY))
    growing = {axis: sizes for axis, sizes in figures.axes.items() if axis != LATENCY}
    rows = []
    for number, operation in enumerate(OPERATIONS):
        cells = [operation.name]
        for sizes in growing.values():
            before, after = sizes[min(sizes)][number], sizes[max(sizes)][number]
            peer = _peer_ratio(before, after)
            cells.append(f"{_ratio(before, after):.2f}x" + ("" if peer == "-" else f" (raw {peer})"))
        rows.append(tuple(cells))
    return "\n".join(
        [
            "## Growth (`growth.py`)",
            "",
            "How many times as long an operation takes at the largest size as at the smallest, and in brackets raw",
            "pylance on a dataset that grew alike. The page [growth](../docs/growth.md) has plots, requests and times.",
            "",
            to_table(heads, rows),
            "",
            _about(figures),
            "",
        ]
    )


def _range(axis: str, sizes: BySize) -> str:
    return f"{min(sizes):,} to {max(sizes):,} {UNITS[axis]}"
