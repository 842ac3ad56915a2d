"""Merge the columns and the key of a table, column by column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from anabranch.errors import SchemaMismatchError
from anabranch.format.staging.incoming import require_computable
from anabranch.format.staging.schema_notes import NOT_NULL, first_names
from anabranch.repo.history.comparer import ColumnTriple
from anabranch.repo.merge.conflict_resolution import SchemaDecider
from anabranch.repo.merge.shapes import MergedColumn, Shape, TableSide, TableSides, match_columns

# Returns whether rows that changed since the base have new values in a column of a table.
IsUsed = Callable[[TableSide, str], bool]
# The merged columns of a key, None for one that is not in the result.
_Key = tuple[ColumnTriple | None, ...]


def merge_shapes(sides: TableSides, *, decider: SchemaDecider, is_used: IsUsed) -> Shape:
    """Merge the columns and the key. `decider` decides if both sides changed the same thing.

    A column that one side dropped is a conflict only if the other side changed it, or if `is_used` returns True for it.
    """
    merger = _ShapeMerger(sides, decider, is_used)
    if sides.are_same:
        merger.keep_all()
    else:
        for triple in match_columns(sides):
            merger.merge_column(triple)
        merger.make_names_unique()
    merger.merge_keys()
    return merger.to_shape()


class _ShapeMerger:
    """Builds a `Shape`, column by column."""

    def __init__(self, sides: TableSides, decider: SchemaDecider, is_used: IsUsed) -> None:
        self._sides = sides
        self._base, self._source, self._target = sides.base, sides.source, sides.target
        self._decider = decider
        self._is_used = is_used
        self._columns: list[MergedColumn] = []
        self._primary_key: tuple[str, ...] = ()
        self._key_candidates: tuple[tuple[ColumnTriple, ...], ...] = ()

    def to_shape(self) -> Shape:
        kept = {column.triple.target for column in self._columns}
        return Shape(
            columns=tuple(self._columns),
            dropped=tuple(name for name in self._target.schema.names if name not in kept),
            primary_key=self._primary_key,
            key_candidates=self._key_candidates,
            conflicts=tuple(self._decider.conflicts),
        )

    def keep_all(self) -> None:
        for field in map(_as_declared, self._target.schema):
            triple = ColumnTriple(base=field.name, source=field.name, target=field.name)
            self._columns.append(MergedColumn(triple=triple, field=field, before=field))

    def merge_column(self, triple: ColumnTriple) -> None:
        if triple.source is None and triple.target is None:
            return
        if triple.base is None:
            self._merge_new(triple)
        elif triple.source is None or triple.target is None:
            self._merge_dropped(triple)
        else:
            self._merge_kept(triple)

    def _merge_new(self, triple: ColumnTriple) -> None:
        if triple.source is None:
            self._keep(triple, self._field(self._target, triple.target))
        elif triple.target is None:
            self._keep(triple, self._field(self._source, triple.source))
        else:
            source, target = self._field(self._source, triple.source), self._field(self._target, triple.target)
            if source.type == target.type:
                name = self._name_of_added(source.name, target.name)
                # Rows of the side that allows nulls may have some.
                self._keep(triple, target.with_name(name).with_nullable(source.nullable or target.nullable))
                return
            # The two columns are the same one but have different types, so only one of them can stay.
            texts = None, str(source.type), str(target.type)
            if self._decider.decide("both sides added it", texts, column=target.name) == "source":
                self._keep(ColumnTriple(base=None, source=source.name, target=None), source)
            else:
                self._keep(ColumnTriple(base=None, source=None, target=target.name), target)

    def _name_of_added(self, source: str, target: str) -> str:
        """Return the name of a column that both sides added. A side with another than its first name renamed it."""
        if source == target:
            return target
        source_ids, target_ids = self._sides.column_ids
        first = first_names(source_ids.get(source, frozenset()) & target_ids.get(target, frozenset()))
        if (source in first) is not (target in first):
            return target if source in first else source
        before = min(first) if len(first) == 1 else None
        wins = self._decider.decide("both sides changed its name", (before, source, target), column=target)
        return source if wins == "source" else target

    def _merge_kept(self, triple: ColumnTriple) -> None:
        base, source, target = self._fields(triple)
        pick = partial(self._decider.pick, column=base.name)
        name = pick("both sides changed its name", base.name, source.name, target.name)
        kind = pick("both sides changed its type", base.type, source.type, target.type)
        for maker, made, left in (("source", source, target), ("target", target, source)):
            # The column was dropped and added again under its name, so that a cast of the old values would fail or
            # make no sense.
            if kind == made.type and self._is_another(made, left):
                self._replace(triple, name, maker=maker)
                return
        nullable = pick("both sides changed its nulls", base.nullable, source.nullable, target.nullable)
        self._keep(triple, target.with_name(name).with_type(kind).with_nullable(nullable))

    def _is_another(self, made: pa.Field, left: pa.Field) -> bool:
        """Return whether a column that is not in a key was dropped and added again with an incompatible type."""
        # Rows are matched by their keys, so that a key column is never treated as a new one.
        if {made.name, left.name} & {*self._source.primary_key, *self._target.primary_key}:
            return False
        try:
            require_computable(left.type, made)
        except SchemaMismatchError:
            return True
        return False

    def _replace(self, triple: ColumnTriple, name: str, *, maker: str) -> None:
        """Keep the column that one side created again, with all its values, unless the other side used the old one."""
        base, source, target = self._fields(triple)
        table, left = (self._target, target) if maker == "source" else (self._source, source)
        wins = maker
        # Replacing a column that the other side has changed or written to would lose these changes without a conflict.
        if self._is_touched(table, base, left):
            texts = _text(base), _text(source), _text(target)
            wins = self._decider.decide(f"the {maker} made another column of it", texts, column=base.name)
        if wins == "target":
            base_name = None if maker == "target" else triple.base
            self._keep(ColumnTriple(base=base_name, source=None, target=triple.target), target)
        else:
            restored = ColumnTriple(base=None, source=triple.source, target=None)
            self._keep(restored, source.with_name(name), is_restored=True)

    def _merge_dropped(self, triple: ColumnTriple) -> None:
        """Merge a column that one side dropped and the other side still has."""
        has, lacks = ("source", "target") if triple.target is None else ("target", "source")
        table = self._source if has == "source" else self._target
        base, left = self._field(self._base, triple.base), self._field(table, getattr(triple, has))
        wins = lacks
        if self._is_touched(table, base, left):
            # The other side has used the column since, and its values would be lost without a conflict.
            texts = _text(base), *((_text(left), None) if has == "source" else (None, _text(left)))
            wins = self._decider.decide(f"the {lacks} dropped it", texts, column=base.name)
        if wins == has == "target":
            self._keep(triple, left)
        elif wins == has:
            self._keep(ColumnTriple(base=None, source=triple.source, target=None), left, is_restored=True)

    def _is_touched(self, table: TableSide, base: pa.Field, now: pa.Field) -> bool:
        """Return whether a side changed a column of the base, made it a part of the key, or has new values in it."""
        old_key = () if self._base is None else self._base.primary_key
        is_new_in_key = now.name in table.primary_key and base.name not in old_key
        return base != now or is_new_in_key or self._is_used(table, now.name)

    def _keep(self, triple: ColumnTriple, merged: pa.Field, *, is_restored: bool = False) -> None:
        before = None if triple.target is None else self._field(self._target, triple.target)
        self._columns.append(MergedColumn(triple=triple, field=merged, before=before, is_restored=is_restored))

    def make_names_unique(self) -> None:
        """Decide on names that two columns would have: one was renamed, the other one added or renamed.

        A column that loses gets back the name that it has on the side that wins. It is left out if it does not exist
        there. If the name is that of another column, the same side wins again. All names of a side are different, so
        that this ends.
        """
        losers: dict[ColumnTriple, str] = {}
        while (name := self._find_repeated_name()) is not None:
            named = [column for column in self._columns if column.name == name]
            wins = self._decide_on_name(name, named, losers)
            loser = next(column for column in named if getattr(column.triple, wins) != name)
            losers[loser.triple] = wins
            at, other = self._columns.index(loser), getattr(loser.triple, wins)
            self._columns[at : at + 1] = [] if other is None else [replace(loser, field=loser.field.with_name(other))]

    def _find_repeated_name(self) -> str | None:
        names = [column.name for column in self._columns]
        return next((name for name in names if names.count(name) > 1), None)

    def _decide_on_name(self, name: str, named: Sequence[MergedColumn], losers: Mapping[ColumnTriple, str]) -> str:
        """Return the side that wins a name that two columns would have. `losers` are columns that lost one before."""
        # The target wins against a column that lost to the source, so that no column moves back and forth.
        if won := {losers[column.triple] for column in named if column.triple in losers}:
            return "target" if "target" in won else "source"
        undecided = {conflict.column for conflict in self._decider.conflicts} - {None}
        if any(column.triple.base in undecided for column in named):
            return "target"  # The name may be free after the conflict of the column itself is decided.
        texts = None, self._described(named, "source", self._source), self._described(named, "target", self._target)
        return self._decider.decide("two columns would have this name", texts, column=name)

    def _described(self, named: Sequence[MergedColumn], side: str, table: TableSide) -> str | None:
        """Return the column that has its name on a side already, as text."""
        for column in named:
            if getattr(column.triple, side) == column.name:
                text = _text(self._field(table, column.name))
                return text if column.triple.base in (None, column.name) else f"{text} (was {column.triple.base})"
        return None

    def merge_keys(self) -> None:
        """Merge the primary keys. Key columns are compared by identity, because both sides may have renamed them."""
        source = self._key_of("source", self._source.primary_key)
        target = self._key_of("target", self._target.primary_key)
        base = None if self._base is None else self._key_of("base", self._base.primary_key)
        # Prefer the common key of both sides to match rows, then that of the base. Without a base, different keys mean
        # different tables.
        found = [] if base is None else [base, source, target]
        if source == target:
            found = [source, *found]
        self._key_candidates = tuple(key for key in map(self._complete, dict.fromkeys(found)) if key)
        key = self._choose_key(base, source, target)
        self._primary_key = tuple(column.name for triple in key for column in self._columns if column.triple == triple)

    def _choose_key(self, base: _Key | None, source: _Key, target: _Key) -> _Key:
        """Return the key of the result, without columns if one of them was dropped."""
        texts = None, ", ".join(self._source.primary_key), ", ".join(self._target.primary_key)
        if source in (base, target):
            keys = target, source
        elif target == base:
            keys = source, target
        else:
            side = self._decider.decide("both sides have keys of their own", texts)
            keys = (source, target) if side == "source" else (target, source)
        # If a column of the chosen key was dropped, the conflict about that column decides, or is reported.
        for key in keys:
            if None not in key:
                return key
        self._decider.add_conflict("a column of its key was dropped", texts)
        return ()

    def _key_of(self, side: str, key: Sequence[str]) -> _Key:
        known = {getattr(column.triple, side): column.triple for column in self._columns}
        return tuple(known.get(name) for name in key)

    def _complete(self, key: Sequence[ColumnTriple | None]) -> tuple[ColumnTriple, ...]:
        """Return the columns of a key, none if the result, the base or a side does not have one of them."""
        columns = tuple(column for column in key if column is not None)
        names = {name for column in columns for name in (column.sides[1:] if self._base is None else column.sides)}
        return columns if len(columns) == len(key) and None not in names else ()

    def _fields(self, triple: ColumnTriple) -> tuple[pa.Field, pa.Field, pa.Field]:
        base, source = self._field(self._base, triple.base), self._field(self._source, triple.source)
        return base, source, self._field(self._target, triple.target)

    @staticmethod
    def _field(table: TableSide | None, name: str | None) -> pa.Field:
        assert table is not None  # noqa: S101 - callers pass only columns that the side has
        assert name is not None  # noqa: S101
        return _as_declared(table.schema.field(name))


def _as_declared(field: pa.Field) -> pa.Field:
    """Return a field as it is declared: a virtual base has nulls even in columns that take none."""
    is_strict = field.metadata is not None and NOT_NULL.encode() in field.metadata
    return field.with_nullable(nullable=False) if is_strict else field


def _text(column: pa.Field) -> str:
    return f"{column.name} {column.type}" + ("" if column.nullable else " not null")
