"""`anabranch revert`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short


@pytest.mark.s3
def test_one_commit_is_taken_back_by_another(cli: Run, lake: ab.Repository) -> None:
    reverted = lake.snapshot_of("main").id
    made = cli("revert", reverted[:14], "--actor", "eve", "--json").document
    assert (made["id"], made["parent_id"]) == (lake.snapshot_of("main").id, reverted)
    assert (made["kind"], made["message"], made["actor"]) == ("revert", "Revert Add customers", "eve")
    assert (made["metadata"], made["tables"]) == ({"commit": reverted}, [CUSTOMERS])
    assert list(lake.snapshot_of("main")) == [ORDERS]


def test_another_branch_can_be_meant(cli: Run, lake: ab.Repository) -> None:
    answer = cli("revert", "dev", "-b", "dev", "-m", "No, keep them")
    assert answer.out == f"on dev, {short(lake, 'dev')} No, keep them\n"
    assert lake.snapshot_of("dev")[ORDERS].count_rows() == 3


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["main~1", "-b", "dev"], "invalid_input", 2),
        (["main~2"], "invalid_input", 2),
        (["nope"], "branch_not_found", 3),
        (["main", "-b", "nope"], "branch_not_found", 3),
    ],
)
def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    before = lake.branch_list()
    answer = cli("revert", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)
    assert "current branch" not in answer.error["message"]
    assert lake.branch_list() == before
