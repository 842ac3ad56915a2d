"""`anabranch switch`, and which branch commands then work on."""

from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run, short
from tests.conftest import Location


@pytest.mark.s3
def test_after_a_switch_commands_work_on_that_branch(cli: Run, lake: ab.Repository, folder: Path) -> None:
    switched = cli("switch", "dev", "--json").document
    assert switched == {
        "repository": lake.uri,
        "branch": "dev",
        "head_commit_id": lake.head_commit_id_for_branch("dev"),
        "remembered_in": str(folder / ".anabranch.json"),
    }
    assert cli("status", "--json").document["branch"] == "dev"
    assert len(cli("cat", ORDERS, "--json").document["rows"]) == 2
    assert cli("branch", "list", "--json").document["current"] == "dev"
    assert cli("branch", "create", "fix", "--json").document["parent"] == "dev"


def test_people_read_where_they_are(cli: Run, lake: ab.Repository) -> None:
    assert cli("switch", "dev").out == f"on branch dev at {short(lake, 'dev')}, in {lake.uri}\n"


def test_a_branch_that_does_not_exist_is_refused_and_nothing_changes(cli: Run, lake: ab.Repository) -> None:
    answer = cli("switch", "deev")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: there is no branch 'deev'\n")
    assert cli("status", "--json").document["branch"] == "main"


def test_with_a_repository_the_folder_remembers_that_one(
    cli: Run, lake: ab.Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = folder / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    ab.init("mine")
    assert f"note: this folder worked with {lake.uri} before" in cli("switch", "main", "--repo", "mine").out
    assert cli("status", "--json").document["repository"] == str(other / "mine")
    monkeypatch.chdir(folder)
    assert cli("status", "--json").document["repository"] == lake.uri


def test_from_below_the_memory_above_is_changed(
    cli: Run, lake: ab.Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = folder / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    cli("switch", "dev")
    assert not list(deep.iterdir())
    monkeypatch.chdir(folder)
    assert cli("status", "--json").document["branch"] == "dev"


def test_options_win_over_variables_and_those_over_the_memory(
    cli: Run, lake: ab.Repository, location: Location
) -> None:
    lake.branch_create("fix")
    cli("switch", "dev")
    env = {"ANABRANCH_BRANCH": "fix"}
    assert cli("status", "--json", env=env).document["branch_source"] == "environment"
    assert cli("status", "--json", env=env).document["branch"] == "fix"
    assert cli("status", "--branch", "main", "--json", env=env).document["branch"] == "main"
    assert "note: ANABRANCH_BRANCH is set to another value, and overrides it" in cli("switch", "main", env=env).out
    ab.init(location / "second", storage_options=location.storage_options)
    second = {"ANABRANCH_REPO": location / "second"}
    found = cli("status", "--json", env=second).document
    assert (found["repository"], found["branch"]) == (location / "second", "main")
    assert cli("status", "--repo", lake.uri, "--json", env=second).document["repository"] == lake.uri


@pytest.mark.parametrize("command", [["status"], ["log"], ["show"], ["table", "list"], ["cat", ORDERS]])
def test_a_remembered_branch_that_was_deleted_is_explained(
    cli: Run, lake: ab.Repository, folder: Path, command: list[str]
) -> None:
    cli("switch", "dev")
    lake.branch_delete("dev")
    answer = cli(*command)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == (
        f"error: branch 'dev' was deleted, and it is the current branch of this folder ({folder}/.anabranch.json)\n"
        "hint: switch with 'anabranch switch main', or bring it back with 'anabranch branch restore dev'\n"
    )


def test_graph_of_all_branches_needs_no_current_branch(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    lake.branch_delete("dev")
    answer = cli("log", "--graph")
    assert answer.code == 0
    assert "(main)" in answer.out
    assert "(dev)" not in answer.out


def test_both_ways_out_of_a_deleted_branch_work(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    lake.branch_delete("dev")
    assert cli("branch", "create", "fix").code == 3
    assert cli("branch", "list").code == 0
    assert cli("branch", "restore", "dev").code == 0
    assert cli("status").code == 0
    lake.branch_delete("dev")
    assert cli("switch", "main").code == 0
    assert cli("status").code == 0


def test_a_variable_that_names_no_branch_is_explained(cli: Run, lake: ab.Repository) -> None:
    answer = cli("log", env={"ANABRANCH_BRANCH": "deev"})
    assert answer.code == 3
    assert answer.err == (
        "error: there is no branch, tag or commit 'deev', and it is the current branch by ANABRANCH_BRANCH\n"
        "hint: set the variable to another branch, or unset it\n"
    )


def test_a_branch_is_created_and_switched_to(cli: Run, lake: ab.Repository) -> None:
    answer = cli("switch", "-c", "fix", "--from", "dev", "--actor", "eve")
    assert answer.out == f"on new branch fix at {short(lake, 'dev')}, in {lake.uri}\n"
    assert (lake.branch_get("fix").created_by, cli("status", "--json").document["branch"]) == ("eve", "fix")
    cli("switch", "--create", "follows", "--live")
    assert lake.branch_get("follows").mode == "live"
    assert cli("switch", "-c", "fix", "--json").error["code"] == "branch_exists"
    for option in (["--from", "dev"], ["--live"]):
        answer = cli("switch", "dev", *option)
        assert (answer.code, answer.err.splitlines()[0]) == (2, f"error: {option[0]} is for a new branch")


@pytest.mark.parametrize("command", [["status"], ["table", "list"], ["gc"], ["doctor"]])
def test_missing_repository_of_the_variable_names_the_variable(
    cli: Run, lake: ab.Repository, location: Location, command: list[str]
) -> None:
    missing = location / "missing"
    answer = cli(*command, env={"ANABRANCH_REPO": missing})
    assert f"there is no repository at {missing!r}, which ANABRANCH_REPO names" in answer.err
    option = cli(*command, "--repo", missing, env={"ANABRANCH_REPO": lake.uri})
    assert "ANABRANCH_REPO" not in option.err


def test_inside_the_folder_of_a_repository_commands_work_with_it(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demo", "shop")
    below = folder / "shop" / "lake" / "tables" / "shop"
    (folder / "shop" / ".anabranch.json").unlink()
    for inside in (folder / "shop" / "lake", below):
        monkeypatch.chdir(inside)
        assert run("status", "--json").document["repository"] == str(folder / "shop" / "lake")
    assert "worked with" not in run("switch", "sale").out
    monkeypatch.chdir(folder / "shop" / "lake")
    assert run("status", "--json").document["branch"] == "sale", "it is remembered for the whole repository"
    assert run("init").err.startswith("error: this folder works with the repository")


def test_the_nearest_repository_counts_with_the_branch_that_a_folder_above_remembers(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", "inner")
    run("switch", "-c", "dev")
    monkeypatch.chdir(folder / "inner")
    assert run("status", "--json").document["branch"] == "dev", "of the same repository"
    monkeypatch.chdir(folder)
    run("init", "outer")
    monkeypatch.chdir(folder / "inner")
    found = run("status", "--json").document
    assert (found["repository"], found["branch"]) == (str(folder / "inner"), "main")
