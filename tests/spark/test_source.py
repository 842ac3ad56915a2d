"""`format("anabranch")` where the jar is there: reads go through the catalog's scan, the rest through Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import InvalidInputError, KeyConflictError
from anabranch.spark.tasks import spark_errors
from pyspark_anabranch import DefaultSource
from tests.spark.conftest import ORDERS, Read, Write, options, orders, rows

pytestmark = pytest.mark.spark

WITHOUT_JAR = """
import json, sys
import anabranch as ab
repo = ab.open(sys.argv[1])
spark = ab.spark_session(repo, catalog=None, config={"spark.jars": ""})
frame = spark.read.format("anabranch").option("repo", repo.uri).load("s.orders")
plan = frame._jdf.queryExecution().toString()
print("SEEN " + json.dumps([frame.filter("id >= 90").count(), "columns=[" in plan, "Python" in plan]))
"""


def plan_of(frame: object) -> str:
    return str(frame._jdf.queryExecution().executedPlan())  # type: ignore[attr-defined]


@pytest.mark.usefixtures("large")
def test_read_by_options_prunes_columns_and_pushes_filters(lake: ab.Repository, read: Read) -> None:
    frame = read(lake, where="id < 50")
    plan = plan_of(frame.filter("id > 40").select("v"))
    assert "columns=[v] filter=[(id < 50\n) AND (`id` IS NOT NULL) AND (`id` > 40)]" in plan
    assert plan.startswith("*(1) ColumnarToRow")
    assert "aggregates=[COUNT(*)]" in plan_of(frame.groupBy().count())
    # The filter and the bases of the options apply to every query, and those of a query to that query only.
    assert (frame.filter("id > 40").count(), frame.count(), frame.filter("id > 60").count()) == (9, 50, 0)
    assert read(lake, bases="root").filter("id < 7").count() == 7
    assert read(lake, columns="v").columns == ["v"]
    assert read(lake).schema.json() == read(lake, ref="main").schema.json()
    assert [field.nullable for field in read(lake).schema] == [True, True]


def test_source_in_the_jar_wins_over_a_registered_one(spark: SparkSession, lake: ab.Repository, read: Read) -> None:
    """Spark takes the source in Java without an error about two sources of one name; Python's still writes."""
    spark.dataSource.register(DefaultSource)
    assert "columns=[id]" in plan_of(read(lake).select("id"))


def test_options_for_changes_and_writes_are_left_to_python(lake: ab.Repository, read: Read, write: Write) -> None:
    lake.branch_create("dev")
    write(read(lake).limit(5).selectExpr("id + 1000 AS id", "v"), lake, branch="dev", message="five")
    assert lake.list_commits("dev")[0].message == "five"
    feed = read(lake, since="main", until="dev")
    assert "columns=[" not in plan_of(feed)
    assert [row._change for row in feed.collect()] == ["insert"] * 5


def test_insert_into_a_temporary_view_is_one_commit(spark: SparkSession, lake: ab.Repository) -> None:
    lake.branch_create("dev")
    make_view(spark, lake, "on_dev", ref="dev")
    spark.sql("INSERT INTO on_dev VALUES (500, 'new')")
    assert (len(rows(lake)), len(rows(lake, "dev"))) == (100, 101)
    assert lake.list_commits("dev")[0].message == "INSERT INTO on_dev VALUES (500, 'new')"
    with pytest.raises(KeyConflictError), spark_errors():
        spark.sql("INSERT INTO on_dev VALUES (500, 'again')")
    spark.sql("INSERT OVERWRITE on_dev VALUES (1, 'only')")
    assert rows(lake, "dev") == [{"id": 1, "v": "only"}]
    assert spark.table("on_dev").count() == 100  # a view stays what it was when it was made


def test_views_that_cannot_be_written_report_why(spark: SparkSession, lake: ab.Repository) -> None:
    lake.tag_create("v1")
    make_view(spark, lake, "some_rows", where="id < 5")
    make_view(spark, lake, "at_tag", ref="v1")
    for view in ("some_rows", "at_tag"):
        with pytest.raises(InvalidInputError, match="is read-only") as caught, spark_errors():
            spark.sql(f"INSERT INTO {view} VALUES (500, 'new')")
        assert caught.value.hint == "name the table on a branch, as in s.orders.branch_main"
    with pytest.raises(InvalidInputError, match="takes no UPDATE, DELETE or MERGE"), spark_errors():
        spark.sql("DELETE FROM at_tag WHERE id = 1")


def test_create_table_in_the_catalog_of_spark_names_the_right_one(spark: SparkSession, lake: ab.Repository) -> None:
    given = f"OPTIONS (repo '{lake.uri}', table 's.orders')"
    for definition in ("(id BIGINT) USING anabranch", f"USING anabranch {given}", "USING anabranch AS SELECT 1 AS id"):
        with pytest.raises(InvalidInputError, match="Spark's own catalog") as caught, spark_errors():
            spark.sql(f"CREATE TABLE own {definition}")
        assert "CREATE TABLE lake.bucket.table" in caught.value.hint
        assert not spark.catalog.tableExists("own")


def make_view(spark: SparkSession, repo: ab.Repository, name: str, **given: str) -> None:
    named = {**options(repo), "table": ORDERS, **given}
    text = ", ".join(f"`{option}` '{value}'" for option, value in named.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING anabranch OPTIONS ({text})")


@pytest.mark.proof
def test_without_the_jar_the_source_in_python_reads(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(ORDERS, orders(0, 1).schema)
        tx.append(ORDERS, orders(0, 100))
    command = [sys.executable, "-c", WITHOUT_JAR, repo.uri]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:]
    seen = next(line for line in answer.stdout.splitlines() if line.startswith("SEEN "))
    assert json.loads(seen.removeprefix("SEEN ")) == [10, False, True]
