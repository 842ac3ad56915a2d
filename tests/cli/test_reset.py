"""`anabranch reset`."""

import pytest

import anabranch as ab
from tests.cli.conftest import Run, short


@pytest.mark.s3
def test_a_branch_moves_to_the_given_commit_and_back(cli: Run, lake: ab.Repository) -> None:
    before, main = lake.snapshot_of("dev").id, lake.snapshot_of("main").id
    moved = cli("reset", "main", "--branch", "dev", "--actor", "eve", "--json").document
    assert moved == {"branch": "dev", "head_commit_id": main, "previous_commit_id": before, "version": 3}
    assert lake.reflog("dev", limit=1)[0].actor == "eve"
    assert cli("table", "list", "--ref", "dev", "--json").document["commit_id"] == main
    answer = cli("reset", "dev@v2", "--branch", "dev")
    assert answer.out == f"reset dev from {main[:14]} to {before[:14]}; 'anabranch undo dev' restores it\n"
    assert short(lake, "dev") == before[:14]


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["main", "--branch", "nope"], "branch_not_found", 3),
        (["nope", "--branch", "dev"], "branch_not_found", 3),
        (["main~99", "--branch", "dev"], "commit_not_found", 3),
        (["dev", "--branch", "live"], "invalid_input", 2),
        ([], "usage", 2),
    ],
)
def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    lake.branch_create_from("main", "live", mode="live")
    before = lake.branch_list()
    answer = cli("reset", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)
    assert lake.branch_list() == before
