"""What a pipeline declares: outputs, checks and parameters. Planning and running read it; nothing is built here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.pipelines.checks import declare_check, declare_ready_made
from anabranch.pipelines.declarations import DeclaredCheck, Engine, Output, WriteMode, calling_location, parse_engine
from anabranch.pipelines.outputs import Options, Source, executed_source, function_output, sql_output
from anabranch.pipelines.parameters import Parameter, declare_parameters
from anabranch.pipelines.settings import Setting

__all__ = ["PipelineDefinition"]

Function = Callable[..., Any]


class PipelineDefinition:
    """The declared outputs, checks and parameters of a pipeline, and the methods that declare them.

    A subclass must not override `__init__` or a method that declares: each records the line that called it.
    """

    def __init__(self, name: str, *, parameters: Mapping[str, Any] | None = None, engine: str = Engine.SPARK) -> None:
        self.location = calling_location(outwards=1)
        if not str(name).strip():
            self.location.fail(f"a pipeline cannot be called {name!r}", hint="give it a name, such as 'shop'")
        self.name = name
        self.engine = parse_engine(engine, self.location)
        self.parameters: Mapping[str, Parameter] = declare_parameters(parameters or {}, self.location)
        self.outputs: dict[str, Output] = {}
        self.checks: dict[str, DeclaredCheck] = {}
        self._source: Source | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, outputs={list(self.outputs)})"

    @property
    def source(self) -> Source:
        """The text of its file."""
        return executed_source(self.location.file) if self._source is None else self._source

    def sql(  # noqa: PLR0913 - all but the SQL by their names
        self,
        table: str,
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
        location = calling_location(outwards=1)
        options = Options(
            write=write,
            primary_key=primary_key,
            incremental=incremental,
            description=description,
            engine=engine or self.engine,
        )
        self._add(
            sql_output(table, sql, options, parameters=self.parameters, location=location), Setting.of(checks, location)
        )

    def table(  # noqa: PLR0913 - all but the table by their names
        self,
        table: str,
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
        location = calling_location(outwards=1)
        options = Options(
            write=write,
            primary_key=primary_key,
            incremental=incremental,
            description=description,
            engine=engine or self.engine,
        )

        def declare(function: Function) -> Function:
            output = function_output(table, function, inputs, options, parameters=self.parameters, location=location)
            self._add(output, Setting.of(checks, location))
            return function

        return declare

    def check(self, name: str, sql: str | None = None) -> Callable[[Function], Function]:
        """Declare what must hold before anything is published: SQL that finds no rows, or a function.

        The function gets the snapshot that is to be published, and returns False or raises if something is wrong.
        """
        location = calling_location(outwards=1)

        def declare(function: Function) -> Function:
            self._add_check(declare_check(name, function, location))
            return function

        if sql is not None:
            self._add_check(declare_check(name, sql, location))
        return declare

    def _add(self, output: Output, checks: Setting) -> None:
        known = self.outputs.get(output.key)
        if known is not None:
            output.location.fail(
                f"the output '{output.key}' is declared twice, first at {known.location}", hint="leave one out"
            )
        # Parsed before the output is added, so that a wrong check leaves the pipeline unchanged.
        declared = list(declare_ready_made(output.key, checks))
        self.outputs[output.key] = output
        for check in declared:
            self._add_check(check)

    def _add_check(self, check: DeclaredCheck) -> None:
        known = self.checks.get(check.name)
        if known is not None:
            check.location.fail(
                f"the check {check.name!r} is declared twice, first at {known.location}", hint="give one another name"
            )
        self.checks[check.name] = check
