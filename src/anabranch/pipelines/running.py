"""Build the outputs of a plan inside a run, and publish all of them, or nothing."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.pipelines.building import Builder
from anabranch.pipelines.failures import failed
from anabranch.pipelines.planning import Plan, Step
from anabranch.pipelines.provenance import BuiltOutput, begun_metadata, keep_source, published_metadata
from anabranch.repo.run import Run
from anabranch.spark.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.repo.repository import Repository

__all__ = ["OnStep", "PipelineRun", "StepProgress", "StepState", "run_plan"]

OnStep = Callable[["StepProgress"], None]


class StepState(StrEnum):
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """How far one output is, and how many of all are done."""

    key: str
    state: StepState
    done: int
    total: int
    built: BuiltOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """What a run of a pipeline made; `commit_id` is None if nothing changed."""

    pipeline: str
    branch: str
    run_id: str
    input_id: str
    commit_id: str | None
    outputs: tuple[BuiltOutput, ...]
    checks: tuple[str, ...]


def run_plan(
    plan: Plan,
    repo: "Repository",
    *,
    jobs: int,
    message: str | None,
    session: "SparkSession | None",
    on_step: OnStep | None,
) -> PipelineRun:
    if jobs < 1:
        raise InvalidInputError(f"there cannot be {jobs} jobs", hint="give a number from 1 on")
    spark = get_session(session, repo=repo)
    keep_source(repo, plan.source)
    text = f"Run the pipeline {plan.pipeline}" if message is None else message
    with repo.begin_run(plan.branch, message=text, metadata=begun_metadata(plan)) as run:
        input_id = run.snapshot().id
        builder = Builder(repo=repo, run=run, plan=plan, session=spark)
        built = _Crew(plan, repo, run, builder, on_step or _nobody_watches).build_all(jobs)
        checks = {check.name: check.check for check in plan.checks}
        commit = run.publish(checks=checks, metadata=published_metadata(input_id, built))
    return PipelineRun(
        pipeline=plan.pipeline,
        branch=plan.branch,
        run_id=run.id,
        input_id=input_id,
        commit_id=None if commit is None else commit.graph_commit_id,
        outputs=tuple(built),
        checks=tuple(checks),
    )


def _nobody_watches(_progress: StepProgress) -> None:
    """Do nothing."""


class _Crew:
    """Builds steps as soon as those before them are done, several at the same time."""

    def __init__(self, plan: Plan, repo: "Repository", run: Run, builder: Builder, on_step: OnStep) -> None:
        self._plan = plan
        self._repo = repo
        self._run = run
        self._builder = builder
        self._on_step = on_step
        self._built: dict[str, BuiltOutput] = {}

    def build_all(self, jobs: int) -> list[BuiltOutput]:
        waiting = list(self._plan.steps)
        working: dict[Future[BuiltOutput], Step] = {}
        with ThreadPoolExecutor(jobs, thread_name_prefix="anabranch-step") as threads:
            try:
                while waiting or working:
                    for step in self._ready(waiting)[: jobs - len(working)]:
                        waiting.remove(step)
                        self._tell(step, StepState.STARTED)
                        working[threads.submit(self._build, step)] = step
                    done, _ = wait(working, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._finish(working.pop(future), future)
            except BaseException:
                # Nobody needs what the others do any more.
                self._builder.interrupt()
                raise
        return [self._built[step.key] for step in self._plan.steps]

    def _ready(self, waiting: Sequence[Step]) -> list[Step]:
        return [step for step in waiting if all(key in self._built for key in step.after)]

    def _build(self, step: Step) -> BuiltOutput:
        began = time.monotonic()
        rows = self._builder.build(step.output)
        return BuiltOutput.of(step.output, rows=rows, seconds=time.monotonic() - began)

    def _finish(self, step: Step, future: Future[BuiltOutput]) -> None:
        error = future.exception()
        if error is not None:
            self._tell(step, StepState.FAILED)
            raise failed(self._repo, self._run.id, step.output, error) from error
        self._built[step.key] = future.result()
        self._tell(step, StepState.DONE)

    def _tell(self, step: Step, state: StepState) -> None:
        built = self._built.get(step.key)
        progress = StepProgress(
            key=step.key, state=state, done=len(self._built), total=len(self._plan.steps), built=built
        )
        self._on_step(progress)
