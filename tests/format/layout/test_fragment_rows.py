"""Deletion files of both kinds, compared with what a scan sees."""

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import anabranch as ab
from anabranch.errors import DamagedFileError, InvalidNameError, NotFoundError
from anabranch.format.home import Home
from anabranch.format.layout.fragment_rows import deleted_offsets, read_deletion_file
from tests.conftest import Location

# Lance writes a bitmap from this many deleted rows of one fragment on.
BITMAP_FROM = 5000


def written(location: Location, rows: int, predicate: str, *, per_file: int | None = None) -> Home:
    home = Home.at(location / "t.lance", location.storage_options)
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    dataset = lance.write_dataset(
        table, home.root, storage_options=home.lance_options(), max_rows_per_file=per_file or rows
    )
    dataset.delete(predicate)
    return home


def missing_offsets(home: Home, version: int | None, fragment_id: int) -> list[int]:
    """What a scan does not see."""
    fragment = home.open(version).get_fragment(fragment_id)
    assert fragment is not None
    seen = fragment.to_table(columns=["id"], with_row_address=True).column("_rowaddr").to_numpy() & 0xFFFFFFFF
    return [int(offset) for offset in np.setdiff1d(np.arange(fragment.physical_rows), seen)]


def suffixes(home: Home) -> set[str]:
    return {info.path.rpartition(".")[2] for info in home.store().list("_deletions")}


@pytest.mark.s3
@pytest.mark.parametrize(
    ("predicate", "suffix"),
    [("id % 997 = 3", "arrow"), ("id % 2 = 1", "bin")],
    ids=["sparse", "dense"],
)
def test_offsets_are_those_that_a_scan_does_not_see(location: Location, predicate: str, suffix: str) -> None:
    home = written(location, 3 * BITMAP_FROM, predicate)
    offsets = deleted_offsets(home, None, 0)
    assert suffixes(home) == {suffix}
    assert offsets.dtype == np.uint32
    assert offsets.tolist() == missing_offsets(home, None, 0)
    assert deleted_offsets(home, 1, 0).tolist() == []


@pytest.mark.parametrize(("count", "suffix"), [(BITMAP_FROM - 1, "arrow"), (BITMAP_FROM, "bin")])
def test_both_sides_of_the_switch_are_read(location: Location, count: int, suffix: str) -> None:
    home = written(location, 2 * BITMAP_FROM, f"id < {count}")
    assert suffixes(home) == {suffix}
    assert deleted_offsets(home, None, 0).tolist() == list(range(count))


def test_each_fragment_has_its_own_offsets(location: Location) -> None:
    home = written(location, 30, "id in (0, 9, 10, 25)", per_file=10)
    assert [deleted_offsets(home, None, number).tolist() for number in range(3)] == [[0, 9], [0], [5]]


def test_a_branch_reads_the_deletions_it_inherited_and_its_own(location: Location) -> None:
    home = written(location, 20, "id in (1, 3)", per_file=10)
    home.open().create_branch("dev")
    home.on("dev").open().create_branch("dev2", ("dev", None))
    dev, dev2 = home.on("dev"), home.on("dev2")
    assert deleted_offsets(dev, None, 0).tolist() == [1, 3]
    dev2.open().delete("id = 15")
    assert [deleted_offsets(dev2, None, number).tolist() for number in (0, 1)] == [[1, 3], [5]]
    dev2.open().delete("id = 7")
    assert deleted_offsets(dev2, None, 0).tolist() == [1, 3, 7]
    assert deleted_offsets(home, None, 0).tolist() == [1, 3]


@pytest.mark.parametrize("fragment", [7, -1, 1 << 64])
def test_an_unknown_fragment_is_refused(location: Location, fragment: int) -> None:
    home = written(location, 10, "id = 1")
    with pytest.raises(NotFoundError, match=f"has no fragment {fragment}; it has 1 fragments, up to 0"):
        deleted_offsets(home, None, fragment)


def test_a_handle_shows_the_offsets_of_the_version_it_reads(location: Location) -> None:
    dataset = ab.dataset(written(location, 10, "id = 1").root, location.storage_options)
    dataset.open().delete("id = 3")
    assert dataset.deleted_offsets(0).tolist() == [1, 3]
    assert dataset.branch_checkout("main", 2).deleted_offsets(0).tolist() == [1]


def test_a_missing_file_is_named(location: Location) -> None:
    home = written(location, 10, "id = 1")
    (info,) = home.store().list("_deletions")
    home.store().delete(info.path)
    with pytest.raises(DamagedFileError, match=info.path):
        deleted_offsets(home, None, 0)


def test_a_file_with_another_count_than_its_manifest_records_is_damaged(location: Location) -> None:
    home = written(location, 2 * BITMAP_FROM, f"id < {BITMAP_FROM}")
    (info,) = home.store().list("_deletions")
    home.store().put(info.path, BitMap([1, 2, 3]).serialize())
    with pytest.raises(DamagedFileError, match="holds 3 offsets, and its manifest records 5000"):
        deleted_offsets(home, None, 0)


def arrow_file(column: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"row_id": column})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_offsets_come_sorted_and_once() -> None:
    data = arrow_file(pa.array([9, 2, 2, 4], pa.uint32()))
    assert read_deletion_file(data, name="0-1-2.arrow").tolist() == [2, 4, 9]


def test_a_bitmap_may_be_empty_or_reach_the_last_offset() -> None:
    assert read_deletion_file(BitMap().serialize(), name="0-1-2.bin").tolist() == []
    assert read_deletion_file(BitMap([0, 2**32 - 1]).serialize(), name="0-1-2.bin").tolist() == [0, 2**32 - 1]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("0-1-2.arrow", b""),
        ("0-1-2.arrow", b"noise" * 100),
        ("0-1-2.arrow", arrow_file(pa.array([1], pa.uint32()))[:-30]),
        ("0-1-2.arrow", arrow_file(pa.array(["x"]))),
        ("0-1-2.arrow", arrow_file(pa.array([1, None], pa.uint32()))),
        ("0-1-2.arrow", BitMap(range(9000)).serialize()),
        ("0-1-2.bin", b""),
        ("0-1-2.bin", b"noise" * 100),
        ("0-1-2.bin", BitMap(range(0, 90000, 2)).serialize()[:-30]),
        ("0-1-2.bin", arrow_file(pa.array([1], pa.uint32()))),
    ],
)
def test_a_damaged_file_is_refused_by_name(name: str, data: bytes) -> None:
    with pytest.raises(DamagedFileError, match=f"deletion file '{name}' is damaged"):
        read_deletion_file(data, name=name)


def test_the_name_must_be_that_of_a_deletion_file() -> None:
    with pytest.raises(InvalidNameError):
        read_deletion_file(b"", name="offsets.csv")
