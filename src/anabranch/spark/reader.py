"""Rows of one pinned version for Spark."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.errors import TableNotFoundError
from anabranch.format.splits import Selection, Split, plan_splits, read_split
from anabranch.format.staging import VersionRef
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.options import ReadOptions
from anabranch.spark.types import as_shown, shown_columns
from anabranch.suggestions import suggest

__all__ = ["SnapshotReader", "find_version_ref"]


def find_version_ref(reading: ReadOptions, repository: Repository) -> VersionRef:
    """Return the version to read: the given one, else that of the table at the ref."""
    if reading.version_ref is not None:
        return reading.version_ref
    snapshot = EngineAccess(repository).published_snapshot_of(reading.ref)
    key = reading.location.key
    if key not in snapshot:
        hint = suggest(key, snapshot, "list its tables to see which exist")
        raise TableNotFoundError(f"there is no table '{key}' in '{reading.ref}'", hint=hint)
    return snapshot[key].version_ref


class _Part(InputPartition):
    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class SnapshotReader(DataSourceReader):
    """Reads a pinned version, part by part.

    It takes no filters from Spark: those it once took would stay with the DataFrame, and later queries of the same one
    would get too few rows. The options `columns` and `where` do the same without that.
    """

    def __init__(self, version_ref: VersionRef, selection: Selection, schema: StructType) -> None:
        self._version_ref = version_ref
        self._selection = replace(selection, columns=tuple(schema.names))
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [_Part(split) for split in plan_splits(self._version_ref, self._selection)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):
            return iter(())  # Spark makes up a part where there is none
        rows = read_split(self._version_ref, partition.split, self._selection)
        return as_shown(rows, shown_columns(self._schema))
