"""Check the key of a merged table whose rows are matched by another key, or by their row ids."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import KeyConflictError, SchemaMismatchError
from anabranch.format.scan import kept_keys, keys_of
from anabranch.format.staging import KeyRows, RowBatch, VersionRef, refuse_repeated
from anabranch.format.staging.rows import Addresses, join_addresses
from anabranch.repo.merge.shapes import Shape


def needs_key_check(shape: Shape) -> bool:
    """Return whether rows that were matched can have equal keys in the result."""
    return bool(shape.primary_key) and set(shape.matched_names) != set(shape.primary_key)


def check_staged_key(version_ref: VersionRef, shape: Shape) -> None:
    """Raise SchemaMismatchError if the merged rows repeat a value of the key, or have nulls in it."""
    if needs_key_check(shape):
        _require_unique(keys_of(version_ref, shape.primary_key))


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
        """Raise SchemaMismatchError as `check_staged_key` would."""
        columns = {column.name: column for column in self.shape.columns}
        merged = [columns[name] for name in self.shape.primary_key]
        schema = pa.schema([column.field for column in merged])
        replaced = join_addresses(self._replaced)
        names = [column.triple.target for column in merged if column.triple.target is not None]
        if len(names) < len(merged):
            self._check_new_column(self.version_ref.count_rows() - len(replaced))
            return
        kept = kept_keys(self.version_ref, names, replaced)

        def read() -> Iterator[pa.RecordBatch]:
            for batch in kept.read():
                yield batch.rename_columns(schema.names).cast(schema)
            for rows in self._written:
                yield from rows.cast(schema).to_batches()

        _require_unique(KeyRows(read=read, count=kept.count + sum(map(len, self._written))))

    def _check_new_column(self, kept: int) -> None:
        """Check a key with a column that the target does not have yet: rows that stay as they are get nulls there."""
        new = [column.name for column in self.shape.columns if column.is_new and column.name in self.shape.primary_key]
        empty = [name for name in new if name not in self.shape.filled]
        if kept and empty:
            raise SchemaMismatchError(
                f"the rows do not fit the new key: {kept} of the target have no value in {empty[0]!r}",
                hint="merge the column first, fill it, and then change the key",
            )


def _require_unique(keys: KeyRows) -> None:
    try:
        refuse_repeated(keys)
    except KeyConflictError as err:
        raise SchemaMismatchError(f"the rows do not fit the new key: {err.problem}", hint=err.hint) from err
