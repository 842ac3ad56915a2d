"""The versions of each dataset that the retained commits need."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.format.layout.reach import VersionKey, Wanted
from anabranch.ids import TableKey
from anabranch.repo.gc.roots import Roots
from anabranch.repo.log.entries import CommitRecord, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns

__all__ = ["HeldEntry", "find_wanted", "iter_held_entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """One state of a table in the retained commits. `holders` are the branches, tags and so on that retain them."""

    key: TableKey
    entry: TableEntry
    holders: frozenset[str]


def find_wanted(repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> dict[str, Wanted]:
    """Return for each dataset what must stay so that the commits remain readable."""
    places: dict[str, set[VersionKey]] = defaultdict(set)
    without_key: dict[str, set[VersionKey]] = defaultdict(set)
    since = _find_since(repo_store, roots)
    for held in iter_held_entries(repo_store, roots, commits):
        entry = held.entry
        place = (entry.home, entry.version)
        places[entry.dataset].add(place)
        if not entry.primary_key:
            without_key[entry.dataset].add(place)
    return {
        dataset: Wanted(places=frozenset(found), since=since[dataset], without_key=frozenset(without_key[dataset]))
        for dataset, found in places.items()
    }


def _find_since(repo_store: RepoStore, roots: Roots) -> dict[str, dict[str | None, int]]:
    """Return, for each home that a branch writes to, the first ordinary version that the next writer checks.

    A writer checks the ordinary versions of a home for external writes. Earlier writers checked the older versions.
    """
    since: dict[str, dict[str | None, int]] = defaultdict(dict)
    for head in roots.heads:
        for entry in repo_store.commits.tables_of(head.head).values():
            if owns(head.home_branch, entry.home):
                lowest = since[entry.dataset]
                lowest[entry.home] = min(entry.head, lowest.get(entry.home, entry.head))
    return since


def iter_held_entries(repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> Iterator[HeldEntry]:
    """Yield every table of the retained commits, each state of it once."""
    by_base: dict[str, list[CommitRecord]] = defaultdict(list)
    for record in commits:
        by_base[record.base].append(record)
    found: dict[tuple[TableKey, TableEntry], set[str]] = defaultdict(set)
    for group in by_base.values():
        for key, entry, holders in _iter_group(repo_store, roots, group):
            found[key, entry].update(holders)
    for (key, entry), by in found.items():
        yield HeldEntry(key=key, entry=entry, holders=frozenset(by))


def _iter_group(
    repo_store: RepoStore, roots: Roots, group: list[CommitRecord]
) -> Iterator[tuple[TableKey, TableEntry, frozenset[str]]]:
    """Yield the tables of commits that share a base.

    Most tables of most commits are those of the base. They are yielded once per set of holders, not once per commit.
    """
    base = repo_store.commits.tables_of(replace(group[0], changes={}))
    untouched: dict[frozenset[str], set[TableKey]] = {}
    for record in group:
        holders = roots.holders[record.commit.graph_commit_id]
        for key, entry in record.changes.items():
            if entry is not None:
                yield key, entry, holders
        untouched.setdefault(holders, set()).update(base.keys() - record.changes.keys())
    for holders, keys in untouched.items():
        yield from ((key, base[key], holders) for key in keys)
