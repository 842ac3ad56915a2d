"""`anabranch dataset show`."""

import lance
import pytest

from tests.cli.conftest import Run
from tests.conftest import Location


@pytest.mark.s3
def test_a_dataset_is_shown_as_json(run: Run, table: str, reach: list[str], location: Location) -> None:
    dataset = lance.dataset(table, storage_options=location.storage_options or None)
    dataset.create_branch("dev", 1)
    dataset.tags.create("v1", 2)
    shown = run("dataset", "show", table, *reach, "--json").document
    assert list(shown) == ["uri", "branch", "version", "rows", "schema", "branches", "tags", "unreadable"]
    assert (shown["uri"], shown["branch"], shown["version"], shown["rows"]) == (table, "main", 2, 4)
    assert shown["schema"] == [{"name": "id", "type": "int64", "nullable": True}]
    assert [branch["name"] for branch in shown["branches"]] == ["dev"]
    assert [tag["name"] for tag in shown["tags"]] == ["v1"]


def test_a_branch_of_a_dataset_is_shown(run: Run, table: str, reach: list[str]) -> None:
    run("dataset", "branch", "create", table, "dev", "--from", "1", *reach)
    shown = run("dataset", "show", table, "--branch", "dev", *reach, "--json").document
    assert (shown["branch"], shown["version"], shown["rows"]) == ("dev", 1, 3)


def test_a_dataset_is_shown_to_people(run: Run, table: str, reach: list[str]) -> None:
    answer = run("dataset", "show", table, *reach)
    assert (answer.code, answer.err) == (0, "")
    for text in (table, "rows", "int64", "no branches besides main", "no tags"):
        assert text in answer.out


def test_a_folder_without_a_dataset_is_not_found(run: Run, location: Location, reach: list[str]) -> None:
    error = run("dataset", "show", location / "nothing", *reach, "--json").error
    assert error["code"] == "dataset_not_found"
    assert location / "nothing" in error["message"]
