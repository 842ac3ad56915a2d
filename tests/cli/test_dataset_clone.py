"""`anabranch dataset clone`."""

import lance
import pytest

from anabranch.storage import open_store
from tests.cli.conftest import Run
from tests.conftest import Location
from tests.format.trees import contents

CLONE_KEYS = ["uri", "source_branch", "source_version", "tag", "created_at", "exists"]


@pytest.mark.s3
def test_a_shallow_clone_lives_from_create_to_drop(run: Run, table: str, reach: list[str], location: Location) -> None:
    target = location / "clone.lance"
    made = run("dataset", "clone", "create", table, target, "--ref", "1", *reach, "--json").document
    assert list(made) == ["kind", *CLONE_KEYS]
    assert (made["kind"], made["uri"], made["source_version"], made["exists"]) == ("shallow", target, 1, True)
    assert lance.dataset(target, storage_options=location.storage_options or None).count_rows() == 3
    (listed,) = run("dataset", "clone", "list", table, *reach, "--json").document["clones"]
    assert listed == {key: made[key] for key in CLONE_KEYS}
    assert run("dataset", "clone", "drop", table, target, *reach, "--json").document["dropped"] == target
    assert run("dataset", "clone", "list", table, *reach, "--json").document == {"clones": []}
    assert run("dataset", "show", target, *reach).code == 3


def test_a_deep_clone_needs_its_source_no_more(run: Run, table: str, reach: list[str], location: Location) -> None:
    target = location / "clone.lance"
    made = run("dataset", "clone", "create", table, target, "--deep", *reach, "--json").document
    assert (made["kind"], made["tag"], made["source_version"]) == ("deep", None, 2)
    assert run("dataset", "base", "list", target, *reach, "--json").document["bases"] == []
    assert run("dataset", "clone", "list", table, *reach, "--json").document == {"clones": []}


def test_people_read_sentences_and_tables(run: Run, table: str, reach: list[str], location: Location) -> None:
    target = location / "clone.lance"
    assert run("dataset", "clone", "list", table, *reach).out == "no shallow clones\n"
    made = run("dataset", "clone", "create", table, target, *reach)
    assert made.out == f"made a shallow clone of version 2 of main at {target}\n"
    assert target in run("dataset", "clone", "list", table, *reach).out
    assert run("dataset", "clone", "drop", table, target, *reach).out == f"dropped clone {target}\n"


def test_a_taken_target_is_refused(run: Run, table: str, reach: list[str], location: Location) -> None:
    target = location / "clone.lance"
    run("dataset", "clone", "create", table, target, *reach)
    answer = run("dataset", "clone", "create", table, target, *reach, "--json")
    assert (answer.code, answer.error["code"]) == (4, "dataset_exists")


def test_what_was_never_cloned_is_not_dropped(run: Run, table: str, reach: list[str], location: Location) -> None:
    answer = run("dataset", "clone", "drop", table, location / "nothing", *reach)
    assert answer.code != 0
    assert location / "nothing" in answer.err


def test_a_clone_that_is_gone_is_released(run: Run, table: str, reach: list[str], location: Location) -> None:
    made = run("dataset", "clone", "create", table, location / "clone.lance", *reach, "--json").document
    clone = open_store(location / "clone.lance", location.storage_options)
    for info in list(clone.list()):
        clone.delete(info.path)
    (listed,) = run("dataset", "clone", "list", table, *reach, "--json").document["clones"]
    assert (listed["tag"], listed["exists"]) == (made["tag"], False)
    assert run("dataset", "clone", "release", table, made["tag"], *reach).out == f"released {made['tag']}\n"
    assert run("dataset", "clone", "list", table, *reach, "--json").document == {"clones": []}
    again = run("dataset", "clone", "release", table, made["tag"], *reach, "--json")
    assert (again.code, again.error["code"]) == (3, "tag_not_found")


def test_the_tag_that_holds_a_clone_names_the_way_out(
    run: Run, table: str, reach: list[str], location: Location
) -> None:
    target = location / "clone.lance"
    made = run("dataset", "clone", "create", table, target, *reach, "--json").document
    for command in (["tag", "delete", table, made["tag"]], ["tag", "update", table, made["tag"], "--ref", "1"]):
        refused = run("dataset", *command, *reach, "--json")
        assert (refused.code, refused.error["code"]) == (4, "dataset_in_use")
        assert target in refused.error["message"]
        assert "anabranch dataset clone drop" in refused.error["hint"]
    assert run("dataset", "clone", "drop", table, target, *reach).code == 0


def test_a_moved_clone_is_recorded_under_its_new_address(
    run: Run, table: str, reach: list[str], location: Location
) -> None:
    """Moved object by object, as on a store without a rename."""
    old, new = location / "clone.lance", location / "moved.lance"
    made = run("dataset", "clone", "create", table, old, *reach, "--json").document
    source, target = (open_store(uri, location.storage_options) for uri in (old, new))
    for info in list(source.list()):
        target.put(info.path, source.get(info.path))
        source.delete(info.path)
    planned = run("dataset", "relocate", new, "--dry-run", *reach, "--json").document
    assert [hold["outcome"] for hold in planned["holds"]] == ["updated"]
    (listed,) = run("dataset", "clone", "list", table, *reach, "--json").document["clones"]
    assert (listed["uri"], listed["exists"]) == (old, False)
    report = run("dataset", "relocate", new, *reach)
    assert f"recorded the new address in the source {table} (tag {made['tag']})" in report.out
    (listed,) = run("dataset", "clone", "list", table, *reach, "--json").document["clones"]
    assert (listed["uri"], listed["tag"], listed["exists"]) == (new, made["tag"], True)


def test_dry_runs_change_nothing(run: Run, table: str, reach: list[str], location: Location) -> None:
    target = location / "clone.lance"
    made = run("dataset", "clone", "create", table, target, *reach, "--json").document
    run("dataset", "branch", "create", table, "dev", *reach)
    before = contents(location.root, location.storage_options)
    dropped = run("dataset", "clone", "drop", table, target, "--dry-run", *reach, "--json").document
    assert (dropped["tags"], dropped["dry_run"], dropped["files"] > 0) == ([made["tag"]], True, True)
    deleted = run("dataset", "branch", "delete", table, "dev", "--dry-run", *reach, "--json").document
    assert (deleted["deleted"], deleted["dry_run"], deleted["bytes"] > 0) == ("dev", True, True)
    relocated = run("dataset", "relocate", target, "--dry-run", *reach, "--json").document
    assert relocated["dry_run"]
    assert contents(location.root, location.storage_options) == before
    assert run("dataset", "branch", "delete", table, "dev", *reach, "--json").document["files"] == deleted["files"]
    assert run("dataset", "clone", "drop", table, target, *reach, "--json").document["files"] == dropped["files"]
