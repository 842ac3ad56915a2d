"""Aggregates that the catalog pushes down: each part of a scan answers one row, and Spark combines the rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["aggregate_rows"]


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
