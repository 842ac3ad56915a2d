"""Build one output by DuckDB in this process, from the tables of a run, and write it into the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.duck.engine import default_engine
from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.format.staging.incoming import as_reader
from anabranch.pipelines.declarations import Output, WriteMode
from anabranch.pipelines.plan import Plan
from anabranch.pipelines.provenance import iter_new_rows, seen_input
from anabranch.pipelines.statements import Statement
from anabranch.repo.io.load import load_frame
from anabranch.repo.io.values import FrameRequest
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


# DuckDB may return int64 for a column of int32. Within a kind such a cast is meant, between kinds it would hide a
# mistake.
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    lambda kind: pa.types.is_timestamp(kind),
    lambda kind: pa.types.is_time(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind),
    pa.types.is_nested,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckBuilder:
    """Builds outputs inside one run, from any thread."""

    repo: "Repository"
    run: Run
    plan: Plan
    last_builds: Mapping[str, GraphCommit]

    def build(self, output: Output) -> int:
        """Build and write one output; return the number of rows that its table has then."""
        snapshot = self.run.snapshot()
        new = self._read_new(snapshot, output)
        if output.statement is None:
            rows = self._call(output, snapshot, new)
        else:
            rows = self._query(output.statement, snapshot, new)
        self._write(rows, output)
        return self.run.snapshot()[output.key].count_rows()

    def interrupt(self) -> None:
        """Do nothing: a query in this process runs to its end, and the run discards what it wrote."""

    def _read_new(self, snapshot: Snapshot, output: Output) -> dict[str, pa.Table]:
        """Return the new rows of each incremental input, except of those that the last build did not see."""
        last = self.last_builds.get(output.key)
        found: dict[str, pa.Table] = {}
        if last is None:
            return found
        for key in output.incremental:
            before = seen_input(self.repo, last, key)
            # A table that did not exist at the last build is new as a whole, and is read like any other input.
            if key in before:
                batches = iter_new_rows(key, before=before, after=snapshot)
                found[key] = pa.Table.from_batches(batches, schema=snapshot[key].schema)
        return found

    def _query(self, statement: Statement, snapshot: Snapshot, new: Mapping[str, pa.Table]) -> pa.RecordBatchReader:
        values = {name: self.plan.parameters[name] for name in statement.parameters}
        return default_engine().query(
            self.repo, statement.text, ref=self.run.branch, params=values or None, snapshot=snapshot, replaced=new
        )

    def _call(self, output: Output, snapshot: Snapshot, new: Mapping[str, pa.Table]) -> pa.RecordBatchReader:
        tables = [new[key] if key in new else snapshot[key].to_arrow() for key in output.inputs]
        options = {name: self.plan.parameters[name] for name in output.options}
        made: Any = None if output.function is None else output.function(*tables, **options)
        # The Arrow stream interface, which frames of pandas and polars have as well.
        if not hasattr(made, "__arrow_c_stream__") and not isinstance(made, pa.RecordBatch):
            raise InvalidInputError(
                f"the function of '{output.key}' returned {type(made).__name__}",
                hint="return a pyarrow.Table, or a pandas or polars frame",
            )
        return as_reader(made)

    def _write(self, rows: pa.RecordBatchReader, output: Output) -> None:
        key = output.key
        with self.run.transaction(message=f"Build {key}") as tx:
            # A rebuild may give the table other types, so those of the query stay.
            if key in tx and output.write is not WriteMode.REBUILD:
                rows = _as_columns(rows, tx[key].schema)
            request = FrameRequest(key=key, mode=output.write.load_mode, primary_key=output.primary_key or None)
            load_frame(tx, request, rows, find_loader=lambda: None)


def _as_columns(rows: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Convert rows to the types that a table has: DuckDB has fewer types than Arrow.

    Only between types of one kind: text does not become a number. What does not fit is left to the write to refuse.
    """
    fields = []
    for found in rows.schema:
        own = schema.field(found.name) if found.name in schema.names else found
        is_alike = own.type == found.type or any(is_kind(own.type) and is_kind(found.type) for is_kind in _KINDS)
        fields.append(own if is_alike else found)
    wanted = pa.schema(fields)
    if wanted.equals(rows.schema):
        return rows
    batches = (
        pa.RecordBatch.from_arrays([_cast(*pair) for pair in zip(batch.columns, wanted, strict=True)], schema=wanted)
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(wanted, batches)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as err:
        raise SchemaMismatchError(
            f"column '{field.name}' has type {column.type}, and a value does not fit into {field.type}: {err}",
            hint="cast it in the model, or rebuild the table",
        ) from err
