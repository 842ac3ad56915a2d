"""A folder of files as a stream, and what became of it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import anabranch as ab
from tests.spark.conftest import options, rows

STREAMED = "s.streamed"
Shape = Callable[[DataFrame], DataFrame]


def as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def add_file(folder: Path, *ids: int, v: str = "new") -> None:
    """Add rows to a folder that is streamed, as its next file."""
    index = len(list(folder.glob("*.json")))
    # Under a name that is not taken for a file of the stream until it is whole.
    hidden = folder / f".{index:04}"
    hidden.write_text("\n".join(json.dumps({"id": number, "v": v}) for number in ids))
    os.utime(hidden, (index + 1, index + 1))  # by it Spark orders them
    hidden.rename(folder / f"{index:04}.json")


@dataclass(frozen=True)
class Feed:
    """A folder of files; a stream of it takes one of them in each batch."""

    spark: SparkSession
    folder: Path

    def add(self, *ids: int, v: str = "new") -> None:
        add_file(self.folder, *ids, v=v)

    def run(
        self,
        repo: ab.Repository,
        key: str = STREAMED,
        *,
        mode: str = "append",
        shape: Shape = as_it_is,
        checkpoint: str = "checkpoint",
        **given: str,
    ) -> StreamingQuery:
        """Stream whatever there is and was not streamed before, then stop."""
        source = self.spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", "1")
        writer = shape(source.json(str(self.folder))).writeStream.format("anabranch").outputMode(mode)
        writer = writer.options(**options(repo), **given).option("checkpointLocation", str(self.at(checkpoint)))
        query = writer.trigger(availableNow=True).start(key)
        query.awaitTermination()
        return query

    def at(self, checkpoint: str) -> Path:
        return self.folder.parent / checkpoint


def batches(repo: ab.Repository, ref: str = "main") -> list[tuple[str, str]]:
    """The query and the epoch of each commit of a stream, oldest first."""
    found = [commit.metadata for commit in reversed(repo.list_commits(ref)) if "stream.query" in commit.metadata]
    return [(metadata["stream.query"], metadata["stream.epoch"]) for metadata in found]


def ids(repo: ab.Repository, key: str = STREAMED, ref: str = "main") -> list[int]:
    return [row["id"] for row in rows(repo, ref, key)]
