"""Columns added, altered and dropped."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch.errors import (
    AnabranchError,
    InvalidExpressionError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
)
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    VersionRef,
    add_columns,
    alter_columns,
    append,
    create_empty,
    delete,
    drop_columns,
    index,
    upsert,
)
from anabranch.format.staging.fields import FieldTree
from tests.conftest import Location
from tests.format.staging.tables import contents, covered, ids, new_table, raw, row_ids, rows


def field_ids(version_ref: VersionRef) -> dict[str, int]:
    return {field.name: field.id for field in FieldTree.of(version_ref.open().lance_schema).fields}


def data_files(version_ref: VersionRef) -> set[str]:
    return {str(file.path) for fragment in version_ref.open().get_fragments() for file in fragment.metadata.files}


@pytest.mark.s3
def test_columns_are_computed_for_every_row(location: Location) -> None:
    version_ref = delete(new_table(location, [1, 2], [3, 4]), "id = 2").version_ref
    added = add_columns(version_ref, {"w": "id * 2", "one": "1", "inner": "st.a"})
    assert contents(added, "id", "w", "one", "inner") == [
        {"id": 1, "w": 2, "one": 1, "inner": 1},
        {"id": 3, "w": 6, "one": 1, "inner": 3},
        {"id": 4, "w": 8, "one": 1, "inner": None},
    ]
    assert row_ids(added) == row_ids(version_ref)
    assert raw(version_ref).schema.names == version_ref.schema.names == ["id", "v", "s", "st"]
    assert contents(append(added, rows([9])), where="id = 9")[0]["w"] is None


def test_empty_columns_write_no_data(location: Location) -> None:
    version_ref = new_table(location, [1, 2])
    kind = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])
    added = add_columns(version_ref, pa.schema([("e", kind), ("f", pa.float32())]))
    assert data_files(added) == data_files(version_ref)
    assert contents(added, "e", "f") == [{"e": None, "f": None}] * 2
    filled = append(added, pa.table({"id": [3], "e": pa.array([{"x": 1, "y": ["z"]}], kind)}))
    assert contents(filled, "e", where="id = 3") == [{"e": {"x": 1, "y": ["z"]}}]


@pytest.mark.parametrize("filled", [True, False], ids=["rows", "no rows"])
def test_every_change_works_with_and_without_rows(location: Location, filled: bool) -> None:  # noqa: FBT001
    version_ref = new_table(location, [1, 2]) if filled else new_table(location)
    version_ref = add_columns(version_ref, {"w": "id * 2"})
    version_ref = add_columns(version_ref, pa.schema([("e", pa.int32())]))
    version_ref = alter_columns(
        version_ref, [ColumnChange(path="w", type=pa.int32()), ColumnChange(path="v", name="value")]
    )
    version_ref = drop_columns(version_ref, ["s"])
    assert version_ref.schema.names == ["id", "value", "st", "w", "e"]
    assert version_ref.schema.field("w").type == pa.int32()
    assert version_ref.schema.field("w").nullable
    version_ref = append(version_ref, pa.table({"id": [7], "w": [14], "e": [0]}))
    assert contents(version_ref, "id", "w", where="id = 7") == [{"id": 7, "w": 14}]


def test_dropped_column_does_not_come_back_under_its_old_name(location: Location) -> None:
    version_ref = new_table(location, [1, 2])
    again = add_columns(drop_columns(version_ref, ["st"]), pa.schema([version_ref.schema.field("st")]))
    assert contents(again, "st") == [{"st": None}] * 2
    assert field_ids(again)["st"] > max(field_ids(version_ref).values())


def test_rename_keeps_field_ids_data_and_indices(location: Location) -> None:
    version_ref = index(new_table(location, range(20)), "s", IndexKind.BTREE)
    renamed = alter_columns(
        version_ref,
        [ColumnChange(path="s", name="v"), ColumnChange(path="v", name="s"), ColumnChange(path="st.a", name="z")],
    )
    assert renamed.schema.names == ["id", "s", "v", "st"]
    before, after = field_ids(version_ref), field_ids(renamed)
    assert (after["v"], after["s"], after["z"]) == (before["s"], before["v"], before["a"])
    assert data_files(renamed) == data_files(version_ref)
    assert contents(renamed, where="v = 's3'") == [{"id": 3, "s": 0.0, "v": "s3", "st": {"z": 3, "b": ["b3"]}}]
    assert list(covered(renamed)) == ["s_idx"]
    assert row_ids(renamed) == row_ids(version_ref)


def test_nullability_changes_where_the_data_allows(location: Location) -> None:
    version_ref = new_table(location, [1, 2])
    strict = alter_columns(
        version_ref, [ColumnChange(path="v", nullable=False), ColumnChange(path="id", nullable=True)]
    )
    assert (strict.schema.field("v").nullable, strict.schema.field("id").nullable) == (False, True)
    with pytest.raises(SchemaMismatchError, match="'v' takes no nulls"):
        append(strict, rows([3], v=None))
    with pytest.raises(SchemaMismatchError, match="'st' holds 1 nulls"):
        alter_columns(version_ref, [ColumnChange(path="st", nullable=False)])


def test_new_type_keeps_position_values_and_row_ids_and_drops_the_index(location: Location) -> None:
    version_ref = index(index(new_table(location, [1, 2], [3]), "id", IndexKind.BTREE), "s", IndexKind.BITMAP)
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    changed = alter_columns(
        delete(version_ref, "id = 1").version_ref,
        [ColumnChange(path="id", type=pa.int32(), name="key"), ColumnChange(path="st", type=kind)],
    )
    assert changed.schema.names == ["key", "v", "s", "st"]
    assert changed.schema.field("key") == pa.field("key", pa.int32(), nullable=False)
    found = changed.open().scanner(with_row_id=True).to_table().to_pylist()
    assert [(row["key"], row["st"], row["_rowid"]) for row in found] == [(2, None, 1), (3, {"a": 3, "b": ["b3"]}, 2)]
    assert list(covered(changed)) == ["s_idx"]
    more = upsert(changed, pa.table({"key": pa.array([3, 4], pa.int32()), "s": ["x", "y"]}), ["key"])
    assert (more.updated, more.inserted) == (1, 1)


def test_values_that_do_not_fit_the_new_type_are_refused(location: Location) -> None:
    version_ref = append(new_table(location, [1]), rows([2**40]))
    with pytest.raises(SchemaMismatchError, match="column 'id' takes int32"):
        alter_columns(version_ref, [ColumnChange(path="id", type=pa.int32())])


def test_nested_fields_can_be_dropped(location: Location) -> None:
    version_ref = drop_columns(new_table(location, [1, 2]), ["st.a", "v"])
    assert contents(version_ref) == [{"id": 1, "s": "s1", "st": {"b": ["b1"]}}, {"id": 2, "s": "s2", "st": None}]


def test_dropped_column_drops_its_index(location: Location) -> None:
    version_ref = index(index(new_table(location, range(9)), "s", IndexKind.BTREE), "id", IndexKind.BTREE)
    dropped = drop_columns(version_ref, ["s"])
    assert list(covered(dropped)) == ["id_idx"]
    assert ids(dropped, "id = 4") == [4]


def test_metadata_and_key_marks_survive(location: Location) -> None:
    mark = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False, metadata=mark), ("x", pa.int32())], metadata={"owner": "ada"}
    )
    version_ref = create_empty(Home.at(location / "marked.lance", location.storage_options), schema)
    version_ref = append(version_ref, pa.table({"id": [1], "x": [2]}))
    changes: list[Callable[[VersionRef], VersionRef]] = [
        lambda p: alter_columns(p, [ColumnChange(path="x", name="y")]),
        lambda p: alter_columns(p, [ColumnChange(path="y", type=pa.int64())]),
        lambda p: add_columns(p, {"z": "y + 1"}),
        lambda p: drop_columns(p, ["y"]),
    ]
    for change in changes:
        version_ref = change(version_ref)
        assert version_ref.schema.metadata == {b"owner": b"ada"}
        assert [field.name() for field in version_ref.open().lance_schema.unenforced_primary_key()] == ["id"]


REFUSED: dict[str, tuple[Callable[[VersionRef], VersionRef], type[AnabranchError], str]] = {
    "name taken": (lambda p: add_columns(p, {"v": "1"}), InvalidNameError, "'v' occurs more than once"),
    "name taken, empty": (lambda p: add_columns(p, pa.schema([("v", pa.int8())])), InvalidNameError, "'v'"),
    "dotted name": (lambda p: add_columns(p, {"a.b": "1"}), InvalidNameError, "'a.b'"),
    "nothing": (lambda p: add_columns(p, {}), InvalidInputError, "no columns"),
    "not null": (
        lambda p: add_columns(p, pa.schema([pa.field("w", pa.int8(), nullable=False)])),
        SchemaMismatchError,
        "'w' takes no nulls",
    ),
    "bad expression": (lambda p: add_columns(p, {"w": "nope + 1"}), InvalidExpressionError, "'nope [+] 1'"),
    "failing expression": (lambda p: add_columns(p, {"w": "1 / (id - 1)"}), InvalidExpressionError, "id - 1"),
    "drop unknown": (lambda p: drop_columns(p, ["nope"]), SchemaMismatchError, "no column 'nope'"),
    "drop all": (lambda p: drop_columns(p, ["id", "v", "s", "st"]), InvalidInputError, "nothing would be left"),
    "drop all nested": (lambda p: drop_columns(p, ["st.a", "st.b"]), InvalidInputError, "nothing would be left"),
    "rename unknown": (lambda p: alter_columns(p, [ColumnChange(path="x", name="y")]), SchemaMismatchError, "'x'"),
    "rename onto another": (
        lambda p: alter_columns(p, [ColumnChange(path="v", name="s")]),
        SchemaMismatchError,
        "two columns would be called 's'",
    ),
    "twice": (
        lambda p: alter_columns(p, [ColumnChange(path="v", name="x"), ColumnChange(path="v", nullable=True)]),
        InvalidInputError,
        "more than once",
    ),
    "no cast": (
        lambda p: alter_columns(p, [ColumnChange(path="s", type=pa.int64())]),
        SchemaMismatchError,
        "'s' was expected to be int64 and was found to be string",
    ),
    "nested cast": (
        lambda p: alter_columns(p, [ColumnChange(path="st.a", type=pa.int64())]),
        InvalidInputError,
        "nested field 'st.a'",
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_changes_that_cannot_be_are_refused(
    location: Location, change: Callable[[VersionRef], VersionRef], error: type[AnabranchError], message: str
) -> None:
    with pytest.raises(error, match=message):
        change(new_table(location, [1, 2]))


def test_changing_nothing_returns_the_same_version(location: Location) -> None:
    version_ref = new_table(location, [1])
    assert (
        alter_columns(version_ref, []) == alter_columns(version_ref, [ColumnChange(path="v", name="v")]) == version_ref
    )
    assert alter_columns(version_ref, [ColumnChange(path="v", type=pa.float64())]) == version_ref
    assert drop_columns(version_ref, []) == version_ref
