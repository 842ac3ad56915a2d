"""Rows compared and merged by Spark's workers, beside the same in this process."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import ENGINES
from anabranch.duck.comparer import default_comparer, single_comparer
from anabranch.errors import DamagedFileError, MissingDependencyError
from anabranch.format.compare.difference import ColumnPair
from anabranch.repo.history.comparer import BucketingComparer, ColumnTriple, RowComparison, RowMerge, TableCounts
from anabranch.repo.history.diff import RowChange
from anabranch.spark.comparer import HeldRows, Sizes, SparkComparer
from anabranch.spark.session import can_start
from anabranch.spark.tasks import do_on_workers
from tests.duck.test_comparer import CASES, column
from tests.spark.conftest import ORDERS, orders, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def all_types(ids: list[int], chance: random.Random) -> pa.Table:
    """Rows with a column of every type, each null, a value or another one."""
    columns = {"id": pa.array(ids, pa.int64())}
    for number, (kind, value, other) in enumerate(CASES):
        columns[f"c{number}"] = column(kind, *(chance.choice([value, other, None]) for _ in ids))
    return pa.table(columns)


@pytest.fixture
def typed(lake: ab.Repository) -> ab.Repository:
    """Two tables with columns of every type, one without a key, changed at random on two branches."""
    chance = random.Random(8)
    first = all_types(list(range(60)), chance)
    with lake.transaction() as tx:
        for key, primary_key in (("s.keyed", ["id"]), ("s.free", [])):
            tx.create_table(key, first.schema, primary_key=primary_key)
            for start in range(0, 60, 20):
                tx.append(key, first.slice(start, 20))
    for branch in ("one", "two"):
        lake.branch_create(branch)
        with lake.transaction(branch) as tx:
            chosen = sorted(chance.sample(range(60), 20))
            tx.upsert("s.keyed", all_types([*chosen, *range(60, 65)], chance))
            tx.update("s.free", {"c1": "3"}, where=f"id in {tuple(chosen)}")
            tx.append("s.free", all_types(chosen, chance))
            for key in ("s.keyed", "s.free"):
                tx.delete(key, f"id in {tuple(chance.sample(range(60), 6))}")
    return lake


def test_both_engines_show_the_same_of_every_type(typed: ab.Repository) -> None:
    here, there = (typed.diff("one", "two", engine=engine) for engine in ("local", "spark"))
    assert here.summary() == there.summary() != {}
    expected, found = here.to_arrow(), there.to_arrow()
    for key in ("s.keyed", "s.free"):
        assert found[key].schema == expected[key].schema
        assert sorted(map(repr, found[key].to_pylist())) == sorted(map(repr, expected[key].to_pylist()))


@pytest.mark.proof
def test_both_engines_merge_rows_of_every_type_alike(typed: ab.Repository) -> None:
    def reported(engine: str) -> list[str]:
        return sorted(map(repr, typed.conflicts("one", into="two", engine=engine)))

    assert reported("local") == reported("spark") != []
    plans = []
    for engine in ("local", "spark"):
        typed.branch_create_from("two", engine)
        merged = typed.merge("one", into=engine, engine=engine, strategy="source")
        plans.append([(table.table, table.counts) for table in merged.plan.tables])
    assert plans[0] == plans[1]
    assert [counts.updated > 0 for _, counts in plans[0]] == [True, True]
    for key in ("s.keyed", "s.free"):
        here, there = (typed.snapshot_of(engine)[key].to_arrow() for engine in ("local", "spark"))
        assert sorted(map(repr, here.to_pylist())) == sorted(map(repr, there.to_pylist()))


SEVERAL = {"s.one": ["id"], "s.two": ["id"], "s.three": [], "s.four": []}


def several_tables(lake: ab.Repository) -> None:
    """Four tables, two without a key, of which both main and 'dev' change rows, some of them the same."""
    with lake.transaction() as tx:
        for key, primary_key in SEVERAL.items():
            tx.create_table(key, orders(0, 1).schema, primary_key=primary_key)
            tx.append(key, orders(0, 60, v=key))
    lake.branch_create("dev")
    for branch, first in (("dev", 0), ("main", 5)):
        with lake.transaction(branch) as tx:
            for number, key in enumerate(SEVERAL):
                tx.update(key, {"v": f"'{branch}'"}, where=f"id >= {first} and id < {first + 10 + number}")
                tx.delete(key, f"id in ({30 + first}, {31 + first + number})")
                tx.append(key, orders(100 + 10 * first, 103 + 10 * first + number, v=branch))


def test_both_engines_merge_several_tables_at_once_alike(lake: ab.Repository) -> None:
    several_tables(lake)
    merged = {}
    for engine in ("local", "spark"):
        lake.branch_create_from("main", engine)
        done = lake.merge("dev", into=engine, engine=engine, strategy="source")
        merged[engine] = (
            {table.table: table.counts for table in done.plan.tables},
            {key: rows(lake, engine, key) for key in SEVERAL},
        )
    assert merged["local"] == merged["spark"]
    for key in SEVERAL:
        found = merged["spark"][0][key]
        assert min(found.inserted, found.updated, found.deleted) > 0


def held(table: pa.Table) -> HeldRows:
    named = table.append_column("_rowid", pa.array(range(len(table)), pa.uint64()))
    whole = named.append_column("_rowaddr", pa.array(range(len(table)), pa.uint64()))
    return HeldRows(schema=table.schema, batches=whole.to_batches(max_chunksize=7))


def numbers(kind: pa.DataType, *ids: int, v: str = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, kind), "v": [v] * len(ids)})


SMALL = Sizes(rows_per_task=5, rows_per_bucket=8, fewest_buckets=5)
ID, V = (ColumnTriple(base=name, source=name, target=name) for name in ("id", "v"))


def test_new_rows_come_last_whatever_bucket_they_are_in() -> None:
    base = numbers(pa.int64(), *range(20))
    question = RowMerge(
        base_of_source=held(base),
        source=held(numbers(pa.int64(), *range(40), v="new")),
        base_of_target=held(base),
        target=held(numbers(pa.int64(), *range(20), *range(30, 34))),
        columns=[ID, V],
        keys=[ID],
    )
    found = SparkComparer(single_comparer, sizes=SMALL).merge(question).read_all().to_pylist()
    is_new = [row["source_change"] == "inserted" and row["target_address"] is None for row in found]
    assert is_new == [False] * 24 + [True] * 16
    assert sorted(row["source"]["id"] for row in found) == list(range(40))
    same = default_comparer().merge(question).read_all().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, same))
    again = SparkComparer(single_comparer, sizes=SMALL).merge(question).read_all().to_pylist()
    assert again == found


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.string(), pa.decimal128(25, 3), pa.float32()], ids=str)
def test_keys_of_another_type_and_name_still_meet(kind: pa.DataType) -> None:
    older = numbers(pa.int64(), *range(10), *range(50, 60))
    newer = numbers(pa.int64(), *range(5, 60)).cast(pa.schema([("id", kind), ("v", pa.string())]))
    pairs = [ColumnPair(older="id", newer="number"), ColumnPair(older="v", newer="v")]
    question = RowComparison(
        older=held(older), newer=held(newer.rename_columns(["number", "v"])), columns=pairs, keys=pairs[:1],
        has_row_ids=False,
    )  # fmt: skip
    comparer = SparkComparer(single_comparer, sizes=SMALL)
    assert comparer.count(question) == TableCounts(inserted=40, updated=0, deleted=5)


def test_a_file_that_a_worker_misses_is_named_here(lake: ab.Repository, tmp_path: Path) -> None:
    before = lake.snapshot().id
    known = set((tmp_path / "lake").rglob("*.lance/data/*.lance"))
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 120))
        tx.update(ORDERS, {"v": "'new'"}, where="id < 5")
    for file in set((tmp_path / "lake").rglob("*.lance/data/*.lance")) - known:
        file.unlink()
    for engine in ("local", "spark"):
        with pytest.raises(DamagedFileError, match="is missing"):
            lake.diff(before, engine=engine).summary()
        with pytest.raises(DamagedFileError, match="is missing"):
            list(lake.diff(before, engine=engine).iter_rows())


@pytest.mark.s3
def test_workers_reach_the_store_and_what_is_left_unread_does_no_harm(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.upsert(ORDERS, orders(90, 110, v="new"))
    [diff] = lake.diff("main", "dev", engine="spark").tables
    unread: Iterator[RowChange] = diff.iter_rows()
    assert next(unread).table == ORDERS
    assert diff.counts == TableCounts(inserted=10, updated=10, deleted=0)
    assert lake.merge("dev", engine="spark").commit is not None
    assert [row["v"] for row in rows(lake)] == ["old"] * 90 + ["new"] * 20


def test_workers_of_another_version_are_refused(lake: ab.Repository) -> None:
    def load() -> BucketingComparer:
        made = single_comparer()
        # Each process has a version of its own.
        return cast("BucketingComparer", type("Other", (type(made),), {"hashing": f"v{os.getpid()}"})(made._database))

    with lake.transaction() as tx:
        tx.update(ORDERS, {"v": "'new'"}, where="true")
    repo = ab.Repository(
        testing.config_of(lake), engines=replace(ENGINES, find_large_comparer=lambda: SparkComparer(load))
    )
    with pytest.raises(MissingDependencyError, match=f"a worker has v[0-9]+, and the driver has v{os.getpid()}"):
        repo.diff("main~1", engine="spark").summary()


def test_a_worker_starts_no_spark_of_its_own() -> None:
    assert can_start()
    assert do_on_workers(lambda _: str(can_start()).encode(), [b""]) == [b"False"]
