"""Commits and branches as people see them: in a line, or in a graph of characters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.cli.output import count
from anabranch.display import short_id
from anabranch.drawing.commit_graph import Node
from anabranch.errors import TableNotFoundError
from anabranch.hints import suggest
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.branches import BranchInfo

__all__ = ["commit_line", "draw", "mode_text", "never_changed", "short_id", "subject"]


def subject(commit: "GraphCommit") -> str:
    """The first line of a commit's message."""
    return commit.message.strip().partition("\n")[0]


def commit_line(commit: "GraphCommit") -> str:
    """A commit in one line: its short id and the first line of its message."""
    return f"{short_id(commit.graph_commit_id)} {subject(commit)}".rstrip()


def mode_text(branch: "BranchInfo") -> str:
    """How a branch sees its source, and how many tables a live one does not take from it. Main has no source."""
    if branch.name == MAIN:
        return "-"
    own = f", {count(len(branch.own_tables), 'own table')}" if branch.mode is BranchMode.LIVE else ""
    return f"{branch.mode.value}{own}"


def never_changed(table: str, ref: str, known: Iterable[str]) -> TableNotFoundError:
    """Return the error for a table that no commit of a ref changed. `known` are the tables of the ref."""
    hint = suggest(table, known, "list the tables with `tables()`", by_parts=True)
    return TableNotFoundError(f"no commit of '{ref}' changed a table '{table}'", hint=hint)


def draw(nodes: Sequence[Node], labels: Mapping[str, str]) -> Iterator[str]:
    """Lines for the nodes, which come newest first; each column waits for the commit it will meet next."""
    columns: list[str] = []
    for node in nodes:
        if node.id not in columns:
            columns.append(node.id)
        at = columns.index(node.id)
        # Several children wait for this commit. Their columns join above its line, from the right, so that `at` stays
        # valid.
        while columns.count(node.id) > 1:
            joining = len(columns) - 1 - columns[::-1].index(node.id)
            yield _joined(at, joining, len(columns))
            del columns[joining]
        marks = ["*" if index == at else "|" for index in range(len(columns))]
        yield f"{' '.join(marks)} {labels[node.id]}"
        if not node.parents:
            yield from _ended(at, len(columns))
            del columns[at]
            continue
        columns[at] = node.parents[0]
        for merged in node.parents[1:]:
            yield _opened(at, len(columns))
            columns.insert(at + 1, merged)


def _joined(into: int, joining: int, width: int) -> str:
    """One column runs into another on its left, and those on its right move up."""
    cells = ["|", *[" "] * (2 * width - 2)]
    for index in range(1, width):
        if index < joining:
            cells[2 * index] = "|"
            cells[2 * index - 1] = "_" if index > into else " "
        else:
            cells[2 * index - 1] = "/"
    return "".join(cells).rstrip()


def _opened(at: int, width: int) -> str:
    """A column begins right of another, and those on its right make room."""
    cells = ["|" if index <= at else " " for index in range(width)]
    between = ["\\" if index >= at else " " for index in range(width)]
    return "".join(cell + gap for cell, gap in zip(cells, between, strict=True)).rstrip()


def _ended(at: int, width: int) -> Iterator[str]:
    """A column ends, and those on its right move up."""
    if at == width - 1:
        return
    cells = ["|" if index < at else " " for index in range(width)]
    between = ["/" if index >= at else " " for index in range(width - 1)]
    yield "".join(cell + gap for cell, gap in zip(cells, [*between, ""], strict=True)).rstrip()
