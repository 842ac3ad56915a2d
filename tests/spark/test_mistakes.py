"""Mistakes of Spark users: each error is one of Spark's, names the value and the way out, and changes nothing."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import anabranch as ab

pytestmark = pytest.mark.spark

# The statement, its error, and the way out.
MISTAKES = [
    ("SELECT * FROM {lake}.s.order", "`s`.`order` cannot be found", "Verify the spelling"),
    ("SELECT * FROM {lake}.s.orders.dev", "'s.orders.dev' ends with 'dev'", "write s.orders.branch_dev"),
    ("SELECT * FROM {lake}.s.orders.branch_dve", "no branch, tag or commit 'dve'", "system.list_branches()"),
    ("SELECT * FROM {lake}.s.orders VERSION AS OF 99", "branch 'main' has no version 99", "table.history"),
    ("SELECT * FROM {lake}.s.orders TIMESTAMP AS OF '2001-01-01'", "'main' did not exist at 2001", "a later time"),
    ("INSERT INTO {lake}.s.orders VALUES (3)", "not enough data columns", "Table columns: `id`, `v`"),
    (
        "INSERT INTO {lake}.s.orders (id, price) VALUES (3, 'x')",
        "`price` cannot be resolved",
        "Did you mean one of the following",
    ),
    ("INSERT INTO {lake}.s.orders.tag_v1 VALUES (900, 'x')", "s.orders.tag_v1' is read-only", "s.orders.branch_main"),
    ("UPDATE {lake}.s.orders.tag_v1 SET v = 'x'", "s.orders.tag_v1' is read-only", "s.orders.branch_main"),
    ("DELETE FROM {lake}.s.orders.tag_v1 WHERE id = 1", "s.orders.tag_v1' is read-only", "s.orders.branch_main"),
    ("DROP TABLE {lake}.s.orders.tag_v1", "'s.orders' at 'v1' is read-only", "s.orders.branch_main"),
    ("CREATE TABLE {lake}.new (id INT)", "'new' has no bucket", "name it 'bucket.table'"),
    ("SHOW TABLES IN {lake}.nothing", "`nothing` cannot be found", "Verify the spelling"),
    ("CALL {lake}.system.create_branch(nme => 'x')", "named `nme`", "Did you mean"),
    ("CALL {lake}.system.branch('x')", "there is no procedure 'system.branch'", "create_branch"),
    ("CALL {lake}.system.merge('dev', strategy => 'mine')", "unknown strategy 'mine'", "source"),
    ("CALL {lake}.system.reset('main', to => 'v9')", "no branch, tag or commit 'v9'", "system.list_branches()"),
    ("CALL {lake}.system.undo('dev')", "the last change of branch 'dev'", "CALL system.rename_branch('dev', 'old')"),
]


def test_errors_name_the_value_and_the_way_out(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    lake.branch_create("old")
    lake.branch_rename("old", "dev")
    lake.tag_create("v1")
    heads = [lake.head_commit_id_for_branch(branch) for branch in ("main", "dev")]
    for statement, problem, way_out in MISTAKES:
        with pytest.raises(AnalysisException) as caught:
            spark.sql(statement.format(lake=catalog))
        text = str(caught.value)
        assert problem in text, statement
        assert way_out in text, statement
        assert "\tat " not in text, statement
    assert [lake.head_commit_id_for_branch(branch) for branch in ("main", "dev")] == heads


def test_default_branch_that_does_not_exist(spark: SparkSession, lake: ab.Repository, catalog: str) -> None:
    spark.sql(f"SET spark.sql.catalog.{catalog}.branch = nope")
    with pytest.raises(AnalysisException, match="no branch, tag or commit 'nope'"):
        spark.sql(f"UPDATE {catalog}.s.orders SET v = 'x'")
    spark.sql(f"SET spark.sql.catalog.{catalog}.branch = main")
    assert [row.branch for row in spark.sql(f"CALL {catalog}.system.list_branches()").collect()] == ["main"]
