"""Common ancestors in the commit graph: compared with a search in a dict of parents, and their number of requests."""

import json
from collections.abc import Callable
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import testing
from anabranch.ids import MAIN, BranchName
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.entries import CommitRecord
from anabranch.repo.log.repo_store import RepoStore
from tests.conftest import Location
from tests.model.graph import find_ancestors, lowest_common
from tests.repo.conftest import another, objects
from tests.repo.graphs import Graph, T, U
from tests.repo.test_budgets import open_counted
from tests.sealing import unsealed


@pytest.fixture
def graph(repo: ab.Repository) -> Graph:
    return Graph(repo)


def bases(graph: Graph, ours: str, theirs: str) -> list[str]:
    found = Ancestry(graph.repo_store).find_merge_bases(graph.tip(ours), graph.tip(theirs))
    assert found == Ancestry(graph.repo_store).find_merge_bases(graph.tip(theirs), graph.tip(ours))
    return [commit.graph_commit_id for commit in found]


# Generations


def test_a_merge_is_one_generation_above_the_higher_parent(graph: Graph) -> None:
    graph.branch("dev")
    on_dev = [graph.commit("dev") for _ in range(5)]
    on_main = graph.commit()
    merged = graph.merge("dev")
    assert [on_main.generation, on_dev[-1].generation, merged.generation] == [1, 5, 6]
    assert graph.commit().generation == 7
    listed = graph.repo.list_commits(limit=None)
    assert [commit.generation for commit in listed] == [7, 6, 1, 0]
    assert listed == [graph.repo.get_commit(commit.graph_commit_id) for commit in listed]
    assert merged.merged_parent_commit_id == on_dev[-1].graph_commit_id
    assert merged.created_at >= on_dev[-1].created_at


def test_a_commit_on_a_live_branch_is_above_the_state_of_main_it_was_made_on(graph: Graph) -> None:
    graph.branch("dev", is_live=True)
    seen = [graph.commit() for _ in range(4)][-1]
    assert graph.commit("dev", U).generation == seen.generation + 1
    last = graph.commit()
    graph.repo.branch_freeze("dev")
    assert graph.tip("dev").commit.generation == last.generation + 1
    assert graph.tip("dev").made_on == last.graph_commit_id


def as_format_1(data: bytes) -> bytes:
    """An object as it was written before pages had generations and before merges."""
    fields = json.loads(data)
    for commit in (fields, fields.get("head", {})):
        if "recent" in commit:
            commit["recent"] = [summary[:10] for summary in commit["recent"]]
            commit.pop("made_on")
            commit.pop("taken_from")
    return unsealed(json.dumps(fields).encode(), format=1)


def test_history_of_the_first_format_is_read_and_continued(graph: Graph) -> None:
    for _ in range(70):
        graph.commit()
    before = graph.repo.list_commits(limit=None)
    store = testing.store_of(graph.repo)
    for path in (*objects(graph.repo, "_versions"), *objects(graph.repo, "_commits")):
        if path.endswith(".json"):
            store.put(path, as_format_1(store.get(path)))
    store.delete("_versions/main/hint")
    later = Graph(another(graph.repo))
    assert later.repo.list_commits(limit=None) == before
    later.branch("dev", source="main~3")
    for _ in range(10):
        later.commit("dev")
    merged = later.merge("dev")
    assert merged.generation == before[3].generation + 11
    assert later.repo.list_commits(limit=None) == [merged, *before]
    assert later.repo.list_commits(limit=3) == [later.repo.get_commit(f"main~{back}") for back in range(3)]
    later.branch("other", source="main~2")
    later.commit("other")
    assert bases(later, MAIN, "other") == [before[1].graph_commit_id]


# Bases


def test_base_is_the_fork_even_after_other_merges(graph: Graph) -> None:
    first = graph.commit()
    graph.branch("old")
    second = graph.commit()
    graph.branch("new")
    graph.commit("old")
    graph.commit("new")
    for _ in range(3):
        graph.commit()
    graph.merge("old")
    assert bases(graph, MAIN, "new") == [second.graph_commit_id]
    assert bases(graph, MAIN, "old") == [graph.tip("old").commit.graph_commit_id]
    assert bases(graph, "old", "new") == [first.graph_commit_id]
    graph.merge("new")
    assert bases(graph, MAIN, "new") == [graph.tip("new").commit.graph_commit_id]


def test_a_base_is_not_the_nearest_by_distance(graph: Graph) -> None:
    """The oldest common ancestor is one step from both heads, the lowest is ten away."""
    graph.branch("old")
    graph.commit("old")
    for _ in range(5):
        graph.commit()
    parted = graph.commit()
    graph.branch("dev")
    for branch in (MAIN, "dev"):
        for _ in range(10):
            graph.commit(branch)
        graph.merge("old", into=branch)
    old = graph.tip("old").commit
    assert bases(graph, MAIN, "dev") == [parted.graph_commit_id, old.graph_commit_id]
    graph.merge("old", into=MAIN)
    graph.branch("next")
    graph.commit("next")
    assert len(bases(graph, MAIN, "next")) == 1


def test_a_criss_cross_has_two_bases_newest_generation_first(graph: Graph) -> None:
    graph.branch("dev")
    graph.commit()
    on_main = graph.commit()
    on_dev = graph.commit("dev")
    graph.branch("dev-before", source="dev")
    graph.merge("dev", into=MAIN)
    graph.commit("dev-before")
    dev_head = graph.commit("dev")
    assert bases(graph, MAIN, "dev") == [on_dev.graph_commit_id]
    graph.branch("main-before", source=on_main.graph_commit_id)
    graph.merge("main-before", into="dev")
    assert bases(graph, MAIN, "dev") == [on_main.graph_commit_id, on_dev.graph_commit_id]
    assert dev_head.graph_commit_id not in bases(graph, MAIN, "dev")


def test_a_commit_is_its_own_base_and_ancestor(graph: Graph) -> None:
    first = graph.tip()
    last = graph.commit()
    assert bases(graph, MAIN, MAIN) == [last.graph_commit_id]
    assert Ancestry(graph.repo_store).is_ancestor(graph.tip(), graph.tip())
    assert Ancestry(graph.repo_store).is_ancestor(first, graph.tip())
    assert not Ancestry(graph.repo_store).is_ancestor(graph.tip(), first)


BRANCHES = (MAIN, "a", "b", "c")
STEPS = st.tuples(
    st.sampled_from(["commit", "commit", "merge", "merge", "reset"]),
    st.sampled_from(BRANCHES),
    st.sampled_from(BRANCHES),
    st.integers(1, 4),
)


class Traced:
    """A graph beside a plain dict of the parents of each commit."""

    def __init__(self, root: str) -> None:
        self.graph = Graph(ab.init(f"{root}/lake"))
        self.parents: dict[str, tuple[str, ...]] = {self.id(MAIN): ()}
        for name in BRANCHES[1:]:
            self.graph.branch(name)

    def id(self, branch: str) -> str:
        return self.graph.tip(branch).commit.graph_commit_id

    def do(self, what: str, branch: str, other: str, times: int) -> None:
        here, there = self.id(branch), self.id(other)
        if what == "commit":
            for _ in range(times):
                made = self.graph.commit(branch)
                self.parents[made.graph_commit_id] = (here,)
                here = made.graph_commit_id
        elif what == "merge" and here != there:
            self.parents[self.graph.merge(other, into=branch).graph_commit_id] = (here, there)
        elif what == "reset":
            self.graph.repo.reset(branch, to=other)


@given(st.lists(STEPS, max_size=30))
def test_bases_are_those_of_a_plain_search(steps: list[tuple[str, str, str, int]]) -> None:
    with TemporaryDirectory() as root:
        traced = Traced(root)
        for step in steps:
            traced.do(*step)
        parents, repo_store = traced.parents, traced.graph.repo_store
        generations: dict[str, int] = {}
        for commit, above in parents.items():
            generations[commit] = 1 + max(generations[parent] for parent in above) if above else 0
            stored = repo_store.commits.get(commit).commit
            assert stored.generation == generations[commit]
            assert stored == next(iter(repo_store.commits.iter_history(repo_store.commits.get(commit))))
        for ours in BRANCHES:
            for theirs in BRANCHES:
                found = bases(traced.graph, ours, theirs)
                assert set(found) == {*lowest_common(traced.id(ours), traced.id(theirs), parents.__getitem__)}
                assert found == sorted(found, key=lambda one: (-generations[one], one))
                assert Ancestry(repo_store).is_ancestor(traced.graph.tip(ours), traced.graph.tip(theirs)) == (
                    traced.id(ours) in find_ancestors(traced.id(theirs), parents.__getitem__)
                )


# Costs


def cost(
    location: Location, ask: Callable[[RepoStore, CommitRecord, CommitRecord], object], ours: str, theirs: str
) -> int:
    """The requests of a question about two branches whose heads are known."""
    repo, store = open_counted(location)
    repo_store = testing.repo_store_of(repo)
    heads = [repo_store.heads.get(BranchName(name)).head for name in (ours, theirs)]
    store.reset()
    ask(repo_store, *heads)
    assert set(store.counts) <= {"get"}
    return store.total


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """Two thousand commits; branches that left 5, 500 and 1990 commits ago, and a merge of the last one."""
    location = Location(root=str(tmp_path_factory.mktemp("deep")))
    graph = Graph(ab.init(location / "lake"))
    for number in range(2000):
        if number == 10:
            graph.branch("ancient")
            graph.commit("ancient")
        if number == 1500:
            graph.branch("old")
            graph.commit("old")
        if number == 1900:
            graph.merge("ancient")
        if number == 1995:
            graph.branch("new")
            graph.commit("new")
        graph.commit()
    return location


@pytest.mark.parametrize(
    "ask",
    [
        lambda repo_store, a, b: Ancestry(repo_store).find_merge_bases(a, b),
        lambda repo_store, a, b: Ancestry(repo_store).is_ancestor(b, a),
    ],
)
def test_the_cost_grows_with_the_distance_and_not_with_the_history(
    deep: Location, ask: Callable[[RepoStore, CommitRecord, CommitRecord], object]
) -> None:
    assert cost(deep, ask, MAIN, MAIN) == 0
    assert cost(deep, ask, MAIN, "new") <= 1
    assert cost(deep, ask, "new", MAIN) <= 1
    assert cost(deep, ask, MAIN, "old") <= 500 // 64 + 3
    assert cost(deep, ask, "old", MAIN) <= 500 // 64 + 3


def test_the_deep_bases_are_right(deep: Location) -> None:
    graph = Graph(ab.open(deep / "lake"))
    for branch, generation in (("new", 1995), ("old", 1500)):
        (base,) = Ancestry(graph.repo_store).find_merge_bases(graph.tip(), graph.tip(branch))
        assert base.graph_commit_id == graph.tip(branch).commit.parent_commit_id
        assert base.generation >= generation
    assert bases(graph, MAIN, "ancient") == [graph.tip("ancient").commit.graph_commit_id]


def test_many_tables_are_looked_up_for_the_price_of_one(deep: Location) -> None:
    def ask(times: int) -> Callable[[RepoStore, CommitRecord, CommitRecord], object]:
        def many(repo_store: RepoStore, ours: CommitRecord, theirs: CommitRecord) -> None:
            ancestry = Ancestry(repo_store)
            for _ in range(times):
                ancestry.find_table_bases(ours, theirs, T)
                ancestry.find_table_bases(ours, theirs, U)

        return many

    assert cost(deep, ask(1), MAIN, "old") == cost(deep, ask(50), MAIN, "old")
