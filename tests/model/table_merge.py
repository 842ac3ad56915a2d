"""The three-way merge of one table: its columns, then its rows, then their cells.

The model does not know how a table is in files. Where the answer depends on that, `merge_table` returns all right
answers:

- A renamed column is followed. It may also count as dropped and added if it was dropped before and a merge brought it
  back, or if the table is in another dataset than that of the base.
- A table that the target did not change becomes the table of the source, with the columns in the order of either.
- Rows without a key are matched by their row ids. If states since the base were collected, the ids may be lost.
- Rows without a key that the source added are new, unless the target was made from the source and still has them.

If one side changed the key, rows are matched by a key of any side that is unique on all of them, as docs/merge.md
states. The rows are those of one table, so such a key identifies them also where it is not declared. Columns that both
sides added are matched by identity, then by name: a column that came by a cherry-pick is the same one under another
name.

It raises UnclearError if there are too many to state: rows without a key whose ids are not known.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Literal

from tests.model.outcome import Conflicts, UnclearError
from tests.model.table import ColumnId, ModelTable, Row, Value, content_of, new_ids

# What to do with conflicts: refuse them, or let a side win. "neither" is for virtual bases.
Strategy = Literal["fail", "source", "target", "neither"]
Outcome = ModelTable | Conflicts


@dataclass(frozen=True, slots=True, eq=False)
class _Restored:
    """A column that a merge brought back. It may be the column that it was before."""

    field: object


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """A column that had different identities on the two sides of a merge. It has all of them now."""

    fields: frozenset[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of the result, and its names in the base and on both sides. `is_undecided`: it has a conflict."""

    name: str
    base: str | None
    source: str | None
    target: str | None
    field: object
    is_undecided: bool = False


@dataclass(slots=True, kw_only=True)
class _Shape:
    columns: list[_Column] = field(default_factory=list)
    conflicts: int = 0


def _repeated_names(columns: Iterable[_Column]) -> set[str]:
    counts = Counter(column.name for column in columns)
    return {name for name, count in counts.items() if count > 1}


# The names that columns of the base have on one side.
_Pairs = Mapping[str, str]
# The columns of a row that have conflicts. None is the whole row.
_CellNames = Sequence[str | None]


def merge_table(
    base: ModelTable | None, source: ModelTable, target: ModelTable, strategy: Strategy, *, may_lose_ids: bool = False
) -> list[Outcome]:
    """Return all right outcomes of a merge. The target itself is one if the merge changes nothing."""
    found: list[Outcome] = []
    for ours, theirs, both_added in _all_pairings(base, source, target):
        merge = _Merge(
            base=base,
            source=source,
            target=target,
            strategy=strategy,
            ours=ours,
            theirs=theirs,
            both_added=both_added,
            may_lose_ids=may_lose_ids,
        )
        for outcome in merge.outcomes():
            # A side itself and a new state with the same content are different answers.
            sides = (outcome is target, outcome is source)
            if not any(_is_same(outcome, other) and (other is target, other is source) == sides for other in found):
                found.append(outcome)
    if any(_is_same(outcome, target) for outcome in found) and not any(outcome is target for outcome in found):
        found.append(target)  # for example if both sides renamed a column alike
    return found


def copy_of(table: ModelTable, *, dataset: object, made_from: ModelTable | None) -> ModelTable:
    """Return a new state with the same content, in which all rows have new ids."""
    return replace(
        table,
        shape=object(),
        appended_to=None,
        dataset=dataset,
        row_ids=new_ids(table.rows),
        made_from=made_from,
        has_new_ids=True,
    )


def virtual_bases(lower: ModelTable | None, one: ModelTable, other: ModelTable) -> list[ModelTable]:
    """Merge two bases into one. A cell on which they disagree gets a value that neither has.

    If the result has the content of one of the bases, the product may take that base itself, so it is returned, too.
    """
    tables = [table for table in (lower, one, other) if table is not None]
    if len({(table.columns, table.primary_key) for table in tables}) > 1 or not one.primary_key:
        raise UnclearError("bases with different columns or without a key")
    pairs = {} if lower is None else {name: name for name in lower.columns}
    added = {name: name for name in one.columns if name not in pairs}
    merge = _Merge(base=lower, source=other, target=one, strategy="neither", ours=pairs, theirs=pairs, both_added=added)
    # All outcomes have the same content: if columns of the bases have different identities, the product may join them.
    found = [outcome for outcome in merge.outcomes() if isinstance(outcome, ModelTable)]
    sides = (table for table in (one, other) if not any(table is outcome for outcome in found))
    return [*found, *(table for table in sides if _is_same(table, found[0]))]


def _is_same(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, ModelTable) and isinstance(other, ModelTable):
        return content_of(one) == content_of(other)
    return one == other


def _all_pairings(
    base: ModelTable | None, source: ModelTable, target: ModelTable
) -> Iterator[tuple[_Pairs, _Pairs, _Pairs]]:
    """Yield all ways to match the columns: base and source, base and target, and those that both sides added.

    The last are the names in the source by those in the target.
    """
    nothing: list[_Pairs] = [{}]
    for ours in nothing if base is None else _pairings(base, source):
        for theirs in nothing if base is None else _pairings(base, target):
            came, new = (
                _only(table, [name for name in table.columns if name not in pairs.values()])
                for table, pairs in ((source, ours), (target, theirs))
            )
            for both_added in _pairings(new, came):
                yield ours, theirs, both_added


def _only(table: ModelTable, names: Sequence[str]) -> ModelTable:
    """Return a table with some of its columns."""
    fields = dict(zip(table.columns, table.fields, strict=True))
    return replace(table, columns=tuple(names), fields=tuple(fields[name] for name in names))


def _pairings(before: ModelTable, table: ModelTable) -> Iterator[_Pairs]:
    """Yield all ways to match the columns of a table. There are several only if a renamed column may be another."""
    is_same_dataset = before.dataset == table.dataset
    renamed = dict(_iter_renamed(before, table, _ids_of)) if is_same_dataset else {}
    unclear = _iter_renamed(before, table, origins_of)
    uncertain = [pair for pair in unclear if pair not in renamed.items()]
    for followed in chain.from_iterable(combinations(uncertain, size) for size in range(len(uncertain), -1, -1)):
        pairs = renamed | dict(followed)
        for name in table.columns:
            if name not in pairs.values() and name in before.columns and name not in pairs:
                pairs[name] = name
        yield pairs


def _iter_renamed(
    before: ModelTable, table: ModelTable, ids_of: Callable[[object], Set[object]]
) -> Iterator[tuple[str, str]]:
    """Yield the old and the new names of renamed columns, given the identities of a column."""
    was = {
        identity: name
        for number, name in zip(before.fields, before.columns, strict=True)
        for identity in ids_of(number)
    }
    for number, name in zip(table.fields, table.columns, strict=True):
        found = {was[identity] for identity in ids_of(number) if identity in was}
        if len(found) == 1 and name not in found:
            yield found.pop(), name


def _ids_of(number: object) -> Set[object]:
    """Return the identities of a column."""
    return number.fields if isinstance(number, _Joined) else {number}


def origins_of(number: object) -> Set[object]:
    """Return the identities of a column, also of one that a merge brought back."""
    if isinstance(number, _Restored):
        return set() if number.field is None else origins_of(number.field)
    if isinstance(number, _Joined):
        return {origin for each in number.fields for origin in origins_of(each)}
    return {number}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """A merge with one way to match the columns: `ours` are those of the source, `theirs` those of the target.

    `both_added` are those of the source that both sides added, by their names in the target.
    """

    base: ModelTable | None
    source: ModelTable
    target: ModelTable
    strategy: Strategy
    ours: _Pairs
    theirs: _Pairs
    both_added: _Pairs
    may_lose_ids: bool = False

    def outcomes(self) -> Iterator[Outcome]:
        if self.base is self.target:
            yield from self._taken_over()
            return
        for outcome in self._merged():
            yield outcome
            if outcome is self.target and self._joins_columns:
                # The identities of columns are part of the state, but not of the content.
                fields = tuple(number for _, _, name, number in self._triples() if name is not None)
                yield replace(self.target, fields=fields, shape=object(), appended_to=None, made_from=self.target)

    @property
    def _joins_columns(self) -> bool:
        """Whether a column has different identities on both sides."""
        is_elsewhere = self.source.dataset != self.target.dataset
        return is_elsewhere or any(isinstance(number, _Joined) for *_, number in self._triples())

    def _merged(self) -> Iterator[Outcome]:
        key_conflicts, key = self._merge_keys()
        shape = self._merge_columns()
        shape.conflicts += key_conflicts
        matched_by = self._matching_key()
        if matched_by:
            yield self._merge_rows(shape, key, matched_by)
        elif self._has_row_ids:
            yield self._merge_rows(shape, key)
            if self.may_lose_ids:
                yield from self._merge_unmatched(shape, key)
        else:
            yield from self._merge_unmatched(shape, key)

    def _taken_over(self) -> Iterator[ModelTable]:
        """Yield the table of the source, as the target did not change it. Its columns may stay in their order."""
        source, target = self.source, self.target
        copied = copy_of(source, dataset=target.dataset, made_from=target)
        if not source.primary_key and not target.primary_key and (steps := source.steps_since(target)) is not None:
            kept = {*target.row_ids}
            ids = tuple(row_id if row_id in kept else object() for row_id in source.row_ids)
            has_new_ids = self.may_lose_ids or any(step.has_new_ids for step in steps)
            copied = replace(copied, row_ids=ids, has_new_ids=has_new_ids)
        copied = replace(copied, fields=tuple(self._taken_fields()))
        yield copied
        names = [self.ours[name] for name in target.columns if name in self.ours]
        names += [name for name in source.columns if name not in names]
        fields = dict(zip(source.columns, copied.fields, strict=True))
        yield replace(copied, columns=tuple(names), fields=tuple(fields[name] for name in names))
        if content_of(replace(source, primary_key=target.primary_key)) == content_of(target):
            yield source  # the key is not in the data, so a state with another key may be that of the source itself

    def _taken_fields(self) -> Iterator[object]:
        """Yield the identities of the columns of the source.

        A column that was dropped and added again under its name is the old one or another one, as its files are copied.
        """
        before = {now: was for was, now in self.ours.items()}
        numbers = dict(zip(self.target.columns, self.target.fields, strict=True))
        for name, number in zip(self.source.columns, self.source.fields, strict=True):
            old = numbers.get(before.get(name, ""), number)
            yield number if old is number else _Restored(old)

    # Tables whose rows cannot be matched

    def _merge_unmatched(self, shape: _Shape, key: tuple[str, ...]) -> Iterator[Outcome]:
        if self._may_be_made_again:
            raise UnclearError("a table without a key, made again where the base is")
        added = self._added_rows()
        if added is None:
            yield self._choose_side(shape)
        elif shape.conflicts:
            yield Conflicts(shape.conflicts)
        else:
            known = self._applied_ids
            yield self._append(shape, key, [row for row_id, row in added.items() if row_id not in known])
            if known and self.may_lose_ids:
                yield self._append(shape, key, list(added.values()))

    def _append(self, shape: _Shape, key: tuple[str, ...], rows: Sequence[Row]) -> ModelTable:
        inserted = [_in_result(shape.columns, row, "source") or {} for row in rows]
        kept = [_in_result(shape.columns, row, "target") or {} for row in self.target.rows]
        return self._result(shape, key, [*kept, *inserted], [*self.target.row_ids, *new_ids(inserted)])

    @property
    def _applied_ids(self) -> frozenset[object]:
        """The ids of rows that the target has from the source: it was made from the source, so that it has its rows."""
        steps = self.target.steps_since(self.source)
        if steps is None:
            return frozenset()
        if any(step.has_new_ids for step in steps):
            raise UnclearError("rows without a key in a copy of the source, which may have new ids")
        return frozenset(self.source.row_ids) & frozenset(self.target.row_ids)

    def _choose_side(self, shape: _Shape) -> Outcome:
        """Return the table of the side that wins, as a whole."""
        if self.strategy == "fail":
            return Conflicts(shape.conflicts or 1)
        if self.strategy == "target":
            return self.target
        return copy_of(self.source, dataset=self.target.dataset, made_from=self.target)

    def _added_rows(self) -> dict[object, Row] | None:
        """Return the rows that the source only appended to a table without a key, by id. None if it did more."""
        base, source = self.base, self.source
        if base is None or any(table.primary_key for table in (base, source, self.target)):
            return None
        if not base.rows:
            return dict(zip(source.row_ids, source.rows, strict=True))
        if (appended := source.appended_since(base)) is not None:
            ids = source.row_ids[len(base.rows) :]
            return dict(zip(ids, appended, strict=True))
        names = [name for name in base.columns if name in source.columns]
        before, after = (Counter(tuple(row[name] for name in names) for row in table.rows) for table in (base, source))
        if before <= after:
            # The same rows, and perhaps more: only the files show whether they were kept or written again.
            raise UnclearError("rows without a key that may have been written again")
        return None

    # Columns

    def _merge_columns(self) -> _Shape:
        shape = _Shape()
        for base, source, target, number in self._triples():
            self._add_column(shape, base, source, target, number)
        self._decide_names(shape)
        return shape

    def _decide_names(self, shape: _Shape) -> None:
        """Decide on names that two columns would have.

        A column that loses its name gets the one that it has on the side that wins, or is left out if it is not there.
        """
        while names := _repeated_names(shape.columns):
            if self.strategy == "fail":
                # The name may be free after the conflict of the column itself is decided.
                undecided = {column.name for column in shape.columns if column.is_undecided}
                shape.conflicts += len(names - undecided)
                return
            columns = []
            for column in shape.columns:
                name = column.source if self.strategy == "source" else column.target
                if column.name not in names or name == column.name:
                    columns.append(column)
                elif name is not None:
                    columns.append(replace(column, name=name))
            shape.columns = columns

    def _triples(self) -> Iterator[tuple[str | None, str | None, str | None, object]]:
        """Yield the matching columns in the order of the result: those of the target first."""
        ours, theirs = self.ours, self.theirs
        was = {now: before for before, now in theirs.items()}
        both_added = self.both_added
        numbers = dict(zip(self.source.columns, self.source.fields, strict=True))
        for name, number in zip(self.target.columns, self.target.fields, strict=True):
            before = was.get(name)
            source = both_added.get(name) if before is None else ours.get(before)
            ids = _ids_of(number) if source is None else _ids_of(number) | _ids_of(numbers[source])
            yield before, source, name, number if ids == _ids_of(number) else _Joined(frozenset(ids))
        for name in () if self.base is None else self.base.columns:
            if name not in theirs:
                source = ours.get(name)
                yield name, source, None, _Restored(None if source is None else numbers[source])
        for name, number in zip(self.source.columns, self.source.fields, strict=True):
            if name not in ours.values() and name not in both_added.values():
                yield None, name, None, number

    def _add_column(
        self, shape: _Shape, base: str | None, source: str | None, target: str | None, number: object
    ) -> None:
        if base is None:
            name = self._name_of_added(shape, source, target)
            shape.columns.append(_Column(name=name, base=None, source=source, target=target, field=number))
        elif source is not None and target is not None:
            name = target if source in (base, target) else source
            is_undecided = source not in (base, target) and target != base and self.strategy == "fail"
            if source not in (base, target) and target != base:
                shape.conflicts += is_undecided
                name = source if self.strategy == "source" else target
            shape.columns.append(
                _Column(name=name, base=base, source=source, target=target, field=number, is_undecided=is_undecided)
            )
        elif source is not None or target is not None:
            self._add_dropped(shape, base, source, target, number)

    def _name_of_added(self, shape: _Shape, source: str | None, target: str | None) -> str:
        """Return the name of an added column. A side that has another name than at first has renamed it."""
        if source is None or target is None or source == target:
            return target or source or ""
        fields = (dict(zip(table.columns, table.fields, strict=True)) for table in (self.source, self.target))
        ours, theirs = (origins_of(numbers[name]) for numbers, name in zip(fields, (source, target), strict=True))
        first = {shared.name for shared in ours & theirs if isinstance(shared, ColumnId)}
        if (source in first) is not (target in first):
            return target if source in first else source
        shape.conflicts += self.strategy == "fail"
        return source if self.strategy == "source" else target

    def _add_dropped(self, shape: _Shape, base: str, source: str | None, target: str | None, number: object) -> None:
        """Merge a column that one side dropped: it is a conflict only if the other side used it."""
        table, name = (self.source, source) if source is not None else (self.target, target)
        if name == base and not self._is_used(table, name):
            return
        is_undecided = self.strategy == "fail"
        shape.conflicts += is_undecided
        if self.strategy != "source" and target is not None:
            kept = _Column(name=target, base=base, source=None, target=target, field=number, is_undecided=is_undecided)
            shape.columns.append(kept)
        if self.strategy == "source" and source is not None:
            shape.columns.append(_Column(name=source, base=None, source=source, target=None, field=number))

    def _is_used(self, table: ModelTable, name: str) -> bool:
        """Return whether rows that were added or changed since the base have new values in a column."""
        before = self.base
        if before is None or table is before:
            return False
        if before.primary_key != table.primary_key:
            raise UnclearError("a dropped column of a table with a new key")
        if not before.primary_key:
            return _has_new_values(before, table, name)
        known = {before.key_of(row): row for row in before.rows}
        return any(
            row[name] != known[table.key_of(row)][name] if table.key_of(row) in known else row[name] is not None
            for row in table.rows
        )

    # Keys

    def _merge_keys(self) -> tuple[int, tuple[str, ...]]:
        """Return the number of conflicts, and the key. Columns of a key are never renamed here."""
        source, target = self.source.primary_key, self.target.primary_key
        base = target if self.base is None else self.base.primary_key
        if source in (base, target):
            return 0, target
        if target == base and self.base is not None:
            return 0, source
        return int(self.strategy == "fail"), source if self.strategy == "source" else target

    def _matching_key(self) -> tuple[str, ...]:
        """Return the key that rows are matched by: one that both sides have, the old one, or that of one side.

        Without a base the tables are two, and two keys are those of two tables.
        """
        source, target = self.source.primary_key, self.target.primary_key
        keys = [source] if source == target else []
        if self.base is not None:
            keys += [self.base.primary_key, source, target]
        tables = [table for table in (self.base, self.source, self.target) if table is not None]
        return next((key for key in keys if key and all(_is_unique(table.rows, key) for table in tables)), ())

    @property
    def _has_row_ids(self) -> bool:
        """Whether rows without a key can be matched by their ids: both sides must come from the base."""
        sides = (self.source, self.target)
        if self.base is None:
            return False
        if any(table.primary_key for table in (self.base, *sides)):
            raise UnclearError("rows that only a key of one side identifies, which may have new ids")
        steps = [side.steps_since(self.base) for side in sides]
        if any(found is None for found in steps):
            return False
        if any(step.has_new_ids for found in steps for step in found or ()):
            raise UnclearError("rows without a key in a copy, which may have new ids")
        return True

    @property
    def _may_be_made_again(self) -> bool:
        """Whether a table without a key was created where the base is, and so may come from it by its row ids."""
        sides = (self.source, self.target)
        if self.base is None or any(side.primary_key for side in sides):
            return False
        roots = [side.root for side in sides if side.steps_since(self.base) is None]
        return any(root is not self.base.root and root.dataset == self.base.dataset for root in roots)

    # Rows

    def _merge_rows(self, shape: _Shape, key: tuple[str, ...], matched_by: tuple[str, ...] = ()) -> Outcome:
        """Merge rows that are matched by a key, or else by their row ids."""
        base, source, target = (
            {} if table is None else _by_identity(table, matched_by) for table in (self.base, self.source, self.target)
        )
        cells: set[tuple[object, str | None]] = set()
        rows: dict[object, Row] = {}
        if not matched_by:
            # A row that the source added is new, unless the target was made from this state of the source. A row that
            # the target got by an earlier merge has another id.
            applied = self._applied_ids - base.keys()
            ours = ((identity, row) for identity, row in source.items() if identity not in applied)
            source = {identity if identity in base else object(): row for identity, row in ours}
        for identity in dict.fromkeys([*target, *source]):
            found, row = self._merge_row(shape.columns, base.get(identity), source.get(identity), target.get(identity))
            cells |= {(identity, column) for column in found}
            if row is not None:
                rows[identity] = row
        if shape.conflicts or cells:
            return Conflicts(shape.conflicts + len(cells), frozenset(cells))
        if matched_by != key and not _is_unique(rows.values(), key):
            return Conflicts(1)  # No strategy decides which of two rows with one value of the new key stays.
        known = dict(zip(target, self.target.row_ids, strict=True))
        return self._result(shape, key, rows.values(), [known.get(identity, object()) for identity in rows])

    def _result(
        self, shape: _Shape, key: tuple[str, ...], rows: Iterable[Row], row_ids: Iterable[object]
    ) -> ModelTable:
        result = replace(
            self.target,
            columns=tuple(column.name for column in shape.columns),
            fields=tuple(column.field for column in shape.columns),
            primary_key=key,
            rows=tuple(rows),
            row_ids=tuple(row_ids),
            shape=object(),
            appended_to=None,
            made_from=self.target,
            has_new_ids=False,
        )
        return self.target if content_of(result) == content_of(self.target) else result

    def _merge_row(
        self, columns: Iterable[_Column], base: Row | None, source: Row | None, target: Row | None
    ) -> tuple[_CellNames, Row | None]:
        """Return the columns with conflicts, and the row, None if it is deleted."""
        if source is None or target is None:
            return self._merge_missing(columns, base, source, target)
        return self._merge_cells(columns, base, source, target)

    def _merge_missing(
        self, columns: Iterable[_Column], base: Row | None, source: Row | None, target: Row | None
    ) -> tuple[_CellNames, Row | None]:
        """Merge a row that only one side has."""
        name, row = ("target", target) if source is None else ("source", source)
        kept = _in_result(columns, row, name)
        if base is None or row is None:
            return (), kept
        # All columns of the base count, also those that the other side dropped.
        pairs = self.ours if name == "source" else self.theirs
        if all(base[before] == row[now] for before, now in pairs.items()):
            return (), None
        if self.strategy == "neither":
            key = self.target.primary_key
            return (), {column.name: row[column.name] if column.name in key else None for column in columns}
        return (None,) if self.strategy == "fail" else (), kept if self.strategy == name else None

    def _merge_cells(
        self, columns: Iterable[_Column], base: Row | None, source: Row, target: Row
    ) -> tuple[_CellNames, Row]:
        conflicts: list[str] = []
        row = {}
        for column in columns:
            before = None if base is None else _cell(base, column.base)
            ours, theirs = _cell(source, column.source), _cell(target, column.target)
            value = theirs
            if column.source is None or column.target is None:
                value = theirs if column.source is None else ours
            elif ours != theirs and (base is None or (ours != before and theirs != before)):
                if self.strategy == "fail":
                    conflicts.append(column.name)
                value = self._decide(before, ours, theirs)
            elif ours != before:
                value = ours
            row[column.name] = value
        return conflicts, row

    def _decide(self, base: Value, source: Value, target: Value) -> Value:
        """Return the cell of the side that wins. A virtual base has null, or the cell below if one side is null."""
        if self.strategy == "neither":
            return base if source is None or target is None else None
        return source if self.strategy == "source" else target


def _has_new_values(before: ModelTable, after: ModelTable, name: str) -> bool:
    """Return whether a column of a table without a key has new values. Equal rows are taken for the same row."""
    columns = {*before.columns, *after.columns}
    old, new = ([row for row in table.rows if row[name] is not None] for table in (before, after))
    if Counter(row[name] for row in new) - Counter(row[name] for row in old):
        return True
    kept, left = (Counter(tuple(row.get(column) for column in sorted(columns)) for row in rows) for rows in (old, new))
    if kept != left:
        raise UnclearError("a dropped column of a table without a key")
    return False


def _by_identity(table: ModelTable, matched_by: tuple[str, ...]) -> dict[object, Row]:
    if matched_by:
        return {tuple(row[name] for name in matched_by): row for row in table.rows}
    return dict(zip(table.row_ids, table.rows, strict=True))


def _is_unique(rows: Iterable[Row], key: tuple[str, ...]) -> bool:
    """Return whether no two rows have the same values of a key, and none has a null."""
    values = [tuple(row[name] for name in key) for row in rows]
    return not key or (len(set(values)) == len(values) and not any(None in value for value in values))


def _cell(row: Row, name: str | None) -> Value:
    return None if name is None else row[name]


def _in_result(columns: Iterable[_Column], row: Row | None, side: str) -> Row | None:
    return None if row is None else {column.name: _cell(row, getattr(column, side)) for column in columns}
