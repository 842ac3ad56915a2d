"""Notes beside tables and columns: what every recipe keeps, and that no data is written for them."""

import pyarrow as pa
import pytest

from anabranch.errors import SchemaMismatchError
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    annotate,
    append,
    compact,
    create_empty,
    delete,
    drop_columns,
    fork,
    index,
    keep_notes,
    list_indices,
    overwrite,
    settle,
    update,
    upsert,
)
from anabranch.format.staging.schema_notes import COLUMN_ID
from tests.conftest import Location
from tests.format.staging.tables import contents, new_table, raw, row_ids, rows


def notes(version_ref: VersionRef) -> tuple[dict[bytes, bytes], dict[str, dict[bytes, bytes]]]:
    """Return the metadata of the table, and that of the columns that have any, without the identity of columns."""
    schema = version_ref.schema
    columns = {
        field.name: {key: text for key, text in (field.metadata or {}).items() if key != COLUMN_ID.encode()}
        for field in schema
    }
    return schema.metadata or {}, {name: found for name, found in columns.items() if found}


def noted(version_ref: VersionRef) -> VersionRef:
    return annotate(
        version_ref, {"anabranch:description": "Tische"}, columns={"v": {"anabranch:description": "wört", "k": "1"}}
    )


TABLE = {b"anabranch:description": b"Tische"}
COLUMN = {b"anabranch:description": "wört".encode(), b"k": b"1"}


@pytest.mark.s3
def test_notes_are_kept_without_writing_data(location: Location) -> None:
    before = index(new_table(location, [1, 2]), "id", IndexKind.BTREE)
    after = noted(before)
    assert notes(after) == (TABLE, {"v": COLUMN})
    assert notes(before) == ({}, {})
    assert contents(after) == contents(before)
    assert row_ids(after) == row_ids(before)
    assert list_indices(after) == list_indices(before)
    files = [
        [file.path for f in version_ref.open().get_fragments() for file in f.metadata.files]
        for version_ref in (before, after)
    ]
    assert files[0] == files[1]
    settle(after.home, after.version, expected_head=after.home.head_version())
    assert raw(after).schema.metadata == TABLE


def test_notes_are_changed_and_removed_one_by_one(location: Location) -> None:
    version_ref = noted(new_table(location, [1]))
    assert noted(version_ref) == version_ref  # nothing to change, nothing staged
    version_ref = annotate(version_ref, {"more": "x"}, columns={"v": {"k": None, "l": ""}, "s": {"gone": None}})
    assert notes(version_ref) == (
        {**TABLE, b"more": b"x"},
        {"v": {b"anabranch:description": "wört".encode(), b"l": b""}},
    )
    version_ref = annotate(version_ref, {"more": None, "anabranch:description": None}, columns={})
    assert notes(version_ref)[0] == {}


def test_a_column_that_is_not_there_takes_no_notes(location: Location) -> None:
    with pytest.raises(SchemaMismatchError, match="no column 'nope'"):
        annotate(new_table(location, [1]), {}, columns={"nope": {"k": "v"}})


def test_every_recipe_keeps_notes(location: Location) -> None:
    version_ref = noted(new_table(location, [1, 2], [3]))
    version_ref = append(version_ref, rows([4]))
    version_ref = upsert(version_ref, rows([4, 5], v=1.0), ["id"]).version_ref
    version_ref = update(version_ref, {"v": "v + 1"}).version_ref
    version_ref = delete(version_ref, "id = 1").version_ref
    version_ref = add_columns(version_ref, {"w": "id * 2"})
    version_ref = drop_columns(version_ref, ["w"])
    version_ref = compact(version_ref)
    assert notes(version_ref) == (TABLE, {"v": COLUMN})
    home = fork(version_ref, "dev/x")
    assert notes(VersionRef(home=home, version=home.head_version())) == (TABLE, {"v": COLUMN})


def test_a_column_takes_its_notes_along_to_another_name_and_type(location: Location) -> None:
    version_ref = noted(new_table(location, [1, 2]))
    version_ref = alter_columns(version_ref, [ColumnChange(path="v", name="x", type=pa.float32())])
    assert notes(version_ref) == (TABLE, {"x": COLUMN})
    assert version_ref.schema.field("x").type == pa.float32()
    assert [row["x"] for row in contents(version_ref)] == [0.0, 0.0]


def test_what_is_noted_of_a_type_stays_with_that_type(location: Location) -> None:
    schema = pa.schema(
        [("id", pa.int64()), pa.field("b", pa.string(), metadata={"lance-encoding:compression": "zstd"})]
    )
    version_ref = create_empty(Home.at(location / "t.lance", location.storage_options), schema)
    version_ref = alter_columns(
        annotate(version_ref, {}, columns={"b": {"k": "v"}}), [ColumnChange(path="b", type=pa.large_string())]
    )
    assert notes(version_ref)[1] == {"b": {b"k": b"v"}}


def test_an_overwrite_loses_notes_unless_they_are_kept(location: Location) -> None:
    before = annotate(
        new_table(location, [1]),
        {"anabranch:description": "t", "other": "x"},
        columns={
            "v": {"anabranch:description": "a", "anabranch:default": "1", "other": "x"},
            "s": {"anabranch:description": "b", "anabranch:default": "'x'"},
            "st": {"anabranch:description": "c"},
        },
    )
    after = overwrite(before, pa.table({"id": [7], "v": [1.0], "s": [1]}))
    assert notes(after) == ({}, {})
    assert notes(keep_notes(after, of=before)) == (
        {b"anabranch:description": b"t", b"other": b"x"},
        {
            "v": {b"anabranch:description": b"a", b"anabranch:default": b"1", b"other": b"x"},
            "s": {b"anabranch:description": b"b"},  # The default may not fit the new type.
        },
    )
