"""Compaction that leaves tiers and regions where they are."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format.bases import add_base, append_to_base, fragments_of_base, storage_report
from anabranch.format.home import Home
from anabranch.format.staging.compaction import compact_bases
from tests.conftest import Location
from tests.format.reading import read_base


def rows(start: int, stop: int, region: str) -> pa.Table:
    return pa.table({"id": range(start, stop), "region": [region] * (stop - start)})


def make(location: Location, *, stable: bool = True) -> Home:
    """Six fragments, by turns in the own root and in 'eu', indexed, with two rows deleted."""
    home = Home.at(location / "t.lance", location.storage_options)
    lance.write_dataset(
        rows(0, 10, "us"), home.root, enable_stable_row_ids=stable, storage_options=home.lance_options()
    )
    add_base(home, location / "eu", name="eu", is_dataset_root=True)
    for start in (10, 30):
        append_to_base(home, rows(start, start + 10, "eu"), base="eu")
        append_to_base(home, rows(start + 10, start + 20, "us"))
    append_to_base(home, rows(50, 60, "eu"), base="eu")
    home.open().create_scalar_index("id", "BTREE")
    home.open().delete("id in (5, 15)")
    return home


@pytest.mark.s3
@pytest.mark.parametrize("rows_by", ["id", "address"])
def test_fragments_are_merged_within_their_base_and_stay_there(location: Location, rows_by: str) -> None:
    stable = rows_by == "id"
    home = make(location, stable=stable)
    before = home.open().to_table(with_row_id=stable).sort_by("id")
    report = compact_bases(home)
    assert (report.fragments_removed, report.fragments_added, report.version) == (6, 2, home.open().version)
    assert home.open().to_table(with_row_id=stable).sort_by("id") == before
    assert [len(fragments_of_base(home, base)) for base in (None, "eu")] == [1, 1]
    assert [read_base(home, base).column("region").unique().to_pylist() for base in ("root", "eu")] == [["us"], ["eu"]]
    assert [home.open().count_rows(f"id = {i}") for i in range(60)] == [int(i not in {5, 15}) for i in range(60)]
    assert storage_report(home).missing == ()
    home.open().validate()  # type: ignore[no-untyped-call]
    assert compact_bases(home).fragments_removed == 0


def test_nothing_of_a_base_is_left_in_the_own_root(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    compact_bases(home)
    live = {path for fragment in fragments_of_base(home, None) for path in [fragment.metadata.files[0].path]}
    old = {file.path for fragment in home.open(1).get_fragments() for file in fragment.metadata.files}
    stored = {path.name for path in Path(home.root, "data").iterdir()}
    assert live <= stored
    assert len(stored) == 4  # three fragments of older versions, and the one they became
    assert old <= stored


def test_a_branch_compacts_what_it_inherits_into_its_own_root(tmp_path: Path) -> None:
    main = make(Location(root=str(tmp_path)))
    main.open().create_branch("dev")
    dev = main.on("dev")
    append_to_base(dev, rows(60, 70, "us"))
    before = dev.open().to_table(with_row_id=True).sort_by("id")
    compact_bases(dev)
    assert dev.open().to_table(with_row_id=True).sort_by("id") == before
    # Two in the own root: Lance does not merge what an index covers with what it does not cover yet.
    assert [(base.name, base.data.files) for base in storage_report(dev).bases] == [("root", 2), ("0", 0), ("eu", 1)]
    assert len(main.open().get_fragments()) == 6
    assert [dev.open().count_rows(f"id = {i}") for i in (4, 5, 65)] == [1, 0, 1]


def test_a_table_without_bases_compacts_as_ever(tmp_path: Path) -> None:
    home = Home.at(str(tmp_path / "t.lance"))
    lance.write_dataset(rows(0, 40, "us"), home.root, max_rows_per_file=10)
    assert compact_bases(home, target_rows=20).fragments_added == 2
    assert home.open().count_rows() == 40


@pytest.mark.s3
@pytest.mark.parametrize("rows_by", ["id", "address"])
def test_an_inherited_index_is_copied_before_a_compaction(location: Location, rows_by: str) -> None:
    """Lance alone would leave an index that no reader finds; see the facts about bases."""
    home = make(location, stable=rows_by == "id")
    home.open().create_branch("dev", storage_options=home.lance_options())
    clone_uri = location / "clone.lance"
    ab.dataset(home.root, location.storage_options).shallow_clone(clone_uri)
    for heir in (home.on("dev"), Home.at(clone_uri, location.storage_options)):
        assert compact_bases(heir).fragments_removed > 0
        assert [heir.open().count_rows(f"id = {i}") for i in (4, 5, 15, 59, 60)] == [1, 0, 0, 1, 0]
        assert "ScalarIndexQuery" in heir.open().scanner(filter="id = 4").explain_plan()
        assert {segment.base_id for index in heir.open().describe_indices() for segment in index.segments} == {None}
        heir.open().validate()  # type: ignore[no-untyped-call]
        assert storage_report(heir).missing == ()
    assert [home.open().count_rows(f"id = {i}") for i in (4, 5, 59)] == [1, 0, 1]
