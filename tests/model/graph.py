"""The commit graph of the model: ancestors and merge bases, found by brute force."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from tests.model.history import ModelCommit
from tests.model.table import ModelTable

Node = TypeVar("Node", bound=Hashable)


def is_ancestor(older: ModelCommit, newer: ModelCommit) -> bool:
    return older in find_ancestors(newer, lambda commit: commit.parents)


def has_merged_live(live: ModelCommit, main: ModelCommit, newer: ModelCommit) -> bool:
    """Return whether a commit descends from a merge of a live branch with this state of main below, or a later one."""
    return any(
        commit.merged is live and commit.merged_below is not None and is_ancestor(main, commit.merged_below)
        for commit in find_ancestors(newer, lambda commit: commit.parents)
    )


def lowest_common(one: Node, other: Node, parents: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return the common ancestors that are not ancestors of another one."""
    ours, theirs = find_ancestors(one, parents), find_ancestors(other, parents)
    common = ours & theirs
    below = {found for node in common for parent in parents(node) for found in find_ancestors(parent, parents)}
    return [node for node in common if node not in below]


def find_ancestors(node: Node, parents: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return a node and all that it descends from."""
    found: set[Node] = set()
    waiting = [node]
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
