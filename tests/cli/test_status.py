"""`anabranch status`."""

import json
from pathlib import Path

import lance
import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run, short
from tests.conftest import Location


@pytest.mark.s3
def test_the_document_shows_where_the_folder_is(cli: Run, lake: ab.Repository) -> None:
    found = cli("status", "--json").document
    head = found.pop("head")
    assert found == {
        "repository": lake.uri,
        "branch": "main",
        "branch_source": "folder",
        "mode": "pinned",
        "own_tables": [],
        "version": 3,
        "tables": 2,
        "rows": 3,
        "external_writes": [],
        "parent": None,
        "ahead": None,
        "behind": None,
        "changed_tables": [],
    }
    assert (head["id"], head["message"]) == (lake.head_commit_id_for_branch("main"), "Add customers")


def test_people_read_the_same(cli: Run, lake: ab.Repository) -> None:
    lines = [line.split(maxsplit=1) for line in cli("status").out.splitlines()]
    facts = {name: value.strip() for name, value in lines}
    assert facts["repository"] == lake.uri
    assert (facts["branch"], facts["mode"]) == ("main", "-")
    assert facts["head"] == f"{short(lake, 'main')} Add customers"
    assert facts["tables"] == "2 tables, 3 rows"


def test_another_branch_can_be_asked_about(cli: Run, lake: ab.Repository) -> None:
    found = cli("status", "-b", "dev", "--json").document
    assert (found["branch"], found["branch_source"], found["rows"]) == ("dev", "option", 2)
    assert cli("status", "-b", "nope").err.startswith("error: there is no branch 'nope'\n")


@pytest.mark.s3
def test_a_direct_write_is_shown_until_it_is_adopted_or_set_aside(
    cli: Run, lake: ab.Repository, location: Location
) -> None:
    uri, options = lake.snapshot()[ORDERS].uri, location.storage_options or None
    lance.dataset(uri, storage_options=options).delete("id = 1")
    (write,) = cli("status", "--json").document["external_writes"]
    assert list(write) == ["table", "home", "problem"]
    assert (write["table"], write["home"]) == (ORDERS, "main")
    text = cli("status").out
    assert "external writes: accept with" in text
    assert uri in text
    assert cli("status", "-b", "dev", "--json").document["external_writes"] == []
    assert "accept with 'table adopt TABLE', discard with 'table settle TABLE --force'" in text
    assert cli("table", "settle", ORDERS, "--json").error["code"] == "external_write"
    assert cli("table", "settle", ORDERS, "--force", "--json").document == {"table": ORDERS, "branch": "main"}
    assert cli("status", "--json").document["external_writes"] == []
    lance.dataset(uri, storage_options=options).delete("id = 2")
    assert len(cli("status", "--json").document["external_writes"]) == 1
    adopted = cli("table", "adopt", ORDERS, "--actor", "eve", "--json").document
    assert adopted == {
        "table": ORDERS,
        "branch": "main",
        "commit_id": lake.head_commit_id_for_branch("main"),
        "rows": 2,
    }
    assert lake.get_commit(adopted["commit_id"]).actor_id == "eve"
    assert cli("status", "--json").document["external_writes"] == []
    assert cli("cat", ORDERS, "--where", "id = 2", "--json").document["rows"] == []


def test_a_commit_beside_a_direct_write_warns_on_stderr(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    lance.dataset(lake.snapshot()[ORDERS].uri, storage_options=dict(lake.storage_options) or None).delete("id = 1")
    file = tmp_path / "more.csv"
    file.write_text("id,item,price\n77,jam,1.5\n")
    done = cli("load", ORDERS, str(file), "--mode", "append", "--json")
    assert (done.code, json.loads(done.out)["rows_loaded"]) == (0, 1)
    (line,) = done.err.splitlines()
    assert line.startswith("warning: the commit is published, but another Lance tool wrote to")
    assert f"'anabranch table adopt {ORDERS} --branch main'" in line
    assert cli("table", "adopt", ORDERS).err == ""
    found = lake.snapshot_of("main")[ORDERS].to_arrow(columns=["id"]).column("id").to_pylist()
    assert sorted(found) == [2, 3, 77]


def test_a_branch_is_compared_with_its_parent(cli: Run, lake: ab.Repository) -> None:
    with lake.transaction(message="more") as tx:
        tx.delete(ORDERS, "id = 1")
    shown = cli("status", "-b", "dev", "--json").document
    assert (shown["parent"], shown["ahead"], shown["behind"]) == ("main", 1, 2)
    (changed,) = shown["changed_tables"]
    assert (changed["table"], changed["has_drifted"], changed["branch_rows"]) == (ORDERS, True, 2)
    text = cli("status", "-b", "dev").out
    assert "main: 1 ahead, 2 behind" in text
    assert "changed on dev" in text
    assert cli("status", "--json").document["ahead"] is None
