"""The lineage of a table as a graph, and the metadata of a commit about the pipeline that made it.

Any writer can set metadata, so invalid values are ignored and never raise an error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Self

from anabranch.display import to_datetime
from anabranch.drawing import DrawnBox, draw_boxes, draw_tree
from anabranch.errors import InvalidNameError
from anabranch.ids import CommitId, TableKey
from anabranch.repo.log.entries import CommitKind, GraphCommit

# The metadata keys that a pipeline writes.
NAME = "pipeline"
FILE = "pipeline.file"
SOURCE_HASH = "pipeline.source_hash"
PARAMETERS = "pipeline.parameters"
INPUT = "pipeline.input"
OUTPUTS = "pipeline.outputs"
BACKFILL = "pipeline.backfill"
# In seconds. A longer duration is not valid.
_MAX_SECONDS = 1e12


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Everything that a table at one commit was made from.

    The first node is the table itself. A pipeline that reads its own output makes a cycle.
    """

    table: str
    commit_id: str
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]

    def to_text(self) -> str:
        """Draw a tree: below each table the pipelines and commits that made it, below these their inputs."""
        nodes = {node.id: node for node in self.nodes}
        branches: dict[str, list[tuple[str, str]]] = {}
        for edge in self.edges:
            remark = "the name before" if edge.kind is EdgeKind.RENAMED else ""
            branches.setdefault(edge.target, []).append((edge.source, remark))
        return draw_tree([self.nodes[0].id], branches, lambda node_id: (nodes[node_id].name, nodes[node_id].about))

    def to_svg(self, *, link: Callable[[LineageNode], str] | None = None, with_style: bool = True) -> str:
        """Draw the graph from left to right as a self-contained SVG file.

        `link` returns the address of a node. `with_style=False` is for pages that have the style already.
        """
        boxes = [
            DrawnBox(
                id=node.id,
                style=f"{node.kind.value} root" if node is self.nodes[0] else node.kind.value,
                name=node.name,
                # Put the time on a line of its own to keep the boxes narrow.
                about=tuple(node.about.rsplit(" · ", 1)),
                title=f"{node.name}: {node.about}, commit {node.commit_id}",
                href=None if link is None else link(node),
            )
            for node in self.nodes
        ]
        edges = [(edge.source, edge.target, edge.kind.value) for edge in self.edges]
        return draw_boxes(boxes, edges, title=f"The lineage of {self.nodes[0].name}", with_style=with_style)

    def _repr_html_(self) -> str:
        return self.to_svg()

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as a dict for JSON."""
        return {
            "table": self.table,
            "commit_id": self.commit_id,
            "nodes": [_node_document(node) for node in self.nodes],
            "edges": [{"source": edge.source, "target": edge.target, "kind": edge.kind.value} for edge in self.edges],
        }


def _node_document(node: LineageNode) -> dict[str, Any]:
    more = {NodeKind.TABLE: ["rows"], NodeKind.PIPELINE: ["commits", "message", "write"]}
    names = ["id", "kind", "name", "table", "commit_id", "created_at", *more.get(node.kind, ["commits", "message"])]
    return {**{name: getattr(node, name) for name in names}, "kind": node.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """One output of a pipeline: its inputs, and how it was built. None if the commit has no valid value."""

    inputs: tuple[str, ...] = ()
    write: str | None = None
    kind: str | None = None
    rows: int | None = None
    seconds: float | None = None
    code_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """A pipeline run as its commit records it. `input` is the commit at which its inputs were read."""

    name: str
    file: str | None = None
    source_hash: str | None = None
    input: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    outputs: Mapping[str, OutputRecord] = field(default_factory=dict, hash=False)

    @classmethod
    def find(cls, metadata: Mapping[str, str]) -> Self | None:
        """Return the record in the metadata of a commit, or None if no pipeline made the commit."""
        if not metadata.get(NAME, "").strip():
            return None
        return cls(
            name=metadata[NAME],
            file=metadata.get(FILE) or None,
            source_hash=metadata.get(SOURCE_HASH) or None,
            input=_name(CommitId, metadata.get(INPUT)),
            parameters=_json_object(metadata.get(PARAMETERS, "")),
            outputs={
                key: _output(found)
                for key, found in _json_object(metadata.get(OUTPUTS, "")).items()
                if _name(TableKey, key) and isinstance(found, dict)
            },
        )


def made_by(commit: GraphCommit) -> str:
    """Return a short name for the maker of a commit: the pipeline, else the kind of the commit."""
    record = PipelineRecord.find(commit.metadata)
    if record is not None:
        return f"pipeline {record.name}"
    return "run" if commit.kind is CommitKind.PUBLISH_RUN else commit.kind.value.replace("_", " ")


def _output(found: Mapping[str, Any]) -> OutputRecord:
    inputs, rows = found.get("inputs"), found.get("rows")
    return OutputRecord(
        inputs=tuple(dict.fromkeys(filter(partial(_name, TableKey), inputs))) if isinstance(inputs, list) else (),
        write=_text(found.get("write")),
        kind=_text(found.get("kind")),
        # Metadata are free text that any client may write, so that a wrong value is ignored instead of an error.
        rows=rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None,
        seconds=_duration(found.get("seconds")),
        code_hash=_text(found.get("code_hash")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _duration(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _MAX_SECONDS else None


def _name(kind: type[TableKey | CommitId], value: Any) -> str | None:
    """Return the key of a table or the id of a commit, None if it is not valid."""
    try:
        return str(kind.parse(value))
    except InvalidNameError:
        return None


def _json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Return {} if the text is not one, or cannot be written as JSON in UTF-8 again."""
    try:
        found = json.loads(text)
        # NaN and Infinity are read, and refused here.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
