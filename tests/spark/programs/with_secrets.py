"""Read, write and fail with credentials, while Spark logs everything it can; the caller searches the output."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from tests.spark.conftest import orders

KEY = "s.orders"
LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""


def main(master: str, uri: str, storage_options: str, folder: str) -> None:
    repo = ab.init(uri, storage_options=json.loads(storage_options))
    with repo.transaction() as tx:
        tx.create_table(KEY, orders(0, 1).schema)
        tx.append(KEY, orders(0, 10))
    if master.startswith("sc://"):
        spark = ab.spark_session(master=master, repo=repo)
        use(repo, {"repo": uri})
        use_catalog(spark)
    else:
        spark = ab.spark_session(master=master, config=talkative(Path(folder)))
        secrets = {f"secret.{name}": value for name, value in repo.storage_options.items()}
        use(repo, {"repo": uri, **secrets})
        ab.spark_session(repo=repo)
        use(repo, {"repo": uri})
        use_catalog(spark)
        unreachable = {**secrets, "secret.aws_endpoint": "http://127.0.0.1:9", "secret.client_max_retries": "0"}
        fails(lambda: spark.read.format("anabranch").options(repo=uri, **unreachable).load(KEY))
    spark.stop()


def talkative(folder: Path) -> dict[str, str]:
    (folder / "log4j2.properties").write_text(LOGGING)
    return {
        "spark.log.level": "INFO",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(folder),
    }


def use(repo: ab.Repository, options: dict[str, str]) -> None:
    spark = ab.spark_session()

    def save(frame: DataFrame, mode: str = "append", **more: str) -> None:
        frame.write.format("anabranch").mode(mode).options(**options, **more).save(KEY)

    frame = spark.read.format("anabranch").options(**options).load(KEY)
    for mode in ("simple", "extended", "cost", "formatted"):
        frame.filter("id > 3").explain(mode=mode)
    save(frame)
    ab.tables(spark, repo)
    spark.sql("SELECT count(*) FROM s__orders").show()
    spark.sql("DESCRIBE EXTENDED s__orders").show(truncate=False)
    fails(lambda: save(frame, upsert="perhaps"))
    fails(lambda: save(frame.withColumnRenamed("v", "w")))
    fails(lambda: save(frame, mode="error"))


def use_catalog(spark: SparkSession) -> None:
    """Read, write and fail by SQL, and show all that can be shown."""
    merge = (
        "MERGE INTO lake.s.orders t USING (SELECT 3 AS id, 'm' AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    statements = (
        "SELECT max(id) FROM lake.s.orders WHERE v <> ''",
        "INSERT INTO lake.s.orders VALUES (70, 'x')",
        merge,
    )
    for statement in statements:
        for mode in ("EXTENDED", "FORMATTED", "COST", "CODEGEN"):
            spark.sql(f"EXPLAIN {mode} {statement}").show(truncate=False)
        spark.sql(statement).show()
    for shown in (
        "SET",
        "DESCRIBE EXTENDED lake.s.orders",
        "SHOW TBLPROPERTIES lake.s.orders",
        "SHOW CREATE TABLE lake.s.orders",
    ):
        spark.sql(shown).show(1000, truncate=False)
    fails(lambda: spark.sql("SELECT * FROM lake.s.missing"))
    fails(lambda: spark.sql("INSERT INTO lake.s.orders SELECT id, raise_error('no') FROM range(3)").collect())


def fails(act: Callable[[], Any]) -> None:
    try:
        act()
    except PySparkException as err:
        print("FAILED", err)  # noqa: T201 - the output is searched


if __name__ == "__main__":
    main(*sys.argv[1:])
