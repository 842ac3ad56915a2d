"""Build the outputs of a plan inside a run, and publish all of them, or nothing. Report failed steps."""

import re
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from anabranch.errors import (
    AnabranchError,
    CheckFailedError,
    InvalidInputError,
    StepFailedError,
    StorageError,
    WriteConflictError,
)
from anabranch.pipelines.build import Builder, DuckBuilder, SparkBuilder
from anabranch.pipelines.declarations import DeclaredCheck, Engine, Output
from anabranch.pipelines.definition import MODULE
from anabranch.pipelines.plan import Plan, Step
from anabranch.pipelines.provenance import (
    BuiltOutput,
    begun_metadata,
    find_last_builds,
    keep_source,
    published_metadata,
)
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.publish_checks import Check
from anabranch.spark.session import get_session, ship_by_value
from anabranch.storage import open_store
from anabranch.storage.requests import OnProgress, Progress
from anabranch.storage.uris import join_uri

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository
    from anabranch.spark.session import SparkSession


_FOLDER = "_logs"
_LONGEST = 400
# The last line of a Python traceback on a worker.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
# Positions, task ids and codes that Spark adds to a message. The location of the model is more useful.
_TAIL = re.compile(r"\s*(?:SQLSTATE: \w+|;?\s*line \d+,? pos \d+|\(TID \d+\)).*$", re.DOTALL)


def failed(repo: "Repository", run_id: str, output: Output, error: BaseException) -> StepFailedError:
    """Return the error to raise for a failed step, and write the whole text of its error to a log in the repository."""
    problem = f"{output.location}: building '{output.key}' failed: {reason_of(error)}"
    path = f"{_FOLDER}/{run_id}/{output.key}.log"
    try:
        store = open_store(repo.uri, repo.storage_options)
        # `replace`, because a message may hold a lone surrogate, which UTF-8 cannot encode.
        store.put(path, "".join(traceback.format_exception(error)).encode(errors="replace"))
    # The failure of the step matters more than its log, and must not be replaced by another error.
    except StorageError:
        return StepFailedError(problem, hint="fix it and run again; its log could not be kept")
    return StepFailedError(problem, hint=f"fix it and run again; its log is {join_uri(repo.uri, path)}")


def check_failed(checks: Sequence[DeclaredCheck], error: CheckFailedError) -> CheckFailedError:
    """Return the error to raise for a failed check. Its hint is to run again: the run of the pipeline has ended."""
    location = next((f"{check.location}: " for check in checks if check.name == error.details.get("check")), "")
    hint = "correct the data, the model or the check, and run again; nothing was published"
    return CheckFailedError(f"{location}{error.problem}", hint=hint, details=error.details)


def list_logs(repo: "Repository", run_id: str) -> dict[str, str]:
    """Return the addresses of the logs of the failed steps of a run, by output."""
    found = open_store(repo.uri, repo.storage_options).list(f"{_FOLDER}/{run_id}")
    logs = {info.path.rpartition("/")[2].removesuffix(".log"): join_uri(repo.uri, info.path) for info in found}
    return dict(sorted(logs.items()))


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line, without the stack traces of Spark."""
    if isinstance(error, AnabranchError):
        return str(error)
    text = str(error).strip()
    raised = _RAISED.findall(text)
    text = raised[-1] if raised else _TAIL.sub("", next(iter(text.splitlines()), ""))
    text = text.strip(" .;")
    # Messages of PySpark begin with an error class of their own, in brackets.
    if not raised and not type(error).__module__.startswith("pyspark"):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


Session: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"

# An interrupt has no effect on a step that is between two Spark jobs, so it is repeated.
_BETWEEN_INTERRUPTS_SECONDS = 0.5


class StepState(StrEnum):
    """The state of an output in a run of a pipeline."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress(Progress):
    """An output of a pipeline that was started, is done or has failed. `stage` is 'outputs'.

    `built` is set if the output is done. `rows` counts the rows of all outputs that are done.
    """

    table: str
    state: StepState
    built: BuiltOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """The result of a run of a pipeline. `commit_id` is None if nothing changed."""

    pipeline: str
    branch: str
    run_id: str
    input_id: str
    commit_id: str | None
    outputs: tuple[BuiltOutput, ...]
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The options of a run: the number of concurrent steps, the session, and the progress callback.

    A session may also be given as a function that starts it. The commit gets the `metadata` besides that of the plan.
    """

    jobs: int
    session: "Session"
    progress: OnProgress
    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InvalidInputError(f"there cannot be {self.jobs} jobs", hint="give a number from 1 on")


def run_plan(plan: Plan, repo: "Repository", manner: Manner) -> PipelineRun:
    # Spark is started before the run begins, so that a failure to start leaves no run behind.
    spark = _start_spark(plan, repo, manner)
    # Keep the source before the commit, which must not name a missing text.
    keep_source(repo, plan.source)
    text = f"Run the pipeline {plan.pipeline}" if manner.message is None else manner.message
    checks: dict[str, Check] = {check.name: check.check for check in plan.checks}
    metadata = {**begun_metadata(plan.pipeline, plan.source, plan.parameters), **manner.metadata}
    with repo.begin_run(plan.branch, message=text, metadata=metadata, checks=checks) as run:
        begun = run.snapshot()
        # Only these need their last build, and the search for it reads the history.
        growing = [step.key for step in plan.steps if step.output.incremental]
        last = find_last_builds(begun, pipeline=plan.pipeline, outputs=growing)
        builders: dict[Engine, Builder] = {Engine.DUCKDB: DuckBuilder(repo=repo, run=run, plan=plan, last_builds=last)}
        if spark is not None:
            builders[Engine.SPARK] = SparkBuilder(repo=repo, run=run, plan=plan, last_builds=last, session=spark)
        built = _Crew(plan, repo, run, builders, manner.progress).build_all(manner.jobs)
        try:
            commit = run.publish(checks=_unmoved(plan, run), metadata=published_metadata(begun.id, built))
        except CheckFailedError as err:
            raise check_failed(plan.checks, err) from err
    return PipelineRun(
        pipeline=plan.pipeline,
        branch=plan.branch,
        run_id=run.id,
        input_id=begun.id,
        commit_id=None if commit is None else commit.graph_commit_id,
        outputs=tuple(built),
        checks=tuple(checks),
    )


def _start_spark(plan: Plan, repo: "Repository", manner: Manner) -> "SparkSession | None":
    """Start Spark if an output needs it. A plan for DuckDB alone neither imports nor starts it."""
    if all(step.output.engine is not Engine.SPARK for step in plan.steps):
        return None
    spark = get_session(manner.session() if callable(manner.session) else manner.session, repo=repo, catalog=None)
    # Spark's workers cannot import a pipeline file, so its functions are sent to them.
    for name in {step.output.function.__module__ for step in plan.steps if step.output.function is not None}:
        # Other modules are installed on the workers, which import them.
        if name.startswith(MODULE) and name in sys.modules:
            ship_by_value(sys.modules[name])
    return spark


def _unmoved(plan: Plan, run: Run) -> dict[str, Check]:
    """Return checks that no other writer appended to outputs whose new rows were all read by steps."""
    made, now = {step.key for step in plan.steps}, run.snapshot()
    taken = {key: now[key].entry.version for step in plan.steps for key in step.output.incremental if key in made}

    def check(snapshot: Snapshot) -> None:
        for key, version in taken.items():
            if snapshot[key].entry.version != version:
                raise WriteConflictError(
                    f"table '{key}' was changed on branch '{plan.branch}' since run {run.id} began", hint="run it again"
                )

    return {"what steps have read is what is published": check} if taken else {}


@dataclass(frozen=True, slots=True)
class _Crew:
    """Builds steps as soon as those before them are done, several at the same time."""

    _plan: Plan
    _repo: "Repository"
    _run: Run
    _builders: Mapping[Engine, Builder]
    _progress: OnProgress
    _built: dict[str, BuiltOutput] = field(default_factory=dict)

    def build_all(self, jobs: int) -> list[BuiltOutput]:
        waiting = list(self._plan.steps)
        working: dict[Future[BuiltOutput], Step] = {}
        with ThreadPoolExecutor(jobs, thread_name_prefix="anabranch-step") as threads:
            try:
                while waiting or working:
                    ready = [step for step in waiting if self._built.keys() >= set(step.after)]
                    # Not more than there are threads: a step in the queue of the pool would be reported as started too
                    # early.
                    for step in ready[: jobs - len(working)]:
                        waiting.remove(step)
                        self._report(step, StepState.STARTED)
                        working[threads.submit(self._build, step)] = step
                    done, _ = wait(working, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._finish(working.pop(future), future)
            # The pool waits for its threads when it is left, so without this a failure would wait for all running
            # jobs.
            except BaseException:
                self._stop(working)
                raise
        return [self._built[step.key] for step in self._plan.steps]

    def _stop(self, working: Collection[Future[BuiltOutput]]) -> None:
        """Stop the steps that are no longer needed, also those between two Spark jobs."""
        left: Collection[Future[BuiltOutput]] = list(working)
        while left:
            for builder in self._builders.values():
                builder.interrupt()
            _, left = wait(left, timeout=_BETWEEN_INTERRUPTS_SECONDS)

    def _build(self, step: Step) -> BuiltOutput:
        began = time.monotonic()
        rows = self._builders[step.output.engine].build(step.output)
        return BuiltOutput.of(step.output, rows=rows, seconds=time.monotonic() - began)

    def _finish(self, step: Step, future: Future[BuiltOutput]) -> None:
        error = future.exception()
        if error is not None:
            self._report(step, StepState.FAILED)
            raise failed(self._repo, self._run.id, step.output, error) from error
        self._built[step.key] = future.result()
        self._report(step, StepState.DONE)

    def _report(self, step: Step, state: StepState) -> None:
        progress = StepProgress(
            stage="outputs",
            done=len(self._built),
            total=len(self._plan.steps),
            rows=sum(output.rows for output in self._built.values()),
            table=step.key,
            state=state,
            built=self._built.get(step.key),
        )
        self._progress(progress)
