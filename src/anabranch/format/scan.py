"""Read rows of one pinned version."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from anabranch.errors import (
    DamagedFileError,
    InvalidExpressionError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
)
from anabranch.format.arguments import check_columns, checked_limit, require_names
from anabranch.format.bases.bases import fragments_of_base
from anabranch.format.dialect import complaint_in, find_unknown_column, hint_for
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.expressions import COMPUTING, enclosed
from anabranch.format.staging.key_hashes import KeyRows
from anabranch.format.staging.rows import Addresses
from anabranch.format.staging.version_ref import VersionRef

__all__ = [
    "check_nearest",
    "count_rows",
    "filter_errors",
    "iter_batches",
    "kept_keys",
    "open_reader",
    "read_appended",
    "read_nearest",
    "read_table",
]


def read_table(
    version_ref: VersionRef,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
    offset: int | None = None,
    base: str | int | None = None,
) -> pa.Table:
    """Read rows, after the first `offset` ones.

    With a base, read those of its fragments, and no file of another one but deletion files and indices.
    """
    if limit is not None or offset is not None:
        limit, offset = checked_limit(limit, "rows"), checked_limit(offset, "rows", name="offset")
    fragments = None if base is None else fragments_of_base(version_ref.home, base, version_ref.version)
    with filter_errors(version_ref, where):
        return (
            version_ref.open()
            .scanner(
                columns=_list(version_ref, columns),
                filter=_enclosed(where),
                limit=limit,
                offset=offset,
                fragments=fragments,
            )
            .to_table()
        )


def iter_batches(
    version_ref: VersionRef,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read rows batch by batch. The arguments are checked at once, not when the first batch is read."""
    # Outside of the generator, whose body does not run before the first batch is requested.
    names, condition, most = _list(version_ref, columns), _enclosed(where), checked_limit(limit, "rows")

    def batches() -> Iterator[pa.RecordBatch]:
        with filter_errors(version_ref, where):
            yield from version_ref.open().to_batches(columns=names, filter=condition, limit=most)

    return batches()


def open_reader(version_ref: VersionRef) -> pa.RecordBatchReader:
    """Return a reader of all rows. Nothing is read before the first batch is requested."""
    return pa.RecordBatchReader.from_batches(version_ref.open().scanner().projected_schema, iter_batches(version_ref))


def count_rows(version_ref: VersionRef, where: str) -> int:
    with filter_errors(version_ref, where):
        return int(version_ref.open().count_rows(_enclosed(where)))


def read_appended(
    before: VersionRef, after: VersionRef, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Read the rows that appends put between two versions of one home: the fragments that the first does not have."""
    # Within one home ids are not used again by appends, so they identify fragments.
    known = {fragment.fragment_id for fragment in before.open().get_fragments()}
    with filter_errors(after, None):
        opened = after.open()
        new = [fragment for fragment in opened.get_fragments() if fragment.fragment_id not in known]
        return opened.scanner(columns=_list(after, columns), fragments=new).to_reader()


def keys_of(version_ref: VersionRef, keys: Sequence[str]) -> KeyRows:
    """Return the keys of all rows."""
    return KeyRows(read=lambda: iter_batches(version_ref, columns=keys), count=version_ref.count_rows())


def kept_keys(version_ref: VersionRef, keys: Sequence[str], without: Addresses) -> KeyRows:
    """Return the keys of all rows except those at some addresses."""

    def read() -> Iterator[pa.RecordBatch]:
        with filter_errors(version_ref, None):
            for batch in version_ref.open().scanner(columns=list(keys), with_row_address=True).to_batches():
                is_kept = ~np.isin(batch.column("_rowaddr").to_numpy(), without)
                yield batch.filter(pa.array(is_kept)).select(list(keys))

    return KeyRows(read=read, count=version_ref.count_rows() - len(without))


def appended_keys(before: VersionRef, after: VersionRef, keys: Sequence[str]) -> KeyRows:
    """Return the keys of the rows that appends put between two versions of one home."""
    return KeyRows(
        read=lambda: iter(read_appended(before, after, columns=keys)), count=after.count_rows() - before.count_rows()
    )


def read_nearest(
    version_ref: VersionRef,
    column: str,
    vector: Sequence[float],
    *,
    k: int,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> pa.Table:
    """Read the rows whose vectors are nearest, nearest first. `where` is applied before the search."""
    kind = check_nearest(version_ref, column, vector, k=k)
    asked = None if columns is None else [*(_list(version_ref, columns) or ()), "_distance"]
    with filter_errors(version_ref, where):
        return (
            version_ref.open()
            .scanner(
                columns=asked,
                filter=_enclosed(where),
                nearest={"column": column, "q": pa.array(vector, kind.value_type), "k": k},
                # Without it Lance filters the k nearest rows afterwards, and returns fewer than k.
                prefilter=where is not None,
            )
            .to_table()
        )


def check_nearest(version_ref: VersionRef, column: str, vector: Sequence[float], *, k: int) -> pa.FixedSizeListType:
    """Refuse a search that cannot work; return the type of the column of vectors."""
    _list(version_ref, [column])
    kind = version_ref.schema.field(column).type
    if not pa.types.is_fixed_size_list(kind):
        raise InvalidInputError(f"column {column!r} is {kind} and holds no vectors", hint="name a column of vectors")
    if len(vector) != kind.list_size:
        raise InvalidInputError(
            f"the vector has {len(vector)} dimensions, and column {column!r} expects {kind.list_size}",
            hint=f"pass {kind.list_size} numbers",
        )
    if k < 1:
        raise InvalidInputError(f"{k} nearest rows cannot be found", hint="ask for 1 or more")
    return kind


def _enclosed(condition: str | None) -> str | None:
    return None if condition is None else enclosed(condition)


def _list(version_ref: VersionRef, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    require_names(columns)
    check_columns(columns, version_ref.schema.names)
    return list(columns)


@contextmanager
def filter_errors(version_ref: VersionRef, condition: str | None) -> Iterator[None]:
    """Translate what Lance raises; while a filter is given, a complaint is about the filter."""
    try:
        with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
            yield
    except (DamagedFileError, InvalidExpressionError, SchemaMismatchError, StorageError) as err:
        # Lance quotes the filter, and its names may be words that Lance has for damage.
        is_about_filter = str(err.__cause__).startswith("Invalid user input") or COMPUTING.search(err.problem)
        is_about_reading = isinstance(err, DamagedFileError | StorageError) and not is_about_filter
        if condition is None or err.__cause__ is None or is_about_reading:
            raise
        prefix = f"the filter {condition!r} does not work here"
        if unknown := find_unknown_column(
            str(err.__cause__), [condition], columns=lambda: version_ref.schema.names, prefix=prefix
        ):
            raise unknown from err
        raise InvalidExpressionError(
            f"{prefix}: {complaint_in(err.problem)}", hint=hint_for(str(err.__cause__))
        ) from err
