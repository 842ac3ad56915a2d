"""Build one output from the tables of a run, by DuckDB in this process or by Spark, and write it into the run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.column_types import show_type
from anabranch.duck.engine import default_engine
from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.format.staging.incoming import as_reader
from anabranch.pipelines.declarations import RESERVED, Output, WriteMode
from anabranch.pipelines.plan import Plan
from anabranch.pipelines.provenance import iter_new_rows, seen_input
from anabranch.pipelines.statements import Statement
from anabranch.repo.io.load import load_frame
from anabranch.repo.io.prepared_table import Loader, LoadRequest
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.spark.options import FORMAT, pinned_options
from anabranch.spark.session import get_session, stop_jobs, stoppable

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository
    from anabranch.spark.session import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder(ABC):
    """Builds outputs with one engine inside one run, from any thread."""

    repo: "Repository"
    run: Run
    plan: Plan
    last_builds: Mapping[str, GraphCommit]

    def build(self, output: Output) -> int:
        """Build and write one output; return the number of rows that its table has then."""
        self._make(output, self.run.snapshot())
        return self.run.snapshot()[output.key].count_rows()

    @abstractmethod
    def interrupt(self) -> None:
        """Stop the work on all outputs, if the engine can."""

    @abstractmethod
    def _make(self, output: Output, snapshot: Snapshot) -> None: ...

    def _parameters(self, statement: Statement) -> dict[str, Any] | None:
        return {name: self.plan.parameters[name] for name in statement.parameters} or None

    def _new_rows(self, output: Output, snapshot: Snapshot) -> dict[str, Iterator[pa.RecordBatch]]:
        """Return the new rows of each incremental input that existed at the last build."""
        last = self.last_builds.get(output.key)
        found: dict[str, Iterator[pa.RecordBatch]] = {}
        if last is None:
            return found
        for key in output.incremental:
            before = seen_input(self.repo, last, key)
            # A table that did not exist at the last build is new as a whole, and is read like any other input.
            if key in before:
                found[key] = iter_new_rows(key, before=before, after=snapshot)
        return found

    def _write(self, output: Output, rows: Any, find_loader: Callable[[], Loader | None]) -> None:
        request = LoadRequest(key=output.key, mode=output.write.load_mode, primary_key=output.primary_key or None)
        with self.run.transaction(message=f"Build {output.key}") as tx:
            load_frame(tx, request, rows, find_loader=find_loader)


class DuckBuilder(Builder):
    """Builds outputs with DuckDB."""

    def interrupt(self) -> None:
        """Do nothing: a query in this process runs to its end, and the run discards what it wrote."""

    def _make(self, output: Output, snapshot: Snapshot) -> None:
        new = {
            key: pa.Table.from_batches(batches, schema=snapshot[key].schema)
            for key, batches in self._new_rows(output, snapshot).items()
        }
        if output.statement is None:
            rows = self._call(output, snapshot, new)
        else:
            rows = default_engine().query(
                self.repo,
                output.statement.text,
                ref=self.run.branch,
                params=self._parameters(output.statement),
                snapshot=snapshot,
                replaced=new,
            )
        # A rebuild may give the table other types, so those of the query stay.
        if output.key in snapshot and output.write is not WriteMode.REBUILD:
            rows = _as_columns(rows, snapshot[output.key].schema)
        self._write(output, rows, lambda: None)

    def _call(self, output: Output, snapshot: Snapshot, new: Mapping[str, pa.Table]) -> pa.RecordBatchReader:
        tables = [new[key] if key in new else snapshot[key].to_arrow() for key in output.inputs]
        options = {name: self.plan.parameters[name] for name in output.options}
        made: Any = None if output.function is None else output.function(*tables, **options)
        # The Arrow stream interface, which frames of pandas and polars also have.
        if not hasattr(made, "__arrow_c_stream__") and not isinstance(made, pa.RecordBatch):
            raise InvalidInputError(
                f"the function of '{output.key}' returned {type(made).__name__}",
                hint="return a pyarrow.Table, or a pandas or polars frame",
            )
        return as_reader(made)


# DuckDB may return int64 for a column of int32. A cast within a kind of types is correct, between kinds it would hide a
# mistake.
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    lambda kind: pa.types.is_timestamp(kind),
    lambda kind: pa.types.is_time(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind),
    pa.types.is_nested,
)


def _as_columns(rows: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Convert rows to the types that a table has: DuckDB has fewer types than Arrow.

    Convert only between types of one kind: text does not become a number. The write refuses values that do not fit.
    """
    wanted = pa.schema([_field_of_kind(found, schema) for found in rows.schema])
    if wanted.equals(rows.schema):
        return rows
    batches = (
        pa.RecordBatch.from_arrays([_cast(*pair) for pair in zip(batch.columns, wanted, strict=True)], schema=wanted)
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(wanted, batches)


def _field_of_kind(found: pa.Field, schema: pa.Schema) -> pa.Field:
    """Return the field of this name in a schema if its type is of the same kind, else the field that was found."""
    own = schema.field(found.name) if found.name in schema.names else found
    is_alike = own.type == found.type or any(is_kind(own.type) and is_kind(found.type) for is_kind in _KINDS)
    return own if is_alike else found


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as err:
        raise SchemaMismatchError(
            f"column '{field.name}' has type {show_type(column.type)}, and a value does not fit into "
            f"{show_type(field.type)}: {err}",
            hint="cast it in the model, or rebuild the table",
        ) from err


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBuilder(Builder):
    """Builds outputs with Spark. PySpark is imported by its methods only, because pipelines of DuckDB work without."""

    session: "SparkSession"
    # One for each version of a table, for all steps: Spark starts a process to make one.
    frames: "dict[tuple[str, int], DataFrame]" = field(default_factory=dict)

    @property
    def _tag(self) -> str:
        return f"anabranch-{self.run.id}"

    def interrupt(self) -> None:
        """Stop the jobs of all steps."""
        stop_jobs(self.session, self._tag)

    def _make(self, output: Output, snapshot: Snapshot) -> None:
        from anabranch.spark.tasks import SparkLoader, spark_errors

        # Written by workers, and not through the data source, for which Spark would start three processes more.
        with stoppable(get_session(self.session, repo=self.repo, catalog=None), self._tag), spark_errors():
            new = self._new_rows(output, snapshot)
            frames = {
                key: self._frame_of(snapshot[key], new[key]) if key in new else self._read(snapshot[key])
                for key in output.inputs
            }
            if output.statement is None:
                self._write(output, self._call(output, list(frames.values())), SparkLoader)
                return
            with self._views(output, frames) as views:
                sql, values = output.statement.over(views), self._parameters(output.statement)
                self._write(output, self.session.sql(sql, args=values), SparkLoader)

    def _read(self, table: Table) -> "DataFrame":
        version = (table.key, table.entry.version)
        if version not in self.frames:
            self.frames[version] = self.session.read.format(FORMAT).options(**pinned_options(self.repo, table)).load()
        return self.frames[version]

    def _frame_of(self, table: Table, batches: Iterator[pa.RecordBatch]) -> "DataFrame":
        from anabranch.spark.types import as_shown, shown_columns, shown_schema

        shown = shown_schema(table.schema)
        columns = shown_columns(shown)
        return self.session.createDataFrame(
            pa.Table.from_batches(as_shown(batches, columns), schema=columns), schema=shown
        )

    @contextmanager
    def _views(self, output: Output, frames: "Mapping[str, DataFrame]") -> Iterator[dict[str, str]]:
        """Register the inputs as temporary views inside, and yield their names, which no other step of any run uses."""
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
