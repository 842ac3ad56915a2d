"""The schema that there is: read from the tables of a snapshot, or of a transaction that has begun to change them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anabranch.format.staging import IndexInfo, IndexKind, Pin, list_indices
from anabranch.ids import TableKey
from anabranch.repo.schema.noted import read_column, read_description, read_wished_indices
from anabranch.repo.schema.state import Index, SchemaState, TableSchema
from anabranch.repo.snapshot import Table
from anabranch.storage.parallel import in_parallel

__all__ = ["CurrentTable", "built_indices", "is_built_as", "read_current", "state_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTable:
    """A table as it is: its schema, its rows, and which of its indices wait to be built, for want of rows until now."""

    schema: TableSchema
    rows: int
    unbuilt: frozenset[str] = frozenset()


def read_current(tables: Iterable[Table]) -> dict[TableKey, CurrentTable]:
    found = in_parallel(_read_table, tables)
    return {table.schema.key: table for table in found}


def state_of(current: Iterable[CurrentTable]) -> SchemaState:
    return SchemaState.of(table.schema for table in current)


def built_indices(pin: Pin) -> list[Index]:
    """The indices that Lance has, of the kinds that a schema can ask for."""
    return [_read_built(info) for info in list_indices(pin) if _is_known(info)]


def _read_table(table: Table) -> CurrentTable:
    arrow, rows = table.schema, table.count_rows()
    built = built_indices(table.pin)
    wished = [index for field in arrow for index in read_wished_indices(field)]
    unbuilt = [wish for wish in wished if not any(is_built_as(wish, index) for index in built)]
    # A wish whose name something else has taken is void.
    taken = {index.chosen_name for index in built}
    waiting = [wish for wish in unbuilt if wish.chosen_name not in taken]
    return CurrentTable(
        schema=TableSchema(
            key=TableKey.parse(table.key),
            columns=tuple(read_column(field) for field in arrow),
            primary_key=table.primary_key,
            indices=_sorted([*(_with_settings(index, wished) for index in built), *waiting]),
            description=read_description(arrow),
        ),
        rows=rows,
        unbuilt=frozenset(index.chosen_name for index in waiting) if rows else frozenset(),
    )


def is_built_as(wish: Index, built: Index) -> bool:
    """Whether an index is what was wished for, as far as Lance tells."""
    return replace(wish, num_partitions=None, num_sub_vectors=None).asks_for(built)


def _with_settings(built: Index, wished: Iterable[Index]) -> Index:
    """An index with those of its settings that only the note knows."""
    wish = next((wish for wish in wished if is_built_as(wish, built)), None)
    if wish is None:
        return built
    return replace(built, num_partitions=wish.num_partitions, num_sub_vectors=wish.num_sub_vectors)


def _sorted(indices: Iterable[Index]) -> tuple[Index, ...]:
    return tuple(sorted(indices, key=lambda index: (index.column, index.chosen_name)))


def _is_known(info: IndexInfo) -> bool:
    return info.kind in set(IndexKind) and len(info.columns) == 1 and "." not in info.columns[0]


def _read_built(info: IndexInfo) -> Index:
    (column,) = info.columns
    metric = None if info.metric is None else info.metric.lower()
    return Index(column=column, kind=IndexKind(info.kind), name=info.name, metric=metric)
