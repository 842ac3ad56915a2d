"""Staged versions made ordinary, and strangers kept."""

import threading
from typing import Any

import lance
import pyarrow as pa
import pytest

from anabranch.errors import ForeignWriteError, VersionNotFoundError
from anabranch.format.home import Home
from anabranch.format.staging import (
    IndexKind,
    Pin,
    append,
    delete,
    foreign_versions,
    index,
    is_our_restore,
    overwrite,
    settle,
    settle_by_force,
)
from tests.conftest import Place
from tests.format.staging.tables import ids, new_table, raw, rows


def stranger_appends(home: Home, *keys: int) -> int:
    made = lance.write_dataset(rows(keys), home.uri, mode="append", storage_options=home.lance_options())
    return int(made.version)


@pytest.mark.s3
def test_settled_version_is_what_raw_readers_see(place: Place) -> None:
    pin = new_table(place, [1, 2])
    settled = settle(pin.home, pin.version, expected_head=1, stamp={"commit": "c1"})
    assert (settled.version, settled.between) == (2, ())
    assert raw(pin).version == 2
    assert raw(pin).count_rows() == 2
    assert is_our_restore(pin.home, 2)
    assert foreign_versions(pin.home, since=1) == ()
    made = raw(pin).read_transaction(2)
    assert made is not None
    assert (made.transaction_properties or {})["commit"] == "c1"


def test_chain_goes_on_from_staged_and_from_settled_versions(place: Place) -> None:
    pin = new_table(place, [1])
    settle(pin.home, pin.version, expected_head=1)
    assert ids(append(pin, rows([2]))) == ids(append(Pin(home=pin.home, version=2), rows([2]))) == [1, 2]


def test_settling_again_names_our_own_versions_in_between(place: Place) -> None:
    pin = new_table(place, [1])
    settle(pin.home, pin.version, expected_head=1)
    settled = settle(pin.home, append(pin, rows([2])).version, expected_head=1)
    assert (settled.version, settled.between) == (3, (2,))


@pytest.mark.s3
def test_earlier_stranger_is_kept_and_reported(place: Place) -> None:
    pin = new_table(place, [1])
    stranger = stranger_appends(pin.home, 50)
    with pytest.raises(ForeignWriteError, match=f"version {stranger}"):
        settle(pin.home, pin.version, expected_head=1)
    assert raw(pin).to_table().column("id").to_pylist() == [50]
    assert foreign_versions(pin.home, since=1) == (stranger,)
    assert not is_our_restore(pin.home, stranger)


def test_stranger_who_slips_in_between_is_put_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = new_table(place, [1])
    slip_in_before_restores(monkeypatch, pin.home, [[50]])
    with pytest.raises(ForeignWriteError, match="version 2"):
        settle(pin.home, pin.version, expected_head=1)
    assert raw(pin).to_table().column("id").to_pylist() == [50]
    assert [v for v in range(2, raw(pin).version + 1) if is_our_restore(pin.home, v)] == [3, 4]
    assert foreign_versions(pin.home, since=1) == (2,)


def test_stranger_who_writes_while_another_is_put_back_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = new_table(place, [1])
    slip_in_before_restores(monkeypatch, pin.home, [[50], [60]])
    with pytest.raises(ForeignWriteError):
        settle(pin.home, pin.version, expected_head=1)
    assert 60 in raw(pin).to_table().column("id").to_pylist()
    assert foreign_versions(pin.home, since=1) == (2, 4)
    assert (
        50
        in lance.dataset(pin.home.uri, version=2, storage_options=pin.home.lance_options()).to_table()["id"].to_pylist()
    )


def slip_in_before_restores(monkeypatch: pytest.MonkeyPatch, home: Home, appends: list[list[int]]) -> None:
    """Let a stranger append right before each of our restores, after we looked at the head."""
    commit = lance.LanceDataset.commit

    def slipping(base: Any, change: Any, *args: Any, **options: Any) -> lance.LanceDataset:
        if appends:
            stranger_appends(home, *appends.pop(0))
        return commit(base, change, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(slipping))


def test_foreign_rewrites_that_lance_cannot_show_are_foreign(place: Place) -> None:
    pin = index(new_table(place, range(5), range(5, 10)), "id", IndexKind.BTREE)
    head = settle(pin.home, pin.version, expected_head=1).version
    dataset = raw(pin)
    dataset.optimize.compact_files()
    dataset.delete("id = 1")
    assert foreign_versions(pin.home, since=head) == tuple(range(head + 1, raw(pin).version + 1))
    assert foreign_versions(pin.home, since=1) == foreign_versions(pin.home, since=head)


def test_version_that_was_collected_is_nobodys(place: Place) -> None:
    pin = new_table(place, [1])
    for key in (2, 3):
        settle(pin.home, append(pin, rows([key])).version, expected_head=1)
    pin.home.store().delete(f"_versions/{2**64 - 1 - 2:020d}.manifest")
    assert foreign_versions(pin.home, since=1) == ()
    assert not is_our_restore(pin.home, 2)


def test_stranger_who_was_put_back_is_foreign_though_the_version_went(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = new_table(place, [1])
    slip_in_before_restores(monkeypatch, pin.home, [[50]])
    with pytest.raises(ForeignWriteError, match="version 2"):
        settle(pin.home, pin.version, expected_head=1)
    pin.home.store().delete(f"_versions/{2**64 - 1 - 2:020d}.manifest")
    assert foreign_versions(pin.home, since=1) == (2,)
    settle_by_force(pin.home, pin.version)
    assert foreign_versions(pin.home, since=1) == ()


def test_unstamped_restore_is_foreign(place: Place) -> None:
    pin = new_table(place, [1])
    settle(pin.home, pin.version, expected_head=1)
    dataset: Any = lance.dataset(pin.home.uri, version=1, storage_options=pin.home.lance_options())
    dataset.restore()
    assert foreign_versions(pin.home, since=1) == (3,)


def test_version_that_is_not_there_is_never_restored(place: Place) -> None:
    pin = new_table(place, [1])
    with pytest.raises(VersionNotFoundError):
        settle(pin.home, (1 << 63) + 5, expected_head=1)
    assert raw(pin).version == 1


def test_any_staged_shape_can_be_settled(place: Place) -> None:
    pin = overwrite(new_table(place, [1, 2]), pa.table({"other": ["x"]}))
    settle(pin.home, pin.version, expected_head=1)
    assert raw(pin).to_table().to_pylist() == [{"other": "x"}]
    empty = delete(pin, "true").pin
    settle(pin.home, empty.version, expected_head=2)
    assert raw(pin).count_rows() == 0


def test_settling_at_the_same_time_leaves_one_of_the_versions_and_no_stranger(place: Place) -> None:
    pin = new_table(place)
    staged = [append(pin, rows([key])) for key in range(4)]
    threads = [
        threading.Thread(target=lambda one=one: settle(pin.home, one.version, expected_head=1)) for one in staged
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raw(pin).version == 5
    assert foreign_versions(pin.home, since=1) == ()
    assert raw(pin).to_table().column("id").to_pylist() in [[0], [1], [2], [3]]


def test_siblings_staged_at_the_same_time_do_not_disturb_each_other(place: Place) -> None:
    pin = new_table(place, [100])
    made: dict[int, Pin] = {}

    def work(key: int) -> None:
        at = pin
        for step in range(3):
            at = append(at, rows([key * 10 + step]))
        made[key] = delete(at, f"id = {key * 10}").pin

    threads = [threading.Thread(target=work, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: ids(one) for key, one in made.items()} == {key: [key * 10 + 1, key * 10 + 2, 100] for key in range(4)}
    assert raw(pin).count_rows() == 0
