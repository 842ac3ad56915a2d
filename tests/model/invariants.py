"""Comparisons of a repository with its model."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from anabranch import testing
from anabranch.errors import AnabranchError, CollectedError, CommitNotFoundError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import CommitKind, RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot, Table
from tests.model.history import ModelCommit, ModelView, Tables
from tests.model.model import ModelRepository
from tests.model.outcome import state_of
from tests.model.runs import ModelRun
from tests.model.table import ModelTable, Row


def check_everything(repo: Repository, model: ModelRepository) -> None:
    """Compare every branch, commit, version, moment and run, and what plain Lance readers see."""
    check_present(repo, model)
    check_commits(repo, model)
    check_versions(repo, model)
    check_moments(repo, model)
    check_runs(repo, model)
    for run in model.runs.values():
        check_run(repo, model, run)


def check_present(repo: Repository, model: ModelRepository) -> None:
    """Compare every branch and tag as it is now."""
    check_branches(repo, model)
    check_tags(repo, model)
    for branch in model.branches:
        check_branch(repo, model, branch)


def check_tags(repo: Repository, model: ModelRepository) -> None:
    found = {tag.name: tag.commit_id for tag in repo.tag_list()}
    expected = {name: model.id_of(commit) for name, commit in model.tags.items()}
    _require(found == expected, f"tags {found} are not {expected}")
    for name in expected:
        check_ref(repo, model, name, model.resolve(name))


def check_branches(repo: Repository, model: ModelRepository) -> None:
    """Compare the branches with their heads, parents, modes, protection and own tables."""
    found = {
        info.name: (
            info.head_commit_id,
            info.parent,
            info.version,
            info.mode == "live",
            info.own_tables,
            info.is_protected,
        )
        for info in repo.branch_list()
    }
    expected = {}
    for name in model.branches:
        head = model.head(name)
        own = tuple(sorted(head.own))
        at = len(model.logs[name])
        expected[name] = (model.id_of(head.commit), head.parent, at, head.is_live, own, head.is_protected)
    _require(found == expected, f"branches {found} are not {expected}")


def check_branch(repo: Repository, model: ModelRepository, branch: str) -> None:
    """Compare the tables and the history of a branch, and its homes as other Lance tools see them."""
    view = model.view(branch)
    snapshot = repo.snapshot_of(branch)
    check_snapshot(snapshot, model, view)
    found = [(commit.graph_commit_id, commit.tables) for commit in repo.list_commits(branch, limit=None)]
    expected = [(model.id_of(commit), commit.changed) for commit in view.commit.history()]
    _require(found == expected, f"the history of {branch!r} is {found}, not {expected}")
    check_raw_heads(repo, snapshot, model, branch)


def check_commits(repo: Repository, model: ModelRepository) -> None:
    """Compare all commits, those of deleted branches too."""
    for commit_id, commit in model.commits.items():
        check_ref(repo, model, commit_id, ModelView.of_commit(commit))
        found = repo.get_commit(commit_id)
        parent = None if commit.parent is None else model.id_of(commit.parent)
        merged = None if commit.merged is None else model.id_of(commit.merged)
        parents = found.parent_commit_id, found.merged_parent_commit_id
        _require(parents == (parent, merged), f"{commit_id} has the parents {parents}, not {(parent, merged)}")
        _require((found.branch, found.manifest_version) == (commit.branch, commit.version), f"{found} is misplaced")


def check_versions(repo: Repository, model: ModelRepository) -> None:
    """Compare each log entry of each branch, whether the branch exists or not."""
    for branch, log in model.logs.items():
        for number, entry in enumerate(log, start=1):
            ref = f"{branch}@v{number}"
            found = check_ref(repo, model, ref, ModelView.of_commit(entry.commit))
            _require(found is None or found.version == number, f"{ref} is {found}")


def check_moments(repo: Repository, model: ModelRepository) -> None:
    """Compare each branch at the time of each of its entries, and of the entries of main."""
    for branch, times in model.times.items():
        for time in {*times, *model.times["main"]}:
            ref = f"{branch}@{{{as_moment(time)}}}"
            try:
                expected = model.resolve(ref)
            except AnabranchError:
                continue
            check_ref(repo, model, ref, expected)


def check_ref(repo: Repository, model: ModelRepository, ref: str, expected: ModelView) -> Snapshot | None:
    """Compare what a ref shows. Return None if that was collected, and the repository reports it."""
    is_live = not expected.is_recorded
    is_gone = expected.commit in model.collected or (is_live and expected.below in model.collected)
    try:
        found = repo.snapshot_of(ref)
    except CollectedError as err:
        _require(is_gone, f"{ref} is said to be collected: {err}")
        return None
    _require(not is_gone, f"{ref} was collected, and is {found}")
    check_snapshot(found, model, expected)
    return found


def as_moment(microseconds: int) -> str:
    """Return a time of a log as it is written in a ref."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)).isoformat()


def check_snapshot(snapshot: Snapshot, model: ModelRepository, expected: ModelCommit | ModelView) -> None:
    """Compare the commit and its tables. A state of a table that was compared before is not read again."""
    commit = expected if isinstance(expected, ModelCommit) else expected.commit
    _require(snapshot.id == model.id_of(commit), f"{snapshot} is not {model.id_of(commit)}")
    _check_tables(snapshot, model, expected.tables)


def _check_tables(snapshot: Snapshot, model: ModelRepository, tables: Tables) -> None:
    _require(set(snapshot) == set(tables), f"{set(snapshot)} are not {set(tables)}")
    for key, table in tables.items():
        found = snapshot[key]
        state = state_of(found.entry)
        if model.verified.get(state) is not table or state in model.stale:
            check_table(found, table)
            model.verified[state] = table
            model.stale.discard(state)


def check_table(found: Table, expected: ModelTable) -> None:
    _require(found.primary_key == expected.primary_key, f"the key of {found} is not {expected.primary_key}")
    data = found.to_arrow()
    _require(found.count_rows() == data.num_rows, f"{found} counts {found.count_rows()}, not {data.num_rows} rows")
    _check_rows(data, expected, str(found))


def check_raw_heads(repo: Repository, snapshot: Snapshot, model: ModelRepository, branch: str) -> None:
    """Check that the newest ordinary version of each home of a branch holds exactly what was published."""
    head, log = model.head(branch), model.logs[branch]
    homes = Counter((entry.dataset, entry.home) for entry in snapshot.entries.values())
    for key, expected in head.commit.tables.items():
        if head.is_live and key not in head.own:
            continue  # It is the table of main, which may be in an old home of this branch after a reset of main.
        found = snapshot.entries.get(TableKey.parse(key))
        if found is None or not owns(BranchName(branch), found.home) or homes[found.dataset, found.home] > 1:
            continue
        lives = [entry.commit.tables.get(key) for entry in log if entry.incarnation == head.incarnation]
        if all(table is lives[0] for table in lives) and branch != "main":
            continue  # The home is of an earlier branch of this name, and was not settled since.
        home = testing.config_of(repo).home_of(found)
        _check_rows(home.open().to_table(), expected, home.uri)


def check_runs(repo: Repository, model: ModelRepository) -> None:
    """Compare the list of runs, newest first."""
    found = [(info.id, info.target, info.state, info.tables, info.commit_id) for info in repo.run_list(limit=None)]
    expected = []
    for run in sorted(model.runs.values(), key=lambda run: run.id, reverse=True):
        state = run.phase if run.is_over or run.is_alive else RunPhase.EXPIRED
        commit_id = None if run.published_as is None else model.id_of(run.published_as)
        expected.append((run.id, run.target, state, run.touched, commit_id))
    _require(found == expected, f"runs {found} are not {expected}")


def check_run(repo: Repository, model: ModelRepository, run: ModelRun) -> None:
    """Compare the tables of a run, check that they are not visible outside of it, and compare its commit."""
    for commit_id in run.commit_ids:
        try:
            seen = repo.snapshot_of(commit_id)
        except CommitNotFoundError:
            continue
        raise AssertionError(f"{seen} of {run.id} is seen outside of it")
    if run.published_as is not None:
        commit = repo.get_commit(model.id_of(run.published_as))
        reported = (commit.kind, commit.metadata.get("run_id"))
        _require(reported == (CommitKind.PUBLISH_RUN, run.id), f"{commit} does not name its run {run.id}")
    if not run.is_over:
        snapshot = repo.run_get(run.id).snapshot()
        _check_tables(snapshot, model, run.tables)
        _check_nothing_leaks(repo, snapshot, model)


def _check_nothing_leaks(repo: Repository, snapshot: Snapshot, model: ModelRepository) -> None:
    """Check that plain Lance readers of the homes of a run see a published state, or no rows."""
    for entry in snapshot.entries.values():
        home = testing.config_of(repo).home_of(entry)
        rows = _bag(home.open().to_table().to_pylist())
        published = (table for commit in model.commits.values() for table in commit.tables.values())
        _require(not rows or any(rows == _bag(table.rows) for table in published), f"{home.uri} shows {rows}")


def _check_rows(found: pa.Table, expected: ModelTable, name: str) -> None:
    columns = tuple(found.column_names)
    _require(columns == expected.columns, f"{name} has the columns {columns}, not {expected.columns}")
    rows, wanted = _bag(found.to_pylist()), _bag(expected.rows)
    _require(rows == wanted, f"{name} holds {rows}, not {wanted}")


def _bag(rows: Iterable[Row]) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001 - an assertion in words
    if not holds:
        raise AssertionError(problem)
