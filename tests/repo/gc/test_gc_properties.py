"""Random histories, then garbage collection: each commit is unchanged or reported as collected."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import lance
from hypothesis import event, given, settings

import anabranch as ab
from anabranch.errors import AnabranchError, CollectedError, RunEndedError
from tests.repo.conftest import rows
from tests.repo.gc.histories import KEYS, SCHEMA, STEPS, History, collect
from tests.repo.gc.needed import find_unreachable, is_collected, read_all, read_what_can_be_read
from tests.repo.gc.object_ages import pass_time

_ALL = settings().max_examples
_IS_QUICK = _ALL < 100
FEW = settings(max_examples=_ALL // 2 if _IS_QUICK else _ALL)

numbers = st.integers(0, 1000)
# What makes commits comes often, else there is nothing to lose.
often = ["change"] * 10 + ["branch"] * 4 + ["merge"] * 2 + ["reset", "run", "tag", "wait"]
steps = st.tuples(st.sampled_from([*often, *STEPS]), numbers, numbers)
histories = st.lists(steps, min_size=5, max_size=14 if _IS_QUICK else 25)


@FEW
@given(history=histories, keep=numbers, age=st.sampled_from(["old", "young"]))
def test_every_commit_is_unchanged_or_reported_as_collected(
    history: list[tuple[str, int, int]], keep: int, age: str
) -> None:
    with TemporaryDirectory() as folder:
        made = begin(folder)
        for step in history:
            made.do(step)
        for outcome in made.outcomes:
            event(outcome)
        if age == "old":
            end_runs(made)
            made.remember()
            pass_time(made.repo)
        collect(made, keep, keep // 4)
        assert_whole(made, keep_last=(None, 1, 2, 3)[keep % 4])
        if age == "old":
            assert find_unreachable(made.repo) == {}
        assert_continues(made)


def begin(folder: str) -> History:
    repo = ab.init(Path(folder, "lake"))
    with repo.transaction() as tx:
        for key in KEYS[:2]:
            tx.create_table(key, SCHEMA, primary_key=[] if key == "s.keyless" else ["id"])
    return History(repo)


def end_runs(made: History) -> None:
    """Alive, they would hold back what is younger."""
    for run in made.runs:
        with suppress(RunEndedError):  # one that was taken for dead
            run.abort()


def assert_whole(made: History, *, keep_last: int | None) -> None:
    repo = made.repo
    found = read_what_can_be_read(repo, made.rows)
    for commit_id, before in made.rows.items():
        assert found[commit_id] in ("collected", before)
        assert (found[commit_id] == "collected") == is_collected(repo, commit_id)
    event(f"{sum(each == 'collected' for each in found.values()) > 0} that some were collected")
    for name in made.branches:
        read_all(repo, name)
        kept = repo.list_commits(name, limit=keep_last)
        gone = [is_collected(repo, commit.graph_commit_id) for commit in kept]
        assert not gone[0]
        # What was collected before, under a stricter policy, does not come back.
        assert "gc" in made.outcomes or not any(gone)
        for key, table in repo.snapshot_of(name).items():
            if name != "main" and f"/tree/{name}/" in table.uri:
                assert rows(repo.snapshot_of(name)[key]) == plain_rows(table.uri)
    for tag in repo.tag_list():
        assert read_all(repo, tag.name) == made.rows[tag.commit_id]
    for target, commit_id in made.clones:
        assert read_all(ab.open(target), "main") == made.rows[commit_id]
    for run in made.runs:
        try:
            snapshot = run.snapshot()
        except AnabranchError:
            continue  # it is over
        for key in snapshot:
            snapshot[key].to_arrow()
    assert_versions(made)


def plain_rows(uri: str) -> list[dict[str, object]]:
    return rows(lance.dataset(uri))


def assert_versions(made: History) -> None:
    """Each entry of each log can be read, or is reported as collected."""
    for branch in made.repo.branch_list():
        for number in range(1, branch.version + 1):
            try:
                read_all(made.repo, f"{branch.name}@v{number}")
            except CollectedError:
                event("an old version was collected")


def assert_continues(made: History) -> None:
    """Every branch can be written, and merged into main."""
    repo = made.repo
    for name in made.branches:
        with repo.transaction(name) as tx:
            for key in tx.tables:
                tx.append(key, made.new_rows(1).select(tx[key].schema.names))
        read_all(repo, name)
    for name in made.branches:
        if name != "main":
            made.do(("merge", made.branches.index(name), made.branches.index("main")))
    read_all(repo, "main")
