"""Indices and compaction."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.format.home import Home
from anabranch.format.staging import (
    ColumnChange,
    IndexInfo,
    IndexKind,
    VectorOptions,
    VersionRef,
    alter_columns,
    append,
    build_wanted,
    compact,
    create_empty,
    delete,
    drop_index,
    fork,
    index,
    keep_indices,
    list_indices,
    overwrite,
    settle,
    upsert,
)
from tests.conftest import Location
from tests.format.staging.tables import contents, covered, fragment_ids, ids, new_table, raw, row_ids, rows

WORDS = ["red", "green", "blue", "white"]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("s", pa.string()), ("tags", pa.list_(pa.string())), ("vec", pa.list_(pa.float32(), 4))]
)


def items(keys: range) -> pa.Table:
    vectors = np.array([[i, i % 7, i % 3, 1] for i in keys], dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(list(keys), pa.int64()),
            "s": [f"{WORDS[i % 4]} stone {i}" for i in keys],
            "tags": [[WORDS[i % 4], "any"] for i in keys],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
        },
        schema=SCHEMA,
    )


def catalogue(location: Location) -> VersionRef:
    version_ref = create_empty(Home.at(location / "items.lance", location.storage_options), SCHEMA)
    return append(append(version_ref, items(range(300))), items(range(300, 320)))


def nearest(version_ref: VersionRef, to: int) -> int:
    query = np.array([to, to % 7, to % 3, 1], dtype=np.float32)
    found = version_ref.open().to_table(
        columns=["id"], nearest={"column": "vec", "q": query, "k": 1, "refine_factor": 50}
    )
    return int(found.column("id")[0].as_py())


def worded(version_ref: VersionRef, word: str) -> set[int]:
    dataset: Any = version_ref.open()
    found = dataset.scanner(columns=["id"], full_text_query=word, disable_scoring_autoprojection=True).to_table()
    return set(found.column("id").to_pylist())


@pytest.mark.s3
def test_index_is_used_and_unseen_by_others(location: Location) -> None:
    version_ref = new_table(location, range(20), range(20, 40))
    indexed = index(version_ref, "id", IndexKind.BTREE)
    assert "ScalarIndexQuery" in indexed.open().scanner(filter="id = 5").explain_plan()
    assert ids(indexed, "id IN (5, 25)") == [5, 25]
    assert not list_indices(version_ref)
    assert not raw(version_ref).describe_indices()
    assert row_ids(indexed) == row_ids(version_ref)


@pytest.mark.parametrize(
    ("column", "kind", "predicate"),
    [
        ("id", IndexKind.BTREE, "id = 301"),
        ("id", IndexKind.ZONEMAP, "id = 301"),
        ("id", IndexKind.BLOOMFILTER, "id = 301"),
        ("s", IndexKind.BITMAP, "s = 'green stone 301'"),
        ("s", IndexKind.NGRAM, "contains(s, 'stone 301')"),
        ("tags", IndexKind.LABEL_LIST, "array_has_any(tags, ['green']) AND id = 301"),
    ],
)
def test_each_kind_answers_right_before_and_after_a_compaction(
    location: Location, column: str, kind: IndexKind, predicate: str
) -> None:
    version_ref = index(catalogue(location), column, kind)
    assert ids(version_ref, predicate) == [301]
    packed = compact(delete(version_ref, "id < 100").version_ref)
    assert ids(packed, predicate) == [301]
    assert covered(packed)[f"{column}_idx"] == fragment_ids(packed)


@pytest.mark.s3
def test_words_are_found_through_every_step(location: Location) -> None:
    version_ref = index(catalogue(location), "s", IndexKind.INVERTED, name="words")
    expected = set(range(1, 320, 4))
    assert worded(version_ref, "green") == expected
    version_ref = upsert(version_ref, pa.table({"id": [1, 2], "s": ["black", "green"]}), ["id"]).version_ref
    assert worded(version_ref, "green") == expected - {1} | {2}
    version_ref = compact(delete(version_ref, "id > 10").version_ref)
    assert worded(version_ref, "green") == {2, 5, 9}
    home = fork(version_ref, "dev/1")
    assert worded(VersionRef(home=home, version=home.open().version), "green") == {2, 5, 9}
    settle(version_ref.home, version_ref.version, expected_head=1)
    assert worded(VersionRef(home=version_ref.home, version=2), "green") == {2, 5, 9}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (IndexKind.IVF_FLAT, VectorOptions(num_partitions=2)),
        (IndexKind.IVF_PQ, VectorOptions(num_partitions=2, num_sub_vectors=2)),
        (IndexKind.IVF_PQ, VectorOptions()),
        (IndexKind.IVF_HNSW_PQ, VectorOptions()),
        (IndexKind.IVF_HNSW_SQ, VectorOptions(num_partitions=1)),
    ],
)
def test_nearest_neighbours_are_found_before_and_after_a_compaction(
    location: Location, kind: IndexKind, options: VectorOptions
) -> None:
    version_ref = index(catalogue(location), "vec", kind, vector=options)
    assert nearest(version_ref, 150) == 150
    version_ref = append(version_ref, items(range(320, 321)))
    assert nearest(version_ref, 320) == 320
    packed = compact(delete(version_ref, "id = 150").version_ref)
    assert nearest(packed, 320) == 320
    assert nearest(packed, 150) in {149, 151}
    (found,) = list_indices(packed)
    assert found == IndexInfo(
        name="vec_idx", columns=("vec",), kind=kind.value, covered_rows=320, metric=options.metric
    )
    assert covered(packed)["vec_idx"] == fragment_ids(packed)


def test_index_of_the_same_name_is_replaced(location: Location) -> None:
    version_ref = index(new_table(location, range(9)), "id", IndexKind.BTREE, name="x")
    version_ref = append(version_ref, rows([20]))
    (found,) = list_indices(index(version_ref, "id", IndexKind.BITMAP, name="x"))
    assert found == IndexInfo(name="x", columns=("id",), kind="bitmap", covered_rows=10)
    with pytest.raises(InvalidInputError, match="'x' belongs to an index on id"):
        index(version_ref, "s", IndexKind.BITMAP, name="x")


def test_index_is_dropped(location: Location) -> None:
    version_ref = index(new_table(location, range(9)), "id", IndexKind.BTREE)
    assert not list_indices(drop_index(version_ref, "id_idx"))
    with pytest.raises(InvalidInputError, match="no index 'nope'"):
        drop_index(version_ref, "nope")


@pytest.mark.parametrize(
    ("column", "kind", "error", "message"),
    [
        ("nope", IndexKind.BTREE, SchemaMismatchError, "'nope'"),
        ("st", IndexKind.BTREE, SchemaMismatchError, "'st' cannot have an index of kind btree"),
        ("v", IndexKind.INVERTED, SchemaMismatchError, "'v' cannot have an index of kind inverted"),
        ("v", IndexKind.IVF_PQ, SchemaMismatchError, "'v' cannot have an index of kind ivf_pq"),
    ],
)
def test_indices_that_cannot_be_are_refused(
    location: Location, column: str, kind: IndexKind, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        index(new_table(location, [1]), column, kind)


def test_index_needs_rows(location: Location) -> None:
    with pytest.raises(InvalidInputError, match="holds no rows"):
        index(new_table(location), "id", IndexKind.BTREE)


def test_vector_index_that_finds_nothing_to_learn_from_is_wanted_after_a_compaction(location: Location) -> None:
    version_ref = index(catalogue(location), "vec", IndexKind.IVF_FLAT, vector=VectorOptions(num_partitions=1))
    version_ref = append(append(version_ref, pa.table({"id": [900]})), pa.table({"id": [901]}))
    packed = compact(delete(version_ref, "id < 900").version_ref)
    assert ids(packed) == [900, 901]
    (wanted,) = list_indices(packed)
    assert (wanted.name, wanted.kind, wanted.covered_rows) == ("vec_idx", "ivf_flat", 0)
    with pytest.raises(InvalidInputError, match="no vectors"):
        index(packed, "vec", IndexKind.IVF_FLAT)
    assert [found.covered_rows for found in list_indices(build_wanted(append(packed, items(range(5)))))] == [7]


def test_vector_index_of_too_few_rows_is_wanted_until_there_are_enough(location: Location) -> None:
    before = index(catalogue(location), "vec", IndexKind.IVF_PQ)
    version_ref = keep_indices(overwrite(before, items(range(1))), of=before)
    with pytest.raises(InvalidInputError, match="or too few"):
        index(version_ref, "vec", IndexKind.IVF_PQ)
    for keys, covered_rows in ((range(1, 3), 0), (range(3, 400), 400)):
        version_ref = compact(append(version_ref, items(keys)))
        (found,) = list_indices(version_ref)
        assert (found.name, found.kind, found.covered_rows) == ("vec_idx", "ivf_pq", covered_rows)
    assert nearest(version_ref, 12) == 12


def test_indices_that_stay_wanted_are_not_staged_again(location: Location) -> None:
    before = catalogue(location)
    for name in ("second", "first"):
        before = index(before, "vec", IndexKind.IVF_PQ, name=name)
    version_ref = build_wanted(keep_indices(overwrite(before, items(range(2))), of=before))
    assert [found.covered_rows for found in list_indices(version_ref)] == [0, 0]
    assert build_wanted(version_ref) == version_ref


def test_index_of_a_nested_column_is_kept_and_wanted_as_others_are(location: Location) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    three = pa.table({"id": [1, 2, 3], "s": [{"a": key} for key in (1, 2, 3)]}, schema=schema)
    version_ref = create_empty(Home.at(location / "nested.lance", location.storage_options), schema)
    before = index(append(version_ref, three), "s.a", IndexKind.BTREE)
    empty = keep_indices(overwrite(before, schema.empty_table()), of=before)
    renamed = alter_columns(empty, [ColumnChange(path="s", name="t")])
    for version_ref, column, covered_rows in ((empty, "s.a", 0), (renamed, "t.a", 0)):
        (wanted,) = list_indices(version_ref)
        assert (wanted.name, wanted.columns, wanted.covered_rows) == ("s.a_idx", (column,), covered_rows)
    (built,) = list_indices(build_wanted(append(empty, three)))
    assert (built.columns, built.covered_rows) == (("s.a",), 3)
    assert not list_indices(drop_index(empty, "s.a_idx"))


@pytest.mark.s3
def test_compaction_keeps_rows_and_row_ids(location: Location) -> None:
    version_ref = new_table(location, *([i, i + 100] for i in range(10)))
    version_ref = delete(version_ref, "id IN (3, 104)").version_ref
    packed = compact(version_ref)
    assert len(packed.open().get_fragments()) == 1
    assert contents(packed) == contents(version_ref)
    assert row_ids(packed) == row_ids(version_ref)
    assert compact(packed) == packed
    assert len(set(row_ids(append(packed, rows([500]))).values())) == 19


def test_compaction_aims_at_a_size(location: Location) -> None:
    packed = compact(new_table(location, *([i] for i in range(10))), target_rows_per_fragment=5)
    assert 1 < len(packed.open().get_fragments()) < 10
    with pytest.raises(InvalidInputError, match="0 rows"):
        compact(packed, target_rows_per_fragment=0)


def test_compacting_an_empty_table_does_nothing(location: Location) -> None:
    version_ref = new_table(location)
    assert compact(version_ref) == version_ref
