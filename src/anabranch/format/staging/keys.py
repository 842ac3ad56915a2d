"""Find rows by key: upsert, and the check for keys that exist already."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.arrow_types import read_blobs
from anabranch.format.home import VersionRef
from anabranch.format.lance_errors import iter_batches
from anabranch.format.staging.expressions import quoted_column
from anabranch.format.staging.fragments import FragmentOutline, copy_rows, write_rows
from anabranch.format.staging.incoming import Rows, as_reader, cast_column, fit_rows, require_columns
from anabranch.format.staging.key_hashes import FoundKeys, KeyRows, find_repeated, find_shared, repeated_in
from anabranch.format.staging.rows import Addresses, RowsChanged, give_ids, replace_at


def are_surely_unique(rows: pa.Table) -> bool:
    """Return whether all rows certainly differ. If False, a full check is needed.

    A hash table of ten million numbers takes most of a gigabyte; numbers that are sorted already take nothing.
    """
    # Keys of several columns have no order that is cheap to check.
    if rows.num_columns != 1 or rows.column(0).null_count:
        return False
    kind = rows.column(0).type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return False
    chunks = [_numbers(chunk) for chunk in rows.column(0).chunks if len(chunk)]
    if _are_increasing(chunks):  # also without rows
        return True
    values = np.sort(np.concatenate(chunks))
    return bool((values[1:] != values[:-1]).all())


def _are_increasing(chunks: Sequence[npt.NDArray[np.int64]]) -> bool:
    is_sorted = all((chunk[1:] > chunk[:-1]).all() for chunk in chunks)
    return is_sorted and all(one[-1] < other[0] for one, other in itertools.pairwise(chunks))


def _numbers(chunk: pa.Array) -> npt.NDArray[np.int64]:
    wide = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[chunk.type.bit_width]
    # The numbers need not have the order of the values: equal values only need equal numbers.
    found: npt.NDArray[np.int64] = chunk.view(wide).to_numpy()
    return found


_POSITION = "__position"
# Keys are matched in slices of the table, each large enough to make up for setting up a join.
_SLICE_ROWS = 1 << 20
# Up to this number, keys are passed to Lance as a list in the filter of the scan.
_LISTED_KEYS = 500


def upsert(version_ref: VersionRef, data: Any, keys: Sequence[str]) -> RowsChanged:
    """Stage an upsert: rows replace those with the same key and keep their row ids, and other rows are added.

    Columns that the data lacks keep their values in replaced rows and are null in added ones.
    """
    dataset = version_ref.open()
    given = _read_given(dataset, data, keys)
    _require_unique(given.select(keys))
    matched = _match(version_ref, dataset, given, keys)
    is_fresh = np.ones(len(given), dtype=bool)
    is_fresh[matched.positions.to_numpy()] = False
    fresh = given.filter(pa.array(is_fresh))
    missing = [name for name in dataset.schema.names if name not in given.column_names]
    replaced = given.take(matched.positions)
    for name, values in _missing_values(version_ref, dataset, matched, missing).items():
        replaced = replaced.append_column(name, values)
    # Replaced rows come first, in the order of their addresses: the old row ids are given to the first rows.
    table = pa.concat_tables([_with_nulls(replaced, dataset), _with_nulls(fresh, dataset)])
    written = write_rows(version_ref, dataset, Rows(schema=dataset.schema, batches=iter(table.to_batches())))
    moved = give_ids(dataset, written, matched.row_ids)
    return replace_at(
        version_ref, dataset, written, moved=moved, addresses=matched.addresses, changed_columns=given.column_names
    )


def find_existing_keys(
    version_ref: VersionRef, data: Any, keys: Sequence[str], *, beyond: VersionRef | None = None
) -> pa.Table:
    """Find the keys of the data that exist in the table. Refuse data with a repeated or null key.

    If it is known that another version has none of them, only the rows `beyond` that version are read.
    """
    dataset = version_ref.open()
    given = _read_given(dataset, data, keys).select(keys)
    _require_unique(given)
    within = None if beyond is None else _unshared(dataset, beyond.open())
    matched = _match(version_ref, dataset, given, keys, once=False, within=within)
    # A table without an enforced key may have a key several times.
    return given.take(pa.array(np.unique(matched.positions.to_numpy())))


def read_given_keys(version_ref: VersionRef, data: pa.Table, keys: Sequence[str]) -> KeyRows:
    """Return the keys of rows in memory, in the types of the table; refuse a key column that is missing."""
    return KeyRows.of_table(_read_given(version_ref.open(), data, keys), keys)


def find_taken_keys(
    version_ref: VersionRef, rows: KeyRows, keys: Sequence[str], *, beyond: VersionRef | None = None
) -> FoundKeys | None:
    """Find the keys of rows that exist in the table, like `find_existing_keys`, for any number of rows.

    Few keys are passed to Lance, which may have an index on them. Many are compared by hashes, in bounded memory.
    """
    if rows.count <= _LISTED_KEYS:
        if not rows.count:
            return None
        existing = find_existing_keys(version_ref, rows.to_table(), keys, beyond=beyond)
        return FoundKeys(count=len(existing), example=existing.slice(0, 1).to_pylist()[0]) if len(existing) else None
    refuse_repeated(rows)
    dataset = version_ref.open()
    fragments = None if beyond is None else _unshared(dataset, beyond.open())

    def read() -> Iterator[pa.RecordBatch]:
        if fragments is None or fragments:  # no fragments would mean all to Lance
            with version_ref.home.errors():
                yield from iter_batches(dataset, columns=list(keys), fragments=fragments)

    # Only the rows are split into passes by their count. The others are read in each pass, whatever their number.
    return find_shared(rows, KeyRows(read=read, count=0))


def refuse_repeated(rows: KeyRows) -> None:
    """Refuse rows with a repeated key, or with nulls in the key."""
    repeated = find_repeated(rows)
    if repeated is not None:
        raise _repeated_keys(repeated.count, repeated.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matched:
    """The given rows that were found, with their addresses, sorted by address."""

    positions: pa.Array
    row_ids: Addresses
    addresses: Addresses


def copy_upserted(version_ref: VersionRef, data: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return a copy of rows to upsert later, in the columns of the table that the data has."""
    given = _read_given(version_ref.open(), data, keys)
    _require_unique(given.select(keys))
    return copy_rows(given, given.schema)


def _read_given(dataset: lance.LanceDataset, data: Any, keys: Sequence[str]) -> pa.Table:
    """Return the data's columns in the table's order and types. Refuse missing or null keys."""
    schema = dataset.schema
    if not keys:
        raise InvalidInputError("no key columns were named", hint="name at least one")
    require_columns(schema, keys)
    reader = as_reader(data)
    for name in keys:
        if name not in reader.schema.names:
            raise SchemaMismatchError(f"the data has no key column {name!r}", hint="add it to the data")
        # Arrow can neither join nor group by nested values.
        if pa.types.is_nested(schema.field(name).type):
            raise InvalidInputError(
                f"column {name!r} is {show_type(schema.field(name).type)} and cannot be a key",
                hint="use plain columns as keys",
            )
    columns = [name for name in schema.names if name in reader.schema.names]
    given = fit_rows(reader, schema, columns=columns).to_table()
    for name in keys:
        if given.column(name).null_count:
            raise KeyConflictError(
                f"{given.column(name).null_count} rows have no value in the key column {name!r}", hint="fill them"
            )
    return given


def _require_unique(given: pa.Table) -> None:
    if are_surely_unique(given):
        return
    repeated = repeated_in(given)
    if len(repeated):
        raise _repeated_keys(len(repeated), repeated.slice(0, 1).to_pylist()[0])


def _repeated_keys(count: int, example: Mapping[str, Any]) -> KeyConflictError:
    return KeyConflictError(
        f"{'1 key occurs' if count == 1 else f'{count} keys occur'} more than once in the data, such as {example}",
        hint="keep one row for each key",
    )


def _unshared(dataset: lance.LanceDataset, other: lance.LanceDataset) -> list[lance.LanceFragment]:
    """Return the fragments that another version does not have with the same rows."""
    # A fragment is its files: different versions may give different ones the same id.
    known = {FragmentOutline.of(fragment.metadata) for fragment in other.get_fragments()}
    return [found for found in dataset.get_fragments() if FragmentOutline.of(found.metadata) not in known]


def _match(
    version_ref: VersionRef,
    dataset: lance.LanceDataset,
    given: pa.Table,
    keys: Sequence[str],
    *,
    once: bool = True,
    within: list[lance.LanceFragment] | None = None,
) -> _Matched:
    wanted = given.select(keys).append_column(_POSITION, pa.array(np.arange(len(given), dtype=np.int64)))
    # An empty first part has the types if nothing matches.
    found = [pa.table({_POSITION: pa.array([], pa.int64()), "_rowid": _NO_IDS, "_rowaddr": _NO_IDS})]
    if len(given) and (within is None or within):  # no fragments would mean all to Lance
        batches = iter_batches(
            dataset,
            columns=list(keys),
            filter=_prefilter(given, keys),
            fragments=within,
            with_row_id=True,
            with_row_address=True,
        )
        with version_ref.home.errors():
            for part in _slices(batches):
                joined = part.join(wanted, keys=list(keys), join_type="inner")
                found.append(joined.select([_POSITION, "_rowid", "_rowaddr"]))
    all_found = pa.concat_tables(found).sort_by("_rowaddr").combine_chunks()
    positions = all_found.column(_POSITION)
    # One new row cannot replace two rows of the same key.
    if once and len(pc.unique(positions)) < len(positions):
        twice = pc.value_counts(positions).to_pylist()
        first = next(entry["values"] for entry in twice if entry["counts"] > 1)
        raise KeyConflictError(
            f"the table holds the key {given.select(keys).slice(first, 1).to_pylist()[0]} more than once",
            hint="remove the repeated rows, or choose a key that is unique",
        )
    return _Matched(
        positions=positions.combine_chunks(),
        row_ids=all_found.column("_rowid").to_numpy(),
        addresses=all_found.column("_rowaddr").to_numpy(),
    )


_NO_IDS = pa.array([], pa.uint64())


def _prefilter(given: pa.Table, keys: Sequence[str]) -> str | None:
    """Return a condition that all wanted rows meet, so that Lance can use an index or skip other rows."""
    listed = [(name, _literals(given.column(name))) for name in keys]
    # Column by column, so rows with other combinations of these values pass too. The join removes them.
    terms = [f"{quoted_column(name)} IN ({', '.join(found)})" for name, found in listed if found]
    return " AND ".join(terms) or None


def _literals(column: pa.ChunkedArray) -> list[str]:
    """Return a few values as SQL literals. Return none if there are many, or if SQL may read their type differently."""
    if len(pc.unique(column.slice(0, 2 * _LISTED_KEYS))) > _LISTED_KEYS:
        return []  # before all of them are hashed
    values = pc.unique(column)
    if len(values) > _LISTED_KEYS:
        return []
    if pa.types.is_integer(column.type):
        numbers: list[int] = values.to_pylist()
        # SQL may read a larger number as another type.
        return [str(number) for number in numbers] if all(abs(n) < 1 << 62 for n in numbers) else []
    if pa.types.is_string(column.type):
        return ["'" + text.replace("'", "''") + "'" for text in values.to_pylist()]
    return []


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(len(b) for b in held) >= _SLICE_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _missing_values(
    version_ref: VersionRef, dataset: lance.LanceDataset, matched: _Matched, missing: Sequence[str]
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return the values of the matched rows in the columns that the data lacks."""
    found: dict[str, pa.Array | pa.ChunkedArray] = {}
    if len(matched.row_ids):
        blobs = [name for name in missing if name in version_ref.blob_columns]
        plain = [name for name in missing if name not in blobs]
        with version_ref.home.errors():
            if plain:
                taken = dataset._take_rows(matched.row_ids.tolist(), columns=plain)
                found = dict(zip(plain, taken.columns, strict=True))
            for name in blobs:
                found[name] = cast_column(read_blobs(dataset, name, matched.addresses), dataset.schema.field(name))
    return found


def _with_nulls(given: pa.Table, dataset: lance.LanceDataset) -> pa.Table:
    if not len(given):
        return dataset.schema.empty_table()
    return fit_rows(given, dataset.schema).to_table()
