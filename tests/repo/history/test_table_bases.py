"""The common base of a table of two branches: chosen cases, and random ones compared with a history of each table."""

from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.history.ancestry import Ancestry
from tests.model.table_graph import Node, StateGraph
from tests.repo.conftest import CUSTOMERS, ORDERS, append, entry, table
from tests.repo.graphs import Graph, T, U


@pytest.fixture
def graph(repo: ab.Repository) -> Graph:
    return Graph(repo)


def base_versions(graph: Graph, ours: str, theirs: str, key: TableKey = T) -> list[int | None]:
    both = []
    for one, other in ((ours, theirs), (theirs, ours)):
        found = Ancestry(graph.repo_store).find_table_bases(graph.tip(one), graph.tip(other), key)
        both.append([None if base.entry is None else base.entry.version for base in found])
    assert sorted(both[0], key=repr) == sorted(both[1], key=repr)
    return both[0]


def version(graph: Graph, branch: str = MAIN, *, key: TableKey = T) -> int | None:
    entry = graph.entry(branch, key)
    return None if entry is None else entry.version


def test_a_table_of_a_live_branch_continues_from_what_it_was_forked_from(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    graph.branch("dev", is_live=True)
    graph.commit(MAIN, T, U)
    forked = version(graph)
    graph.commit("dev", T)
    graph.commit(MAIN, T, U)
    assert base_versions(graph, "dev", MAIN) == [forked]
    assert base_versions(graph, "dev", MAIN, U) == [version(graph, key=U)]
    forked_later = version(graph, key=U)
    graph.commit("dev", U)
    graph.commit("dev", T)
    graph.commit(MAIN, T, U)
    assert base_versions(graph, "dev", MAIN) == [forked]
    assert base_versions(graph, "dev", MAIN, U) == [forked_later]


def test_each_merge_of_a_live_branch_moves_the_base(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    graph.branch("dev", is_live=True)
    graph.commit("dev", T)
    graph.commit(MAIN, T)
    graph.merge("dev", T)
    assert base_versions(graph, "dev", MAIN) == [version(graph, "dev")]
    graph.commit("dev", T)
    graph.merge(MAIN, T, into="dev")
    graph.commit("dev", T)
    assert base_versions(graph, "dev", MAIN) == [version(graph)]
    graph.commit(MAIN, U)
    assert base_versions(graph, "dev", MAIN, U) == [version(graph, key=U)]


def test_a_frozen_branch_continues_from_main_as_it_was_then_but_for_its_own_tables(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    forked = version(graph)
    graph.branch("dev", is_live=True)
    graph.commit("dev", T)
    graph.commit(MAIN, T, U)
    at_freeze = version(graph, key=U)
    graph.branch("child", source="dev")
    graph.repo.branch_freeze("dev")
    graph.commit(MAIN, T, U)
    for branch in ("dev", "child"):
        graph.commit(branch, T, U)
        assert base_versions(graph, branch, MAIN) == [forked]
        assert base_versions(graph, branch, MAIN, U) == [at_freeze]
    assert graph.repo_store.heads.get(BranchName("child")).state.own == ()


def test_a_branch_made_from_a_commit_of_a_live_one_continues_from_main_as_that_saw_it(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    graph.branch("dev", is_live=True)
    graph.commit(MAIN, T)
    seen, forked = version(graph), version(graph, key=U)
    on_dev = graph.commit("dev", U)
    graph.branch("child", source="dev")
    assert graph.tip("child").commit == on_dev  # which shows just what the branch does
    graph.commit(MAIN, T, U)
    graph.commit("child", T, U)
    assert base_versions(graph, "child", MAIN) == [seen]
    assert base_versions(graph, "child", MAIN, U) == [forked]


def test_a_pulled_table_continues_from_where_it_was_pulled(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    unpulled = version(graph, key=U)
    graph.branch("dev")
    graph.commit("dev", T, U)
    graph.commit(MAIN, T, U)
    pulled = version(graph)
    graph.repo.branch_pull("dev", str(T))
    graph.commit("dev", T)
    graph.commit(MAIN, T, U)
    assert base_versions(graph, "dev", MAIN) == [pulled]
    assert base_versions(graph, "dev", MAIN, U) == [unpulled]


def test_a_live_branch_that_pulled_a_table_follows_main_again(graph: Graph) -> None:
    graph.commit()
    graph.branch("dev", is_live=True)
    graph.commit("dev")
    graph.commit()
    graph.repo.branch_pull("dev", str(T))
    graph.commit()
    assert base_versions(graph, "dev", MAIN) == [version(graph)]
    forked = version(graph)
    graph.commit("dev")
    graph.commit()
    assert base_versions(graph, "dev", MAIN) == [forked]


def test_criss_cross_with_changes_on_one_side_only_has_one_base(graph: Graph) -> None:
    graph.commit(MAIN, T, U)
    graph.branch("dev")
    graph.commit(MAIN, U)
    graph.commit("dev", T)
    graph.branch("main-before")
    graph.branch("dev-before", source="dev")
    graph.merge("dev-before", T, into=MAIN)
    graph.merge("main-before", U, into="dev")
    assert len(Ancestry(graph.repo_store).find_merge_bases(graph.tip(), graph.tip("dev"))) == 2
    assert base_versions(graph, MAIN, "dev", T) == [version(graph, "dev-before")]
    assert base_versions(graph, MAIN, "dev", U) == [version(graph, "main-before", key=U)]


def test_a_criss_cross_in_one_table_has_both_bases(graph: Graph) -> None:
    graph.commit()
    graph.branch("dev")
    graph.commit()
    graph.commit("dev")
    graph.branch("main-before")
    graph.branch("dev-before", source="dev")
    graph.merge("dev-before", T, into=MAIN)
    graph.merge("main-before", T, into="dev")
    assert set(base_versions(graph, MAIN, "dev")) == {version(graph, "dev-before"), version(graph, "main-before")}


@pytest.mark.s3
def test_a_run_on_a_live_branch_continues_from_main_as_it_was_when_it_began(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    before = entry(lake, ORDERS)
    run = lake.begin_run("dev")
    with run.transaction() as tx:
        tx.append(ORDERS, table(7))
    append(lake, 8)
    append(lake, 30, key=CUSTOMERS)
    run.publish()
    append(lake, 9)
    graph = Graph(lake)
    (base,) = Ancestry(graph.repo_store).find_table_bases(graph.tip("dev"), graph.tip(), TableKey.parse(ORDERS))
    assert base.entry is not None
    assert (base.entry.home, base.entry.version) == (before.home, before.version)


# Any history

BRANCHES = (MAIN, "live", "other", "child")
STEPS = st.tuples(
    st.sampled_from(["write", "write", "write both", "merge", "merge", "pull", "freeze", "again"]),
    st.sampled_from(BRANCHES),
    st.sampled_from(BRANCHES),
    st.sampled_from([T, U]),
)


class Model:
    """The versions of each table by what they were made from: one small graph for each table, without commits."""

    def __init__(self, root: str) -> None:
        self.graph = Graph(ab.init(f"{root}/lake"))
        self.versions = {key: StateGraph[int | None]() for key in (T, U)}
        self.tips: dict[str, dict[TableKey, Node]] = {MAIN: {}}
        self.follows: set[str] = set()
        for key in (T, U):
            self._node(MAIN, key)
        self.do("write both", MAIN, MAIN, T)
        for name in BRANCHES[1:]:
            self.make(name)

    def make(self, name: str) -> None:
        is_live = name == "live"
        source = "live" if name == "child" else MAIN
        self.graph.branch(name, source=source, is_live=is_live)
        self.tips[name] = {} if is_live else {key: self.tip(source, key) for key in (T, U)}
        self.follows |= {name} if is_live else set()

    def tip(self, branch: str, key: TableKey) -> Node:
        own = self.tips[branch]
        return own[key] if key in own or branch not in self.follows else self.tips[MAIN][key]

    def _node(self, branch: str, key: TableKey, *parents: Node) -> None:
        self.tips[branch][key] = self.versions[key].add(version(self.graph, branch, key=key), *parents)

    def do(self, what: str, branch: str, other: str, key: TableKey) -> None:
        if what.startswith("write"):
            keys = (T, U) if what == "write both" else (key,)
            before = {key: self.tip(branch, key) for key in keys}
            self.graph.commit(branch, *keys)
            for key, node in before.items():
                self._node(branch, key, node)
        elif what == "merge" and branch != other:
            self.merge(branch, other)
        elif what == "pull" and branch != MAIN:
            self.pull(branch, key)
        elif what == "freeze" and branch in self.follows:
            self.tips[branch] = {key: self.tip(branch, key) for key in (T, U)}
            self.follows.remove(branch)
            self.graph.repo.branch_freeze(branch)
        elif what == "again" and branch in ("other", "child"):
            self.graph.repo.branch_delete(branch)
            self.make(branch)

    def merge(self, branch: str, source: str) -> None:
        tips = {key: (self.tip(branch, key), self.tip(source, key)) for key in (T, U)}
        changed = [key for key, (ours, theirs) in tips.items() if not self.versions[key].is_before(theirs, ours)]
        self.graph.merge(source, *changed, into=branch)
        for key, both in tips.items():
            if key in changed or branch not in self.follows or key in self.tips[branch]:
                self._node(branch, key, *both)

    def pull(self, branch: str, key: TableKey) -> None:
        self.graph.repo.branch_pull(branch, str(key))
        if branch in self.follows:
            self.tips[branch].pop(key, None)
        else:
            self.tips[branch][key] = self.tip("live" if branch == "child" else MAIN, key)


@given(st.lists(STEPS, max_size=25))
def test_bases_of_a_table_are_those_of_its_own_history(steps: list[tuple[str, str, str, TableKey]]) -> None:
    with TemporaryDirectory() as root:
        model = Model(root)
        for step in steps:
            model.do(*step)
        for ours in BRANCHES:
            for theirs in BRANCHES:
                for key in (T, U):
                    versions = model.versions[key]
                    assert versions.states[model.tip(ours, key)] == version(model.graph, ours, key=key)
                    expected = versions.merge_bases(model.tip(ours, key), model.tip(theirs, key))
                    found = base_versions(model.graph, ours, theirs, key)
                    assert set(found) == {versions.states[node] for node in expected}
