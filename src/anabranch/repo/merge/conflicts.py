"""Conflicts between the two sides of a merge."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Conflict", "ConflictKind"]


class ConflictKind(StrEnum):
    """The kind of a conflict.

    `divergent_insert` and `divergent_update` are about one cell. `delete_vs_update` is about a row, or, without a key,
    a table. `schema` is about a column or the shape of a table. `keyless` is a table without a key whose rows cannot be
    matched.
    """

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    SCHEMA = "schema"
    KEYLESS = "keyless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One conflict, with the values of the common base, the source and the target.

    The values are cells if `column` is set, rows as dicts if only `key` is set, else texts that describe the table.
    None is null, or a row, table or column that does not exist.
    """

    table: str
    kind: ConflictKind
    key: Mapping[str, Any] | None = None
    column: str | None = None
    base: Any = None
    source: Any = None
    target: Any = None
    problem: str = ""
