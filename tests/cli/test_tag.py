"""`anabranch tag`."""

from datetime import datetime

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, Run, short


@pytest.mark.s3
def test_a_tag_lives_from_create_to_delete(cli: Run, lake: ab.Repository) -> None:
    commit = lake.snapshot_of("main~1").id
    given = ["--ref", "main~1", "--description", "first", "--actor", "eve"]
    created = cli("tag", "create", "v1.0", *given, "--json").document
    assert list(created) == ["name", "commit_id", "created_at", "created_by", "description"]
    assert (created["name"], created["commit_id"]) == ("v1.0", commit)
    assert (created["created_by"], created["description"]) == ("eve", "first")
    assert datetime.fromisoformat(created["created_at"]).utcoffset() is not None
    assert cli("tag", "list", "--json").document == {"tags": [created]}
    assert cli("tag", "show", "v1.0", "--json").document == {**created, "tables": 1, "rows": 3}
    assert cli("tag", "delete", "v1.0", "--json").document == {"deleted": "v1.0", "commit_id": commit}
    assert cli("tag", "list", "--json").document == {"tags": []}


def test_a_tag_names_the_current_branch_and_does_not_move(cli: Run, lake: ab.Repository) -> None:
    cli("switch", "dev")
    head = short(lake, "dev")
    assert cli("tag", "create", "v1").out == f"created tag v1 at {head}\n"
    with lake.transaction("dev") as tx:
        tx.delete("in_c_sales.orders", "true")
    for command in (["log", "v1", "--json"], ["log", "v1", "--graph", "--json"]):
        assert cli(*command).document["commits"][0]["message"] == "Fix a price"
    assert cli("show", "v1", "--json").document["id"] == lake.tag_get("v1").commit_id
    assert cli("table", "list", "--ref", "v1", "--json").document["tables"][0]["rows"] == 2
    assert cli("branch", "create", "again", "--from", "v1", "--json").document["head_commit_id"].startswith(head)


def test_tags_are_listed_in_pages(cli: Run, lake: ab.Repository) -> None:
    for name in ("v1", "v2", "w1"):
        lake.tag_create(name)
    listed = cli("tag", "list", "--prefix", "v", "--after", "v1", "--limit", "5", "--json").document["tags"]
    assert [tag["name"] for tag in listed] == ["v2"]


def test_people_read_tables(cli: Run, lake: ab.Repository) -> None:
    assert cli("tag", "list").out == "no tags\n"
    cli("tag", "create", "v1", "--description", "before the sale", "--actor", "eve")
    head = short(lake, "main")
    (row,) = [line.split(maxsplit=5) for line in cli("tag", "list").out.splitlines()[2:]]
    assert (row[0], row[1], row[4], row[5].strip()) == ("v1", head, "eve", "before the sale")
    shown = cli("tag", "show", "v1").out
    for part in ("before the sale", f"{head} Add customers", "2 tables, 3 rows"):
        assert part in shown
    assert cli("tag", "delete", "v1").out == f"deleted tag v1, which named {head}\n"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["create", "v1"], "tag_exists", 4),
        (["create", "dev"], "invalid_input", 2),
        (["create", "a b"], "invalid_name", 2),
        (["create", "2026"], "invalid_name", 2),
        (["create", "v2", "--ref", "nope"], "branch_not_found", 3),
        (["create", "v2", "--ref", "main~99"], "commit_not_found", 3),
        (["show", "nope"], "tag_not_found", 3),
        (["delete", "nope"], "tag_not_found", 3),
    ],
)
def test_what_cannot_be_is_refused(cli: Run, lake: ab.Repository, args: list[str], code: str, exit_code: int) -> None:
    lake.tag_create("v1")
    assert cli("tag", *args, "--json").error["code"] == code
    assert cli("tag", *args).code == exit_code
    assert [tag.name for tag in lake.tag_list()] == ["v1"]
    assert CUSTOMERS in lake.snapshot_of("v1")
