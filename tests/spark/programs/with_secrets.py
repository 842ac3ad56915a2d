"""Read, write and fail with credentials, while Spark tells everything it can; the caller searches what it told."""

import json
import sys

from pyspark.errors import PySparkException

import anabranch as ab
from tests.spark.conftest import options, orders

KEY = "s.orders"


def main(master: str, uri: str, storage_options: str, folder: str) -> None:
    repo = ab.init(uri, storage_options=json.loads(storage_options))
    with repo.transaction() as tx:
        tx.create_table(KEY, orders(0, 1).schema)
        tx.append(KEY, orders(0, 10))
    settings = {
        "spark.log.level": "INFO",
        "spark.driver.extraJavaOptions": "",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder,
    }
    spark = ab.spark_session(master=master, config={} if master.startswith("sc://") else settings)
    frame = spark.read.format("anabranch").options(**options(repo)).load(KEY)
    for mode in ("simple", "extended", "cost", "codegen", "formatted"):
        frame.filter("id > 3").explain(mode=mode)
    frame.write.format("anabranch").mode("append").options(**options(repo)).save(KEY)
    ab.tables(spark, repo)
    spark.sql("SELECT count(*) FROM s__orders").show()
    spark.sql("DESCRIBE EXTENDED s__orders").show(truncate=False)
    wrong = {**options(repo), "secret.aws_endpoint": "http://127.0.0.1:9", "secret.client_max_retries": "0"}
    for attempt in (
        lambda: spark.read.format("anabranch").options(**wrong).load(KEY).count(),
        lambda: frame.write.format("anabranch").mode("append").options(**wrong).save(KEY),
        lambda: frame.write.format("anabranch").mode("append").options(**wrong, upsert="perhaps").save(KEY),
        lambda: (
            frame.withColumnRenamed("v", "w")
            .write.format("anabranch")
            .mode("append")
            .options(**options(repo))
            .save(KEY)
        ),
        lambda: frame.write.format("anabranch").options(**options(repo)).save(KEY),
    ):
        try:
            attempt()
        except PySparkException as err:
            print("FAILED", err)  # noqa: T201 - what it tells is searched
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
