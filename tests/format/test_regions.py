"""Regions: a base for each, and jobs that read only the nearest (worked example 2 of the storage layout)."""

import re
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BaseNotFoundError, InvalidExpressionError, InvalidInputError, SchemaMismatchError
from anabranch.format.bases import add_base, append_to_base, fragments_of_base, storage_report
from anabranch.format.home import Home
from anabranch.format.staging.compaction import compact_bases
from tests.conftest import Location
from tests.format.reading import read_base

REGIONS = ("us-east", "eu-west", "ap-south")
BUCKETS = dict(zip(REGIONS, ("lake", "cold", "other"), strict=True))


def users(region: str, count: int = 4) -> pa.Table:
    start = REGIONS.index(region) * 100
    return pa.table({"id": range(start, start + count), "region": [region] * count})


def root_of(location: Location, region: str) -> str:
    """A folder for each region, or a bucket where there are buckets."""
    return (
        location / region if location.is_local else location.root.replace("s3://lake", f"s3://{BUCKETS[region]}") + "/t"
    )


def make(location: Location) -> Home:
    """A dataset in us-east, with a base in each of the two other regions, and rows in all three."""
    home = Home.at(root_of(location, "us-east"), location.storage_options)
    lance.write_dataset(users("us-east"), home.root, enable_stable_row_ids=True, storage_options=home.lance_options())
    for region in REGIONS[1:]:
        add_base(home, root_of(location, region), name=region, is_dataset_root=True)
        append_to_base(home, users(region), base=region)
    return home


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


@pytest.mark.s3
def test_each_region_holds_its_own_rows(location: Location) -> None:
    home = make(location)
    assert ids(home.open().to_table()) == [0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203]
    assert ids(read_base(home, "root")) == [0, 1, 2, 3]
    for region in REGIONS[1:]:
        assert read_base(home, region).column("region").unique().to_pylist() == [region]
    assert [(base.name, base.data.files) for base in storage_report(home).bases] == [
        ("root", 1),
        ("eu-west", 1),
        ("ap-south", 1),
    ]


@pytest.mark.s3
def test_regions_hold_after_an_index_deletions_and_a_compaction(location: Location) -> None:
    home = make(location)
    home.open().create_scalar_index("id", "BTREE")
    home.open().delete("id in (1, 101)")
    assert [read_base(home, base, where="id = 102").num_rows for base in ("root", *REGIONS[1:])] == [0, 1, 0]
    assert ids(read_base(home, "eu-west", columns=["id"], where="id > 100")) == [102, 103]
    assert ids(read_base(home, "eu-west")) == [100, 102, 103]
    for region in REGIONS[1:]:
        append_to_base(home, users(region, count=9), base=region)
    home.open().delete("region = 'eu-west' and id in (104, 105)")
    expected = [ids(read_base(home, base)) for base in ("root", *REGIONS[1:])]
    compact_bases(home)
    assert [ids(read_base(home, base)) for base in ("root", *REGIONS[1:])] == expected
    home.open().optimize.compact_files()  # Lance's own gathers regions in the own root, yet loses nothing
    assert ids(home.open().to_table()) == sorted(number for part in expected for number in part)
    assert home.open().count_rows("id = 102") == 2


def test_a_job_in_one_region_needs_no_file_of_another(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    shutil.rmtree(tmp_path / "ap-south")
    shutil.rmtree(tmp_path / "us-east" / "data")
    assert ids(read_base(home, "eu-west")) == [100, 101, 102, 103]


def test_every_fragment_belongs_to_one_base_after_columns_were_added(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    home.open().add_columns({"twice": "id * 2"})
    parts = [read_base(home, base) for base in ("root", *REGIONS[1:])]
    assert pa.concat_tables(parts).sort_by("id") == home.open().to_table().sort_by("id")
    assert read_base(home, "eu-west").column("twice").to_pylist() == [200, 202, 204, 206]


def test_a_base_without_rows_reads_as_an_empty_table(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    add_base(home, str(tmp_path / "sa-east"), name="sa-east")
    assert read_base(home, "sa-east").schema == home.open().schema
    assert read_base(home, "sa-east", columns=["id"], where="id >= 0").to_pylist() == []
    assert fragments_of_base(home, "sa-east") == []


def test_an_older_version_has_its_own_fragments(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    assert [fragment.fragment_id for fragment in fragments_of_base(home, "eu-west")] == [1]
    assert fragments_of_base(home, "eu-west", version=2) == []
    with pytest.raises(BaseNotFoundError, match=r"no base 'ap-south'; the bases are: 1 \(eu-west\)"):
        fragments_of_base(home, "ap-south", version=2)


def test_a_branch_writes_to_a_region_and_main_does_not_see_it(tmp_path: Path) -> None:
    main = make(Location(root=str(tmp_path)))
    main.open().create_branch("dev")
    dev = main.on("dev")
    append_to_base(dev, users("eu-west", count=2), base="eu-west")
    assert (read_base(dev, "eu-west").num_rows, read_base(main, "eu-west").num_rows) == (6, 4)
    assert read_base(dev, "root").num_rows == 0
    assert ids(read_base(dev, 0)) == [0, 1, 2, 3]


def test_a_wrong_question_is_answered_clearly(tmp_path: Path) -> None:
    home = make(Location(root=str(tmp_path)))
    with pytest.raises(BaseNotFoundError, match="no base 'mars'"):
        read_base(home, "mars")
    with pytest.raises(SchemaMismatchError, match="nope"):
        read_base(home, "eu-west", columns=["nope"])
    for wrong in ("id ==== 1", "id > 1) or (1 = 1", "id > 1 limit 1"):
        with pytest.raises(InvalidExpressionError, match=re.escape(wrong)):
            read_base(home, "eu-west", where=wrong)
    with pytest.raises(InvalidInputError, match="limit -1"):
        read_base(home, "eu-west", limit=-1)


def test_rows_of_a_region_are_read_and_written_by_the_handle(location: Location) -> None:
    dataset = ab.dataset(make(location).root, location.storage_options)
    dataset.append(users("eu-west", count=2), base="eu-west")
    assert [dataset.to_arrow(base=base).num_rows for base in ("root", *REGIONS[1:])] == [4, 6, 4]
    assert dataset.to_arrow(base="eu-west", columns=["id"], limit=5).shape == (5, 1)
    assert dataset.branch_checkout("main", dataset.version - 1).to_arrow(base="eu-west").num_rows == 4
    for wrong in (None, 5, "rows"):
        with pytest.raises(InvalidInputError, match="cannot read rows from"):
            dataset.append(wrong)
