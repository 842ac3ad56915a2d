"""Pipelines on Spark: all outputs are one commit, or nothing is."""

import json
import threading
from typing import Any

import lance
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import CheckFailedError, CommitNotFoundError, StepFailedError
from anabranch.storage import open_store
from anabranch.storage.options import lance_options
from anabranch.types import StepProgress
from tests.pipelines.conftest import ORDERS, WriteFile, anabranch, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FIVE = """
    from pyspark.sql import functions as f

    pipeline.sql(
        "silver.orders",
        "SELECT orders.id, customer, bronze.orders.amount, day FROM bronze.orders WHERE day >= :since AND id >= :least",
        primary_key=["id"],
    )
    pipeline.sql("silver.customers", "SELECT id, upper(name) AS name FROM bronze.customers", primary_key=["id"])

    def shout(batches):
        yield from batches

    @pipeline.table("gold.revenue", inputs=["silver.orders", "silver.customers"], primary_key=["name"], write="upsert")
    def revenue(orders, customers, *, since):
        joined = orders.join(customers, orders.customer == customers.id)
        found = joined.groupBy("name").agg(f.sum("amount").alias("revenue")).withColumn("since", f.lit(since))
        return found.mapInArrow(shout, found.schema)

    pipeline.sql("gold.days", "SELECT day, count(*) AS n FROM silver.orders GROUP BY day")
    pipeline.sql("gold.log", "SELECT current_timestamp() AS at, name FROM gold.revenue", write="append")
    pipeline.check("some revenue", "SELECT * FROM gold.revenue WHERE revenue < {least_revenue}")

    @pipeline.check("five days")
    def five(snapshot):
        return snapshot["gold.days"].count_rows() == 5
"""
KEYS = ("silver.orders", "silver.customers", "gold.revenue", "gold.days", "gold.log")


def rows(repo: ab.Repository, key: str, ref: str = "dev") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = repo.snapshot_of(ref)[key].to_arrow().to_pylist()
    return sorted(found, key=str)


def raw(repo: ab.Repository, key: str, ref: str = "dev") -> tuple[int, int]:
    """What a Lance reader that knows nothing of us sees: a version, and how many rows it has."""
    options = lance_options(repo.storage_options) or None
    dataset = lance.dataset(repo.snapshot_of(ref)[key].uri, storage_options=options)
    return dataset.version, dataset.count_rows()


@pytest.mark.s3
def test_all_outputs_are_one_commit_that_shows_how_it_was_made(lake: ab.Repository, write_file: WriteFile) -> None:
    file = write_file(FIVE.format(least_revenue=0))
    pipeline, before = ab.Pipeline.load(file), lake.snapshot_of("dev")
    steps: list[Any] = []
    done = pipeline.run(lake, branch="dev", parameters={"least": "2"}, progress=steps.append)
    commit = lake.list_commits("dev")[0]
    assert commit.graph_commit_id == done.commit_id
    assert commit.parent_commit_id == before.id == done.input_id
    assert sorted(commit.tables) == sorted(KEYS)
    assert rows(lake, "gold.revenue") == [
        {"name": "ANN", "revenue": 63.0, "since": "2026-01-01"},
        {"name": "BOB", "revenue": 69.0, "since": "2026-01-01"},
        {"name": "CEM", "revenue": 57.0, "since": "2026-01-01"},
    ]
    assert {output.key: output.rows for output in done.outputs} == dict(zip(KEYS, (18, 3, 3, 5, 3), strict=True))
    # How it came to be.
    reported = commit.metadata
    assert (reported["pipeline"], reported["pipeline.file"], reported["pipeline.input"]) == (
        "shop",
        "shop.py",
        before.id,
    )
    assert reported["pipeline.source_hash"] == pipeline.source.hash
    assert json.loads(reported["pipeline.parameters"]) == {"since": "2026-01-01", "least": 2}
    outputs = json.loads(reported["pipeline.outputs"])
    assert list(outputs["gold.revenue"]) == [
        "inputs",
        "write",
        "rows",
        "seconds",
        "kind",
        "engine",
        "code_hash",
    ]
    assert outputs["gold.revenue"]["inputs"] == ["silver.orders", "silver.customers"]
    assert (outputs["gold.revenue"]["write"], outputs["gold.revenue"]["kind"]) == ("upsert", "python")
    assert outputs["silver.orders"]["rows"] == 18
    # Each step was reported, in an order that can be.
    assert all(isinstance(step, StepProgress) and step.stage == "outputs" for step in steps)
    assert (steps[-1].done, steps[-1].total, steps[-1].rows) == (5, 5, 18 + 3 + 3 + 5 + 3)
    assert next(step.table for step in steps if step.state == "started") == "silver.orders"
    ended = [step.table for step in steps if step.state == "done"]
    assert sorted(ended) == sorted(KEYS)
    assert ended.index("gold.revenue") > max(ended.index("silver.orders"), ended.index("silver.customers"))
    # Nothing of it remains in the session.
    assert not [table for table in ab.spark_session().catalog.listTables() if table.isTemporary]


def test_a_failing_check_publishes_nothing(lake: ab.Repository, write_file: WriteFile) -> None:
    before, log = lake.snapshot_of("dev"), lake.reflog("dev")
    seen = {key: raw(lake, key) for key in before}
    # One of the five has a table already.
    text = FIVE.format(least_revenue=60).replace("silver.customers", "bronze.customers")
    text = text.replace("FROM bronze.customers", "FROM bronze.orders").replace("upper(name)", "cast(id AS string)")
    pipeline = ab.Pipeline.load(write_file(text))
    with pytest.raises(CheckFailedError, match="the check 'some revenue' found rows"):
        pipeline.run(lake, branch="dev")
    assert lake.snapshot_of("dev").id == before.id
    assert lake.reflog("dev") == log
    assert list(lake.snapshot_of("dev")) == list(before)
    assert {key: raw(lake, key) for key in before} == seen
    assert [branch.name for branch in lake.branch_list()] == ["dev", "main"]
    (failed,) = lake.run_list()
    assert (failed.state, failed.commit_id, sorted(failed.tables)) == ("failed", None, sorted(pipeline.outputs))
    assert "some revenue" in str(failed.error)


def test_an_append_sees_each_new_row_once(lake: ab.Repository, write_file: WriteFile) -> None:
    pipeline = ab.Pipeline.load(
        write_file(
            """
            pipeline.sql(
                "silver.seen", "SELECT id, amount FROM bronze.orders", write="append", incremental=["bronze.orders"]
            )
            pipeline.sql(
                "gold.sums",
                "SELECT s.id % 2 AS half, sum(s.amount) AS total, max(c.id) AS customers"
                " FROM silver.seen s, bronze.customers c GROUP BY 1",
                write="upsert",
                primary_key=["half"],
                incremental=["silver.seen"],
            )
            """
        )
    )
    first = pipeline.run(lake, branch="dev")
    assert [output.rows for output in first.outputs] == [20, 2]
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(100, 102))
        tx.update(ORDERS, {"amount": "7000"}, where="id = 3")
        tx.delete(ORDERS, "id = 4")
    second = pipeline.run(lake, branch="dev")
    assert [output.rows for output in second.outputs] == [23, 2]
    appended = rows(lake, "silver.seen")
    assert [row for row in appended if row["id"] in (3, 100, 101)] == [
        {"id": 100, "amount": 100.0},
        {"id": 101, "amount": 101.0},
        {"id": 3, "amount": 3.0},
        {"id": 3, "amount": 7000.0},
    ]
    # The sums are of what is new in an output of the same pipeline: 100, and 101 with 7000; three customers each.
    assert rows(lake, "gold.sums") == [
        {"half": 0, "total": 300.0, "customers": 2},
        {"half": 1, "total": 21303.0, "customers": 2},
    ]
    third = pipeline.run(lake, branch="dev")
    assert third.commit_id is None
    assert lake.snapshot_of("dev").id == second.commit_id
    # What was built alone counts for that output alone.
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(200, 201))
    alone = pipeline.run(lake, branch="dev", only=["silver.seen"])
    commit = lake.list_commits("dev")[0]
    assert (commit.graph_commit_id, commit.tables) == (alone.commit_id, ("silver.seen",))
    assert list(json.loads(commit.metadata["pipeline.outputs"])) == ["silver.seen"]
    last = pipeline.run(lake, branch="dev")
    assert [output.rows for output in last.outputs] == [24, 2]
    assert rows(lake, "gold.sums")[0] == {"half": 0, "total": 600.0, "customers": 2}


BAD_STEPS = {
    "x.raises": ("Spark's own error", "stop here"),
    "x.column": ("a column that is not there", "`nosuch` cannot be resolved"),
    "x.worker": ("Python on the workers", "ValueError: bad batch"),
    "x.driver": ("Python on the driver", "ZeroDivisionError: integer division or modulo by zero"),
    "x.nothing": ("no frame", "the function of 'x.nothing' returned int"),
    "x.twice": ("a key twice", "more than once"),
}


def test_a_failed_step_reports_which_and_why_and_keeps_its_log(lake: ab.Repository, write_file: WriteFile) -> None:
    file = write_file(
        """
        pipeline.sql("x.raises", "SELECT id, CAST(raise_error('stop here') AS STRING) AS v FROM bronze.orders")
        pipeline.sql("x.column", "SELECT nosuch FROM bronze.orders")
        pipeline.sql("x.twice", "SELECT customer FROM bronze.orders", primary_key=["customer"])

        @pipeline.table("x.worker", inputs=["bronze.orders"])
        def worker(orders):
            def fail(batches):
                for batch in batches:
                    raise ValueError("bad batch")
                    yield batch

            return orders.mapInArrow(fail, orders.schema)

        @pipeline.table("x.driver", inputs=["bronze.orders"])
        def driver(orders):
            return orders.limit(1 // 0)

        @pipeline.table("x.nothing")
        def nothing():
            return 7
        """
    )
    pipeline, head = ab.Pipeline.load(file), lake.snapshot_of("dev").id
    for key, (what, reason) in BAD_STEPS.items():
        with pytest.raises(StepFailedError) as caught:
            pipeline.run(lake, branch="dev", only=[key])
        problem = caught.value.problem
        assert problem.startswith(f"{pipeline.outputs[key].location}: building '{key}' failed: "), what
        assert reason in problem, what
        assert len(problem) < 700, what
        assert "ab_0" not in problem, what
        run = lake.run_list(limit=1)[0]
        assert (run.state, run.tables) == ("failed", ()), what
        log = f"_logs/{run.id}/{key}.log"
        assert caught.value.hint.endswith(f"{lake.uri}/{log}"), what
        assert anabranch("run", "show", run.id, "--repo", lake.uri)[1]["logs"] == {key: f"{lake.uri}/{log}"}, what
        assert "Traceback" in open_store(lake.uri, lake.storage_options).get(log).decode(), what
    assert lake.snapshot_of("dev").id == head


def test_outputs_without_rows_are_tables_all_the_same(lake: ab.Repository, write_file: WriteFile) -> None:
    text = """
    for write in ("rebuild", "append", "upsert"):
        nothing = "SELECT * FROM bronze.orders WHERE id < 0"
        pipeline.sql(f"gold.{write}", nothing, write=write, primary_key=["id"])
    """
    done = ab.Pipeline.load(write_file(text)).run(lake, branch="dev")
    assert [output.rows for output in done.outputs] == [0, 0, 0]
    assert lake.snapshot_of("dev")["gold.upsert"].primary_key == ("id",)
    assert lake.snapshot_of("dev")["gold.append"].schema.names == ["id", "customer", "amount", "day"]


def test_a_live_branch_continues_from_what_it_showed(lake: ab.Repository, write_file: WriteFile) -> None:
    lake.branch_create_from("main", "live", mode="live")
    text = """
    pipeline.sql("gold.seen", "SELECT id FROM bronze.orders", write="append", incremental=["bronze.orders"])
    """
    pipeline = ab.Pipeline.load(write_file(text))
    assert pipeline.run(lake, branch="live").outputs[0].rows == 20
    with lake.transaction("main") as tx:
        tx.append(ORDERS, orders(20, 22))
    second = pipeline.run(lake, branch="live")
    assert second.outputs[0].rows == 22
    with lake.transaction("main") as tx:
        tx.append(ORDERS, orders(22, 25))
    assert pipeline.run(lake, branch="live").outputs[0].rows == 25
    assert [row["id"] for row in sorted(rows(lake, "gold.seen", "live"), key=lambda row: row["id"])] == list(range(25))
    with pytest.raises(CommitNotFoundError, match="is not a commit of a branch"):
        pipeline.reproduce(lake, str(second.commit_id))


def test_steps_that_do_not_need_each_other_run_at_the_same_time(spark: SparkSession, lake: ab.Repository) -> None:
    both = threading.Barrier(2, timeout=120)
    pipeline = ab.Pipeline("two")

    def wait(frame: DataFrame) -> DataFrame:
        both.wait()  # breaks if the other one is not there in time
        return frame.withColumn("both", f.lit("yes"))

    pipeline.table("gold.one", inputs=[ORDERS])(wait)
    pipeline.table("gold.two", inputs=[ORDERS])(wait)
    pipeline.sql("gold.three", "SELECT one.id FROM gold.one JOIN gold.two USING (id)")
    done = pipeline.run(lake, spark=spark, jobs=2)
    assert [output.rows for output in done.outputs] == [20, 20, 20]


def test_a_failure_stops_the_steps_beside_it(spark: SparkSession, lake: ab.Repository) -> None:
    """The other one would run for ever, on one core."""
    started = threading.Event()
    pipeline = ab.Pipeline("two")

    @pipeline.table("gold.slow", inputs=[ORDERS])
    def slow(frame: DataFrame) -> DataFrame:
        started.set()
        return spark.range(1_000_000_000_000, numPartitions=1).selectExpr("sum(hash(id)) AS s")

    @pipeline.table("gold.bad", inputs=[ORDERS])
    def bad(frame: DataFrame) -> DataFrame:
        started.wait()
        return frame.selectExpr("CAST(raise_error('no good') AS STRING) AS v")

    with pytest.raises(StepFailedError, match=r"building 'gold.bad' failed: .*no good"):
        pipeline.run(lake, spark=spark)
    assert lake.run_list()[0].state == "failed"
