"""A pipeline: what its file declares, and how it is planned, run, backfilled and reproduced."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import InvalidInputError, InvalidPipelineError
from anabranch.pipelines.backfill import Backfill, list_values, run_backfill
from anabranch.pipelines.definition import PipelineDefinition, Source, execute
from anabranch.pipelines.plan import Plan, Selection, plan_pipeline
from anabranch.pipelines.project import declare_project, read_pipeline_source
from anabranch.pipelines.reproduction import Reproduction, recorded_source, reproduce
from anabranch.pipelines.run import Manner, PipelineRun, Session, run_plan
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.storage.requests import OnProgress, ignore_progress

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


class Pipeline(PipelineDefinition):
    """Tables made from other tables, by SQL or by functions of DataFrames, and what must hold for them.

    Declaring does nothing yet: `run` builds the outputs in their order and publishes all of them as one commit.
    """

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Execute a file and take the one pipeline that it declares, or read the folder of a project."""
        return cls._of_source(read_pipeline_source(path, storage_options))

    @classmethod
    def _of_source(cls, source: Source) -> Self:
        """Return the pipeline that a text declares, as if it were a file."""
        if source.is_project:
            project = declare_project(cls, source)
            project._source = source
            return project
        # By identity: a file may have two names for one pipeline.
        found = {id(value): value for value in vars(execute(source)).values() if isinstance(value, cls)}
        if len(found) != 1:
            several = f"declares {len(found)} pipelines" if found else "declares no pipeline"
            raise InvalidPipelineError(f"{source.file}: the file {several}", hint="declare one: ab.Pipeline('name')")
        (pipeline,) = found.values()
        pipeline._source = source
        return pipeline

    @classmethod
    def recorded(cls, repo: "Repository", ref: str) -> Self:
        """Return the pipeline that made a commit. Its recorded text is executed."""
        return cls._of_source(recorded_source(repo, EngineAccess(repo).published_snapshot_of(ref).commit))

    def plan(  # noqa: PLR0913 - all but the repository by their names
        self,
        repo: "Repository",
        *,
        branch: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        only: Sequence[str] = (),
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        since: str | None = None,
    ) -> Plan:
        """Return what a run would do; refuse what could not work. Nothing is changed, and Spark is not started.

        `select` and `exclude` are expressions: `orders` or `mart.orders`, `mart.*`, `+orders` with all that it reads,
        `orders+` with all that reads it, and `state:changed` for the outputs whose code or inputs changed since they
        were last built, as of the ref `since` (by default the branch).
        """
        selection = Selection(only=only, select=select, exclude=exclude, since=since)
        return plan_pipeline(self, repo, branch=branch, parameters=parameters or {}, selection=selection)

    def run(  # noqa: PLR0913 - all but the repository by their names
        self,
        repo: "Repository",
        *,
        branch: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        only: Sequence[str] = (),
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        since: str | None = None,
        jobs: int = 2,
        message: str | None = None,
        spark: Session = None,
        progress: OnProgress | None = None,
    ) -> PipelineRun:
        """Build the outputs and publish all of them as one commit of a branch, or nothing.

        Outputs that do not need each other are built at the same time, as many as there are `jobs`. `spark` is a
        session, or a function that starts one; it is called after the pipeline was checked, and only if an output
        needs Spark. What is built is chosen as in `plan`. `progress` gets a `StepProgress` when an output is started,
        is done or has failed.
        """
        plan = self.plan(
            repo, branch=branch, parameters=parameters, only=only, select=select, exclude=exclude, since=since
        )
        manner = Manner(jobs=jobs, session=spark, progress=progress or ignore_progress, message=message)
        return run_plan(plan, repo, manner)

    def backfill(  # noqa: PLR0913 - all but the repository by their names
        self,
        repo: "Repository",
        parameter: str,
        *,
        start: Any,
        end: Any,
        step: str | int | None = None,
        again: bool = False,
        branch: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        jobs: int = 2,
        spark: Session = None,
        progress: OnProgress | None = None,
    ) -> Backfill:
        """Run the pipeline once for each value of a parameter from `start` to `end`; each value is one commit.

        The parameter is a date or an int. `step` is a number, for dates also `7d`, `2w` or `1m`. The same call
        continues after a failure: values that the branch already has a commit of are skipped, unless `again`.
        `progress` gets a `BackfillProgress` for each value that is done, and the `StepProgress` of its outputs before.
        """
        values, others = list_values(self, parameter, start, end, step), dict(parameters or {})
        if parameter in others:
            raise InvalidInputError(
                f"the parameter {parameter!r} has a value besides its range", hint="leave the value out"
            )

        def plan(value: Any) -> Plan:
            given = {**others, parameter: value}
            return self.plan(repo, branch=branch, parameters=given, select=select, exclude=exclude)

        manner = Manner(jobs=jobs, session=spark, progress=progress or ignore_progress)
        return run_backfill(self, repo, parameter=parameter, values=values, plan=plan, manner=manner, again=again)

    def reproduce(
        self,
        repo: "Repository",
        ref: str,
        *,
        branch: str | None = None,
        jobs: int = 2,
        spark: Session = None,
        progress: OnProgress | None = None,
    ) -> Reproduction:
        """Run again what made a commit: on the inputs and with the parameters of then, onto a new branch.

        Each output is compared with what it was in that commit, row by row.
        """
        commit = EngineAccess(repo).published_snapshot_of(ref).commit
        manner = Manner(jobs=jobs, session=spark, progress=progress or ignore_progress)
        return reproduce(self, repo, commit, branch=branch, manner=manner)
