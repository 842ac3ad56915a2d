"""A consistent view of all tables at one commit, and the tables in it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from anabranch.display import MAX_ROWS, html_table, some_of
from anabranch.errors import AnabranchError, InvalidNameError, MissingDependencyError
from anabranch.format.arguments import unknown_table
from anabranch.format.layout.manifest import read_contents
from anabranch.format.staging import VersionRef
from anabranch.format.staging.manifests import get_manifest
from anabranch.ids import TableKey
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, GraphCommit, TableEntry, TableMap
from anabranch.repo.log.repo_store import CommitTables, RepoStore

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pads

    from anabranch.format.staging import IndexInfo


class Table:
    """One table in one snapshot. It never changes: later commits are in later snapshots.

    It is an Arrow stream (`__arrow_c_stream__`), which DuckDB, polars and Arrow read directly, batch by batch:
    `duckdb.sql("SELECT * FROM orders")`, `pl.DataFrame(orders)`, `pa.table(orders)`. `len(orders)` counts the rows.
    """

    def __init__(self, config: RepoConfig, key: TableKey, entry: TableEntry, *, commit_id: str | None = None) -> None:
        self._config = config
        self._key = key
        self._commit_id = commit_id
        self.entry = entry

    def __repr__(self) -> str:
        commit = "" if self._commit_id is None else f", commit={self._commit_id!r}"
        schema = self._find_schema()
        columns = "" if schema is None else f", columns={some_of(schema.names)}"
        return f"Table({self.key!r}{commit}, rows={len(self)}{columns})"

    def _repr_html_(self) -> str:
        from anabranch.column_types import show_type  # loads Arrow

        rows = []
        for field in self._find_schema() or ():
            is_key = "yes" if field.name in self.primary_key else ""
            rows.append((field.name, show_type(field.type), "no" if field.nullable else "yes", is_key))
        commit = "" if self._commit_id is None else f" at {self._commit_id}"
        title = f"{self.key}{commit}, {len(self):,} rows"
        return html_table(("column", "type", "not null", "primary key"), rows, title=title)

    def __len__(self) -> int:
        return self.entry.rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream. They are read batch by batch, as the consumer requests them."""
        from anabranch.format.scan import open_reader

        return open_reader(self.version_ref).__arrow_c_stream__(requested_schema)

    @property
    def key(self) -> str:
        """The key of the table, `bucket.table`."""
        return str(self._key)

    @property
    def uri(self) -> str:
        """The URI at which any Lance tool reads the table as this branch last published it."""
        return self._config.dataset_root(self.entry.dataset).on(self.entry.home).uri

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key. Empty if the table has none."""
        return self.entry.primary_key

    @cached_property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the table. It has the notes of the columns, but not their identities."""
        from anabranch.format.staging import without_column_ids

        # Cached, because each access of `VersionRef.schema` converts all columns, and merges access it for each column.
        return without_column_ids(self.version_ref.schema)

    @property
    def size_bytes(self) -> int:
        """The bytes of the data and overlay files of this version, also of those that other versions share."""
        return self.version_ref.count_bytes()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        if "schema" in vars(self):
            return tuple(self.schema.names)
        # From the manifest: this needs no Lance, so that a shell completes names fast.
        with self._collected_errors():
            home = self._config.home_of(self.entry)
            return read_contents(get_manifest(home, self.entry.version).data, name=home.uri).columns

    def head(self, n: int = 5) -> "pa.Table":
        """Read the first `n` rows.

        >>> repo["shop.orders"].head(2).to_pylist()
        [{'id': 1, 'item': 'tea', 'amount': 12.5}, {'id': 2, 'item': 'cup', 'amount': 8.0}]
        """
        return self.to_arrow(limit=n)

    def count_rows(self, where: str | None = None) -> int:
        """Return the number of rows, or of those that match a predicate.

        >>> repo["shop.orders"].count_rows("amount > 10")
        2
        """
        if where is None:
            return self.entry.rows
        from anabranch.format.scan import count_rows

        return count_rows(self.version_ref, where)

    def scan(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Read the rows in batches.

        >>> sum(batch.num_rows for batch in repo["shop.orders"].scan(columns=["id"]))
        3
        """
        from anabranch.format.scan import iter_batches

        return iter_batches(self.version_ref, columns=columns, where=where, limit=limit)

    def to_dataset(self) -> "pads.Dataset":
        """Return an Arrow dataset, for engines that push columns and predicates down, such as DuckDB.

        >>> repo["shop.orders"].to_dataset().count_rows()
        3
        """
        from anabranch.format.scan import ArrowDataset

        return ArrowDataset(self.version_ref)

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> "pa.Table":
        """Read rows into memory. `where` is an SQL predicate over the columns. `offset` rows are skipped.

        >>> repo["shop.orders"].to_arrow(columns=["item"], where="amount > 10").to_pydict()
        {'item': ['tea', 'pot']}
        """
        from anabranch.format.scan import read_table
        from anabranch.format.staging import without_column_ids

        rows = read_table(self.version_ref, columns=columns, where=where, limit=limit, offset=offset)
        schema = rows.schema
        shown = without_column_ids(schema)
        return rows if shown is schema else rows.from_arrays(rows.columns, schema=shown)

    def to_pandas(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> "pd.DataFrame":
        """Read rows like `to_arrow`, as a pandas frame.

        >>> repo["shop.orders"].to_pandas(where="id = 2")["item"].tolist()
        ['cup']
        """
        _require_installed("pandas")
        return self.to_arrow(columns=columns, where=where, limit=limit).to_pandas()

    def to_polars(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> "pl.DataFrame":
        """Read rows like `to_arrow`, as a polars frame.

        >>> repo["shop.orders"].to_polars(columns=["id"]).shape
        (3, 1)
        """
        _require_installed("polars")
        import polars

        frame = polars.from_arrow(self.to_arrow(columns=columns, where=where, limit=limit))
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 - a table never becomes a series
        return frame

    @property
    def indices(self) -> "tuple[IndexInfo, ...]":
        """The indices of the table in this snapshot."""
        from anabranch.format.staging import list_indices

        return tuple(list_indices(self.version_ref))

    def nearest(
        self,
        column: str,
        vector: "Sequence[float]",
        *,
        k: int = 10,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> "pa.Table":
        """Return the `k` rows whose vectors are nearest to a vector, nearest first, with their `_distance`.

        >>> vectors = pa.table({"id": [1, 2], "v": pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float32(), 2))})
        >>> report = repo.load("shop.vectors", vectors)
        >>> repo["shop.vectors"].nearest("v", [0.9, 0.1], k=1)["id"].to_pylist()
        [1]
        """
        from anabranch.format.scan import read_nearest

        return read_nearest(self.version_ref, column, vector, k=k, columns=columns, where=where)

    @property
    def version_ref(self) -> VersionRef:
        """The Lance version that holds these rows, for engines that read it directly."""
        with self._collected_errors():
            version_ref = VersionRef(home=self._config.home_of(self.entry), version=self.entry.version)
            version_ref.open()
        return version_ref

    def _collected_errors(self) -> AbstractContextManager[None]:
        commits = [] if self._commit_id is None else [self._commit_id]
        return collected_errors(self._config, lambda: commits)

    def _find_schema(self) -> "pa.Schema | None":
        """Return the schema for a repr, which must not raise: None if the version cannot be opened."""
        try:
            return self.schema
        except AnabranchError:
            return None


@dataclass(eq=False, repr=False)
class Snapshot(Mapping[str, Table]):
    """All tables at one commit."""

    _repo_store: RepoStore
    _record: CommitRecord
    _tables: TableMap
    _: KW_ONLY
    version: int

    @classmethod
    def of(cls, repo_store: RepoStore, record: CommitRecord, *, version: int) -> Self:
        """Return the snapshot of a commit."""
        return cls(repo_store, record, CommitTables(repo_store.commits.full_map, record).read(), version=version)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the commit, its table map and the settings of the repository. The copy shows the same rows."""
        return _restore, (self._repo_store.config, self._record, self.version, dict(self._tables))

    def __repr__(self) -> str:
        return f"Snapshot({self.id!r}, version={self.version}, tables={some_of(list(self))})"

    def _repr_html_(self) -> str:
        entries = [(key, self._tables[key]) for key in sorted(self._tables)[:MAX_ROWS]]
        rows = [(key, f"{entry.rows:,}", ", ".join(entry.primary_key)) for key, entry in entries]
        title = f"Snapshot {self.id}: {self.commit.message}"
        return html_table(("table", "rows", "primary key"), rows, title=title, more=len(self) - MAX_ROWS)

    @property
    def commit(self) -> GraphCommit:
        """The commit of the snapshot."""
        return self._record.commit

    @property
    def id(self) -> str:
        """The id of the commit."""
        return self._record.commit.graph_commit_id

    @property
    def main_commit_id(self) -> str | None:
        """The commit of main below a live branch. None on other branches."""
        return self._record.main_id

    def __getitem__(self, key: str) -> Table:
        try:
            parsed = TableKey.parse(key)
        except InvalidNameError as err:
            # If the key lacks the bucket, the error names the tables of that name.
            named = [str(known) for known in sorted(self._tables) if known.table == key]
            if not named:
                raise
            raise InvalidNameError(err.problem, hint=f"did you mean {' or '.join(map(repr, named[:3]))}?") from None
        entry = self._tables.get(parsed)
        if entry is None:
            raise unknown_table(key, f"in commit {self.id}", self)
        return Table(self._repo_store.config, parsed, entry, commit_id=self.id)

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
        """Yield the commit and its ancestors along the first parents, newest first.

        >>> [commit.message for commit in repo.snapshot().iter_commits()]
        ['Load the shop', 'Begin the repository']
        """
        return self._repo_store.commits.iter_history(self._record)

    @property
    def entries(self) -> TableMap:
        """The entry of each table by its key: dataset, home and version."""
        return self._tables


def _restore(config: RepoConfig, record: CommitRecord, version: int, tables: TableMap) -> Snapshot:
    return Snapshot(RepoStore.of(config), record, tables, version=version)


def _require_installed(library: str) -> None:
    if find_spec(library) is None:
        hint = f"run 'pip install {library}', or read the rows with `to_arrow()`"
        raise MissingDependencyError(f"{library} is not installed", hint=hint)
