"""Columns of Lance blobs. A scan returns where their bytes are stored, which differs for equal values.

Rows that are compared, merged or written again are read with the bytes, in the schema of `with_bytes`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import lance
    import numpy as np
    import numpy.typing as npt

__all__ = ["WITH_BYTES", "bytes_field", "find_blobs", "is_blob_type", "read_blobs", "to_blobs", "with_bytes"]

# The options of a scan that reads bytes. Few rows at a time, because each may have many megabytes.
WITH_BYTES: dict[str, Any] = {"blob_handling": "all_binary", "batch_size": 64}
_BLOB = "lance.blob.v2"
# Files before Lance's version 2.2 have blobs as binary columns with this note.
_NOTE = b"lance-encoding:blob"


def is_blob_type(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _BLOB


def find_blobs(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the blob columns."""
    return tuple(field.name for field in schema if is_blob_type(field.type) or _NOTE in (field.metadata or ()))


def bytes_field(field: pa.Field) -> pa.Field:
    """Return a field as rows are read with bytes: a blob is binary, all other types are the same."""
    return field.with_type(pa.large_binary()) if is_blob_type(field.type) else field


def with_bytes(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows that are read with bytes."""
    return pa.schema(list(map(bytes_field, schema)), metadata=schema.metadata)


def read_blobs(dataset: "lance.LanceDataset", name: str, addresses: "npt.NDArray[np.uint64]") -> pa.Array:
    """Return the bytes of a blob column at row addresses, in their order."""
    found = dataset.read_blobs(name, addresses=addresses.tolist(), preserve_order=True) if len(addresses) else []
    return pa.array([value for _, value in found], pa.large_binary())


def to_blobs(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return bytes as values of a blob type, to be written."""
    assert isinstance(kind, pa.BaseExtensionType)  # noqa: S101 - `is_blob_type` is true
    storage = kind.storage_type
    arrays = [
        values.cast(field.type) if field.name == "data" else pa.nulls(len(values), field.type) for field in storage
    ]
    made = pa.StructArray.from_arrays(arrays, fields=list(storage), mask=values.is_null())
    return pa.ExtensionArray.from_storage(kind, made)
