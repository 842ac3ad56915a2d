"""Operations on one row, and what two of them come to, written down as grids: sources down, targets across.

A row is its two cells, a and b; `-` means none, `11+22` two of them. `a!` is a conflict about a cell, `row!` about the
row.
"""

__all__ = ["Grid", "parse_grid", "parse_square"]

Grid = dict[tuple[str, str], str]


def parse_grid(text: str) -> Grid:
    (header, *lines) = text.strip().splitlines()
    targets = header.split()
    found: Grid = {}
    for line in lines:
        source, *cells = line.split()
        found |= {(source, target): cell for target, cell in zip(targets, cells, strict=True)}
    assert len(found) == len(targets) ** 2
    return found


def parse_square(text: str) -> Grid:
    """Parse a grid without a header, whose columns are those of the lines."""
    lines = text.strip().splitlines()
    return parse_grid("\n".join([" ".join(line.split()[0] for line in lines), *lines]))
