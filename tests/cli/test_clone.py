"""`anabranch clone`, `anabranch clone` and `anabranch relocate`."""

import shutil
from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import CUSTOMERS, ORDERS, Run, short
from tests.conftest import Location


@pytest.mark.s3
def test_a_shallow_clone_lives_until_it_is_released(cli: Run, lake: ab.Repository, location: Location) -> None:
    made = cli("clone", "create", lake.uri, location / "clone", "--actor", "bob", "--json").document
    keys = ["repository", "kind", "source", "source_commit_id", "clone_id", "head_commit_id", "tables"]
    assert list(made) == keys
    assert (made["repository"], made["kind"], made["source"]) == (location / "clone", "shallow", lake.uri)
    assert made["tables"] == [CUSTOMERS, ORDERS]
    (known,) = cli("clone", "list", "--json").document["clones"]
    assert (known["id"], known["target"], known["state"]) == (made["clone_id"], location / "clone", "registered")
    assert (known["created_by"], known["kind"]) == ("bob", "shallow")
    released = cli("clone", "release", known["id"], "--json").document
    assert released == {**known, "state": "released"}


def test_a_deep_clone_of_some_tables_of_a_ref(cli: Run, lake: ab.Repository, location: Location) -> None:
    answer = cli("clone", "create", lake.uri, location / "clone", "--deep", "--ref", "dev", "--table", ORDERS)
    assert answer.out == f"made a deep clone of {lake.uri} at {short(lake, 'dev')} in {location / 'clone'}: 1 table\n"
    assert (
        cli("sql", "SELECT id FROM in_c_sales.orders ORDER BY id", "--repo", location / "clone", "--csv").out
        == "id\n1\n2\n"
    )
    assert "deep" in cli("clone", "list").out
    assert "released" in cli("clone", "list").out


def test_people_read_who_reads_a_repository(cli: Run, lake: ab.Repository, location: Location) -> None:
    assert cli("clone", "list").out == "no clones\n"
    cli("clone", "create", lake.uri, location / "clone")
    shown = cli("clone", "list").out
    assert location / "clone" in shown
    assert "2 tables" in shown
    (known,) = lake.clone_list()
    assert cli("clone", "release", known.id).out == f"released {known.id}, the clone at {location / 'clone'}\n"


def test_a_taken_location_and_an_unknown_clone_are_refused(cli: Run, lake: ab.Repository, location: Location) -> None:
    cli("clone", "create", lake.uri, location / "clone")
    refused = cli("clone", "create", lake.uri, location / "clone", "--json")
    assert (refused.code, refused.error["code"]) == (4, "repository_exists")
    unknown = cli("clone", "release", "nobody", "--json")
    assert (unknown.code, unknown.error["code"]) == (3, "not_found")


@pytest.mark.local
def test_a_copy_is_relocated(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    shutil.copytree(lake.uri, copy)
    refused = cli("cat", ORDERS, "--ref", "dev", "--repo", copy)
    assert f"was made at '{lake.uri}'" in refused.err
    assert f"anabranch relocate {copy}" in refused.err
    done = cli("relocate", copy, "--json").document
    assert list(done) == ["root", "former_root", "datasets", "rewritten", "is_complete", "unexplained"]
    assert (done["root"], done["former_root"], done["is_complete"]) == (copy, lake.uri, True)
    assert cli("cat", ORDERS, "--ref", "dev", "--repo", copy).code == 0
    again = cli("relocate", copy)
    assert again.out == f"checked {done['datasets']} datasets of {copy}; rewrote 0 manifests\n"


@pytest.mark.local
def test_a_clone_is_turned_to_where_its_source_went(cli: Run, lake: ab.Repository, tmp_path: Path) -> None:
    clone, moved = str(tmp_path / "clone"), str(tmp_path / "moved")
    cli("clone", "create", lake.uri, clone)
    shutil.move(lake.uri, moved)
    assert cli("cat", ORDERS, "--repo", clone).code != 0
    assert cli("relocate", moved).code == 0
    assert cli("relocate", clone, "--mapping", f"{lake.uri}={moved}").code == 0
    assert cli("cat", ORDERS, "--repo", clone).code == 0
