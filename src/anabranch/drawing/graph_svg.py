"""Draw the rows of a commit graph as SVG, one picture for each row of a table."""

from collections.abc import Sequence

from anabranch.drawing.lanes import LaneRow

__all__ = ["ROW_HEIGHT", "draw_row", "lane_count"]

ROW_HEIGHT = 30
_STEP = 14
_RADIUS = 4.5
# Lanes beyond this share the last one, so that a graph of many branches stays narrow.
_MOST = 24
# Readable on light and on dark paper. Attributes and not classes: a notebook has no style sheet of ours.
_COLOURS = ("#0b7285", "#c2410c", "#7048e8", "#2b8a3e", "#c2255c", "#1971c2", "#8a6d00")


def lane_count(rows: Sequence[LaneRow]) -> int:
    """Return how many lanes a drawing of the rows needs."""
    lanes = [row.lane for row in rows] + [lane for row in rows for line in (*row.above, *row.below) for lane in line]
    return min(max(lanes, default=0), _MOST) + 1


def draw_row(row: LaneRow, *, lanes: int, is_merge: bool = False) -> str:
    """Draw the commit of a row, and the halves of the lines to the rows above and below it."""
    middle, width = ROW_HEIGHT / 2, lanes * _STEP + 2
    # Lines are halved at the edge between two rows, where both pictures draw the same point.
    parts = [_half(start, end, upper=True) for start, end in row.above]
    parts += [_half(start, end, upper=False) for start, end in row.below]
    colour, x = _COLOURS[row.lane % len(_COLOURS)], _x(row.lane)
    fill = "none" if is_merge else colour
    parts.append(f'<circle cx="{x}" cy="{middle}" r="{_RADIUS}" fill="{fill}" stroke="{colour}" stroke-width="2"/>')
    return (
        f'<svg class="lanes" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{ROW_HEIGHT}" '
        f'viewBox="0 0 {width} {ROW_HEIGHT}" aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
    )


def _half(start: int, end: int, *, upper: bool) -> str:
    """Draw the half of a line that is in a row: its end in the row below the line, its start in the row above it."""
    colour = _COLOURS[max(start, end) % len(_COLOURS)]
    left, right, height = _x(start), _x(end), ROW_HEIGHT
    edge = (left + right) / 2
    # The halves of one cubic curve, cut in its middle, where it crosses the edge between the rows.
    if upper:
        path = f"M{edge},0 C{(edge + right) / 2},{height / 8} {right},{height / 4} {right},{height / 2}"
    else:
        path = f"M{left},{height / 2} C{left},{3 * height / 4} {(left + edge) / 2},{7 * height / 8} {edge},{height}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _x(lane: int) -> float:
    return 1 + _STEP * (min(lane, _MOST) + 0.5)
