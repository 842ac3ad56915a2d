"""Columns keep their identity through renames, rewritten files and overwrites, and do not share it."""

import lance
import pyarrow as pa

from anabranch.format.compare.difference import ColumnPair, compare_versions
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    append,
    compact,
    create_empty,
    drop_columns,
    fork,
    index,
    overwrite,
    overwrite_fragments,
    settle,
    update,
    write_fragments,
)
from anabranch.format.staging.schema_notes import COLUMN_ID
from tests.conftest import Location
from tests.duck.test_comparer import CASES, column
from tests.format.staging.tables import contents, new_table, raw


def pairs(older: VersionRef, newer: VersionRef) -> set[tuple[str | None, str | None]]:
    """Return the columns that are not the same by name."""
    found = compare_versions(older, newer).columns
    return {(pair.older, pair.newer) for pair in found if pair != ColumnPair(older=pair.newer, newer=pair.newer)}


def rename(version_ref: VersionRef, old: str, new: str) -> VersionRef:
    return alter_columns(version_ref, [ColumnChange(path=old, name=new)])


def rewrite(version_ref: VersionRef) -> VersionRef:
    return update(version_ref, {"id": "id"}).version_ref


def settled(version_ref: VersionRef) -> VersionRef:
    """Return the ordinary version that shows a staged one."""
    home = version_ref.home
    settle(home, version_ref.version, expected_head=home.head_version())
    return VersionRef(home=home, version=home.head_version())


def many_types() -> pa.Table:
    columns = {f"c{number}": column(kind, one, other) for number, (kind, one, other) in enumerate(CASES)}
    return pa.table({"id": [1, 2], **columns})


def test_overwrite_in_another_order_of_columns_reads_back_every_type(location: Location) -> None:
    given = many_types().append_column("d", pa.array(["x", "y"]).dictionary_encode())
    text = pa.field("text", pa.string(), metadata={"lance-encoding:compression": "zstd"})
    given = given.append_column(text, pa.array(["1", "22"]))
    backwards = given.select(given.column_names[::-1])
    home = Home.at(location / "t.lance", location.storage_options)
    before = append(create_empty(home, backwards.schema), backwards)
    after = overwrite(before, given)
    noted = [field.name for field in after.schema if COLUMN_ID.encode() in (field.metadata or {})]
    assert len(noted) > len(given.column_names) // 2
    assert after.schema == given.schema
    assert after.schema.field("text").metadata[b"lance-encoding:compression"] == b"zstd"
    assert not pairs(before, after)
    more = append(append(after, given.set_column(0, "id", [[3, 4]])), given.set_column(0, "id", [[5, 6]]))
    for version_ref in (more, compact(index(more, "id", IndexKind.BTREE))):
        found = version_ref.open().to_table(filter="id in (3, 4)")
        assert found.drop(["id"]).to_pylist() == given.drop(["id"]).to_pylist()
    assert raw(settled(more)).to_table().slice(0, 2).to_pylist() == given.to_pylist()


def test_fragments_of_an_overwrite_fit_columns_with_any_field_ids(location: Location) -> None:
    before = rename(add_columns(new_table(location, [1, 2]), {"w": "v + 1"}), "s", "t")
    data = pa.table({"w": [1.5], "t": ["new"], "id": [7], "extra": [1]})
    written = write_fragments(before, data, for_overwrite=True)
    after = overwrite_fragments(before, written, schema=data.schema)
    assert contents(after) == [{"w": 1.5, "t": "new", "id": 7, "extra": 1}]
    again = append(after, data)
    assert [row["t"] for row in contents(again, where="extra = 1")] == ["new", "new"]
    renamed = rewrite(rename(rename(again, "t", "u"), "w", "x"))
    assert pairs(before, renamed) == {("t", "u"), ("w", "x"), (None, "extra"), ("v", None), ("st", None)}


def test_identity_of_the_data_given_to_an_overwrite_does_not_count(location: Location) -> None:
    before = rename(new_table(location, [1]), "s", "t")
    found = before.open().to_table()
    assert found.schema.field("t").metadata
    copied = pa.schema([found.schema.field("t").with_name(name) for name in ("x", "y")])
    after = overwrite(before, pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], schema=copied))
    assert {(None, "x"), (None, "y"), ("t", None)} <= pairs(before, after)


def test_column_without_rows_is_followed(location: Location) -> None:
    before = add_columns(new_table(location), pa.schema([("empty", pa.int64())]))
    assert pairs(before, rename(before, "empty", "void")) == {("empty", "void")}


def test_columns_added_to_two_forks_are_different_although_their_field_ids_are_equal(location: Location) -> None:
    base = new_table(location, [1])
    homes = [fork(base, name) for name in ("one", "other")]
    one, other = (add_columns(VersionRef(home=home, version=home.head_version()), {"x": "1"}) for home in homes)
    assert one.open().max_field_id == other.open().max_field_id
    assert pairs(one, rewrite(rename(other, "x", "y"))) == {("x", None), (None, "y")}


def test_column_that_an_external_writer_renamed_is_followed_while_files_are_shared_or_its_identity_is_noted(
    location: Location,
) -> None:
    before = settled(rename(new_table(location, [1, 2]), "s", "t"))
    dataset = raw(before)
    for old, new in (("t", "u"), ("v", "w")):
        dataset.alter_columns({"path": old, "name": new})  # type: ignore[dict-item]
    after = VersionRef(home=before.home, version=dataset.version)
    assert pairs(before, after) == {("t", "u"), ("v", "w")}
    dataset.update({"id": "id + 10"})
    after = VersionRef(home=before.home, version=dataset.version)
    assert pairs(before, after) == {("t", "u"), ("v", None), (None, "w")}


def test_column_of_an_external_writer_with_a_reused_field_id_is_not_the_dropped_one(location: Location) -> None:
    before = settled(drop_columns(new_table(location, [1, 2]), ["st"]))
    dataset = raw(before)
    dataset.drop_columns(["s"])
    dataset.update({"id": "id + 10"})
    dataset.add_columns({"x": "'new'"})
    ids = [{field.name(): field.id() for field in found.lance_schema.fields()} for found in (before.open(), dataset)]
    assert ids[0]["s"] == ids[1]["x"]
    after = VersionRef(home=before.home, version=dataset.version)
    assert pairs(before, after) == {("s", None), (None, "x")}
    renamed = rewrite(rename(after, "x", "y"))
    assert pairs(before, renamed) == {("s", None), (None, "y")}


def test_noted_identity_has_precedence_over_a_reused_field_id(location: Location) -> None:
    """An external overwrite that keeps the metadata of fields gives the old field id and name to a new column."""
    before = settled(new_table(location, [1]))
    renamed = settled(rename(before, "v", "w"))
    given = raw(renamed).to_table(["id", "w"]).add_column(1, "v", pa.array([9.0]))
    lance.write_dataset(given, renamed.home.uri, mode="overwrite", storage_options=location.storage_options or None)
    after = VersionRef(home=renamed.home, version=renamed.home.head_version())
    assert {field.name(): field.id() for field in after.open().lance_schema.fields()}["v"] == 1
    assert pairs(before, after) == {("v", "w"), (None, "v"), ("s", None), ("st", None)}
