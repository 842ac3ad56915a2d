"""Keys, indices and notes changed inside a transaction."""

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError, TableNotFoundError
from anabranch.format.staging import IndexKind, VectorOptions, list_indices
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, data_files, ids, nothing_changes, raw, table


def test_a_primary_key_is_set_without_writing_data(lake: ab.Repository) -> None:
    files = data_files(lake)
    with lake.transaction() as tx:
        tx.set_primary_key(CUSTOMERS, ["id"])
        assert tx[CUSTOMERS].primary_key == ("id",)
    assert data_files(lake) == files
    assert another(lake).snapshot()[CUSTOMERS].primary_key == ("id",)
    assert tx.published is not None
    assert tx.published.tables == (CUSTOMERS,)
    with pytest.raises(KeyConflictError), lake.transaction() as other:
        other.append(CUSTOMERS, table(10))
    with lake.transaction() as other:
        other.set_primary_key(CUSTOMERS, [])
        other.append(CUSTOMERS, table(10))
    assert ids(lake, CUSTOMERS) == [10, 10, 20]


def test_the_same_key_again_is_not_a_commit(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.set_primary_key(ORDERS, ["id"])
    assert tx.published is None


def test_a_key_set_on_a_branch_is_the_branch_s_own(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.set_primary_key(ORDERS, ["v"])
        tx.upsert(ORDERS, pa.table({"id": [9], "v": ["a"]}))
    assert ids(lake.snapshot_of("dev")) == [2, 3, 9]
    assert lake.snapshot_of("main")[ORDERS].primary_key == ("id",)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (["nope"], SchemaMismatchError),
        (["id", "id"], InvalidInputError),
        ("id", InvalidInputError),
        ([7], InvalidInputError),
    ],
)
def test_invalid_primary_keys_are_refused(lake: ab.Repository, columns: Any, error: type[Exception]) -> None:
    tx = lake.transaction()
    with nothing_changes(lake), pytest.raises(error):
        tx.set_primary_key(CUSTOMERS, columns)


@pytest.mark.parametrize("extra", [{"id": [10], "v": ["x"]}, {"id": pa.array([None], pa.int64()), "v": ["x"]}])
def test_a_key_that_rows_break_is_refused(lake: ab.Repository, extra: dict[str, Any]) -> None:
    with lake.transaction() as tx:
        tx.append(CUSTOMERS, pa.table(extra))
    with pytest.raises(KeyConflictError):
        lake.transaction().set_primary_key(CUSTOMERS, ["id"])


def test_column_is_dropped_after_it_left_the_key(lake: ab.Repository) -> None:
    tx = lake.transaction()
    with pytest.raises(InvalidInputError, match="part of the primary key"):
        tx.drop_columns(ORDERS, ["id"])
    tx.set_primary_key(ORDERS, ["v"])
    tx.drop_columns(ORDERS, ["id"])
    tx.commit()
    assert lake.snapshot()[ORDERS].schema.names == ["v"]


@pytest.mark.s3
def test_an_index_is_built_and_dropped_with_the_rest(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.index(ORDERS, "id")
        tx.index(ORDERS, "v", type="bitmap", name="letters")
    found = {info.name: (info.kind, info.covered_rows) for info in list_indices(lake.snapshot()[ORDERS].version_ref)}
    assert found == {"id_idx": ("btree", 4), "letters": ("bitmap", 4)}
    assert {index.name for index in raw(lake).describe_indices()} == {"id_idx", "letters"}
    append(lake, 5)
    assert lake.snapshot()[ORDERS].to_arrow(where="id = 5").num_rows == 1
    with lake.transaction() as tx:
        tx.drop_index(ORDERS, "letters")
    assert [info.name for info in list_indices(lake.snapshot()[ORDERS].version_ref)] == ["id_idx"]


@pytest.mark.parametrize(("kind", "metric"), [("ivf_flat", "cosine"), ("IVF_FLAT", "COSINE")])
def test_vectors_are_indexed_by_names_in_any_case(repo: ab.Repository, kind: str, metric: str) -> None:
    vectors = pa.array([[float(i), 1.0] for i in range(16)], pa.list_(pa.float32(), 2))
    with repo.transaction() as tx:
        tx.create_table(ORDERS, pa.schema([("id", pa.int64()), ("near", vectors.type)]))
        tx.append(ORDERS, pa.table({"id": range(16), "near": vectors}))
        tx.index(ORDERS, "near", type=kind, vector=VectorOptions(metric=metric, num_partitions=1))
    assert [(info.kind, info.metric) for info in repo.snapshot()[ORDERS].indices] == [("ivf_flat", "cosine")]


def test_words_of_indices_are_in_lower_case() -> None:
    assert IndexKind("BTree") is IndexKind.BTREE
    assert [kind for kind in IndexKind if kind.value != kind.value.lower()] == []
    assert VectorOptions() == VectorOptions(metric="L2") == VectorOptions(metric="Euclidean")
    for wrong in ("chebyshev", None, 2):
        with pytest.raises(InvalidInputError, match=r"unknown metric .*; use l2, cosine, dot, hamming"):
            VectorOptions(metric=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((ORDERS, "nope"), {}),
        ((ORDERS, "id"), {"type": "TREE"}),
        ((ORDERS, "id"), {"type": "ivf_flat"}),
        ((ORDERS, "id"), {"vector": VectorOptions()}),
    ],
)
def test_an_index_that_cannot_be_is_refused(
    lake: ab.Repository, arguments: tuple[str, str], options: dict[str, Any]
) -> None:
    tx = lake.transaction()
    with nothing_changes(lake), pytest.raises(InvalidInputError):
        tx.index(*arguments, **options)


def test_indices_and_notes_need_a_table_and_a_name_that_are_there(lake: ab.Repository) -> None:
    tx = lake.transaction()
    with pytest.raises(InvalidInputError, match="no index 'nope'"):
        tx.drop_index(ORDERS, "nope")
    with pytest.raises(TableNotFoundError):
        tx.index("no.such", "id")
    with pytest.raises(TableNotFoundError):
        tx.annotate("no.such", {})


def test_notes_are_metadata_of_the_arrow_schema(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.annotate(ORDERS, {"owner": "ada"}, columns={"v": {"unit": "letters"}})
        tx.append(ORDERS, table(4))
    schema = lake.snapshot()[ORDERS].schema
    assert schema.metadata == {b"owner": b"ada"}
    assert schema.field("v").metadata == {b"unit": b"letters"}
    with lake.transaction() as tx:
        tx.annotate(ORDERS, {"owner": None}, columns={"v": {"unit": None}})
    schema = lake.snapshot()[ORDERS].schema
    assert (schema.metadata, schema.field("v").metadata) == (None, None)
    with lake.transaction() as tx:
        tx.annotate(ORDERS, {"owner": None})
    assert tx.published is None


@pytest.mark.parametrize("notes", [{"k": 1}, {1: "v"}])
def test_notes_are_text(lake: ab.Repository, notes: Any) -> None:
    with pytest.raises(InvalidInputError, match="is not text"):
        lake.transaction().annotate(ORDERS, notes)
    with pytest.raises(InvalidInputError, match="is not text"):
        lake.transaction().annotate(ORDERS, {}, columns={"v": notes})
