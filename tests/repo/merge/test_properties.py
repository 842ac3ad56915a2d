"""Laws of merging on random histories, judged by the model."""

import tempfile
from typing import Any

import hypothesis.strategies as st
from hypothesis import event, given, settings

from anabranch.errors import MergeConflictError
from anabranch.repo.merge.plan import MergeOutcome
from tests.repo.merge.histories import BRANCHES, COLUMNS, TABLES, History, rows_of

# A history takes long to make; these are long enough for each step to meet any other.
FEW = settings(max_examples=settings().max_examples // 4)

branches = st.sampled_from(BRANCHES)
tables = st.sampled_from(TABLES)
numbers = st.integers(0, 7)
values = st.one_of(st.integers(0, 2), st.none())
rows = st.dictionaries(numbers, st.fixed_dictionaries({}, optional=dict.fromkeys(COLUMNS, values)), max_size=3)
writes = st.one_of(
    st.tuples(st.just("upsert"), branches, tables, rows),
    st.tuples(st.just("upsert"), branches, tables, rows),
    st.tuples(st.just("delete"), branches, tables, st.sets(numbers, min_size=1, max_size=3)),
    st.tuples(st.just("add_column"), branches, tables, st.sampled_from(COLUMNS[2:]), values),
)
strategies = st.sampled_from(["source", "target"])
merges = st.tuples(st.just("merge"), branches, branches, strategies)
others = st.one_of(st.tuples(st.just("compact"), branches), st.tuples(st.just("pull"), branches, tables))
steps = st.lists(st.one_of(writes, writes, writes, merges, merges, others), min_size=6, max_size=16)


def do(history: History, step: tuple[Any, ...]) -> None:
    name, *rest = step
    if name == "merge":
        source, into, strategy = rest
        if source != into:
            history.merge(source, into, strategy=strategy)
    else:
        getattr(history, name)(*rest)


@FEW
@given(steps)
def test_a_merge_is_that_of_the_model(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/lake")
        for step in steps:
            event(step[0])
            do(history, step)
        history.merge("dev", "main", strategy="source")
        history.check()


@FEW
@given(st.lists(writes, min_size=2, max_size=6))
def test_a_merge_with_itself_changes_nothing(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/lake")
        for step in steps:
            do(history, step)
        for branch in BRANCHES:
            for source in (branch, history.repo.head_commit_id_for_branch(branch)):
                done = history.repo.merge(source, into=branch)
                assert (done.outcome, done.commit) == (MergeOutcome.ALREADY_UP_TO_DATE, None)
        history.repo.merge("dev", into="main", strategy="source")
        assert history.repo.merge("dev", into="main").outcome is MergeOutcome.ALREADY_UP_TO_DATE


@FEW
@given(st.lists(writes, min_size=3, max_size=8))
def test_the_order_of_merges_does_not_matter(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/lake")
        for step in steps:
            do(history, step)
        repo = history.repo
        found: list[dict[str, Any] | None] = []
        for name, order in (("one", ("dev", "live")), ("other", ("live", "dev"))):
            repo.branch_create_from("main", name)
            try:
                for source in order:
                    repo.merge(source, into=name)
            except MergeConflictError:
                found.append(None)
            else:
                found.append({key: rows_of(table.to_arrow()) for key, table in repo.snapshot_of(name).items()})
        event("conflicts" if None in found else "clean")
        assert found[0] == found[1]
