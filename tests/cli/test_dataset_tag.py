"""`anabranch dataset tag`."""

import lance
import pytest

from tests.cli.conftest import Run
from tests.conftest import Location

TAG_KEYS = ["name", "branch", "version", "manifest_size", "created_at", "updated_at", "metadata"]


@pytest.mark.s3
def test_a_tag_lives_from_create_to_delete(run: Run, table: str, reach: list[str], location: Location) -> None:
    created = run("dataset", "tag", "create", table, "v1.0", "--ref", "1", *reach, "--json").document
    assert list(created) == TAG_KEYS
    assert (created["name"], created["branch"], created["version"]) == ("v1.0", "main", 1)
    with_lance = lance.dataset(table, version="v1.0", storage_options=location.storage_options or None)
    assert with_lance.count_rows() == 3
    moved = run("dataset", "tag", "update", table, "v1.0", *reach, "--json").document
    assert moved["version"] == 2
    assert run("dataset", "tag", "list", table, *reach, "--json").document == {"tags": [moved], "unreadable": []}
    assert run("dataset", "tag", "show", table, "v1.0", *reach, "--json").document == {**moved, "rows": 4}
    assert run("dataset", "tag", "delete", table, "v1.0", *reach, "--json").document == {"deleted": "v1.0"}
    assert run("dataset", "tag", "list", table, *reach, "--json").document == {"tags": [], "unreadable": []}


def test_a_tag_can_stand_on_a_branch(run: Run, table: str, reach: list[str]) -> None:
    run("dataset", "branch", "create", table, "dev", "--from", "1", *reach)
    created = run("dataset", "tag", "create", table, "v1", "--ref", "dev", *reach, "--json").document
    assert (created["branch"], created["version"]) == ("dev", 1)
    assert run("dataset", "tag", "show", table, "v1", *reach, "--json").document["rows"] == 3


def test_people_read_sentences_and_tables(run: Run, table: str, reach: list[str]) -> None:
    assert run("dataset", "tag", "list", table, *reach).out == "no tags\n"
    assert run("dataset", "tag", "create", table, "v1", *reach).out == "created tag v1 at version 2 of main\n"
    moved = run("dataset", "tag", "update", table, "v1", "--ref", "1", *reach)
    assert moved.out == "moved tag v1 to version 1 of main\n"
    assert "main@v1" in run("dataset", "tag", "list", table, *reach).out
    assert "version" in run("dataset", "tag", "show", table, "v1", *reach).out
    assert run("dataset", "tag", "delete", table, "v1", *reach).out == "deleted tag v1\n"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["create", "v/1"], "invalid_name", 2),
        (["create", "v1"], "tag_exists", 4),
        (["update", "v2"], "tag_not_found", 3),
        (["show", "v2"], "tag_not_found", 3),
        (["delete", "v2"], "tag_not_found", 3),
        (["create", "v2", "--ref", "99"], "version_not_found", 3),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, table: str, reach: list[str], args: list[str], code: str, exit_code: int
) -> None:
    run("dataset", "tag", "create", table, "v1", *reach)
    command, name, *rest = args
    answer = run("dataset", "tag", command, table, name, *rest, *reach, "--json")
    assert (answer.error["code"], answer.code) == (code, exit_code)
    assert [tag["name"] for tag in run("dataset", "tag", "list", table, *reach, "--json").document["tags"]] == ["v1"]


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_metadata_is_set_shown_and_removed(run: Run, table: str, reach: list[str], kind: str) -> None:
    run("dataset", kind, "create", table, "x", *reach)
    metadata = ["dataset", kind, "metadata", table, "x", *reach]
    assert run(*metadata).out == "no metadata\n"
    found = run(*metadata, "--set", "owner=ada", "--set", "why=a=b", "--json").document
    assert found == {kind: "x", "metadata": {"owner": "ada", "why": "a=b"}}
    assert run(*metadata, "--unset", "why", "--json").document["metadata"] == {"owner": "ada"}
    assert run(*metadata, "--set", "new=1", "--replace", "--json").document["metadata"] == {"new": "1"}
    assert run("dataset", kind, "show", table, "x", *reach, "--json").document["metadata"] == {"new": "1"}
    reserved = run(*metadata, "--set", "anabranch.clone=here", "--json")
    assert (reserved.code, reserved.error["code"]) == (2, "invalid_input")
    assert run(*metadata, "--json").document["metadata"] == {"new": "1"}
