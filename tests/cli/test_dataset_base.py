"""`anabranch dataset base`."""

import pytest

from tests.cli.conftest import Run
from tests.conftest import Location


@pytest.mark.s3
def test_a_base_is_added_and_listed(run: Run, table: str, reach: list[str], location: Location) -> None:
    added = run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach, "--json").document
    assert list(added) == ["id", "name", "is_dataset_root", "path"]
    assert (added["name"], added["is_dataset_root"], added["path"]) == ("cold", False, location / "cold")
    listed = run("dataset", "base", "list", table, *reach, "--json").document
    assert listed == {"branch": "main", "bases": [added]}


def test_a_base_can_be_laid_out_as_a_dataset(run: Run, table: str, reach: list[str], location: Location) -> None:
    args = ["dataset", "base", "add", table, location / "eu", "--name", "eu", "--dataset-root"]
    assert run(*args, *reach, "--json").document["is_dataset_root"] is True


def test_a_branch_lists_the_root_it_inherits_from(run: Run, table: str, reach: list[str], location: Location) -> None:
    run("dataset", "branch", "create", table, "dev", *reach)
    listed = run("dataset", "base", "list", table, "--branch", "dev", *reach, "--json").document
    assert listed["branch"] == "dev"
    assert [base["is_dataset_root"] for base in listed["bases"]] == [True]


def test_people_read_sentences_and_tables(run: Run, table: str, reach: list[str], location: Location) -> None:
    assert "no bases besides the root itself" in run("dataset", "base", "list", table, *reach).out
    added = run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach)
    assert added.out.startswith("added base cold (id ")
    assert location / "cold" in run("dataset", "base", "list", table, *reach).out


def test_a_name_is_given_once(run: Run, table: str, reach: list[str], location: Location) -> None:
    run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach)
    answer = run("dataset", "base", "add", table, location / "other", "--name", "cold", *reach, "--json")
    assert (answer.code, answer.error["code"]) == (4, "base_exists")


def test_an_unused_base_is_removed(run: Run, table: str, reach: list[str], location: Location) -> None:
    run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach)
    planned = run("dataset", "base", "remove", table, "cold", "--dry-run", *reach, "--json").document
    assert (planned["name"], planned["versions"], planned["dry_run"]) == ("cold", {"main": 3}, True)
    assert run("dataset", "base", "remove", table, "cold", *reach).out == "removed base cold from main\n"
    assert run("dataset", "base", "list", table, *reach, "--json").document["bases"] == []
    again = run("dataset", "base", "remove", table, "cold", *reach, "--json")
    assert (again.code, again.error["code"]) == (3, "base_not_found")
