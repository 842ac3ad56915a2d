"""`anabranch revert`."""

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.cli.merging import rows_of, upsert


@pytest.mark.s3
def test_one_commit_is_undone_by_another(cli: Run, lake: ab.Repository) -> None:
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


def test_what_was_done_since_is_kept_or_decided(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "main", (1, "tea", 1.6), (4, "nuts", 9.0))
    upsert(lake, "main", (1, "green tea", 1.8), (2, "oil", 2.0))
    answer = cli("revert", "main~1", "--json")
    (conflict,) = answer.error["conflicts"]
    assert (answer.code, conflict["column"]) == (9, "price")
    assert [conflict[side] for side in ("base", "source", "target")] == [1.6, 1.5, 1.8]
    assert cli("revert", "main~1", "--strategy", "target").code == 0
    assert rows_of(lake, "main") == [(1, "green tea", 1.8), (2, "oil", 2.0), (3, "salt", None)]


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["main~1", "-b", "dev"], "merge_conflict", 9),
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
