"""`anabranch branch`."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run, short

KEYS = [
    *("name", "mode", "parent", "parent_commit_id", "head_commit_id", "version"),
    *("created_at", "created_by", "description", "expires_at", "own_tables", "is_protected", "checks"),
]


@pytest.mark.s3
def test_a_branch_lives_from_create_to_restore(cli: Run, lake: ab.Repository) -> None:
    main = lake.head_commit_id_for_branch("main")
    created = cli("branch", "create", "fix/a", "--description", "a fix", "--actor", "eve", "--json").document
    assert list(created) == KEYS
    assert (created["name"], created["mode"], created["parent"]) == ("fix/a", "pinned", "main")
    assert (created["parent_commit_id"], created["head_commit_id"]) == (main, main)
    assert (created["created_by"], created["description"], created["expires_at"]) == ("eve", "a fix", None)
    assert datetime.fromisoformat(created["created_at"]).utcoffset() is not None
    listed = cli("branch", "list", "--json").document
    assert listed["current"] == "main"
    assert [branch["name"] for branch in listed["branches"]] == ["dev", "fix/a", "main"]
    assert created in listed["branches"]
    assert cli("branch", "show", "fix/a", "--json").document == {**created, "tables": 2, "rows": 3}
    assert cli("branch", "delete", "fix/a", "--json").document == {"deleted": "fix/a"}
    assert cli("branch", "show", "fix/a", "--json").error["code"] == "branch_not_found"
    restored = cli("branch", "restore", "fix/a", "--json").document
    assert restored == {**created, "version": created["version"] + 2}


def test_rename(cli: Run, lake: ab.Repository) -> None:
    lake.branch_create("child", "dev")
    cli("switch", "dev")
    done = cli("branch", "rename", "dev", "prices")
    assert done.out.splitlines()[0] == (
        "renamed branch dev to prices; 'anabranch reflog dev' lists its changes up to now"
    )
    assert done.out.splitlines()[1].startswith("the current branch of ")
    assert cli("status", "--json").document["branch"] == "prices"
    assert cli("branch", "show", "child", "--json").document["parent"] == "prices"
    assert "renamed from dev" in cli("reflog").out
    assert "the branch was called dev before: 'anabranch reflog dev' shows more" in cli("reflog").out
    assert "renamed to prices" in cli("reflog", "dev").out
    failed = cli("log", "dev")
    assert failed.code == 3
    assert failed.err == "error: branch 'dev' was renamed to 'prices'\nhint: use the name 'prices'\n"
    cli("switch", "child")
    lake.branch_rename("child", "second")
    assert cli("status").err.endswith("hint: switch with 'anabranch switch second'\n")
    undone = cli("undo", "prices")
    hint = (
        "'anabranch branch rename prices dev' restores the old name; to undo an earlier change, "
        "reset the branch to 'prices~1', or revert the commit"
    )
    assert undone.err.endswith(f"hint: {hint}\n")
    back = cli("branch", "rename", "prices", "dev", "--json").document
    assert list(back) == [*KEYS, "renamed_from"]
    assert (back["name"], back["renamed_from"]) == ("dev", "prices")
    assert cli("branch", "rename", "dev", "second").err == (
        "error: branch 'second' already exists\nhint: choose another name, or delete it first\n"
    )


@pytest.mark.parametrize(
    ("source", "parent", "start"),
    [
        ("dev", "dev", "dev"),
        ("main~1", "main", "main~1"),
        ("main@v2", "main", "main~1"),
        ("{full}", None, "main~1"),
        ("{short}", None, "main~1"),
    ],
)
def test_a_branch_starts_at_the_given_ref(
    cli: Run, lake: ab.Repository, source: str, parent: str | None, start: str
) -> None:
    commit = lake.snapshot_of("main~1").id
    given = source.replace("{full}", commit).replace("{short}", commit[:14])
    created = cli("branch", "create", "new", "--from", given, "--json").document
    assert (created["parent"], created["head_commit_id"]) == (parent, lake.snapshot_of(start).id)


def test_people_read_sentences_and_tables(cli: Run, lake: ab.Repository) -> None:
    head = short(lake, "main")
    assert cli("branch", "create", "fix").out == f"created branch fix at {head} of main\n"
    rows = [line.split() for line in cli("branch", "list").out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["dev", "fix", "*"]
    assert rows[2][:4] == ["*", "main", "-", head]
    assert rows[0][-1] == "prices"
    shown = cli("branch", "show", "dev").out
    assert "prices" in shown
    assert f"{short(lake, 'main~1')} of main" in shown
    assert cli("branch", "delete", "fix").out == "deleted branch fix; 'anabranch branch restore fix' brings it back\n"
    assert cli("branch", "restore", "fix").out == f"restored branch fix at {head}\n"


def test_a_purged_branch_cannot_be_restored(cli: Run, lake: ab.Repository) -> None:
    cli("branch", "create", "fix")
    with lake.transaction("fix") as tx:
        tx.create_table("s.new", pa.schema([("id", pa.int64())]))
    assert cli("branch", "delete", "fix", "--purge").out == "deleted branch fix; its space is free\n"
    refused = cli("branch", "restore", "fix", "--json")
    assert refused.error["code"] == "collected"
    assert [branch.name for branch in lake.branch_list()] == ["dev", "main"]


def test_deleting_the_current_branch_is_reported(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    assert "note: it was the current branch" in cli("branch", "delete", "dev").out


def test_a_branch_may_expire(cli: Run, lake: ab.Repository) -> None:
    created = cli("branch", "create", "fix", "--expires-in", "30d", "--json").document
    begin, end = (datetime.fromisoformat(created[key]) for key in ("created_at", "expires_at"))
    assert abs(end - begin - timedelta(days=30)) < timedelta(hours=1)
    assert end.strftime("%Y-%m-%d") in cli("branch", "show", "fix").out
    assert cli("branch", "create", "other", "--expires-in", "0d").code == 2


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["create", "dev"], "branch_exists", 4),
        (["create", "main"], "invalid_name", 2),
        (["create", "a//b"], "invalid_name", 2),
        (["create", "__x"], "invalid_name", 2),
        (["create", "main/hotfix"], "invalid_name", 2),
        (["create", "2026"], "invalid_name", 2),
        (["create", "new", "--from", "nope"], "branch_not_found", 3),
        (["create", "new", "--from", "main~99"], "commit_not_found", 3),
        (["create", "new", "--from", "main@v99"], "version_not_found", 3),
        (["create", "new", "--live", "--from", "dev"], "invalid_input", 2),
        (["create", "new", "--live", "--from", "main~1"], "invalid_input", 2),
        (["pull", "nope", ORDERS], "branch_not_found", 3),
        (["pull", "main", ORDERS], "invalid_input", 2),
        (["pull", "dev", "orders"], "invalid_name", 2),
        (["freeze", "dev"], "invalid_input", 2),
        (["freeze", "nope"], "branch_not_found", 3),
        (["drift", "nope"], "branch_not_found", 3),
        (["drift", "main"], "branch_not_found", 3),
        (["delete", "main"], "invalid_input", 2),
        (["delete", "nope"], "branch_not_found", 3),
        (["delete", "dev"], "branch_in_use", 4),
        (["restore", "dev"], "branch_exists", 4),
        (["restore", "nope"], "branch_not_found", 3),
        (["show", "nope"], "branch_not_found", 3),
    ],
)
def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    lake.branch_create_from("dev", "child")
    before = cli("branch", "list", "--json").document
    assert cli("branch", *args, "--json").error["code"] == code
    assert cli("branch", *args).code == exit_code
    assert cli("branch", "list", "--json").document == before


def test_branches_are_listed_in_pages(cli: Run, lake: ab.Repository) -> None:
    for name in ("team/a", "team/b", "team/c"):
        lake.branch_create(name)
    listed = cli("branch", "list", "--prefix", "team/", "--after", "team/a", "--limit", "1", "--json").document
    assert [branch["name"] for branch in listed["branches"]] == ["team/b"]


def test_deleted_branches_are_listed(cli: Run, lake: ab.Repository) -> None:
    lake.branch_create("gone")
    lake.branch_delete("gone")
    listed = cli("branch", "list", "--deleted", "--json").document["branches"]
    assert [branch["name"] for branch in listed] == ["gone"]
