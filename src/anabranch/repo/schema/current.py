"""The current schema, read from the tables of a snapshot or of a transaction."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anabranch.format.staging import IndexInfo, IndexKind, VersionRef, list_indices
from anabranch.ids import TableKey
from anabranch.repo.schema.notes import read_column, read_declared_indices, read_description
from anabranch.repo.schema.state import Index, SchemaState, TableSchema, satisfies
from anabranch.repo.snapshot import Table
from anabranch.storage.parallel import in_parallel

__all__ = ["CurrentTable", "built_indices", "is_built_as", "read_current", "state_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTable:
    """The current schema of a table, its rows, and the indices that could not be built before it had rows."""

    schema: TableSchema
    rows: int
    unbuilt: frozenset[str] = frozenset()


def read_current(tables: Iterable[Table]) -> dict[TableKey, CurrentTable]:
    """Read the current schema of tables, in parallel."""
    found = in_parallel(_read_table, tables)
    return {table.schema.key: table for table in found}


def state_of(current: Iterable[CurrentTable]) -> SchemaState:
    return SchemaState.of(table.schema for table in current)


def built_indices(version_ref: VersionRef) -> list[Index]:
    """Return the existing indices of the kinds that a schema can declare."""
    return [_read_built(info) for info in list_indices(version_ref) if _is_known(info)]


def _read_table(table: Table) -> CurrentTable:
    arrow, rows = table.schema, table.count_rows()
    built = built_indices(table.version_ref)
    declared = [index for field in arrow for index in read_declared_indices(field)]
    unbuilt = [index_spec for index_spec in declared if not any(is_built_as(index_spec, index) for index in built)]
    # Ignore a declared index if another index has its name.
    taken = {index.chosen_name for index in built}
    pending = [index_spec for index_spec in unbuilt if index_spec.chosen_name not in taken]
    return CurrentTable(
        schema=TableSchema(
            key=TableKey.parse(table.key),
            columns=tuple(read_column(field) for field in arrow),
            primary_key=table.primary_key,
            indices=_sorted([*(_with_settings(index, declared) for index in built), *pending]),
            description=read_description(arrow),
        ),
        rows=rows,
        unbuilt=frozenset(index.chosen_name for index in pending) if rows else frozenset(),
    )


def is_built_as(index_spec: Index, built: Index) -> bool:
    """Return whether an existing index matches a declared one, in the settings that Lance reports."""
    return satisfies(built, replace(index_spec, num_partitions=None, num_sub_vectors=None))


def _with_settings(built: Index, declared: Iterable[Index]) -> Index:
    """Return an index with the settings that only the note has, because Lance does not report them."""
    index_spec = next((index_spec for index_spec in declared if is_built_as(index_spec, built)), None)
    if index_spec is None:
        return built
    return replace(built, num_partitions=index_spec.num_partitions, num_sub_vectors=index_spec.num_sub_vectors)


def _sorted(indices: Iterable[Index]) -> tuple[Index, ...]:
    return tuple(sorted(indices, key=lambda index: (index.column, index.chosen_name)))


def _is_known(info: IndexInfo) -> bool:
    return info.kind in set(IndexKind) and len(info.columns) == 1 and "." not in info.columns[0]


def _read_built(info: IndexInfo) -> Index:
    (column,) = info.columns
    return Index(column=column, kind=IndexKind(info.kind), name=info.name, metric=info.metric)
