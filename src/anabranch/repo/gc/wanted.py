"""Which versions of which datasets retained commits need."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.format.reach import Place, Wanted
from anabranch.ids import TableKey
from anabranch.repo.gc.roots import Roots
from anabranch.repo.log.entries import CommitRecord, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns

__all__ = ["HeldEntry", "find_wanted", "iter_held_entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """A table as some retained commits have it, and by whom they are held."""

    key: TableKey
    entry: TableEntry
    holders: frozenset[str]


def find_wanted(records: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> dict[str, Wanted]:
    """What must stay of each dataset for the sake of some commits."""
    places: dict[str, set[Place]] = defaultdict(set)
    without_key: dict[str, set[Place]] = defaultdict(set)
    since = _find_since(records, roots)
    for held in iter_held_entries(records, roots, commits):
        entry = held.entry
        place = (entry.home, entry.version)
        places[entry.dataset].add(place)
        if not entry.primary_key:
            without_key[entry.dataset].add(place)
    return {
        dataset: Wanted(places=frozenset(found), since=since[dataset], without_key=frozenset(without_key[dataset]))
        for dataset, found in places.items()
    }


def _find_since(records: RepoStore, roots: Roots) -> dict[str, dict[str | None, int]]:
    """From which ordinary version on the next writer looks for strangers' writes, in each home that a branch writes to.

    Those before were looked at when they were passed.
    """
    since: dict[str, dict[str | None, int]] = defaultdict(dict)
    for head in roots.heads:
        for entry in records.commits.tables_of(head.head).values():
            if owns(head.home_branch, entry.home):
                lowest = since[entry.dataset]
                lowest[entry.home] = min(entry.head, lowest.get(entry.home, entry.head))
    return since


def iter_held_entries(records: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> Iterator[HeldEntry]:
    """Every table of some retained commits, each state of it once."""
    by_base: dict[str, list[CommitRecord]] = defaultdict(list)
    for record in commits:
        by_base[record.base].append(record)
    found: dict[tuple[TableKey, TableEntry], set[str]] = defaultdict(set)
    for group in by_base.values():
        for key, entry, holders in _iter_group(records, roots, group):
            found[key, entry].update(holders)
    for (key, entry), by in found.items():
        yield HeldEntry(key=key, entry=entry, holders=frozenset(by))


def _iter_group(
    records: RepoStore, roots: Roots, group: list[CommitRecord]
) -> Iterator[tuple[TableKey, TableEntry, frozenset[str]]]:
    """The tables of commits that share a base; most of them are the base's, and are looked at once."""
    base = records.commits.tables_of(replace(group[0], changes={}))
    untouched: dict[frozenset[str], set[TableKey]] = {}
    for record in group:
        holders = roots.holders[record.commit.graph_commit_id]
        for key, entry in record.changes.items():
            if entry is not None:
                yield key, entry, holders
        untouched.setdefault(holders, set()).update(base.keys() - record.changes.keys())
    for holders, keys in untouched.items():
        yield from ((key, base[key], holders) for key in keys)
