"""Rows of a table: added, replaced by key, deleted by a predicate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.transaction import Transaction
from anabranch.server.branches import OpenBranch
from anabranch.server.changing import Changed, Changing
from anabranch.server.filters import checked_filter
from anabranch.server.json_rows import rows_of_objects
from anabranch.server.tables import find_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rows"]


class Rows:
    def __init__(self, changing: Changing) -> None:
        self._changing = changing

    def insert(self, branch: OpenBranch, key: TableKey, objects: Sequence[Mapping[str, Any]]) -> Changed[int]:
        """Add rows; with a primary key, only such as are new."""
        rows = _typed(branch, key, objects)

        def change(tx: Transaction) -> int:
            tx.append(str(key), rows)
            return len(rows)

        return self._changing.apply(branch, change, message=f"Insert {len(rows)} rows into {key}")

    def upsert(self, branch: OpenBranch, key: TableKey, objects: Sequence[Mapping[str, Any]]) -> Changed[int]:
        """Replace the rows of the same primary key, and add the others."""
        rows = _typed(branch, key, objects)

        def change(tx: Transaction) -> int:
            tx.upsert(str(key), rows)
            return len(rows)

        return self._changing.apply(branch, change, message=f"Upsert {len(rows)} rows into {key}")

    def delete(self, branch: OpenBranch, key: TableKey, where: str) -> Changed[int]:
        """Delete the rows for which an SQL predicate is true; how many there were."""
        if not where.strip():
            raise InvalidInputError("where is empty", hint="say which rows; 'true' stands for all")
        checked = checked_filter(where)
        return self._changing.apply(branch, lambda tx: tx.delete(str(key), checked), message=f"Delete rows of {key}")


def _typed(branch: OpenBranch, key: TableKey, objects: Sequence[Mapping[str, Any]]) -> "pa.Table":
    # Read before the transaction begins: one that has read waits worse for those who write the same table.
    schema = find_table(branch.repository.snapshot_of(branch.name), key).schema
    return rows_of_objects(objects, schema)
