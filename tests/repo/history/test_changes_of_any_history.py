"""The change feed of any table of random histories: replayed on plain rows, it gives the rows of the table."""

import tempfile
from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import event, given

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidInputError, NotInHistoryError, TableNotFoundError
from anabranch.repo.history.changes import CommitChanges
from anabranch.repo.history.diff import RowChangeKind
from tests.repo.history.test_any_diff import Frozen, begin, freeze, names_of, padded, rename, rows_of, take_step


@given(st.data())
def test_the_changes_of_any_table_make_each_state_of_it_out_of_the_one_before(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = begin(f"{folder}/lake")
        for _ in range(data.draw(st.integers(3, 8), label="steps")):
            try:
                take_step(repo, data)
                if data.draw(st.booleans(), label="merges"):
                    merge(repo, data)
            except AnabranchError as err:
                event(err.code)
        for branch in repo.branch_list():
            until = repo.head_commit_id_for_branch(branch.name)
            history = [commit.graph_commit_id for commit in repo.list_commits(until, limit=None)]
            since = data.draw(st.sampled_from([None, *history]), label=f"since, on {branch.name}")
            for key in ("s.a", "s.b", "t.c"):
                check(repo, key, since=since, until=until)


def merge(repo: ab.Repository, data: st.DataObject) -> None:
    names = [branch.name for branch in repo.branch_list()]
    source, target, *_ = data.draw(st.permutations(names), label="merged into")
    repo.merge(source, into=target, strategy="source")


def check(repo: ab.Repository, key: str, *, since: str | None, until: str) -> None:
    state = rows_at(repo, key, since)
    try:
        steps = list(repo.changes(key, since=since, until=until))
    except TableNotFoundError:
        assert not state
        assert not rows_at(repo, key, until)
        return
    for step in steps:
        event(step.commit.kind.value)
        state = replayed(state, step)
        assert state == rows_at(repo, key, step.commit.graph_commit_id)
    assert state == rows_at(repo, key, until)
    for one, next_one in pairwise(steps):
        assert one.commit.generation < next_one.commit.generation


def replayed(state: Counter[Frozen], step: CommitChanges) -> Counter[Frozen]:
    rows = list(step.iter_rows())
    found = Counter(row.change for row in rows)
    assert (step.counts.inserted, step.counts.updated, step.counts.deleted) == tuple(
        found[kind] for kind in RowChangeKind
    )
    gone = Counter(freeze(row.before) for row in rows if row.before is not None)
    come = Counter(freeze(row.after) for row in rows if row.after is not None)
    assert gone <= state, "a row was changed that was not there"
    names = names_of(step.diff)
    kept = Counter({rename(row, names): number for row, number in (state - gone).items()})
    return padded(kept + come, step.diff.after)


def rows_at(repo: ab.Repository, key: str, ref: str | None) -> Counter[Frozen]:
    snapshot = {} if ref is None else repo.snapshot_of(ref)
    return rows_of(snapshot.get(key))


@given(st.data())
def test_two_commits_are_in_one_line_or_the_error_names_why_not(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = begin(f"{folder}/lake")
        known = {repo.snapshot().id}
        for _ in range(data.draw(st.integers(3, 6), label="steps")):
            try:
                take_step(repo, data)
            except AnabranchError as err:
                event(err.code)
            known |= {repo.head_commit_id_for_branch(branch.name) for branch in repo.branch_list()}
        since, until = (data.draw(st.sampled_from(sorted(known)), label=label) for label in ("since", "until"))
        older, newer = (
            {commit.graph_commit_id for commit in repo.list_commits(ref, limit=None)} for ref in (since, until)
        )
        expected: type[AnabranchError] | None = None
        if since not in newer:
            expected = InvalidInputError if until in older else NotInHistoryError
        found: type[AnabranchError] | None = None
        try:
            list(repo.changes("s.a", since=since, until=until))
        except TableNotFoundError:
            found = expected
        except AnabranchError as err:
            found = type(err)
        assert found is expected
        event(str(expected))
