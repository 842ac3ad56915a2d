"""Rows that both sides of a merge changed, matched by DuckDB inside this process."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.sides import Column, Pair, Side, is_same_key
from anabranch.repo.history.comparer import ColumnTriple, RowMerge

__all__ = ["MergeQuestion"]

_INSERTED, _UPDATED, _DELETED = range(3)
_CHANGES = pa.array(["inserted", "updated", "deleted"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A column of a merge as pairs: what each side did to it, and how they differ."""

    by_source: Pair
    by_target: Pair
    between: Pair
    is_of_base: bool
    is_of_source: bool
    is_of_target: bool
    is_filled: bool

    @property
    def is_of_both(self) -> bool:
        return self.is_of_source and self.is_of_target

    @property
    def is_given(self) -> str:
        """The condition that the source has a value of its own in a row."""
        return "true" if self.is_filled else self.by_source.differs


class MergeQuestion:
    """A merge as SQL, and what DuckDB answers as rows.

    The base's rows are there twice: `o` are those that the source may have changed into `n`, `p` those that the target
    may have changed into `q`.
    """

    def __init__(self, merge: RowMerge) -> None:
        self.schema = merge.schema
        self._older, self._source = Side("o", merge.base_of_source), Side("n", merge.source)
        self._base, self._target = Side("p", merge.base_of_target), Side("q", merge.target)
        self.sides = (self._older, self._source, self._base, self._target)
        self._keys = list(merge.keys)
        self._columns = [self._compared(triple) for triple in merge.columns]

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Show the rows to DuckDB; the query that matches them."""
        for side in self.sides:
            side.register(connection)
        asked = [
            self._source_change,
            self._target_change,
            "o.address",
            "q.address",
            "q.row_id",
            _numbers([f"({self._took(column)})" for column in self._columns]),
            _numbers([f"({self._clash(column)})" for column in self._columns]),
            *self._older.columns,
            *self._source.columns,
            *self._target.columns,
        ]
        return f"SELECT {', '.join(asked)} FROM {self._matched} WHERE {self._condition} ORDER BY {self._order}"  # noqa: S608 - names are numbers

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        source_change, target_change, base_address, address, row_id, took, clashes, *values = batch.columns
        first = len(self._older.columns)
        second = first + len(self._source.columns)
        return pa.record_batch(
            [
                _CHANGES.take(source_change),
                _CHANGES.take(target_change),
                base_address,
                address,
                row_id,
                took,
                clashes,
                self._older.rows(values[:first], are_missing=pc.equal(source_change, _INSERTED)),
                self._source.rows(values[first:second], are_missing=pc.equal(source_change, _DELETED)),
                self._target.rows(values[second:], are_missing=pc.is_null(address)),
            ],
            schema=self.schema,
        )

    @property
    def _order(self) -> str:
        """New rows last: those that are replaced are written before them. Else as they lie, always the same."""
        keys = [key.sql for triple in self._keys if (key := _find(self._source, triple.source))]
        known = f"{self._older.is_there} OR {self._target.is_there} DESC"
        return ", ".join([known, "o.address", *(keys or ["n.row_id"])])

    @property
    def _matched(self) -> str:
        if not self._keys:
            return (
                "given_o o FULL JOIN given_n n ON o.row_id = n.row_id "
                "LEFT JOIN given_p p ON p.row_id = o.row_id LEFT JOIN given_q q ON q.row_id = o.row_id"
            )
        # Without columns there is no such side, and its key cannot be named.
        of_source = self._same_keys([], self._source) if self._older.columns else "false"
        of_base = self._same_keys([self._source, self._older], self._base) if self._base.columns else "false"
        of_target = self._same_keys([self._source, self._older], self._target) if self._target.columns else "false"
        return (
            f"given_o o FULL JOIN given_n n ON {of_source} LEFT JOIN given_p p ON {of_base} "
            f"LEFT JOIN given_q q ON {of_target}"
        )

    def _same_keys(self, ones: Sequence[Side], other: Side) -> str:
        def name(triple: ColumnTriple, side: Side) -> str | None:
            return {"o": triple.base, "p": triple.base, "n": triple.source, "q": triple.target}[side.alias]

        terms = []
        for triple in self._keys:
            columns = [found for side in ones or [self._older] if (found := _find(side, name(triple, side)))]
            key = _find(other, name(triple, other))
            terms.append("false" if key is None or not columns else is_same_key(columns, key))
        return " AND ".join(terms)

    def _compared(self, triple: ColumnTriple) -> _Compared:
        o, n = _find(self._older, triple.base), _find(self._source, triple.source)
        p, q = _find(self._base, triple.base), _find(self._target, triple.target)
        return _Compared(
            by_source=Pair(name="", older=o, newer=n),
            by_target=Pair(name="", older=p, newer=q),
            between=Pair(name="", older=n, newer=q),
            is_of_base=triple.base is not None,
            is_of_source=triple.source is not None,
            is_of_target=triple.target is not None,
            is_filled=triple.is_filled,
        )

    @property
    def _source_has_both(self) -> str:
        return f"({self._older.is_there} AND {self._source.is_there})"

    @property
    def _source_change(self) -> str:
        there = self._source.is_there
        return f"CASE WHEN {self._source_has_both} THEN {_UPDATED} WHEN {there} THEN {_INSERTED} ELSE {_DELETED} END"

    @property
    def _target_change(self) -> str:
        base, target = self._base.is_there, self._target.is_there
        changed = [column.by_target.differs for column in self._columns if column.is_of_base and column.is_of_target]
        return (
            f"CASE WHEN {base} AND {target} THEN CASE WHEN {' OR '.join(changed) or 'false'} THEN {_UPDATED} END "
            f"WHEN {target} THEN {_INSERTED} WHEN {base} THEN {_DELETED} END"
        )

    @property
    def _condition(self) -> str:
        ours = [column for column in self._columns if column.is_of_source]
        changed = [column.by_source.differs for column in ours if column.is_of_base]
        # A value in a new column does not keep a row that the other side deleted.
        added = [column.is_given for column in ours if not column.is_of_base]
        is_kept = f"NOT ({self._base.is_there} AND NOT {self._target.is_there})"
        return (
            f"NOT {self._source_has_both} OR {' OR '.join(changed) or 'false'} "
            f"OR (({' OR '.join(added) or 'false'}) AND {is_kept})"
        )

    def _took(self, column: _Compared) -> str:
        """Whether the source gave a column a value that the target does not have."""
        if not column.is_of_source:
            return "false"
        if not column.is_of_both:
            return f"{self._source.is_there} AND {column.is_given}"
        # If both sides made the same change, there is nothing to write and no conflict.
        is_news = f"(NOT {self._target.is_there} OR {column.between.differs})"
        return f"{self._source_has_both} AND {column.by_source.differs} AND {is_news}"

    def _clash(self, column: _Compared) -> str:
        if not column.is_of_both:
            return "false"
        # Both changed the value, or both added the row. Different cells of one row do not clash.
        by_both = f"{column.by_source.differs} AND {self._base.is_there} AND {column.by_target.differs}"
        is_new = f"(NOT {self._older.is_there} OR ({self._source_has_both} AND {by_both}))"
        return f"{self._source.is_there} AND {self._target.is_there} AND {is_new} AND {column.between.differs}"


def _find(side: Side, name: str | None) -> Column | None:
    """A column of a side, if there is such a side."""
    return side.column(name) if name is not None and name in side.schema.names else None


def _numbers(conditions: Sequence[str]) -> str:
    """The numbers of the conditions that are true."""
    chosen = [f"CASE WHEN {condition} THEN {number} END" for number, condition in enumerate(conditions)]
    return f"[x FOR x IN [{', '.join(chosen) or 'NULL'}] IF x IS NOT NULL]::INTEGER[]"
