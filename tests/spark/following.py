"""A stream of changes, and its rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

Batch = Callable[[DataFrame, int], None]
Row = dict[str, Any]


def follow(frame: DataFrame, take: Batch, *, checkpoint: str) -> StreamingQuery:
    """Take all that there is, batch by batch, then stop."""
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def write_down(frame: DataFrame, file: Path) -> None:
    """Write the rows of a batch into a file; writing the batch again replaces it."""
    rows = [row.asDict() for row in frame.drop("_time").collect()]
    rows.sort(key=lambda row: (row["_generation"], row["id"], row["_change"] != "update_before"))
    file.write_text(json.dumps(rows))


def read_batches(folder: Path) -> list[list[Row]]:
    """What was written down, batch by batch."""
    files = sorted(folder.glob("*.json"), key=lambda file: int(file.stem))
    assert [file.stem for file in files] == [str(number) for number in range(len(files))]
    return [json.loads(file.read_text()) for file in files]


def changes(batches: Sequence[Sequence[Row]]) -> list[tuple[str, int, str]]:
    return [(row["_change"], row["id"], row["v"]) for batch in batches for row in batch]


def replay(batches: Sequence[Sequence[Row]]) -> dict[int, str]:
    """The table that the changes make out of nothing; each has to fit what was there."""
    found: dict[int, str] = {}
    for change, number, v in changes(batches):
        if change in {"delete", "update_before"}:
            assert found.pop(number) == v
        else:
            assert number not in found
            found[number] = v
    return found
