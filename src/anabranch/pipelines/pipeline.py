"""A pipeline as its file declares it."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import InvalidPipelineError
from anabranch.pipelines.checks import declare_check
from anabranch.pipelines.declarations import DeclaredCheck, Output, Place, WriteMode, calling_place, parse_key
from anabranch.pipelines.loading import Source, execute, executed_source, read_source
from anabranch.pipelines.parameters import Parameter, declare_parameters
from anabranch.pipelines.planning import Plan, plan_pipeline
from anabranch.pipelines.signatures import check_signature
from anabranch.pipelines.statements import Statement, StatementError, parse_statement

if TYPE_CHECKING:
    from anabranch.pipelines.reproduction import Reproduction
    from anabranch.pipelines.running import OnStep, PipelineRun, Session
    from anabranch.repo.repository import Repository

__all__ = ["Pipeline"]

Function = Callable[..., Any]


class Pipeline:
    """Tables made from other tables, by SQL or by functions of DataFrames, and what must hold for them.

    Declaring does nothing yet: `run` builds the outputs in their order and publishes all of them as one commit.
    """

    def __init__(self, name: str, *, parameters: Mapping[str, Any] | None = None) -> None:
        self.place = calling_place(outwards=1)
        if not str(name).strip():
            self.place.fail(f"a pipeline cannot be called {name!r}", hint="give it a name, such as 'shop'")
        self.name = name
        self.parameters: Mapping[str, Parameter] = declare_parameters(parameters or {}, self.place)
        self.outputs: dict[str, Output] = {}
        self.checks: dict[str, DeclaredCheck] = {}
        self._source: Source | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, outputs={list(self.outputs)})"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Execute a file and take the one pipeline that it declares."""
        return cls.of_source(read_source(path, storage_options))

    @classmethod
    def of_source(cls, source: Source) -> Self:
        """The pipeline that a text declares, as if it were a file."""
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

    def sql(
        self,
        key: str,
        sql: str,
        *,
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        description: str = "",
    ) -> None:
        """Declare an output by a SELECT in Spark's SQL over `bucket.table` names; `:name` is a parameter."""
        place = calling_place(outwards=1)
        statement = _parsed(sql, place)
        for name in statement.parameters:
            if name not in self.parameters:
                known = f"the parameters are {', '.join(self.parameters)}" if self.parameters else "there are none"
                place.fail(f"the SQL names the parameter ':{name}'", hint=f"declare it; {known}")
        self._add(
            Output(
                key=parse_key(key, place),
                place=place,
                inputs=statement.inputs,
                write=_mode(write, primary_key, place),
                primary_key=_names(primary_key, "primary key", place),
                incremental=_names(incremental, "list of incremental inputs", place),
                description=description,
                statement=statement,
            )
        )

    def table(
        self,
        key: str,
        *,
        inputs: Sequence[str] = (),
        write: str = WriteMode.REBUILD,
        primary_key: Sequence[str] = (),
        incremental: Sequence[str] = (),
        description: str = "",
    ) -> Callable[[Function], Function]:
        """Declare an output by a function of DataFrames: its inputs in order, then the parameters that it names."""
        place = calling_place(outwards=1)

        def declare(function: Function) -> Function:
            names = tuple(parse_key(name, place) for name in _names(inputs, "list of inputs", place))
            output = Output(
                key=parse_key(key, place),
                place=place,
                inputs=names,
                write=_mode(write, primary_key, place),
                primary_key=_names(primary_key, "primary key", place),
                incremental=_names(incremental, "list of incremental inputs", place),
                description=description or (function.__doc__ or "").strip(),
                function=function,
                options=check_signature(function, inputs=names, parameters=self.parameters, place=place),
            )
            self._add(output)
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

    def plan(
        self,
        repo: "Repository",
        *,
        branch: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        only: Sequence[str] = (),
    ) -> Plan:
        """Say what a run would do; refuse what could not work. Nothing is changed, and no Spark is started."""
        return plan_pipeline(self, repo, branch=branch, parameters=parameters or {}, only=only)

    def run(  # noqa: PLR0913 - all but the repository by their names
        self,
        repo: "Repository",
        *,
        branch: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        only: Sequence[str] = (),
        jobs: int = 2,
        message: str | None = None,
        spark: "Session" = None,
        on_step: "OnStep | None" = None,
    ) -> "PipelineRun":
        """Build the outputs on Spark and publish all of them as one commit of a branch, or nothing.

        Outputs that do not need each other are built at the same time, as many as there are `jobs`. `spark` is a
        session, or a function that starts one; it is called when the pipeline is found to be well.
        """
        plan = self.plan(repo, branch=branch, parameters=parameters, only=only)
        # Only now: a pipeline that cannot work starts no Spark.
        from anabranch.pipelines.running import Manner, run_plan

        return run_plan(plan, repo, Manner(jobs=jobs, session=spark, on_step=on_step, message=message))

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

    def _add(self, output: Output) -> None:
        if output.incremental and output.write is WriteMode.REBUILD:
            output.place.fail(
                f"'{output.key}' is rebuilt, and would lose the rows that are not new in its incremental inputs",
                hint="write it by 'append' or 'upsert'",
            )
        known = self.outputs.get(output.key)
        if known is not None:
            output.place.fail(
                f"the output '{output.key}' is declared twice, first at {known.place}", hint="leave one out"
            )
        for name in output.incremental:
            if name not in output.inputs:
                output.place.fail(
                    f"'{name}' is called incremental, and is no input of '{output.key}'",
                    hint=f"its inputs are {', '.join(output.inputs) or 'none'}",
                )
        self.outputs[output.key] = output

    def _add_check(self, check: DeclaredCheck) -> None:
        known = self.checks.get(check.name)
        if known is not None:
            check.place.fail(
                f"the check {check.name!r} is declared twice, first at {known.place}", hint="give one another name"
            )
        self.checks[check.name] = check


def _parsed(sql: str, place: Place) -> Statement:
    if not isinstance(sql, str):
        place.fail(f"{sql!r} is no SQL", hint="give a SELECT as text")
    try:
        return parse_statement(sql)
    except StatementError as err:
        place.inside(sql, err.line).fail(err.problem, hint=err.hint)


def _mode(write: str, primary_key: Sequence[str], place: Place) -> WriteMode:
    if write not in list(WriteMode):
        place.fail(f"an output cannot be written by {write!r}", hint=f"use {', '.join(WriteMode)}")
    if write == WriteMode.UPSERT and not primary_key:
        place.fail("an upsert needs a primary key", hint="add primary_key=[...], which tells one row from another")
    return WriteMode(write)


def _names(given: Any, what: str, place: Place) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        place.fail(f"the {what} is {given!r}", hint="give a list of names")
    if len(set(given)) < len(given):
        place.fail(f"the {what} names one twice: {', '.join(given)}", hint="leave one out")
    return tuple(given)
