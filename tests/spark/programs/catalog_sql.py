"""Run each kind of SQL statement on the tables of the catalog, at a given master; print what was read."""

import json
import sys

import anabranch as ab

STATEMENTS = (
    "INSERT INTO lake.s.orders.branch_dev SELECT id + 2000, v FROM lake.s.orders",
    "UPDATE lake.s.orders.branch_dev SET v = concat(v, '!') WHERE id >= 2000 AND id % 2 = 0",
    "DELETE FROM lake.s.orders.branch_dev WHERE length(v) = 3 AND id % 2000 = 1",
    "MERGE INTO lake.s.orders.branch_dev t USING (SELECT id, 'm' AS v FROM lake.s.orders WHERE id < 2 UNION ALL "
    "SELECT 3000, 'n') s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
    "CREATE TABLE lake.s.made.branch_dev TBLPROPERTIES ('primaryKey' = 'id') AS SELECT id, v FROM lake.s.orders",
    "CREATE TABLE lake.s.empty.branch_dev (id BIGINT, v STRING, PRIMARY KEY (id))",
    "ALTER TABLE lake.s.empty.branch_dev ADD COLUMN n INT DEFAULT 7",
    "INSERT INTO lake.s.empty.branch_dev (id, v) VALUES (1, 'one')",
)
QUERIES = (
    "SELECT count(*), sum(id) FROM lake.s.orders WHERE id >= 90",
    "SELECT v, count(*), min(id), max(id) FROM lake.s.orders.branch_dev GROUP BY v ORDER BY v",
    "SELECT count(*) FROM lake.s.orders.branch_dev VERSION AS OF 'dev~1'",
    "SELECT count(*) FROM lake.s.made.branch_dev",
    "SELECT * FROM lake.s.empty.branch_dev",
    "SHOW TABLES IN lake.s",
)


def main(master: str, uri: str, storage_options: str) -> None:
    repo = ab.open(uri, storage_options=json.loads(storage_options))
    spark = ab.spark_session(repo, master=master, config={"spark.sql.shuffle.partitions": "2"})
    for statement in STATEMENTS:
        spark.sql(statement).collect()
    found = {query: [list(row) for row in spark.sql(query).collect()] for query in QUERIES}
    print("SEEN " + json.dumps(found))  # noqa: T201 - a program's answer
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
