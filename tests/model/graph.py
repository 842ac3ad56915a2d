"""The commit graph of the model: ancestors and merge bases, found by brute force."""

from collections.abc import Callable, Iterator

from tests.model.history import ModelCommit
from tests.model.table import ModelTable

Parents = Callable[[ModelCommit], tuple[ModelCommit, ...]]


def is_ancestor(older: ModelCommit, newer: ModelCommit) -> bool:
    return older in _ancestors(newer, lambda commit: commit.parents)


def has_merged_live(live: ModelCommit, main: ModelCommit, newer: ModelCommit) -> bool:
    """Return whether a commit descends from a merge of a live branch with this state of main below, or a later one."""
    return any(
        commit.merged is live and commit.merged_below is not None and is_ancestor(main, commit.merged_below)
        for commit in _ancestors(newer, lambda commit: commit.parents)
    )


def lowest_common(one: ModelCommit, other: ModelCommit, parents: Parents) -> list[ModelCommit]:
    """Return the common ancestors that are not ancestors of another one."""
    common = _ancestors(one, parents) & _ancestors(other, parents)
    below = {found for commit in common for parent in parents(commit) for found in _ancestors(parent, parents)}
    return [commit for commit in common if commit not in below]


def _ancestors(commit: ModelCommit, parents: Parents) -> set[ModelCommit]:
    found: set[ModelCommit] = set()
    waiting = [commit]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += parents(here)
    return found


def find_table_bases(one: ModelCommit, other: ModelCommit, key: str) -> list[ModelCommit]:
    """Return the lowest common ancestors of a table, one for each state that no other one includes."""
    found = lowest_common(one, other, lambda commit: commit.origins.get(key, commit.parents))
    distinct = list({id(commit.tables.get(key)): commit for commit in found}.values())
    return [base for base in distinct if not any(_is_before(base, other, key) for other in distinct)]


def _is_before(base: ModelCommit, other: ModelCommit, key: str) -> bool:
    """Return whether a base did not change a table since it had a common state with another base."""
    if base is other:
        return False
    lower = find_table_bases(base, other, key)
    return len(lower) == 1 and lower[0].tables.get(key) is base.tables.get(key)


def forked_at(main: ModelCommit, key: str, table: ModelTable | None) -> ModelCommit:
    """Return the newest commit of main with the state that a table of a live branch was made from."""
    for state in _states(table):
        for commit in main.history():
            if commit.tables.get(key) is state:
                return commit
    return main


def _states(table: ModelTable | None) -> Iterator[ModelTable]:
    while table is not None:
        yield table
        table = table.made_from
