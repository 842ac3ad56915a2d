"""One row found by its key."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError
from anabranch.format.arguments import unknown_column
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.manifest import Contents, fragment_id, read_contents
from anabranch.format.layout.names import manifest_path
from anabranch.format.staging.column_ids import columns_by_id
from anabranch.format.staging.expressions import quoted_column
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.version_ref import VersionRef

__all__ = ["Sighting", "find_renamed", "find_row", "find_row_beside", "read_contents_of", "read_manifest_of"]

_ADDRESS = "_rowaddr"
_LEAST_INT64 = -(1 << 63)
# A table with this many fragments is searched step by step, at both ends first.
_MANY_FRAGMENTS = 256
_FRAGMENTS_AT_END = 32
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def find_row(version_ref: VersionRef, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row that has these values in its key columns, or None; an index on one of them is used."""
    found = _find(version_ref, key)
    return found.to_pylist()[0] if len(found) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A row in one version, or its absence, and the fragment it was seen in."""

    contents: Contents
    row: dict[str, Any] | None
    fragment: bytes | None


def read_contents_of(version_ref: VersionRef) -> Contents:
    """What a version is made of, without opening it."""
    return read_contents(read_manifest_of(version_ref), name=_path_of(version_ref))


def read_manifest_of(version_ref: VersionRef) -> bytes:
    return version_ref.home.store().get(_path_of(version_ref))


def _path_of(version_ref: VersionRef) -> str:
    return manifest_path(version_ref.version, version_ref.home.folder)


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
    """Find a row in a version, knowing it in another one: only what the other one does not have is read."""
    if seen is None or seen.contents.fields != contents.fields:
        return _sighting(contents, _find_by_age(version_ref, key, contents))
    if seen.fragment in contents.fragments:
        return replace(seen, contents=contents)
    # In what both have the row is not: there the other version would have it, too.
    unknown = [fragment_id(description) for description in contents.fragments - seen.contents.fragments]
    if not unknown:
        return Sighting(contents=contents, row=None, fragment=None)
    return _sighting(contents, _find(version_ref, key, within=unknown, with_address=True))


def _find_by_age(version_ref: VersionRef, key: Mapping[str, Any], contents: Contents) -> pa.Table:
    """Find a row. In a table of very many fragments, stop when it is found.

    After many small commits most rows are in the oldest fragments, of a load or a compaction, and the row that is asked
    for is often one that was changed lately. To open all other fragments takes most of the time. A key that is repeated
    is noticed only if both rows are searched in the same step.
    """
    numbers = sorted(map(fragment_id, contents.fragments))
    if len(numbers) < _MANY_FRAGMENTS:
        return _find(version_ref, key, with_address=True)
    found = None
    for some in _iter_by_age(numbers):
        found = _find(version_ref, key, within=some, with_address=True)
        if len(found):
            break
    assert found is not None  # noqa: S101 - there are many fragments
    return found


def _iter_by_age(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the numbers at both ends, then those before the end, twice as many each time."""
    yield [*numbers[:_FRAGMENTS_AT_END], *numbers[-_FRAGMENTS_AT_END:]]
    end, count = len(numbers) - _FRAGMENTS_AT_END, _MANY_FRAGMENTS
    while end > _FRAGMENTS_AT_END:
        start = max(_FRAGMENTS_AT_END, end - count)
        yield numbers[start:end]
        end, count = start, 2 * count


def _sighting(contents: Contents, found: pa.Table) -> Sighting:
    if not len(found):
        return Sighting(contents=contents, row=None, fragment=None)
    row = found.to_pylist()[0]
    number = row.pop(_ADDRESS) >> 32
    fragment = next(description for description in contents.fragments if fragment_id(description) == number)
    return Sighting(contents=contents, row=row, fragment=fragment)


def _find(
    version_ref: VersionRef, key: Mapping[str, Any], *, within: Sequence[int] | None = None, with_address: bool = False
) -> pa.Table:
    dataset = version_ref.open()
    schema = dataset.schema
    wanted = {name: _typed(schema, name, value) for name, value in key.items()}
    filters = [_equality(schema.field(name), value) for name, value in wanted.items()]
    known = " AND ".join(text for text in filters if text is not None) or None
    with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
        wanted_ids = None if within is None else frozenset(within)
        fragments = None if wanted_ids is None else [f for f in dataset.get_fragments() if f.fragment_id in wanted_ids]
        if None in filters:
            known = _rows_equal_in_arrow(dataset, wanted, known, fragments)
        # Without a limit, which takes Lance a tenth longer and saves nothing: one row is what there is.
        found = dataset.scanner(filter=known, fragments=fragments, with_row_address=with_address).to_table()
    if len(found) > 1:
        raise KeyConflictError(
            f"the table at {version_ref.home.uri!r} holds the key {dict(key)} more than once",
            hint="remove the repeated rows, or choose a key that is unique",
        )
    return found


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    """A value as its column has it. What Arrow would round, cut or read as something else is refused."""
    if value is None:
        raise InvalidInputError(f"the key column {name!r} is given as None", hint="no key is null: give a value")
    if schema.get_field_index(name) < 0:
        raise unknown_column(name, schema.names)
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        typed = pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise _unfit(name, value, kind) from None
    # Arrow rounds and cuts some values silently, for example a float to float32. A lookup would then find another row.
    if typed.as_py() != value:
        raise _unfit(name, value, kind)
    return typed


def _equality(field: pa.Field, value: pa.Scalar) -> str | None:
    """Return a filter of Lance for the rows with a value; None if Lance has no exact literal for it."""
    # A name with a backtick cannot be quoted for Lance, and a dictionary column is compared by its values.
    if "`" in field.name or value.type != field.type:
        return None
    literal = _literal(value)
    return None if literal is None else f"{quoted_column(field.name)} = {literal}"


def _literal(value: pa.Scalar) -> str | None:
    for is_kind, write in _LITERALS:
        if is_kind(value.type):
            return write(value)
    return None


def _integer(value: pa.Scalar) -> str | None:
    # Lance reads the digits of the least number before its minus sign, and finds them too large.
    return None if value.as_py() == _LEAST_INT64 else str(value.as_py())


def _float(value: pa.Scalar) -> str | None:
    # SQL has no literal for NaN and infinity.
    return repr(value.as_py()) if math.isfinite(value.as_py()) else None


def _text(value: pa.Scalar) -> str:
    return "'" + str(value.as_py()).replace("'", "''") + "'"


def _timestamp(value: pa.Scalar) -> str | None:
    if value.value == _LEAST_INT64:
        return None
    zone = f'Some("{value.type.tz}")' if value.type.tz else "None"
    return f"arrow_cast({value.value}, 'Timestamp({_UNITS[value.type.unit]}, {zone})')"


# How a value of each kind of type is written in a filter of Lance.
_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Scalar], str | None]], ...] = (
    (pa.types.is_boolean, lambda value: "true" if value.as_py() else "false"),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_date32, lambda value: f"arrow_cast(arrow_cast({value.value}, 'Int32'), 'Date32')"),
    (pa.types.is_timestamp, _timestamp),
)


def _unfit(name: str, value: Any, kind: pa.DataType) -> InvalidInputError:
    return InvalidInputError(
        f"{value!r} is not a value of the key column {name!r}, which is {kind}", hint="give one of the column's type"
    )


def _rows_equal_in_arrow(
    dataset: lance.LanceDataset,
    wanted: Mapping[str, pa.Scalar],
    known: str | None,
    fragments: list[lance.LanceFragment] | None,
) -> str:
    """For values without an exact literal in Lance: read the key columns and compare; a filter for the rows."""
    row_ids: list[int] = []
    scan = dataset.scanner(columns=list(wanted), filter=known, fragments=fragments, with_row_id=True)
    for batch in scan.to_batches():
        row_ids.extend(batch.column("_rowid").filter(_equal_in(batch, wanted)).to_pylist())
    # Two ids are enough to notice that the key is repeated.
    return f"_rowid IN ({', '.join(map(str, row_ids[:2]))})" if row_ids else "false"


def _equal_in(batch: pa.RecordBatch, wanted: Mapping[str, pa.Scalar]) -> pa.Array:
    columns: Sequence[pa.Array] = [batch.column(name).cast(value.type) for name, value in wanted.items()]
    compared = [pc.equal(column, value) for column, value in zip(columns, wanted.values(), strict=True)]
    return functools.reduce(pc.and_, compared) if len(compared) > 1 else compared[0]
