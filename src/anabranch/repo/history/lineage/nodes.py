"""The parts of a lineage: tables, what made them, and how data went from one to the other."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

__all__ = ["EdgeKind", "LineageEdge", "LineageNode", "NodeKind"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NodeKind(StrEnum):
    """What a node stands for; `change` is any commit that is neither a load nor a pipeline's."""

    TABLE = "table"
    PIPELINE = "pipeline"
    LOAD = "load"
    CHANGE = "change"


class EdgeKind(StrEnum):
    """How data went from one node to another."""

    READ = "read"
    MADE = "made"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """A table, or what made one.

    A table is one node by its name, at whatever commits it was read; `commit_id` is the newest of them, and `rows` its
    rows there, None if it was not found. What made a table is one node for each pipeline and each kind of commit:
    `commits` of them, of which `commit_id` and the first line of its `message` are the newest's. `created_at` is that
    commit's time in microseconds since 1970; `write` says how a pipeline writes.
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
    def about(self) -> str:
        """What there is to say of it besides its name, in a few words."""
        match self.kind:
            case NodeKind.TABLE:
                return "not found" if self.rows is None else "1 row" if self.rows == 1 else f"{self.rows:,} rows"
            case NodeKind.PIPELINE:
                return self._counted("pipeline" if self.write is None else f"pipeline, {self.write}", "runs")
            case NodeKind.LOAD | NodeKind.CHANGE:
                return self._counted(self.message, "commits")

    def _counted(self, first: str, noun: str) -> str:
        times = f"{self.commits:,} {noun}" if self.commits > 1 else ""
        moment = _EPOCH + timedelta(microseconds=self.created_at)
        return " · ".join(filter(None, (first, times, moment.strftime("%Y-%m-%d %H:%M"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """Data went from `source` to `target`; both are ids of nodes."""

    source: str
    target: str
    kind: EdgeKind
