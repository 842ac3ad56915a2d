"""The graph of the states of one table: each state with the states that it was made from, and merges of them."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.model.graph import find_ancestors, lowest_common
from tests.model.outcome import Conflicts
from tests.model.table import ModelTable
from tests.model.table_merge import Strategy, merge_table, virtual_bases

State = TypeVar("State")
# The number of a state in the order in which they were added.
Node = int


@dataclass(eq=False)
class StateGraph(Generic[State]):
    """States that were made from other states."""

    states: list[State] = field(default_factory=list)
    parents: list[tuple[Node, ...]] = field(default_factory=list)

    def add(self, state: State, *parents: Node) -> Node:
        self.states.append(state)
        self.parents.append(parents)
        return len(self.states) - 1

    def is_before(self, older: Node, newer: Node) -> bool:
        """Return whether a state is another one or was made into it."""
        return older in find_ancestors(newer, self.parents.__getitem__)

    def merge_bases(self, one: Node, other: Node) -> list[Node]:
        return sorted(lowest_common(one, other, self.parents.__getitem__))


class TableGraph(StateGraph[ModelTable]):
    """States of a table that can be merged."""

    def merge(self, source: Node, target: Node, strategy: Strategy) -> ModelTable | Conflicts:
        """Return a right answer to a merge. The other ones have the same rows."""
        if self.is_before(source, target):
            return self.states[target]
        answer, *_ = merge_table(self._base(source, target), self.states[source], self.states[target], strategy)
        return answer

    def _base(self, one: Node, other: Node) -> ModelTable:
        """Return the merge base. Several are merged, and differ from both sides where they disagree."""
        first, *others = self.merge_bases(one, other)
        state = self.states[first]
        for node in others:
            state, *_ = virtual_bases(self._base(node, first), state, self.states[node])
        return state
