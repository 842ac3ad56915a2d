"""Plain Lance on versions that were settled by a put: readers, writers with an older version, row versions."""

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError
from anabranch.format.compare.difference import descends_from
from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_path
from anabranch.format.layout.manifest import inline_transaction, read_parts
from anabranch.format.layout.messages import Fragment, Transaction
from anabranch.format.layout.next_manifest import settled_manifest
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    PreparedSettle,
    VersionRef,
    alter_columns,
    append,
    compact,
    delete,
    fork,
    index,
    prepare_settle,
    settle,
    update,
    upsert,
)
from anabranch.storage import open_store
from tests.conftest import Location
from tests.format.staging.tables import new_table, raw, rows

NATIVE: dict[str, Callable[[Any], object]] = {
    "append": lambda table: table.insert(rows([100])),
    "delete": lambda table: table.delete("id IN (1, 7)"),
    "update": lambda table: table.update({"v": "9.0"}, where="id IN (2, 8)"),
    "merge_insert": lambda table: (
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows([3, 101], v=9.0))
    ),
}
OURS: dict[str, Callable[[VersionRef], VersionRef]] = {
    "append": lambda version_ref: append(append(version_ref, rows([50])), rows([51])),
    "delete": lambda version_ref: delete(delete(version_ref, "id = 4").version_ref, "id = 5").version_ref,
    "update": lambda version_ref: (
        update(append(version_ref, rows([50])), {"v": "5.0"}, where="id IN (4, 50)").version_ref
    ),
    "upsert": lambda version_ref: upsert(append(version_ref, rows([50])), rows([6, 51], v=5.0), ["id"]).version_ref,
    "delete all of a fragment": lambda version_ref: (
        delete(append(version_ref, rows([50])), "id >= 5 AND id < 10").version_ref
    ),
    "compact": lambda version_ref: compact(append(version_ref, rows([50]))),
    "index": lambda version_ref: index(append(version_ref, rows([50])), "id", IndexKind.BTREE),
    "only an index": lambda version_ref: index(version_ref, "id", IndexKind.BTREE),
}


def settled_table(location: Location) -> VersionRef:
    version_ref = new_table(location, range(5), range(5, 10))
    settle(version_ref.home, version_ref.version, expected_head=1)
    return version_ref


def values(table: lance.LanceDataset) -> dict[int, float]:
    read = table.to_table(columns=["id", "v"])
    found = dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True))
    assert len(found) == len(read)  # No row is doubled.
    return found


@pytest.mark.parametrize("native", sorted(NATIVE))
@pytest.mark.parametrize("ours", sorted(OURS))
def test_native_writer_with_an_older_version_rebases_over_a_settled_chain(
    location: Location, ours: str, native: str
) -> None:
    version_ref = settled_table(location)
    beside = lance.dataset(version_ref.home.uri, storage_options=version_ref.home.lance_options())
    staged = OURS[ours](version_ref)
    expected = values(staged.open())
    settle(version_ref.home, staged.version, expected_head=2)
    NATIVE[native](beside)  # It still has version 2.
    changed = {"append": {100: 0.0}, "update": {2: 9.0, 8: 9.0}, "merge_insert": {3: 9.0, 101: 9.0}}.get(native, {})
    gone = {1, 7} if native == "delete" else set()
    if native == "update":
        changed = {key: value for key, value in changed.items() if key in expected}
    seen: Any = raw(version_ref)
    seen.validate()
    assert seen.version == 4
    assert values(seen) == {key: value for key, value in {**expected, **changed}.items() if key not in gone}
    assert values(seen.checkout_version(3)) == expected


def test_native_writer_finds_rows_by_an_index_that_was_settled(location: Location) -> None:
    version_ref = settled_table(location)
    staged = index(append(version_ref, rows([50])), "id", IndexKind.BTREE)
    settle(version_ref.home, staged.version, expected_head=2)
    seen: Any = raw(version_ref)
    assert [found.name for found in seen.describe_indices()] == ["id_idx"]
    seen.insert(rows([60]))
    assert raw(version_ref).to_table(filter="id IN (50, 60)").column("id").to_pylist() == [50, 60]
    assert settle(version_ref.home, append(staged, rows([51])).version, expected_head=4).number == 5


def is_restore(prepared: PreparedSettle) -> bool:
    """Whether native writers that read an older version fail, instead of writing on top of the prepared one."""
    assert prepared.made is not None
    inline = inline_transaction(prepared.made.parts)
    assert inline is not None
    return Transaction.parse(inline, "transaction").HasField("restore")


def test_change_of_columns_conflicts_with_a_native_writer_instead_of_corrupting(location: Location) -> None:
    version_ref = settled_table(location)
    beside: Any = raw(version_ref)
    staged = alter_columns(version_ref, [ColumnChange(path="v", name="w")])
    assert is_restore(prepare_settle(version_ref.home, staged.version, expected_head=2))
    settle(version_ref.home, staged.version, expected_head=2)
    with pytest.raises(OSError, match="Restore"):
        beside.insert(rows([60]))
    assert raw(version_ref).schema.names == ["id", "w", "s", "st"]


def test_return_to_an_older_version_conflicts_with_a_native_writer(location: Location) -> None:
    version_ref = settled_table(location)
    settle(version_ref.home, append(version_ref, rows([50])).version, expected_head=2)
    assert is_restore(prepare_settle(version_ref.home, version_ref.version, expected_head=3))
    settle(version_ref.home, version_ref.version, expected_head=3)
    assert sorted(values(raw(version_ref))) == list(range(10))
    later = append(version_ref, rows([60]))
    assert not is_restore(prepare_settle(version_ref.home, later.version, expected_head=4))


# Row versions


def row_versions(table: lance.LanceDataset) -> dict[int, tuple[int, int]]:
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    return {row["id"]: (row[columns[1]], row[columns[2]]) for row in table.to_table(columns=columns).to_pylist()}


def test_row_versions_of_plain_readers_are_ordinary_numbers(location: Location) -> None:
    version_ref = new_table(location, [1, 2, 3], [4, 5])
    settle(version_ref.home, version_ref.version, expected_head=1)
    assert row_versions(raw(version_ref)) == dict.fromkeys(range(1, 6), (2, 2))
    version_ref = upsert(append(version_ref, rows([6])), rows([2, 7], v=5.0), ["id"]).version_ref
    settle(version_ref.home, version_ref.version, expected_head=2)
    expected = {**dict.fromkeys(range(1, 6), (2, 2)), 2: (2, 3), 6: (3, 3), 7: (3, 3)}
    assert row_versions(raw(version_ref)) == expected
    version_ref = update(delete(version_ref, "id = 1").version_ref, {"v": "v + 1"}, where="id IN (2, 4, 7)").version_ref
    settle(version_ref.home, version_ref.version, expected_head=3)
    del expected[1]
    expected |= {2: (2, 4), 4: (2, 4), 7: (3, 4)}
    assert row_versions(raw(version_ref)) == expected
    version_ref = compact(version_ref)
    settle(version_ref.home, version_ref.version, expected_head=4)
    assert row_versions(raw(version_ref)) == expected


def test_row_versions_agree_with_those_that_lance_writes_itself(location: Location) -> None:
    ours, native = settled_table(location), Home.at(location / "native.lance", location.storage_options)
    options = native.lance_options()
    lance.write_dataset(rows([]), native.uri, enable_stable_row_ids=True, storage_options=options)
    lance.write_dataset(rows(range(10)), native.uri, mode="append", storage_options=options)
    table: Any = native.open()
    table.update({"v": "1.0"}, where="id IN (3, 4)")
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows([4, 20], v=2.0))
    table.delete("id = 0")
    version_ref = ours
    for head, step in enumerate(
        (
            lambda at: update(at, {"v": "1.0"}, where="id IN (3, 4)").version_ref,
            lambda at: upsert(at, rows([4, 20], v=2.0), ["id"]).version_ref,
            lambda at: delete(at, "id = 0").version_ref,
        ),
        start=2,
    ):
        version_ref = step(version_ref)  # type: ignore[no-untyped-call]
        settle(version_ref.home, version_ref.version, expected_head=head)
    assert row_versions(raw(version_ref)) == row_versions(native.open())


def test_row_versions_on_a_fork_of_a_settled_version_are_those_of_its_source(location: Location) -> None:
    version_ref = settled_table(location)
    version_ref = update(append(version_ref, rows([50])), {"v": "1.0"}, where="id IN (3, 50)").version_ref
    settle(version_ref.home, version_ref.version, expected_head=2)
    home = fork(version_ref, "dev/1")
    assert row_versions(home.open()) == row_versions(raw(version_ref))
    at = append(append(VersionRef(home=home, version=home.head_version()), rows([60])), rows([61]))
    settle(home, at.version, expected_head=home.head_version())
    assert row_versions(home.open()) == {**row_versions(raw(version_ref)), 60: (4, 4), 61: (4, 4)}


# Files


def test_prepared_settle_names_the_files_that_are_new(location: Location) -> None:
    version_ref = settled_table(location)
    staged = index(delete(append(version_ref, rows([50])), "id = 1").version_ref, "id", IndexKind.BTREE)
    prepared = prepare_settle(version_ref.home, staged.version, expected_head=2)
    assert prepared.number == 3
    store = open_store(version_ref.home.root, location.storage_options)
    names = [uri.removeprefix(f"{version_ref.home.root}/") for uri in prepared.list_new_files()]
    for name in names:
        store.head(name)
    kinds = sorted(name.partition("/")[0] for name in names)
    assert kinds == ["_deletions", "_indices", "_indices", "_versions", "data"]
    assert manifest_path(staged.version) in names
    assert prepare_settle(version_ref.home, version_ref.version, expected_head=2).made is None


def test_files_of_a_fork_that_its_source_holds_are_not_new(location: Location) -> None:
    version_ref = settled_table(location)
    home = fork(version_ref, "dev/1")
    at = delete(VersionRef(home=home, version=home.head_version()), "id = 1").version_ref
    prepared = prepare_settle(home, at.version, expected_head=home.head_version())
    assert home.manifest_path(prepared.number) == f"tree/dev/1/{manifest_path(prepared.number)}"
    assert sorted(uri.removeprefix(f"{home.uri}/").partition("/")[0] for uri in prepared.list_new_files()) == [
        "_deletions",
        "_versions",
    ]


# Lance's own field numbers


def transaction_of(home: Home, version: int) -> Transaction:
    data = home.store().get(manifest_path(version))
    found = inline_transaction(read_parts(data, name="manifest"))
    assert found is not None
    return Transaction.parse(found, "transaction")


def test_field_numbers_of_an_update_are_those_of_lance(location: Location) -> None:
    version_ref = settled_table(location)
    native: Any = raw(version_ref)
    native.update({"v": "1.0"}, where="id = 1 OR id >= 5")  # One fragment updated, one removed, new ones.
    written = transaction_of(version_ref.home, 3)
    assert (written.read_version, len(written.uuid)) == (2, 36)
    assert [Fragment.parse(each, "fragment").id for each in written.update.updated_fragments] == [0]
    assert list(written.update.removed_fragment_ids) == [1]
    assert [Fragment.parse(each, "fragment").physical_rows for each in written.update.new_fragments] == [6]
    change = lance.Transaction(3, lance.LanceOperation.Restore(2), transaction_properties={"one": "1"})
    lance.LanceDataset.commit(raw(version_ref), change)
    written = transaction_of(version_ref.home, 4)
    assert written.restore.version == 2
    assert [(each.key, each.value) for each in written.properties] == [("one", "1")]
    native = raw(version_ref)
    native.create_scalar_index("id", "BTREE")
    created = transaction_of(version_ref.home, 5).create_index
    assert (len(created.new_indices), len(created.removed_indices)) == (1, 0)


def test_lance_reads_the_transaction_of_a_settled_version(location: Location) -> None:
    version_ref = settled_table(location)
    staged = delete(append(version_ref, rows([50])), "id = 1 OR id >= 5 AND id < 10").version_ref
    settle(version_ref.home, staged.version, expected_head=2, stamp={"commit": "c1"})
    found: Any = raw(version_ref).read_transaction(3)
    assert found.read_version == 2
    assert found.transaction_properties == {"anabranch.settle": str(staged.version), "commit": "c1"}
    assert [fragment.id for fragment in found.operation.updated_fragments] == [0]
    assert found.operation.removed_fragment_ids == [1]
    assert [fragment.id for fragment in found.operation.new_fragments] == [2]


def test_dictionary_columns_survive_settling(location: Location) -> None:
    home = Home.at(location / "d.lance", location.storage_options)
    data = pa.table({"id": [1, 2], "d": pa.array(["x", "y"]).dictionary_encode()})
    lance.write_dataset(data, home.uri, enable_stable_row_ids=True, storage_options=home.lance_options())
    version_ref = append(VersionRef(home=home, version=1), data)
    settle(home, version_ref.version, expected_head=1)
    assert raw(version_ref).to_table().column("d").to_pylist() == ["x", "y", "x", "y"]


# Descent


def test_native_version_on_a_settled_one_descends_from_the_staged_version(location: Location) -> None:
    version_ref = settled_table(location)
    later = append(append(version_ref, rows([50])), rows([51]))
    settle(version_ref.home, later.version, expected_head=2)
    native: Any = raw(version_ref)
    native.delete("id = 1")
    assert descends_from(VersionRef(home=version_ref.home, version=4), later)
    assert descends_from(VersionRef(home=version_ref.home, version=4), version_ref)


def test_damaged_manifest_is_an_error_of_our_own(location: Location) -> None:
    """A damaged manifest of the version before does not stop a commit: errors of our own are left to later writers."""
    version_ref = settled_table(location)
    staged = upsert(delete(version_ref, "id = 4").version_ref, rows([3, 50]), ["id"]).version_ref
    store = version_ref.home.store()
    before, after = store.get(manifest_path(2)), store.get(manifest_path(staged.version))
    parts = read_parts(before, name="before")
    raised = 0
    for bit in range(0, 8 * len(after), 37):
        data = bytearray(after)
        data[bit // 8] ^= 1 << bit % 8
        try:
            flipped = read_parts(bytes(data), name="after")
            inline_transaction(flipped)
            settled_manifest(parts, parts, flipped, properties={}, uuid="", is_clean=False)
        except AnabranchError:
            raised += 1
    assert raised
