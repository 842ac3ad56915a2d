"""Build one output by Spark, from the tables of a run, and write it into the run.

A module of its own: pipelines of DuckDB work without PySpark.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.pipelines.declarations import RESERVED, Output, WriteMode
from anabranch.pipelines.plan import Plan
from anabranch.pipelines.provenance import iter_new_rows, seen_input
from anabranch.pipelines.statements import Statement
from anabranch.repo.io.load_steps import prepare_table, stage_fragments
from anabranch.repo.io.values import LoadMode
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable
from anabranch.spark.options import FORMAT, pinned_options
from anabranch.spark.session import get_session, stop_jobs, stoppable
from anabranch.spark.tasks import SparkLoader, spark_errors
from anabranch.spark.types import as_shown, new_columns, shown_columns, shown_schema

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository
    from anabranch.spark.session import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBuilder:
    """Builds outputs inside one run, from any thread."""

    repo: "Repository"
    run: Run
    plan: Plan
    session: "SparkSession"
    last_builds: Mapping[str, GraphCommit]
    # One for each version of a table, for all steps: Spark starts a process to make one.
    frames: "dict[tuple[str, int], DataFrame]" = field(default_factory=dict)

    @property
    def _tag(self) -> str:
        return f"anabranch-{self.run.id}"

    def build(self, output: Output) -> int:
        """Build and write one output; how many rows its table has then."""
        with stoppable(get_session(self.session, repo=self.repo, catalog=None), self._tag), spark_errors():
            self._make(output)
        return self.run.snapshot()[output.key].count_rows()

    def interrupt(self) -> None:
        """Stop the jobs of all steps."""
        stop_jobs(self.session, self._tag)

    def _make(self, output: Output) -> None:
        frames = self._read_inputs(output)
        if output.statement is None:
            self._write(self._call(output, list(frames.values())), output)
            return
        with self._views(output, frames) as views:
            self._write(self._query(output.statement, views), output)

    def _read_inputs(self, output: Output) -> "dict[str, DataFrame]":
        snapshot, last = self.run.snapshot(), self.last_builds.get(output.key)
        return {
            key: self._read(snapshot, key)
            if last is None or key not in output.incremental
            else self._read_new(snapshot, key, last)
            for key in output.inputs
        }

    def _read(self, snapshot: Snapshot, key: str) -> "DataFrame":
        table = snapshot[key]
        version = (key, table.entry.version)
        if version not in self.frames:
            options = pinned_options(self.repo, table)
            self.frames[version] = self.session.read.format(FORMAT).options(**options).load()
        return self.frames[version]

    def _read_new(self, snapshot: Snapshot, key: str, last: GraphCommit) -> "DataFrame":
        before = seen_input(self.repo, last, key)
        # A table that the last build did not see is new as a whole.
        if key not in before:
            return self._read(snapshot, key)
        shown = shown_schema(snapshot[key].schema)
        columns = shown_columns(shown)
        batches = as_shown(iter_new_rows(key, before=before, after=snapshot), columns)
        return self.session.createDataFrame(pa.Table.from_batches(batches, schema=columns), schema=shown)

    @contextmanager
    def _views(self, output: Output, frames: "Mapping[str, DataFrame]") -> Iterator[dict[str, str]]:
        """The inputs as views, by names that no other step of any run has."""
        number = [step.key for step in self.plan.steps].index(output.key)
        names = {key: f"ab_{self.run.id.lower()}_{number}_{n}" for n, key in enumerate(frames)}
        try:
            for key, frame in frames.items():
                frame.createOrReplaceTempView(names[key])
            yield names
        finally:
            # The session may be the caller's own and outlive the run, so no view is left in its catalog.
            for name in names.values():
                self.session.catalog.dropTempView(name)

    def _query(self, statement: Statement, views: Mapping[str, str]) -> "DataFrame":
        values = {name: self.plan.parameters[name] for name in statement.parameters}
        return self.session.sql(statement.over(views), args=values or None)

    def _call(self, output: Output, frames: "list[DataFrame]") -> "DataFrame":
        values = {RESERVED: self.session, **self.plan.parameters}
        function = output.function
        made: Any = None if function is None else function(*frames, **{name: values[name] for name in output.options})
        if not hasattr(made, "writeTo"):
            raise InvalidInputError(
                f"the function of '{output.key}' returned {type(made).__name__}", hint="return a DataFrame"
            )
        frame: DataFrame = made
        return frame

    def _write(self, frame: "DataFrame", output: Output) -> None:
        """Let the workers write data files, and take them into the run.

        Not through the data source, for which Spark would start three processes more.
        """
        mode = output.write.load_mode
        overwrites = mode is LoadMode.OVERWRITE
        staged_table, columns = self._prepare(frame, output)
        written = SparkLoader().write_frame(frame, staged_table.version_ref, columns, for_overwrite=overwrites)
        with self._begin(output) as tx:
            stage_fragments(
                tx, mode, staged_table, written.fragments, columns if overwrites else new_columns(frame.schema)
            )

    def _prepare(self, frame: "DataFrame", output: Output) -> tuple[StagedTable, pa.Schema]:
        """Return the prepared table, and the columns of the rows to write."""
        with self._begin(output) as tx:  # without changes, so that it publishes nothing
            staged_table = prepare_table(
                tx,
                output.key,
                mode=output.write.load_mode,
                primary_key=output.primary_key or None,
                new_schema=lambda: new_columns(frame.schema),
            )
        existing = staged_table.version_ref.schema
        return staged_table, new_columns(frame.schema, existing) if output.write is WriteMode.REBUILD else existing

    def _begin(self, output: Output) -> Transaction:
        return self.run.transaction(message=f"Build {output.key}")
