"""Merge the columns and the key of a table, column by column."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from anabranch.errors import SchemaMismatchError
from anabranch.format.staging import ColumnChange
from anabranch.format.staging.incoming import require_computable
from anabranch.format.staging.notes import NOT_NULL, first_names
from anabranch.repo.history.comparer import ColumnTriple
from anabranch.repo.merge.resolve import SchemaDecider
from anabranch.repo.merge.shapes import MergedColumn, Shape, TableSide, TableSides, match_columns

if TYPE_CHECKING:
    import pyarrow as pa


_Value = TypeVar("_Value")
# Returns whether rows that changed since the base have new values in a column of a table.
IsUsed = Callable[[TableSide, str], bool]


def merge_shapes(sides: TableSides, *, decider: SchemaDecider, is_used: IsUsed) -> Shape:
    """Merge the columns and the key. `decider` decides if both sides changed the same thing.

    A column that one side dropped is a conflict only if the other side changed it, or if `is_used` returns True for it.
    """
    if sides.are_same:
        return _same_shape(sides.target)
    merger = _ShapeMerger(sides, decider, is_used)
    for triple in match_columns(sides):
        merger.merge_column(triple)
    merger.make_names_unique()
    merger.merge_keys()
    return merger.to_shape()


def _same_shape(table: TableSide) -> Shape:
    """Return the shape of a table whose columns and key no side changed."""
    columns = {
        field.name: MergedColumn(
            triple=ColumnTriple(base=field.name, source=field.name, target=field.name), field=_as_declared(field)
        )
        for field in table.schema
    }
    key = tuple(columns[name].triple for name in table.primary_key)
    return Shape(columns=tuple(columns.values()), primary_key=table.primary_key, key_candidates=(key,) if key else ())


class _ShapeMerger:
    """Builds a `Shape`, column by column."""

    def __init__(self, sides: TableSides, decider: SchemaDecider, is_used: IsUsed) -> None:
        self._sides = sides
        self._base, self._source, self._target = sides.base, sides.source, sides.target
        self._decider = decider
        self._is_used = is_used
        self._columns: list[MergedColumn] = []
        self._dropped: list[str] = []
        self._altered: list[ColumnChange] = []
        self._restored: list[ColumnTriple] = []
        self._primary_key: tuple[str, ...] = ()
        self._key_candidates: tuple[tuple[ColumnTriple, ...], ...] = ()
        self._names: dict[ColumnTriple, str] = {}

    def to_shape(self) -> Shape:
        return Shape(
            columns=tuple(self._columns),
            dropped=tuple(self._dropped),
            altered=tuple(self._altered),
            restored=tuple(self._names[triple] for triple in self._restored if triple in self._names),
            primary_key=self._primary_key,
            key_candidates=self._key_candidates,
            conflicts=tuple(self._decider.conflicts),
        )

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
                name = self._name_of_added(triple, source.name, target.name)
                # Rows of the side that allows nulls may have some.
                self._change(triple, target.with_name(name).with_nullable(source.nullable or target.nullable))
                return
            # The two columns are the same one but have different types, so only one of them can stay.
            texts = None, str(source.type), str(target.type)
            wins = self._decider.decide("both sides added it", texts, column=target.name)
            if wins == "source":
                self._dropped.append(target.name)
                self._keep(ColumnTriple(base=None, source=source.name, target=None), source)
            else:
                self._keep(ColumnTriple(base=None, source=None, target=target.name), target)

    def _name_of_added(self, triple: ColumnTriple, source: str, target: str) -> str:
        """Return the name of a column that both sides added. A side that has another name than at first renamed it."""
        if source == target:
            return target
        first = first_names(self._sides.shared_ids(triple))
        if (source in first) is not (target in first):
            return target if source in first else source
        before = min(first) if len(first) == 1 else None
        wins = self._decider.decide("both sides changed its name", (before, source, target), column=target)
        return source if wins == "source" else target

    def _merge_kept(self, triple: ColumnTriple) -> None:
        base, source, target = (
            self._field(self._base, triple.base),
            self._field(self._source, triple.source),
            self._field(self._target, triple.target),
        )
        name = self._pick("its name", base.name, source.name, target.name, column=base.name)
        kind = self._pick("its type", base.type, source.type, target.type, column=base.name)
        for maker, made, left in (("source", source, target), ("target", target, source)):
            # The column was dropped and added again under its name, so that a cast of the old values would fail or
            # make no sense.
            if kind == made.type and self._is_another(made, left):
                self._replace(triple, name, maker=maker)
                return
        nullable = self._pick("its nulls", base.nullable, source.nullable, target.nullable, column=base.name)
        self._change(triple, target.with_name(name).with_type(kind).with_nullable(nullable))

    def _is_another(self, made: "pa.Field", left: "pa.Field") -> bool:
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
        base, source = self._field(self._base, triple.base), self._field(self._source, triple.source)
        target = self._field(self._target, triple.target)
        table, left = (self._target, target) if maker == "source" else (self._source, source)
        wins = maker
        # To replace a column that the other side has changed or written to would lose that without a conflict.
        if self._is_changed(base, left) or self._is_used(table, left.name):
            texts = _text(base), _text(source), _text(target)
            wins = self._decider.decide(f"the {maker} made another column of it", texts, column=base.name)
        if wins == "target":
            base_name = None if maker == "target" else triple.base
            self._keep(ColumnTriple(base=base_name, source=None, target=triple.target), target)
        else:
            self._dropped.append(target.name)
            self._restore(triple.source, source.with_name(name))

    def _change(self, triple: ColumnTriple, merged: "pa.Field") -> None:
        """Keep a column of the target with the name, type and nullability of `merged`."""
        target = self._field(self._target, triple.target)
        self._keep(triple, merged)
        if (merged.name, merged.type, merged.nullable) != (target.name, target.type, target.nullable):
            self._altered.append(
                ColumnChange(
                    path=target.name,
                    name=None if merged.name == target.name else merged.name,
                    type=None if merged.type == target.type else merged.type,
                    nullable=None if merged.nullable == target.nullable else merged.nullable,
                )
            )

    def _merge_dropped(self, triple: ColumnTriple) -> None:
        """Merge a column that one side dropped and the other side still has."""
        has, lacks = ("source", "target") if triple.target is None else ("target", "source")
        table = self._source if has == "source" else self._target
        base, left = self._field(self._base, triple.base), self._field(table, getattr(triple, has))
        wins = lacks
        if self._is_changed(base, left) or self._is_new_in_key(base, table, left) or self._is_used(table, left.name):
            # The other side has used the column since, and its values would be lost without a conflict.
            texts = _text(base), *((_text(left), None) if has == "source" else (None, _text(left)))
            wins = self._decider.decide(f"the {lacks} dropped it", texts, column=base.name)
        if has == "target" and wins == "target":
            self._keep(triple, left)
        elif has == "target":
            self._dropped.append(left.name)
        elif wins == "source":
            self._restore(triple.source, left)

    def _restore(self, source: str | None, merged: "pa.Field") -> None:
        """Keep a column of the source that the target does not have any more, with all its values."""
        triple = ColumnTriple(base=None, source=source, target=None)
        self._keep(triple, merged)
        self._restored.append(triple)

    def _keep(self, triple: ColumnTriple, merged: "pa.Field") -> None:
        self._names[triple] = merged.name
        self._columns.append(MergedColumn(triple=triple, field=merged))

    def make_names_unique(self) -> None:
        """Decide on names that two columns would have: one was renamed, the other one added or renamed.

        A column that loses gets back the name that it has on the side that wins. It is left out if it does not exist
        there. If the name is that of another column, the same side wins again. All names of a side are different, so
        that this ends.
        """
        losers: dict[ColumnTriple, str] = {}
        while (name := self._find_repeated_name()) is not None:
            source, target = (self._find_named(name, side) for side in ("source", "target"))
            won = [losers[column.triple] for column in self._columns if column.name == name and column.triple in losers]
            # The target wins against a column that lost to the source, so that no column moves back and forth.
            wins = "target" if "target" in won else next(iter(won), None)
            if wins is None and self._is_undecided(name):
                wins = "target"  # The name may be free after the conflict of the column itself is decided.
            if wins is None:
                texts = None, self._described(source, "source"), self._described(target, "target")
                wins = self._decider.decide("two columns would have this name", texts, column=name)
            winner = source if wins == "source" else target
            loser = next(column for column in self._columns if column.name == name and column is not winner)
            losers[loser.triple] = wins
            self._rename_loser(loser, getattr(loser.triple, wins))

    def _is_undecided(self, name: str) -> bool:
        """Return whether a column of the result that would have a name has a conflict of its own."""
        undecided = {conflict.column for conflict in self._decider.conflicts} - {None}
        return any(column.triple.base in undecided for column in self._columns if column.name == name)

    def _find_repeated_name(self) -> str | None:
        names = [column.name for column in self._columns]
        return next((name for name in names if names.count(name) > 1), None)

    def _find_named(self, name: str, side: str) -> MergedColumn | None:
        """Return the column of the result that would have a name, and has it on one side."""
        found = (column for column in self._columns if column.name == name and getattr(column.triple, side) == name)
        return next(found, None)

    def _described(self, column: MergedColumn | None, side: str) -> str | None:
        if column is None:
            return None
        text = _text(self._field(self._source if side == "source" else self._target, getattr(column.triple, side)))
        return text if column.triple.base in (None, column.name) else f"{text} (was {column.triple.base})"

    def _rename_loser(self, column: MergedColumn, name: str | None) -> None:
        """Give a column of the result another name, or leave it out if there is none."""
        triple, at = column.triple, self._columns.index(column)
        self._altered = [change for change in self._altered if change.path != triple.target]
        del self._columns[at], self._names[triple]
        if name is None:
            self._dropped += () if triple.target is None else (triple.target,)
            return
        renamed = column.field.with_name(name)
        if triple.target is None:
            self._keep(triple, renamed)
        else:
            self._change(triple, renamed)
        # `_keep` and `_change` append, but the column keeps its position.
        self._columns.insert(at, self._columns.pop())

    def merge_keys(self) -> None:
        """Merge the primary keys. Key columns are compared by identity, because both sides may have renamed them."""
        source = self._identities("source", self._source.primary_key)
        target = self._identities("target", self._target.primary_key)
        base = target if self._base is None else self._identities("base", self._base.primary_key)
        triples = list(self._names)
        # A key that both sides have is the best to match rows by, then the one that they had. Without a base, two keys
        # are those of two tables.
        found = [base, source, target] if self._base is not None else []
        if source == target:
            found = [source, *found]
        complete = [self._complete(key, triples) for key in dict.fromkeys(found)]
        self._key_candidates = tuple(key for key in complete if key)
        if source in (base, target):
            chosen = target
        elif target == base and self._base is not None:
            chosen = source
        else:
            keys = None, ", ".join(self._source.primary_key), ", ".join(self._target.primary_key)
            side = self._decider.decide("both sides have keys of their own", keys)
            chosen = source if side == "source" else target
        if None in chosen and None not in (other := target if chosen is source else source):
            chosen = other  # The conflict about the dropped column decides, or is reported.
        if None in chosen:
            self._decider.add_conflict("a column of its key was dropped", (None, str(source), str(target)))
            return
        self._primary_key = tuple(self._names[triples[number]] for number in chosen if number is not None)

    def _complete(self, key: Sequence[int | None], triples: Sequence[ColumnTriple]) -> tuple[ColumnTriple, ...]:
        """Return the columns of a key, none if the base or a side does not have one of them."""
        columns = [triples[number] for number in key if number is not None]
        sides = [(self._base, "base"), (self._source, "source"), (self._target, "target")]
        names = [getattr(column, name) for column in columns for table, name in sides if table is not None]
        return tuple(columns) if len(columns) == len(key) and None not in names else ()

    def _identities(self, attribute: str, key: Sequence[str]) -> tuple[int | None, ...]:
        known = {getattr(triple, attribute): number for number, triple in enumerate(self._names)}
        return tuple(known.get(name) for name in key)

    def _pick(self, what: str, base: _Value, source: _Value, target: _Value, *, column: str) -> _Value:
        if source in (base, target):
            return target
        if target == base:
            return source
        texts = str(base), str(source), str(target)
        wins = self._decider.decide(f"both sides changed {what}", texts, column=column)
        return source if wins == "source" else target

    def _is_new_in_key(self, before: "pa.Field", table: TableSide, after: "pa.Field") -> bool:
        """Return whether a side made a column a part of the key."""
        old = () if self._base is None else self._base.primary_key
        return after.name in table.primary_key and before.name not in old

    @staticmethod
    def _is_changed(before: "pa.Field", after: "pa.Field") -> bool:
        return (before.name, before.type, before.nullable) != (after.name, after.type, after.nullable)

    @staticmethod
    def _field(table: TableSide | None, name: str | None) -> "pa.Field":
        assert table is not None  # noqa: S101 - callers pass only columns that the side has
        assert name is not None  # noqa: S101
        return _as_declared(table.schema.field(name))


def _as_declared(field: "pa.Field") -> "pa.Field":
    """Return a field as it is declared: a virtual base has nulls also in columns that take none."""
    is_strict = field.metadata is not None and NOT_NULL.encode() in field.metadata
    return field.with_nullable(nullable=False) if is_strict else field


def _text(column: "pa.Field") -> str:
    return f"{column.name} {column.type}" + ("" if column.nullable else " not null")
