"""`anabranch dataset relocate|doctor`."""

import json
import os
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.storage import open_store
from tests.cli.conftest import Run
from tests.conftest import Location


@pytest.fixture
def moved(tmp_path: Path) -> str:
    """A dataset with a branch that was moved elsewhere."""
    old, new = tmp_path / "old.lance", tmp_path / "new.lance"
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), str(old)).create_branch("dev")
    shutil.move(old, new)
    return str(new)


def test_a_moved_dataset_is_made_whole(run: Run, moved: str, tmp_path: Path) -> None:
    assert run("dataset", "show", moved).code == 0
    refused = run("dataset", "show", moved, "--branch", "dev", "--json")
    assert (refused.code, refused.error["code"]) == (7, "stale_base")
    report = run("dataset", "relocate", moved, "--json").document
    assert list(report) == ["root", "changes", "rewritten", "unchanged", "unexplained", "holds", "dry_run"]
    assert report["changes"] == {str(tmp_path / "old.lance"): moved}
    assert (len(report["rewritten"]), report["unchanged"], report["unexplained"]) == (1, 1, [])
    assert run("dataset", "show", moved, "--branch", "dev", "--json").document["rows"] == 3


def test_people_read_what_changed(run: Run, moved: str, tmp_path: Path) -> None:
    answer = run("dataset", "relocate", moved)
    assert answer.out.startswith("rewrote 1 manifest, 1 needed no change\n")
    assert str(tmp_path / "old.lance") in answer.out
    assert "no paths changed" in run("dataset", "relocate", moved).out


def test_a_tier_that_moved_is_mapped(run: Run, tmp_path: Path) -> None:
    uri, cold, colder = (str(tmp_path / name) for name in ("t.lance", "cold", "colder"))
    lance.write_dataset(pa.table({"id": [1]}), uri)
    run("dataset", "base", "add", uri, cold, "--name", "cold")
    run("dataset", "move", uri, "--to", "cold", "--fragment", "0")
    shutil.move(cold, colder)
    report = run("dataset", "relocate", uri, "--mapping", f"{cold}={colder}", "--json").document
    assert report["changes"] == {cold: colder}
    assert lance.dataset(uri).to_table().num_rows == 1


def test_a_wrong_mapping_is_refused(run: Run, moved: str) -> None:
    answer = run("dataset", "relocate", moved, "--mapping", "nonsense")
    assert (answer.code, answer.out) == (2, "")
    assert "--mapping number 1 is not of the form KEY=VALUE" in answer.err


@pytest.mark.s3
def test_a_sound_dataset_is_in_order(run: Run, table: str, reach: list[str]) -> None:
    report = run("dataset", "doctor", table, *reach, "--json").document
    assert (report["clean"], report["findings"]) == (True, [])
    assert "is in order" in run("dataset", "doctor", table, *reach).out


def test_a_damaged_dataset_is_examined(run: Run, table: str, reach: list[str], location: Location) -> None:
    store = open_store(table, location.storage_options)
    newest = min(info.path for info in store.list("_versions") if info.path.endswith(".manifest"))
    store.put(newest, b"damage")
    answer = run("dataset", "doctor", table, *reach)
    assert (answer.code, answer.err) == (1, "")
    assert newest in answer.out


def test_a_missing_tree_is_named_and_repaired(run: Run, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1]}), str(uri)).create_branch("dev")
    shutil.rmtree(uri / "tree" / "dev")
    # Older than what may be a branch in the making.
    os.utime(uri / "_refs" / "branches" / "dev.json", (0, 0))
    answer = run("dataset", "doctor", str(uri), "--json")
    assert (answer.code, answer.err) == (1, "")
    (finding,) = json.loads(answer.out)["findings"]
    assert (finding["kind"], finding["severity"], finding["repaired"]) == ("missing_tree", "error", False)
    assert "0 repaired, 1 open, of which --repair can repair 1" in run("dataset", "doctor", str(uri)).out
    repaired = run("dataset", "doctor", str(uri), "--repair", "--json").document
    assert (repaired["clean"], [one["repaired"] for one in repaired["findings"]]) == (True, [True])
    assert run("dataset", "doctor", str(uri), "--json").document["findings"] == []


def test_there_is_nothing_to_examine_where_nothing_is(run: Run, location: Location, reach: list[str]) -> None:
    assert run("dataset", "doctor", location / "nothing", *reach, "--json").error["code"] == "dataset_not_found"


@pytest.mark.local
def test_a_stray_manifest_that_stops_lance_is_named(run: Run, table: str, reach: list[str], location: Location) -> None:
    open_store(table, location.storage_options).put("_versions/7.manifest", b"noise")
    assert run("dataset", "show", table, *reach).code != 0
    report = run("dataset", "doctor", table, *reach)
    assert report.code == 1
    assert "stray_manifest" in report.out
    assert "_versions/7.manifest" in report.out
