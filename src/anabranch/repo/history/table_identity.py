"""Which tables of two states are the same table, also under another name. Diffs and merges match tables by it."""

from collections.abc import Iterable, Mapping

from anabranch.errors import NotFoundError
from anabranch.ids import TableKey
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import TableEntry, TableMap
from anabranch.repo.snapshot import Snapshot, Table


def match_tables(config: RepoConfig, before: TableMap, after: TableMap) -> dict[TableKey, TableKey]:
    """Return the keys that tables of one state have in another one, as {key before: key after}.

    A table keeps its dataset under each name, so that another table may have its old name now. A copy of a table that a
    merge made may be in another dataset, so that a table is matched by its name if its dataset is not found.
    """
    found = {key: key for key, entry in before.items() if key in after and after[key].dataset == entry.dataset}
    if len(found) == len(before):
        return found
    others: dict[str, list[TableKey]] = {}
    for key in sorted(after.keys() - found.keys()):
        others.setdefault(after[key].dataset, []).append(key)
    missing = sorted(before.keys() - found.keys())
    for key in missing:
        candidates = others.get(before[key].dataset, [])
        # Tables of one name that were created on two branches share a folder, and are still different tables.
        other = next((one for one in candidates if _is_same_table(config, key, before[key], one, after[one])), None)
        if other is not None:
            candidates.remove(other)
            found[key] = other
    taken = set(found.values())
    return found | {key: key for key in missing if key not in found and key in after and key not in taken}


def pair_tables(before: Snapshot, after: Snapshot) -> list[tuple[TableKey | None, TableKey | None]]:
    """Return the keys of each table in both states, sorted by the newer one. None where a state does not have it."""
    matched = match_tables(after._repo_store.config, before.entries, after.entries)
    pairs: list[tuple[TableKey | None, TableKey | None]] = [(key, matched.get(key)) for key in before.entries]
    pairs += ((None, key) for key in after.entries.keys() - matched.values())
    # A removed table comes before the one that has its name now.
    return sorted(pairs, key=lambda pair: (str(pair[0] if pair[1] is None else pair[1]), pair[1] is not None))


def with_other_names(keys: Iterable[TableKey], *states: Mapping[TableKey, TableEntry | None]) -> set[TableKey]:
    """Return keys, with all other keys that the tables of these keys have in the given states."""
    found = set(keys)
    while True:
        datasets = {entry.dataset for state in states for key in found if (entry := state.get(key)) is not None}
        others = {key for state in states for key, entry in state.items() if entry and entry.dataset in datasets}
        if others <= found:
            return found
        found |= others


def _is_same_table(
    config: RepoConfig, key: TableKey, entry: TableEntry, other_key: TableKey, other: TableEntry
) -> bool:
    """Return whether two states in one folder are of one table, because they have a column in common."""
    # Not at the top: most comparisons do not need it, and it loads Lance.
    from anabranch.format.staging.column_ids import read_column_ids

    tables = Table(config, key, entry), Table(config, other_key, other)
    try:
        ids = [read_column_ids(table.version_ref) for table in tables]
    except NotFoundError:
        return True  # Collected: most folders are only used by one table.
    before, after = (frozenset[str]().union(*found.values()) for found in ids)
    return not before.isdisjoint(after)
