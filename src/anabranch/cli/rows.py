"""Values of tables as text for people."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from anabranch.json_values import not_finite

__all__ = ["text_value"]

# Embeddings and the like: what is left out is in --json and --csv.
_MOST_ITEMS = 8
_MOST_BYTES = 16


def text_value(value: Any) -> str:
    """Return a value as text. Long lists and bytes are shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float() if not math.isfinite(value):
            return not_finite(value)
        case bytes():
            shown = value[:_MOST_BYTES].hex()
            return f"0x{shown}" if len(value) <= _MOST_BYTES else f"0x{shown}… ({len(value)} bytes)"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case Mapping():
            return "{" + ", ".join(f"{key}: {text_value(item)}" for key, item in value.items()) + "}"
        case Sequence():
            shown = ", ".join(text_value(item) for item in value[:_MOST_ITEMS])
            return f"[{shown}]" if len(value) <= _MOST_ITEMS else f"[{shown}, … {len(value)} values]"
        case _:
            return str(value)
