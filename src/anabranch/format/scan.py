"""Read rows of one pinned version, also as an Arrow dataset for engines that request columns and filters.

Engines pass filters as Arrow expressions. Lance reads them by way of Substrait, and refuses filters that it cannot
evaluate: some functions, nested columns, and every filter on a table with a column of a type that Substrait lacks, such
as a time. A refused filter is applied here, by Arrow, to the rows that Lance returns.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from anabranch.column_types import show_type
from anabranch.errors import (
    AnabranchError,
    DamagedFileError,
    InvalidExpressionError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
)
from anabranch.format.arguments import check_columns, checked_limit, require_names
from anabranch.format.arrow_types import common_type
from anabranch.format.bases import fragments_of_base
from anabranch.format.home import VersionRef
from anabranch.format.staging.expressions import COMPUTING, complaint_in, enclosed, find_unknown_column, hint_for
from anabranch.format.staging.key_hashes import KeyRows
from anabranch.format.staging.rows import Addresses


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
        names, condition = _list(version_ref, columns), None if where is None else enclosed(where)
        return version_ref.open().scanner(names, condition, limit=limit, offset=offset, fragments=fragments).to_table()


def iter_batches(
    version_ref: VersionRef, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read rows batch by batch. The arguments are checked at once, not when the first batch is read."""
    # Check outside of the generator, whose body runs only when the first batch is requested.
    names, most = _list(version_ref, columns), checked_limit(limit, "rows")
    condition = None if where is None else enclosed(where)

    def batches() -> Iterator[pa.RecordBatch]:
        with filter_errors(version_ref, where):
            yield from version_ref.open().to_batches(columns=names, filter=condition, limit=most)

    return batches()


def open_reader(version_ref: VersionRef) -> pa.RecordBatchReader:
    """Return a reader of all rows. Nothing is read before the first batch is requested."""
    return pa.RecordBatchReader.from_batches(version_ref.open().scanner().projected_schema, iter_batches(version_ref))


def count_rows(version_ref: VersionRef, where: str) -> int:
    with filter_errors(version_ref, where):
        return int(version_ref.open().count_rows(enclosed(where)))


def read_appended(
    before: VersionRef, after: VersionRef, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Read the rows that appends put between two versions of one home: the fragments that the first does not have."""
    # Within one home ids are not used again by appends, so they identify fragments.
    known = {fragment.fragment_id for fragment in before.open().get_fragments()}
    with after.home.errors():
        opened = after.open()
        new = [fragment for fragment in opened.get_fragments() if fragment.fragment_id not in known]
        return opened.scanner(columns=_list(after, columns), fragments=new).to_reader()


def keys_of(version_ref: VersionRef, keys: Sequence[str]) -> KeyRows:
    """Return the keys of all rows."""
    return KeyRows(read=lambda: iter_batches(version_ref, columns=keys), count=version_ref.count_rows())


def kept_keys(version_ref: VersionRef, keys: Sequence[str], without: Addresses) -> KeyRows:
    """Return the keys of all rows except those at some addresses."""

    def read() -> Iterator[pa.RecordBatch]:
        with version_ref.home.errors():
            for batch in version_ref.open().scanner(columns=list(keys), with_row_address=True).to_batches():
                is_kept = ~np.isin(batch.column("_rowaddr").to_numpy(), without)
                yield batch.filter(pa.array(is_kept)).select(list(keys))

    return KeyRows(read=read, count=version_ref.count_rows() - len(without))


def appended_keys(before: VersionRef, after: VersionRef, keys: Sequence[str]) -> KeyRows:
    """Return the keys of the rows that appends put between two versions of one home."""
    count = after.count_rows() - before.count_rows()
    return KeyRows(read=lambda: iter(read_appended(before, after, columns=keys)), count=count)


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
        nearest = {"column": column, "q": pa.array(vector, kind.value_type), "k": k}
        # Without `prefilter`, Lance filters the k nearest rows afterwards, and returns fewer than k.
        condition = None if where is None else enclosed(where)
        return version_ref.open().scanner(asked, condition, nearest=nearest, prefilter=where is not None).to_table()


def check_nearest(version_ref: VersionRef, column: str, vector: Sequence[float], *, k: int) -> pa.FixedSizeListType:
    """Refuse an invalid search. Return the type of the vector column."""
    _list(version_ref, [column])
    kind = version_ref.schema.field(column).type
    if not pa.types.is_fixed_size_list(kind):
        raise InvalidInputError(
            f"column {column!r} is {show_type(kind)} and holds no vectors", hint="name a column of vectors"
        )
    if len(vector) != kind.list_size:
        raise InvalidInputError(
            f"the vector has {len(vector)} dimensions, and column {column!r} expects {kind.list_size}",
            hint=f"pass {kind.list_size} numbers",
        )
    if k < 1:
        raise InvalidInputError(f"{k} nearest rows cannot be found", hint="ask for 1 or more")
    return kind


def _list(version_ref: VersionRef, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    require_names(columns)
    check_columns(columns, version_ref.schema.names)
    return list(columns)


@contextmanager
def filter_errors(version_ref: VersionRef, condition: str | None) -> Iterator[None]:
    """Translate errors that Lance raises. If a filter is given, all but those of reading are about the filter."""
    try:
        with version_ref.home.errors():
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


# Functions with options that Substrait cannot express. Lance would accept the function without them: a set with a null
# in it would match no null, and an upper case pattern no lower case text.
_LOSES_OPTIONS = re.compile(r"\bis_in\(|ignore_case=true|nan_is_null=true")
# A column that is named by its position.
_BY_POSITION = "FieldPath("
# The errors of Arrow for a filter that it cannot bind to the columns.
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


class FilterRefusedError(Exception):
    """A filter that the engine has to apply by itself."""


class ArrowDataset(pds.Dataset):  # type: ignore[misc]
    """Reads only the columns that `scanner` requests, and only the rows of its filter if Lance evaluates it.

    The rows are those that Arrow's own filter returns. Types that few engines know are shown as common ones. `failure`
    is our error behind the one that an engine raises.

    With `sorts_nan`, the dataset is for an engine that sorts NaN above all numbers, as DuckDB does. Arrow takes every
    comparison with NaN for false, and Lance sorts NaN by its sign bit. A filter on floats is then refused, and
    `has_refused` is set.
    """

    def __init__(self, version_ref: VersionRef, *, sorts_nan: bool = False) -> None:
        self._version_ref = version_ref
        self._opened = version_ref.open()
        self._sorts_nan = sorts_nan
        stored = self._opened.schema
        self._shown = pa.schema([field.with_type(common_type(field.type)) for field in stored])
        # Lance compares the stored values, so it must not decide on a column that is shown as another type. On floats
        # it has another order of NaN than Arrow.
        self._decided_by_lance = {
            field.name
            for field in stored
            if self._shown.field(field.name).type == field.type and not _contains_float(field.type)
        }
        self.failure: AnabranchError | None = None
        self.has_refused = False

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ArrowDataset, sorts_nan=self._sorts_nan), (self._version_ref,)

    @property
    def schema(self) -> pa.Schema:
        return self._shown

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's and Lance's name
        **_: Any,
    ) -> "Scan":
        """Prepare to read. Ignore batch sizes and other options of Arrow's own datasets."""
        names = list(columns) if columns is not None else self._shown.names
        schema = pa.schema([self._shown.field(name) for name in names])
        if filter is None:
            return Scan(self, self._scan(names), schema=schema)
        used = self._checked_columns(filter)
        if self._decided_by_lance.issuperset(used) and not _LOSES_OPTIONS.search(str(filter)):
            source = self._find_scan(names, filter)
            if source is not None:
                return Scan(self, source, schema=schema)
        needed = list(dict.fromkeys([*names, *used]))
        # Expressions that name columns by position need all of them in order.
        source = self._scan(self._shown.names if _BY_POSITION in str(filter) else needed)
        return Scan(self, source, schema=schema, remaining=filter)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002 - as above
        return int(self._opened.count_rows()) if filter is None else self.scanner(filter=filter).to_table().num_rows

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as above
        **_: Any,
    ) -> pa.Table:
        return self.scanner(columns, filter).to_table()

    def read(self, scan: "Scan") -> Iterator[pa.RecordBatch]:
        """Read a scan. Keep its error for callers that get only the message of an engine."""
        try:
            with self._version_ref.home.errors():
                for stored in scan.source.to_reader():
                    shown = pa.schema([self._shown.field(name) for name in stored.schema.names])
                    # Cast first: the filter refers to the types that are shown. Unsafe only for times with a zone,
                    # whose nanoseconds are cut off, as in Spark: engines have no type for them. Every other type
                    # becomes wider, or stays.
                    batch = stored if stored.schema.types == shown.types else stored.cast(shown, safe=False)
                    kept = batch if scan.remaining is None else batch.filter(scan.remaining)
                    yield kept.select(scan.projected_schema.names)
        except AnabranchError as err:
            self.failure = err
            raise

    def _scan(self, names: Sequence[str], condition: pc.Expression | None = None) -> lance.LanceScanner:
        with self._version_ref.home.errors():
            return self._opened.scanner(columns=list(names), filter=condition)

    def _find_scan(self, names: Sequence[str], condition: pc.Expression) -> lance.LanceScanner | None:
        """Return a scan in which Lance applies a filter, or None if Lance refuses it."""
        try:
            source = self._opened.scanner(columns=list(names), filter=condition)
            source.explain_plan()  # Lance reads the filter here, and not when the scanner is made
        except (*_REFUSALS, OSError, ValueError):
            return None
        return source

    def _checked_columns(self, condition: pc.Expression) -> list[str]:
        """Return the columns that a filter uses; raise if Arrow cannot apply it, or must not."""
        try:
            # Bind the filter to no rows first: an error during a scan would reach the engine after its first rows.
            self._shown.empty_table().filter(condition)
        except _REFUSALS:
            self.has_refused = True
            raise
        used: list[str] = self._shown.names
        if _BY_POSITION not in str(condition):
            used = _used_columns(self._shown, used, condition)
        is_safe = used and not any(_contains_float(self._shown.field(name).type) for name in used)
        # DuckDB makes the constant true of `x <= NaN`, and forgets that this is not true of a null.
        if self._sorts_nan and not is_safe:
            self.has_refused = True
            raise FilterRefusedError(f"{condition} is to be applied by the engine")
        return used


def _used_columns(schema: pa.Schema, names: list[str], condition: pc.Expression) -> list[str]:
    """Return the given columns that a filter needs to be bound."""
    # Arrow offers no list of them, so halves of the names are left out in turn, which takes a few attempts.
    left_out = set(names)
    rest = pa.schema([field for field in schema if field.name not in left_out])
    try:
        rest.empty_table().filter(condition)
    except _REFUSALS:
        # Without this column alone the filter cannot be bound, so it is used.
        if len(names) == 1:
            return names
        middle = len(names) // 2
        return [*_used_columns(schema, names[:middle], condition), *_used_columns(schema, names[middle:], condition)]
    return []


def _contains_float(kind: pa.DataType) -> bool:
    inner = getattr(kind, "value_type", None)
    if inner is not None:
        return _contains_float(inner)
    if pa.types.is_nested(kind):
        return any(_contains_float(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


class Scan:
    """The part of Arrow's scanner that engines use. `remaining` is the filter that Lance does not apply."""

    def __init__(
        self,
        dataset: ArrowDataset,
        source: lance.LanceScanner,
        *,
        schema: pa.Schema,
        remaining: pc.Expression | None = None,
    ) -> None:
        self._dataset = dataset
        self.source = source
        self.remaining = remaining
        self.projected_schema = schema

    def explain(self) -> str:
        """Return Lance's plan of the scan."""
        return str(self.source.explain_plan(verbose=True))

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._dataset.read(self))

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()
