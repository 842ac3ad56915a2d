"""Compaction: rewrite small files of tables as larger ones. No row changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import TableNotFoundError
from anabranch.hints import suggest
from anabranch.ids import TableKey
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.transaction import Transaction, table_writes
from anabranch.repo.write.columns import Rewriter

# Called with the number of tables done and the total number of tables.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedTable:
    """A compacted table, with the number of its fragments before and after."""

    table: str
    rows: int
    fragments_before: int
    fragments_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of a compaction. `commit` is None if there was nothing to do."""

    tables: tuple[CompactedTable, ...]
    commit: GraphCommit | None


def compact_tables(
    tx: Transaction,
    keys: Sequence[str],
    *,
    target_rows_per_fragment: int,
    rewriter: Rewriter | None,
    progress: Progress,
) -> Compaction:
    """Compact tables in one commit. Raise TableNotFoundError before anything is written if one does not exist."""
    done: list[CompactedTable] = []
    with tx:
        for key in keys:
            if key not in tx:
                hint = suggest(key, tx.tables, "list the tables with `tables()`", by_parts=True)
                raise TableNotFoundError(f"there is no table '{key}'", hint=hint)
        # A table that is named twice would be compacted twice.
        for key in sorted({str(TableKey.parse(key)) for key in keys}):
            progress(len(done), len(keys))
            before = tx[key].version_ref.count_fragments()
            table_writes(tx).compact(key, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter)
            after = tx[key]
            done.append(
                CompactedTable(
                    table=key,
                    rows=after.count_rows(),
                    fragments_before=before,
                    fragments_after=after.version_ref.count_fragments(),
                )
            )
    progress(len(keys), len(keys))
    return Compaction(tables=tuple(done), commit=tx.published)
