"""Tiering: fragments move from base to base and stay what they are."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.errors import (
    BaseNotFoundError,
    BusyError,
    DamagedFileError,
    InvalidExpressionError,
    InvalidInputError,
    NotFoundError,
    ObjectExistsError,
)
from anabranch.format.bases import add_base, append_to_base, fragments_of_base, storage_report
from anabranch.format.home import Home
from anabranch.format.staging.compaction import compact_bases
from anabranch.format.tiering import move_fragments
from anabranch.storage import open_store
from tests.conftest import Location
from tests.format.live_files import list_live_files
from tests.format.reading import read_base


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "year": [2000 + i // 10 for i in range(start, stop)]})


def make(location: Location, *, cold: str | None = None, stable: bool = True) -> Home:
    """A table of 100 rows in four fragments, indexed, with rows deleted, and an empty base 'cold'."""
    home = Home.at(location / "t.lance", location.storage_options)
    options = home.lance_options()
    made = lance.write_dataset(
        rows(0, 100), home.root, max_rows_per_file=25, enable_stable_row_ids=stable, storage_options=options
    )
    made.delete("id in (3, 30)")
    made.create_scalar_index("id", "BTREE")
    add_base(home, cold or location / "cold", name="cold", is_dataset_root=True)
    return home


def local(tmp_path: Path) -> Home:
    return make(Location(root=str(tmp_path)))


def content(home: Home) -> pa.Table:
    """All that a move must not change, row versions too."""
    columns = ["id", "year", "_row_created_at_version", "_row_last_updated_at_version"]
    return home.open().to_table(columns=columns, with_row_id=True).sort_by("id")


def ids_of(home: Home, base: str | None) -> list[int]:
    return [fragment.fragment_id for fragment in fragments_of_base(home, base)]


def indexed(home: Home) -> list[int]:
    (index,) = home.open().describe_indices()
    return sorted(number for segment in index.segments for number in segment.fragment_ids)


def uses_index(home: Home, condition: str) -> bool:
    return "ScalarIndexQuery" in home.open().scanner(filter=condition).explain_plan()


@pytest.mark.s3
def test_fragments_move_to_a_base_and_back_and_stay_what_they_are(location: Location) -> None:
    home = make(location)
    before = content(home)
    covered = indexed(home)
    out = move_fragments(home, to="cold", ids=[0, 1])
    assert (out.to, out.moved, out.files, out.already_there, out.partly_matching) == ("cold", (0, 1), 2, (), ())
    assert ids_of(home, "cold") == [0, 1]
    assert content(home) == before
    assert indexed(home) == covered == [0, 1, 2, 3]
    assert uses_index(home, "id = 5")
    assert [home.open().count_rows(f"id = {i}") for i in (5, 3, 30, 60)] == [1, 0, 0, 1]
    back = move_fragments(home, to=None, ids=[0, 1])
    assert (back.to, back.moved, back.bytes) == ("root", (0, 1), out.bytes)
    assert ids_of(home, "cold") == []
    assert content(home) == before
    home.open().validate()  # type: ignore[no-untyped-call]


@pytest.mark.s3
def test_moved_fragments_are_read_from_their_new_location_only(location: Location) -> None:
    home = make(location)
    before = content(home)
    report = move_fragments(home, to="cold", ids=[0, 1, 2, 3])
    assert len(report.left_behind) == 4
    for uri in report.left_behind:
        folder, _, name = uri.rpartition("/")
        store = open_store(folder, location.storage_options)
        assert store.head(name).size > 0  # an older version still reads it
        store.delete(name)
    assert content(home) == before
    assert home.open().count_rows("id = 99") == 1


def test_an_older_version_still_reads_the_files_left_behind(tmp_path: Path) -> None:
    home = local(tmp_path)
    move_fragments(home, to="cold", ids=[0])
    assert home.open(1).to_table().num_rows == 100


@pytest.mark.s3
def test_a_filter_moves_fragments_whose_live_rows_all_match(location: Location) -> None:
    home = make(location)
    # Fragment 1 holds 25..49, of which 30 is deleted.
    report = move_fragments(home, to="cold", where="id < 60 and id != 30 and id != 3")
    assert (report.moved, report.partly_matching) == ((0, 1), (2,))
    assert ids_of(home, "cold") == [0, 1]
    again = move_fragments(home, to="cold", where="id < 60")
    assert (again.moved, again.already_there, again.files, again.bytes) == ((), (0, 1), 0, 0)
    assert again.version == report.version == home.open().version


def test_a_filter_that_matches_nothing_moves_nothing(tmp_path: Path) -> None:
    home = local(tmp_path)
    report = move_fragments(home, to="cold", where="id > 1000")
    assert (report.moved, report.partly_matching, report.version) == ((), (), home.open().version)


def test_a_move_reports_its_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    move_fragments(local(tmp_path), to="cold", ids=[0, 2], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"to": "cold"}, InvalidInputError, "either a predicate or fragment ids"),
        ({"to": "cold", "ids": [0], "where": "id > 1"}, InvalidInputError, "either a predicate or fragment ids"),
        ({"to": "cold", "ids": [0, 17, 18]}, NotFoundError, "no fragment 17, 18 in version 4"),
        ({"to": "ice", "ids": [0]}, BaseNotFoundError, r"no base 'ice'; the bases are: 1 \(cold\)"),
        ({"to": "cold", "where": "id >>> 1"}, InvalidExpressionError, "id >>> 1|sql"),
        ({"to": "cold", "where": "nope = 1"}, InvalidExpressionError, "the filter 'nope = 1' does not work here"),
        ({"to": "cold", "where": "id > 1) or (1 = 1"}, InvalidExpressionError, "closes a parenthesis"),
        ({"to": "cold", "where": "id > 1 limit 1"}, InvalidExpressionError, "the filter 'id > 1 limit 1'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(
    tmp_path: Path, call: dict[str, object], error: type[Exception], message: str
) -> None:
    home = local(tmp_path)
    with pytest.raises(error, match=message):
        move_fragments(home, **call)  # type: ignore[arg-type]
    assert home.open().version == 4
    assert not (tmp_path / "cold").exists()


@pytest.mark.s3
def test_a_branch_moves_the_fragments_it_inherits_and_main_keeps_its_own(location: Location) -> None:
    main = make(location)
    main.open().create_branch("dev")
    dev = main.on("dev")
    append_to_base(dev, rows(100, 110))
    before = content(dev)
    move_fragments(dev, to="cold", ids=[0, 4])
    assert content(dev) == before
    assert (ids_of(dev, "cold"), ids_of(main, "cold")) == ([0, 4], [])
    # To the branch's own root, so that it no longer hangs on main's file.
    moved = move_fragments(dev, to="root", ids=[0, 1])
    assert content(dev) == before
    assert ids_of(dev, None) == [0, 1]
    assert [found.path.rpartition("/")[0] for found in dev.store().list("tree/dev/data")] == ["tree/dev/data"] * 3
    assert any(uri.startswith(f"{main.root}/data/") for uri in moved.left_behind)
    with pytest.raises(InvalidInputError, match="only inherits files"):
        move_fragments(dev, to=main.root, ids=[4])


def test_a_fragment_with_columns_added_later_moves_whole(tmp_path: Path) -> None:
    home = local(tmp_path)
    home.open().add_columns({"twice": "id * 2"})
    report = move_fragments(home, to="cold", ids=[1])
    assert report.files == 2
    assert {Path(file.uri).parent for file in list_live_files(home, home.open()) if file.base_id == 1} == {
        tmp_path / "cold" / "data"
    }
    home.open().add_columns({"thrice": "id * 3"})  # which Lance puts into the own root
    assert move_fragments(home, to="cold", ids=[1]).files == 1
    assert home.open().to_table(filter="id = 40").to_pylist() == [{"id": 40, "year": 2004, "twice": 80, "thrice": 120}]


def test_large_blobs_move_with_their_data_file(tmp_path: Path) -> None:
    blobs = [b"inline", b"p" * 200_000, b"d" * 5_000_000]
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")])
    table = pa.table({"id": [1, 2, 3], "blob": lance.blob_array(blobs)}, schema=schema)
    home = Home.at(str(tmp_path / "t.lance"))
    lance.write_dataset(table, home.root, data_storage_version="2.2")
    add_base(home, str(tmp_path / "flat"), name="flat")
    report = move_fragments(home, to="flat", ids=[0])
    (tmp_path / "t.lance" / "data").rename(tmp_path / "gone")
    assert [blob and blob.read() for blob in home.open().take_blobs("blob", indices=[0, 1, 2])] == blobs
    assert report.files == 3
    assert report.bytes == storage_report(home).total.bytes == sum(len(b) for b in blobs[1:]) + _data_file_size(home)


def _data_file_size(home: Home) -> int:
    (fragment,) = home.open().get_fragments()
    return fragment.metadata.files[0].file_size_bytes or 0


def test_a_table_without_stable_row_ids_moves_too(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)), stable=False)
    before = home.open().to_table(with_row_id=True)
    move_fragments(home, to="cold", where="id < 50")
    assert home.open().to_table(with_row_id=True) == before
    assert uses_index(home, "id = 5")
    assert home.open().count_rows("id = 5") == 1


def test_a_dataset_that_lists_its_own_root_has_nothing_to_move_there(tmp_path: Path) -> None:
    home = local(tmp_path)
    home.open().add_bases([lance.DatasetBasePath(home.root, name="hot", is_dataset_root=True)])
    assert move_fragments(home, to="hot", ids=[0]).already_there == (0,)
    move_fragments(home, to="cold", ids=[0])
    assert move_fragments(home, to="hot", ids=[0]).moved == (0,)


def copies_of(home: Home, folder: Path, fragment: int) -> None:
    """What a move leaves that died between copy and commit."""
    (folder / "data").mkdir(parents=True)
    for file in home.open().get_fragments()[fragment].metadata.files:
        (folder / "data" / file.path).write_bytes(Path(home.root, "data", file.path).read_bytes())


def test_a_move_that_died_before_its_commit_is_taken_up(tmp_path: Path) -> None:
    home = local(tmp_path)
    before = content(home)
    copies_of(home, tmp_path / "cold", 0)
    assert move_fragments(home, to="cold", ids=[0, 1]).moved == (0, 1)
    assert content(home) == before


def test_interrupted_move_changes_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    home = local(tmp_path)
    before = content(home)

    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_fragments(home, to="cold", ids=[0, 1, 2], progress=die)
    assert home.open().version == 4
    assert len(list((tmp_path / "cold" / "data").iterdir())) == 2
    assert move_fragments(home, to="cold", ids=[0, 1, 2]).files == 3
    assert content(home) == before


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"?"], ids=["shorter", "changed"])
def test_a_different_file_at_the_target_is_never_overwritten(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    home = local(tmp_path)
    copies_of(home, tmp_path / "cold", 0)
    (copy,) = (tmp_path / "cold" / "data").iterdir()
    copy.write_bytes(wrong := damage(copy.read_bytes()))
    with pytest.raises(ObjectExistsError, match=r"exists and differs.*delete that one"):
        move_fragments(home, to="cold", ids=[0])
    assert copy.read_bytes() == wrong
    assert home.open().version == 4


def test_a_missing_source_file_is_named(tmp_path: Path) -> None:
    home = local(tmp_path)
    name = home.open().get_fragments()[1].metadata.files[0].path
    os.remove(f"{home.root}/data/{name}")
    with pytest.raises(DamagedFileError, match=name):
        move_fragments(home, to="cold", ids=[0, 1])
    assert home.open().version == 4


def delete_in_moving(home: Home) -> None:
    home.open().delete("id = 7")


def delete_elsewhere(home: Home) -> None:
    home.open().delete("id = 70")


def update_in_moving(home: Home) -> None:
    home.open().update({"year": "1999"}, where="id = 7")


def append(home: Home) -> None:
    lance.write_dataset(rows(100, 110), home.uri, mode="append", storage_options=home.lance_options())


def add_column(home: Home) -> None:
    home.open().add_columns({"twice": "id * 2"})


def move_the_same(home: Home) -> None:
    add_base(home, f"{home.root}-warm", name="warm", is_dataset_root=True)
    move_fragments(home, to="warm", ids=[0])


@pytest.mark.s3
@pytest.mark.parametrize(
    "write", [delete_in_moving, delete_elsewhere, update_in_moving, append, add_column, move_the_same]
)
def test_what_others_write_while_files_are_copied_is_kept(location: Location, write: Callable[[Home], None]) -> None:
    home = make(location)
    written: list[pa.Table] = []

    def interfere(done: int, total: int) -> None:
        if done == total and not written:
            write(home)
            written.append(home.open().to_table(with_row_id=True).sort_by("id"))

    report = move_fragments(home, to="cold", ids=[0, 1], progress=interfere)
    assert report.moved == (0, 1)
    assert ids_of(home, "cold") == [0, 1]
    assert home.open().to_table(with_row_id=True).sort_by("id") == written[0]
    home.open().validate()  # type: ignore[no-untyped-call]


def test_moves_deletes_appends_and_compactions_at_the_same_time_lose_no_row(tmp_path: Path) -> None:
    home = local(tmp_path)
    gone = list(range(40, 50))

    def delete() -> None:
        for number in gone:
            home.open().delete(f"id = {number}", conflict_retries=100)

    def append_rows() -> None:
        for start in range(100, 150, 10):
            append_to_base(home, rows(start, start + 10), base="cold")

    def tier() -> None:
        for target in ["cold", None] * 3:
            with suppress(BusyError):
                move_fragments(home, to=target, where="id >= 0")
            with suppress(BusyError):
                compact_bases(home)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for work in (delete, append_rows, tier)]:
            done.result()
    expected = sorted(set(range(150)) - {3, 30} - set(gone))
    assert content(home).column("id").to_pylist() == expected
    assert [home.open().count_rows(f"id = {number}") for number in (3, 45, 60, 149)] == [0, 0, 1, 1]
    assert storage_report(home).missing == ()


def test_fragments_that_vanish_while_they_are_copied_are_reported(tmp_path: Path) -> None:
    home = local(tmp_path)
    before = home.open().to_table().sort_by("id")

    def compact(done: int, total: int) -> None:
        if done == total:
            home.open().optimize.compact_files()

    with pytest.raises(NotFoundError, match="no fragment 0"):
        move_fragments(home, to="cold", ids=[0], progress=compact)
    assert home.open().to_table().sort_by("id") == before


@pytest.mark.s3
def test_hot_and_cold_hold_after_a_compaction_and_an_index(location: Location) -> None:
    """Worked example 1 of the storage layout specification, in two buckets where there are buckets."""
    archive = location / "dataset-archive" if location.is_local else location.root.replace("s3://lake", "s3://cold")
    home = make(location, cold=archive)
    before = content(home)
    move_fragments(home, to="cold", where="year < 2005")
    files = [file.uri for file in list_live_files(home, home.open()) if file.kind == "data"]
    assert [uri.rpartition("/")[0] for uri in files] == [f"{archive}/data"] * 2 + [f"{home.root}/data"] * 2
    append_to_base(home, rows(100, 110), base="cold")
    append_to_base(home, rows(110, 120))
    home.open().delete("id >= 100")
    home.open().create_scalar_index("year", "BTREE")
    assert content(home) == before
    assert uses_index(home, "year = 2001")
    assert home.open().count_rows("year = 2001") == 10
    compact_bases(home)
    assert content(home).select(["id", "year", "_rowid"]) == before.select(["id", "year", "_rowid"])
    assert (read_base(home, "cold").num_rows, read_base(home, "root").num_rows) == (48, 50)
    assert [len(fragments_of_base(home, base)) for base in ("cold", None)] == [1, 1]
    assert home.open().count_rows("year = 2001") == 10
    assert home.open().count_rows("id = 30") == 0
