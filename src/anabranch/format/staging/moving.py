"""A whole version of one home taken over into another."""

import pyarrow as pa

from anabranch.format.staging.fragments import overwrite
from anabranch.format.staging.pin import Pin

__all__ = ["copy_version"]


def copy_version(source: Pin, *, onto: Pin) -> Pin:
    """Stage a table that holds the rows of another version and nothing else, in its schema."""
    return overwrite(onto, pa.RecordBatchReader.from_batches(source.schema, source.open().to_batches()))
