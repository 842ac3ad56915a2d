"""Check the key of a merged table whose rows are matched by another key, or by their row ids."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import KeyConflictError, SchemaMismatchError
from anabranch.format.scan import kept_keys
from anabranch.format.staging import KeyRows, RowBatch, VersionRef, refuse_repeated
from anabranch.format.staging.expressions import find_default
from anabranch.format.staging.incoming import cast_computed
from anabranch.format.staging.rows import Addresses, join_addresses
from anabranch.repo.merge.shapes import MergedColumn, Shape


def needs_key_check(shape: Shape) -> bool:
    """Return whether rows that were matched can have equal keys in the result."""
    return bool(shape.primary_key) and set(shape.matched_names) != set(shape.primary_key)


@dataclass
class MergedKeys:
    """The keys that a merge would write to a version of the target, to check them before anything is written."""

    version_ref: VersionRef
    shape: Shape
    _written: list[pa.Table] = field(default_factory=list)
    _replaced: list[Addresses] = field(default_factory=list)

    def add(self, batch: RowBatch) -> None:
        """Add rows of the result, and the addresses of the rows that they replace."""
        self._replaced.append(batch.addresses)
        if batch.rows is not None:
            self._written.append(batch.rows.select(self.shape.primary_key))

    def check(self) -> None:
        """Raise SchemaMismatchError if the merged rows repeat a value of the key, or have nulls in it."""
        columns = {column.name: column for column in self.shape.columns}
        merged = [columns[name] for name in self.shape.primary_key]
        schema = pa.schema([column.field for column in merged])
        names = [column.triple.target for column in merged if column.triple.target is not None]
        kept = kept_keys(self.version_ref, names, join_addresses(self._replaced))
        self._check_new_column(kept.count)

        def read() -> Iterator[pa.RecordBatch]:
            for batch in kept.read():
                yield pa.record_batch([self._key_values(batch, column) for column in merged], schema=schema)
            for rows in self._written:
                yield from rows.cast(schema).to_batches()

        try:
            refuse_repeated(KeyRows(read=read, count=kept.count + sum(map(len, self._written))))
        except KeyConflictError as err:
            raise SchemaMismatchError(f"the rows do not fit the new key: {err.problem}", hint=err.hint) from err

    def _key_values(self, kept: pa.RecordBatch, column: MergedColumn) -> pa.Array:
        """Return a column of the key for rows of the target. A column that it does not have yet has its default."""
        if column.triple.target is not None:
            return cast_computed(kept.column(column.triple.target), column.field.with_nullable(nullable=True))
        compute = find_default(column.field, columns=[each.name for each in self.shape.columns])
        return pa.nulls(len(kept), column.field.type) if compute is None else compute(len(kept)).cast(column.field.type)

    def _check_new_column(self, kept: int) -> None:
        """Check a key with a column that the target does not have yet: rows that stay as they are get nulls there."""
        new = [column.name for column in self.shape.columns if column.is_new and column.name in self.shape.primary_key]
        empty = [name for name in new if name not in self.shape.filled]
        if kept and empty:
            raise SchemaMismatchError(
                f"the rows do not fit the new key: {kept} of the target have no value in {empty[0]!r}",
                hint="merge the column first, fill it, and then change the key",
            )
