"""`anabranch dataset versions|restore|compact`."""

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BusyError
from tests.cli.conftest import Run
from tests.conftest import Location
from tests.format.trees import contents


@pytest.mark.s3
def test_an_older_version_is_restored(run: Run, table: str, reach: list[str], location: Location) -> None:
    run("dataset", "tag", "create", table, "v1", "--ref", "1", *reach)
    run("dataset", "branch", "create", table, "dev", "--from", "1", *reach)
    listed = run("dataset", "versions", table, *reach, "--json").document
    assert [(one["version"], one["tags"], one["branches"]) for one in listed["versions"]] == [
        (1, ["v1"], ["dev"]),
        (2, [], []),
    ]
    restored = run("dataset", "restore", table, "1", *reach, "--json").document
    assert restored == {"branch": "main", "restored": 1, "version": 3}
    assert lance.dataset(table, storage_options=location.storage_options or None).count_rows() == 3
    assert run("dataset", "restore", table, "2", *reach).out == "restored version 2 of main as version 4\n"
    assert lance.dataset(table, storage_options=location.storage_options or None).count_rows() == 4
    missing = run("dataset", "restore", table, "77", *reach, "--json")
    assert (missing.code, missing.error["code"]) == (3, "version_not_found")


def test_bases_added_since_then_stay_listed(run: Run, table: str, reach: list[str], location: Location) -> None:
    run("dataset", "base", "add", table, location / "cold", "--name", "cold", *reach)
    run("dataset", "restore", table, "1", *reach)
    bases = run("dataset", "base", "list", table, *reach, "--json").document["bases"]
    assert [base["name"] for base in bases] == ["cold"]


@pytest.mark.local
def test_a_table_of_a_repository_is_not_restored(run: Run, lake: ab.Repository) -> None:
    (folder,) = (path for path in Path(lake.uri, "tables").rglob("*.lance") if path.is_dir() and "orders" in path.name)
    before = contents(str(folder))
    refused = run("dataset", "restore", str(folder), "1", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert "'anabranch reset'" in refused.error["hint"]
    assert contents(str(folder)) == before


@pytest.mark.local
def test_a_table_of_a_repository_is_not_compacted(run: Run, lake: ab.Repository) -> None:
    folder = Path(lake.uri, "tables", "in_c_sales", "orders.lance")
    before = contents(str(folder))
    refused = run("dataset", "compact", str(folder), "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert "'anabranch compact'" in refused.error["hint"]
    assert contents(str(folder)) == before


def test_small_fragments_are_merged(run: Run, table: str, reach: list[str], location: Location) -> None:
    done = run("dataset", "compact", table, *reach, "--json").document
    assert (done["fragments_removed"], done["fragments_added"]) == (2, 1)
    assert "nothing to merge" in run("dataset", "compact", table, *reach).out
    opened = lance.dataset(table, storage_options=location.storage_options or None)
    assert sorted(opened.to_table()["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_writer_that_races_with_a_restore_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance restores whatever came in between. Here another writer commits after the restore has read the head."""
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), root)
    lance.dataset(root).insert(pa.table({"id": [2]}))
    commit = lance.LanceDataset.commit

    def late(*args: Any, **kwargs: Any) -> lance.LanceDataset:
        monkeypatch.undo()
        lance.dataset(root).insert(pa.table({"id": [3]}))
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)
    with pytest.raises(BusyError):
        ab.dataset(root).restore(1)
    assert sorted(lance.dataset(root).to_table()["id"].to_pylist()) == [1, 2, 3]
    assert ab.dataset(root).restore(1) == 6
    assert [one.version for one in ab.dataset(root).versions()] == [1, 2, 3, 4, 5, 6]
    assert ab.dataset(root).count_rows() == 1
