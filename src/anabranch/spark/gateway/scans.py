"""Scans of a pinned version: its parts, their rows or aggregates for Spark, and tables that options name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from anabranch.errors import AnabranchError
from anabranch.format.splits import Order, Selection, plan_splits, read_split, selected_schema
from anabranch.format.staging import VersionRef
from anabranch.ids import MAIN
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.predicates import push_predicate
from anabranch.spark.gateway.requests import (
    Request,
    split_from_json,
    split_to_json,
    version_ref_from_json,
    version_ref_to_json,
)
from anabranch.spark.options import ReadOptions, asks_for_changes, with_lent_options
from anabranch.spark.source import find_version_ref
from anabranch.spark.types import as_shown, shown_columns, shown_schema, struct_from_json

__all__ = ["aggregate_rows", "load_source", "plan_scan", "push_filters", "read_rows", "size_of"]


def aggregate_rows(rows: Iterator[pa.RecordBatch], wanted: Sequence[Mapping[str, Any]], answer: pa.Schema) -> pa.Table:
    """Reduce rows to one, with one column for each of the wanted aggregates.

    Each has a `function` (`count_star`, `count`, `min` or `max`) and, but for the first, a `column`. The rows must be
    in the types that Spark shows, so that the least value is the one that Spark would find.
    """
    counts = [0] * len(wanted)
    extremes: list[list[pa.Scalar]] = [[] for _ in wanted]
    for batch in rows:
        for number, one in enumerate(wanted):
            match one["function"]:
                case "count_star":
                    counts[number] += batch.num_rows
                case "count":
                    counts[number] += batch.num_rows - batch.column(one["column"]).null_count
                case "min":
                    extremes[number].append(pc.min(batch.column(one["column"])))
                case "max":
                    extremes[number].append(pc.max(batch.column(one["column"])))
                case other:
                    raise ValueError(f"unknown aggregate {other!r}")
    arrays = [
        _extreme(one["function"], found, field.type) if one["function"] in {"min", "max"} else pa.array([count])
        for one, count, found, field in zip(wanted, counts, extremes, answer, strict=True)
    ]
    return pa.table(arrays, schema=answer)


def _extreme(function: str, found: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    # The values stay Arrow's: Python's own dates and times end earlier than Spark's.
    values = pa.array(found, kind) if found else pa.nulls(1, kind)
    return pa.array([pc.min(values) if function == "min" else pc.max(values)], kind)


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


def load_source(request: Request) -> dict[str, Any]:
    """Answer the table that options name, pinned, or that they do not ask for its rows."""
    if asks_for_changes(request["options"]):
        return {"reads_rows": False}
    reading = ReadOptions.parse(with_lent_options(request["options"], request["lent"]))
    location = reading.location
    repository = request.open(location.repository, location.storage_options)
    version_ref = find_version_ref(reading, repository)
    selection = reading.selection
    return {
        "reads_rows": True,
        "repo": location.repository,
        "storage_options": dict(location.storage_options),
        "key": location.key,
        "branch": _find_branch(repository, request["options"]),
        "commit": "",
        "version_ref": version_ref_to_json(version_ref),
        "rows": version_ref.open().count_rows(),
        "bytes": size_of(version_ref),
        # Not reported to Spark, which would show its columns as not nullable, unlike the source in Python.
        "primary_key": [],
        "properties": {},
        "schema": json.dumps(shown_schema(selected_schema(version_ref, selection)).jsonValue()),
        # It was checked with the schema. A comment in it ends with its line.
        "filter": None if selection.filter is None else f"({selection.filter}\n)",
        "bases": list(selection.bases),
    }


def _find_branch(repository: Repository, options: Mapping[str, str]) -> str | None:
    """Return the branch to which rows can be added: None if the options choose some rows, or a state of the past."""
    if not {"columns", "where", "bases", "version_ref"}.isdisjoint(options):
        return None
    try:
        return repository.branch_get(options.get("ref", MAIN)).name
    except AnabranchError:
        return None  # a tag, a commit or an expression such as 'dev~1'
