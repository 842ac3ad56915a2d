"""The record in a commit of the pipeline that made it, and the rows of inputs that are new since that record."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.comparer import default_comparer
from anabranch.errors import CommitNotFoundError, ObjectNotFoundError
from anabranch.pipelines.declarations import Output, written
from anabranch.pipelines.definition import Source
from anabranch.repo.history.ancestry import iter_ancestors
from anabranch.repo.history.diff import RowChangeKind, diff_snapshots
from anabranch.repo.history.lineage import FILE, INPUT, NAME, OUTPUTS, PARAMETERS, SOURCE_HASH, PipelineRecord
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.runs.runs import RUN_ID
from anabranch.repo.snapshot import Snapshot
from anabranch.storage import open_store

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltOutput:
    """A built output: its inputs, the number of rows of its table, and the duration of the build."""

    key: str
    inputs: tuple[str, ...]
    write: str
    rows: int
    seconds: float
    kind: str
    engine: str
    code_hash: str

    @classmethod
    def of(cls, output: Output, *, rows: int, seconds: float) -> "BuiltOutput":
        return cls(
            key=output.key,
            inputs=output.inputs,
            write=output.write.value,
            rows=rows,
            seconds=round(seconds, 3),
            kind=output.kind,
            engine=output.engine.value,
            code_hash=output.code_hash,
        )


def begun_metadata(pipeline: str, source: Source, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata that a run gets when it begins."""
    return {NAME: pipeline, FILE: source.name, SOURCE_HASH: source.hash, PARAMETERS: _json(written(parameters))}


def published_metadata(input_id: str, built: Sequence[BuiltOutput]) -> dict[str, str]:
    """Return the metadata that a run gets when it is published."""
    outputs = {}
    for output in built:
        record = asdict(output)
        outputs[record.pop("key")] = record
    return {INPUT: input_id, OUTPUTS: _json(outputs)}


def keep_source(repo: "Repository", source: Source) -> None:
    """Keep the text of a pipeline by its hash, so that every reader of the commit can run it again."""
    store, path = open_store(repo.uri, repo.storage_options), _path(source.hash, file=source.file)
    # The name has the hash of the content, so a file that exists has the same text.
    if store.find_info(path) is None:
        store.put(path, source.content)


def find_source(repo: "Repository", source_hash: str, *, file: str) -> Source | None:
    """Return the text that was kept by its hash, or None if it is missing or has changed."""
    # The hash is metadata of a commit, which any writer can set. It must not lead to a path outside the folder.
    if not source_hash.isalnum():
        return None
    try:
        content = open_store(repo.uri, repo.storage_options).get(_path(source_hash, file=file))
    except ObjectNotFoundError:
        return None
    source = Source(file=file, content=content)
    return source if source.hash == source_hash else None


def _path(source_hash: str, *, file: str) -> str:
    return f"_pipelines/{source_hash}.{'json' if Source(file=file, content=b'').is_project else 'py'}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def find_last_builds(snapshot: Snapshot, *, pipeline: str, outputs: Collection[str]) -> dict[str, GraphCommit]:
    """Return for each output the newest commit in the history of a state in which the pipeline built it, if any."""
    found: dict[str, GraphCommit] = {}
    # An output whose table is missing is rebuilt. Commits of merged pipelines count, too.
    missing = {key for key in outputs if key in snapshot}
    for commit in iter_ancestors(snapshot) if missing else ():
        record = PipelineRecord.find(commit.metadata)
        if record is not None and record.name == pipeline:
            built = missing & set(record.outputs)
            found.update(dict.fromkeys(built, commit))
            missing -= built
            if not missing:
                break
    return found


def seen_input(repo: "Repository", commit: GraphCommit, key: str) -> Snapshot:
    """Return a state with the table that the pipeline of a commit has read."""
    record = PipelineRecord.find(commit.metadata)
    if record is not None and key in record.outputs:
        return repo.snapshot_of(commit.graph_commit_id)
    return input_snapshot(repo, commit)


def input_snapshot(repo: "Repository", commit: GraphCommit) -> Snapshot:
    """Return the state that the pipeline of a commit began with."""
    record = PipelineRecord.find(commit.metadata)
    if record is None or record.input is None:
        raise CommitNotFoundError(
            f"commit {commit.graph_commit_id} does not record what its pipeline read", hint="name another commit"
        )
    try:
        return repo.snapshot_of(record.input)
    except CommitNotFoundError:
        # Only the run records the commit that a live branch showed at that time.
        return EngineAccess(repo).snapshot_at_begin(commit.metadata.get(RUN_ID, ""))


def iter_new_rows(key: str, *, before: Snapshot, after: Snapshot) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that were inserted or updated between two states, with their new values."""
    for table in diff_snapshots(before, after, keys=[key], load_comparer=default_comparer).tables:
        if table.key != key:
            continue
        for batch in table.iter_batches():
            rows = batch.filter(pc.not_equal(batch.column("change"), RowChangeKind.DELETED.value)).column("after")
            yield pa.RecordBatch.from_arrays(rows.flatten(), names=rows.type.names)
