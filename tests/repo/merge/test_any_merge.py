"""Merges of any two branches of random histories with schema changes: laws that hold for every result."""

import tempfile
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import event, given, settings

import anabranch as ab
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.repo.merge.plan import MergeOutcome
from tests.repo.history.test_any_diff import begin, freeze, take_step

FEW = settings(max_examples=settings().max_examples // 5)


@FEW
@given(st.data())
def test_a_merge_is_made_or_its_conflicts_are_reported(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = begin(f"{folder}/lake")
        for _ in range(data.draw(st.integers(2, 5), label="steps")):
            step(repo, data)
        names = [branch.name for branch in repo.branch_list()]
        source = data.draw(st.sampled_from(names), label="source")
        into = data.draw(st.sampled_from(names), label="into")
        for strategy in ("fail", "source", "target"):
            target = f"into-{strategy}"
            repo.branch_create_from(into, target)
            check(repo, source, target, strategy)


@FEW
@given(st.data())
def test_merge_into_an_unchanged_target_gives_the_state_of_the_source(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = begin(f"{folder}/lake")
        for name in ("live", "dev"):
            repo.branch_delete(name)
        repo.branch_create("dev")
        before = repo.snapshot().id
        for _ in range(data.draw(st.integers(1, 3), label="steps")):
            step(repo, data)
            repo.reset("main", to=before)  # only others continue
        for branch in repo.branch_list():
            if branch.name != "main":
                into = f"into-{branch.name}"
                repo.branch_create_from("main", into)
                planned = repo.merge(branch.name, into=into, dry_run=True).plan
                if planned.base_commit_ids == (before,):  # else it was reset to something older
                    repo.merge(branch.name, into=into)
                    assert state(repo, into) == state(repo, branch.name)


def step(repo: ab.Repository, data: st.DataObject) -> None:
    try:
        take_step(repo, data)
    except AnabranchError as err:
        event(err.code)


def state(repo: ab.Repository, branch: str) -> dict[str, tuple[object, ...]]:
    """Every table: its columns, in whatever order, its key and its rows."""
    return {
        key: (
            {field.name: (field.type, field.nullable) for field in table.schema},
            table.primary_key,
            Counter(map(freeze, table.to_arrow().to_pylist())),
        )
        for key, table in repo.snapshot_of(branch).items()
    }


def check(repo: ab.Repository, source: str, into: str, strategy: str) -> None:
    before = state(repo, into), state(repo, source)
    conflicts = list(repo.conflicts(source, into=into, strategy=strategy))
    planned = repo.merge(source, into=into, strategy=strategy, dry_run=True).plan
    assert (planned.conflict_count, planned.conflicts) == (len(conflicts), tuple(conflicts[:100]))
    if conflicts:
        event(f"{strategy}: conflicts")
        with pytest.raises(MergeConflictError) as caught:
            repo.merge(source, into=into, strategy=strategy)
        assert (caught.value.count, caught.value.conflicts) == (len(conflicts), planned.conflicts)
        assert (state(repo, into), state(repo, source)) == before
        return
    done = repo.merge(source, into=into, strategy=strategy)
    event(f"{strategy}: {done.outcome}")
    assert done.plan == planned
    assert state(repo, source) == before[1]
    for table in repo.snapshot_of(into).values():
        keys = [tuple(row.values()) for row in table.to_arrow(columns=list(table.primary_key)).to_pylist()]
        assert not table.primary_key or len(set(keys)) == len(keys), "a key is there twice"
    assert repo.merge(source, into=into).outcome is MergeOutcome.ALREADY_UP_TO_DATE
