"""Nodes and edges of a lineage: tables, the pipelines and commits that made them, and the flow of data."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from anabranch.display import to_datetime

__all__ = ["EdgeKind", "LineageEdge", "LineageNode", "NodeKind"]


class NodeKind(StrEnum):
    """The kind of a node. `change` is any commit that is neither a load nor made by a pipeline."""

    TABLE = "table"
    PIPELINE = "pipeline"
    LOAD = "load"
    CHANGE = "change"


class EdgeKind(StrEnum):
    """How data passed from one node to another."""

    READ = "read"
    MADE = "made"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """A table, or the pipeline or commits that made a table.

    There is one node for each table name. `commit_id` is the newest commit at which the table was read, and `rows` the
    number of its rows there, or None if it was not found. For each table there is one node for each pipeline and one
    for each kind of commit. It counts `commits`, and has the id and the first line of the message of the newest one.
    `created_at` is the time of that commit in microseconds since 1970. `write` is the write mode of a pipeline.
    """

    id: str
    kind: NodeKind
    name: str
    table: str
    commit_id: str
    created_at: int
    rows: int | None = None
    commits: int = 0
    message: str = ""
    write: str | None = None

    @property
    def created(self) -> datetime:
        """The time of the newest commit, in UTC."""
        return to_datetime(self.created_at)

    @property
    def about(self) -> str:
        """A short description besides the name, such as the number of rows or commits."""
        match self.kind:
            case NodeKind.TABLE:
                return "not found" if self.rows is None else "1 row" if self.rows == 1 else f"{self.rows:,} rows"
            case NodeKind.PIPELINE:
                return self._counted("pipeline" if self.write is None else f"pipeline, {self.write}", "runs")
            case NodeKind.LOAD | NodeKind.CHANGE:
                return self._counted(self.message, "commits")

    def _counted(self, first: str, noun: str) -> str:
        times = f"{self.commits:,} {noun}" if self.commits > 1 else ""
        return " · ".join(filter(None, (first, times, self.created.strftime("%Y-%m-%d %H:%M"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """Data passed from `source` to `target`. Both are ids of nodes."""

    source: str
    target: str
    kind: EdgeKind
