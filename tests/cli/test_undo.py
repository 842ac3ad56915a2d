"""`anabranch undo` and `anabranch redo`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, Run, short


@pytest.mark.s3
def test_the_last_commit_is_undone_and_redone(cli: Run, lake: ab.Repository) -> None:
    before, after = lake.snapshot_of("main~1").id, lake.snapshot_of("main").id
    undone = cli("undo", "--actor", "eve", "--json").document
    movement = undone.pop("undone")
    assert undone == {"branch": "main", "version": 4, "head_commit_id": before, "steps": 1}
    assert (movement["version"], movement["event"], movement["commit_id"]) == (3, "committed", after)
    assert CUSTOMERS not in lake.snapshot_of("main")
    assert lake.reflog(limit=1)[0].actor == "eve"
    assert cli("undo").out.startswith("undid change 2 of main (committed: Load orders); main is at ")
    assert cli("redo").out == f"redid change 2 of main (committed: Load orders); main is at {before[:14]}\n"
    redone = cli("redo", "--actor", "bob", "--json").document
    assert (redone["head_commit_id"], redone["redone"]) == (after, movement)
    assert (lake.reflog(limit=1)[0].actor, lake.reflog(limit=1)[0].restores) == ("bob", 3)
    error = cli("redo", "--json").error
    assert (error["code"], error["message"]) == ("invalid_input", "there is nothing to redo on branch 'main'")


def test_a_deleted_branch_comes_back_and_a_new_one_goes(cli: Run, lake: ab.Repository) -> None:
    head = short(lake, "dev")
    cli("branch", "delete", "dev")
    assert cli("undo", "dev").out == f"undid change 3 of dev (deleted); dev is at {head}\n"
    cli("branch", "create", "new")
    assert cli("undo", "new").out == "undid change 1 of new (created); new is deleted\n"
    assert [branch.name for branch in lake.branch_list()] == ["dev", "main"]
    cli("branch", "create", "new")
    assert cli("undo", "new", "--json").document["head_commit_id"] is None


def test_the_delete_of_the_current_branch_is_undone(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    cli("branch", "delete", "dev")
    assert cli("undo").code == 0
    assert cli("status", "--json").document["branch"] == "dev"


def test_there_must_be_something_to_undo(cli: Run, lake: ab.Repository, tmp_path: object) -> None:
    assert cli("undo", "nope", "--json").error["code"] == "branch_not_found"
    cli("init", f"{tmp_path}/empty")
    assert cli("undo", "--json").error["code"] == "invalid_input"


def test_several_changes_are_undone(cli: Run, lake: ab.Repository) -> None:
    first = short(lake, "main~2")
    assert cli("undo", "--steps", "2").out == f"undid change 2 of main (committed: Load orders); main is at {first}\n"
    assert cli("redo", "--steps", "2").out.endswith(f"main is at {short(lake, 'main')}\n")
    answer = cli("undo", "--steps", "9")
    assert answer.code == 0
    assert answer.out.endswith("undid 2 of 9 changes: there are no more\n")
    assert cli("undo", "--steps", "9").code != 0, "no change is left, so that nothing changed"


def test_undo_of_a_protection_is_reported(cli: Run, lake: ab.Repository) -> None:
    lake.branch_protect("main")
    assert cli("undo").out.endswith("main is not protected any more\n")
    assert cli("redo").out.endswith("main is protected again\n")
