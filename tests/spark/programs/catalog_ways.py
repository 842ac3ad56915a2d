"""Use a repository from a session at a given master in every way but plain SQL; print what was read.

These are procedures, a load by the workers, a pipeline project, exports, and streams into and out of tables by name.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import anabranch as ab

PROJECT = {
    "anabranch.yml": "name: shop\nbucket: gold\n",
    "models/totals.sql": "-- ---\n-- key: v\n-- checks: [{unique: v}]\n-- ---\n"
    "SELECT v, count(*) AS n FROM s.loaded GROUP BY v\n",
    "models/doubled.py": "# ---\n# inputs: [gold.totals]\n# key: v\n# ---\n"
    "def twice(batches):\n"
    "    import pyarrow.compute as pc\n\n"
    "    for batch in batches:\n"
    "        yield batch.set_column(1, 'n', pc.multiply(batch.column('n'), 2))\n\n\n"
    "def model(totals):\n"
    "    return totals.mapInArrow(twice, totals.schema)\n",
}


def main(master: str, uri: str, folder: str) -> None:
    repo, here = ab.open(uri), Path(folder)
    spark = ab.spark_session(repo, master=master, config={"spark.sql.shuffle.partitions": "2"})
    found = {
        "procedures": call_procedures(spark, here),
        "load": load_and_export(spark, repo, here),
        "pipeline": run_pipeline(spark, repo, here),
        "streams": stream(spark, here),
    }
    print("SEEN " + json.dumps(found))  # noqa: T201 - a program's answer
    spark.stop()


def call_procedures(spark: SparkSession, here: Path) -> list[Any]:
    (here / "called.csv").write_text("id,v\n300,a\n301,b\n")
    answers = []
    for text in (
        f"load('s.called', '{here}/called.csv', branch => 'dev', primary_key => array('id'))",
        "create_branch('work', source => 'dev')",
        "diff('main', 'dev')",
        f"export('s.called', '{here}/called.parquet', ref => 'dev')",
        "merge('work', into => 'dev')",
        "delete_branch('work')",
    ):
        rows = spark.sql(f"CALL lake.system.{text}").collect()
        answers.append([len(rows), rows[0].asDict().get("inserted"), rows[0].asDict().get("rows_loaded")])
    return [*answers, read_files(spark, here / "called.parquet")]


def load_and_export(spark: SparkSession, repo: ab.Repository, here: Path) -> list[Any]:
    (here / "load").mkdir()
    for number in range(3):
        lines = [f"{number * 10 + n},v{n % 2}" for n in range(10)]
        (here / "load" / f"{number}.csv").write_text("\n".join(["id,v", *lines]) + "\n")
    report = repo.load("s.loaded", str(here / "load"), branch="dev", primary_key=["id"], engine="spark")
    frame = spark.table("lake.s.loaded.branch_dev")
    repo.load("s.framed", frame.filter("id < 5"), branch="dev")
    exported = repo.export("s.loaded", here / "loaded.parquet", ref="dev", where="id >= 10")
    frame.write.parquet(str(here / "by_workers"))
    return [
        report.rows_loaded,
        exported.rows,
        read_files(spark, here / "loaded.parquet"),
        read_files(spark, here / "by_workers"),
        count(spark, "lake.s.framed.branch_dev"),
    ]


def run_pipeline(spark: SparkSession, repo: ab.Repository, here: Path) -> list[Any]:
    for path, text in PROJECT.items():
        file = here / "project" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    run = ab.Pipeline.load(here / "project").run(repo, branch="dev", spark=spark)
    rows = spark.sql("SELECT * FROM lake.gold.doubled.branch_dev ORDER BY v").collect()
    return [{output.key: output.rows for output in run.outputs}, [list(row) for row in rows]]


def stream(spark: SparkSession, here: Path) -> list[Any]:
    """Stream files into a table, that table into another one, and its changes into a third one."""
    (here / "feed").mkdir()
    for number in range(2):
        (here / "feed" / f"{number}.json").write_text(json.dumps({"id": number, "v": f"f{number}"}) + "\n")
    for table, columns in {
        "streamed": "id BIGINT, v STRING, PRIMARY KEY (id)",
        "copied": "id BIGINT, v STRING",
        "changed": "id BIGINT, change STRING",
    }.items():
        spark.sql(f"CREATE TABLE lake.s.{table}.branch_dev ({columns})")
    files = spark.readStream.schema("id bigint, v string").option("maxFilesPerTrigger", 1).json(str(here / "feed"))
    changes = spark.readStream.table("lake.s.streamed.branch_dev.changes").selectExpr("id", "_change AS change")
    for name, frame in {
        "streamed": files,
        "copied": spark.readStream.table("lake.s.streamed.branch_dev"),
        "changed": changes,
    }.items():
        writer = frame.writeStream.option("checkpointLocation", str(here / f"checkpoint_{name}"))
        query = writer.trigger(availableNow=True).toTable(f"lake.s.{name}.branch_dev")
        query.awaitTermination()
    return [
        [list(row) for row in spark.sql(f"SELECT * FROM lake.s.{name}.branch_dev ORDER BY id").collect()]
        for name in ("streamed", "copied", "changed")
    ]


def read_files(spark: SparkSession, path: Path) -> int:
    return spark.read.parquet(str(path)).count()


def count(spark: SparkSession, table: str) -> int:
    return spark.table(table).count()


if __name__ == "__main__":
    main(*sys.argv[1:])
