"""Which engine compares rows: the named one, else the one that fits the number of rows."""

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.bootstrap import ENGINES
from anabranch.duck.comparer import default_comparer
from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.format.compare.difference import ColumnPair
from anabranch.repo.history.comparer import (
    MANY_ROWS,
    AutoComparer,
    LargeComparer,
    RowComparison,
    RowMerge,
    Rows,
    TableCounts,
    choose_comparer,
)
from anabranch.spark.comparer import HeldRows
from tests.repo.conftest import ORDERS, append

IDS = [ColumnPair(older="id", newer="id")]


@dataclass
class Watched:
    """An engine that compares in this process, and counts how often it is asked."""

    is_ready: bool = True
    asked: list[str] = field(default_factory=list)

    def count(self, comparison: RowComparison) -> TableCounts:
        self.asked.append("count")
        return default_comparer().count(comparison)

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        self.asked.append("compare")
        return default_comparer().compare(comparison)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        self.asked.append("merge")
        return default_comparer().merge(merge)


def held(*ids: int) -> HeldRows:
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    return HeldRows(schema=rows.schema, batches=rows.to_batches())


def comparison(older: Rows | None, newer: Rows | None) -> RowComparison:
    return RowComparison(older=older, newer=newer, columns=IDS, keys=IDS, has_row_ids=False)


def never() -> LargeComparer | None:
    raise AssertionError("nobody needs it")


def test_many_rows_go_to_the_large_engine_and_few_stay_here() -> None:
    local, large = Watched(), Watched()
    comparer = AutoComparer(load_local=lambda: local, find_large=lambda: large, many_rows=4)
    assert comparer.count(comparison(held(1, 2), held(3, 4))) == TableCounts(inserted=2, updated=0, deleted=2)
    assert comparer.compare(comparison(held(1), held(2, 3))).read_all().num_rows == 3
    merge = RowMerge(
        base_of_source=held(1), source=held(2), base_of_target=held(1), target=held(3), columns=[], keys=[]
    )
    comparer.merge(merge)
    assert (large.asked, local.asked) == (["count", "merge"], ["compare"])


def test_rows_that_need_no_matching_are_compared_in_process() -> None:
    local = Watched()
    comparer = AutoComparer(load_local=lambda: local, find_large=never, many_rows=2)
    comparer.count(comparison(held(1, 2, 3), held()))
    comparer.compare(comparison(held(), held(1, 2, 3)))
    assert local.asked == ["count", "compare"]


@pytest.mark.parametrize("large", [None, Watched(is_ready=False)], ids=["not installed", "cannot start"])
def test_without_spark_all_rows_are_compared_in_process(large: Watched | None) -> None:
    local = Watched()
    comparer = AutoComparer(load_local=lambda: local, find_large=lambda: large, many_rows=1)
    assert comparer.count(comparison(held(1, 2), held(2))).deleted == 1
    assert local.asked == ["count"]
    assert large is None or large.asked == []


def test_named_engine_is_used() -> None:
    local, large = Watched(), Watched(is_ready=False)
    assert choose_comparer("local", load_local=lambda: local, find_large=never) is local
    assert choose_comparer("spark", load_local=lambda: local, find_large=lambda: large) is large
    chosen = choose_comparer("auto", load_local=lambda: local, find_large=lambda: large)
    assert isinstance(chosen, AutoComparer)
    assert chosen.many_rows == MANY_ROWS
    with pytest.raises(MissingDependencyError, match="PySpark is not installed"):
        choose_comparer("spark", load_local=lambda: local, find_large=lambda: None)


def test_forced_engine_also_matches_a_few_rows_that_only_one_side_updated(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.branch_create("dev")
    lake.update(ORDERS, {"v": "'x'"}, "id = 1", branch="dev")
    lake.update(ORDERS, {"v": "'y'"}, "id = 2")
    large = Watched()
    repo = ab.Repository(testing.config_of(lake), engines=replace(ENGINES, find_large_comparer=lambda: large))
    assert repo.merge("dev", engine="spark", dry_run=True).plan.is_clean
    assert repo.merge("dev", engine="spark").commit is not None
    assert large.asked == ["merge", "merge"]
    local = Watched()
    repo = ab.Repository(testing.config_of(lake), engines=replace(ENGINES, load_comparer=lambda: local))
    lake.update(ORDERS, {"v": "'z'"}, "id = 1", branch="dev")
    lake.update(ORDERS, {"v": "'z'"}, "id = 3")
    assert repo.merge("dev").commit is not None
    assert local.asked == ["merge"]


def test_an_engine_that_is_not_there_is_refused(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    for ask in (lake.diff, lake.conflicts, lake.merge):
        with pytest.raises(InvalidInputError, match="the engine is 'flink'") as caught:
            ask("dev", engine="flink")
        assert caught.value.hint == "use one of 'auto', 'local', 'spark'"


def test_in_this_process_nothing_of_spark_is_loaded(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    program = f"""
import sys
import anabranch as ab

repo = ab.open({lake.uri!r})
for engine in ("auto", "local"):
    assert repo.diff("main", "dev", engine=engine).summary()[{ORDERS!r}].inserted == 1
    assert list(repo.conflicts("dev", engine=engine)) == []
assert repo.merge("dev", engine="local").commit is not None
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_java_spark_is_never_chosen_and_refused_by_name(lake: ab.Repository, tmp_path: Path) -> None:
    before = lake.snapshot().id
    append(lake, 4)
    program = f"""
import anabranch as ab
from anabranch.errors import MissingDependencyError
from anabranch.spark.session import can_start

assert not can_start()
repo = ab.open({lake.uri!r})
try:
    repo.diff({before!r}, engine="spark").summary()
except MissingDependencyError as err:
    assert err.problem == "Spark needs Java, and there is no java on the PATH", err
else:
    raise AssertionError("it has found a Java")
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment | {"PATH": str(tmp_path)})
