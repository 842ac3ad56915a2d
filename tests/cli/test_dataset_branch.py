"""`anabranch dataset branch`."""

from datetime import datetime

import lance
import pytest

from anabranch.storage import open_store
from tests.cli.conftest import Run
from tests.conftest import Location

BRANCH_KEYS = ["name", "parent_branch", "parent_version", "created_at", "manifest_size", "metadata"]


@pytest.mark.s3
def test_a_branch_lives_from_create_to_delete(run: Run, table: str, reach: list[str], location: Location) -> None:
    created = run("dataset", "branch", "create", table, "dev/x", "--from", "1", *reach, "--json").document
    assert list(created) == BRANCH_KEYS
    assert (created["name"], created["parent_branch"], created["parent_version"]) == ("dev/x", "main", 1)
    assert datetime.fromisoformat(created["created_at"]).utcoffset() is not None
    assert run("dataset", "branch", "list", table, *reach, "--json").document == {
        "branches": [created],
        "unreadable": [],
    }
    shown = run("dataset", "branch", "show", table, "dev/x", *reach, "--json").document
    assert shown == {**created, "version": 1, "rows": 3}
    with_lance = lance.dataset(table, storage_options=location.storage_options or None)
    assert with_lance.checkout_version(("dev/x", None)).count_rows() == 3
    assert run("dataset", "branch", "delete", table, "dev/x", *reach, "--json").document["deleted"] == "dev/x"
    assert run("dataset", "branch", "list", table, *reach, "--json").document == {"branches": [], "unreadable": []}


@pytest.mark.parametrize(
    ("source", "parent"),
    [
        (None, ("main", 2)),
        ("main", ("main", 2)),
        ("main@v1", ("main", 1)),
        ("v1", ("main", 1)),
        ("dev", ("dev", 2)),
        ("dev@v2", ("dev", 2)),
        ("2", ("main", 2)),
    ],
)
def test_a_branch_starts_at_the_given_version(
    run: Run, table: str, reach: list[str], source: str | None, parent: tuple[str, int]
) -> None:
    run("dataset", "tag", "create", table, "v1", "--ref", "1", *reach)
    run("dataset", "branch", "create", table, "dev", *reach)
    chosen = [] if source is None else ["--from", source]
    created = run("dataset", "branch", "create", table, "new", *chosen, *reach, "--json").document
    assert (created["parent_branch"], created["parent_version"]) == parent


def test_people_read_sentences_and_tables(run: Run, table: str, reach: list[str]) -> None:
    assert "no branches besides main" in run("dataset", "branch", "list", table, *reach).out
    created = run("dataset", "branch", "create", table, "dev", *reach)
    assert created.out == "created branch dev from version 2 of main\n"
    assert "main@v2" in run("dataset", "branch", "list", table, *reach).out
    assert "main at version 2" in run("dataset", "branch", "show", table, "dev", *reach).out
    assert run("dataset", "branch", "delete", table, "dev", *reach).out == "deleted branch dev\n"


def test_a_branch_in_use_is_not_deleted(run: Run, table: str, reach: list[str]) -> None:
    run("dataset", "branch", "create", table, "dev", *reach)
    run("dataset", "branch", "create", table, "child", "--from", "dev", *reach)
    answer = run("dataset", "branch", "delete", table, "dev", *reach, "--json")
    assert (answer.code, answer.error["code"]) == (4, "branch_in_use")
    assert "'child'" in answer.error["hint"]


def test_a_taken_name_is_a_conflict(run: Run, table: str, reach: list[str]) -> None:
    run("dataset", "branch", "create", table, "dev", *reach)
    answer = run("dataset", "branch", "create", table, "dev", *reach, "--json")
    assert (answer.code, answer.error["code"]) == (4, "branch_exists")


def test_main_is_neither_made_nor_deleted(run: Run, table: str, reach: list[str]) -> None:
    for command in ("create", "delete"):
        answer = run("dataset", "branch", command, table, "main", *reach)
        assert (answer.code, answer.out) == (2, "")


@pytest.mark.s3
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("99999999999999999999", "version_not_found"),
        ("main@v99999999999999999999", "version_not_found"),
        ("nope@v1", "branch_not_found"),
        ("nope", "not_found"),
    ],
)
def test_a_source_that_does_not_exist_is_not_found(
    run: Run, table: str, reach: list[str], source: str, code: str
) -> None:
    refused = run("dataset", "branch", "create", table, "new", "--from", source, *reach, "--json")
    assert (refused.code, refused.error["code"]) == (3, code)


@pytest.mark.parametrize(("name", "hint"), [("main/hotfix", "use 'main-hotfix'"), ("7", "use 'v7'")])
def test_names_that_would_be_dangerous_or_ambiguous_are_refused(
    run: Run, table: str, reach: list[str], name: str, hint: str
) -> None:
    refused = run("dataset", "branch", "create", table, name, *reach, "--json")
    assert (refused.code, refused.error["code"], refused.error["hint"]) == (2, "invalid_name", hint)
    assert run("dataset", "branch", "list", table, *reach, "--json").document == {"branches": [], "unreadable": []}


def test_a_branch_below_main_that_another_tool_made_is_listed_and_deleted(
    run: Run, table: str, reach: list[str], location: Location
) -> None:
    with_lance = lance.dataset(table, storage_options=location.storage_options or None)
    with_lance.create_branch("main/hotfix")
    listed = run("dataset", "branch", "list", table, *reach, "--json").document
    assert [branch["name"] for branch in listed["branches"]] == ["main/hotfix"]
    run("dataset", "branch", "delete", table, "main/hotfix", *reach)
    assert (
        lance.dataset(table, storage_options=location.storage_options or None).count_rows() == with_lance.count_rows()
    )


def test_a_branch_that_cannot_be_read_is_named_beside_the_others(
    run: Run, table: str, reach: list[str], location: Location
) -> None:
    for name in ("dev", "other"):
        run("dataset", "branch", "create", table, name, *reach)
    open_store(table, location.storage_options).put("_refs/branches/dev.json", b"noise")
    listed = run("dataset", "branch", "list", table, *reach, "--json").document
    assert [branch["name"] for branch in listed["branches"]] == ["other"]
    problem = {"path": "_refs/branches/dev.json", "name": "dev", "problem": "it is not JSON"}
    assert listed["unreadable"] == [problem]
    printed = run("dataset", "branch", "list", table, *reach)
    assert printed.err.startswith("warning: _refs/branches/dev.json cannot be read: it is not JSON;")
    assert "other" in printed.out
    assert run("dataset", "show", table, *reach, "--json").document["unreadable"] == [problem]
    run("dataset", "branch", "delete", table, "other", *reach)
    assert run("dataset", "doctor", table, *reach).code == 1
    repaired = run("dataset", "doctor", table, "--repair", "--grace", "0s", *reach, "--json").document
    assert [(finding["kind"], finding["repaired"]) for finding in repaired["findings"]] == [("damaged_ref", True)]
    assert run("dataset", "branch", "show", table, "dev", *reach, "--json").document["parent_version"] == 2
