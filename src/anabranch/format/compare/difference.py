"""Find the rows in which two versions of a table may differ, from their manifests and deletion files alone.

A fragment is its data files: two branches give different fragments the same id, and a column that is added gives a
fragment one file more. So fragments that share a file have the same rows in the same order. They differ by deleted
rows, and by columns whose files differ. All other fragments are new or removed. If columns of a shared fragment were
added or dropped, only these are read, to find the rows that are not null in them.

Transactions show whether one version was made from the other (`descends_from`).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import lance
import numpy as np
import pyarrow.compute as pc

from anabranch.errors import NotFoundError
from anabranch.format.compare.parts import Part, fragments_of, part_of, whole_part
from anabranch.format.home import VersionRef
from anabranch.format.layout.fragment_rows import Offsets, offsets_in
from anabranch.format.layout.next_manifest import UPDATED_FIELDS
from anabranch.format.staging.fields import FieldTree
from anabranch.format.staging.manifests import find_transaction, shown_version
from anabranch.format.staging.schema_notes import columns_by_id
from anabranch.storage.requests import at_once, in_parallel

_Position = frozenset[tuple[int, str]]
_Shared = tuple[int, int]  # the ids of one fragment in both versions

# The number of fragments whose deletion files are read in parallel. Those of both versions are in memory then.
_FRAGMENTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPair:
    """A column of the older version and of the newer one. None if it was added or dropped."""

    older: str | None
    newer: str | None

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.older, self.newer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshaped:
    """A fragment that both versions have, with columns that only one of them has."""

    older: int
    newer: int
    dropped: tuple[str, ...]
    added: tuple[str, ...]

    @classmethod
    def of(cls, older: int, newer: int, columns: Sequence[ColumnPair]) -> "Reshaped":
        dropped = tuple(pair.older for pair in columns if pair.older is not None)
        added = tuple(pair.newer for pair in columns if pair.newer is not None)
        return cls(older=older, newer=newer, dropped=dropped, added=added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The rows of each version that the other one may not have unchanged.

    A row that was rewritten is in both, whether it was changed or not. Rows of reshaped fragments that both versions
    have are in neither: `find_filled` returns those that differ. `fragments` maps the ids of common fragments in the
    older version to those in the newer one. `has_same_schema` is True if the columns and all notes are the same.
    """

    columns: tuple[ColumnPair, ...]
    older: tuple[Part, ...]
    newer: tuple[Part, ...]
    reshaped: tuple[Reshaped, ...] = ()
    fragments: Mapping[int, int] = field(default_factory=dict)
    has_same_schema: bool = False


def compare_versions(older: VersionRef, newer: VersionRef) -> Difference:
    """Find the rows that may differ. Of common fragments, only differing deletion files are read."""
    return compare_all(older, [newer])[0]


def compare_all(older: VersionRef, newer: Sequence[VersionRef]) -> list[Difference]:
    """Find the rows that may differ between one version and each of several others. No file is read twice."""
    old = _Version(older)
    return in_parallel(lambda version_ref: _compare(old, _Version(version_ref)), newer, at_a_time=at_once(old.root))


def _compare(old: "_Version", new: "_Version") -> Difference:
    shared, left, right = _match_fragments(old, new)
    columns = _pair_columns(old, new, shared)
    has_same_fields = old.tree.fields == new.tree.fields
    are_alike = has_same_fields or all(old.families[pair.older] == new.families[pair.newer] for pair in columns)
    replaced, reshaped, with_deletions = _find_changed(old, new, shared, columns, are_alike=are_alike)
    parts_of_old = old.whole_parts([*left, *(number for number, _ in replaced)])
    parts_of_new = new.whole_parts([*right, *(other for _, other in replaced)])
    for (number, other), (before, after) in zip(with_deletions, _iter_deleted(old, new, with_deletions), strict=True):
        parts_of_old += part_of(old.metadata(number), _without(after, before), deleted=before)
        parts_of_new += part_of(new.metadata(other), _without(before, after), deleted=after)
    return Difference(
        columns=columns,
        older=tuple(parts_of_old),
        newer=tuple(parts_of_new),
        reshaped=tuple(reshaped),
        fragments=dict(shared),
        has_same_schema=old.tree == new.tree,
    )


def _find_changed(
    old: "_Version", new: "_Version", shared: Sequence[_Shared], columns: Sequence[ColumnPair], *, are_alike: bool
) -> tuple[list[_Shared], list[Reshaped], list[_Shared]]:
    """Return the common fragments in which any row may differ, those with other columns, and with other deletions."""
    replaced: list[_Shared] = []
    reshaped: list[Reshaped] = []
    with_deletions: list[_Shared] = []
    for number, other in shared:
        mine, theirs = old.outline(number), new.outline(other)
        # Equal columns in the same files hold the same values. Most of what may be thousands of fragments are equal.
        if are_alike and mine == theirs:
            continue
        differing = _find_differing(old, new, (number, other), columns, are_alike=are_alike)
        # A common column is in another file, or an overlay replaces values of any column, so any row may differ.
        if any(None not in pair.names for pair in differing) or mine.overlays != theirs.overlays:
            replaced.append((number, other))
            continue
        if differing:
            reshaped.append(Reshaped.of(number, other, differing))
        if mine.deletion != theirs.deletion:
            with_deletions.append((number, other))
    return replaced, reshaped, with_deletions


def _find_differing(
    old: "_Version", new: "_Version", shared: _Shared, columns: Sequence[ColumnPair], *, are_alike: bool
) -> Sequence[ColumnPair]:
    """Return the columns whose values in a fragment are not the same. A missing column is all null."""
    number, other = shared
    has_same_files = are_alike and old.outline(number).files == new.outline(other).files
    searched = () if has_same_files else columns
    return [pair for pair in searched if old.position(number, pair.older) != new.position(other, pair.newer)]


def _iter_deleted(old: "_Version", new: "_Version", shared: Sequence[_Shared]) -> Iterator[tuple[Offsets, Offsets]]:
    """Yield the deleted rows of fragments in both versions, reading the files of a few fragments at once."""
    for start in range(0, len(shared), _FRAGMENTS_AT_ONCE):
        pairs = shared[start : start + _FRAGMENTS_AT_ONCE]
        files = [(version, fragment) for pair in pairs for version, fragment in zip((old, new), pair, strict=True)]
        found = in_parallel(lambda file: file[0].deleted(file[1]), files, at_a_time=at_once(old.root))
        yield from zip(found[::2], found[1::2], strict=True)


def _without(offsets: Offsets, others: Offsets) -> Offsets:
    """Return the sorted offsets that are not among others, which are sorted too."""
    if not len(offsets) or not len(others):
        return offsets
    nearest = np.minimum(np.searchsorted(others, offsets), len(others) - 1)
    left: Offsets = offsets[others[nearest] != offsets]
    return left


def find_filled(older: VersionRef, newer: VersionRef, difference: Difference) -> tuple[tuple[Part, Part], ...]:
    """Return common rows of reshaped fragments that are not null in added or dropped columns, the only ones read."""
    if not difference.reshaped:
        return ()
    old, new = _Version(older), _Version(newer)
    found: list[tuple[Part, Part]] = []
    with older.home.errors():
        for pair in difference.reshaped:
            before, after = old.deleted(pair.older), new.deleted(pair.newer)
            filled = np.union1d(
                _filled_offsets(old.by_id[pair.older], pair.dropped, deleted=before),
                _filled_offsets(new.by_id[pair.newer], pair.added, deleted=after),
            )
            # Rows that only one version has are in the parts of the difference already.
            both = np.setdiff1d(filled, np.union1d(before, after), assume_unique=True)
            parts = part_of(old.metadata(pair.older), both, deleted=before)
            found += zip(parts, part_of(new.metadata(pair.newer), both, deleted=after), strict=True)
    return tuple(found)


class _Version:
    """A version with its fragments, and the files of each column of a fragment."""

    def __init__(self, version_ref: VersionRef) -> None:
        self._version_ref = version_ref
        self.root = version_ref.home.root
        opened = fragments_of(version_ref)
        self._dataset, self.by_id = opened.dataset, opened.by_id
        self.metadata, self.outline, self.by_file = opened.metadata, opened.outline, opened.by_file
        self.tree = FieldTree.of(self._dataset.lance_schema)
        self.columns = tuple(field.name for field in self.tree.top_level())
        self._positions: dict[int, Mapping[str | None, _Position]] = {}
        self._deleted: dict[int, Offsets] = {}
        self._lock = threading.Lock()
        self._reading: dict[int, threading.Lock] = {}

    @cached_property
    def families(self) -> dict[str | None, frozenset[int]]:
        """The fields of each column. The key None means a column that was added or dropped, which has no fields."""
        found: dict[str | None, frozenset[int]] = {None: frozenset()}
        return found | self.tree.families()

    def whole_parts(self, numbers: Sequence[int]) -> list[Part]:
        return [whole_part(self.metadata(number)) for number in numbers]

    def position(self, fragment: int, column: str | None) -> _Position:
        """Return the position of a column's data in a fragment: its fields and files, none if all are null."""
        found = self._positions.get(fragment)
        if found is None:
            owners = {number: column for column, family in self.families.items() for number in family}
            positions: dict[str | None, set[tuple[int, str]]] = {}
            for path, fields in self.outline(fragment).files:
                for number in fields:
                    # A data file keeps the fields of columns that were dropped later.
                    if number in owners:
                        positions.setdefault(owners[number], set()).add((number, path))
            found = self._positions[fragment] = {name: frozenset(fields) for name, fields in positions.items()}
        return found.get(column, frozenset())

    def deleted(self, number: int) -> Offsets:
        """Return the deleted rows of a fragment. Threads that ask for the same fragment read its file once."""
        with self._lock:
            # One lock for each fragment: a single lock would make all reads wait for each other.
            reading = self._reading.setdefault(number, threading.Lock())
        with reading:
            if number not in self._deleted:
                self._deleted[number] = offsets_in(self._version_ref.home, self._dataset, self.by_id[number])
            return self._deleted[number]


def _match_fragments(old: _Version, new: _Version) -> tuple[list[_Shared], list[int], list[int]]:
    """Return the common fragments, those of the older version only, and those of the newer one only."""
    by_file = new.by_file
    shared: list[_Shared] = []
    left: list[int] = []
    matched: set[int] = set()
    for number in old.by_id:
        other = next((by_file[path] for path, _ in old.outline(number).files if path in by_file), None)
        # A fragment matches one other. If two share a file, the second is read as a whole.
        if other is None or other in matched:
            left.append(number)
        else:
            matched.add(other)
            shared.append((number, other))
    return shared, left, [number for number in new.by_id if number not in matched]


def _pair_columns(old: _Version, new: _Version, shared: Sequence[_Shared]) -> tuple[ColumnPair, ...]:
    """Pair the columns of two versions: by the data files they share, then by identity, then by name."""
    if old.tree.fields == new.tree.fields:
        return _same_columns(new.columns)
    found: dict[str, str] = {}
    for fragment, other in shared:
        if len(found) == len(new.columns):
            break
        # Columns in the same fields of the same files are the same, also after a rename. One without any is all null.
        there = {old.position(fragment, name): name for name in old.columns}
        there.pop(frozenset(), None)
        for name in new.columns:
            _pair(found, name, there.get(new.position(other, name)))
    _pair_by_names(found, old, new)
    pairs = [ColumnPair(older=found.get(name), newer=name) for name in new.columns]
    gone = [ColumnPair(older=name, newer=None) for name in old.columns if name not in found.values()]
    return (*pairs, *gone)


@lru_cache(maxsize=64)
def _same_columns(names: tuple[str, ...]) -> tuple[ColumnPair, ...]:
    """Return the pairs of columns that both versions have under the same names, kept for both sides of a merge."""
    return tuple(ColumnPair(older=name, newer=name) for name in names)


def _pair_by_names(found: dict[str, str], old: _Version, new: _Version) -> None:
    """Pair columns without a shared file, for example after an overwrite: by identity, then by name."""
    if len(found) == len(new.columns):
        return
    # An identity is stronger than a name, which another column may have now. Two datasets have different field ids.
    known = columns_by_id(old.tree) if old.root == new.root else {}
    for column_id, name in columns_by_id(new.tree).items():
        _pair(found, name, known.get(column_id))
    for name in new.columns:
        _pair(found, name, name if name in old.columns else None)


def _pair(found: dict[str, str], newer: str, older: str | None) -> None:
    """Record that two columns are the same, unless one of them has a partner."""
    if older is not None and newer not in found and older not in found.values():
        found[newer] = older


def _filled_offsets(fragment: lance.LanceFragment, columns: Sequence[str], *, deleted: Offsets) -> Offsets:
    """Return the offsets at which any of the columns is not null."""
    if not columns:
        return np.empty(0, dtype=np.uint32)
    alive = np.setdiff1d(np.arange(fragment.physical_rows, dtype=np.uint32), deleted, assume_unique=True)
    filled = np.zeros(len(alive), dtype=bool)
    for column in fragment.scanner(columns=list(columns)).to_table().columns:
        filled |= pc.is_valid(column).to_numpy()
    return alive[filled]


# The steps from one version to another, as their transactions record them. Row ids match rows of two versions only if
# one descends from the other. If all steps are updates of ours, the columns that none of them changed need not be read
# twice.

# Each step is a file to read. After more of them, to read all columns is faster.
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Step:
    """The version before a step, and the ids of the fields that the step changed. None if it may change anything."""

    before: VersionRef
    updated: frozenset[int] | None


def descends_from(later: VersionRef, earlier: VersionRef, *, after: VersionRef | None = None) -> bool:
    """Return whether one version was made from the other step by step. Otherwise row ids may be used twice.

    If a step is unknown, return False. Also return False if the steps lead to the version `after` first.
    """
    here: VersionRef | None = later
    while here is not None and here != earlier:
        here = None if here == after else step_back(here)
    return here is not None


def step_back(version_ref: VersionRef) -> VersionRef | None:
    """Return the version from which another one was made, in any home. None if it is unknown.

    An ordinary version that was settled was made from the version that it shows.
    """
    step = _find_step(version_ref)
    return None if step is None else step.before


def find_updated_columns(older: VersionRef, newer: VersionRef) -> frozenset[str] | None:
    """Return the columns that updates changed between two versions. None if anything else was done, or is unknown.

    Both versions then have the same rows, by their row ids, and equal values in all other columns.
    """
    fields: set[int] = set()
    here = newer
    for _ in range(_MOST_STEPS):
        if here == older:
            families = FieldTree.of(newer.open().lance_schema).families()
            return frozenset(name for name, family in families.items() if not fields.isdisjoint(family))
        step = _find_step(here)
        if step is None or step.updated is None:
            return None
        fields |= step.updated
        here = step.before
    return None


def _find_step(version_ref: VersionRef) -> _Step | None:
    try:
        found = find_transaction(version_ref.home, version_ref.open(), version_ref.version)
    except NotFoundError:
        return None  # collected
    if found is None:
        return None
    home, properties = version_ref.home, found.transaction_properties or {}
    # The read version of a settled version is the ordinary one before it, and its own steps are in the staged chain.
    shown = shown_version(properties)
    # `doctor` rebuilds a lost staged version from the ordinary one that shows it, with the same transaction. That names
    # the version itself. Its steps are lost, so it counts as made from the ordinary version before.
    if shown is not None and shown != version_ref.version:
        return _Step(VersionRef(home=home, version=shown), frozenset())
    match found.operation:
        case lance.LanceOperation.Clone() as made:
            # A clone of another dataset, such as an adopted table, begins here. Its reference names a version there.
            if made.branch_name is None:
                return None
            return _Step(VersionRef(home=home.on(made.ref_name), version=made.ref_version), frozenset())
        case lance.LanceOperation.Restore() as made:
            if made.version == version_ref.version:
                return None  # rebuilt as above, and not made from the version before
            return _Step(VersionRef(home=home, version=made.version), frozenset())
    if not found.read_version:
        return None
    numbers = properties.get(UPDATED_FIELDS, "").split()
    is_update = bool(numbers) and all(number.isdecimal() for number in numbers)
    updated = frozenset(map(int, numbers)) if is_update else None
    return _Step(VersionRef(home=home, version=found.read_version), updated)
