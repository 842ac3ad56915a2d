"""What Lance does about base paths, where we build on it or guard against it."""

import json
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata

from tests.conftest import Location


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "v": [i * 0.5 for i in range(start, stop)]})


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    """Four fragments of 25 rows; base 1 is 'cold'."""
    made = lance.write_dataset(
        rows(0, 100), str(tmp_path / "t.lance"), max_rows_per_file=25, enable_stable_row_ids=True
    )
    made.add_bases([lance.DatasetBasePath(str(tmp_path / "cold"), name="cold", is_dataset_root=True)])
    return lance.dataset(made.uri)


def moved(dataset: lance.LanceDataset, fragment: int) -> FragmentMetadata:
    """A fragment with its file copied to 'cold'."""
    metadata = dataset.get_fragments()[fragment].metadata.to_json()
    cold = Path(dataset.base_paths()[1].path, "data")
    cold.mkdir(parents=True, exist_ok=True)
    for file in metadata["files"]:
        (cold / file["path"]).write_bytes(Path(dataset.uri, "data", file["path"]).read_bytes())
        file["base_id"] = 1
    return FragmentMetadata.from_json(json.dumps(metadata))


def repoint(dataset: lance.LanceDataset, fragment: FragmentMetadata) -> lance.LanceDataset:
    update = lance.LanceOperation.Update(updated_fragments=[fragment])
    return lance.LanceDataset.commit(dataset, update, read_version=dataset.version)


def restore(dataset: lance.LanceDataset, version: int) -> None:
    lance.dataset(dataset.uri, version=version).restore()  # type: ignore[no-untyped-call]


def bases(dataset: lance.LanceDataset) -> list[int | None]:
    return [fragment.metadata.files[0].base_id for fragment in lance.dataset(dataset.uri).get_fragments()]


LANDS: dict[str, Callable[[lance.LanceDataset], object]] = {
    "append": lambda d: lance.write_dataset(rows(100, 110), d, mode="append"),
    "delete in another fragment": lambda d: d.delete("id = 70"),
    "drop a column": lambda d: d.drop_columns(["v"]),
    "rename a column": lambda d: d.alter_columns({"path": "v", "name": "w"}),  # type: ignore[dict-item]
    "index": lambda d: d.create_scalar_index("id", "BTREE"),
    "add a base": lambda d: d.add_bases([lance.DatasetBasePath(d.uri + "-x", name="x")]),
    "move another fragment": lambda d: repoint(d, moved(d, 1)),
}
REFUSED: dict[str, Callable[[lance.LanceDataset], object]] = {
    "delete": lambda d: d.delete("id = 7"),
    "delete all of it": lambda d: d.delete("id < 25"),
    "update": lambda d: d.update({"v": "0.0"}, where="id = 7"),
    "upsert": lambda d: d.merge_insert("id").when_matched_update_all().execute(rows(7, 8)),
    "add a column": lambda d: d.add_columns({"w": "v * 2"}),
    "cast a column": lambda d: d.alter_columns({"path": "v", "data_type": pa.float32()}),  # type: ignore[dict-item]
    "compact": lambda d: d.optimize.compact_files(),
    "overwrite": lambda d: lance.write_dataset(rows(0, 1), d, mode="overwrite"),
    "restore": lambda d: restore(d, 1),
    "move": lambda d: repoint(d, moved(d, 0)),
}


@pytest.mark.parametrize("between", LANDS)
def test_repointing_lands_on_what_does_not_touch_the_fragment(table: lance.LanceDataset, between: str) -> None:
    fragment = moved(table, 0)
    LANDS[between](lance.dataset(table.uri))
    theirs = lance.dataset(table.uri).to_table(with_row_id=True)
    assert repoint(table, fragment).version > table.version + 1
    assert lance.dataset(table.uri).to_table(with_row_id=True) == theirs
    assert bases(table)[0] == 1


@pytest.mark.parametrize("between", REFUSED)
def test_repointing_is_refused_on_what_touches_the_fragment(table: lance.LanceDataset, between: str) -> None:
    fragment = moved(table, 0)
    REFUSED[between](lance.dataset(table.uri))
    theirs = lance.dataset(table.uri).version
    with pytest.raises(OSError, match=r"preempted by|Incompatible transaction"):
        repoint(table, fragment)
    assert lance.dataset(table.uri).version == theirs


def test_a_delete_planned_before_a_move_lands_after_it_and_keeps_the_move(table: lance.LanceDataset) -> None:
    early = lance.dataset(table.uri)
    repoint(table, moved(table, 0))
    early.delete("id = 7")
    assert bases(table) == [1, None, None, None]
    assert lance.dataset(table.uri).count_rows() == 99


def test_bases_are_numbered_from_one_and_a_branch_numbers_its_own(table: lance.LanceDataset, tmp_path: Path) -> None:
    table.create_branch("dev")
    table.add_bases([lance.DatasetBasePath(str(tmp_path / "x"), name="x")])
    dev = lance.dataset(f"{table.uri}/tree/dev")
    dev.add_bases([lance.DatasetBasePath(str(tmp_path / "y"), name="y")])
    assert {base.id: base.name for base in table.base_paths().values()} == {1: "cold", 2: "x"}
    assert {base.id: base.name for base in dev.base_paths().values()} == {0: None, 1: "cold", 2: "y"}


def test_different_bases_added_from_one_version_both_land_and_equal_ones_do_not(
    table: lance.LanceDataset, tmp_path: Path
) -> None:
    first, second, third = (lance.dataset(table.uri) for _ in range(3))
    first.add_bases([lance.DatasetBasePath(str(tmp_path / "x"), name="x")])
    second.add_bases([lance.DatasetBasePath(str(tmp_path / "y"), name="y")])
    with pytest.raises(OSError, match="Incompatible transaction"):
        third.add_bases([lance.DatasetBasePath(str(tmp_path / "x"), name="x")])
    assert sorted(lance.dataset(table.uri).base_paths()) == [1, 2, 3]


def test_the_own_root_is_accepted_as_a_base(table: lance.LanceDataset) -> None:
    table.add_bases([lance.DatasetBasePath(table.uri, name="hot", is_dataset_root=True)])
    lance.write_dataset(rows(100, 110), table, mode="append", target_bases=["hot"])
    assert bases(table) == [None, None, None, None, 2]


def test_writing_to_base_0_of_a_branch_makes_it_unreadable(table: lance.LanceDataset) -> None:
    table.create_branch("dev")
    dev = f"{table.uri}/tree/dev"
    lance.write_dataset(rows(100, 110), lance.dataset(dev), mode="append", target_bases=[table.uri])
    with pytest.raises(pa.ArrowInvalid, match="Not found"):
        lance.dataset(dev).to_table()


def test_compaction_and_new_columns_ignore_bases(table: lance.LanceDataset) -> None:
    repoint(table, moved(table, 0))
    dataset = lance.dataset(table.uri)
    dataset.add_columns({"w": "v * 2"})
    assert [file.base_id for file in lance.dataset(table.uri).get_fragments()[0].metadata.files] == [1, None]
    dataset.optimize.compact_files()
    assert bases(table) == [None]


def test_a_restore_takes_bases_away_and_their_ids_are_given_again(table: lance.LanceDataset, tmp_path: Path) -> None:
    restore(table, 1)
    dataset = lance.dataset(table.uri)
    assert dataset.base_paths() == {}
    dataset.add_bases([lance.DatasetBasePath(str(tmp_path / "new"), name="new")])
    assert dataset.base_paths()[1].name == "new"


def test_an_empty_list_of_fragments_is_not_a_fragment(table: lance.LanceDataset) -> None:
    assert table.scanner(fragments=[]).to_table().num_rows == 0


def test_large_blobs_are_in_a_folder_beside_their_data_file(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")])
    blobs = lance.blob_array([b"inline", b"p" * 200_000, b"d" * 5_000_000])
    root = tmp_path / "t.lance"
    made = lance.write_dataset(
        pa.table({"id": [1, 2, 3], "blob": blobs}, schema=schema), str(root), data_storage_version="2.2"
    )
    (file,) = made.get_fragments()[0].metadata.files
    assert len(list((root / "data" / file.path.removesuffix(".lance")).glob("*.blob"))) == 2


@pytest.mark.xdist_group("s3")
def test_a_write_to_a_base_wants_the_storage_options_again(s3_location: Location) -> None:
    options = s3_location.storage_options
    made = lance.write_dataset(rows(0, 10), s3_location / "t.lance", storage_options=options)
    far = s3_location.root.replace("s3://lake", "s3://cold")
    made.add_bases([lance.DatasetBasePath(far, name="cold", is_dataset_root=True)])
    dataset = lance.dataset(made.uri, storage_options=options)
    with pytest.raises(OSError, match="S3"):
        lance.write_dataset(rows(10, 20), dataset, mode="append", target_bases=["cold"])
    lance.write_dataset(rows(10, 20), dataset, mode="append", target_bases=["cold"], storage_options=options)
    assert lance.dataset(made.uri, storage_options=options).to_table().num_rows == 20


def test_compaction_on_a_branch_loses_an_inherited_index(tmp_path: Path) -> None:
    """It writes the changed index into the branch's folder, and records the base that the old one came from."""
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), root)
    lance.dataset(root).insert(pa.table({"id": [3]}))
    lance.dataset(root).create_scalar_index("id", "BTREE")
    lance.dataset(root).create_branch("dev")
    lance.dataset(f"{root}/tree/dev").optimize.compact_files()
    dev = lance.dataset(f"{root}/tree/dev")
    ((segment,),) = (index.segments for index in dev.describe_indices())
    assert segment.base_id == 0
    assert (tmp_path / "t.lance/tree/dev/_indices" / segment.uuid).is_dir()
    with pytest.raises(OSError, match="Not found"):
        dev.count_rows("id = 2")
