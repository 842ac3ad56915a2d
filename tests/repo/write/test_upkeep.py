"""Compaction and indices: other files, the same rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.format.staging import VectorOptions
from anabranch.repo.snapshot import Table
from tests.repo.conftest import CUSTOMERS, ORDERS, append, ids, nothing_changes, raw, rows, table
from tests.repo.rivals import raced_by

EVENTS = "in_c_web.events"
WIDTH = 8
QUERY = [0.5] * WIDTH


def events(first: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(first).random(count * WIDTH, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), WIDTH)
    keys = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": keys, "kind": pa.array(["ab"[key.as_py() % 2] for key in keys]), "embedding": vectors})


@pytest.fixture
def web(repo: ab.Repository) -> ab.Repository:
    """A repository with events in many fragments, some of them deleted, and three indices."""
    with repo.transaction() as tx:
        tx.create_table(EVENTS, events(0, 1).schema, primary_key=["id"])
        tx.append(EVENTS, events(0, 600))
    for first in range(600, 1000, 100):
        with repo.transaction() as tx:
            tx.append(EVENTS, events(first, 100))
    with repo.transaction() as tx:
        tx.delete(EVENTS, "id % 10 = 3")
    repo.index(EVENTS, "id")
    repo.index(EVENTS, "kind", type="bitmap")
    repo.index(EVENTS, "embedding", type="ivf_flat", vector=VectorOptions(num_partitions=4))
    return repo


def answers(found: Table) -> dict[str, Any]:
    """What lookups and searches give."""
    return {
        "rows": rows(found),
        "points": [found.to_arrow(where=f"id = {key}").to_pylist() for key in (0, 3, 605, 999, 5000)],
        "kinds": sorted(found.to_arrow(columns=["id"], where="kind = 'a'").column("id").to_pylist()),
        "nearest": found.nearest("embedding", QUERY, k=20, columns=["id"]).to_pylist(),
        "nearest_of_a_kind": found.nearest("embedding", QUERY, k=5, columns=["id"], where="kind = 'b'").to_pylist(),
    }


@pytest.mark.s3
def test_lookups_and_neighbours_are_the_same_after_a_compaction_on_a_branch(web: ab.Repository) -> None:
    before = answers(web.snapshot()[EVENTS])
    assert [len(before["points"][n]) for n in range(5)] == [1, 0, 1, 1, 0]
    assert len(before["nearest"]) == 20
    web.branch_create("dev")
    done = web.compact([EVENTS], branch="dev")
    assert done.commit is not None
    assert (done.commit.kind, done.commit.tables) == ("compact", (EVENTS,))
    (compacted,) = done.tables
    assert (compacted.rows, compacted.fragments_before, compacted.fragments_after) == (900, 5, 1)
    for ref in ("dev", "main", done.commit.graph_commit_id, "dev~1"):
        assert answers(web.snapshot_of(ref)[EVENTS]) == before
    on_dev = web.snapshot_of("dev")[EVENTS]
    assert {(found.name, found.covered_rows) for found in on_dev.indices} == {
        ("embedding_idx", 900),
        ("id_idx", 900),
        ("kind_idx", 900),
    }
    nearest = raw(web, EVENTS, "dev").to_table(columns=["id"], nearest={"column": "embedding", "q": QUERY, "k": 20})
    assert nearest.to_pylist() == before["nearest"]
    assert "ScalarIndexQuery" in raw(web, EVENTS, "dev").scanner(filter="id = 605").explain_plan()


def test_a_compaction_takes_all_tables_that_the_branch_wrote(lake: ab.Repository) -> None:
    append(lake, 4)
    append(lake, 5)
    lake.branch_create("dev")
    append(lake, 6, branch="dev")
    done = lake.compact(branch="dev")
    assert [found.table for found in done.tables] == [ORDERS]
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5, 6]
    seen: list[tuple[int, int]] = []
    done = lake.compact(progress=lambda step: seen.append((step.done, step.total)))
    assert [found.table for found in done.tables] == [CUSTOMERS, ORDERS]
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_nothing_to_compact_makes_no_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        done = lake.compact()
    assert done.commit is None
    assert [found.fragments_after for found in done.tables] == [1, 1]


def test_rows_that_come_concurrently_are_kept(lake: ab.Repository) -> None:
    append(lake, 4)

    def write(other: ab.Repository) -> None:
        append(other, 5)
        with other.transaction() as tx:
            tx.delete(ORDERS, "id = 1")

    assert raced_by(lake, write).compact([ORDERS]).commit is not None
    assert ids(lake) == [2, 3, 4, 5]
    assert raw(lake).count_rows() == 4


def test_rows_keep_their_ids(lake: ab.Repository) -> None:
    append(lake, 4)
    before = raw(lake).to_table(columns=["id"], with_row_id=True).to_pylist()
    lake.compact()
    assert raw(lake).to_table(columns=["id"], with_row_id=True).to_pylist() == before


def test_an_index_is_seen_on_its_branch_alone(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    commit = lake.index(ORDERS, "v", type="btree", name="by_v", branch="dev")
    assert commit is not None
    assert (commit.kind, commit.branch, commit.message) == ("index", "dev", f"Index v of {ORDERS}")
    (found,) = lake.snapshot_of("dev")[ORDERS].indices
    assert (found.name, found.columns, found.kind, found.covered_rows) == ("by_v", ("v",), "btree", 3)
    assert lake.snapshot()[ORDERS].indices == ()
    append(lake, 4, branch="dev")
    assert lake.snapshot_of("dev")[ORDERS].to_arrow(where="v = 'd'").num_rows == 1


def test_nearest_rows_of_an_old_state(web: ab.Repository) -> None:
    before = web.snapshot()[EVENTS].nearest("embedding", QUERY, k=3, columns=["id"]).to_pylist()
    closest = before[0]["id"]
    with web.transaction() as tx:
        tx.delete(EVENTS, f"id = {closest}")
    assert web.snapshot_of("main~1")[EVENTS].nearest("embedding", QUERY, k=3, columns=["id"]).to_pylist() == before
    assert web.snapshot()[EVENTS].nearest("embedding", QUERY, k=2, columns=["id"]).to_pylist() == before[1:]


def test_what_cannot_be_compacted_or_indexed_reports_why(web: ab.Repository) -> None:
    with nothing_changes(web):
        with pytest.raises(TableNotFoundError, match=r"there is no table 'in_c_web.nope'"):
            web.compact([EVENTS, "in_c_web.nope"])
        with pytest.raises(InvalidInputError, match="must be a list"):
            web.compact(EVENTS)
        with pytest.raises(InvalidInputError, match="no engine 'dask'; use 'local' or 'spark'"):
            web.compact(engine="dask")
        with pytest.raises(InvalidInputError, match="cannot have 0 rows"):
            web.compact(target_rows_per_fragment=0)
        with pytest.raises(InvalidInputError, match="unknown index type 'hash'"):
            web.index(EVENTS, "id", type="hash")
        with pytest.raises(SchemaMismatchError, match="'nope'"):
            web.index(EVENTS, "nope")
    found = web.snapshot()[EVENTS]
    with pytest.raises(InvalidInputError, match="has 2 dimensions, and column 'embedding' expects 8"):
        found.nearest("embedding", [1.0, 2.0])
    with pytest.raises(InvalidInputError, match="'id' is int64 and holds no vectors"):
        found.nearest("id", [1.0])
    with pytest.raises(InvalidInputError, match="0 nearest rows"):
        found.nearest("embedding", QUERY, k=0)
    with pytest.raises(SchemaMismatchError, match="no column 'nope'"):
        found.nearest("nope", QUERY)


def test_a_run_compacts_too(lake: ab.Repository) -> None:
    append(lake, 4)
    with lake.begin_run() as run, run.transaction() as tx:
        tx.append(ORDERS, table(5))
        tx.compact(ORDERS)
        assert tx[ORDERS].version_ref.count_fragments() == 1
    assert ids(lake) == [1, 2, 3, 4, 5]
