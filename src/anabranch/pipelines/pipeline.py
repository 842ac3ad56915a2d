"""A pipeline as its file declares it."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import InvalidPipelineError
from anabranch.pipelines.checks import declare_check, declare_ready_made
from anabranch.pipelines.declarations import DeclaredCheck, Engine, Output, WriteMode, calling_place, parse_engine
from anabranch.pipelines.loading import Source, execute, executed_source
from anabranch.pipelines.outputs import Options, function_output, sql_output
from anabranch.pipelines.parameters import Parameter, declare_parameters
from anabranch.pipelines.planning import Plan, plan_pipeline
from anabranch.pipelines.project import declare_project, read_pipeline_source
from anabranch.pipelines.selection import Selection
from anabranch.pipelines.settings import Setting

if TYPE_CHECKING:
    from anabranch.pipelines.backfill import Backfill, OnValue
    from anabranch.pipelines.reproduction import Reproduction
    from anabranch.pipelines.running import OnStep, PipelineRun, Session
    from anabranch.repo.repository import Repository

__all__ = ["Pipeline"]

Function = Callable[..., Any]


class Pipeline:
    """Tables made from other tables, by SQL or by functions of DataFrames, and what must hold for them.

    Declaring does nothing yet: `run` builds the outputs in their order and publishes all of them as one commit.
    """

    def __init__(self, name: str, *, parameters: Mapping[str, Any] | None = None, engine: str = Engine.SPARK) -> None:
        self.place = calling_place(outwards=1)
        if not str(name).strip():
            self.place.fail(f"a pipeline cannot be called {name!r}", hint="give it a name, such as 'shop'")
        self.name = name
        self.engine = parse_engine(engine, self.place)
        self.parameters: Mapping[str, Parameter] = declare_parameters(parameters or {}, self.place)
        self.outputs: dict[str, Output] = {}
        self.checks: dict[str, DeclaredCheck] = {}
        self._source: Source | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, outputs={list(self.outputs)})"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Execute a file and take the one pipeline that it declares, or read the folder of a project."""
        return cls.of_source(read_pipeline_source(path, storage_options))

    @classmethod
    def of_source(cls, source: Source) -> Self:
        """Return the pipeline that a text declares, as if it were a file."""
        if source.is_project:
            project = declare_project(cls, source)
            project._source = source
            return project
        found = {id(value): value for value in vars(execute(source)).values() if isinstance(value, cls)}
        if len(found) != 1:
            several = f"declares {len(found)} pipelines" if found else "declares no pipeline"
            raise InvalidPipelineError(f"{source.file}: the file {several}", hint="declare one: ab.Pipeline('name')")
        (pipeline,) = found.values()
        pipeline._source = source
        return pipeline

    @classmethod
    def recorded(cls, repo: "Repository", ref: str) -> Self:
        """The pipeline that made a commit, by its text as it was then; its text is executed."""
        from anabranch.pipelines.reproduction import recorded_source

        return cls.of_source(recorded_source(repo, repo.published_snapshot_of(ref).commit))

    @property
    def source(self) -> Source:
        """The text of its file."""
        return executed_source(self.place.file) if self._source is None else self._source

    def sql(  # noqa: PLR0913 - all but the SQL by their names
        self,
        key: str,
        sql: str,
        *,
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        checks: Sequence[Mapping[str, Any]] = (),
        description: str = "",
        engine: str | None = None,
    ) -> None:
        """Declare an output by a SELECT over `bucket.table` names, in the SQL of its engine.

        A parameter is written `:name` for Spark and `$name` for DuckDB. `checks` are ready-made ones, such as
        `{"unique": "id"}`.
        """
        place = calling_place(outwards=1)
        options = Options(
            write=write,
            primary_key=primary_key,
            incremental=incremental,
            description=description,
            engine=engine or self.engine,
        )
        self._add(sql_output(key, sql, options, parameters=self.parameters, place=place), Setting.of(checks, place))

    def table(  # noqa: PLR0913 - all but the key by their names
        self,
        key: str,
        *,
        inputs: Sequence[str] = (),
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        checks: Sequence[Mapping[str, Any]] = (),
        description: str = "",
        engine: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare an output by a function of its inputs in order, then the parameters that it names.

        It takes and returns DataFrames on Spark. With the engine `duckdb` it takes Arrow tables, and returns one, or a
        pandas or polars frame.
        """
        place = calling_place(outwards=1)
        options = Options(
            write=write,
            primary_key=primary_key,
            incremental=incremental,
            description=description,
            engine=engine or self.engine,
        )

        def declare(function: Function) -> Function:
            output = function_output(key, function, inputs, options, parameters=self.parameters, place=place)
            self._add(output, Setting.of(checks, place))
            return function

        return declare

    def check(self, name: str, sql: str | None = None) -> Callable[[Function], Function]:
        """Declare what must hold before anything is published: SQL that finds no rows, or a function.

        The function gets the snapshot that is to be published, and returns False or raises if something is wrong.
        """
        place = calling_place(outwards=1)

        def declare(function: Function) -> Function:
            self._add_check(declare_check(name, function, place))
            return function

        if sql is not None:
            self._add_check(declare_check(name, sql, place))
        return declare

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
        spark: "Session" = None,
        on_step: "OnStep | None" = None,
    ) -> "PipelineRun":
        """Build the outputs and publish all of them as one commit of a branch, or nothing.

        Outputs that do not need each other are built at the same time, as many as there are `jobs`. `spark` is a
        session, or a function that starts one; it is called after the pipeline was checked, and only if an output
        needs Spark. What is built is chosen as in `plan`.
        """
        plan = self.plan(
            repo, branch=branch, parameters=parameters, only=only, select=select, exclude=exclude, since=since
        )
        from anabranch.pipelines.running import Manner, run_plan

        return run_plan(plan, repo, Manner(jobs=jobs, session=spark, on_step=on_step, message=message))

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
        spark: "Session" = None,
        on_step: "OnStep | None" = None,
        on_value: "OnValue | None" = None,
    ) -> "Backfill":
        """Run the pipeline once for each value of a parameter from `start` to `end`; each value is one commit.

        The parameter is a date or an int. `step` is a number, for dates also `7d`, `2w` or `1m`. The same call
        continues after a failure: values that the branch already has a commit of are skipped, unless `again`.
        """
        from anabranch.pipelines.backfill import Request, run_backfill
        from anabranch.pipelines.running import Manner

        request = Request(
            parameter=parameter,
            start=start,
            end=end,
            step=step,
            again=again,
            branch=branch,
            parameters=parameters or {},
            selection=Selection(select=select, exclude=exclude),
            on_value=on_value,
        )
        return run_backfill(self, repo, request, Manner(jobs=jobs, session=spark, on_step=on_step))

    def reproduce(
        self,
        repo: "Repository",
        ref: str,
        *,
        branch: str | None = None,
        jobs: int = 2,
        spark: "Session" = None,
        on_step: "OnStep | None" = None,
    ) -> "Reproduction":
        """Run again what made a commit: on the inputs and with the parameters of then, onto a new branch.

        Each output is compared with what it was in that commit, row by row.
        """
        from anabranch.pipelines.reproduction import reproduce
        from anabranch.pipelines.running import Manner

        commit = repo.published_snapshot_of(ref).commit
        return reproduce(self, repo, commit, branch=branch, manner=Manner(jobs=jobs, session=spark, on_step=on_step))

    def _add(self, output: Output, checks: Setting) -> None:
        known = self.outputs.get(output.key)
        if known is not None:
            output.place.fail(
                f"the output '{output.key}' is declared twice, first at {known.place}", hint="leave one out"
            )
        declared = list(declare_ready_made(output.key, checks))
        self.outputs[output.key] = output
        for check in declared:
            self._add_check(check)

    def _add_check(self, check: DeclaredCheck) -> None:
        known = self.checks.get(check.name)
        if known is not None:
            check.place.fail(
                f"the check {check.name!r} is declared twice, first at {known.place}", hint="give one another name"
            )
        self.checks[check.name] = check
