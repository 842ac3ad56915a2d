"""A consistent view of all tables at one commit, and the tables in it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import InvalidNameError, TableNotFoundError
from anabranch.format.arrow_dataset import ArrowDataset
from anabranch.format.scan import count_rows, iter_batches, read_nearest, read_table
from anabranch.format.staging import IndexInfo, Pin, list_indices
from anabranch.ids import TableKey
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, GraphCommit, TableEntry, TableMap
from anabranch.repo.log.store import RepoStore

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Snapshot", "Table"]


class Table:
    """One table in one snapshot."""

    def __init__(self, context: RepoConfig, key: TableKey, entry: TableEntry, *, commit_id: str | None = None) -> None:
        self._context = context
        self._key = key
        self._commit_id = commit_id
        self.entry = entry

    def __repr__(self) -> str:
        return f"Table({str(self._key)!r}, rows={self.entry.rows})"

    @property
    def key(self) -> str:
        """The key of the table, `bucket.table`."""
        return str(self._key)

    @property
    def uri(self) -> str:
        """The URI at which any Lance tool reads the table as this branch last published it."""
        return self._context.dataset_root(self.entry.dataset).on(self.entry.home).uri

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key. Empty if the table has none."""
        return self.entry.primary_key

    @cached_property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the table."""
        # Cached, because each access of `Pin.schema` converts all columns, and merges access it for each column.
        return self.pin.schema

    def count_rows(self, filter: str | None = None) -> int:  # noqa: A002 - Arrow's and Lance's name
        """Return the number of rows, or of the rows that match a filter."""
        return self.entry.rows if filter is None else count_rows(self.pin, filter)

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
        limit: int | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Read the rows in batches."""
        return iter_batches(self.pin, columns=columns, filter=filter, limit=limit)

    def to_dataset(self) -> ArrowDataset:
        """Return a dataset for engines that push columns and filters down, such as DuckDB."""
        return ArrowDataset(self.pin)

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
        limit: int | None = None,
    ) -> "pa.Table":
        """Read rows into memory. `filter` is an SQL expression over the columns.

        >>> repo.snapshot()["shop.orders"].to_arrow(columns=["item"], filter="amount > 10").to_pydict()
        {'item': ['tea', 'pot']}
        """
        return read_table(self.pin, columns=columns, filter=filter, limit=limit)

    def to_pandas(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
        limit: int | None = None,
    ) -> "pd.DataFrame":
        """Read rows like `to_arrow`, as a pandas frame."""
        return self.to_arrow(columns=columns, filter=filter, limit=limit).to_pandas()

    def to_polars(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
        limit: int | None = None,
    ) -> "pl.DataFrame":
        """Read rows like `to_arrow`, as a polars frame."""
        import polars

        frame = polars.from_arrow(self.to_arrow(columns=columns, filter=filter, limit=limit))
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 - a table never becomes a series
        return frame

    @property
    def indices(self) -> tuple[IndexInfo, ...]:
        """The indices of the table in this snapshot."""
        return tuple(list_indices(self.pin))

    def nearest(
        self,
        column: str,
        vector: "Sequence[float]",
        *,
        k: int = 10,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
    ) -> "pa.Table":
        """Return the `k` rows whose vectors are nearest to a vector, nearest first, with their `_distance`."""
        return read_nearest(self.pin, column, vector, k=k, columns=columns, filter=filter)

    @property
    def pin(self) -> Pin:
        """The Lance version that holds these rows, for engines that read it directly."""
        commits = [] if self._commit_id is None else [self._commit_id]
        with collected_errors(self._context, lambda: commits):
            pin = Pin(home=self._context.home_of(self.entry), version=self.entry.version)
            pin.open()
        return pin


class Snapshot(Mapping[str, Table]):
    """All tables at one commit."""

    def __init__(self, records: RepoStore, record: CommitRecord, *, version: int, tables: TableMap) -> None:
        self._records = records
        self._record = record
        self._tables = tables
        self.version = version

    @classmethod
    def of(cls, records: RepoStore, record: CommitRecord, *, version: int) -> Self:
        """Return the snapshot of a commit."""
        return cls(records, record, version=version, tables=records.commits.tables_of(record))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the commit, its table map and the settings of the repository. The copy shows the same rows."""
        return _restore, (self._records.context, self._record, self.version, dict(self._tables))

    def __repr__(self) -> str:
        return f"Snapshot({self.id!r}, version={self.version}, tables={len(self)})"

    @property
    def commit(self) -> GraphCommit:
        """The commit of the snapshot."""
        return self._record.commit

    @property
    def id(self) -> str:
        """The id of the commit."""
        return self.commit.graph_commit_id

    @property
    def main_commit_id(self) -> str | None:
        """The commit of main below a live branch. None on other branches."""
        return self._record.main_id

    def __getitem__(self, key: str) -> Table:
        parsed = TableKey.parse(key)
        entry = self._tables.get(parsed)
        if entry is None:
            raise TableNotFoundError(
                f"there is no table '{key}' in the snapshot {self.id}", hint="list the tables of the snapshot"
            )
        return Table(self._records.context, parsed, entry, commit_id=self.id)

    def __contains__(self, key: Any) -> bool:
        try:
            return isinstance(key, str) and TableKey.parse(key) in self._tables
        except InvalidNameError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(str(key) for key in self._tables))

    def __len__(self) -> int:
        return len(self._tables)

    def iter_commits(self) -> Iterator[GraphCommit]:
        """Yield the commit and its ancestors along the first parents, newest first."""
        return self._records.commits.iter_history(self._record)

    @property
    def entries(self) -> TableMap:
        """The entry of each table by its key: dataset, home and version."""
        return self._tables


def _restore(context: RepoConfig, record: CommitRecord, version: int, tables: TableMap) -> Snapshot:
    return Snapshot(RepoStore.of(context), record, version=version, tables=tables)
