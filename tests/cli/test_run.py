"""`anabranch pipeline run`."""

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.ids import BranchName
from tests.cli.conftest import ORDERS, Run


@pytest.mark.s3
def test_a_run_is_listed_shown_and_aborted(cli: Run, lake: ab.Repository) -> None:
    assert cli("run", "list").out == "no runs\n"
    run = lake.begin_run("dev", message="nightly", metadata={"ticket": "7"})
    with run.transaction() as tx:
        tx.delete(ORDERS, "true")
    (listed,) = cli("run", "list", "--json").document["runs"]
    assert (listed["id"], listed["branch"], listed["state"], listed["message"]) == (run.id, "dev", "running", "nightly")
    assert (listed["metadata"], listed["tables"], listed["commit_id"]) == ({"ticket": "7"}, [ORDERS], None)
    assert cli("run", "show", run.id, "--json").document == {**listed, "logs": {}}
    assert cli("run", "list", "--branch", "main", "--json").document == {"runs": []}
    aborted = cli("run", "abort", run.id, "--json").document
    assert (aborted["state"], aborted["error"]) == ("aborted", None)
    assert cli("run", "abort", run.id, "--json").error["code"] == "run_ended"
    assert lake.snapshot_of("dev")[ORDERS].count_rows() > 0


def test_people_read_tables_of_runs(cli: Run, lake: ab.Repository) -> None:
    with lake.begin_run(message="weekly", metadata={"ticket": "8"}) as run, run.transaction() as tx:
        tx.delete(ORDERS, "true")
    commit = lake.list_commits()[0].graph_commit_id
    (row,) = [line.split() for line in cli("run", "list").out.splitlines()[2:]]
    assert (row[:3], row[-1]) == ([run.id, "published", "main"], "weekly")
    shown = cli("run", "show", run.id).out
    for part in (run.id, "published", "weekly", commit, "metadata ticket", ORDERS):
        assert part in shown
    with pytest.raises(ValueError, match="lost"), lake.begin_run() as failed:
        raise ValueError("lost the file")
    assert "ValueError: lost the file" in cli("run", "show", failed.id).out
    living = lake.begin_run()
    assert cli("run", "abort", living.id).out == f"aborted run {living.id} on main; nothing of it was published\n"


def test_nothing_of_a_run_shows_in_other_commands(cli: Run, lake: ab.Repository) -> None:
    run = lake.begin_run()
    with run.transaction() as tx:
        tx.delete(ORDERS, "true")
    for command in (["branch", "list"], ["log"], ["log", "--graph"], ["reflog"], ["tag", "list"], ["status"]):
        assert run.id not in cli(*command).out
    for command in (["cat", ORDERS, "--ref", run.branch], ["branch", "show", run.branch], ["switch", run.branch]):
        assert cli(*command, "--json").error["code"] == "invalid_name"
    for table in ("branches", "commits", "refs", "branch_tables"):
        assert run.id not in cli("sql", f"FROM {table}", "--csv").out
    hidden = testing.repo_store_of(lake).heads.get(BranchName.of_run(run.id)).head.commit.graph_commit_id
    assert cli("show", hidden, "--json").error["code"] == "commit_not_found"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["show", "01KA4T3JB6W9TTVN2MVF2FZ9AA"], "run_not_found", 3),
        (["abort", "01KA4T3JB6W9TTVN2MVF2FZ9AA"], "run_not_found", 3),
        (["show", "../main"], "invalid_name", 2),
        (["list", "--branch", "__run__x"], "invalid_name", 2),
        (["list", "--limit", "0"], "usage", 2),
    ],
)
def test_what_cannot_be_done_reports_why(
    cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int
) -> None:
    assert lake.branch == "main"
    answer = cli("run", *args, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)


def test_runs_are_listed_in_pages(cli: Run, lake: ab.Repository) -> None:
    ids = []
    for _ in range(3):
        run = lake.begin_run()
        ids.append(run.id)
        run.abort()
    newest = sorted(ids, reverse=True)
    listed = cli("run", "list", "--after", newest[0], "--prefix", newest[1][:10], "--limit", "1", "--json").document
    assert [run["id"] for run in listed["runs"]] == newest[1:2]
