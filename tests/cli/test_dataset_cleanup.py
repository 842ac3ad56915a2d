"""`anabranch dataset cleanup`."""

import lance
import pytest

from tests.cli.conftest import Run
from tests.conftest import Location
from tests.format.trees import contents


@pytest.mark.s3
def test_a_dry_run_lists_what_a_cleanup_removes(run: Run, table: str, reach: list[str], location: Location) -> None:
    args = ["dataset", "cleanup", table, "--keep-last", "1", "--grace", "0s", *reach]
    before = contents(table, location.storage_options)
    planned = run(*args, "--dry-run", "--json").document
    assert contents(table, location.storage_options) == before
    done = run(*args, "--json").document
    assert list(done) == [
        *("dry_run", "files", "bytes", "by_reason", "versions", "removed", "kept_versions", "too_young"),
        *("unused_in_bases", "damaged"),
    ]
    assert done["versions"] == planned["versions"] == [{"branch": "main", "version": 1}]
    assert done["removed"] == planned["removed"]
    gone = before.keys() - contents(table, location.storage_options).keys()
    assert gone == {file["path"] for file in done["removed"]}
    assert lance.dataset(table, storage_options=location.storage_options or None).count_rows() == 4


def test_people_read_what_was_removed(run: Run, table: str, reach: list[str]) -> None:
    young = run("dataset", "cleanup", table, "--keep-last", "1", *reach)
    assert "1 version kept only because of the grace period" in young.out
    args = ["dataset", "cleanup", table, "--keep-last", "1", "--grace", "0s", *reach]
    planned = run(*args, "--dry-run", "--list")
    assert "would remove" in planned.out
    assert "version that is not kept" in planned.out
    done = run(*args)
    assert "and 1 version; 1 kept" in done.out


@pytest.mark.parametrize("wrong", [["--keep-last", "0"], ["--keep-newer-than", "soon"], ["--base", "nowhere"]])
def test_a_wrong_rule_removes_nothing(
    run: Run, table: str, reach: list[str], location: Location, wrong: list[str]
) -> None:
    before = contents(table, location.storage_options)
    assert run("dataset", "cleanup", table, "--grace", "0s", *wrong, *reach).code in {2, 3}
    assert contents(table, location.storage_options) == before
