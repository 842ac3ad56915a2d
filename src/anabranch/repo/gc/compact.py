"""Care for the files of tables: compaction, which changes no row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import TableNotFoundError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.store import RepoStore
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.columns import Rewriter
from anabranch.repo.write.homes import owns

__all__ = ["CompactedTable", "Compaction", "compact_tables", "list_written"]

# Called with how many tables are done, of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedTable:
    """A table before and after, by the number of its fragments."""

    table: str
    rows: int
    fragments_before: int
    fragments_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did; there is no commit if there was nothing to do."""

    tables: tuple[CompactedTable, ...]
    commit: GraphCommit | None


def list_written(records: RepoStore, branch: BranchName) -> tuple[str, ...]:
    """The tables that a branch has written to; the others are not its own to rewrite."""
    tables = records.commits.tables_of(records.heads.get(branch).head)
    return tuple(str(key) for key in sorted(tables) if owns(branch, tables[key].home))


def compact_tables(
    tx: Transaction,
    keys: Sequence[str],
    *,
    target_rows_per_fragment: int,
    rewriter: Rewriter | None,
    on_progress: Progress,
) -> Compaction:
    """Compact tables in one commit."""
    done: list[CompactedTable] = []
    with tx:
        for key in keys:
            if key not in tx:  # before anything is written
                raise TableNotFoundError(f"there is no table '{key}'", hint="list the tables to see which exist")
        for key in sorted({str(TableKey.parse(key)) for key in keys}):
            on_progress(len(done), len(keys))
            before = tx[key].pin.count_fragments()
            tx.compact(key, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter)
            after = tx[key]
            done.append(
                CompactedTable(
                    table=key,
                    rows=after.count_rows(),
                    fragments_before=before,
                    fragments_after=after.pin.count_fragments(),
                )
            )
    on_progress(len(keys), len(keys))
    return Compaction(tables=tuple(done), commit=tx.published)
