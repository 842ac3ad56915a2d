"""The record in a commit of the pipeline that made it; and the sources of pipelines, kept in the repository."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.errors import ObjectNotFoundError
from anabranch.pipelines.declarations import Output
from anabranch.pipelines.loading import Source
from anabranch.pipelines.parameters import written
from anabranch.repo.history.lineage.provenance import FILE, INPUT, NAME, OUTPUTS, PARAMETERS, SOURCE_HASH
from anabranch.storage import open_store

if TYPE_CHECKING:
    from anabranch.pipelines.plan import Plan
    from anabranch.repo.repository import Repository

__all__ = ["BuiltOutput", "begun_metadata", "find_source", "keep_source", "published_metadata"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltOutput:
    """An output as it was built: what it read, how many rows its table has now, and how long it took."""

    key: str
    inputs: tuple[str, ...]
    write: str
    kind: str
    rows: int
    seconds: float
    engine: str
    code_hash: str

    @classmethod
    def of(cls, output: Output, *, rows: int, seconds: float) -> "BuiltOutput":
        return cls(
            key=output.key,
            inputs=output.inputs,
            write=output.write.value,
            kind=output.kind,
            rows=rows,
            seconds=round(seconds, 3),
            engine=output.engine.value,
            code_hash=output.code_hash,
        )


def begun_metadata(plan: "Plan") -> dict[str, str]:
    """What is known when a run begins."""
    return {
        NAME: plan.pipeline,
        FILE: plan.source.name,
        SOURCE_HASH: plan.source.hash,
        PARAMETERS: _json(written(plan.parameters)),
    }


def _document(output: BuiltOutput) -> dict[str, Any]:
    """Return what the commit records of an output."""
    return {
        "inputs": list(output.inputs),
        "write": output.write,
        "rows": output.rows,
        "seconds": output.seconds,
        "kind": output.kind,
        "engine": output.engine,
        "code_hash": output.code_hash,
    }


def published_metadata(input_id: str, built: Sequence[BuiltOutput]) -> dict[str, str]:
    """What is known when it is about to be published."""
    return {INPUT: input_id, OUTPUTS: _json({output.key: _document(output) for output in built})}


def keep_source(repo: "Repository", source: Source) -> None:
    """Keep the text of a pipeline by its hash, so that every reader of the commit can run it again."""
    store, path = open_store(repo.uri, repo.storage_options), _path(source.hash, file=source.file)
    if store.find_info(path) is None:
        store.put(path, source.content)


def find_source(repo: "Repository", source_hash: str, *, file: str) -> Source | None:
    """The text that was kept by its hash; None if it is not there, or is another by now."""
    if not source_hash.isalnum():
        return None
    try:
        content = open_store(repo.uri, repo.storage_options).get(_path(source_hash, file=file))
    except ObjectNotFoundError:
        return None
    source = Source(file=file, content=content)
    return source if source.hash == source_hash else None


def _path(source_hash: str, *, file: str) -> str:
    is_project = Source(file=file, content=b"").is_project
    return f"_pipelines/{source_hash}.{'json' if is_project else 'py'}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
