"""What two sides of a merge cannot both have."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Conflict", "ConflictKind"]


class ConflictKind(StrEnum):
    """What kind of contradiction it is.

    `DivergentInsert` and `DivergentUpdate` are about one cell. `DeleteVsUpdate` is about a row, or, without a key, a
    table. `SchemaConflict` is about a column or the shape of a table. `KeylessConflict` is a table without a key whose
    rows cannot be told apart.
    """

    DIVERGENT_INSERT = "DivergentInsert"
    DIVERGENT_UPDATE = "DivergentUpdate"
    DELETE_VS_UPDATE = "DeleteVsUpdate"
    SCHEMA = "SchemaConflict"
    KEYLESS = "KeylessConflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One contradiction, with what the common base, the source and the target have.

    The values are those of the cell where a column is named, else rows as dicts, else texts that tell the shapes. None
    stands for a row, table or column that is not there, and for null.
    """

    table: str
    kind: ConflictKind
    key: Mapping[str, Any] | None = None
    column: str | None = None
    base: Any = None
    source: Any = None
    target: Any = None
    problem: str = ""
