"""DataFrames of Spark as the source of a load, and files that Spark's workers share."""

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import BadRecordError, KeyConflictError, SchemaMismatchError
from tests.spark.conftest import ORDERS, rows
from tests.spark.processes import wait_until
from tests.spark.test_catalog_cancel import running_tasks

pytestmark = pytest.mark.spark


def test_a_frame_makes_a_table_appends_upserts_and_overwrites(spark: SparkSession, lake: ab.Repository) -> None:
    frame = spark.createDataFrame([(1, "a", Decimal("1.50")), (2, "b", None)], "id long, v string, price decimal(10,2)")
    report = lake.load("s.new", frame, primary_key=["id"], message="From Spark")
    assert (report.engine, report.rows_loaded, report.format) == ("spark", 2, "frame")
    assert lake.get_commit(str(report.commit_id)).message == "From Spark"
    assert lake.snapshot()["s.new"].primary_key == ("id",)
    lake.load("s.new", spark.createDataFrame([(2, "B"), (3, "c")], "id long, v string"), mode="upsert")
    assert [(row["id"], row["v"], row["price"]) for row in rows(lake, key="s.new")] == [
        (1, "a", Decimal("1.50")),
        (2, "B", None),
        (3, "c", None),
    ]
    lake.load("s.new", frame.where("id = 1"), mode="overwrite")
    assert [row["id"] for row in rows(lake, key="s.new")] == [1]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_types_that_are_given_with_a_frame_count(spark: SparkSession, lake: ab.Repository, mode: str) -> None:
    lake.load("s.typed", spark.range(3), schema={"id": "int32"}, mode=mode)
    assert str(lake.snapshot()["s.typed"].schema.field("id").type) == "int32"


def test_an_overwrite_keeps_types_that_spark_does_not_have(spark: SparkSession, lake: ab.Repository) -> None:
    before = pa.schema([("id", pa.uint8()), ("vector", pa.list_(pa.float32(), 2))])
    lake.load("s.kept", pa.table({"id": [1], "vector": [[0.5, 1.0]]}, schema=before))
    frame = spark.createDataFrame([(2, [1.0, 2.0])], "id short, vector array<float>")
    lake.load("s.kept", frame, mode="overwrite")
    table = lake.snapshot()["s.kept"]
    assert table.schema.types == before.types
    assert table.to_arrow().to_pylist() == [{"id": 2, "vector": [1.0, 2.0]}]


def test_a_frame_that_does_not_fit_changes_nothing(spark: SparkSession, lake: ab.Repository) -> None:
    before = lake.snapshot_of("main").id
    with pytest.raises(SchemaMismatchError, match="column 'v'"):
        lake.load(ORDERS, spark.createDataFrame([(500, 1.5)], "id long, v double"))
    with pytest.raises(KeyConflictError):
        lake.load(ORDERS, spark.createDataFrame([(5, "x")], "id long, v string"))
    assert lake.snapshot_of("main").id == before


def test_one_large_file_is_cut_and_loads_as_if_it_were_not(
    spark: SparkSession, lake: ab.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.range(1).count() == 1
    monkeypatch.setattr("anabranch.spark.tasks._BYTES_PER_TASK", 1 << 20)
    lines = [f'{n},"line\n{n} of many, so that the file becomes long enough"' for n in range(120_000)]
    lines[70_000] = '70000,"stray'
    lines[110_000] = "x,b"
    (tmp_path / "a.csv").write_text("a note\n" + "\n".join(["id,v", *lines]), encoding="utf-8-sig")
    for engine in ("local", "spark"):
        report = lake.load(
            f"s.{engine}",
            tmp_path / "a.csv",
            csv=ab.CsvOptions(skip=1),
            schema={"id": "int64"},
            on_bad="reject",
            engine=engine,
        )
        assert (report.engine, report.rows_loaded, report.rows_rejected) == (engine, 119_998, 2)
    snapshot = lake.snapshot()
    assert snapshot["s.spark"].to_arrow() == snapshot["s.local"].to_arrow()
    bad = snapshot["s.spark_rejects"].to_arrow().to_pylist()
    assert bad == snapshot["s.local_rejects"].to_arrow().to_pylist()
    assert [(row["line"], row["text"]) for row in bad] == [(140_003, '70000,"stray'), (220_002, "x,b")]


def test_many_files_are_shared_out_and_keep_their_order(
    spark: SparkSession, lake: ab.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.range(1).count() == 1
    monkeypatch.setattr("anabranch.spark.tasks._BYTES_PER_TASK", 200_000)
    for number in range(4):
        lines = [f'{n},"line\n{n}"' for n in range(number * 10_000, (number + 1) * 10_000)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["id,v", *lines]))
    report = lake.load("s.many", f"{tmp_path}/*.csv", primary_key=["id"], engine="spark")
    assert (report.engine, report.rows_loaded) == ("spark", 40_000)
    assert lake.snapshot()["s.many"].to_arrow(columns=["id"]).column("id").to_pylist() == list(range(40_000))
    (tmp_path / "2.csv").write_text("id,v\n90000,a\nx,b\n")
    (tmp_path / "3.csv").write_text("id,v\ny,a\n")
    with pytest.raises(BadRecordError, match=r"2\.csv, line 3: cannot convert 'x' to int64 \(column 'id'\)"):
        lake.load("s.many", [f"{tmp_path}/3.csv", f"{tmp_path}/2.csv"][::-1], engine="spark")


class StoppedError(Exception):
    """Raised by the callback of a test."""


def test_load_whose_callback_raises_stops_its_tasks(spark: SparkSession, lake: ab.Repository, tmp_path: Path) -> None:
    head, seen = lake.head_commit_id_for_branch("main"), []
    lines = gzip.compress(b"".join(b"%d,text number %d\n" % (number, number) for number in range(1_000_000)), 1)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,v\n") + lines * 20)

    def stop(progress: ab.Progress) -> None:
        seen.append(progress.done)
        raise StoppedError

    with pytest.raises(StoppedError):
        lake.load("s.large", tmp_path / "a.csv.gz", engine="spark", progress=stop)
    assert seen == [0]
    java: Any = spark.sparkContext._jsc
    newest = java.sc().statusStore().jobsList(None).apply(0)
    assert str(newest.status()) == "FAILED"
    wait_until(lambda: running_tasks(spark) == 0)
    assert lake.head_commit_id_for_branch("main") == head
