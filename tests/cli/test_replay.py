"""Options and arguments that `anabranch cherry-pick`, `revert` and `rebase` share."""

from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run, short
from tests.cli.merging import contest, heads, rows_of, upsert


@pytest.mark.s3
def test_ranges_are_applied_and_reverted_all_at_once(cli: Run, lake: ab.Repository) -> None:
    upsert(lake, "dev", (4, "nuts", 9.0))
    version = lake.branch_get("main").version
    answer = cli("cherry-pick", "main..dev")
    assert answer.out.splitlines() == [
        f"on main, {short(lake, 'main~1')} Fix a price",
        f"on main, {short(lake, 'main')} Change dev",
    ]
    assert lake.branch_get("main").version == version + 1
    document = cli("revert", "main", "main~1", "--metadata", "ticket=7", "--json").document
    assert [commit["message"] for commit in document["commits"]] == ["Revert Change dev", "Revert Fix a price"]
    assert (document["id"], document["metadata"]["ticket"]) == (lake.snapshot_of("main").id, "7")


@pytest.mark.parametrize("args", [["cherry-pick", "dev"], ["rebase", "main", "--branch", "dev"]])
def test_dry_runs_show_counts_and_conflicts(cli: Run, lake: ab.Repository, args: list[str]) -> None:
    before = heads(lake)
    branch = "main" if args[0] == "cherry-pick" else "dev"
    answer = cli(*args, "--dry-run")
    assert (answer.code, heads(lake)) == (0, before)
    assert answer.out.splitlines()[0] == f"1 commit would go to {branch}; nothing was changed"
    document = cli(*args, "--dry-run", "--json").document
    (plan,) = document["plan"]
    assert (document["commits"], document["dry_run"], plan["conflict_count"]) == ([], True, 0)
    assert [table["table"] for table in plan["tables"]] == [ORDERS]
    contest(lake)
    before = heads(lake)
    answer = cli(*args, "--dry-run")
    assert (answer.code, heads(lake)) == (9, before)
    assert f"has 1 conflict on {branch}" in answer.out


@pytest.mark.parametrize(
    "args",
    [["cherry-pick", "dev"], ["revert", "main"], ["rebase", "main", "--branch", "dev"]],
    ids=lambda args: args[0],
)
def test_expected_heads_and_checks_can_refuse(cli: Run, lake: ab.Repository, tmp_path: Path, args: list[str]) -> None:
    before, check = heads(lake), tmp_path / "none.sql"
    check.write_text(f"SELECT * FROM {ORDERS}")
    assert cli(*args, "--expected-head", "main~2", "--json").error["code"] == "write_conflict"
    assert cli(*args, "--check", str(check), "--json").error["code"] == "check_failed"
    assert heads(lake) == before
    branch = "dev" if args[0] == "rebase" else "main"
    assert cli(*args, "--expected-head", branch).code == 0
    assert heads(lake) != before
    assert rows_of(lake, branch)


@pytest.mark.parametrize(
    ("args", "source", "target"),
    [
        (["cherry-pick", "dev"], "picked commit", "main"),
        (["revert", "main~1"], "before the commit", "main"),
        (["rebase", "main", "--branch", "dev"], "commit of dev", "main"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_conflicts_name_the_sides_of_the_operation(
    cli: Run, lake: ab.Repository, args: list[str], source: str, target: str
) -> None:
    contest(lake)
    upsert(lake, "main", (1, "tea", 5.5))
    for answer in (cli(*args).err, cli(*args, "--dry-run").out):
        assert f"source ({source})" in answer
        assert f"target ({target})" in answer
    if args[0] != "revert":
        listed = cli("conflicts", "dev", "--into", "main", "--by", args[0]).out
        assert f"source ({source})" in listed
