"""A three-way merge of one plain table: columns, rows and cells, with nothing in mind but their meaning.

Where the outcome depends on how a table lies on disk, which the model does not know, it gives all that are right:

- a column that was renamed is followed by its data; where a side has rewritten these, or there are none, it is seen as
  dropped, and another as added;
- a table without a key is merged by the ids of its rows, if these were not all given anew meanwhile; where they were
  not kept, a side that only added rows can be told from one that wrote all of them anew by their files alone;
- what is taken over whole may become a state of its own, though it holds the same;
- of a table that had to be read, since nobody could foresee it, it is not known what its columns were called before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Literal

from tests.model.table import ModelTable, Row, Value, new_ids

__all__ = ["Anything", "Clash", "Outcome", "Side", "content_of", "copy_of", "merge_table", "subsets"]

Side = Literal["source", "target"] | None


@dataclass(frozen=True, slots=True)
class Clash:
    """A merge that cannot be, with this many conflicts."""

    conflicts: int


@dataclass(frozen=True, slots=True)
class Anything:
    """What the model cannot foresee: a conflict, or whatever really became of a table of the target."""

    target: ModelTable


Outcome = ModelTable | Clash | Anything


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of the result, by its names on all sides."""

    name: str
    base: str | None
    source: str | None
    target: str | None
    field: object


@dataclass(slots=True, kw_only=True)
class _Shape:
    columns: list[_Column] = field(default_factory=list)
    clashes: int = 0


# What became of the columns of the base, by their names there.
_Pairs = Mapping[str, str]


def merge_table(
    base: ModelTable | None, source: ModelTable, target: ModelTable, side: Side, *, are_ids_lost: bool = False
) -> list[Outcome]:
    """What three states of a table may come to; `side` decides where both changed the same.

    Where states between were collected, nobody can tell any more whose rows have which ids.
    """
    if base is target:
        return _taken_over(source, target)
    found: list[Outcome] = []
    for ours in _pairings(base, source):
        for theirs in _pairings(base, target):
            for outcome in _Merge(base, source, target, side, are_ids_lost=are_ids_lost).outcomes(ours, theirs):
                # One that is the target itself is another than one that only holds the same.
                if not any(_is_same(outcome, other) and (outcome is target) == (other is target) for other in found):
                    found.append(outcome)
    if any(_is_same(outcome, target) for outcome in found) and not any(outcome is target for outcome in found):
        found.append(target)  # both renamed a column alike, say
    if not _are_names_known(base, source, target):
        found.append(Anything(target))
    return found


def copy_of(table: ModelTable, *, dataset: object, made_from: ModelTable | None) -> ModelTable:
    """The same rows and columns as a state of their own."""
    return replace(
        table,
        shape=object(),
        appended_to=None,
        dataset=dataset,
        row_ids=new_ids(table.rows),
        made_from=made_from,
        is_copied=True,
    )


def content_of(table: ModelTable) -> object:
    """What a table holds: equal for states that hold the same."""
    rows = Counter(tuple(row[name] for name in sorted(table.columns)) for row in table.rows)
    return sorted(table.columns), table.primary_key, rows


def _are_names_known(*tables: ModelTable | None) -> bool:
    """Whether it is known what became of each column; where all have the same, they are taken for the same."""
    there = [table for table in tables if table is not None]
    return all(table.are_columns_known for table in there) or len({frozenset(table.columns) for table in there}) == 1


def _taken_over(source: ModelTable, target: ModelTable) -> list[Outcome]:
    """The target did nothing: it becomes what the source has."""
    copied = copy_of(source, dataset=target.dataset, made_from=target)
    return [target, copied] if content_of(source) == content_of(target) else [copied]


def _is_same(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, ModelTable) and isinstance(other, ModelTable):
        return content_of(one) == content_of(other)
    return one == other


def _pairings(base: ModelTable | None, table: ModelTable) -> Iterator[_Pairs]:
    """All ways to see what became of columns: each that was renamed may be followed, or not."""
    if base is None:
        yield {}
        return
    was = dict(zip(base.fields, base.columns, strict=True))
    renamed = [
        (was[number], name)
        for number, name in zip(table.fields, table.columns, strict=True)
        if number in was and was[number] != name
    ]
    for followed in chain.from_iterable(combinations(renamed, size) for size in range(len(renamed), -1, -1)):
        pairs = dict(followed)
        for name in table.columns:
            if name not in pairs.values() and name in base.columns and name not in pairs:
                pairs[name] = name
        yield pairs


class _Merge:
    def __init__(
        self, base: ModelTable | None, source: ModelTable, target: ModelTable, side: Side, *, are_ids_lost: bool
    ) -> None:
        self._base, self._source, self._target = base, source, target
        self._side = side
        self._are_ids_lost = are_ids_lost

    def outcomes(self, ours: _Pairs, theirs: _Pairs) -> Iterator[Outcome]:
        for shape in self._shapes(ours, theirs):
            yield from self._with_shape(shape)

    def _with_shape(self, shape: _Shape) -> Iterator[Outcome]:
        key_clashes, key, has_one_key = self._merge_keys()
        shape.clashes += key_clashes
        if has_one_key:
            yield self._merge_rows(shape, key, by_key=True)
        elif self._has_row_ids:
            yield self._merge_rows(shape, key, by_key=False) if self._are_row_ids_known else Anything(self._target)
        elif self._may_lie_on_base:
            yield self._as_a_whole(shape)
            yield Anything(self._target)
        elif (added := self._added_rows()) is not None:
            inserted = [_in_result(shape.columns, row, "source") or {} for row in added]
            kept = [_in_result(shape.columns, row, "target") or {} for row in self._target.rows]
            yield (
                Clash(shape.clashes)
                if shape.clashes
                else self._result(shape, key, [*kept, *inserted], [*self._target.row_ids, *new_ids(inserted)])
            )
            if not self._has_surely_appended:
                yield self._as_a_whole(shape)
        else:
            yield self._as_a_whole(shape)

    def _as_a_whole(self, shape: _Shape) -> Outcome:
        """What becomes of a table whose rows cannot be matched."""
        if self._side is None:
            return Clash(shape.clashes or 1)
        if self._side == "target":
            return self._target
        return copy_of(self._source, dataset=self._target.dataset, made_from=self._target)

    def _added_rows(self) -> list[Row] | None:
        """The rows that were added to a table without a key; None if more than that was done."""
        base, source = self._base, self._source
        if base is None or any(table.primary_key for table in (base, source, self._target)):
            return None
        names = [name for name in base.columns if name in source.columns]
        left = Counter(tuple(row[name] for name in names) for row in base.rows)
        added = []
        for row in source.rows:
            known = tuple(row[name] for name in names)
            if left[known]:
                left[known] -= 1
            else:
                added.append(row)
        return None if left.total() else added

    @property
    def _has_surely_appended(self) -> bool:
        base = self._base
        return base is not None and (not base.rows or self._source.appended_since(base) is not None)

    # Columns

    def _shapes(self, ours: _Pairs, theirs: _Pairs) -> Iterator[_Shape]:
        """The columns of the result; several where it cannot be told which of those that were dropped were in use."""
        is_certain = self._base is None or (self._base.primary_key and self._merge_keys()[2])
        dropped = frozenset[str]() if is_certain else frozenset(ours.keys() ^ theirs.keys())
        for doubted in subsets(dropped):
            shape = _Shape()
            for base, source, target, number in self._triples(ours, theirs):
                self._add_column(shape, base, source, target, number, is_in_doubt=base in doubted)
            names = Counter(column.name for column in shape.columns)
            shape.clashes += sum(1 for count in names.values() if count > 1)
            yield shape

    def _triples(self, ours: _Pairs, theirs: _Pairs) -> Iterator[tuple[str | None, str | None, str | None, object]]:
        was = {now: before for before, now in theirs.items()}
        came = [name for name in self._source.columns if name not in ours.values()]
        for name, number in zip(self._target.columns, self._target.fields, strict=True):
            before = was.get(name)
            source = ours.get(before) if before is not None else name if name in came else None
            yield before, source, name, number
        for name in () if self._base is None else self._base.columns:
            if name not in theirs:
                yield name, ours.get(name), None, object()
        new = {name for name in self._target.columns if name not in was}
        for name, number in zip(self._source.columns, self._source.fields, strict=True):
            if name in came and name not in new:
                yield None, name, None, number

    def _add_column(
        self,
        shape: _Shape,
        base: str | None,
        source: str | None,
        target: str | None,
        number: object,
        *,
        is_in_doubt: bool,
    ) -> None:
        if base is None:
            name = source if target is None else target
            shape.columns.append(_Column(name=name or "", base=None, source=source, target=target, field=number))
        elif source is not None and target is not None:
            name = target if source in (base, target) else source
            if source not in (base, target) and target != base:
                shape.clashes += self._side is None
                name = source if self._side == "source" else target
            shape.columns.append(_Column(name=name, base=base, source=source, target=target, field=number))
        elif source is not None or target is not None:
            self._add_dropped(shape, base, source, target, number, is_in_doubt=is_in_doubt)

    def _add_dropped(
        self, shape: _Shape, base: str, source: str | None, target: str | None, number: object, *, is_in_doubt: bool
    ) -> None:
        """One side dropped it; that is a conflict only if the other did something to it."""
        table, name = (self._source, source) if source is not None else (self._target, target)
        if name == base and not self._is_used(table, name, is_in_doubt=is_in_doubt):
            return
        shape.clashes += self._side is None
        wins = self._side or "target"
        if wins == "target" and target is not None:
            shape.columns.append(_Column(name=target, base=base, source=None, target=target, field=number))
        if wins == "source" and source is not None:
            shape.columns.append(_Column(name=source, base=None, source=source, target=None, field=number))

    def _is_used(self, table: ModelTable, name: str, *, is_in_doubt: bool) -> bool:
        """Whether rows that came or changed since have values in a column; of rows without a key, nobody knows."""
        before = self._base
        if before is None:
            return False
        if before.primary_key != table.primary_key or not before.primary_key:
            return is_in_doubt and table is not before
        known = {before.key_of(row): row for row in before.rows}
        return any(
            row[name] != known[table.key_of(row)][name] if table.key_of(row) in known else row[name] is not None
            for row in table.rows
        )

    # Keys

    def _merge_keys(self) -> tuple[int, tuple[str, ...], bool]:
        """Conflicts, the key, and whether all sides have the same."""
        source, target = self._source.primary_key, self._target.primary_key
        base = target if self._base is None else self._base.primary_key
        if source in (base, target):
            return 0, target, bool(target) and source == target == base
        if target == base and self._base is not None:
            return 0, source, False
        return int(self._side is None), source if self._side == "source" else target, False

    @property
    def _has_row_ids(self) -> bool:
        sides = (self._source, self._target)
        if self._base is None or self._are_ids_lost or any(side.primary_key for side in sides):
            return False
        return all(side.steps_since(self._base) is not None for side in sides)

    @property
    def _may_lie_on_base(self) -> bool:
        """Whether a table without a key was made anew where the base's lies, which makes it grow out of that."""
        sides = (self._source, self._target)
        if self._base is None or any(side.primary_key for side in sides):
            return False
        roots = [side.root for side in sides if side.steps_since(self._base) is None]
        return any(root is not self._base.root and root.dataset == self._base.dataset for root in roots)

    @property
    def _are_row_ids_known(self) -> bool:
        base, sides = self._base, (self._source, self._target)
        return base is not None and not any(step.is_copied for side in sides for step in side.steps_since(base) or ())

    # Rows

    def _merge_rows(self, shape: _Shape, key: tuple[str, ...], *, by_key: bool) -> Outcome:
        base, source, target = (
            {} if table is None else _by_identity(table, by_key=by_key)
            for table in (self._base, self._source, self._target)
        )
        clashes = shape.clashes
        rows: dict[object, Row] = {}
        if not by_key:  # a row that came is a new one, though the target may have it from this very source
            source = {identity if identity in base else object(): row for identity, row in source.items()}
        for identity in dict.fromkeys([*target, *source]):
            count, row = self._merge_row(shape.columns, base.get(identity), source.get(identity), target.get(identity))
            clashes += count
            if row is not None:
                rows[identity] = row
        if clashes:
            return Clash(clashes)
        row_ids = [identity if identity in target else object() for identity in rows]
        return self._result(shape, key, rows.values(), row_ids)

    def _result(
        self, shape: _Shape, key: tuple[str, ...], rows: Iterable[Row], row_ids: Iterable[object]
    ) -> ModelTable:
        columns = tuple(column.name for column in shape.columns)
        result = replace(
            self._target,
            columns=columns,
            fields=tuple(column.field for column in shape.columns),
            primary_key=key,
            rows=tuple(rows),
            row_ids=tuple(row_ids),
            shape=object(),
            appended_to=None,
            made_from=self._target,
            is_copied=False,
            are_columns_known=self._target.are_columns_known and self._source.are_columns_known,
        )
        is_still = columns == self._target.columns and content_of(result) == content_of(self._target)
        return self._target if is_still else result

    def _merge_row(
        self, columns: Iterable[_Column], base: Row | None, source: Row | None, target: Row | None
    ) -> tuple[int, Row | None]:
        """Conflicts, and the row, if it is there."""
        if source is None:
            if base is None or target is None or not _differ(columns, base, "base", target, "target"):
                return 0, None if base is not None else _in_result(columns, target, "target")
            kept = _in_result(columns, target, "target")
            return (1, kept) if self._side is None else (0, None if self._side == "source" else kept)
        if target is None:
            if base is None:
                return 0, _in_result(columns, source, "source")
            if not _differ(columns, base, "base", source, "source"):
                return 0, None
            theirs = _in_result(columns, source, "source")
            return (1, None) if self._side is None else (0, theirs if self._side == "source" else None)
        return self._merge_cells(columns, base, source, target)

    def _merge_cells(self, columns: Iterable[_Column], base: Row | None, source: Row, target: Row) -> tuple[int, Row]:
        clashes, row = 0, {}
        for column in columns:
            before = None if base is None else _cell(base, column.base)
            ours, theirs = _cell(source, column.source), _cell(target, column.target)
            value = theirs
            if column.source is None or column.target is None:
                value = theirs if column.source is None else ours
            elif ours != theirs and (base is None or (ours != before and theirs != before)):
                clashes += self._side is None
                value = ours if self._side == "source" else theirs
            elif ours != before:
                value = ours
            row[column.name] = value
        return clashes, row


def subsets(keys: Set[str]) -> Iterator[Set[str]]:
    """All of them, then ever fewer."""
    for size in range(len(keys), -1, -1):
        yield from map(frozenset, combinations(sorted(keys), size))


def _by_identity(table: ModelTable, *, by_key: bool) -> dict[object, Row]:
    if by_key:
        return {table.key_of(row): row for row in table.rows}
    return dict(zip(table.row_ids, table.rows, strict=True))


def _cell(row: Row, name: str | None) -> Value:
    return None if name is None else row[name]


def _in_result(columns: Iterable[_Column], row: Row | None, side: str) -> Row | None:
    return None if row is None else {column.name: _cell(row, getattr(column, side)) for column in columns}


def _differ(columns: Iterable[_Column], one: Row, side: str, other: Row, other_side: str) -> bool:
    """Whether two sides differ in the columns that both have."""
    names = ((getattr(column, side), getattr(column, other_side)) for column in columns)
    return any(one[name] != other[other_name] for name, other_name in names if name and other_name)
