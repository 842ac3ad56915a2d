"""Lists, graphs and tables of commits, with commits of two parents."""

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import CommitNotFoundError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import CommitKind
from anabranch.repo.write.publish import Attempt
from tests.repo.conftest import ORDERS, append, entry
from tests.repo.log.test_history_tables import expected, recorded


def merge(repo: ab.Repository, source: str, *, into: str = "main") -> ab.GraphCommit:
    """A commit of two parents that takes orders as the source has them."""
    repo_store = testing.repo_store_of(repo)
    spec = CommitSpec(
        message=f"merge {source}",
        kind=CommitKind.MERGE,
        metadata={},
        merged_parent=repo_store.heads.get(BranchName(source)).head.commit,
    )
    changes = {TableKey.parse(ORDERS): entry(repo, ORDERS, source)}
    head = repo_store.heads.get(BranchName(into))
    return Attempt(repo_store, head, changes, spec, lambda _: changes).put().commit


@pytest.fixture
def merged(lake: ab.Repository) -> ab.Repository:
    """Main with orders 7 and 8 from a branch of two commits, and 9 after that."""
    lake.branch_create("dev")
    append(lake, 7, branch="dev")
    append(lake, 8, branch="dev")
    merge(lake, "dev")
    append(lake, 9)
    return lake


def messages(commits: list[ab.GraphCommit]) -> list[str]:
    return [commit.message for commit in commits]


def test_commits_are_listed_along_first_parents_and_name_the_other(merged: ab.Repository) -> None:
    line = merged.list_commits(limit=None)
    assert messages(line) == ["append (9,)", "merge dev", "first", "Begin the repository"]
    other = line[1].merged_parent_commit_id
    assert other == merged.head_commit_id_for_branch("dev")
    assert messages(merged.list_commits(other, limit=2)) == ["append (8,)", "append (7,)"]
    assert messages(merged.list_commits(table=ORDERS)) == ["append (9,)", "merge dev", "first"]
    assert line == [merged.get_commit(commit.graph_commit_id) for commit in line]


def test_going_back_follows_first_parents(merged: ab.Repository) -> None:
    assert messages([merged.get_commit(f"main~{back}") for back in range(4)]) == messages(merged.list_commits())
    with pytest.raises(CommitNotFoundError, match="before the first commit"):
        merged.get_commit("main~4")


def test_the_tables_of_the_history_have_both_parents(merged: ab.Repository) -> None:
    merged.branch_delete("dev")
    merged.history_sync()
    on_main = merged.list_commits(limit=None)
    on_dev = merged.list_commits(on_main[1].merged_parent_commit_id, limit=2)
    assert recorded(merged) == expected(*on_main, *on_dev)
    assert merged.history_rebuild().added == 6
    assert recorded(merged) == expected(*on_main, *on_dev)


def test_sql_shows_both_parents(merged: ab.Repository) -> None:
    found = merged.sql("SELECT message, parent_commit_id, merged_parent_commit_id FROM commits WHERE kind = 'merge'")
    parents = (merged.get_commit("main~2").graph_commit_id, merged.head_commit_id_for_branch("dev"))
    assert [tuple(row.values()) for row in found.to_pylist()] == [("merge dev", *parents)]


def test_history_of_a_merged_row_names_the_merge(merged: ab.Repository) -> None:
    def reported(ref: str) -> list[str]:
        return [change.commit.message for change in merged.entity_history(ORDERS, 7, ref=ref)]

    assert reported("main") == ["merge dev"]
    assert reported("dev") == ["append (7,)"]
    assert reported("main~2") == []
