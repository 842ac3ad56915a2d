"""Values that JSON has no form of its own for, one by one: bytes, times, vectors, maps and the like."""

import base64
from collections.abc import Mapping, Sequence
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa

from anabranch.errors import BadRecordError

__all__ = ["is_read_by_value", "read_values"]

_UUID, _JSON = "arrow.uuid", "arrow.json"


def is_read_by_value(kind: pa.DataType) -> bool:
    """Whether Arrow's own reader of JSON cannot make values of this type."""
    types = pa.types
    return bool(
        _is_bytes(kind)
        or types.is_time(kind)
        or types.is_fixed_size_list(kind)
        or types.is_large_list(kind)
        or types.is_map(kind)
        or types.is_dictionary(kind)
        or types.is_uint64(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def read_values(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """The values as the table's; the error names the first row that has none of its kind."""
    kind = field.type
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    found = []
    for number, value in enumerate(values, start=1):
        try:
            one = None if value is None else _read(value, kind)
            pa.array([one], storage)
        except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException) as err:
            raise BadRecordError(
                f"row {number}: column {field.name!r} takes {kind}: {err}", hint="correct it; no row was taken"
            ) from None
        found.append(one)
    made = pa.array(found, storage)
    return pa.ExtensionArray.from_storage(kind, made) if isinstance(kind, pa.BaseExtensionType) else made


def _read(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _read_extension(value, kind)
    if _is_bytes(kind):
        return base64.b64decode(value, validate=True)
    if types.is_time(kind):
        return time.fromisoformat(value)
    if types.is_uint64(kind):
        # Previews show those as text that other programs could not hold as a number.
        return int(value) if isinstance(value, str) else value
    if types.is_map(kind):
        if not isinstance(value, Mapping):
            raise TypeError("an object is needed")
        return list(value.items())
    return value


def _read_extension(value: Any, kind: pa.BaseExtensionType) -> Any:
    match kind.extension_name:
        case name if name == _UUID:
            return UUID(value).bytes
        case name if name == _JSON:
            return value if isinstance(value, str) else _refuse("give the JSON as text")
        case name:
            return _refuse(f"values of {name} cannot be sent as JSON")


def _refuse(why: str) -> Any:
    raise TypeError(why)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))
