"""`anabranch cherry-pick`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.cli.merging import contest, heads, rows_of


@pytest.mark.s3
def test_the_change_of_one_commit_is_made_here_too(cli: Run, lake: ab.Repository) -> None:
    picked = lake.snapshot_of("dev").id
    made = cli("cherry-pick", picked, "--actor", "eve", "--json").document
    assert (made["kind"], made["message"], made["actor"]) == ("cherry_pick", "Fix a price", "eve")
    assert (made["metadata"], made["tables"]) == ({"commit": picked}, [ORDERS])
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 2
    assert CUSTOMERS in lake.snapshot_of("main")


def test_another_branch_can_be_meant(cli: Run, lake: ab.Repository) -> None:
    answer = cli("cherry-pick", "main", "-b", "dev", "-m", "Customers here, too")
    assert answer.out == f"on dev, {short(lake, 'dev')} Customers here, too\n"
    assert CUSTOMERS in lake.snapshot_of("dev")


def test_conflicts_are_reported_and_resolved(cli: Run, lake: ab.Repository) -> None:
    contest(lake)
    before = heads(lake)
    answer = cli("cherry-pick", "dev", "--json")
    assert (answer.code, answer.error["code"], answer.error["conflict_count"]) == (9, "merge_conflict", 1)
    assert "1.7" in cli("cherry-pick", "dev").err
    assert heads(lake) == before
    assert cli("cherry-pick", "dev", "--resolve", "price=min").code == 0
    assert rows_of(lake, "main") == [(1, "tea", 1.6), (2, "oil", 2.2), (3, "sea salt", None), (4, "nuts", 9.0)]


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["dev", "-b", "dev"], "invalid_input", 2),
        (["main~2", "-b", "dev"], "invalid_input", 2),
        (["nope"], "branch_not_found", 3),
        (["dev", "-b", "nope"], "branch_not_found", 3),
    ],
)
def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    before = lake.branch_list()
    answer = cli("cherry-pick", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)
    assert lake.branch_list() == before
