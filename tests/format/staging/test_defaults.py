"""Defaults: computed for rows that come without a column."""

from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import InvalidExpressionError, SchemaMismatchError
from anabranch.format.home import Home
from anabranch.format.staging import DEFAULT, VersionRef, append, create_empty, find_wrong_default
from tests.conftest import Location
from tests.format.staging.tables import contents


def table(location: Location, kind: pa.DataType, default: str, *, nullable: bool = True) -> VersionRef:
    column = pa.field("c", kind, nullable=nullable, metadata={DEFAULT: default})
    return create_empty(
        Home.at(location / "t.lance", location.storage_options), pa.schema([("id", pa.int64()), column])
    )


def filled(version_ref: VersionRef, rows: int = 2) -> list[Any]:
    return [row["c"] for row in contents(append(version_ref, pa.table({"id": range(rows)})))]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (pa.int8(), "7", 7),
        (pa.float32(), "1", 1.0),
        (pa.string(), "upper('new')", "NEW"),
        (pa.large_string(), "'x'", "x"),
        (pa.bool_(), "true", True),
        (pa.int64(), "NULL", None),
        (pa.list_(pa.int64()), "[1, 2]", [1, 2]),
        (pa.int64(), "id * 2", None),  # what needs other columns cannot be computed without them
    ],
)
def test_rows_without_the_column_get_its_default(
    location: Location, kind: pa.DataType, default: str, value: object
) -> None:
    assert filled(table(location, kind, default)) == [value, value]


def test_a_column_without_nulls_may_be_left_out_if_it_has_a_default(location: Location) -> None:
    assert filled(table(location, pa.int64(), "0", nullable=False)) == [0, 0]


def test_a_null_default_is_refused_for_a_column_without_nulls(location: Location) -> None:
    with pytest.raises(SchemaMismatchError, match="takes no nulls"):
        filled(table(location, pa.int64(), "NULL", nullable=False))


def test_a_default_that_needs_other_columns_is_refused_for_a_column_without_nulls(location: Location) -> None:
    with pytest.raises(SchemaMismatchError, match="is expected"):
        filled(table(location, pa.int64(), "id * 2", nullable=False))


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns")])
def test_the_time_fits_any_timestamp(location: Location, kind: pa.DataType) -> None:
    found = append(table(location, kind, "now()"), pa.table({"id": [1, 2]})).open().to_table()
    assert found.schema.field("c").type == kind
    assert found.column("c").null_count == 0


def test_each_row_has_its_own_uuid(location: Location) -> None:
    assert len(set(filled(table(location, pa.string(), "uuid()"), rows=50))) == 50


def test_values_that_are_given_win_nulls_too(location: Location) -> None:
    version_ref = append(
        table(location, pa.int64(), "7"), pa.table({"id": [1, 2], "c": pa.array([None, 3], pa.int64())})
    )
    assert [row["c"] for row in contents(version_ref)] == [None, 3]


def test_a_default_is_computed_for_each_batch(location: Location) -> None:
    batches = [pa.record_batch({"id": [n, n + 1]}) for n in range(0, 6, 2)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert len(contents(append(table(location, pa.int64(), "7"), reader), where="c = 7")) == 6


@pytest.mark.parametrize(
    ("kind", "default", "error"),
    [
        (pa.int64(), "nonsense", InvalidExpressionError),
        (pa.int64(), "1 +", InvalidExpressionError),
        (pa.int64(), "'x'", SchemaMismatchError),
        (pa.int64(), "1) + (1", InvalidExpressionError),
        (pa.int64(), "NULL", SchemaMismatchError),
        (pa.int8(), "300", SchemaMismatchError),
        (pa.timestamp("us"), "5", SchemaMismatchError),
        (pa.timestamp("us"), "'no time'", InvalidExpressionError),
        (pa.int64(), "id * 2", None),
        (pa.timestamp("us", "UTC"), "now()", None),
        (pa.timestamp("s"), "'2026-01-31T12:00:00'", None),
        (pa.timestamp("s"), "timestamp '2026-01-31 12:00:00'", None),
        (pa.date32(), "date '2026-01-31'", None),
    ],
)
def test_invalid_default_is_refused(kind: pa.DataType, default: str, error: type[Exception] | None) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("c", kind, nullable=False)])
    wrong = find_wrong_default(schema, {"id": "1", "c": default})
    if error is None:
        assert wrong is None
    else:
        assert wrong is not None
        assert wrong[0] == "c"
        assert isinstance(wrong[1], error)
