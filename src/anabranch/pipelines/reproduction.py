"""Repeat a recorded run of a pipeline on its recorded inputs, and compare the outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.errors import CommitNotFoundError, InvalidInputError, ObjectNotFoundError
from anabranch.pipelines.declarations import Output
from anabranch.pipelines.definition import PipelineDefinition, Source
from anabranch.pipelines.plan import Selection, plan_pipeline
from anabranch.pipelines.provenance import find_source
from anabranch.pipelines.run import Manner, PipelineRun, run_plan
from anabranch.repo.history.lineage import PipelineRecord
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


_BRANCH = "reproduce"
_SHORT = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutput:
    """The difference between a repeated output and the recorded one. `is_missing`: it was not built again."""

    key: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    has_other_columns: bool = False
    is_missing: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the output is equal to the recorded one."""
        return not (self.inserted or self.updated or self.deleted or self.has_other_columns or self.is_missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A repeated run: its branch, its source, and the comparison of its outputs with the recorded ones."""

    commit_id: str
    branch: str
    recorded_hash: str | None
    source_hash: str
    run: PipelineRun
    outputs: tuple[ComparedOutput, ...]

    @property
    def has_same_source(self) -> bool:
        """Whether the text of the pipeline is the one that made the commit."""
        return self.recorded_hash == self.source_hash

    @property
    def is_same(self) -> bool:
        """Whether all outputs are equal to the recorded ones."""
        return all(output.is_same for output in self.outputs)


def get_record(commit: GraphCommit) -> PipelineRecord:
    """Return the record in a commit of the pipeline that made it."""
    record = PipelineRecord.find(commit.metadata)
    if record is None or record.input is None or not record.outputs:
        raise InvalidInputError(
            f"commit {commit.graph_commit_id} was not made by a pipeline", hint="name a commit that 'run FILE' made"
        )
    return record


def recorded_source(repo: "Repository", commit: GraphCommit) -> Source:
    """Return the recorded text of the pipeline that made a commit."""
    record = get_record(commit)
    source = find_source(repo, record.source_hash or "", file=record.file or record.name)
    if source is None:
        raise ObjectNotFoundError(
            f"the text of the pipeline {record.name!r} of commit {commit.graph_commit_id} is not in the repository",
            hint="name its file, too",
        )
    return source


def reproduce(
    pipeline: PipelineDefinition, repo: "Repository", commit: GraphCommit, *, branch: str | None, manner: Manner
) -> Reproduction:
    record = get_record(commit)
    try:
        begun = EngineAccess(repo).published_snapshot_of(record.input or "")
    except CommitNotFoundError:
        raise CommitNotFoundError(
            f"what the pipeline of commit {commit.graph_commit_id} read is not a commit of a branch any more",
            hint="what a live branch shows of main is not kept; run pipelines on a pinned branch to reproduce them",
        ) from None
    selection = Selection(only=_wanted(pipeline.outputs, record, begun))
    # Check everything before a branch is made.
    plan_pipeline(pipeline, repo, branch=begun.id, parameters=record.parameters, selection=selection)
    name = branch or _free_name(repo, commit)
    repo.branch_create_from(begun.id, name, description=f"What {commit.graph_commit_id} made, made again")
    plan = plan_pipeline(pipeline, repo, branch=name, parameters=record.parameters, selection=selection)
    # Omit the checks of freshness, which the recorded run has passed: the data is older now.
    plan = replace(plan, checks=tuple(check for check in plan.checks if not check.depends_on_time))
    done = run_plan(plan, repo, replace(manner, message=f"Reproduce {commit.graph_commit_id}"))
    return Reproduction(
        commit_id=commit.graph_commit_id,
        branch=name,
        recorded_hash=record.source_hash,
        source_hash=plan.source.hash,
        run=done,
        outputs=_compare(repo, commit, record, done),
    )


def _wanted(outputs: Mapping[str, Output], record: PipelineRecord, begun: Snapshot) -> list[str]:
    """Return the recorded outputs that are still declared, and outputs that they need and that do not exist yet."""
    wanted: list[str] = []
    todo = [key for key in record.outputs if key in outputs]
    while todo:
        key = todo.pop()
        if key not in wanted:
            wanted.append(key)
            todo += [name for name in outputs[key].inputs if name in outputs and name not in begun]
    if not wanted:
        raise InvalidInputError(
            f"the pipeline declares none of the recorded outputs: {', '.join(record.outputs)}",
            hint="name the file of the recorded pipeline",
        )
    return wanted


def _free_name(repo: "Repository", commit: GraphCommit) -> str:
    taken = {branch.name for branch in repo.branch_list()}
    base = f"{_BRANCH}/{commit.graph_commit_id[:_SHORT].lower()}"
    # More names than there are branches, so at least one is free.
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _compare(
    repo: "Repository", commit: GraphCommit, record: PipelineRecord, done: PipelineRun
) -> tuple[ComparedOutput, ...]:
    built = {output.key for output in done.outputs} & set(record.outputs)
    found = repo.diff(commit.graph_commit_id, done.branch, tables=sorted(record.outputs))
    outputs = {key: ComparedOutput(key=key, is_missing=key not in built) for key in record.outputs}
    for table in found.tables:
        if table.key in built:
            outputs[table.key] = ComparedOutput(
                key=table.key,
                inserted=table.counts.inserted,
                updated=table.counts.updated,
                deleted=table.counts.deleted,
                has_other_columns=bool(table.columns),
            )
    return tuple(outputs.values())
