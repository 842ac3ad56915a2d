"""The metadata of a commit about the pipeline that made it.

Any writer can set metadata, so invalid values are ignored and never raise an error.
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
            input=_commit_id(metadata.get(INPUT, "")),
            parameters=_json_object(metadata.get(PARAMETERS, "")),
            outputs={
                key: _output(found)
                for key, found in _json_object(metadata.get(OUTPUTS, "")).items()
                if _is_key(key) and isinstance(found, dict)
            },
        )


def made_by(commit: GraphCommit) -> str:
    """Return a short name for the maker of a commit: the pipeline, else the kind of the commit."""
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
    """Parse a JSON object. Return {} if the text is not one, or cannot be written as JSON in UTF-8 again."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")
