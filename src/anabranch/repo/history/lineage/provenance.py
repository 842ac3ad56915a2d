"""What a commit says about the pipeline that made it.

Anybody can write metadata, so what makes no sense is passed over, and never an error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from anabranch.errors import InvalidNameError
from anabranch.ids import CommitId, TableKey
from anabranch.repo.log.entries import CommitKind, GraphCommit

__all__ = [
    "BACKFILL",
    "FILE",
    "INPUT",
    "NAME",
    "OUTPUTS",
    "PARAMETERS",
    "SOURCE_HASH",
    "OutputRecord",
    "PipelineRecord",
    "made_by",
]

# The keys of the metadata that a pipeline leaves.
NAME = "pipeline"
FILE = "pipeline.file"
SOURCE_HASH = "pipeline.source_hash"
PARAMETERS = "pipeline.parameters"
INPUT = "pipeline.input"
OUTPUTS = "pipeline.outputs"
BACKFILL = "pipeline.backfill"
# In seconds; what claims to have taken longer did not.
_FOREVER = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """One output of a pipeline: what it was made from, and how. None where the commit does not say."""

    inputs: tuple[str, ...] = ()
    write: str | None = None
    kind: str | None = None
    rows: int | None = None
    seconds: float | None = None
    code_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """A pipeline's run as its commit tells of it. `input` is the commit that its inputs were read at."""

    name: str
    file: str | None = None
    source_hash: str | None = None
    input: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    outputs: Mapping[str, OutputRecord] = field(default_factory=dict, hash=False)

    @classmethod
    def find(cls, metadata: Mapping[str, str]) -> Self | None:
        """What a commit's metadata say, or None if they tell of no pipeline."""
        if not metadata.get(NAME, "").strip():
            return None
        return cls(
            name=metadata[NAME],
            file=metadata.get(FILE) or None,
            source_hash=metadata.get(SOURCE_HASH) or None,
            input=_commit_id(metadata.get(INPUT, "")),
            parameters=_json_object(metadata.get(PARAMETERS, "")),
            outputs={
                key: _output(found)
                for key, found in _json_object(metadata.get(OUTPUTS, "")).items()
                if _is_key(key) and isinstance(found, dict)
            },
        )


def made_by(commit: GraphCommit) -> str:
    """Who or what made a commit, in a word or two: a pipeline by its name, else the kind of the commit."""
    record = PipelineRecord.find(commit.metadata)
    if record is not None:
        return f"pipeline {record.name}"
    return "run" if commit.kind is CommitKind.PUBLISH_RUN else commit.kind.value.replace("_", " ")


def _output(found: Mapping[str, Any]) -> OutputRecord:
    inputs = found.get("inputs")
    rows = found.get("rows")
    return OutputRecord(
        inputs=tuple(dict.fromkeys(filter(_is_key, inputs))) if isinstance(inputs, list) else (),
        write=_text(found.get("write")),
        kind=_text(found.get("kind")),
        rows=rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None,
        seconds=_duration(found.get("seconds")),
        code_hash=_text(found.get("code_hash")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _duration(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _FOREVER else None


def _is_key(value: Any) -> bool:
    try:
        TableKey.parse(value)
    except InvalidNameError:
        return False
    return True


def _commit_id(text: str) -> str | None:
    try:
        return CommitId.parse(text).value
    except InvalidNameError:
        return None


def _json_object(text: str) -> dict[str, Any]:
    """A JSON object; empty if the text is none, or holds what cannot be written as JSON or UTF-8 again."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
