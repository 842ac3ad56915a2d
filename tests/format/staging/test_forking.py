"""Branches from ordinary and staged versions."""

import lance
import pyarrow as pa
import pytest

from anabranch.errors import BranchExistsError, VersionNotFoundError
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    append,
    compact,
    delete,
    fork,
    index,
    settle,
    update,
    upsert,
)
from tests.conftest import Location
from tests.format.staging.tables import contents, ids, new_table, raw, row_ids, rows


def head(home: Home) -> VersionRef:
    return VersionRef(home=home, version=home.open().version)


@pytest.mark.s3
def test_fork_of_a_staged_version_holds_just_that(location: Location) -> None:
    version_ref = index(new_table(location, [1, 2], [3]), "id", IndexKind.BTREE)
    version_ref = delete(version_ref, "id = 2").version_ref
    fork_home = fork(version_ref, "dev/1")
    assert fork_home == version_ref.home.on("dev/1")
    assert contents(head(fork_home)) == contents(version_ref)
    assert row_ids(head(fork_home)) == row_ids(version_ref)
    assert ids(head(fork_home), "id = 3") == [3]
    assert raw(version_ref).version == 1
    assert fork_home.open().version == 1


def test_fork_of_an_ordinary_version_keeps_its_number(location: Location) -> None:
    version_ref = new_table(location, [1])
    settle(version_ref.home, version_ref.version, expected_head=1)
    settle(version_ref.home, append(version_ref, rows([2])).version, expected_head=2)
    old = fork(VersionRef(home=version_ref.home, version=2), "old")
    assert (ids(head(old)), old.open().version) == ([1], 2)


@pytest.mark.s3
def test_forks_of_forks_are_made_from_staged_and_ordinary_versions(location: Location) -> None:
    version_ref = new_table(location, [1])
    first = fork(version_ref, "a/1")
    staged = append(head(first), rows([2]))
    second = fork(staged, "b/1")
    settle(second, append(head(second), rows([3])).version, expected_head=second.open().version)
    third = fork(head(second), "c/1")
    grown = update(append(head(third), rows([4])), {"v": "9.0"}, where="id > 2").version_ref
    assert ids(head(first)) == [1]
    assert ids(head(second)) == [1, 2, 3]
    assert ids(grown, "v = 9.0") == [3, 4]
    fourth = fork(grown, "d/1")
    assert ids(head(fourth)) == [1, 2, 3, 4]
    assert version_ref.home.open().branches.list()["d/1"]["parent_branch"] == "c/1"


def test_every_recipe_works_on_a_fork_and_leaves_the_source_alone(location: Location) -> None:
    version_ref = index(new_table(location, range(10), range(10, 20)), "id", IndexKind.BTREE)
    before = contents(version_ref)
    at = head(fork(version_ref, "dev/1"))
    at = upsert(at, rows([3, 100], v=1.0), ["id"]).version_ref
    at = add_columns(at, {"w": "id + 1"})
    at = alter_columns(at, [ColumnChange(path="w", type=pa.int32(), name="x")])
    at = compact(delete(at, "id IN (4, 12)").version_ref)
    at = index(at, "x", IndexKind.BTREE)
    assert ids(at, "x IN (4, 5, 101)") == [3, 100]
    settle(at.home, at.version, expected_head=at.home.open().version)
    assert at.home.open().count_rows() == 19
    assert contents(version_ref) == before
    assert raw(version_ref).count_rows() == 0


def test_raw_lance_can_write_to_a_fork_and_delete_it(location: Location) -> None:
    version_ref = new_table(location, [1])
    home = fork(version_ref, "dev/1")
    options = home.lance_options()
    lance.write_dataset(rows([5]), home.uri, mode="append", storage_options=options)
    dataset = lance.dataset(home.uri, storage_options=options)
    dataset.delete("id = 1")
    assert dataset.to_table().column("id").to_pylist() == [5]
    root = raw(version_ref)
    assert root.checkout_version(("dev/1", None)).count_rows() == 1
    root.branches.delete("dev/1")
    assert not root.branches.list()
    assert ids(version_ref) == [1]


def test_name_in_use_is_refused_and_stays_as_it_is(location: Location) -> None:
    version_ref = new_table(location, [1])
    home = fork(version_ref, "dev/1")
    with pytest.raises(BranchExistsError, match="dev/1"):
        fork(append(version_ref, rows([2])), "dev/1")
    assert ids(head(home)) == [1]


def test_version_that_is_not_there_is_named(location: Location) -> None:
    version_ref = new_table(location)
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        fork(VersionRef(home=version_ref.home, version=9), "dev/1")
    with pytest.raises(VersionNotFoundError):
        fork(VersionRef(home=version_ref.home, version=(1 << 63) + 9), "dev/1")
    assert not version_ref.home.open().branches.list()
