"""Find one row by its key."""

import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError, KeyConflictError
from anabranch.format.arguments import unknown_column
from anabranch.format.arrow_types import WITH_BYTES
from anabranch.format.home import BoundedCache, HomeKey, VersionRef, new_home_cache
from anabranch.format.layout.manifest import Contents, fragment_id, read_contents
from anabranch.format.staging.expressions import default_expression, quoted_column
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.schema_notes import columns_by_id

_ADDRESS = "_rowaddr"
_LEAST_INT64 = -(1 << 63)
# The keys of small fragments are kept for a table with this many fragments.
_MANY_FRAGMENTS = 256
_FEW_ROWS = 1_000
_MOST_KEYS = 1_000_000


class _SmallKeys(NamedTuple):
    """The keys and addresses of all rows in small fragments of a version, and the ids of its other fragments."""

    rows: pa.Table
    others: tuple[int, ...]


# Weighed by their rows.
_KEYS: BoundedCache[HomeKey, _SmallKeys] = new_home_cache(limit=64, capacity=_MOST_KEYS)


def find_row(version_ref: VersionRef, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row with these values in its key columns, or None. Use an index on one of them."""
    found = _find(version_ref, key)
    return found.to_pylist()[0] if len(found) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A row in one version, or its absence, and the fragment it was seen in."""

    contents: Contents
    row: dict[str, Any] | None
    fragment: bytes | None


def read_contents_of(version_ref: VersionRef) -> Contents:
    """Return the contents of a version without opening it."""
    return read_contents(read_manifest_of(version_ref), name=version_ref.home.manifest_path(version_ref.version))


def read_manifest_of(version_ref: VersionRef) -> bytes:
    return version_ref.home.store().get(version_ref.home.manifest_path(version_ref.version))


def find_renamed(older: Contents, newer: Contents) -> dict[str, str]:
    """Return the new names of the columns that were renamed between two versions of a dataset, by their old names."""
    if older.fields == newer.fields:
        return {}
    before, after = (columns_by_id(FieldTree.read(contents.fields)) for contents in (older, newer))
    shared = before.keys() & after.keys()
    return {before[column_id]: after[column_id] for column_id in shared if before[column_id] != after[column_id]}


def find_row_beside(
    version_ref: VersionRef, key: Mapping[str, Any], contents: Contents, seen: Sighting | None
) -> Sighting:
    """Find a row in a version by its state in another one: only fragments that the other one lacks are read."""
    if seen is None or seen.contents.fields != contents.fields:
        return _sighting(contents, _find_in_all(version_ref, key, contents))
    if seen.fragment in contents.fragments:
        return replace(seen, contents=contents)
    # The row is not in a common fragment: otherwise the other version would have it there, too.
    unknown = [fragment_id(description) for description in contents.fragments - seen.contents.fragments]
    if not unknown:
        return Sighting(contents=contents, row=None, fragment=None)
    return _sighting(contents, _find(version_ref, key, within=unknown, with_address=True))


def _find_in_all(version_ref: VersionRef, key: Mapping[str, Any], contents: Contents) -> pa.Table:
    """Find a row in any fragment. In a table of very many fragments, only those that have its key are searched."""
    # After many small commits, a search would open thousands of fragments of a few rows, which takes most of its time.
    if len(contents.fragments) < _MANY_FRAGMENTS or any(
        not key.keys().isdisjoint(index.field_names) for index in version_ref.open().describe_indices()
    ):
        return _find(version_ref, key, with_address=True)
    wanted = {name: _typed(version_ref.schema, name, value) for name, value in key.items()}
    known = _small_keys(version_ref, list(key))
    addresses = known.rows.column(_ADDRESS).filter(_equal_in(known.rows, wanted)).to_pylist()
    # Find all rows, not only the first: a repeated key is an error.
    within = {*known.others, *(address >> 32 for address in addresses)}
    return _find(version_ref, key, within=within, with_address=True)


def _small_keys(version_ref: VersionRef, names: list[str]) -> _SmallKeys:
    """Return the keys in small fragments. Those of a staged version, which never changes, are kept."""
    cache_key = version_ref.home, version_ref.version
    found = _KEYS.find(cache_key) if version_ref.is_staged else None
    # The cached keys may be of other columns: a version does not determine the requested ones.
    if found is not None and found.rows.column_names == [*names, _ADDRESS]:
        return found
    with version_ref.home.errors():
        dataset = version_ref.open()
        small, others, total = [], [], 0
        for fragment in dataset.get_fragments():
            rows = fragment.physical_rows
            if rows <= _FEW_ROWS and total + rows <= _MOST_KEYS:
                small.append(fragment)
                total += rows
            else:
                others.append(fragment.fragment_id)
        keys = dataset.scanner(columns=names, fragments=small, with_row_address=True).to_table()
    found = _SmallKeys(rows=keys.combine_chunks(), others=tuple(others))
    _KEYS.keep(cache_key, found, weight=len(keys))
    return found


def _sighting(contents: Contents, found: pa.Table) -> Sighting:
    if not len(found):
        return Sighting(contents=contents, row=None, fragment=None)
    row = found.to_pylist()[0]
    number = row.pop(_ADDRESS) >> 32
    fragment = next(description for description in contents.fragments if fragment_id(description) == number)
    return Sighting(contents=contents, row=row, fragment=fragment)


def _find(
    version_ref: VersionRef,
    key: Mapping[str, Any],
    *,
    within: Collection[int] | None = None,
    with_address: bool = False,
) -> pa.Table:
    dataset = version_ref.open()
    schema = dataset.schema
    wanted = {name: _typed(schema, name, value) for name, value in key.items()}
    with version_ref.home.errors():
        # `get_fragments` makes an object for each of what may be thousands of fragments.
        named = None if within is None else map(dataset.get_fragment, sorted(within))
        fragments = None if named is None else [fragment for fragment in named if fragment is not None]
        filter_ = _filter_for(dataset, schema, wanted, fragments)
        # Without a limit, which takes Lance a tenth longer and saves nothing: one row is what there is.
        options = {"with_row_address": with_address, **(WITH_BYTES if version_ref.blob_columns else {})}
        found = dataset.scanner(filter=filter_, fragments=fragments, **options).to_table()
    if len(found) > 1:
        raise KeyConflictError(
            f"the table at {version_ref.home.uri!r} holds the key {dict(key)} more than once",
            hint="remove the repeated rows, or choose a key that is unique",
        )
    return found


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    """Return a value in the type of its column. Refuse a value that Arrow would round, cut or misread."""
    if value is None:
        raise InvalidInputError(f"the key column {name!r} is given as None", hint="no key is null: give a value")
    if schema.get_field_index(name) < 0:
        raise unknown_column(name, schema.names)
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        typed = pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        typed = None
    # Arrow rounds and cuts some values silently, for example a float to float32. A lookup would then find another row.
    if typed is None or typed.as_py() != value:
        raise InvalidInputError(
            f"{value!r} is not a value of the key column {name!r}, which is {show_type(kind)}",
            hint="give one of the column's type",
        )
    return typed


def _equality(field: pa.Field, value: pa.Scalar) -> str | None:
    """Return a filter of Lance for the rows with a value; None if Lance has no exact literal for it."""
    # A name with a backtick cannot be quoted for Lance, and a dictionary column is compared by its values.
    if "`" in field.name or value.type != field.type:
        return None
    literal = next((write(value) for is_kind, write in _LITERALS if is_kind(value.type)), None)
    return None if literal is None else f"{quoted_column(field.name)} = {literal}"


def _integer(value: pa.Scalar) -> str | None:
    # Lance reads the digits of the least number before its minus sign, and finds them too large.
    return None if value.as_py() == _LEAST_INT64 else str(value.as_py())


def _float(value: pa.Scalar) -> str | None:
    # SQL has no literal for NaN and infinity.
    return repr(value.as_py()) if math.isfinite(value.as_py()) else None


def _text(value: pa.Scalar) -> str:
    return "'" + str(value.as_py()).replace("'", "''") + "'"


def _timestamp(value: pa.Scalar) -> str | None:
    return None if value.value == _LEAST_INT64 else default_expression(str(value.value), value.type)


# The literals of values in a filter of Lance, by the kind of type.
_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Scalar], str | None]], ...] = (
    (pa.types.is_boolean, lambda value: "true" if value.as_py() else "false"),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_date32, lambda value: f"arrow_cast(arrow_cast({value.value}, 'Int32'), 'Date32')"),
    (pa.types.is_timestamp, _timestamp),
)


def _filter_for(
    dataset: lance.LanceDataset,
    schema: pa.Schema,
    wanted: Mapping[str, pa.Scalar],
    fragments: list[lance.LanceFragment] | None,
) -> str | None:
    """Return a filter for a key. For values without an exact literal in Lance, read the key columns and compare."""
    filters = [_equality(schema.field(name), value) for name, value in wanted.items()]
    known = " AND ".join(text for text in filters if text is not None) or None
    if None not in filters:
        return known
    row_ids: list[int] = []
    scan = dataset.scanner(columns=list(wanted), filter=known, fragments=fragments, with_row_id=True)
    for batch in scan.to_batches():
        row_ids.extend(batch.column("_rowid").filter(_equal_in(batch, wanted)).to_pylist())
    # Two ids are enough to notice that the key is repeated.
    return f"_rowid IN ({', '.join(map(str, row_ids[:2]))})" if row_ids else "false"


def _equal_in(rows: pa.RecordBatch | pa.Table, wanted: Mapping[str, pa.Scalar]) -> pa.Array | pa.ChunkedArray:
    columns = [rows.column(name).cast(value.type) for name, value in wanted.items()]
    compared = [pc.equal(column, value) for column, value in zip(columns, wanted.values(), strict=True)]
    return functools.reduce(pc.and_, compared) if len(compared) > 1 else compared[0]
