"""Blame: the commit that last changed each row and each cell, compared with the replay of each commit."""

import random
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.format.staging import ColumnChange
from tests.repo import histories
from tests.repo.histories import TABLE, rows


def messages(repo: ab.Repository, **options: Any) -> dict[Any, str]:
    """Return the message of the commit by the key, and by the column of a cell."""
    found = repo.blame(TABLE, **options).to_pylist()
    return {(row["id"], row["column"]) if "column" in row else row["id"]: row["message"] for row in found}


def commit(repo: ab.Repository, message: str, branch: str = "main", **steps: Any) -> None:
    with repo.transaction(branch, message=message) as tx:
        for name, arguments in steps.items():
            getattr(tx, name)(TABLE, *arguments)


def test_rows_are_blamed_on_the_commit_that_changed_them_last(repo: ab.Repository) -> None:
    histories.begin(repo)
    commit(repo, "two", upsert=[rows([2, 5], "b")])
    commit(repo, "same values", upsert=[rows([1], "a")])
    commit(repo, "compact", compact=[])
    commit(repo, "gone", delete=["id = 3"])
    found = repo.blame(TABLE)
    assert found.column_names == ["id", "commit_id", "committed_at", "actor", "message"]
    assert messages(repo) == {1: "begin", 2: "two", 4: "begin", 5: "two"}
    assert messages(repo, where="id > 1", limit=2) == {2: "two", 4: "begin"}
    assert messages(repo, ref="main~4") == dict.fromkeys([1, 2, 3, 4], "begin")
    two = found.filter(pa.compute.equal(found["id"], 2)).to_pylist()[0]
    made = repo.get_commit(two["commit_id"])
    assert (two["actor"], two["committed_at"]) == (made.actor_id, made.created)


def test_cells_are_blamed_through_added_and_renamed_columns(repo: ab.Repository) -> None:
    histories.begin(repo)
    commit(repo, "add", add_columns=[{"w": "id * 2"}])
    commit(repo, "rename", alter_columns=[[ColumnChange(path="v", name="x")]])
    commit(repo, "change", update=[{"x": "'z'"}, "id = 1"])
    commit(repo, "empty", add_columns=[pa.schema([("n", pa.int64())])])
    found = messages(repo, cells=True)
    assert found[1, "x"] == "change"
    assert found[2, "x"] == found[1, "id"] == found[1, "n"] == "begin"
    assert {found[key, "w"] for key in (1, 2, 3, 4)} == {"add"}
    assert messages(repo, columns=["x"], where="id < 3") == {(1, "x"): "change", (2, "x"): "begin"}
    assert messages(repo)[1] == "change"
    assert messages(repo)[2] == "add"


def test_blame_of_merged_rows_names_the_commits_of_the_branch(repo: ab.Repository) -> None:
    histories.begin(repo)
    commit(repo, "column", add_columns=[{"w": "id * 2"}])
    repo.branch_create("dev")
    commit(repo, "on dev", branch="dev", update=[{"v": "'d'"}, "id <= 2"])
    commit(repo, "on main", update=[{"w": "0"}, "id IN (2, 3)"])
    repo.merge("dev", message="merge")
    assert messages(repo) == {1: "on dev", 2: "merge", 3: "on main", 4: "column"}
    cells = messages(repo, cells=True)
    assert (cells[2, "v"], cells[2, "w"], cells[2, "id"]) == ("on dev", "on main", "begin")


def test_rows_of_a_key_of_several_columns_are_blamed(repo: ab.Repository) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.date32()), ("v", pa.int64())])
    first = pa.table({"a": ["x", "x", "y"], "b": pa.array([1, 2, 1], pa.date32()), "v": [1, 1, 1]}, schema=schema)
    with repo.transaction(message="begin") as tx:
        tx.create_table(TABLE, schema, primary_key=["a", "b"])
        tx.append(TABLE, first)
    commit(repo, "change", update=[{"v": "2"}, "a = 'x'"])
    found = repo.blame(TABLE).to_pylist()
    assert [(row["a"], row["message"]) for row in found if row["a"] == "y"] == [("y", "begin")]
    assert [row["message"] for row in found if row["a"] == "x"] == ["change", "change"]


def test_tables_and_columns_that_cannot_be_blamed_are_refused(repo: ab.Repository) -> None:
    histories.begin(repo)
    with repo.transaction() as tx:
        tx.create_table("s.keyless", histories.SCHEMA)
        tx.create_table("s.odd", pa.schema([("message", pa.string())]), primary_key=["message"])
    with pytest.raises(InvalidInputError, match="has no primary key"):
        repo.blame("s.keyless")
    with pytest.raises(InvalidInputError, match="'message'"):
        repo.blame("s.odd")
    with pytest.raises(TableNotFoundError):
        repo.blame("s.nope")
    with pytest.raises(SchemaMismatchError, match="'nope'"):
        repo.blame(TABLE, columns=["nope"])
    with pytest.raises(InvalidInputError, match="must be a list"):
        repo.blame(TABLE, columns="v")
    with pytest.raises(InvalidInputError, match="negative"):
        repo.blame(TABLE, limit=-1)
    commit(repo, "all gone", delete=["true"])
    assert len(repo.blame(TABLE)) == len(repo.blame(TABLE, cells=True)) == 0


class Replay:
    """The slow answer: each commit is compared with its parent, for one row at a time."""

    def __init__(self, repo: ab.Repository) -> None:
        self._repo = repo
        self._changed: dict[str, set[int]] = {}

    def blame(self, ref: str, key: int) -> str:
        for made in self._repo.list_commits(ref, limit=None):
            if key not in self._keys(made):
                continue
            source = made.merged_parent_commit_id
            if source is not None and self._is_same(source, made.id, key):
                return self.blame(source, key)
            return made.id
        raise AssertionError(f"no commit made row {key}")

    def _keys(self, made: ab.GraphCommit) -> set[int]:
        if made.id not in self._changed:
            self._changed[made.id] = histories.changed_keys(self._repo, made)
        return self._changed[made.id]

    def _is_same(self, source: str, made: str, key: int) -> bool:
        before, after = self._repo.snapshot_of(source), self._repo.snapshot_of(made)
        if TABLE not in before:
            return False
        for table in self._repo.diff(before.id, after.id, tables=[TABLE]).tables:
            if any((row.after or row.before or {})["id"] == key for row in table.iter_rows()):
                return False
        return True


def check_blame(repo: ab.Repository, seed: int, *, steps: int) -> None:
    chance = random.Random(seed)
    histories.begin(repo)
    for _ in range(steps):
        histories.change_table(repo, "main", chance)
    if TABLE not in repo.snapshot():
        return
    found = {row["id"]: row["commit_id"] for row in repo.blame(TABLE).to_pylist()}
    replay = Replay(repo)
    assert found == {key: replay.blame("main", key) for key in found}
    assert sorted(found) == sorted(repo[TABLE].to_arrow(columns=["id"])["id"].to_pylist())
    assert all(row["commit_id"] is not None for row in repo.blame(TABLE, cells=True).to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_blame_of_any_table_is_what_the_replay_of_each_commit_shows(repo: ab.Repository, seed: int) -> None:
    check_blame(repo, seed, steps=16)


@pytest.mark.proof
@pytest.mark.local
@pytest.mark.parametrize("seed", range(100, 140))
def test_blame_of_many_tables_is_what_the_replay_of_each_commit_shows(repo: ab.Repository, seed: int) -> None:
    check_blame(repo, seed, steps=32)
