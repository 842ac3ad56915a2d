"""`anabranch dataset move|report|layout`."""

import lance
import pytest

from anabranch.storage import open_store
from tests.cli.conftest import Run
from tests.conftest import Location
from tests.format.trees import contents


@pytest.fixture
def tiered(run: Run, table: str, reach: list[str], location: Location) -> str:
    """The table with an empty base called cold."""
    assert run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach).code == 0
    return table


@pytest.mark.s3
def test_a_fragment_moves_to_a_base_and_back(run: Run, tiered: str, reach: list[str]) -> None:
    moved = run("dataset", "move", tiered, "--to", "cold", "--fragment", "0", *reach, "--json").document
    assert list(moved) == [
        *("to", "version", "moved", "already_there", "partly_matching", "files", "bytes", "left_behind"),
        *("dry_run", "pruned"),
    ]
    assert (moved["to"], moved["moved"], moved["files"]) == ("cold", [0], 1)
    report = run("dataset", "report", tiered, *reach, "--json").document
    assert list(report) == ["uri", "branch", "version", "bases", "total", "missing"]
    assert {base["name"]: base["data"]["files"] for base in report["bases"]} == {"root": 1, "cold": 1}
    assert (report["total"]["files"], report["missing"]) == (2, [])
    run("dataset", "move", tiered, "--to", "root", "--fragment", "0", *reach)
    report = run("dataset", "report", tiered, *reach, "--json").document
    assert {base["name"]: base["data"]["files"] for base in report["bases"]} == {"root": 2, "cold": 0}
    assert run("dataset", "show", tiered, *reach, "--json").document["rows"] == 4


def test_a_name_in_double_quotes_is_a_column(run: Run, tiered: str, reach: list[str]) -> None:
    moved = run("dataset", "move", tiered, "--to", "cold", "--where", '"id" = 4', *reach, "--json").document
    assert moved["moved"] == [1]
    refused = run("dataset", "move", tiered, "--to", "cold", "--where", '"nope" IS NOT NULL', *reach)
    assert "there is no column 'nope'" in refused.err


def test_fragments_are_chosen_by_a_filter(run: Run, tiered: str, reach: list[str]) -> None:
    args = ["dataset", "move", tiered, "--to", "cold", "--where", "id >= 3", *reach]
    moved = run(*args, "--json").document
    assert (moved["moved"], moved["partly_matching"]) == ([1], [0])
    again = run(*args)
    assert "already there: 1\n" in again.out
    assert "only some of their rows match: 0\n" in again.out


@pytest.mark.parametrize("choice", [[], ["--where", "id > 1", "--fragment", "0"]])
def test_fragments_are_chosen_in_one_way(run: Run, tiered: str, reach: list[str], choice: list[str]) -> None:
    answer = run("dataset", "move", tiered, "--to", "cold", *choice, *reach)
    assert (answer.code, answer.out) == (2, "")
    assert "either --where or --fragment" in answer.err


def test_a_wrong_filter_moves_nothing(run: Run, tiered: str, reach: list[str]) -> None:
    answer = run("dataset", "move", tiered, "--to", "cold", "--where", "no_such_column > 1", *reach)
    assert answer.code == 2
    assert run("dataset", "show", tiered, *reach, "--json").document["version"] == 3


def test_people_read_a_report(run: Run, tiered: str, reach: list[str], location: Location) -> None:
    moved = run("dataset", "move", tiered, "--to", "cold", "--fragment", "0", "--fragment", "1", *reach)
    assert moved.out.startswith("moved 2 fragments (2 files, ")
    report = run("dataset", "report", tiered, *reach)
    assert report.out.startswith("version 4: 2 files, ")
    assert location / "cold" in report.out


@pytest.mark.s3
def test_every_file_is_classified(run: Run, table: str, reach: list[str], location: Location) -> None:
    open_store(table, location.storage_options).put("notes.txt", b"mine")
    found = run("dataset", "layout", table, *reach, "--json").document
    assert list(found) == ["root", "total", "by_kind", "by_branch", "unreferenced_trees", "unknown_files", "files"]
    assert found["unknown_files"] == ["notes.txt"]
    assert (found["by_kind"]["data"]["files"], found["by_kind"]["manifest"]["files"]) == (2, 2)
    assert found["total"] == found["by_branch"]["main"]
    assert found["total"]["files"] == len(found["files"])
    assert found["total"]["bytes"] == sum(file["size"] for file in found["files"])
    assert list(found["files"][0]) == ["path", "kind", "branch", "has_ref", "size", "modified"]


def test_people_see_totals_and_unknown_files_and_all_files_on_request(
    run: Run, table: str, reach: list[str], location: Location
) -> None:
    open_store(table, location.storage_options).put("notes.txt", b"mine")
    brief, full = run("dataset", "layout", table, *reach).out, run("dataset", "layout", table, "--files", *reach).out
    assert "notes.txt" in brief
    assert ".lance" not in brief
    assert ".lance" in full
    assert "unknown files" in brief


def test_the_layout_of_a_damaged_dataset_is_shown(run: Run, table: str, reach: list[str], location: Location) -> None:
    store = open_store(table, location.storage_options)
    for info in list(store.list("_versions")):
        store.put(info.path, b"damage")
    assert run("dataset", "show", table, *reach).code == 7
    assert run("dataset", "layout", table, *reach, "--json").document["by_kind"]["manifest"]["files"] == 2


@pytest.mark.s3
def test_a_move_with_prune_frees_the_hot_tier(run: Run, tiered: str, reach: list[str], location: Location) -> None:
    def hot() -> dict[str, bytes]:
        return {
            path: data for path, data in contents(tiered, location.storage_options).items() if path.startswith("data/")
        }

    before = hot()
    args = ["dataset", "move", tiered, "--to", "cold", "--fragment", "0", *reach]
    refused = run(*args, "--prune", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    refused = run(*args, "--keep-last", "1", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    planned = run(*args, "--dry-run", "--json").document
    assert (planned["moved"], planned["dry_run"], planned["pruned"]) == ([0], True, None)
    assert contents(location / "cold", location.storage_options) == {}
    moved = run(*args, "--prune", "--keep-last", "1", "--grace", "0s", "--json").document
    assert (moved["files"], moved["bytes"]) == (planned["files"], planned["bytes"])
    gone = before.keys() - hot().keys()
    assert [f"{tiered}/{path}" for path in gone] == moved["left_behind"]
    assert sum(len(before[path]) for path in gone) == moved["bytes"]
    assert {file["path"] for file in moved["pruned"]["removed"]} >= gone
    assert lance.dataset(tiered, storage_options=location.storage_options or None).count_rows() == 4
