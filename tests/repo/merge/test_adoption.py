"""Writes by other Lance tools: kept, reported, adopted or set aside; and existing Lance tables imported as they are."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    DatasetNotFoundError,
    ExternalWriteError,
    InvalidInputError,
    KeyConflictError,
    MergeConflictError,
    NotFoundError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from anabranch.format.compare.difference import descends_from, step_back
from anabranch.format.staging import VersionRef
from anabranch.storage.options import lance_options
from tests.conftest import Location
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    data_files,
    entry,
    ids,
    nothing_changes,
    objects,
    raw,
    rows,
    table,
)


@pytest.fixture(params=["main", "dev"])
def branch(request: pytest.FixtureRequest, lake: ab.Repository) -> str:
    """A branch whose orders are at the root or in a fork, with rows 1 to 4."""
    name = str(request.param)
    if name != "main":
        lake.branch_create(name)
    append(lake, 4, branch=name)
    return name


def strange_append(repo: ab.Repository, branch: str, *numbers: int) -> None:
    """What a user of plain Lance does with the table."""
    options = repo.storage_options
    lance.write_dataset(
        table(*numbers), raw(repo, ref=branch), mode="append", storage_options=lance_options(options) or None
    )


def test_a_direct_write_is_kept_and_not_seen_through_the_repository(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    assert ids(lake.snapshot_of(branch)) == [1, 2, 3, 4]
    assert raw(lake, ref=branch).count_rows() == 5


def test_a_direct_write_is_reported_after_the_next_commit_and_stays_on_top(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    commit_beside(lake, branch, 5)
    assert [write.table for write in lake.external_writes] == [ORDERS]
    assert "an external writer changed" in lake.external_writes[0].problem
    assert ids(lake.snapshot_of(branch)) == [1, 2, 3, 4, 5]
    assert sorted(raw(lake, ref=branch).to_table().column("id").to_pylist()) == [1, 2, 3, 4, 99]
    commit_beside(lake, branch, 6)
    assert [write.table for write in lake.external_writes] == [ORDERS]
    append(lake, 30, branch=branch, key=CUSTOMERS)
    assert lake.external_writes == ()


@pytest.mark.s3
def test_adopt_takes_a_direct_write_in_as_a_commit(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    lake.adopt(ORDERS, branch=branch)
    newest = lake.list_commits(branch)[0]
    assert (newest.kind, newest.tables) == ("adopt", (ORDERS,))
    assert newest.message == f"Adopt a direct write to {ORDERS}"
    assert ids(lake.snapshot_of(branch)) == [1, 2, 3, 4, 99]
    assert lake.snapshot_of(branch)[ORDERS].count_rows() == 5
    assert ids(lake.snapshot_of(f"{branch}~1")) == [1, 2, 3, 4]
    append(lake, 5, branch=branch)
    assert lake.external_writes == ()
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])


def test_adopt_takes_several_direct_writes_in_at_once(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 98)
    raw(lake, ref=branch).delete("id = 1")
    raw(lake, ref=branch).add_columns({"w": "id * 2"})
    lake.adopt(ORDERS, branch=branch)
    assert [row["w"] for row in rows(lake.snapshot_of(branch)[ORDERS])] == [4, 6, 8, 196]


def test_adopting_moves_the_snapshot_of_the_handle(lake: ab.Repository) -> None:
    strange_append(lake, "main", 99)
    lake.adopt(ORDERS)
    assert ids(lake.snapshot()) == [1, 2, 3, 99]


def test_a_direct_write_that_breaks_the_key_is_not_adopted(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 1)
    with nothing_changes(lake), pytest.raises(KeyConflictError, match="1 key occurs more than once in the data"):
        lake.adopt(ORDERS, branch=branch)


def test_a_direct_write_that_drops_the_key_is_not_adopted(lake: ab.Repository) -> None:
    raw(lake).drop_columns(["id"])
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="'id'"):
        lake.adopt(ORDERS)


def commit_beside(repo: ab.Repository, branch: str, *numbers: int) -> None:
    """Commit while an external write waits for a decision."""
    with pytest.warns(ab.ExternalWriteWarning, match=rf"adopt\('{ORDERS}', branch='{branch}'\)"):
        append(repo, *numbers, branch=branch)


def test_warning_names_the_line_of_the_caller(lake: ab.Repository) -> None:
    strange_append(lake, "main", 99)
    with pytest.warns(ab.ExternalWriteWarning) as caught, lake.transaction() as tx:
        tx.append(ORDERS, table(7))
    assert [warning.filename for warning in caught] == [__file__]


def test_adopt_merges_a_direct_write_with_later_commits(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    raw(lake, ref=branch).delete("id = 1")
    commit_beside(lake, branch, 5)
    with pytest.warns(ab.ExternalWriteWarning), lake.transaction(branch) as tx:
        tx.update(ORDERS, {"v": "'new'"}, where="id = 2")
    lake.adopt(ORDERS, branch=branch)
    found = {row["id"]: row["v"] for row in rows(lake.snapshot_of(branch)[ORDERS])}
    assert found == {2: "new", 3: "c", 4: "d", 5: "e", 99: "u"}
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])
    assert lake.list_external_writes(branch=branch) == []
    append(lake, 6, branch=branch)
    assert lake.external_writes == ()


def test_direct_writes_can_be_adopted_again_and_again(lake: ab.Repository, branch: str) -> None:
    for number in range(3):
        strange_append(lake, branch, 90 + number)
        commit_beside(lake, branch, 50 + number)
        lake.adopt(ORDERS, branch=branch)
    assert ids(lake.snapshot_of(branch)) == [1, 2, 3, 4, 50, 51, 52, 90, 91, 92]
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])


def test_direct_write_to_a_cell_that_a_commit_changed_is_a_conflict(lake: ab.Repository, branch: str) -> None:
    raw(lake, ref=branch).update({"v": "'theirs'"}, where="id = 2")
    with pytest.warns(ab.ExternalWriteWarning), lake.transaction(branch) as tx:
        tx.update(ORDERS, {"v": "'ours'"}, where="id = 2")
    with pytest.raises(MergeConflictError, match=rf"settle\('{ORDERS}', force=True\)"):
        lake.adopt(ORDERS, branch=branch)
    assert [row["v"] for row in rows(lake.snapshot_of(branch)[ORDERS]) if row["id"] == 2] == ["ours"]
    assert [row["v"] for row in rows(raw(lake, ref=branch)) if row["id"] == 2] == ["theirs"]


def test_adopted_write_survives_the_cleanup_of_ordinary_versions(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    lake.adopt(ORDERS, branch=branch)
    strange_append(lake, branch, 100)
    seen = raw(lake, ref=branch)
    seen.cleanup_old_versions(timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)
    assert ids(another(lake).snapshot_of(branch)) == [1, 2, 3, 4, 99]


MOVES_BACK: dict[str, Callable[[ab.Repository, str], object]] = {
    "undo": lambda repo, branch: repo.undo(branch),
    "reset": lambda repo, branch: repo.reset(branch, to=f"{branch}~1"),
    "revert": lambda repo, branch: repo.revert(branch, branch=branch),
}


@pytest.mark.parametrize("has_later_commits", [False, True])
@pytest.mark.parametrize("back", MOVES_BACK)
def test_adopted_write_that_is_undone_is_not_reported_again(
    lake: ab.Repository, branch: str, back: str, *, has_later_commits: bool
) -> None:
    strange_append(lake, branch, 98)
    strange_append(lake, branch, 99)
    expected = [1, 2, 3, 4]
    if has_later_commits:
        commit_beside(lake, branch, 5)
        expected.append(5)
    lake.adopt(ORDERS, branch=branch)
    MOVES_BACK[back](lake, branch)
    assert lake.list_external_writes(branch=branch) == []
    assert ids(lake.snapshot_of(branch)) == sorted(raw(lake, ref=branch).to_table()["id"].to_pylist()) == expected
    append(lake, 6, branch=branch)
    assert sorted(raw(lake, ref=branch).to_table()["id"].to_pylist()) == [*expected, 6]
    assert lake.doctor().is_clean


def test_without_a_direct_write_there_is_nothing_to_adopt(lake: ab.Repository, branch: str) -> None:
    with nothing_changes(lake), pytest.raises(NotFoundError, match="no external writer"):
        lake.adopt(ORDERS, branch=branch)
    with nothing_changes(lake), pytest.raises(NotFoundError, match=r"s\.none"):
        lake.adopt("s.none", branch=branch)


def test_settle_by_force_sets_a_direct_write_aside(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    strange = int(raw(lake, ref=branch).version)
    with pytest.raises(ExternalWriteError, match="adopt the change, or settle by force"):
        lake.settle(ORDERS, branch=branch)
    lake.settle(ORDERS, branch=branch, force=True)
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])
    assert raw(lake, ref=branch).checkout_version(strange).count_rows() == 5


def test_external_write_that_was_set_aside_is_not_reported_again(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 99)
    commit_beside(lake, branch, 5)
    assert lake.external_writes != ()
    lake.settle(ORDERS, branch=branch, force=True)
    assert lake.external_writes == ()
    append(lake, 6, branch=branch)
    assert lake.external_writes == ()
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])
    with pytest.raises(NotFoundError, match="no external writer"):
        lake.adopt(ORDERS, branch=branch)


def test_a_direct_write_after_one_that_was_set_aside_is_reported(lake: ab.Repository, branch: str) -> None:
    strange_append(lake, branch, 98)
    lake.settle(ORDERS, branch=branch, force=True)
    strange_append(lake, branch, 99)
    lake.adopt(ORDERS, branch=branch)
    assert ids(lake.snapshot_of(branch)) == [1, 2, 3, 4, 99]


def test_settling_what_is_settled_changes_no_row(lake: ab.Repository, branch: str) -> None:
    lake.settle(ORDERS, branch=branch)
    lake.settle(ORDERS, branch=branch, force=True)
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])


def test_settling_a_table_that_is_not_there_is_refused(lake: ab.Repository) -> None:
    with pytest.raises(TableNotFoundError, match=r"no table 's\.none' on branch 'main'"):
        lake.settle("s.none")


# Tables of others


@pytest.fixture
def elsewhere(location: Location) -> str:
    """A Lance table with rows 1 to 3 outside the repository."""
    uri = location / "elsewhere.lance"
    options = lance_options(location.storage_options) if location.storage_options else None
    lance.write_dataset(table(1, 2, 3), uri, enable_stable_row_ids=True, storage_options=options)
    return uri


@pytest.mark.s3
@pytest.mark.parametrize("target", ["main", "dev"])
def test_a_lance_table_is_taken_in_without_copying(lake: ab.Repository, elsewhere: str, target: str) -> None:
    if target != "main":
        lake.branch_create(target)
    before = data_files(lake)
    lake.adopt("ext.numbers", elsewhere, branch=target, primary_key=["id"])
    assert data_files(lake) == before
    snapshot = lake.snapshot_of(target)
    assert snapshot["ext.numbers"].primary_key == ("id",)
    assert snapshot["ext.numbers"].count_rows() == 3
    assert ids(snapshot, "ext.numbers") == [1, 2, 3]
    assert snapshot.commit.kind == "adopt"
    assert (
        snapshot.commit.message
        == f"Adopt {testing.config_of(lake).root.rpartition('/')[0]}/elsewhere.lance as ext.numbers"
    )


def test_an_adopted_table_is_written_here_and_stays_as_it_was_there(lake: ab.Repository, elsewhere: str) -> None:
    lake.adopt("ext.numbers", elsewhere, primary_key=["id"])
    with lake.transaction() as tx:
        tx.append("ext.numbers", table(4))
        tx.delete("ext.numbers", "id = 1")
        tx.update("ext.numbers", {"v": "'z'"}, where="id = 2")
    assert ids(lake, "ext.numbers") == [2, 3, 4]
    assert rows(raw(lake, "ext.numbers")) == rows(lake.snapshot()["ext.numbers"])
    options = lake.storage_options
    there = lance.dataset(elsewhere, storage_options=lance_options(options) if options else None)
    assert rows(there) == table(1, 2, 3).to_pylist()


def test_an_adopted_table_can_be_branched(lake: ab.Repository, elsewhere: str) -> None:
    lake.adopt("ext.numbers", elsewhere)
    lake.branch_create("dev")
    append(lake, 4, branch="dev", key="ext.numbers")
    assert ids(lake, "ext.numbers") == [1, 2, 3]
    assert ids(lake.snapshot_of("dev"), "ext.numbers") == [1, 2, 3, 4]


def test_a_table_without_stable_row_ids_is_refused(lake: ab.Repository, location: Location) -> None:
    uri = location / "unstable.lance"
    options = lance_options(location.storage_options) if location.storage_options else None
    lance.write_dataset(table(1), uri, storage_options=options)
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"no stable row ids.*; load a copy"):
        lake.adopt("ext.numbers", uri)


def test_the_primary_key_of_a_table_taken_in_must_hold(lake: ab.Repository, location: Location) -> None:
    uri = location / "repeated.lance"
    options = lance_options(location.storage_options) if location.storage_options else None
    data = pa.table({"id": [1, 1], "n": pa.array([1, None], pa.int64()), "f": [1.0, 2.0]})
    lance.write_dataset(data, uri, enable_stable_row_ids=True, storage_options=options)
    for keys, error, text in (
        (["id"], KeyConflictError, "occurs more than once in the data"),
        (["n"], KeyConflictError, "'n' has nulls"),
        (["f"], InvalidInputError, "'f'.*cannot be a key"),
        (["x"], SchemaMismatchError, "'x'.*not there"),
        (["n", "n"], InvalidInputError, "twice"),
    ):
        with nothing_changes(lake), pytest.raises(error, match=text):
            lake.adopt("ext.numbers", uri, primary_key=keys)
    assert not [path for path in objects(lake, "tables") if "ext" in path]


def test_a_table_is_not_taken_in_over_another(lake: ab.Repository, elsewhere: str) -> None:
    with nothing_changes(lake), pytest.raises(TableExistsError, match=ORDERS):
        lake.adopt(ORDERS, elsewhere)


def test_a_uri_without_a_table_is_refused(lake: ab.Repository, location: Location) -> None:
    with nothing_changes(lake), pytest.raises(DatasetNotFoundError, match=r"none\.lance"):
        lake.adopt("ext.numbers", location / "none.lance")


def test_a_dropped_name_can_be_given_to_a_table_taken_in(lake: ab.Repository, elsewhere: str) -> None:
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    lake.adopt(ORDERS, elsewhere)
    assert entry(lake).primary_key == ()
    assert lake.snapshot()[ORDERS].schema == SCHEMA
    assert ids(another(lake)) == [1, 2, 3]


def test_a_new_table_leaves_a_dataset_that_cannot_be_managed_alone(lake: ab.Repository) -> None:
    uri, options = f"{lake.uri}/tables/a/b.lance", lance_options(lake.storage_options) or None
    lance.write_dataset(table(7), uri, storage_options=options)
    with lake.transaction() as tx:
        tx.create_table("a.b", SCHEMA, primary_key=["id"])
        tx.append("a.b", table(1, 2))
    assert ids(lake, "a.b") == [1, 2]
    assert raw(lake, "a.b").has_stable_row_ids
    assert lance.dataset(uri, storage_options=options).to_table()["id"].to_pylist() == [7]


@pytest.mark.filterwarnings("ignore::anabranch.warnings.ExternalWriteWarning")
def test_a_pending_external_write_leaves_no_temporary_files(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake", durability="full")
    keys = [f"s.t{number}" for number in range(4)]
    with repo.transaction() as tx:
        for key in keys:
            tx.create_table(key, pa.schema([("id", pa.int64())]))
    lance.write_dataset(pa.table({"id": [99]}), str(tmp_path / "lake/tables/s/t3.lance"), mode="append")
    for number in (1, 2):
        with repo.transaction() as tx:
            for key in keys:
                tx.append(key, [{"id": number}])
        assert not list(tmp_path.rglob("*#*"))
    assert [repo.table(key).to_arrow().to_pylist() for key in keys] == [[{"id": 1}, {"id": 2}]] * 4


def test_adopted_table_descends_from_no_version_of_its_own(lake: ab.Repository, elsewhere: str) -> None:
    """Its first version is a clone. To look for the cloned version in the table itself would never end."""
    lake.adopt("s.adopted", elsewhere)
    home = replace(lake.table("s.adopted").version_ref.home, branch=None)
    first = VersionRef(home=home, version=1)
    assert step_back(first) is None
    lake.branch_create("dev")
    lake.append("s.adopted", table(90), branch="dev")
    ours = lake.table("s.adopted", "dev").version_ref
    assert descends_from(ours, lake.table("s.adopted").version_ref)
    assert not descends_from(lake.table("s.adopted").version_ref, ours)
