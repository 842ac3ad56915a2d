"""Scans that a damaged index does not stop."""

from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa

from anabranch.format.lance_errors import is_damaged_file

__all__ = ["iter_batches"]


def iter_batches(dataset: lance.LanceDataset, **options: Any) -> Iterator[pa.RecordBatch]:
    """Read a scan; where it fails on a damaged file before its first row, without the indices.

    An index only finds rows, so that a write does not need it. If a file of the rows is damaged, the second
    scan fails too.
    """
    has_begun = False
    try:
        for batch in dataset.scanner(**options).to_batches():
            has_begun = True
            yield batch
    except (OSError, ValueError, RuntimeError) as err:
        # After the first batch, a second scan would return rows twice. Without a filter no index is used.
        if has_begun or options.get("filter") is None or not is_damaged_file(err):
            raise
        yield from dataset.scanner(**options, use_scalar_index=False).to_batches()
