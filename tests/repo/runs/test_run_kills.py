"""Runs killed at every point of what they do: their target is whole, nothing waits for them, and they end once."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import BranchInUseError, BranchNotFoundError, CollectedError, RunEndedError
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.runs.runs import RUN_ID, RunInfo
from tests.processes import Program
from tests.repo.gc.object_ages import pass_time
from tests.repo.leases import expire
from tests.repo.programs import ledger, runs

EVERY_NTH_POINT = 17

BEFORE = "99-0"


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    repo = ab.init(tmp_path / "lake")
    ledger.create(repo)
    ledger.commit(repo, BEFORE)
    return repo


def has_put(passed: list[str], folder: str) -> bool:
    """Whether a process put an entry into a log: `_runs` of a run, `_versions` of a branch."""
    return any(point.startswith(f"after put_if_absent {folder}/") for point in passed)


def find_run(repo: Repository, message: str) -> RunInfo | None:
    return next((found for found in repo.run_list(limit=None) if found.message == message), None)


def commits_of(repo: Repository, run_id: str, branch: str = "main") -> list[str]:
    """The commits that a run was published as."""
    history = repo.list_commits(branch, limit=None)
    return [commit.graph_commit_id for commit in history if commit.metadata.get(RUN_ID) == run_id]


def assert_whole(uri: str, branch: str = "main", keys: tuple[str, ...] = ledger.TABLES) -> list[str]:
    """The marks of what was published, each in all tables or in none; plain Lance may be behind, but not ahead."""
    repo = ab.open(uri)
    published = ledger.marks(repo, branch)
    rows, wanted = ledger.read(repo, branch), ledger.expected(published)
    assert {key: rows[key] for key in keys} == {key: wanted[key] for key in keys}
    for key, path in ledger.homes(repo, branch).items():
        if key in keys:
            assert ledger.is_some_state(key, ledger.read_plain(path, {}), published)
    return published


def assert_new_table(repo: Repository, mark: str, branch: str = "main", *, is_there: bool) -> None:
    """The table that a run makes is there with its row or not at all; plain Lance sees no row too early."""
    new, wanted = ledger.new_table(mark), [(1, mark)]
    snapshot = repo.snapshot_of(branch)
    assert (new in snapshot) is is_there
    if is_there:
        assert ledger.found(snapshot[new].to_arrow()) == wanted
    dataset = Path(repo.uri, "tables", f"{new.replace('.', '/')}.lance")
    for path in [dataset, *dataset.glob("tree/*/*/*")]:
        if list(path.glob("_versions/*.manifest")):
            assert ledger.read_plain(str(path), {}) in ([], wanted if is_there else [])


def assert_new_run_publishes(uri: str, mark: str, branch: str = "main") -> None:
    """A run that begins right now is published, and plain Lance sees it and all before it."""
    repo = ab.open(uri)
    before = ledger.marks(repo, branch)
    with repo.begin_run(branch, message=mark) as run:
        runs.write_in_steps(run, mark)
    assert ledger.marks(repo, branch) == [*before, mark]
    rows = ledger.read(repo, branch)
    assert rows == ledger.expected([*before, mark])
    for key, path in ledger.homes(repo, branch).items():
        if key in ledger.TABLES:
            assert ledger.read_plain(path, {}) == rows[key]
    assert_new_table(repo, mark, branch, is_there=True)


def is_stage(point: str) -> bool:
    """Whether a point is a put of a staged manifest, whose name begins with a d, or a commit of one by Lance."""
    return "stage" in point or bool(re.search(r" put \S*_versions/d\d+\.manifest$", point))


def test_run(process_pool: Program, lake: Repository, every: int) -> None:
    points = process_pool.points_of("a run", uri=lake.uri, name="1-0")
    assert sum(is_stage(point) for point in points) == 2 * 6
    settles = [point for point in points if "put_if_absent" in point and point.endswith(".manifest")]
    assert len(settles) == 2 * 4
    seen = set()
    for fatal in range(0, len(points), every):
        mark = f"2-{fatal}"
        passed = process_pool.kill_at(fatal, "a run", uri=lake.uri, name=mark)
        is_published = has_put(passed, "_versions")
        assert assert_whole(lake.uri).count(mark) == is_published
        assert_new_table(lake, mark, is_there=is_published)
        assert_new_run_publishes(lake.uri, f"3-{fatal}")
        expire(lake)
        found = find_run(lake, mark)
        assert (found is not None) is has_put(passed, "_runs")
        if found is not None:
            assert found.state is (RunPhase.PUBLISHED if is_published else RunPhase.EXPIRED)
            assert [found.commit_id] * is_published == commits_of(lake, found.id)
            assert_can_be_aborted(lake, found, is_published=is_published)
        seen.add(None if found is None else found.state)
    assert seen == {None, RunPhase.PUBLISHED, RunPhase.EXPIRED}


def assert_can_be_aborted(repo: Repository, run: RunInfo, *, is_published: bool) -> None:
    """Another process tidies up: what was published stays, all else is forgotten."""
    before = repo.head_commit_id_for_branch("main")
    if is_published:
        with pytest.raises(RunEndedError, match="published"):
            repo.run_get(run.id).abort()
    else:
        repo.run_get(run.id).abort()
    now = repo.run_get(run.id).info()
    assert now.state is (RunPhase.PUBLISHED if is_published else RunPhase.ABORTED)
    assert now.commit_id == run.commit_id
    assert repo.head_commit_id_for_branch("main") == before


def test_run_on_a_branch_where_it_is_the_first_to_write(process_pool: Program, lake: Repository, every: int) -> None:
    lake.branch_create("dev/1-0")
    points = process_pool.points_of("a run on a branch", uri=lake.uri, name="1-0")
    assert sum(point.endswith(" clone") for point in points) == 2 * 4
    for fatal in range(0, len(points), every):
        mark, branch = f"2-{fatal}", f"dev/2-{fatal}"
        lake.branch_create(branch)
        passed = process_pool.kill_at(fatal, "a run on a branch", uri=lake.uri, name=mark)
        is_published = has_put(passed, "_versions")
        assert assert_whole(lake.uri, branch).count(mark) == is_published
        assert_new_table(lake, mark, branch, is_there=is_published)
        assert_new_run_publishes(lake.uri, f"3-{fatal}", branch)
        found = find_run(lake, mark)
        if found is not None and found.state is RunPhase.RUNNING:
            with pytest.raises(BranchInUseError, match=found.id):
                lake.branch_delete(branch)
        expire(lake)
        lake.branch_delete(branch)
        with pytest.raises(BranchNotFoundError):
            lake.snapshot_of(branch)
    assert ledger.read(ab.open(lake.uri)) == ledger.expected([BEFORE])


def test_publishing_on_a_target_that_has_moved(process_pool: Program, lake: Repository, every: int) -> None:
    """What was appended is staged again; the process that finds the run at once publishes it, exactly once."""
    points = process_pool.points_of("publish a run", uri=lake.uri, name=_prepared(lake, "1-0"))
    assert sum(is_stage(point) for point in points) == 2 * len(runs.APPENDED)
    seen = set()
    for fatal in range(0, len(points), every):
        mark = f"2-{fatal}"
        run_id = _prepared(lake, mark)
        passed = process_pool.kill_at(fatal, "publish a run", uri=lake.uri, name=run_id)
        is_published = has_put(passed, "_versions")
        assert assert_whole(lake.uri, keys=runs.APPENDED).count(mark) == is_published
        assert_new_table(lake, mark, is_there=is_published)
        found = ab.open(lake.uri).run_get(run_id)
        try:
            commit = found.publish()
        except RunEndedError as err:
            assert is_published and "published" in err.problem  # noqa: PT017, PT018 - killed after the run was closed
        else:
            assert commit is not None
            assert commit.message == mark
        seen.add(is_published)
        assert assert_whole(lake.uri, keys=runs.APPENDED).count(mark) == 1
        assert_new_table(lake, mark, is_there=True)
        assert found.info().state is RunPhase.PUBLISHED
        assert [found.info().commit_id] == commits_of(lake, run_id)
    assert seen == {False, True}
    _prepared(lake, "3-0")  # the next writer also settles what the killed one left
    rows = ledger.read(lake)
    for key, path in ledger.homes(lake).items():
        assert key not in ledger.TABLES or ledger.read_plain(path, {}) == rows[key]


def count_puts(passed: list[str], folder: str) -> int:
    return sum(point.startswith(f"after put_if_absent {folder}/") for point in passed)


def test_run_whose_commit_is_rolled_back_is_published_by_the_next_attempt(
    process_pool: Program, lake: Repository, every: int
) -> None:
    """The writer is killed after the put of its entry: before, during and after the roll-back."""
    scenario = "publish a run with an expired lease"
    points = process_pool.points_of(scenario, uri=lake.uri, name=_prepared(lake, "1-0"))
    put, rolled_back = [i for i, point in enumerate(points) if point.startswith("after put_if_absent _versions/")]
    assert "put _commits/" in " ".join(points[rolled_back:])  # the mark, which may be missing
    for fatal in range(put, len(points)) if every == 1 else (put, rolled_back):
        mark = f"2-{fatal}"
        run_id = _prepared(lake, mark)
        passed = process_pool.kill_at(fatal, scenario, uri=lake.uri, name=run_id)
        is_published = count_puts(passed, "_versions") == 1
        assert assert_whole(lake.uri, keys=runs.APPENDED).count(mark) == is_published
        found = ab.open(lake.uri).run_get(run_id)
        expire(lake)
        assert found.info().state is (RunPhase.PUBLISHED if is_published else RunPhase.EXPIRED)
        commit = found.publish()
        assert commit is not None
        assert commit.message == mark
        assert assert_whole(lake.uri, keys=runs.APPENDED).count(mark) == 1
        assert [found.info().commit_id] == commits_of(lake, run_id)


def test_garbage_collection_collects_a_commit_whose_roll_back_was_cut_off(
    process_pool: Program, lake: Repository
) -> None:
    scenario = "publish a run with an expired lease"
    points = process_pool.points_of(scenario, uri=lake.uri, name=_prepared(lake, "1-0"))
    rolled_back = [i for i, point in enumerate(points) if point.startswith("after put_if_absent _versions/")][1]
    process_pool.kill_at(rolled_back, scenario, uri=lake.uri, name=_prepared(lake, "2-0"))
    entry = lake.reflog(limit=2)[1]
    assert lake.snapshot_of(entry.commit_id).id == entry.commit_id
    pass_time(lake)
    before = assert_whole(lake.uri, keys=runs.APPENDED)
    assert lake.gc().damaged == ()
    with pytest.raises(CollectedError):
        lake.snapshot_of(entry.commit_id)
    assert assert_whole(lake.uri, keys=runs.APPENDED) == before
    assert lake.doctor().is_clean


@pytest.mark.parametrize(
    ("scenario", "publish"),
    [
        ("publish a batch with an expired lease", runs.publish_batch),
        ("commit once with an expired lease", runs.commit_once),
    ],
)
def test_change_whose_commit_is_rolled_back_is_published_by_the_next_attempt(
    process_pool: Program, lake: Repository, scenario: str, publish: Callable[[Repository, str], None], every: int
) -> None:
    points = process_pool.points_of(scenario, uri=lake.uri, name="1-0")
    rolled_back = [i for i, point in enumerate(points) if point.startswith("after put_if_absent _versions/")][1]
    for fatal in range(rolled_back, len(points)) if every == 1 else (rolled_back,):
        mark = f"2-{fatal}"
        process_pool.kill_at(fatal, scenario, uri=lake.uri, name=mark)
        assert mark not in assert_whole(lake.uri)
        for _ in range(2):
            publish(ab.open(lake.uri), mark)
            assert assert_whole(lake.uri).count(mark) == 1


def _prepared(repo: Repository, mark: str) -> str:
    """A run with all its work done, whose target has other rows by now."""
    run = repo.begin_run("main", message=mark)
    runs.append_in_steps(run, mark)
    ledger.commit(repo, mark.replace("-", "7-"))
    return run.id


def test_run_that_fails(process_pool: Program, lake: Repository, every: int) -> None:
    points = process_pool.points_of("a run that fails", uri=lake.uri, name="1-0")
    failed = lake.run_list()[0]
    assert (failed.state, failed.error) == (RunPhase.FAILED, "ValueError: 1-0")
    is_over = next(i for i in reversed(range(len(points))) if points[i].startswith("after put_if_absent _runs/"))
    for fatal in sorted({*range(0, len(points), every), is_over - 1, is_over}):
        mark = f"2-{fatal}"
        process_pool.kill_at(fatal, "a run that fails", uri=lake.uri, name=mark)
        assert mark not in assert_whole(lake.uri)
        assert_new_table(lake, mark, is_there=False)
        expire(lake)
        found = find_run(lake, mark)
        if found is not None:
            assert found.state is (RunPhase.FAILED if fatal >= is_over else RunPhase.EXPIRED)
    assert_new_run_publishes(lake.uri, "3-0")


def test_abort(process_pool: Program, lake: Repository) -> None:
    points = process_pool.points_of("abort a run", uri=lake.uri, name=_prepared(lake, "1-0"))
    moved = assert_whole(lake.uri, keys=runs.APPENDED)
    seen = set()
    for fatal in range(len(points)):
        run = lake.begin_run("main", message=f"2-{fatal}")
        runs.append_in_steps(run, f"2-{fatal}")
        passed = process_pool.kill_at(fatal, "abort a run", uri=lake.uri, name=run.id)
        is_aborted = has_put(passed, "_runs")
        expire(lake)
        assert run.info().state is (RunPhase.ABORTED if is_aborted else RunPhase.EXPIRED)
        if not is_aborted:
            run.abort()
        with pytest.raises(RunEndedError, match="aborted"):
            run.publish()
        assert assert_whole(lake.uri, keys=runs.APPENDED) == moved
        seen.add(is_aborted)
    assert seen == {False, True}
    with lake.begin_run("main", message="3-0") as run:
        runs.append_in_steps(run, "3-0")
    assert assert_whole(lake.uri, keys=runs.APPENDED) == [*moved, "3-0"]
