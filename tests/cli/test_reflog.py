"""`anabranch reflog`."""

import pytest

import anabranch as ab
from tests.cli.conftest import Run, short


@pytest.mark.s3
def test_the_document_shows_every_movement(cli: Run, lake: ab.Repository) -> None:
    lake.branch_delete("dev")
    found = cli("reflog", "dev", "--json").document
    assert (found["branch"], found["has_more"]) == ("dev", False)
    deleted, committed, created = found["movements"]
    names = ["version", "event", "at", "actor", "commit_id", "message", "is_deleted", "restores"]
    assert list(created) == [*names, "renamed_from", "renamed_to"]
    assert [one["event"] for one in (deleted, committed, created)] == ["deleted", "committed", "created"]
    assert [one["is_deleted"] for one in (deleted, committed, created)] == [True, False, False]
    assert (committed["version"], committed["actor"], committed["message"]) == (2, "bob", "Fix a price")
    assert created["commit_id"] == lake.snapshot_of("main~1").id


def test_people_read_versions_that_they_can_ask_for(cli: Run, lake: ab.Repository) -> None:
    rows = [line.split() for line in cli("reflog").out.splitlines()[2:]]
    assert [(row[0], row[1], row[4], row[5]) for row in rows] == [
        ("main@v3", "committed", "ada", short(lake, "main")),
        ("main@v2", "committed", "ada", short(lake, "main~1")),
        ("main@v1", "created", "ada", short(lake, "main~2")),
    ]
    assert cli("show", rows[1][0], "--json").document["id"] == lake.snapshot_of("main~1").id


def test_the_limit_is_reported(cli: Run, lake: ab.Repository) -> None:
    assert cli("reflog", "-n", "1").out.startswith("the newest 1 change; --limit shows more\n")
    assert cli("reflog", "-n", "2", "--json").document["has_more"] is True


def test_a_branch_that_never_was_is_an_error(cli: Run, lake: ab.Repository) -> None:
    assert cli("reflog", "nope", "--json").error["code"] == "branch_not_found"
    assert cli("reflog", "a//b").code == 2
