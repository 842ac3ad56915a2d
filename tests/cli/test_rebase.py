"""`anabranch rebase`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.cli.merging import contest, heads, rows_of, upsert, words


@pytest.mark.s3
def test_own_commits_are_put_on_top(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "dev", (4, "nuts", 9.0))
    upsert(lake, "main", (2, None, 2.2))
    old = [short(lake, ref) for ref in ("dev~1", "dev")]
    answer = cli("rebase", "main", "--branch", "dev", "--actor", "eve")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[0] == f"put 2 commits of dev on top of main; it is at {short(lake, 'dev')}"
    assert [short(lake, "dev~1"), old[0], "Fix", "a", "price"] in words(answer.out)
    assert [short(lake, "dev"), old[1], "Change", "dev"] in words(answer.out)
    assert lake.snapshot_of("dev~2").id == lake.snapshot_of("main").id
    assert rows_of(lake, "dev") == [(1, "tea", 1.5), (2, None, 2.2), (4, "nuts", 9.0)]
    assert CUSTOMERS in lake.snapshot_of("dev")
    assert cli("reflog", "dev", "--json").document["movements"][0]["actor"] == "eve"
    assert cli("undo", "dev").code == 0
    assert [short(lake, ref) for ref in ("dev~1", "dev")] == old


def test_programs_get_the_new_commits(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    document = cli("rebase", "main", "--branch", "dev", "--json").document
    assert list(document) == ["branch", "onto", "previous_commit_id", "head_commit_id", "commits"]
    assert (document["branch"], document["onto"]) == ("dev", "main")
    (made,) = document["commits"]
    assert (document["previous_commit_id"], document["head_commit_id"]) == (before["dev"], made["id"])
    assert (made["message"], made["tables"]) == ("Fix a price", [ORDERS])
    assert made["metadata"] == {"rebased_from": before["dev"]}
    assert made["parent_id"] == before["main"] == heads(lake)["main"]


def test_a_branch_that_is_there_already_does_not_move(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    assert cli("rebase", "main~1", "--branch", "dev").out == "dev is on top of main~1 already\n"
    assert cli("rebase", "main~1", "--branch", "dev", "--json").document["commits"] == []
    assert heads(lake) == before


def test_what_is_there_already_is_left_out(cli: Run, lake: ab.Repository) -> None:
    assert cli("cherry-pick", "dev").code == 0
    answer = cli("rebase", "main", "--branch", "dev")
    assert answer.out == f"put 0 commits of dev on top of main; it is at {short(lake, 'main')}\n"
    assert heads(lake)["dev"] == heads(lake)["main"]


def test_conflicts_leave_the_branch_where_it_is(cli: Run, lake: ab.Repository) -> None:
    contest(lake)
    before = heads(lake)
    answer = cli("rebase", "main", "--branch", "dev", "--json")
    assert (answer.code, answer.error["code"]) == (9, "merge_conflict")
    assert answer.error["conflicts"][0]["kind"] == "delete_vs_update"
    assert "delete_vs_update" in cli("rebase", "main", "--branch", "dev").err
    assert heads(lake) == before
    args = ["--resolve", "price=max", "--strategy", "source"]
    assert cli("rebase", "main", "--branch", "dev", *args).code == 0
    assert rows_of(lake, "dev") == [(1, "tea", 1.7), (2, "oil", 2.2), (4, "nuts", 9.0)]
    assert heads(lake)["main"] == before["main"]


def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository) -> None:
    lake.branch_create_from("main", "try", mode="live")
    before = heads(lake)
    for args, code in (
        (["main", "--branch", "nope"], "branch_not_found"),
        (["nope", "--branch", "dev"], "branch_not_found"),
        (["dev", "--branch", "try"], "invalid_input"),
        (["main", "--branch", "dev", "--strategy", "luck"], "invalid_input"),
        ([], "usage"),
    ):
        assert cli("rebase", *args, "--json").error["code"] == code, args
    assert heads(lake) == before
