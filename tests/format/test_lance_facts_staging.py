"""What staging relies on in Lance, and the traps it works around; an upgrade that changes one of these fails here."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, RowIdSequence, write_fragments
from lance.optimize import Compaction
from lance.schema import LanceSchema

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "n": n} for i, n in pairs], schema=SCHEMA)


@pytest.fixture
def dataset(tmp_path: Any) -> lance.LanceDataset:
    return lance.write_dataset(rows((1, 10), (2, None)), str(tmp_path / "t.lance"), enable_stable_row_ids=True)


def stage(base: lance.LanceDataset, operation: Any) -> lance.LanceDataset:
    made = lance.LanceDataset.commit(base, operation, read_version=base.version, detached=True)
    return lance.dataset(base.uri, version=made.version)


def with_index(base: lance.LanceDataset, column: str, kind: str) -> lance.LanceDataset:
    fragments = [fragment.fragment_id for fragment in base.get_fragments()]
    built = base.create_index_uncommitted(column, kind, name=f"{column}_idx", fragment_ids=fragments)
    return stage(base, LanceOperation.CreateIndex([built], []))


def covered(dataset: lance.LanceDataset) -> set[int]:
    (found,) = dataset.describe_indices()
    return {fragment for segment in found.segments for fragment in segment.fragment_ids}


def test_update_takes_row_ids_for_the_first_rows_of_a_fragment(dataset: lance.LanceDataset) -> None:
    written = write_fragments(rows((1, 11), (3, 30)), dataset)
    written[0].row_id_meta = RowIdSequence([0]).to_inline_metadata()
    left = dataset.get_fragments()[0].delete_rows([0])
    assert left is not None
    staged = stage(dataset, LanceOperation.Update(updated_fragments=[left], new_fragments=written))
    found = staged.scanner(with_row_id=True).to_table().to_pylist()
    assert {row["id"]: row["_rowid"] for row in found} == {1: 0, 2: 1, 3: 2}


@pytest.mark.parametrize(("changed", "found"), [([0], [2]), ([0, 1], [2, 3])], ids=["trap", "as staging does it"])
def test_update_counts_new_rows_as_indexed_unless_all_fields_are_listed(
    dataset: lance.LanceDataset, changed: list[int], found: list[int]
) -> None:
    indexed = with_index(dataset, "n", "BITMAP")
    update = LanceOperation.Update(
        new_fragments=write_fragments(rows((3, None)), indexed),
        fields_for_preserving_frag_bitmap=changed,
        update_mode="rewrite_rows",
    )
    assert stage(indexed, update).to_table(filter="n IS NULL").column("id").to_pylist() == found


def test_moved_rows_stay_covered_by_indices_on_unchanged_fields_only_if_they_were(dataset: lance.LanceDataset) -> None:
    indexed = with_index(dataset, "n", "BITMAP")
    base = stage(indexed, LanceOperation.Append(write_fragments(rows((8, 80)), indexed)))
    for row_id, fragment, offset, covers in ((0, 0, 0, {0, 2}), (2, 1, 0, {0})):
        row = base.take([row_id])
        written = write_fragments(row, base)
        written[0].row_id_meta = RowIdSequence([row_id]).to_inline_metadata()
        left = base.get_fragments()[fragment].delete_rows([offset])
        update = LanceOperation.Update(
            removed_fragment_ids=[fragment] if left is None else [],
            updated_fragments=[] if left is None else [left],
            new_fragments=written,
            fields_for_preserving_frag_bitmap=[0],
            update_mode="rewrite_rows",
        )
        moved = stage(base, update)
        assert covered(moved) == covers
        assert moved.count_rows(f"n = {row.column('n')[0]}") == 1


def test_compaction_leaves_a_dead_fragment_in_the_coverage_of_a_staged_index(dataset: lance.LanceDataset) -> None:
    base = stage(dataset, LanceOperation.Append(write_fragments(rows((3, 30)), dataset)))
    indexed = with_index(base, "n", "BITMAP")
    done: list[Any] = [task.execute(indexed) for task in Compaction.plan(indexed, {}).tasks]
    groups = [LanceOperation.RewriteGroup(r.original_fragments, r.new_fragments) for r in done]
    packed = stage(indexed, LanceOperation.Rewrite(groups, []))
    (fragment,) = packed.get_fragments()
    assert fragment.fragment_id == 2
    assert covered(packed) == {0}


def take_apart(schema: Any) -> tuple[str, bytes, bytes]:
    metadata, first, second = schema.__reduce__()[1]
    return metadata, first, second


def test_schema_can_be_taken_apart_and_put_together_with_its_field_ids(dataset: lance.LanceDataset) -> None:
    metadata, first, second = take_apart(dataset.lance_schema)
    again = LanceSchema._from_protos(metadata, first, second)
    assert [(f.id(), f.name()) for f in again.fields()] == [(0, "id"), (1, "n")]
    dropped = stage(dataset, LanceOperation.Project(LanceSchema._from_protos(metadata, first)))
    assert dropped.to_table().to_pylist() == [{"id": 1}, {"id": 2}]
    assert dropped.max_field_id == 1, "the id of a dropped column is not given again while its data is there"


def test_merge_refuses_to_swap_the_names_of_fields(dataset: lance.LanceDataset) -> None:
    metadata, first, second = take_apart(dataset.lance_schema)
    swapped = first.replace(b"\x12\x02id", b"\x12\x01n"), second.replace(b"\x12\x01n", b"\x12\x02id")
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    with pytest.raises(OSError, match="remaps field id"):
        stage(dataset, LanceOperation.Merge(fragments, LanceSchema._from_protos(metadata, *swapped)))


def test_index_of_words_is_unreadable_until_its_segment_is_merged(tmp_path: Any) -> None:
    base = lance.write_dataset(pa.table({"s": ["red stone"]}), str(tmp_path / "w.lance"), enable_stable_row_ids=True)
    broken = with_index(base, "s", "INVERTED")
    with pytest.raises(ValueError, match=r"tokens\.lance"):
        broken.scanner(full_text_query="stone").to_table()


@pytest.mark.parametrize("predicate", ["id > 0 LIMIT 1", "id > 0; DROP TABLE t", "id > 0) AND (false"])
def test_filters_are_read_up_to_where_lance_stops_understanding(dataset: lance.LanceDataset, predicate: str) -> None:
    assert dataset.count_rows(predicate) == 2


def test_scan_of_constants_alone_is_refused(dataset: lance.LanceDataset) -> None:
    with pytest.raises(ValueError, match="at least one column"):
        dataset.scanner(columns={"one": "1"}).to_table()


def test_restore_of_a_version_that_is_not_there(dataset: lance.LanceDataset) -> None:
    restore = lance.Transaction(dataset.version, LanceOperation.Restore((1 << 63) + 1))
    with pytest.raises((OSError, ValueError)):
        lance.LanceDataset.commit(dataset, restore)


def test_overwrite_continues_the_row_ids(dataset: lance.LanceDataset) -> None:
    staged = stage(dataset, LanceOperation.Overwrite(SCHEMA, write_fragments(rows((1, 1)), dataset, mode="overwrite")))
    assert staged.scanner(with_row_id=True).to_table().column("_rowid").to_pylist() == [2]


def test_cleanup_is_refused_by_a_tag_on_an_old_version_of_the_root_only(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table({"id": [1]}), uri)
    table.tags.create("held", 1)
    lance.write_dataset(pa.table({"id": [2]}), uri, mode="append")
    with pytest.raises(OSError, match="tagged version"):
        lance.dataset(uri).cleanup_old_versions(timedelta(0))
    lance.dataset(uri).create_branch("b", 2)
    lance.write_dataset(pa.table({"id": [3]}), f"{uri}/tree/b", mode="append")
    assert lance.dataset(f"{uri}/tree/b").cleanup_old_versions(timedelta(0)).old_versions == 1


def test_manifest_of_zeros_opens_as_version_zero(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1]}), str(uri))
    (manifest,) = (uri / "_versions").glob("*.manifest")
    manifest.write_bytes(bytes(manifest.stat().st_size))
    opened = lance.dataset(str(uri))
    assert (opened.version, opened.count_rows()) == (0, 0)


def field_ids(dataset: lance.LanceDataset) -> dict[str, int]:
    return {field.name(): field.id() for field in dataset.lance_schema.fields()}


@pytest.mark.parametrize(("files", "found"), [("old", 2), ("new", 1)])
def test_field_id_of_a_dropped_column_is_used_again_when_no_data_file_has_it(
    dataset: lance.LanceDataset, files: str, found: int
) -> None:
    dataset.drop_columns(["n"])
    if files == "new":
        dataset.update({"id": "id + 1"})
    dataset.add_columns({"x": "id + 1"})
    assert field_ids(dataset)["x"] == found


def test_field_id_of_a_dropped_column_with_data_files_of_its_own_is_used_again_at_once(
    dataset: lance.LanceDataset,
) -> None:
    dataset.add_columns({"x": "n + 1"})
    dataset.drop_columns(["x"])
    dataset.add_columns({"y": "n + 2"})
    assert field_ids(dataset) == {"id": 0, "n": 1, "y": 2}


def test_columns_added_to_the_same_version_get_the_same_field_id(dataset: lance.LanceDataset) -> None:
    fragment = dataset.get_fragments()[0]
    schemas = [fragment.merge_columns({name: "n + 1"})[1] for name in ("x", "y")]
    assert [[(f.name(), f.id()) for f in schema.fields()][-1] for schema in schemas] == [("x", 2), ("y", 2)]


def test_overwrite_numbers_fields_by_position(dataset: lance.LanceDataset) -> None:
    schema = pa.schema([("n", pa.int64()), ("id", pa.int64())])
    written = write_fragments(rows((1, 10)).select(["n", "id"]), dataset, mode="overwrite")
    assert field_ids(stage(dataset, LanceOperation.Overwrite(schema, written))) == {"n": 0, "id": 1}


def test_metadata_of_a_field_survives_a_rename_an_update_and_a_compaction(dataset: lance.LanceDataset) -> None:
    dataset.update_field_metadata({"n": {"k": "v"}})
    dataset.alter_columns({"path": "n", "name": "m"})  # type: ignore[dict-item]
    dataset.update({"id": "id + 1"})
    dataset.delete("id = 2")
    dataset.optimize.compact_files()
    assert lance.dataset(dataset.uri).schema.field("m").metadata == {b"k": b"v"}


def test_a_data_file_written_alone_is_the_one_that_lance_would_write(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["n"])
    dataset.add_columns({"m": "id + 1"})  # so that the ids of fields are not their positions
    added = dataset.to_table().slice(0, 1)
    [expected] = write_fragments(added, dataset, mode="append")
    major, minor = map(int, dataset.data_storage_version.split("."))
    with LanceFileWriter(f"{dataset.uri}/data/alone.lance", dataset.schema, version=f"{major}.{minor}") as writer:
        writer.write_batch(added)
    fields = [field.id() for field in dataset.lance_schema.fields()]
    file = DataFile("alone.lance", fields, list(range(len(fields))), major, minor, writer.size_bytes)
    [planned] = expected.files
    assert (file.fields, file.column_indices, file.file_size_bytes) == (
        planned.fields,
        planned.column_indices,
        planned.file_size_bytes,
    )
    staged = stage(dataset, LanceOperation.Append([FragmentMetadata(0, [file], physical_rows=1)]))
    assert staged.to_table().slice(2).equals(added)
