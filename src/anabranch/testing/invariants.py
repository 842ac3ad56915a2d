"""What must hold between a repository and its model, whatever was done to both."""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from anabranch.ids import TableKey
from anabranch.repo.repository import Repository
from anabranch.repo.snapshots import Snapshot, Table
from anabranch.testing.model import ModelCommit, ModelRepository, ModelTable, Row

__all__ = [
    "check_branch",
    "check_branches",
    "check_commits",
    "check_everything",
    "check_raw_heads",
    "check_snapshot",
    "check_table",
]


def check_everything(repo: Repository, model: ModelRepository) -> None:
    """Every branch, every commit there ever was, every version, and what raw readers see."""
    check_branches(repo, model)
    for branch in model.branches:
        check_branch(repo, model, branch)
    check_commits(repo, model)
    check_versions(repo, model)


def check_branches(repo: Repository, model: ModelRepository) -> None:
    """The same branches, with the same heads and parents."""
    found = {info.name: (info.head_commit_id, info.parent, info.version) for info in repo.branch_list()}
    expected = {
        name: (model.id_of(model.head(name).commit), model.head(name).parent, len(model.logs[name]))
        for name in model.branches
    }
    _require(found == expected, f"branches {found} are not {expected}")


def check_branch(repo: Repository, model: ModelRepository, branch: str) -> None:
    """The tables and the history of a branch, and its homes as any Lance tool sees them."""
    head = model.head(branch).commit
    snapshot = repo.snapshot_of(branch)
    check_snapshot(snapshot, model, head)
    found = [(commit.graph_commit_id, commit.tables) for commit in repo.list_commits(branch, limit=None)]
    expected = [(model.id_of(commit), commit.changed) for commit in head.history()]
    _require(found == expected, f"the history of {branch!r} is {found}, not {expected}")
    check_raw_heads(repo, snapshot, model, branch)


def check_commits(repo: Repository, model: ModelRepository) -> None:
    """All commits can be read by their ids, those of deleted branches too."""
    for commit_id, commit in model.commits.items():
        check_snapshot(repo.snapshot_of(commit_id), model, commit)
        found = repo.get_commit(commit_id)
        parent = None if commit.parent is None else model.id_of(commit.parent)
        _require(found.parent_commit_id == parent, f"{commit_id} has the parent {found.parent_commit_id}, not {parent}")
        _require((found.branch, found.manifest_version) == (commit.branch, commit.version), f"{found} is misplaced")


def check_versions(repo: Repository, model: ModelRepository) -> None:
    """Each entry of each log stands for its commit, whether the branch exists or not."""
    for branch, log in model.logs.items():
        for number, entry in enumerate(log, start=1):
            found = repo.snapshot_of(f"{branch}@v{number}")
            expected = model.id_of(entry.commit)
            _require((found.id, found.version) == (expected, number), f"{branch}@v{number} is {found}, not {expected}")


def check_snapshot(snapshot: Snapshot, model: ModelRepository, commit: ModelCommit) -> None:
    _require(snapshot.id == model.id_of(commit), f"{snapshot} is not {model.id_of(commit)}")
    _require(set(snapshot) == set(commit.tables), f"{set(snapshot)} are not {set(commit.tables)}")
    for key, expected in commit.tables.items():
        check_table(snapshot[key], expected)


def check_table(found: Table, expected: ModelTable) -> None:
    _require(found.primary_key == expected.primary_key, f"the key of {found} is not {expected.primary_key}")
    data = found.to_arrow()
    _require(found.count_rows() == data.num_rows, f"{found} counts {found.count_rows()}, not {data.num_rows} rows")
    _check_rows(data, expected, str(found))


def check_raw_heads(repo: Repository, snapshot: Snapshot, model: ModelRepository, branch: str) -> None:
    """Where the branch has written, the home's newest ordinary version holds exactly what was published."""
    head = model.head(branch)
    for key, expected in head.commit.tables.items():
        maker = next(commit for commit in head.commit.history() if key in commit.changed)
        if (maker.branch, maker.incarnation) != (branch, head.incarnation):
            continue  # read through the branch's source, or left by an earlier branch of this name
        home = repo._context.home_of(snapshot.entries[TableKey.parse(key)])
        _check_rows(home.open().to_table(), expected, home.uri)


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
