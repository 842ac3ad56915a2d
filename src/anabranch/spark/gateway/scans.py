"""Scans: which parts of a pinned version there are to read, and their rows as Spark takes them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.format.splits import Order, Selection, plan_splits, read_split
from anabranch.format.staging import VersionRef
from anabranch.spark.gateway.aggregates import aggregate_rows
from anabranch.spark.gateway.predicates import push_predicate
from anabranch.spark.gateway.requests import Request
from anabranch.spark.gateway.values import split_from_json, split_to_json, version_ref_from_json
from anabranch.spark.types import as_shown, shown_columns, shown_schema, struct_from_json

__all__ = ["plan_scan", "push_filters", "read_rows", "size_of"]

_SMALLEST_SPLIT = 4 << 20
_LARGEST_SPLIT = 128 << 20


def push_filters(request: Request) -> dict[str, Any]:
    """Answer which of Spark's filters Lance can apply, and whether Spark must apply them again."""
    schema = _version_ref(request).schema
    pushed = [push_predicate(found, schema) for found in request["filters"]]
    return {"pushed": [None if one is None else {"sql": one.sql, "exact": one.is_exact} for one in pushed]}


def plan_scan(request: Request) -> dict[str, Any]:
    """Answer the parts of a scan: enough of them to use all cores, and none too large for one task."""
    version_ref = _version_ref(request)
    size, cores = size_of(version_ref), max(1, request.get("cores", 1))
    bytes_per_split = min(max(-(-size // cores), _SMALLEST_SPLIT), _LARGEST_SPLIT)
    splits = plan_splits(version_ref, _selection(request), bytes_per_split=bytes_per_split)
    return {"splits": [split_to_json(split) for split in splits]}


def read_rows(request: Request) -> None:
    """Send the rows of one part, or the one row of its aggregates."""
    version_ref, split = _version_ref(request), split_from_json(request["split"])
    aggregates = request.get("aggregates")
    if aggregates is None:
        shown = struct_from_json(request["schema"])
        rows = read_split(version_ref, split, _selection(request, tuple(shown.names)))
        request.send_rows(_as_read(request.unless_cancelled(rows), shown), shown_columns(shown))
        return
    names = tuple(dict.fromkeys(one["column"] for one in aggregates if "column" in one))
    columns = shown_schema(pa.schema([version_ref.schema.field(name) for name in names]))
    answer = shown_columns(struct_from_json(request["schema"]))
    rows = request.unless_cancelled(read_split(version_ref, split, _selection(request, names)))
    found = aggregate_rows(_as_read(rows, columns), aggregates, answer)
    request.send_rows(iter(found.to_batches()), answer)


def size_of(version_ref: VersionRef) -> int:
    """The bytes of all data files of a version."""
    return sum(
        file.file_size_bytes or 0 for fragment in version_ref.open().get_fragments() for file in fragment.metadata.files
    )


def _selection(request: Request, columns: tuple[str, ...] | None = None) -> Selection:
    order = tuple(
        Order(column=one["column"], is_ascending=one["ascending"], nulls_first=one["nulls_first"])
        for one in request.get("order", [])
    )
    return Selection(
        columns=columns,
        filter=request.get("where"),
        bases=tuple(request.get("bases", ())),
        limit=request.get("limit"),
        order=order,
    )


def _as_read(rows: Iterator[pa.RecordBatch], shown: StructType) -> Iterator[pa.RecordBatch]:
    if not shown.names:
        return (batch.select([]) for batch in rows)  # the rows are only counted
    return as_shown(rows, shown_columns(shown))


def _version_ref(request: Request) -> VersionRef:
    return version_ref_from_json(request["version_ref"], request.storage_options)
