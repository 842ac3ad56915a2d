"""Distribute rows over buckets: rows that may match go to the same bucket, in every process and query."""

from collections.abc import Sequence

import pyarrow as pa

from anabranch.duck.sides import Column, Side
from anabranch.repo.history.comparer import RowComparison, RowMerge

__all__ = ["BucketQuestion"]


class BucketQuestion:
    """The buckets of the rows of one side, as SQL."""

    def __init__(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> None:
        given = list(zip("onpq", question.sides, strict=False))
        sides = [Side(alias, rows) for alias, rows in given]
        self.side = sides[side]
        self._buckets = buckets
        there = [number for number, (_, rows) in enumerate(given) if rows is not None]
        self._terms = []
        for names in _matched_names(question):
            columns = [found for n in there if (found := _find(sides[n], names[n]))]
            if len(columns) == len(there) and (terms := _hashable(columns)) is not None:
                self._terms.append(terms[there.index(side)])

    @property
    def query(self) -> str:
        bucket = f"hash({', '.join(self._terms)}) % {self._buckets}" if self._terms else "0"
        return f"SELECT ({bucket})::INTEGER FROM given_{self.side.alias} {self.side.alias}"  # noqa: S608 - of numbers


def _matched_names(question: RowComparison | RowMerge) -> list[tuple[str | None, ...]]:
    """What each column that rows are matched by is called on each side."""
    if isinstance(question, RowMerge):
        return [(key.base, key.source, key.base, key.target) for key in question.keys]
    return [(pair.older, pair.newer) for pair in question.keys or question.columns]


def _find(side: Side, name: str | None) -> Column | None:
    return side.column(name) if name is not None and name in side.schema.names else None


def _hashable(columns: Sequence[Column]) -> list[str] | None:
    """What is hashed of a column on each side; None if values that count as equal could have different hashes.

    Where types differ, numbers may be rounded before they are compared, and the texts of moments need not be the same.
    """
    kinds = [column.kind for column in columns]
    if len(set(kinds)) == 1:
        return [column.sql for column in columns]
    if all(map(pa.types.is_integer, kinds)):
        return [f"{column.sql}::HUGEINT" for column in columns]
    if any(pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind) for kind in kinds):
        return None
    return [column.text for column in columns]
