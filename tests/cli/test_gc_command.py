"""`anabranch gc`: what it deletes and what it reports."""

import json
from datetime import timedelta
from pathlib import Path
from time import time

import pytest

import anabranch as ab
from anabranch.config import remember
from anabranch.repo.runs.engine_access import EngineAccess
from tests.cli.conftest import ORDERS, Run, fill_lake, orders
from tests.repo.gc.object_ages import pass_time


@pytest.fixture
def lake(tmp_path: Path, folder: Path) -> ab.Repository:
    """On local disk, where a test can let time pass: dev is deleted, and two days have gone by."""
    repo = ab.init(tmp_path / "lake", actor="ada")
    fill_lake(repo)
    with repo.transaction() as tx:
        tx.overwrite(ORDERS, orders())
    repo.branch_delete("dev")
    pass_time(repo)
    remember(repository=repo.uri, branch=repo.branch, folder=folder)
    return repo


def files(repo: ab.Repository) -> set[str]:
    return {str(path.relative_to(repo.uri)) for path in Path(repo.uri).rglob("*") if path.is_file()}


def test_a_dry_run_reports_all_and_deletes_nothing(run: Run, lake: ab.Repository) -> None:
    before = files(lake)
    printed = run("gc", "--dry-run", "--list")
    assert printed.code == 0
    assert printed.out.startswith("would free ")
    assert "home of no retained commit" in printed.out
    reported = run("gc", "--dry-run", "--json").document
    assert reported["dry_run"] is True
    assert reported["files"] == len(reported["objects"]) > 0
    assert reported["bytes"] == sum(each["bytes"] for each in reported["objects"])
    assert {each["path"] for each in reported["objects"]} <= before
    for each in reported["objects"]:
        assert f"{each['path']} " in printed.out
    assert before <= files(lake)
    assert "objects" not in run("gc", "--dry-run").out.splitlines()


def test_frees_what_it_reported(run: Run, lake: ab.Repository) -> None:
    reported = run("gc", "--dry-run", "--keep-last", "1", "--json").document
    before = files(lake)
    done = run("gc", "--keep-last", "1", "--json").document
    assert done["by_reason"] == reported["by_reason"]
    assert {each["path"] for each in done["objects"]} == before - files(lake)
    assert len(done["commits"]) > 0
    assert lake.snapshot_of("main")[ORDERS].count_rows() == 3
    printed = run("gc", "--keep-last", "1")
    assert printed.out == "nothing to free\n"


def test_reports_how_much_history_goes(run: Run, lake: ab.Repository) -> None:
    made = len(lake.list_commits(limit=None))
    for kept in ([], ["--keep-newer-than", "30d"]):
        # The one commit is that of the branch that was deleted.
        assert "\n1 commit would no longer be readable, " in run("gc", *kept, "--dry-run").out
    done = run("gc", "--keep-last", "2").out
    assert done.startswith("freed ")
    assert f"\n{made - 2 + 1} commits can no longer be read, 2 can\n" in done


def test_reports_which_branches_and_runs_were_over(run: Run, lake: ab.Repository) -> None:
    lake.branch_create_from("main", "brief", expires_in=timedelta(microseconds=1))
    run_id = lake.begin_run().id  # abandoned
    pass_time(lake)
    reported = run("gc", "--dry-run")
    assert "branch brief expired and would be deleted" in reported.out
    assert f"the lease of run {run_id} expired, and it would be ended" in reported.out
    done = run("gc")
    assert "branch brief expired and was deleted" in done.out
    assert f"the lease of run {run_id} expired, and it was ended" in done.out
    assert "brief" not in [branch.name for branch in lake.branch_list()]
    assert [each.state for each in lake.run_list() if each.id == run_id] == ["failed"]


def test_reports_what_it_waits_for(run: Run, lake: ab.Repository) -> None:
    with EngineAccess(lake).keep_files(since=time() - timedelta(days=3).total_seconds()):
        printed = run("gc")
        assert "a writer is active since " in printed.out
        assert "home of no retained commit" not in printed.out
    assert "work is alive" not in run("gc").out


def test_a_damaged_table_is_left_alone_and_the_exit_code_shows_it(run: Run, lake: ab.Repository) -> None:
    newest = max(Path(lake.uri, "tables/in_c_sales/orders.lance/data").iterdir(), key=lambda path: path.stat().st_mtime)
    newest.unlink()
    before = files(lake)
    printed = run("gc")
    assert printed.code == 1
    assert "1 file that commits need is missing" in printed.out
    assert "anabranch doctor" in printed.out
    assert f"data/{newest.name}" in printed.out
    reported = run("gc", "--json")
    assert reported.code == 1
    assert json.loads(reported.out)["damaged"] == [str(newest.relative_to(lake.uri))]
    assert {path for path in before - files(lake) if "orders.lance" in path} == set()


def test_mistakes_are_named(run: Run, lake: ab.Repository) -> None:
    assert lake.branch == "main"
    for given, printed in (
        (["--grace", "soon"], "--grace 'soon' is not a time span"),
        (["--keep-newer-than", "30"], "--keep-newer-than '30' is not a time span"),
        (["--grace", "1s"], "shorter than a lease lasts"),
    ):
        error = run("gc", *given, "--json").error
        assert error["code"] == "invalid_input"
        assert printed in error["message"]
    assert run("gc", "--keep-last", "0").code == 2
