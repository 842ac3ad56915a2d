"""Which engine compares rows: the one in this process, or, where there are many, Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from anabranch.errors import MissingDependencyError
from anabranch.repo.history.comparing import LargeComparer, RowComparer, RowComparison, RowMerge, TableCounts
from anabranch.repo.log.arguments import checked_choice

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MANY_ROWS", "Choice", "ChoosingComparer", "choose_comparer"]

# A session takes ten seconds to start, in which DuckDB compares so many rows; they take about 2 GB of memory there.
MANY_ROWS = 5_000_000


class Choice(StrEnum):
    """Which engine does the work: this process, Spark, or the one that suits the size."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosingComparer:
    """Asks the engine in this process, or the large one where at least `many_rows` are to be matched and it is there.

    Rows of one side alone match nothing, however many they are.
    """

    load_local: Callable[[], RowComparer]
    find_large: Callable[[], LargeComparer | None]
    many_rows: int = MANY_ROWS

    def count(self, comparison: RowComparison) -> TableCounts:
        return self._for(comparison).count(comparison)

    def compare(self, comparison: RowComparison) -> "pa.RecordBatchReader":
        return self._for(comparison).compare(comparison)

    def merge(self, merge: RowMerge) -> "pa.RecordBatchReader":
        return self._for(merge).merge(merge)

    def _for(self, question: RowComparison | RowMerge) -> RowComparer:
        there = [side for side in question.sides if side is not None and side.rows]
        if len(there) > 1 and question.rows >= self.many_rows:
            large = self.find_large()
            if large is not None and large.is_ready:
                return large
        return self.load_local()


def choose_comparer(
    engine: str, *, load_local: Callable[[], RowComparer], find_large: Callable[[], LargeComparer | None]
) -> RowComparer:
    """The engine that was asked for by its name; 'auto' chooses anew for each question."""
    match checked_choice(Choice, engine, "the engine"):
        case Choice.AUTO:
            return ChoosingComparer(load_local=load_local, find_large=find_large)
        case Choice.LOCAL:
            return load_local()
        case Choice.SPARK:
            large = find_large()
            if large is None:
                raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
            return large
        case other:
            assert_never(other)
