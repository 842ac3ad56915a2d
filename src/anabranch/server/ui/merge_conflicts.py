"""The conflicts of a merge as the page lists them: their order, their three sides, and what identifies each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from anabranch.drawing.html import Cell, cell_of
from anabranch.json_values import json_value
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.repository import Repository

__all__ = ["ENGINE", "MOST_LISTED", "SIDES", "ConflictView", "by_id", "list_all", "order_of", "row_id", "view_of"]

# Rows are matched in this process: a page does not wait for a JVM.
ENGINE = "local"
SIDES = ("source", "target", "base")
# More conflicts are counted, and can be decided by rules, but are not listed.
MOST_LISTED = 10_000
# A longer value of a decision is not shown in its input, but kept.
_LONGEST_VALUE = 500
# A conflict with a longer key can only be decided by a rule.
_LONGEST_ID = 1000
_KINDS: Mapping[ConflictKind, str] = {
    ConflictKind.DIVERGENT_UPDATE: "both changed the cell",
    ConflictKind.DIVERGENT_INSERT: "both inserted the row",
    ConflictKind.DELETE_VS_UPDATE: "one deleted it, the other changed it",
    ConflictKind.SCHEMA: "both changed the columns",
    ConflictKind.KEYLESS: "the table has no key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictView:
    """A conflict, its three sides as cells, and the decision on it.

    The id is empty if the conflict can be decided by rules only. `row` is the id of its row, empty if it is not about a
    row. `sides` are those that can be taken. `kept` is the number of characters of a value that is too long to show.
    """

    id: str
    row: str
    table: str
    key: str
    column: str
    kind: str
    base: Cell
    source: Cell
    target: Cell
    sides: tuple[str, ...]
    can_set: bool
    is_open: bool
    take: str
    value: str
    kept: int


def list_all(repository: Repository, source: str, into: str) -> tuple[dict[str, Conflict], int]:
    """Return the conflicts without any decision by their ids, and their number if not all are listed."""
    found = by_id(islice(repository.conflicts(source, into, engine=ENGINE), MOST_LISTED))
    if len(found) < MOST_LISTED:
        return found, len(found)
    plan = repository.merge(source, into, dry_run=True, engine=ENGINE).plan
    return found, plan.conflict_count


def by_id(conflicts: Iterable[Conflict]) -> dict[str, Conflict]:
    """Return conflicts by their ids."""
    return {_id_of(conflict): conflict for conflict in conflicts}


def _id_of(conflict: Conflict) -> str:
    """Return what identifies a conflict, as the fields of a resolution in JSON."""
    found: dict[str, Any] = {"table": conflict.table, "kind": str(conflict.kind)}
    if conflict.key is not None:
        found["key"] = json_value(conflict.key)
    if conflict.column is not None:
        found["column"] = conflict.column
    if conflict.path is not None:
        found["path"] = conflict.path
    if conflict.key is None:
        # Several conflicts may be about one column: its type, its default.
        found |= {side: json_value(getattr(conflict, side)) for side in ("base", "source", "target")}
    return json.dumps(found, ensure_ascii=False, sort_keys=True)


def order_of(item: tuple[str, Conflict]) -> tuple[Any, ...]:
    """Order conflicts so that those of tables and columns come first, and those of one row are together."""
    conflict = item[1]
    # Numbers before texts: values of different types cannot be compared.
    key = [
        (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
        for value in (conflict.key or {}).values()
    ]
    return conflict.key is not None, conflict.table, key, conflict.column or "", conflict.path or ""


def row_id(conflict: Conflict) -> str:
    """Return what identifies the row of a conflict, in JSON."""
    return json.dumps([conflict.table, json_value(conflict.key)], ensure_ascii=False, sort_keys=True)


def view_of(name: str, conflict: Conflict, *, choice: Mapping[str, Any], is_open: bool) -> ConflictView:
    """Return a conflict as the page shows it. The choice is the decision on it, empty if there is none."""
    key = "" if conflict.key is None else json.dumps(json_value(conflict.key), ensure_ascii=False)
    # A decision may be to set null, so the value alone does not show whether there is a decision.
    value = choice.get("value")
    return ConflictView(
        id=name if len(name) <= _LONGEST_ID else "",
        row="" if conflict.key is None or len(name) > _LONGEST_ID else row_id(conflict),
        table=conflict.table,
        key=key,
        column=".".join(name for name in (conflict.column, conflict.path) if name is not None),
        kind=conflict.problem or _KINDS[conflict.kind],
        base=cell_of(_plain(conflict.base)),
        source=cell_of(_plain(conflict.source)),
        target=cell_of(_plain(conflict.target)),
        sides=SIDES if conflict.key is not None else SIDES[:2],
        can_set=conflict.key is not None and conflict.column is not None,
        is_open=is_open,
        take=choice.get("take") or ("null" if "value" in choice and value is None else "value" if choice else ""),
        value="" if value is None or len(str(value)) > _LONGEST_VALUE else str(value),
        kept=len(str(value)) if len(str(value)) > _LONGEST_VALUE else 0,
    )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
