"""The storage report: what a version occupies, and where."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import DatasetNotFoundError
from anabranch.format.bases import BaseUsage, StorageReport, Usage, add_base, append_to_base, storage_report
from anabranch.format.home import Home
from anabranch.format.tiering import move_fragments
from anabranch.storage import open_store
from tests.conftest import Location


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop)})


def make(location: Location) -> Home:
    home = Home.at(location / "t.lance", location.storage_options)
    options = home.lance_options()
    lance.write_dataset(
        rows(0, 100), home.root, max_rows_per_file=25, enable_stable_row_ids=True, storage_options=options
    )
    return home


def of(report: StorageReport, name: str) -> BaseUsage:
    return next(base for base in report.bases if base.name == name)


def stored(location: Location, folder: str) -> Usage:
    found = list(open_store(folder, location.storage_options).list())
    return Usage(files=len(found), bytes=sum(one.size for one in found))


@pytest.mark.s3
def test_files_and_bytes_are_counted_by_base_and_kind(location: Location) -> None:
    home = make(location)
    far = location / "cold" if location.is_local else location.root.replace("s3://lake", "s3://cold")
    add_base(home, far, name="cold", is_dataset_root=True)
    add_base(home, location / "flat", name="flat")
    add_base(home, location / "unused", name="unused")
    append_to_base(home, rows(100, 200), base="cold")
    append_to_base(home, rows(200, 210), base="flat")
    home.open().delete("id in (3, 150)")
    home.open().create_scalar_index("id", "BTREE")
    report = storage_report(home)
    assert [(base.name, base.path) for base in report.bases] == [
        ("root", home.root),
        ("cold", far),
        ("flat", location / "flat"),
        ("unused", location / "unused"),
    ]
    root = of(report, "root")
    assert root.base is None
    assert root.data == stored(location, f"{home.root}/data")
    assert root.deletion == stored(location, f"{home.root}/_deletions")
    assert root.index == stored(location, f"{home.root}/_indices")
    assert (root.data.files, root.deletion.files) == (4, 2)
    assert of(report, "cold").data == of(report, "cold").total == stored(location, far)
    assert of(report, "flat").data == stored(location, location / "flat")
    assert of(report, "unused").total == Usage()
    assert report.total == sum((base.total for base in report.bases), Usage())
    assert (report.version, report.missing) == (home.open().version, ())


@pytest.mark.s3
def test_a_branch_counts_what_it_inherits_where_it_lies(location: Location) -> None:
    main = make(location)
    main.open().delete("id = 1")
    main.open().create_branch("dev")
    dev = main.on("dev")
    append_to_base(dev, rows(100, 110))
    dev.open().delete("id = 60")
    report = storage_report(dev)
    own, inherited = report.bases
    assert (own.path, inherited.path) == (dev.uri, dev.root)
    assert (own.data.files, own.deletion.files) == (1, 1)
    assert (inherited.data.files, inherited.deletion.files) == (4, 1)


def test_only_live_files_count(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    before = storage_report(home).total
    add_base(home, str(tmp_path / "cold"), name="cold")
    move_fragments(home, to="cold", ids=[0, 1, 2])
    after = storage_report(home)
    assert after.total == before
    assert [base.data.files for base in after.bases] == [1, 3]
    lance.write_dataset(rows(0, 1), home.root, mode="overwrite")
    assert storage_report(home).total.files == 1
    assert storage_report(home, version=1).total == before


def test_the_own_root_listed_as_a_base_is_counted_once(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    home.open().add_bases([lance.DatasetBasePath(home.root, name="hot", is_dataset_root=True)])
    append_to_base(home, rows(100, 110), base="hot")
    lance.write_dataset(rows(110, 120), home.open(), mode="append", target_bases=["hot"])
    (only,) = storage_report(home).bases
    assert (only.name, only.data.files) == ("root", 6)


def test_a_missing_file_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    victim = next(Path(home.root, "data").iterdir())
    victim.unlink()
    report = storage_report(home)
    assert report.missing == (str(victim),)
    assert report.total.files == 3


def test_an_empty_table_occupies_nothing(tmp_path: Path) -> None:
    home = Home.at(str(tmp_path / "t.lance"))
    lance.write_dataset(rows(0, 0), home.root)
    assert storage_report(home).total == Usage()


def test_a_path_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="no Lance dataset"):
        storage_report(Home.at(str(tmp_path / "nothing")))


@pytest.mark.s3
def test_a_local_dataset_may_have_its_archive_in_a_bucket(location: Location, tmp_path: Path) -> None:
    home = Home.at(str(tmp_path / "local.lance"), location.storage_options)
    lance.write_dataset(rows(0, 100), home.root, max_rows_per_file=25)
    add_base(home, location / "archive", name="cold", is_dataset_root=True)
    append_to_base(home, rows(100, 110), base="cold")
    move_fragments(home, to="cold", where="id < 50")
    report = storage_report(home)
    assert [base.data.files for base in report.bases] == [2, 3]
    assert of(report, "cold").data == stored(location, location / "archive")
    assert home.open().to_table().num_rows == 110


def test_a_handle_counts_the_version_it_was_checked_out_at(tmp_path: Path) -> None:
    for mode in ("create", "append"):
        lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t.lance"), mode=mode)
    dataset = ab.dataset(tmp_path / "t.lance")
    assert [dataset.branch_checkout("main", at).storage_report().total.files for at in (1, 2)] == [1, 2]
