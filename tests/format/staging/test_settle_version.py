"""Staged versions made ordinary, and external writes kept."""

import threading
from typing import Any

import lance
import pyarrow as pa
import pytest

from anabranch.errors import ExternalWriteError, VersionNotFoundError
from anabranch.format.home import Home
from anabranch.format.layout.manifest import read_manifest, with_message
from anabranch.format.staging import (
    IndexKind,
    VersionRef,
    append,
    delete,
    index,
    link,
    list_external_versions,
    overwrite,
    prepare_settle,
    restored_version,
    settle,
    settle_by_force,
)
from tests.conftest import Location
from tests.format.staging.tables import ids, new_table, raw, rows


def append_externally(home: Home, *keys: int) -> int:
    made = lance.write_dataset(rows(keys), home.uri, mode="append", storage_options=home.lance_options())
    return int(made.version)


@pytest.mark.s3
def test_settled_version_is_what_raw_readers_see(location: Location) -> None:
    version_ref = new_table(location, [1, 2])
    settled = settle(version_ref.home, version_ref.version, expected_head=1, stamp={"commit": "c1"})
    assert (settled.number, settled.between) == (2, ())
    assert raw(version_ref).version == 2
    assert raw(version_ref).count_rows() == 2
    assert restored_version(version_ref.home, 2) is not None
    assert list_external_versions(version_ref.home, since=1) == ()
    made = raw(version_ref).read_transaction(2)
    assert made is not None
    assert (made.transaction_properties or {})["commit"] == "c1"


def test_chain_continues_from_staged_and_from_settled_versions(location: Location) -> None:
    version_ref = new_table(location, [1])
    settle(version_ref.home, version_ref.version, expected_head=1)
    assert (
        ids(append(version_ref, rows([2])))
        == ids(append(VersionRef(home=version_ref.home, version=2), rows([2])))
        == [1, 2]
    )


def test_settling_again_names_our_own_versions_in_between(location: Location) -> None:
    version_ref = new_table(location, [1])
    settle(version_ref.home, version_ref.version, expected_head=1)
    settled = settle(version_ref.home, append(version_ref, rows([2])).version, expected_head=1)
    assert (settled.number, settled.between) == (3, (2,))


@pytest.mark.s3
def test_earlier_external_write_is_kept_and_reported(location: Location) -> None:
    version_ref = new_table(location, [1])
    external = append_externally(version_ref.home, 50)
    with pytest.raises(ExternalWriteError, match=f"version {external}"):
        settle(version_ref.home, version_ref.version, expected_head=1)
    assert raw(version_ref).to_table().column("id").to_pylist() == [50]
    assert list_external_versions(version_ref.home, since=1) == (external,)
    assert restored_version(version_ref.home, external) is None


@pytest.mark.parametrize("left", [b"", bytes(64), b"\xff" * 9])
def test_external_write_whose_transaction_file_was_lost_is_kept(location: Location, left: bytes) -> None:
    """A power loss may leave zeros in a transaction file. Lance 14 has the transaction in the manifest as well."""
    home = new_table(location, [1]).home
    external = append_externally(home, 50)
    store, path = home.store(), home.manifest_path(external)
    message = read_manifest(store.get(path))
    message.ClearField("transaction_section")
    store.put(path, with_message(store.get(path), message, name="manifest"))
    store.put(f"{home.folder}/_transactions/{message.transaction_file}".lstrip("/"), left)
    assert list_external_versions(home, since=1) == (external,)


def test_external_write_between_preparation_and_put_is_kept_and_reported(location: Location) -> None:
    version_ref = new_table(location, [1])
    prepared = prepare_settle(version_ref.home, version_ref.version, expected_head=1)
    external = append_externally(version_ref.home, 50)
    with pytest.raises(ExternalWriteError, match=f"version {external}"):
        link(prepared)
    assert (external, raw(version_ref).version) == (prepared.number, prepared.number)
    assert raw(version_ref).to_table().column("id").to_pylist() == [50]
    assert list_external_versions(version_ref.home, since=1) == (external,)


def test_settle_that_lost_against_another_of_ours_takes_the_next_number(location: Location) -> None:
    version_ref = new_table(location, [1])
    prepared = prepare_settle(version_ref.home, append(version_ref, rows([2])).version, expected_head=1)
    settle(version_ref.home, version_ref.version, expected_head=1)
    settled = link(prepared)
    assert settled is not None
    assert (settled.number, settled.between) == (3, (2,))
    assert raw(version_ref).to_table().column("id").to_pylist() == [1, 2]


def test_version_that_is_not_published_any_more_is_not_put_on_a_newer_one(location: Location) -> None:
    version_ref = new_table(location, [1])
    prepared = prepare_settle(version_ref.home, version_ref.version, expected_head=1)
    settle(version_ref.home, append(version_ref, rows([2])).version, expected_head=1)
    assert link(prepared, is_current=lambda: False) is None
    assert raw(version_ref).to_table().column("id").to_pylist() == [1, 2]


def test_version_is_settled_once(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert settle(version_ref.home, version_ref.version, expected_head=1).number == 2
    assert settle(version_ref.home, version_ref.version, expected_head=1).number == 2
    assert raw(version_ref).version == 2


def test_foreign_rewrites_that_lance_cannot_show_are_foreign(location: Location) -> None:
    version_ref = index(new_table(location, range(5), range(5, 10)), "id", IndexKind.BTREE)
    head = settle(version_ref.home, version_ref.version, expected_head=1).number
    dataset = raw(version_ref)
    dataset.optimize.compact_files()
    dataset.delete("id = 1")
    assert list_external_versions(version_ref.home, since=head) == tuple(range(head + 1, raw(version_ref).version + 1))
    assert list_external_versions(version_ref.home, since=1) == list_external_versions(version_ref.home, since=head)


def test_collected_version_is_not_an_external_write(location: Location) -> None:
    version_ref = new_table(location, [1])
    for key in (2, 3):
        settle(version_ref.home, append(version_ref, rows([key])).version, expected_head=1)
    version_ref.home.store().delete(f"_versions/{2**64 - 1 - 2:020d}.manifest")
    assert list_external_versions(version_ref.home, since=1) == ()
    assert restored_version(version_ref.home, 2) is None


def restore_as_earlier_releases_did(home: Home, version: int, **stamp: str) -> int:
    change = lance.Transaction(
        home.open().version,
        lance.LanceOperation.Restore(version),
        transaction_properties={"anabranch.restore": str(version), **{f"anabranch.{k}": v for k, v in stamp.items()}},
    )
    return int(lance.LanceDataset.commit(home.open(), change).version)


def test_restores_of_earlier_releases_are_ours(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert restore_as_earlier_releases_did(version_ref.home, version_ref.version) == 2
    assert restored_version(version_ref.home, 2) is not None
    assert restored_version(version_ref.home, 2) == version_ref.version
    assert list_external_versions(version_ref.home, since=1) == ()
    assert settle(version_ref.home, append(version_ref, rows([2])).version, expected_head=1).number == 3


def test_external_version_that_an_earlier_release_put_back_is_foreign(location: Location) -> None:
    version_ref = new_table(location, [1])
    append_externally(version_ref.home, 50)
    restore_as_earlier_releases_did(version_ref.home, version_ref.version)
    restore_as_earlier_releases_did(version_ref.home, 2, put_back="2")
    version_ref.home.store().delete(f"_versions/{2**64 - 1 - 2:020d}.manifest")
    assert list_external_versions(version_ref.home, since=1) == (2,)
    settle_by_force(version_ref.home, version_ref.version)
    assert list_external_versions(version_ref.home, since=1) == ()


def test_unstamped_restore_is_foreign(location: Location) -> None:
    version_ref = new_table(location, [1])
    settle(version_ref.home, version_ref.version, expected_head=1)
    dataset: Any = lance.dataset(version_ref.home.uri, version=1, storage_options=version_ref.home.lance_options())
    dataset.restore()
    assert list_external_versions(version_ref.home, since=1) == (3,)


def test_version_that_is_not_there_is_never_restored(location: Location) -> None:
    version_ref = new_table(location, [1])
    with pytest.raises(VersionNotFoundError):
        settle(version_ref.home, (1 << 63) + 5, expected_head=1)
    assert raw(version_ref).version == 1


def test_any_staged_shape_can_be_settled(location: Location) -> None:
    version_ref = overwrite(new_table(location, [1, 2]), pa.table({"other": ["x"]}))
    settle(version_ref.home, version_ref.version, expected_head=1)
    assert raw(version_ref).to_table().to_pylist() == [{"other": "x"}]
    empty = delete(version_ref, "true").version_ref
    settle(version_ref.home, empty.version, expected_head=2)
    assert raw(version_ref).count_rows() == 0


def test_settling_at_the_same_time_leaves_one_of_the_versions_and_no_external_write(location: Location) -> None:
    version_ref = new_table(location)
    staged = [append(version_ref, rows([key])) for key in range(4)]
    threads = [
        threading.Thread(target=lambda one=one: settle(version_ref.home, one.version, expected_head=1))
        for one in staged
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raw(version_ref).version == 5
    assert list_external_versions(version_ref.home, since=1) == ()
    assert raw(version_ref).to_table().column("id").to_pylist() in [[0], [1], [2], [3]]


def test_siblings_staged_at_the_same_time_do_not_disturb_each_other(location: Location) -> None:
    version_ref = new_table(location, [100])
    made: dict[int, VersionRef] = {}

    def work(key: int) -> None:
        at = version_ref
        for step in range(3):
            at = append(at, rows([key * 10 + step]))
        made[key] = delete(at, f"id = {key * 10}").version_ref

    threads = [threading.Thread(target=work, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: ids(one) for key, one in made.items()} == {key: [key * 10 + 1, key * 10 + 2, 100] for key in range(4)}
    assert raw(version_ref).count_rows() == 0
