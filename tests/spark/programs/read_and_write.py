"""Read and write a table with the session of a given master; report as JSON what was seen."""

import json
import sys

import anabranch as ab


def main(master: str, uri: str, storage_options: str) -> None:
    repo = ab.open(uri, storage_options=json.loads(storage_options))
    spark = ab.spark_session(master=master, repo=repo)
    options = {"repo": repo.uri}
    frame = spark.read.format("anabranch").options(**options).load("s.orders")
    seen: dict[str, object] = {"rows": frame.count(), "some": frame.filter("id >= 90").count(), "again": frame.count()}
    doubled = frame.selectExpr("id + 1000 AS id", "v").repartition(4)
    doubled.write.format("anabranch").mode("append").options(**options).option("branch", "dev").save("s.orders")
    changed = frame.filter("id < 10").selectExpr("id", "'new' AS v")
    writer = changed.write.format("anabranch").mode("append").options(**options).option("branch", "dev")
    writer.option("upsert", "true").save("s.orders")
    seen["views"] = ab.tables(spark, repo, ref="dev")
    counted = spark.sql("SELECT count(*) AS n, count_if(v = 'new') AS new FROM s__orders").collect()
    seen["sql"] = counted[0].asDict()
    counts = repo.diff("main", "dev", engine="spark").summary()["s.orders"]
    seen["diff"] = {"inserted": counts.inserted, "updated": counts.updated, "deleted": counts.deleted}
    found = repo.diff("main", "dev", engine="spark").iter_rows()
    seen["columns"] = sorted({(row.change.value, row.columns) for row in found})
    print("SEEN " + json.dumps(seen))  # noqa: T201 - a program's answer
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
